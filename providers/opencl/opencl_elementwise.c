/* Operators that compute each element of the result from one element of each operand: one kernel text is put
 * together from the types, the expression and the axes that remain after joining. */
#include "opencl_elementwise.h"

#define NUMBERS (OPENCL_NUMBERS | OPENCL_REALS)

/* ---- the kernel's text ----------------------------------------------------------------------- */

/* What expressions use. Integer division traps on some devices: a zero divisor gives 0, and the one quotient
 * that does not fit wraps. Floats out of an integer's range are clamped to 32 or 64 bits, NaN is 0. */
const char opencl_elementwise_macros[] =
    "#define SOFTPLUS(x) ((x > 0 ? x : 0) + log1p(exp(-fabs(x))))\n"
    "#define BETWEEN(x, low, high) ((x) < low ? low : (x) > high ? high : (x))\n"
    "#define INT(x) ((x) != (x) ? 0 : (x) >= 2147483648.0f ? INT_MAX : (x) <= -2147483648.0f ? INT_MIN : "
    "(int)(x))\n"
    "#define LONG(x) ((x) != (x) ? 0L : (x) >= 9223372036854775808.0f ? LONG_MAX : \\\n"
    "    (x) <= -9223372036854775808.0f ? LONG_MIN : (long)(x))\n"
    "#define ULONG(x) ((x) < 0 ? (ulong)LONG(x) : (x) != (x) ? 0UL : (x) >= 18446744073709551616.0f ? "
    "ULONG_MAX : (ulong)(x))\n";

/* Functions are written only where the expression calls one: every one costs time to build. */
static const struct {
    const char *call, *text;
} functions[] = {
    {"least(", "T0_C least(T0_C x, T0_C y) { return x != x || x < y ? x : y; }\n"},
    {"most(", "T0_C most(T0_C x, T0_C y) { return x != x || x > y ? x : y; }\n"},
    {"divide(", "T0 divide(T0 x, T0 y)\n"
                "{\n"
                "    return y == 0 ? (T0)0 : y == (T0)-1 && (T0)-1 < 0 ? (T0)((W)0 - (W)x) : (T0)(x / y);\n"
                "}\n"},
    {"remainder_of(", "T0 remainder_of(T0 x, T0 y)\n"
                      "{\n"
                      "    return y == 0 || (y == (T0)-1 && (T0)-1 < 0) ? (T0)0 : (T0)(x % y);\n"
                      "}\n"},
    {"modulo(", "T0 modulo(T0 x, T0 y)\n"
                "{\n"
                "    T0 r = y == 0 || (y == (T0)-1 && (T0)-1 < 0) ? (T0)0 : (T0)(x % y);\n"
                "    return r != 0 && (r < 0) != (y < 0) ? (T0)(r + y) : r;\n"
                "}\n"},
    {"power(", "T0 power(T0 x, T0 y)\n"
               "{\n"
               "    W base = (W)x, result = 1;\n"
               "    if (y < 0)\n"
               "        return x == 1 ? (T0)1 : x == (T0)-1 ? (y & 1 ? (T0)-1 : (T0)1) : (T0)0;\n"
               "    for (T0 e = y; e; e = (T0)(e >> 1)) {\n"
               "        if (e & 1)\n"
               "            result = (W)(result * base);\n"
               "        base = (W)(base * base);\n"
               "    }\n"
               "    return (T0)result;\n"
               "}\n"},
};

void opencl_elementwise_functions(gantry_dtype first, const char *expression, opencl_text *text)
{
    opencl_text_add(text, "#define W %s\n", opencl_size_name(opencl_dtype_bytes(first)));
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (strstr(expression, functions[k].call))
            opencl_text_add(text, "%s", functions[k].text);
}

void opencl_elementwise_rename(uint32_t index, opencl_text *text)
{
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        int length = (int)strlen(functions[k].call) - 1;
        opencl_text_add(text, "#undef %.*s\n#define %.*s %.*s_%u\n", length, functions[k].call, length,
                        functions[k].call, length, functions[k].call, index);
    }
}

