/* Operators that compute each element of the result from one element of each operand: one kernel text is put
 * together from the types, the expression and the axes that remain after joining. */
#include "opencl_broadcast.h"

/* What `more` of a row points to. Operands are a, b, c ... of type T_C, attributes p and q of type T_C. */
typedef struct expression {
    const char *real;    /* for floating point */
    const char *integer; /* NULL: the same */
    const char *p_name, *q_name;
    float p, q; /* defaults */
} expression;

/* T0 x0 ... are the operands, U the result. */
static void write_kernel(const opencl_node *node, const opencl_walk *walk, opencl_text *text)
{
    const expression *e = node->op->more;
    const opencl_operand *y = opencl_output(node, 0);
    bool real = OPENCL_FLOATS & OPENCL_TYPE(opencl_input(node, 0)->dtype);
    char types[1024] = "";
    for (uint32_t k = 0; k < node->input_count; k++) {
        char name[16];
        snprintf(name, sizeof name, "T%u", k);
        opencl_define_type(types, sizeof types, name, node->inputs[k].dtype);
    }
    opencl_define_type(types, sizeof types, "U", y->dtype);
    opencl_text_add(text, "%s__kernel void elementwise(", types);
    for (uint32_t k = 0; k < node->input_count; k++)
        opencl_text_add(text, "__global const T%u *x%u, ulong o%u, ", k, k, k);
    opencl_text_add(text, "__global U *y, ulong oy, uint n, float fp, float fq");
    opencl_walk_parameters(walk, text);
    opencl_text_add(text, ")\n{\n    size_t k = get_global_id(0);\n    if (k >= n)\n        return;\n"
                          "    T0_C p = (T0_C)fp, q = (T0_C)fq;\n");
    opencl_walk_indexes(walk, text);
    for (uint32_t k = 0; k < node->input_count; k++)
        opencl_text_add(text, "    T%u_C %c = LOAD_T%u(x%u, o%u + i%u);\n", k, (char)('a' + k), k, k, k, k);
    opencl_text_add(text, "    STORE_U((U_C)(%s), y, oy + k);\n}\n",
                    real || !e->integer ? e->real : e->integer);
}

static void elementwise_prepare(opencl_build *build, const opencl_node *node)
{
    const expression *e = node->op->more;
    const opencl_operand *y = opencl_output(node, 0);
    opencl_walk walk;
    opencl_text text = {.used = 0};
    opencl_walk_begin(&walk, y);
    for (uint32_t k = 0; k < node->input_count; k++)
        opencl_walk_broadcast(&walk, &node->inputs[k]);
    opencl_walk_join(&walk);
    write_kernel(node, &walk, &text);
    opencl_launch *launch = opencl_launch_add(build, "", text.data, "elementwise");
    for (uint32_t k = 0; k < node->input_count; k++)
        opencl_arg_input(launch, &node->inputs[k]);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)walk.count);
    opencl_arg_float(launch, e->p_name ? gantry_node_float(node->view, e->p_name, e->p) : 0);
    opencl_arg_float(launch, e->q_name ? gantry_node_float(node->view, e->q_name, e->q) : 0);
    opencl_walk_arguments(&walk, launch);
    opencl_launch_size(launch, walk.count, 1, 1);
    double bytes = (double)opencl_bytes(y);
    for (uint32_t k = 0; k < node->input_count; k++)
        bytes += (double)opencl_bytes(&node->inputs[k]);
    opencl_launch_describe(launch, walk.rank == 1 ? "elementwise_flat" : "elementwise_strided", bytes,
                           (double)walk.count);
}

/* All operands have one type. */
static bool same_types(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 1; k < node->input_count; k++)
        if (!opencl_takes_type(&node->inputs[k], OPENCL_TYPE(node->inputs[0].dtype), verdict))
            return false;
    return true;
}

#define ROW(op, type_set, ...)                                                                               \
    {                                                                                                        \
        .name = op, .domain = "", .types = type_set, .limits = same_types, .prepare = elementwise_prepare,   \
        .more = &(const expression)                                                                          \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

static const opencl_op ops[] = {
    ROW("Add", OPENCL_NUMBERS, .real = "a + b"),
    ROW("Relu", OPENCL_FLOATS | OPENCL_SIGNED, .real = "a < 0 ? (T0_C)0 : a"),
};

const opencl_op_table opencl_elementwise_ops = {ops, sizeof ops / sizeof *ops};
