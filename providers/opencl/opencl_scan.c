/* Operators that go along an axis: CumSum and CumProd with one item a line, TopK with one item an element. */
#include "opencl_ops.h"

/* A line of `length` elements, `inner` apart. OP(s, a) joins. */
static const char cumulate_source[] =
    "__kernel void cumulate(__global const T *x, ulong ox, __global T *y, ulong oy, uint n, uint inner, uint "
    "length,\n"
    "                       int exclusive, int reverse)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    size_t begin = k / inner * inner * length + k % inner;\n"
    "    A s = BEGIN;\n"
    "    for (uint j = 0; j < length; j++) {\n"
    "        size_t at = begin + (size_t)(reverse ? length - 1 - j : j) * inner;\n"
    "        A a = (A)LOAD_T(x, ox + at), next = OP(s, a);\n"
    "        T_C result = (T_C)(exclusive ? s : next);\n"
    "        STORE_T(result, y, oy + at);\n"
    "        s = next;\n"
    "    }\n"
    "}\n";

static const char *accumulator(gantry_dtype dtype)
{
    uint32_t type = OPENCL_TYPE(dtype);
    if (type & OPENCL_REALS)
        return type & OPENCL_F64 ? "double" : "float";
    return type & OPENCL_SIGNED ? "long" : "ulong";
}

static void prepare_cumulate(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = opencl_input(node, 0), *y = opencl_output(node, 0);
    uint32_t axis = opencl_axis(opencl_host_int(opencl_input(node, 1), 0), x->rank);
    bool sums = strcmp(node->op->name, "CumSum") == 0;
    char defines[1024] = "", more[128];
    if (axis >= x->rank) {
        opencl_build_fail(build, GANTRY_UNSUPPORTED, "the axis is beyond the rank");
        return;
    }
    opencl_define_type(defines, sizeof defines, "T", x->dtype);
    snprintf(more, sizeof more, "#define A %s\n#define BEGIN %d\n#define OP(s, a) ((s) %c (a))\n",
             accumulator(x->dtype), sums ? 0 : 1, sums ? '+' : '*');
    snprintf(defines + strlen(defines), sizeof defines - strlen(defines), "%s", more);
    int64_t length = x->dims[axis], inner = opencl_count_dims(x, axis + 1, x->rank);
    int64_t lines = length ? opencl_count(x) / length : 0;
    opencl_launch *launch = opencl_launch_add(build, defines, cumulate_source, "cumulate");
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)lines);
    opencl_arg_int(launch, (int32_t)inner);
    opencl_arg_int(launch, (int32_t)length);
    opencl_arg_int(launch, gantry_node_int(node->view, "exclusive", 0) != 0);
    opencl_arg_int(launch, gantry_node_int(node->view, "reverse", 0) != 0);
    opencl_launch_flat(launch, lines);
    opencl_launch_describe(launch, "cumulate", 2 * (double)opencl_bytes(x), (double)opencl_count(x));
}

static bool cumulate_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return opencl_takes_type(opencl_input(node, 1), OPENCL_I32 | OPENCL_I64, verdict) &&
           (opencl_input(node, 0)->rank > 0 ||
            opencl_refuse_rank(verdict, opencl_input(node, 0), "1 or more"));
}

/* ---- TopK ------------------------------------------------------------------------------------ */

/* Each element counts who stands before it in its line: that is its place. NaN is above all numbers, of equal
 * elements the one with the lower index comes first. */
static const char top_source[] =
    "#define BELOW(x, y) ((x) < (y) || ((y) != (y) && (x) == (x)))\n"
    "__kernel void top(__global const T *x, ulong ox, __global T *y, ulong oy, __global long *z, ulong oz, "
    "uint n, uint "
    "inner,\n"
    "                  uint length, uint kept, int largest)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    uint column = (uint)k % inner, row = (uint)k / inner, me = row % length, outer = row / length, rank "
    "= 0;\n"
    "    size_t begin = ox + (size_t)outer * length * inner + column;\n"
    "    T_C a = LOAD_T(x, begin + (size_t)me * inner);\n"
    "    for (uint j = 0; j < length; j++) {\n"
    "        T_C b = LOAD_T(x, begin + (size_t)j * inner);\n"
    "        int above = BELOW(a, b), below = BELOW(b, a);\n"
    "        rank += (largest ? above : below) || (!above && !below && j < me);\n"
    "    }\n"
    "    if (rank < kept) {\n"
    "        size_t at = ((size_t)outer * kept + rank) * inner + column;\n"
    "        STORE_T(a, y, oy + at);\n"
    "        z[oz + at] = me;\n"
    "    }\n"
    "}\n";

static void prepare_top(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = opencl_input(node, 0), *y = opencl_output(node, 0), *z = opencl_output(node, 1);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", -1), x->rank);
    char defines[1024] = "";
    opencl_define_type(defines, sizeof defines, "T", x->dtype);
    opencl_launch *launch = opencl_launch_add(build, defines, top_source, "top");
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, y);
    opencl_arg_output(launch, z);
    opencl_arg_int(launch, (int32_t)opencl_count(x));
    opencl_arg_int(launch, (int32_t)opencl_count_dims(x, axis + 1, x->rank));
    opencl_arg_int(launch, (int32_t)x->dims[axis]);
    opencl_arg_int(launch, (int32_t)y->dims[axis]);
    opencl_arg_int(launch, gantry_node_int(node->view, "largest", 1) != 0);
    opencl_launch_flat(launch, opencl_count(x));
    opencl_launch_describe(launch, "top_ranks", (double)(opencl_bytes(x) + opencl_bytes(y) + opencl_bytes(z)),
                           (double)opencl_count(x) * (double)x->dims[axis]);
}

static bool top_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *x = opencl_input(node, 0);
    if (x->rank == 0)
        return opencl_refuse_rank(verdict, x, "1 or more");
    if (!opencl_is_there(opencl_output(node, 0)) || !opencl_is_there(opencl_output(node, 1)))
        return opencl_refuse_attribute(verdict, "outputs", "one is left out", "both outputs");
    return opencl_axis(gantry_node_int(node->view, "axis", -1), x->rank) < x->rank ||
           opencl_refuse_attribute(verdict, "axis", "beyond the rank", "an axis of the first input");
}

static void top_work(const opencl_node *node, opencl_work *inout_work)
{
    const opencl_operand *x = opencl_input(node, 0);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", -1), x->rank);
    inout_work->flops = 4 * (double)opencl_count(x) * (double)opencl_count_dims(x, axis, axis + 1);
    inout_work->efficiency = 0.2;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define CUMULATE(op)                                                                                         \
    {                                                                                                        \
        .name = op, .domain = "", .types = OPENCL_NUMBERS | OPENCL_TYPE(GANTRY_BFLOAT16),                    \
        .host_inputs = 1u << 1, .limits = cumulate_limits, .prepare = prepare_cumulate                       \
    }

static const opencl_op ops[] = {CUMULATE("CumSum"),
                                CUMULATE("CumProd"),
                                {.name = "TopK",
                                 .domain = "",
                                 .types = OPENCL_NUMBERS | OPENCL_TYPE(GANTRY_BFLOAT16),
                                 .host_inputs = 1u << 1,
                                 .limits = top_limits,
                                 .prepare = prepare_top,
                                 .work = top_work}};

const opencl_op_table opencl_scan_ops = {ops, sizeof ops / sizeof *ops};
