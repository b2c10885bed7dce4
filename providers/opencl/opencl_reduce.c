/* Reductions, ArgMax and ArgMin: one item computes a result; or, where few results each take many elements, a
 * group of items does, through local memory. */
#include "opencl_move.h"

/* Partial results s start as `begin`, `step` takes the element a into s, `merge` another partial result t;
 * `end` makes the result of s and the count m. A is the type of s. ADD sums with the error carried along. */
typedef struct reduction {
    const char *begin, *step, *merge, *end;
    const char *end_integer; /* NULL: the same */
    bool is_exponential;     /* the largest element is found first */
} reduction;

#define GROUP 64
#define GROUP_MIN 512 /* elements a result, from which on a group computes it */

/* ---- what is reduced ------------------------------------------------------------------------- */

typedef struct reduction_axes {
    opencl_walk kept, reduced;
} reduction_axes;

static bool axes_are_input(const opencl_node *node)
{
    return !gantry_node_attribute(node->view, "axes") && opencl_is_there(opencl_input(node, 1)) &&
           strncmp(node->op->name, "Arg", 3) != 0;
}

static uint32_t axis_bits(const opencl_node *node)
{
    const gantry_attribute *axes = gantry_node_attribute(node->view, "axes");
    const opencl_operand *input = opencl_input(node, 1);
    uint32_t rank = opencl_input(node, 0)->rank, bits = 0;
    int64_t count = axes ? axes->count : axes_are_input(node) ? opencl_count(input) : 0;
    if (strncmp(node->op->name, "Arg", 3) == 0)
        return rank ? 1u << opencl_axis(gantry_node_int(node->view, "axis", 0), rank) : 0;
    if (count == 0)
        return gantry_node_int(node->view, "noop_with_empty_axes", 0) ? 0 : (1u << rank) - 1;
    for (int64_t k = 0; k < count; k++)
        bits |= 1u << (opencl_axis(axes ? axes->ints[k] : opencl_host_int(input, k), rank) & 31);
    return bits;
}

static void split_axes(const opencl_operand *x, uint32_t bits, reduction_axes *out)
{
    int64_t strides[OPENCL_MAX_RANK], dims[2][OPENCL_MAX_RANK], steps[2][OPENCL_MAX_RANK];
    uint32_t count[2] = {0, 0};
    opencl_dense_strides(x->rank, x->dims, strides);
    for (uint32_t k = 0; k < x->rank; k++) {
        uint32_t side = bits >> k & 1;
        dims[side][count[side]] = x->dims[k];
        steps[side][count[side]++] = strides[k];
    }
    opencl_walk *walks[2] = {&out->kept, &out->reduced};
    for (uint32_t side = 0; side < 2; side++) {
        if (count[side] == 0) {
            dims[side][0] = 1;
            steps[side][0] = 0;
            count[side] = 1;
        }
        opencl_walk_begin(walks[side], count[side], dims[side]);
        opencl_walk_strided(walks[side], steps[side]);
        opencl_walk_join(walks[side]);
    }
}

/* ---- the kernel's text ----------------------------------------------------------------------- */

static const char limits_text[] = "#define LEAST_float -INFINITY\n"
                                  "#define MOST_float INFINITY\n"
                                  "#define LEAST_double -INFINITY\n"
                                  "#define MOST_double INFINITY\n"
                                  "#define LEAST_char CHAR_MIN\n"
                                  "#define MOST_char CHAR_MAX\n"
                                  "#define LEAST_uchar 0\n"
                                  "#define MOST_uchar UCHAR_MAX\n"
                                  "#define LEAST_short SHRT_MIN\n"
                                  "#define MOST_short SHRT_MAX\n"
                                  "#define LEAST_ushort 0\n"
                                  "#define MOST_ushort USHRT_MAX\n"
                                  "#define LEAST_int INT_MIN\n"
                                  "#define MOST_int INT_MAX\n"
                                  "#define LEAST_uint 0\n"
                                  "#define MOST_uint UINT_MAX\n"
                                  "#define LEAST_long LONG_MIN\n"
                                  "#define MOST_long LONG_MAX\n"
                                  "#define LEAST_ulong 0\n"
                                  "#define MOST_ulong ULONG_MAX\n"
                                  "#define JOIN2(a, b) a##b\n"
                                  "#define JOIN(a, b) JOIN2(a, b)\n"
                                  "#define LEAST JOIN(LEAST_, T_C)\n"
                                  "#define MOST JOIN(MOST_, T_C)\n"
                                  "#define ADD(v) { A value = (v), more = value - error, sum = s + more; "
                                  "error = (sum - s) - more; s = sum; plain "
                                  "+= value; }\n";

