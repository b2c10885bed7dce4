/* Elementwise operators: the table, and kernels of unary functions, functions of two and more operands,
 * Where, Clip and tests. */
#include "elementwise.h"

#include "broadcast.h"
#include "half.h"

#include <float.h>
#include <math.h>

/* ---- unary ----------------------------------------------------------------------------------- */

typedef struct unary_state {
    cpu_unary_fn row;
    int64_t count;
    size_t in_bytes, out_bytes;
    float p[4];
} unary_state;

typedef struct unary_work {
    const unary_state *state;
    const char *in;
    char *out;
} unary_work;

static void unary_chunk(void *arg, int64_t begin, int64_t end)
{
    const unary_work *work = arg;
    const unary_state *state = work->state;
    state->row(work->in + (size_t)begin * state->in_bytes, work->out + (size_t)begin * state->out_bytes,
               end - begin, state->p);
}

static gantry_status unary_run(const void *opaque, const cpu_call *call)
{
    unary_work work = {opaque, call->inputs[0], call->outputs[0]};
    cpu_parallel(call, work.state->count, CPU_CHUNK_ELEMENTS, unary_chunk, &work);
    return GANTRY_OK;
}

gantry_status cpu_make_unary_row(cpu_build *build, cpu_unary_fn row, const float *p, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    unary_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (unary_state){.row = row,
                           .count = cpu_physical_count(in),
                           .in_bytes = cpu_dtype_size(in->dtype),
                           .out_bytes = cpu_dtype_size(out->dtype)};
    if (p)
        memcpy(state->p, p, sizeof state->p);
    *out_kernel = cpu_kernel_of(unary_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)state->count);
    if (in->dtype == GANTRY_FLOAT32)
        out_kernel->isa = cpu_rows_best()->isa;
    if (state->in_bytes == state->out_bytes)
        out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

gantry_status cpu_make_unary(cpu_build *build, cpu_unary op, const float *p, cpu_kernel *out_kernel)
{
    cpu_unary_fn row = cpu_unary_find(op, build->inputs[0].dtype);
    if (!row)
        return cpu_unsupported(build, "no kernel for element type %d", (int)build->inputs[0].dtype);
    return cpu_make_unary_row(build, row, p, out_kernel);
}

/* What an operator name stands for, and the attributes that are its parameters. */
typedef struct unary_op {
    const char *op;
    cpu_unary function;
    struct {
        const char *name;
        float otherwise;
    } attributes[2];
} unary_op;

static const unary_op unary_ops[] = {
    {"Abs", CPU_UNARY_abs, {{0}}},
    {"Neg", CPU_UNARY_neg, {{0}}},
    {"Sqrt", CPU_UNARY_sqrt, {{0}}},
    {"Reciprocal", CPU_UNARY_reciprocal, {{0}}},
    {"Floor", CPU_UNARY_floor, {{0}}},
    {"Ceil", CPU_UNARY_ceil, {{0}}},
    {"Round", CPU_UNARY_round, {{0}}},
    {"Sign", CPU_UNARY_sign, {{0}}},
    {"Exp", CPU_UNARY_exp, {{0}}},
    {"Log", CPU_UNARY_log, {{0}}},
    {"Erf", CPU_UNARY_erf, {{0}}},
    {"Tanh", CPU_UNARY_tanh, {{0}}},
    {"Sigmoid", CPU_UNARY_sigmoid, {{0}}},
    {"Relu", CPU_UNARY_relu, {{0}}},
    {"LeakyRelu", CPU_UNARY_leaky_relu, {{"alpha", 0.01f}}},
    {"Elu", CPU_UNARY_elu, {{"alpha", 1.0f}}},
    {"Celu", CPU_UNARY_celu, {{"alpha", 1.0f}}},
    {"Selu", CPU_UNARY_selu, {{"alpha", 1.67326319217681884765625f}, {"gamma", 1.05070102214813232421875f}}},
    {"HardSigmoid", CPU_UNARY_hard_sigmoid, {{"alpha", 0.2f}, {"beta", 0.5f}}},
    {"HardSwish", CPU_UNARY_hard_swish, {{0}}},
    {"ThresholdedRelu", CPU_UNARY_thresholded_relu, {{"alpha", 1.0f}}},
    {"Shrink", CPU_UNARY_shrink, {{"bias", 0.0f}, {"lambd", 0.5f}}},
    {"Softplus", CPU_UNARY_softplus, {{0}}},
    {"Softsign", CPU_UNARY_softsign, {{0}}},
    {"Mish", CPU_UNARY_mish, {{0}}},
    {"Swish", CPU_UNARY_silu, {{"alpha", 1.0f}}},
    {"Silu", CPU_UNARY_silu, {{"alpha", 1.0f}}},
    {"Sin", CPU_UNARY_sin, {{0}}},
    {"Cos", CPU_UNARY_cos, {{0}}},
    {"Tan", CPU_UNARY_tan, {{0}}},
    {"Asin", CPU_UNARY_asin, {{0}}},
    {"Acos", CPU_UNARY_acos, {{0}}},
    {"Atan", CPU_UNARY_atan, {{0}}},
    {"Sinh", CPU_UNARY_sinh, {{0}}},
    {"Cosh", CPU_UNARY_cosh, {{0}}},
    {"Asinh", CPU_UNARY_asinh, {{0}}},
    {"Acosh", CPU_UNARY_acosh, {{0}}},
    {"Atanh", CPU_UNARY_atanh, {{0}}},
};