static void write_types(const opencl_node *node, const uint32_t *inputs, uint32_t count, opencl_text *text)
{
    char types[3200] = "";
    for (uint32_t k = 0; k < count; k++) {
        char name[16];
        snprintf(name, sizeof name, "T%u", k);
        opencl_define_type(types, sizeof types, name, node->inputs[inputs[k]].dtype);
    }
    opencl_define_type(types, sizeof types, "U", opencl_output(node, 0)->dtype);
    opencl_text_add(text, "%s%s", types, opencl_elementwise_macros);
}

static void write_kernel(const opencl_node *node, const uint32_t *inputs, uint32_t count,
                         const opencl_walk *walk, const char *expression, opencl_text *text)
{
    write_types(node, inputs, count, text);
    opencl_elementwise_functions(node->inputs[0].dtype, expression, text);
    opencl_text_add(text, "__kernel void elementwise(");
    for (uint32_t k = 0; k < count; k++)
        opencl_text_add(text, "__global const T%u *x%u, ulong o%u, ", k, k, k);
    opencl_text_add(text, "__global U *y, ulong oy, uint n, float p, float q");
    opencl_walk_parameters(walk, text);
    opencl_text_add(text, ")\n{\n    size_t k = get_global_id(0);\n    if (k >= n)\n        return;\n");
    opencl_walk_indexes(walk, text);
    for (uint32_t k = 0; k < count; k++)
        opencl_text_add(text, "    T%u_C %c = LOAD_T%u(x%u, o%u + i%u);\n", k, (char)('a' + k), k, k, k, k);
    opencl_text_add(text, "    U_C result = (U_C)(%s);\n    STORE_U(result, y, oy + k);\n}\n", expression);
}

void opencl_elementwise_walk_add(opencl_build *build, const opencl_node *node, const uint32_t *inputs,
                                 uint32_t count, opencl_walk *walk, const char *expression, float p, float q)
{
    const opencl_operand *y = opencl_output(node, 0);
    opencl_text text = {.used = 0};
    double bytes = (double)opencl_bytes(y);
    opencl_walk_join(walk);
    write_kernel(node, inputs, count, walk, expression, &text);
    opencl_launch *launch = opencl_launch_add(build, "", text.data, "elementwise");
    for (uint32_t k = 0; k < count; k++) {
        opencl_arg_input(launch, &node->inputs[inputs[k]]);
        bytes += (double)opencl_bytes(&node->inputs[inputs[k]]);
    }
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)walk->count);
    opencl_arg_float(launch, p);
    opencl_arg_float(launch, q);
    opencl_walk_arguments(walk, launch);
    opencl_launch_flat(launch, walk->count);
    opencl_launch_describe(launch, walk->rank == 1 ? "elementwise_flat" : "elementwise_strided", bytes,
                           (double)walk->count);
}

static void note_step(opencl_step *step, const opencl_node *node, const uint32_t *inputs, uint32_t count,
                      const char *expression, float p, float q)
{
    step->operand_count = count;
    for (uint32_t k = 0; k < count; k++)
        step->operands[k] = node->inputs[inputs[k]];
    step->output = *opencl_output(node, 0);
    snprintf(step->expression, sizeof step->expression, "%s", expression);
    step->p = p;
    step->q = q;
}

void opencl_elementwise_add(opencl_build *build, const opencl_node *node, const uint32_t *inputs,
                            uint32_t count, const char *expression, float p, float q)
{
    const opencl_operand *y = opencl_output(node, 0);
    opencl_walk walk;
    if (build->step) {
        note_step(build->step, node, inputs, count, expression, p, q);
        return;
    }
    opencl_walk_begin(&walk, y->rank, y->dims);
    for (uint32_t k = 0; k < count; k++)
        opencl_walk_broadcast(&walk, &node->inputs[inputs[k]]);
    opencl_elementwise_walk_add(build, node, inputs, count, &walk, expression, p, q);
    opencl_launch *launch = opencl_launch_last(build);
    for (uint32_t k = 0; launch && k < count; k++)
        launch->in_place |= opencl_in_place(&node->inputs[inputs[k]], y) << k;
}

/* ---- operators that are an expression -------------------------------------------------------- */