static const char *accumulator(gantry_dtype dtype)
{
    uint32_t type = OPENCL_TYPE(dtype);
    if (type & OPENCL_REALS & ~OPENCL_F64)
        return "float";
    return type & OPENCL_F64 ? "double" : type & OPENCL_SIGNED ? "long" : "ulong";
}

static bool is_real(const opencl_operand *operand)
{
    return (OPENCL_REALS & OPENCL_TYPE(operand->dtype)) != 0;
}

static void write_types(const opencl_node *node, opencl_text *text)
{
    const opencl_operand *x = opencl_input(node, 0), *y = opencl_output(node, 0);
    char types[1600] = "";
    opencl_define_type(types, sizeof types, "T", x->dtype);
    opencl_define_type(types, sizeof types, "U", y->dtype);
    opencl_text_add(text, "%s#define A %s\n%s", types, accumulator(x->dtype), limits_text);
    if (x->dtype == GANTRY_BOOL)
        opencl_text_add(text, "#undef MOST\n#define MOST 1\n");
}

/* for (j ...) { a = element j; body } */
static void write_loop(const opencl_walk *reduced, const char *first, const char *stride, const char *body,
                       opencl_text *text)
{
    opencl_text_add(text,
                    "    for (uint j = %s; j < m; j += %s) {\n        uint left = j;\n        long i1 = 0;\n",
                    first, stride);
    for (uint32_t axis = 0; axis + 1 < reduced->rank; axis++)
        opencl_text_add(text,
                        "        i1 += (long)(left %% (uint)e.s%x) * t0.s%x;\n        left /= (uint)e.s%x;\n",
                        axis, axis, axis);
    opencl_text_add(text,
                    "        i1 += (long)left * t0.s%x;\n        A a = (A)LOAD_T(x, (long)ox + i0 + i1);\n"
                    "        %s\n    }\n",
                    reduced->rank - 1, body);
}

static void write_kernel(const opencl_node *node, const reduction_axes *axes, bool group, opencl_text *text)
{
    const reduction *r = node->op->more;
    const char *end = !is_real(opencl_input(node, 0)) && r->end_integer ? r->end_integer : r->end;
    const char *first = group ? "get_local_id(0)" : "0", *stride = group ? "64" : "1";
    bool sums = strstr(r->step, "ADD(") != NULL;
    write_types(node, text);
    opencl_text_add(
        text, "__kernel void reduce(__global const T *x, ulong ox, __global U *y, ulong oy, uint n, uint "
              "m, int8 e, int8 t0");
    opencl_walk_parameters(&axes->kept, text);
    opencl_text_add(text, ")\n{\n    size_t k = %s;\n", group ? "get_group_id(0)" : "get_global_id(0)");
    opencl_text_add(text, "%s", group ? "    __local A part[64];\n" : "    if (k >= n)\n        return;\n");
    opencl_walk_indexes(&axes->kept, text);
    opencl_text_add(text, "    A s = %s, error = 0, plain = 0, largest = LEAST;\n    long at = 0;\n",
                    r->begin);
    if (r->is_exponential) {
        write_loop(&axes->reduced, first, stride, "largest = a > largest ? a : largest;", text);
        opencl_text_add(text, "    largest = isfinite((float)largest) ? largest : 0;\n");
    }
    write_loop(&axes->reduced, first, stride, r->step, text);
    if (sums)
        opencl_text_add(text, "    s = %s;\n",
                        is_real(opencl_input(node, 0)) ? "s - s == 0 ? s : plain" : "plain");
    if (group)
        opencl_text_add(text,
                        "    part[get_local_id(0)] = s;\n"
                        "    for (uint half_size = 32; half_size > 0; half_size /= 2) {\n"
                        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
                        "        if (get_local_id(0) < half_size) {\n"
                        "            A t = part[get_local_id(0) + half_size];\n"
                        "            s = %s;\n"
                        "            part[get_local_id(0)] = s;\n"
                        "        }\n"
                        "    }\n"
                        "    if (get_local_id(0) > 0)\n"
                        "        return;\n",
                        r->merge);
    opencl_text_add(text, "    U_C result = (U_C)(%s);\n    STORE_U(result, y, oy + k);\n}\n", end);
}

/* ---- the launch ------------------------------------------------------------------------------ */