static bool find_unary(const gantry_node_view *node, cpu_unary *out_function, float out_p[4])
{
    for (size_t k = 0; k < sizeof unary_ops / sizeof unary_ops[0]; k++) {
        const unary_op *op = &unary_ops[k];
        if (strcmp(op->op, node->op) != 0)
            continue;
        memset(out_p, 0, 4 * sizeof *out_p);
        for (int j = 0; j < 2; j++)
            if (op->attributes[j].name)
                out_p[j] = gantry_node_float(node, op->attributes[j].name, op->attributes[j].otherwise);
        *out_function = op->function;
        return true;
    }
    return false;
}

static gantry_status make_unary_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    float p[4];
    cpu_unary function;
    if (!find_unary(build->node, &function, p))
        return cpu_unsupported(build, "no unary function for %s", build->node->op);
    return cpu_make_unary(build, function, p, out_kernel);
}

gantry_status cpu_make_unary_op(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_unary_plain, out_kernel);
}

static cpu_unary gelu_of(const gantry_node_view *node)
{
    const char *approximate = gantry_node_string(node, "approximate", "none");
    return strcmp(approximate, "tanh") == 0 ? CPU_UNARY_gelu_tanh : CPU_UNARY_gelu;
}

static gantry_status make_gelu_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_unary(build, gelu_of(build->node), NULL, out_kernel);
}

bool cpu_unary_of_node(const gantry_node_view *node, cpu_unary *out_function, float out_p[4])
{
    if (node->domain[0] != 0 && strcmp(node->domain, "gantry") != 0)
        return false;
    if (strcmp(node->op, "Gelu") != 0)
        return find_unary(node, out_function, out_p);
    memset(out_p, 0, 4 * sizeof *out_p);
    *out_function = gelu_of(node);
    return true;
}

gantry_status cpu_make_gelu(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_gelu_plain, out_kernel);
}

#define TEST_ROW(name, type, expression)                                                                     \
    static void name(const void *in, void *out, int64_t n, const float *p)                                   \
    {                                                                                                        \
        const type *source = in;                                                                             \
        uint8_t *target = out;                                                                               \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const type x = source[k];                                                                        \
            target[k] = (uint8_t)(expression);                                                               \
        }                                                                                                    \
    }