/* What `more` of a row points to. Operands are a, b, c of type T0_C ..., p and q are attributes. */
typedef struct expression {
    const char *real;    /* for floating point */
    const char *integer; /* NULL: the same */
    const char *p_name, *q_name;
    float p, q; /* defaults */
} expression;

static bool is_real(const opencl_operand *operand)
{
    return (OPENCL_REALS & OPENCL_TYPE(operand->dtype)) != 0;
}

static void prepare_expression(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0, 1, 2, 3};
    const expression *e = node->op->more;
    opencl_elementwise_add(build, node, inputs, node->input_count,
                           is_real(&node->inputs[0]) || !e->integer ? e->real : e->integer,
                           e->p_name ? gantry_node_float(node->view, e->p_name, e->p) : 0,
                           e->q_name ? gantry_node_float(node->view, e->q_name, e->q) : 0);
}

/* All operands have one type. Before version 7 operands could be joined at an axis. */
static bool same_types(const opencl_node *node, gantry_verdict *verdict)
{
    if (gantry_node_attribute(node->view, "axis"))
        return opencl_refuse_attribute(verdict, "axis", "an axis to join operands at", "no such attribute");
    for (uint32_t k = 1; k < node->input_count; k++)
        if (!opencl_takes_type(&node->inputs[k], OPENCL_TYPE(node->inputs[0].dtype), verdict))
            return false;
    return true;
}

/* ---- operators that need more than a row ----------------------------------------------------- */

/* Which of several expressions: an attribute decides. */
static void prepare_mod(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0, 1};
    bool c_like = gantry_node_int(node->view, "fmod", 0) != 0, real = is_real(&node->inputs[0]);
    const char *python = "(fmod(a, b) != 0 && (fmod(a, b) < 0) != (b < 0)) ? fmod(a, b) + b : fmod(a, b)";
    opencl_elementwise_add(build, node, inputs, 2,
                           real     ? (c_like ? "fmod(a, b)" : python)
                           : c_like ? "remainder_of(a, b)"
                                    : "modulo(a, b)",
                           0, 0);
}

static void prepare_gelu(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0};
    bool is_tanh = strcmp(gantry_node_string(node->view, "approximate", "none"), "tanh") == 0;
    opencl_elementwise_add(
        build, node, inputs, 1,
        is_tanh
            ? "(T0_C)0.5 * a * (1 + tanh((T0_C)0.79788456080286535588 * (a + (T0_C)0.044715 * a * a * a)))"
            : "(T0_C)0.5 * a * (1 + erf(a * (T0_C)0.70710678118654752440))",
        0, 0);
}

static void prepare_shift(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0, 1};
    bool left = strcmp(gantry_node_string(node->view, "direction", ""), "LEFT") == 0;
    opencl_elementwise_add(build, node, inputs, 2,
                           left ? "b >= 0 && b < 8 * (int)sizeof(T0) ? (W)a << (b & 63) : 0"
                                : "b >= 0 && b < 8 * (int)sizeof(T0) ? a >> (b & 63) : a < 0 ? -1 : 0",
                           0, 0);
}

static void prepare_is_inf(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0};
    opencl_elementwise_add(build, node, inputs, 1,
                           "(isinf(a) && a > 0 && p != 0) || (isinf(a) && a < 0 && q != 0)",
                           (float)gantry_node_int(node->view, "detect_positive", 1),
                           (float)gantry_node_int(node->view, "detect_negative", 1));
}

/* Base and exponent may have different types. */
static void prepare_pow(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0, 1};
    const opencl_operand *a = opencl_input(node, 0), *b = opencl_input(node, 1);
    const char *text = "power(a, (T0)b)";
    if (is_real(a))
        text = "pow(a, (T0_C)b)";
    else if (is_real(b))
        text = "LONG(pow((T1_C)a, b))";
    opencl_elementwise_add(build, node, inputs, 2, text, 0, 0);
}

static bool takes_numbers(const opencl_node *node, gantry_verdict *verdict)
{
    return opencl_takes_type(opencl_input(node, 1), NUMBERS, verdict);
}

static void prepare_where(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0, 1, 2};
    opencl_elementwise_add(build, node, inputs, 3, "a ? b : c", 0, 0);
}