static void prepare_reduction(opencl_build *build, const opencl_node *node)
{
    const reduction *r = node->op->more;
    const opencl_operand *x = opencl_input(node, 0), *y = opencl_output(node, 0);
    opencl_text text = {.used = 0};
    reduction_axes axes;
    split_axes(x, axis_bits(node), &axes);
    int64_t results = opencl_count(y), each = axes.reduced.count;
    bool group = each >= GROUP_MIN && r->merge && node->device->group_size_max >= GROUP;
    if (strncmp(node->op->name, "Arg", 3) == 0 && gantry_node_int(node->view, "select_last_index", 0))
        opencl_text_add(&text, "#define LAST_EQUAL (a == s)\n");
    else
        opencl_text_add(&text, "#define LAST_EQUAL 0\n");
    write_kernel(node, &axes, group, &text);
    opencl_launch *launch = opencl_launch_add(build, "", text.data, "reduce");
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)results);
    opencl_arg_int(launch, (int32_t)each);
    opencl_arg_bytes(launch, axes.reduced.dims, 8 * sizeof(int32_t));
    opencl_arg_bytes(launch, axes.reduced.strides[0], 8 * sizeof(int32_t));
    opencl_walk_arguments(&axes.kept, launch);
    if (group) {
        opencl_launch_size(launch, results * GROUP, 1, 1);
        opencl_launch_groups(launch, GROUP, 1, 1);
    } else {
        opencl_launch_flat(launch, results);
    }
    opencl_launch_describe(launch, group ? "reduce_groups" : "reduce",
                           (double)opencl_bytes(x) + (double)opencl_bytes(y), (double)opencl_count(x));
}

static bool reduction_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *axes = opencl_input(node, 1);
    return strncmp(node->op->name, "Arg", 3) == 0 ||
           opencl_takes_type(axes, OPENCL_I64 | OPENCL_I32, verdict);
}

static void reduction_work(const opencl_node *node, opencl_work *inout_work)
{
    inout_work->flops = 2 * (double)opencl_count(opencl_input(node, 0));
    inout_work->efficiency = 0.3;
}

#define REDUCE(op, type_set, ...)                                                                            \
    {                                                                                                        \
        .name = op, .domain = "", .types = type_set, .host_inputs = 1u << 1, .limits = reduction_limits,     \
        .prepare = prepare_reduction, .work = reduction_work, .more = &(const reduction)                     \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define NUMBERS (OPENCL_NUMBERS | OPENCL_REALS)
#define ORDERED (NUMBERS | OPENCL_BOOLEAN)
#define BETTER(sign)                                                                                         \
    .begin = "0",                                                                                            \
    .step = "if (j == 0 || a " sign " s || (s == s && a != a) || LAST_EQUAL) { s = a; at = j; }",            \
    .end = "at"

static const opencl_op ops[] = {
    REDUCE("ReduceSum", NUMBERS, .begin = "0", .step = "ADD(a)", .merge = "s + t", .end = "s"),
    REDUCE("ReduceMean", NUMBERS, .begin = "0", .step = "ADD(a)", .merge = "s + t", .end = "s / (A)m",
           .end_integer = "m ? s / (A)m : 0"),
    REDUCE("ReduceSumSquare", NUMBERS, .begin = "0", .step = "ADD(a * a)", .merge = "s + t", .end = "s"),
    REDUCE("ReduceL1", NUMBERS, .begin = "0", .step = "ADD(a < 0 ? -a : a)", .merge = "s + t", .end = "s"),
    REDUCE("ReduceL2", NUMBERS, .begin = "0", .step = "ADD(a * a)", .merge = "s + t", .end = "sqrt(s)",
           .end_integer = "sqrt((float)s)"),
    REDUCE("ReduceLogSum", OPENCL_REALS, .begin = "0", .step = "ADD(a)", .merge = "s + t", .end = "log(s)"),
    REDUCE("ReduceLogSumExp", OPENCL_REALS, .begin = "0", .step = "ADD(exp(a - largest))",
           .end = "log(s) + largest", .is_exponential = true),
    REDUCE("ReduceProd", NUMBERS, .begin = "1", .step = "s *= a;", .merge = "s * t", .end = "s"),
    REDUCE("ReduceMax", ORDERED, .begin = "LEAST", .step = "s = a != a || a > s ? a : s;",
           .merge = "t != t || t > s ? t : s", .end = "s"),
    REDUCE("ReduceMin", ORDERED, .begin = "MOST", .step = "s = a != a || a < s ? a : s;",
           .merge = "t != t || t < s ? t : s", .end = "s"),
    REDUCE("ArgMax", NUMBERS, BETTER(">")),
    REDUCE("ArgMin", NUMBERS, BETTER("<")),
};

const opencl_op_table opencl_reduce_ops = {ops, sizeof ops / sizeof *ops};