TEST_ROW(is_nan_f32, float, x != x)
TEST_ROW(is_nan_f64, double, x != x)
TEST_ROW(is_inf_f32, float, (x == INFINITY && p[1] != 0) || (x == -INFINITY && p[0] != 0))
TEST_ROW(is_inf_f64, double, (x == INFINITY && p[1] != 0) || (x == -INFINITY && p[0] != 0))
TEST_ROW(not_bool, uint8_t, !x)
#define NOT_ROW(bytes, type)                                                                                 \
    static void not_##bytes(const void *in, void *out, int64_t n, const float *p)                            \
    {                                                                                                        \
        for (int64_t k = 0; k < n; k++)                                                                      \
            ((type *)out)[k] = (type) ~((const type *)in)[k];                                                \
    }
NOT_ROW(1, uint8_t)
NOT_ROW(2, uint16_t)
NOT_ROW(4, uint32_t)
NOT_ROW(8, uint64_t)

static gantry_status make_is_nan(cpu_build *build, cpu_kernel *out_kernel)
{
    bool wide = build->inputs[0].dtype == GANTRY_FLOAT64;
    return cpu_make_unary_row(build, wide ? is_nan_f64 : is_nan_f32, NULL, out_kernel);
}

static gantry_status make_is_nan_any(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_is_nan, out_kernel);
}

static gantry_status make_is_inf(cpu_build *build, cpu_kernel *out_kernel)
{
    float p[4] = {(float)gantry_node_int(build->node, "detect_negative", 1),
                  (float)gantry_node_int(build->node, "detect_positive", 1)};
    bool wide = build->inputs[0].dtype == GANTRY_FLOAT64;
    return cpu_make_unary_row(build, wide ? is_inf_f64 : is_inf_f32, p, out_kernel);
}

static gantry_status make_is_inf_any(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_is_inf, out_kernel);
}

static gantry_status make_not(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_unary_row(build, not_bool, NULL, out_kernel);
}

static gantry_status make_bitwise_not(cpu_build *build, cpu_kernel *out_kernel)
{
    static const cpu_unary_fn rows[9] = {[1] = not_1, [2] = not_2, [4] = not_4, [8] = not_8};
    return cpu_make_unary_row(build, rows[cpu_dtype_size(build->inputs[0].dtype)], NULL, out_kernel);
}

/* ---- two and more operands ------------------------------------------------------------------- */

/* out = ((in0 op in1) op in2) ..., then divided by `divisor` when that is not 0 (Mean). */
typedef struct fold_state {
    uint32_t pairing_count;
    int64_t count;
    cpu_binary_row divide;
    double divisor; /* as the element type, first bytes */
    cpu_pairing pairings[];
} fold_state;

typedef struct fold_work {
    const fold_state *state;
    const cpu_call *call;
} fold_work;

static void fold_chunk(void *arg, int64_t begin, int64_t end)
{
    const fold_work *work = arg;
    const fold_state *state = work->state;
    void *out = work->call->outputs[0];
    cpu_pairing_run(&state->pairings[0], work->call->inputs[0], work->call->inputs[1], out, begin, end);
    for (uint32_t k = 1; k < state->pairing_count; k++)
        cpu_pairing_run(&state->pairings[k], out, work->call->inputs[k + 1], out, begin, end);
    if (state->divide.row_scalar) {
        char *from = (char *)out + (size_t)begin * state->pairings[0].out_bytes;
        state->divide.row_scalar(from, &state->divisor, from, end - begin);
    }
}

static gantry_status fold_run(const void *opaque, const cpu_call *call)
{
    fold_work work = {opaque, call};
    cpu_parallel(call, work.state->count, CPU_CHUNK_ELEMENTS, fold_chunk, &work);
    return GANTRY_OK;
}

static void fold_divide_by(fold_state *state, gantry_dtype dtype, uint32_t n)
{
    cpu_binary_find(CPU_BINARY_div, dtype, &state->divide);
    if (dtype == GANTRY_FLOAT64) {
        state->divisor = n;
    } else {
        float divisor = (float)n;
        memcpy(&state->divisor, &divisor, sizeof divisor);
    }
}