static bool where_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return opencl_takes_type(opencl_input(node, 2), OPENCL_TYPE(opencl_input(node, 1)->dtype), verdict);
}

/* Bounds are attributes before version 11, then operands that may be left out. */
static void prepare_clip(opencl_build *build, const opencl_node *node)
{
    uint32_t inputs[3] = {0}, count = 1;
    bool attributes = node->view->version < 11;
    bool low = opencl_is_there(opencl_input(node, 1)), high = opencl_is_there(opencl_input(node, 2));
    char text[96] = "a";
    if (low)
        inputs[count++] = 1;
    if (high)
        inputs[count++] = 2;
    if (attributes)
        snprintf(text, sizeof text, "(a < p ? p : a) > q ? q : (a < p ? p : a)");
    else if (low && high)
        snprintf(text, sizeof text, "(a < b ? b : a) > c ? c : (a < b ? b : a)");
    else if (low || high)
        snprintf(text, sizeof text, "a %c b ? b : a", low ? '<' : '>');
    opencl_elementwise_add(build, node, inputs, count, text,
                           gantry_node_float(node->view, "min", -3.4028234663852886e38f),
                           gantry_node_float(node->view, "max", 3.4028234663852886e38f));
}

static bool clip_limits(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 1; k < node->input_count; k++)
        if (!opencl_takes_type(&node->inputs[k], OPENCL_TYPE(node->inputs[0].dtype), verdict))
            return false;
    return true;
}

/* ---- conversions ----------------------------------------------------------------------------- */

static void prepare_cast(opencl_build *build, const opencl_node *node)
{
    static const uint32_t inputs[] = {0};
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    bool narrow = opencl_dtype_bytes(out->dtype) < 4 || out->dtype == GANTRY_INT32;
    const char *text = "a";
    if (in->dtype == out->dtype) {
        opencl_view_add(build, out, in, 0);
        return;
    }
    if (out->dtype == GANTRY_BOOL)
        text = "a != 0";
    else if (is_real(in) && !is_real(out))
        text = narrow ? "INT(a)" : out->dtype == GANTRY_UINT64 ? "ULONG(a)" : "LONG(a)";
    opencl_elementwise_add(build, node, inputs, 1, text, 0, 0);
}

#define CASTABLE (NUMBERS | OPENCL_BOOLEAN)

static bool cast_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return opencl_takes_type(opencl_output(node, 0), CASTABLE, verdict);
}

/* ---- any number of operands ------------------------------------------------------------------ */

#define MAX_TERMS 8 /* of one kernel */

static void prepare_variadic(opencl_build *build, const opencl_node *node)
{
    const char *step = node->op->more;
    uint32_t inputs[MAX_TERMS];
    char text[1024] = "a", longer[1024];
    for (uint32_t k = 0; k < node->input_count; k++) {
        inputs[k] = k;
        if (k == 0)
            continue;
        snprintf(longer, sizeof longer, step, text, (char)('a' + k), text);
        memcpy(text, longer, sizeof text);
    }
    if (strcmp(node->op->name, "Mean") == 0) {
        snprintf(longer, sizeof longer, "(%.900s) / %u", text, node->input_count);
        memcpy(text, longer, sizeof text);
    }
    if (node->input_count == 1)
        opencl_view_add(build, opencl_output(node, 0), opencl_input(node, 0), 0);
    else
        opencl_elementwise_add(build, node, inputs, node->input_count, text, 0, 0);
}