static gantry_status make_fold(cpu_build *build, cpu_binary op, bool mean, cpu_kernel *out_kernel)
{
    const cpu_tensor *out = &build->outputs[0], *a = &build->inputs[0];
    if (build->input_count == 1) {
        *out_kernel = cpu_kernel_of(NULL, NULL);
        out_kernel->view_of_input = 0;
        return GANTRY_OK;
    }
    uint32_t pairing_count = build->input_count - 1;
    fold_state *state = cpu_state(build, sizeof *state + pairing_count * sizeof(cpu_pairing));
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->pairing_count = pairing_count;
    state->count = cpu_physical_count(out);
    for (uint32_t k = 0; k < pairing_count; k++) {
        cpu_pairing *pairing = &state->pairings[k];
        const cpu_tensor *b = &build->inputs[k + 1];
        if (!cpu_binary_find(op, a->dtype, &pairing->row) || b->dtype != a->dtype)
            return cpu_unsupported(build, "no kernel for element types %d and %d", (int)a->dtype,
                                   (int)b->dtype);
        if (!cpu_pairing_make(pairing, out, k ? out : a, b))
            return cpu_unsupported(build, "input %u does not broadcast to the output", k + 1);
        pairing->in_bytes = cpu_dtype_size(a->dtype);
        pairing->out_bytes = cpu_dtype_size(out->dtype);
    }
    if (mean)
        fold_divide_by(state, a->dtype, build->input_count);
    *out_kernel = cpu_kernel_of(fold_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)state->count * pairing_count);
    if (a->dtype == GANTRY_FLOAT32)
        out_kernel->isa = cpu_rows_best()->isa;
    if (cpu_dtype_size(a->dtype) == cpu_dtype_size(out->dtype)) {
        if (cpu_same_dims(a, out))
            out_kernel->overwrite_input = 0;
        else if (pairing_count == 1 && cpu_same_dims(&build->inputs[1], out))
            out_kernel->overwrite_input = 1;
    }
    return GANTRY_OK;
}

typedef struct binary_op {
    const char *op;
    cpu_binary function;
} binary_op;

static const binary_op binary_ops[] = {
    {"Add", CPU_BINARY_add},          {"Sub", CPU_BINARY_sub},
    {"Mul", CPU_BINARY_mul},          {"Div", CPU_BINARY_div},
    {"Min", CPU_BINARY_min},          {"Max", CPU_BINARY_max},
    {"Sum", CPU_BINARY_add},          {"Mean", CPU_BINARY_add},
    {"PRelu", CPU_BINARY_prelu},      {"Equal", CPU_BINARY_equal},
    {"Greater", CPU_BINARY_greater},  {"GreaterOrEqual", CPU_BINARY_greater_or_equal},
    {"Less", CPU_BINARY_less},        {"LessOrEqual", CPU_BINARY_less_or_equal},
    {"And", CPU_BINARY_and},          {"Or", CPU_BINARY_or},
    {"Xor", CPU_BINARY_xor},          {"BitwiseAnd", CPU_BINARY_bit_and},
    {"BitwiseOr", CPU_BINARY_bit_or}, {"BitwiseXor", CPU_BINARY_bit_xor},
};

static gantry_status make_binary_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    for (size_t k = 0; k < sizeof binary_ops / sizeof binary_ops[0]; k++)
        if (strcmp(binary_ops[k].op, build->node->op) == 0)
            return make_fold(build, binary_ops[k].function, strcmp(build->node->op, "Mean") == 0, out_kernel);
    return cpu_unsupported(build, "no binary function for %s", build->node->op);
}

static gantry_status make_binary(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_binary_plain, out_kernel);
}

static gantry_status make_mod_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    bool truncated = gantry_node_int(build->node, "fmod", 0) != 0;
    return make_fold(build, truncated ? CPU_BINARY_fmod : CPU_BINARY_mod, false, out_kernel);
}

static gantry_status make_mod(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_mod_plain, out_kernel);
}

static gantry_status make_bit_shift(cpu_build *build, cpu_kernel *out_kernel)
{
    bool left = strcmp(gantry_node_string(build->node, "direction", "LEFT"), "LEFT") == 0;
    return make_fold(build, left ? CPU_BINARY_shift_left : CPU_BINARY_shift_right, false, out_kernel);
}

static gantry_status make_pow_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_fold(build, CPU_BINARY_pow, false, out_kernel);
}

/* The exponent may have another type than the base, which is that of the result. */
static gantry_status make_pow(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype base = build->inputs[0].dtype, exponent = build->inputs[1].dtype, compute = base;
    if (cpu_dtype_in(base, CPU_HALVES))
        compute = GANTRY_FLOAT32;
    else if (cpu_dtype_in(base, CPU_INTEGERS) && cpu_dtype_in(exponent, CPU_REALS))
        compute = GANTRY_FLOAT64;
    gantry_dtype in_types[2] = {compute, compute}, out_types[1] = {compute};
    return cpu_make_converted(build, make_pow_plain, in_types, out_types, out_kernel);
}

/* ---- Where ----------------------------------------------------------------------------------- */

typedef struct where_state {
    cpu_nest nest;
    cpu_choose_fn choose;
    size_t element_bytes;
    int64_t count;
} where_state;

typedef struct where_work {
    const where_state *state;
    const cpu_call *call;
} where_work;

static void where_chunk(void *arg, int64_t begin, int64_t end)
{
    const where_work *work = arg;
    cpu_choose_run(&work->state->nest, work->state->choose, work->state->element_bytes, work->call->inputs,
                   work->call->outputs[0], begin, end);
}