static bool variadic_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (node->input_count > MAX_TERMS)
        return opencl_refuse_limit(verdict, node->view->op, node->input_count, MAX_TERMS,
                                   "at most 8 operands");
    return same_types(node, verdict);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define ROW(op, type_set, ...)                                                                               \
    {                                                                                                        \
        .name = op, .domain = "", .types = type_set, .limits = same_types, .prepare = prepare_expression,    \
        .more = &(const expression)                                                                          \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define OWN(op, op_domain, type_set, limit_function, prepare_function)                                       \
    {                                                                                                        \
        .name = op, .domain = op_domain, .types = type_set, .limits = limit_function,                        \
        .prepare = prepare_function                                                                          \
    }
#define VARIADIC(op, type_set, step)                                                                         \
    {                                                                                                        \
        .name = op, .domain = "", .types = type_set, .limits = variadic_limits, .prepare = prepare_variadic, \
        .more = step                                                                                         \
    }
#define SIGNED_NUMBERS (OPENCL_REALS | OPENCL_SIGNED)

static const opencl_op ops[] = {
    ROW("Add", NUMBERS, .real = "a + b"),
    ROW("Sub", NUMBERS, .real = "a - b"),
    ROW("Mul", NUMBERS, .real = "a * b"),
    ROW("Div", NUMBERS, .real = "a / b", .integer = "divide(a, b)"),
    OWN("Mod", "", NUMBERS, same_types, prepare_mod),
    OWN("Pow", "", NUMBERS, takes_numbers, prepare_pow),
    ROW("PRelu", NUMBERS, .real = "a < 0 ? a * b : a"),
    ROW("Equal", NUMBERS | OPENCL_BOOLEAN, .real = "a == b"),
    ROW("Greater", NUMBERS, .real = "a > b"),
    ROW("GreaterOrEqual", NUMBERS, .real = "a >= b"),
    ROW("Less", NUMBERS, .real = "a < b"),
    ROW("LessOrEqual", NUMBERS, .real = "a <= b"),
    ROW("And", OPENCL_BOOLEAN, .real = "a && b"),
    ROW("Or", OPENCL_BOOLEAN, .real = "a || b"),
    ROW("Xor", OPENCL_BOOLEAN, .real = "(a != 0) != (b != 0)"),
    ROW("Not", OPENCL_BOOLEAN, .real = "!a"),
    ROW("BitwiseAnd", OPENCL_INTEGERS, .real = "a & b"),
    ROW("BitwiseOr", OPENCL_INTEGERS, .real = "a | b"),
    ROW("BitwiseXor", OPENCL_INTEGERS, .real = "a ^ b"),
    ROW("BitwiseNot", OPENCL_INTEGERS, .real = "~a"),
    OWN("BitShift", "", OPENCL_INTEGERS, same_types, prepare_shift),
    OWN("Where", "", OPENCL_BOOLEAN, where_limits, prepare_where),
    OWN("Clip", "", NUMBERS, clip_limits, prepare_clip),
    OWN("Cast", "", CASTABLE, cast_limits, prepare_cast),
    OWN("CastLike", "", CASTABLE, cast_limits, prepare_cast),
    VARIADIC("Sum", OPENCL_REALS, "%.900s + %c"),
    VARIADIC("Mean", OPENCL_REALS, "%.900s + %c"),
    VARIADIC("Min", NUMBERS, "least(%.400s, %c)"),
    VARIADIC("Max", NUMBERS, "most(%.400s, %c)"),
    ROW("Abs", OPENCL_REALS | OPENCL_INTEGERS, .real = "fabs(a)", .integer = "a < 0 ? -a : a"),
    ROW("Neg", SIGNED_NUMBERS, .real = "-a"),
    ROW("Sign", NUMBERS, .real = "a > 0 ? (T0_C)1 : a < 0 ? (T0_C)-1 : a", .integer = "(a > 0) - (a < 0)"),
    ROW("Sqrt", OPENCL_REALS, .real = "sqrt(a)"),
    ROW("Reciprocal", OPENCL_REALS, .real = "1 / a"),
    ROW("Floor", OPENCL_REALS, .real = "floor(a)"),
    ROW("Ceil", OPENCL_REALS, .real = "ceil(a)"),
    ROW("Round", OPENCL_REALS, .real = "rint(a)"),
    ROW("Exp", OPENCL_REALS, .real = "exp(a)"),
    ROW("Log", OPENCL_REALS, .real = "log(a)"),
    ROW("Erf", OPENCL_REALS, .real = "erf(a)"),
    ROW("Tanh", OPENCL_REALS, .real = "tanh(a)"),
    ROW("Sigmoid", OPENCL_REALS, .real = "1 / (1 + exp(-a))"),
    ROW("Relu", SIGNED_NUMBERS, .real = "a < 0 ? (T0_C)0 : a"),
    ROW("LeakyRelu", OPENCL_REALS, .real = "a < 0 ? a * p : a", .p_name = "alpha", .p = 0.01f),
    ROW("Elu", OPENCL_REALS, .real = "a < 0 ? p * expm1(a) : a", .p_name = "alpha", .p = 1),
    ROW("Celu", OPENCL_REALS, .real = "a < 0 ? p * expm1(a / p) : a", .p_name = "alpha", .p = 1),
    ROW("Selu", OPENCL_REALS, .real = "q * (a > 0 ? a : p * expm1(a))", .p_name = "alpha", .q_name = "gamma",
        .p = 1.67326319217681884765625f, .q = 1.05070102214813232421875f),
    ROW("HardSigmoid", OPENCL_REALS, .real = "BETWEEN(p * a + q, 0, 1)", .p_name = "alpha", .q_name = "beta",
        .p = 0.2f, .q = 0.5f),
    ROW("HardSwish", OPENCL_REALS, .real = "a * BETWEEN(a / 6 + (T0_C)0.5, 0, 1)"),
    ROW("ThresholdedRelu", OPENCL_REALS, .real = "a > p ? a : 0", .p_name = "alpha", .p = 1),
    ROW("Shrink", OPENCL_REALS, .real = "a < -q ? a + p : a > q ? a - p : 0", .p_name = "bias",
        .q_name = "lambd", .q = 0.5f),
    ROW("Softplus", OPENCL_REALS, .real = "SOFTPLUS(a)"),
    ROW("Softsign", OPENCL_REALS, .real = "a / (1 + fabs(a))"),
    ROW("Mish", OPENCL_REALS, .real = "a * tanh(SOFTPLUS(a))"),
    ROW("Swish", OPENCL_REALS, .real = "a / (1 + exp(-a * p))", .p_name = "alpha", .p = 1),
    ROW("Sin", OPENCL_REALS, .real = "sin(a)"),
    ROW("Cos", OPENCL_REALS, .real = "cos(a)"),
    ROW("Tan", OPENCL_REALS, .real = "tan(a)"),
    ROW("Asin", OPENCL_REALS, .real = "asin(a)"),
    ROW("Acos", OPENCL_REALS, .real = "acos(a)"),
    ROW("Atan", OPENCL_REALS, .real = "atan(a)"),
    ROW("Sinh", OPENCL_REALS, .real = "sinh(a)"),
    ROW("Cosh", OPENCL_REALS, .real = "cosh(a)"),
    ROW("Asinh", OPENCL_REALS, .real = "asinh(a)"),
    ROW("Acosh", OPENCL_REALS, .real = "acosh(a)"),
    ROW("Atanh", OPENCL_REALS, .real = "atanh(a)"),
    ROW("IsNaN", OPENCL_REALS, .real = "isnan(a)"),
    OWN("IsInf", "", OPENCL_REALS, NULL, prepare_is_inf),
    OWN("Gelu", "", OPENCL_REALS, NULL, prepare_gelu),
    OWN("Gelu", "gantry", OPENCL_REALS, NULL, prepare_gelu),
    {.name = "Silu",
     .domain = "gantry",
     .types = OPENCL_REALS,
     .prepare = prepare_expression,
     .more = &(const expression){.real = "a / (1 + exp(-a * p))", .p_name = "alpha", .p = 1}},
};

const opencl_op_table opencl_elementwise_ops = {ops, sizeof ops / sizeof *ops};

bool opencl_is_expression(const gantry_graph_view *graph, const gantry_node_view *node)
{
    const opencl_op *op = opencl_op_find(node);
    const gantry_value_view *x = gantry_node_input(graph, node, 0), *y = gantry_node_output(graph, node, 0);
    bool found = op >= ops && op < ops + sizeof ops / sizeof *ops;
    if (!found || !x || !y || node->output_count != 1 || node->input_count > OPENCL_MAX_STEP_OPERANDS)
        return false;
    bool is_view = op->prepare == prepare_cast ? x->dtype == y->dtype
                                               : op->prepare == prepare_variadic && node->input_count == 1;
    return !is_view;
}