static gantry_status where_run(const void *opaque, const cpu_call *call)
{
    where_work work = {opaque, call};
    cpu_parallel(call, work.state->count, CPU_CHUNK_ELEMENTS, where_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_where(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *out = &build->outputs[0];
    const cpu_tensor *operands[3] = {&build->inputs[0], &build->inputs[1], &build->inputs[2]};
    where_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->element_bytes = cpu_dtype_size(out->dtype);
    state->choose = cpu_choose_find(state->element_bytes);
    state->count = out->count;
    if (!state->choose)
        return cpu_unsupported(build, "no kernel for element type %d", (int)out->dtype);
    if (!cpu_nest_broadcast(&state->nest, out->rank, out->dims, 3, operands))
        return cpu_unsupported(build, "an input does not broadcast to the output");
    *out_kernel = cpu_kernel_of(where_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)out->count);
    return GANTRY_OK;
}

/* ---- Clip with bounds that are inputs -------------------------------------------------------- */

typedef struct clip_state {
    cpu_binary_row raise, lower;
    int64_t count;
    size_t element_bytes;
    bool has_low, has_high;
} clip_state;

typedef struct clip_work {
    const clip_state *state;
    const char *in;
    char *out;
    const void *low, *high;
} clip_work;

static void clip_chunk(void *arg, int64_t begin, int64_t end)
{
    const clip_work *work = arg;
    const char *in = work->in + (size_t)begin * work->state->element_bytes;
    char *out = work->out + (size_t)begin * work->state->element_bytes;
    if (work->low)
        work->state->raise.row_scalar(in, work->low, out, end - begin);
    if (work->high)
        work->state->lower.row_scalar(work->low ? out : in, work->high, out, end - begin);
    if (!work->low && !work->high && in != out)
        memcpy(out, in, (size_t)(end - begin) * work->state->element_bytes);
}

static gantry_status clip_run(const void *opaque, const cpu_call *call)
{
    const clip_state *state = opaque;
    clip_work work = {state, call->inputs[0], call->outputs[0], state->has_low ? call->inputs[1] : NULL,
                      state->has_high ? call->inputs[2] : NULL};
    cpu_parallel(call, state->count, CPU_CHUNK_ELEMENTS, clip_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_clip_inputs(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *low = cpu_input(build, 1), *high = cpu_input(build, 2);
    clip_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if ((low && low->count != 1) || (high && high->count != 1))
        return cpu_unsupported(build, "min and max must be scalars");
    if (!cpu_binary_find(CPU_BINARY_max, in->dtype, &state->raise) ||
        !cpu_binary_find(CPU_BINARY_min, in->dtype, &state->lower))
        return cpu_unsupported(build, "no kernel for element type %d", (int)in->dtype);
    state->count = cpu_physical_count(in);
    state->element_bytes = cpu_dtype_size(in->dtype);
    state->has_low = low != NULL;
    state->has_high = high != NULL;
    *out_kernel = cpu_kernel_of(clip_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)state->count);
    out_kernel->overwrite_input = 0;
    if (in->dtype == GANTRY_FLOAT32)
        out_kernel->isa = cpu_rows_best()->isa;
    return GANTRY_OK;
}

static gantry_status make_clip_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    if (build->node->version >= 11)
        return make_clip_inputs(build, out_kernel);
    float p[4] = {gantry_node_float(build->node, "min", -FLT_MAX),
                  gantry_node_float(build->node, "max", FLT_MAX)};
    return cpu_make_unary(build, CPU_UNARY_clip, p, out_kernel);
}

static gantry_status make_clip(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_clip_plain, out_kernel);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define UNARY_ROW(name, set)                                                                                 \
    {                                                                                                        \
        .op = name, .domain = "", .types = {set}, .make = cpu_make_unary_op                                  \
    }
/* Functions that keep padded channels finite may run on blocked layouts. */
#define UNARY_ANY(name, set)                                                                                 \
    {                                                                                                        \
        .op = name, .domain = "", .types = {set}, .make = cpu_make_unary_op, .flags = CPU_ROW_ANY_LAYOUT     \
    }
#define BINARY_ROW(name, set)                                                                                \
    {                                                                                                        \
        .op = name, .domain = "", .types = {set}, .make = make_binary                                        \
    }
#define BINARY_ANY(name, set)                                                                                \
    {                                                                                                        \
        .op = name, .domain = "", .types = {set}, .make = make_binary, .flags = CPU_ROW_ANY_LAYOUT           \
    }
#define TINY_FLOATS                                                                                          \
    (CPU_BIT(GANTRY_FLOAT8E4M3FN) | CPU_BIT(GANTRY_FLOAT8E4M3FNUZ) | CPU_BIT(GANTRY_FLOAT8E5M2) |            \
     CPU_BIT(GANTRY_FLOAT8E5M2FNUZ))

static const cpu_op_row rows[] = {
    UNARY_ANY("Abs", CPU_ALL_NUMBERS),
    UNARY_ANY("Neg", CPU_SIGNED | CPU_REALS),
    UNARY_ANY("Sqrt", CPU_REALS),
    UNARY_ROW("Reciprocal", CPU_REALS),
    UNARY_ANY("Floor", CPU_REALS),
    UNARY_ANY("Ceil", CPU_REALS),
    UNARY_ANY("Round", CPU_REALS),
    UNARY_ANY("Sign", CPU_ALL_NUMBERS),
    UNARY_ANY("Exp", CPU_REALS),
    UNARY_ROW("Log", CPU_REALS),
    UNARY_ANY("Erf", CPU_REALS),
    UNARY_ANY("Tanh", CPU_REALS),
    UNARY_ANY("Sigmoid", CPU_REALS),
    UNARY_ANY("Relu", CPU_SIGNED | CPU_REALS),
    UNARY_ANY("LeakyRelu", CPU_REALS),
    UNARY_ANY("Elu", CPU_REALS),
    UNARY_ANY("Celu", CPU_REALS),
    UNARY_ANY("Selu", CPU_REALS),
    UNARY_ANY("HardSigmoid", CPU_REALS),
    UNARY_ANY("HardSwish", CPU_REALS),
    UNARY_ANY("ThresholdedRelu", CPU_REALS),
    UNARY_ANY("Shrink", CPU_ALL_NUMBERS),
    UNARY_ANY("Softplus", CPU_REALS),
    UNARY_ANY("Softsign", CPU_REALS),
    UNARY_ANY("Mish", CPU_REALS),
    UNARY_ANY("Swish", CPU_REALS),
    UNARY_ANY("Sin", CPU_REALS),
    UNARY_ANY("Cos", CPU_REALS),
    UNARY_ANY("Tan", CPU_REALS),
    UNARY_ANY("Asin", CPU_REALS),
    UNARY_ANY("Acos", CPU_REALS),
    UNARY_ANY("Atan", CPU_REALS),
    UNARY_ANY("Sinh", CPU_REALS),
    UNARY_ANY("Cosh", CPU_REALS),
    UNARY_ANY("Asinh", CPU_REALS),
    UNARY_ROW("Acosh", CPU_REALS),
    UNARY_ANY("Atanh", CPU_REALS),
    {.op = "Gelu", .domain = "", .types = {CPU_REALS}, .make = cpu_make_gelu, .flags = CPU_ROW_ANY_LAYOUT},
    {.op = "IsNaN", .domain = "", .types = {CPU_REALS | TINY_FLOATS}, .make = make_is_nan_any},
    {.op = "IsInf", .domain = "", .types = {CPU_REALS | TINY_FLOATS}, .make = make_is_inf_any},
    {.op = "Not", .domain = "", .types = {CPU_TRUTH}, .make = make_not},
    {.op = "BitwiseNot", .domain = "", .types = {CPU_INTEGERS}, .make = make_bitwise_not},
    BINARY_ANY("Add", CPU_ALL_NUMBERS),
    BINARY_ANY("Sub", CPU_ALL_NUMBERS),
    BINARY_ANY("Mul", CPU_ALL_NUMBERS),
    BINARY_ROW("Div", CPU_ALL_NUMBERS),
    BINARY_ANY("Min", CPU_ALL_NUMBERS),
    BINARY_ANY("Max", CPU_ALL_NUMBERS),
    BINARY_ANY("Sum", CPU_REALS),
    BINARY_ROW("Mean", CPU_REALS),
    BINARY_ROW("PRelu", CPU_ALL_NUMBERS),
    BINARY_ROW("Equal", CPU_ALL_NUMBERS | CPU_TRUTH),
    BINARY_ROW("Greater", CPU_ALL_NUMBERS),
    BINARY_ROW("GreaterOrEqual", CPU_ALL_NUMBERS),
    BINARY_ROW("Less", CPU_ALL_NUMBERS),
    BINARY_ROW("LessOrEqual", CPU_ALL_NUMBERS),
    BINARY_ROW("And", CPU_TRUTH),
    BINARY_ROW("Or", CPU_TRUTH),
    BINARY_ROW("Xor", CPU_TRUTH),
    BINARY_ROW("BitwiseAnd", CPU_INTEGERS),
    BINARY_ROW("BitwiseOr", CPU_INTEGERS),
    BINARY_ROW("BitwiseXor", CPU_INTEGERS),
    {.op = "BitShift", .domain = "", .types = {CPU_INTEGERS}, .make = make_bit_shift},
    {.op = "Mod", .domain = "", .types = {CPU_ALL_NUMBERS}, .make = make_mod},
    {.op = "Pow", .domain = "", .types = {CPU_ALL_NUMBERS, CPU_ALL_NUMBERS}, .make = make_pow},
    {.op = "Where",
     .domain = "",
     .types = {CPU_TRUTH, CPU_ANY_BYTES | CPU_BIT(GANTRY_COMPLEX128)},
     .make = make_where},
    {.op = "Clip", .domain = "", .types = {CPU_ALL_NUMBERS}, .make = make_clip, .flags = CPU_ROW_ANY_LAYOUT},
    {.op = "Cast", .domain = "", .types = {CPU_EVERY & ~CPU_BIT(GANTRY_STRING)}, .make = cpu_make_cast},
    {.op = "CastLike",
     .domain = "",
     .types = {CPU_EVERY & ~CPU_BIT(GANTRY_STRING), CPU_EVERY & ~CPU_BIT(GANTRY_STRING)},
     .make = cpu_make_cast},
    {.op = "BitCast",
     .domain = "",
     .types = {CPU_EVERY & ~CPU_BIT(GANTRY_STRING)},
     .make = cpu_make_bit_cast},
};

cpu_op_family cpu_elementwise_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
