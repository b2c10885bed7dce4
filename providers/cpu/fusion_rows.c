/* Chains of float operators that end in a QuantizeLinear, as a program over rows (quantized_rows.h): leaves
 * are bytes that are dequantized on the way, constants, and floats that something else needs too. */
#include "elementwise.h"
#include "fusion_qdq.h"
#include "quantized_rows.h"

#include <math.h>

typedef struct writer {
    const cpu_qdq *q;
    cpu_qdq_match *m;
    cpu_qrows *rows;
    bool used[CPU_QROWS_REGISTERS], whole[CPU_QROWS_REGISTERS]; /* whole: comes from an op on whole rows */
    uint32_t depth;
} writer;

static int64_t static_count(const gantry_value_view *view)
{
    int64_t count = 1;
    for (int32_t k = 0; k < view->rank; k++)
        count = view->dims[k] < 0 || count < 0 ? -1 : count * view->dims[k];
    return view->rank < 0 ? -1 : count;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool take_register(writer *w, uint32_t *out_register)
{
    for (uint32_t k = 0; k < CPU_QROWS_REGISTERS; k++)
        if (!w->used[k]) {
            w->used[k] = true;
            w->whole[k] = false;
            *out_register = k;
            w->rows->register_count = k >= w->rows->register_count ? k + 1 : w->rows->register_count;
            return true;
        }
    return false;
}

static cpu_qrow_op *add_op(writer *w, cpu_qrow_kind kind)
{
    if (w->rows->op_count == CPU_QROWS_MAX_OPS)
        return NULL;
    cpu_qrow_op *op = &w->rows->ops[w->rows->op_count++];
    *op = (cpu_qrow_op){.kind = kind};
    return op;
}

static bool add_input(writer *w, uint32_t value, cpu_qrow_source *out_source)
{
    cpu_qdq_match *m = w->m;
    uint32_t index = 0;
    while (index < m->input_count && m->inputs[index] != value)
        index++;
    if (index == CPU_QROWS_MAX_INPUTS)
        return false;
    if (index == m->input_count)
        cpu_qdq_operand(w->q, m, value);
    *out_source = (cpu_qrow_source){CPU_QROW_INPUT, index, 0};
    return true;
}

static cpu_qrow_source of_register(uint32_t index)
{
    return (cpu_qrow_source){CPU_QROW_REGISTER, index, 0};
}

/* A value that is computed elsewhere, or constant. */
static bool write_leaf(writer *w, uint32_t value, cpu_qrow_source *out_source)
{
    const gantry_value_view *view = cpu_qdq_value(w->q, value);
    size_t bytes = 0;
    if (view->dtype != GANTRY_FLOAT32 || view->rank < 0)
        return false;
    float scalar;
    if (static_count(view) == 1 && cpu_qdq_read(w->q, value, &scalar, sizeof scalar, &bytes)) {
        *out_source = (cpu_qrow_source){CPU_QROW_SCALAR, 0, scalar};
        return bytes == sizeof scalar;
    }
    return add_input(w, value, out_source);
}

static bool write_value(writer *w, uint32_t value, cpu_qrow_source *out_source);

static bool write_dequantize(writer *w, uint32_t value, const cpu_qparams *x, cpu_qrow_source *out_source)
{
    uint32_t target;
    cpu_qrow_op *op = add_op(w, CPU_QROW_DEQUANTIZE);
    if (!op || !take_register(w, &target) || !add_input(w, x->value, &op->a))
        return false;
    op->target = target;
    op->p[0] = x->scale_value;
    op->zero = x->zero_value;
    op->is_signed = cpu_qdq_value(w->q, x->value)->dtype == GANTRY_INT8;
    *out_source = of_register(target);
    return cpu_qdq_absorb_producer(w->q, w->m, value);
}

/* An operand as a register. */
static bool write_register(writer *w, uint32_t value, uint32_t *out_register)
{
    cpu_qrow_source source;
    if (!write_value(w, value, &source) || source.kind == CPU_QROW_SCALAR)
        return false;
    if (source.kind == CPU_QROW_REGISTER) {
        *out_register = source.index;
        return true;
    }
    cpu_qrow_op *op = add_op(w, CPU_QROW_LOAD);
    if (!op || !take_register(w, out_register))
        return false;
    op->a = source;
    op->target = *out_register;
    return true;
}

static bool write_unary(writer *w, const gantry_node_view *node, cpu_unary function, const float *p,
                        cpu_qrow_source *out_source)
{
    uint32_t target;
    cpu_qrow_op *op = write_register(w, node->inputs[0], &target) ? add_op(w, CPU_QROW_UNARY) : NULL;
    if (!op)
        return false;
    op->function = function;
    op->target = target;
    op->a = of_register(target);
    memcpy(op->p, p, sizeof op->p);
    *out_source = of_register(target);
    return true;
}

/* Dims that are the same whatever the symbols are. */
static bool same_dims(const gantry_value_view *a, const gantry_value_view *b)
{
    bool same = a->rank == b->rank && a->rank >= 0;
    for (int32_t k = 0; k < a->rank && same; k++)
        same = a->dims[k] == b->dims[k] &&
               (a->dims[k] >= 0 || (a->dim_names && b->dim_names && a->dim_names[k] && b->dim_names[k] &&
                                    strcmp(a->dim_names[k], b->dim_names[k]) == 0));
    return same;
}

/* What was normalized along its rows must not be broadcast to more of them. */
static bool stays_whole(const writer *w, const gantry_node_view *node, uint32_t operand,
                        const cpu_qrow_source *source)
{
    return source->kind != CPU_QROW_REGISTER || !w->whole[source->index] ||
           same_dims(cpu_qdq_value(w->q, node->inputs[operand]), cpu_qdq_value(w->q, node->outputs[0]));
}

/* Dividing by a power of two is multiplying by its reciprocal, and that can be done to a scale. */
static void simplify_binary(cpu_qrow_op *op)
{
    int exponent;
    if (op->function == CPU_BINARY_div && op->b.kind == CPU_QROW_SCALAR &&
        fabsf(frexpf(op->b.value, &exponent)) == 0.5f && abs(exponent) < 64) {
        op->function = CPU_BINARY_mul;
        op->b.value = 1 / op->b.value;
    }
}

static bool fold_into_scale(writer *w, const cpu_qrow_op *op)
{
    int exponent;
    cpu_qrow_op *before = op == w->rows->ops ? NULL : &w->rows->ops[w->rows->op_count - 2];
    if (!before || before->kind != CPU_QROW_DEQUANTIZE || op->function != CPU_BINARY_mul ||
        op->a.kind != CPU_QROW_REGISTER || op->a.index != before->target || op->b.kind != CPU_QROW_SCALAR ||
        frexpf(op->b.value, &exponent) != 0.5f || abs(exponent) >= 64)
        return false;
    before->p[0] *= op->b.value;
    return true;
}

static bool write_binary(writer *w, const gantry_node_view *node, cpu_binary function,
                         cpu_qrow_source *out_source)
{
    cpu_qrow_source a, b;
    uint32_t target;
    if (!write_value(w, node->inputs[0], &a) || !write_value(w, node->inputs[1], &b) ||
        !stays_whole(w, node, 0, &a) || !stays_whole(w, node, 1, &b))
        return false;
    if (a.kind != CPU_QROW_REGISTER && b.kind != CPU_QROW_REGISTER) {
        cpu_qrow_op *load = a.kind == CPU_QROW_INPUT ? add_op(w, CPU_QROW_LOAD) : NULL;
        if (!load || !take_register(w, &target))
            return false;
        load->a = a;
        load->target = target;
        a = of_register(target);
    }
    cpu_qrow_op *op = add_op(w, CPU_QROW_BINARY);
    if (!op)
        return false;
    bool both = a.kind == CPU_QROW_REGISTER && b.kind == CPU_QROW_REGISTER;
    op->function = function;
    op->a = a;
    op->b = b;
    op->target = a.kind == CPU_QROW_REGISTER && (!both || a.index < b.index) ? a.index : b.index;
    *out_source = of_register(op->target);
    if (both) {
        uint32_t other = op->target == a.index ? b.index : a.index;
        w->whole[op->target] = w->whole[op->target] || w->whole[other];
        w->used[other] = false;
    }
    simplify_binary(op);
    if (fold_into_scale(w, op))
        w->rows->op_count--;
    return true;
}

/* Softmax and LayerNormalization along the last axis, whole rows in one block. */
static bool write_whole(writer *w, const gantry_node_view *node, cpu_qrow_kind kind,
                        cpu_qrow_source *out_source)
{
    const gantry_value_view *x = cpu_qdq_value(w->q, node->inputs[0]);
    int64_t given = gantry_node_int(node, "axis", kind == CPU_QROW_SOFTMAX && node->version < 13 ? 1 : -1);
    cpu_qrow_source gain = {CPU_QROW_NONE, 0, 0}, bias = gain;
    uint32_t target;
    if (x->rank < 1 || (given != -1 && given != x->rank - 1))
        return false;
    for (uint32_t k = 1; k < node->output_count; k++)
        if (node->outputs[k] != GANTRY_NO_ID &&
            (w->q->f->uses.count[node->outputs[k]] || w->q->f->uses.is_output[node->outputs[k]]))
            return false;
    for (uint32_t k = 1; k < node->input_count && k < 3 && kind == CPU_QROW_NORMALIZE; k++) {
        const gantry_value_view *row = cpu_qdq_value(w->q, node->inputs[k]);
        if (row &&
            (row->constant_id == GANTRY_NO_ID || row->dtype != GANTRY_FLOAT32 || row->rank != 1 ||
             row->dims[0] != x->dims[x->rank - 1] || !add_input(w, node->inputs[k], k == 1 ? &gain : &bias)))
            return false;
    }
    cpu_qrow_op *op = write_register(w, node->inputs[0], &target) ? add_op(w, kind) : NULL;
    if (!op)
        return false;
    op->target = target;
    op->gain = gain;
    op->bias = bias;
    op->p[0] = gantry_node_float(node, "epsilon", 1e-5f);
    w->whole[target] = w->rows->whole = true;
    *out_source = of_register(target);
    return true;
}

static bool is_layer_norm(const gantry_node_view *node)
{
    return cpu_qdq_is_op(node, "LayerNormalization") ||
           (strcmp(node->domain, "gantry") == 0 && strcmp(node->op, "LayerNorm") == 0);
}

static bool write_node(writer *w, const gantry_node_view *node, cpu_qrow_source *out_source)
{
    static const struct {
        const char *op;
        cpu_binary function;
    } binaries[] = {{"Add", CPU_BINARY_add}, {"Sub", CPU_BINARY_sub}, {"Mul", CPU_BINARY_mul},
                    {"Div", CPU_BINARY_div}, {"Min", CPU_BINARY_min}, {"Max", CPU_BINARY_max},
                    {"Pow", CPU_BINARY_pow}};
    cpu_unary function;
    float p[4];
    if (cpu_qdq_is_op(node, "Softmax"))
        return write_whole(w, node, CPU_QROW_SOFTMAX, out_source);
    if (is_layer_norm(node))
        return write_whole(w, node, CPU_QROW_NORMALIZE, out_source);
    for (size_t k = 0; k < sizeof binaries / sizeof *binaries; k++)
        if (cpu_qdq_is_op(node, binaries[k].op) && node->input_count == 2)
            return write_binary(w, node, binaries[k].function, out_source);
    return node->input_count == 1 && cpu_unary_of_node(node, &function, p) &&
           write_unary(w, node, function, p, out_source);
}

/* A value inside the chain, or a leaf of it. What an operator that cannot be part wrote is taken back. */
static bool write_value(writer *w, uint32_t value, cpu_qrow_source *out_source)
{
    cpu_qparams x;
    if (cpu_qdq_bytes(w->q, value, &x))
        return write_dequantize(w, value, &x, out_source);
    const gantry_node_view *node = cpu_qdq_producer(w->q, value);
    if (node && w->depth < CPU_QROWS_MAX_OPS && cpu_qdq_is_private(w->q, value) &&
        cpu_qdq_value(w->q, value)->dtype == GANTRY_FLOAT32) {
        writer before = *w;
        cpu_qdq_match match = *w->m;
        cpu_qrows rows = *w->rows;
        w->depth++;
        bool written = write_node(w, node, out_source) && cpu_qdq_absorb_producer(w->q, w->m, value);
        w->depth--;
        if (written)
            return true;
        *w = before;
        *w->m = match;
        *w->rows = rows;
    }
    return write_leaf(w, value, out_source);
}

bool cpu_qdq_rows(const cpu_qdq *q, uint32_t value, const cpu_qparams *y, cpu_qdq_match *m)
{
    cpu_qrows rows = {.scale = y->scale_value, .zero = y->zero_value};
    writer w = {.q = q, .m = m, .rows = &rows};
    cpu_qrow_source result;
    const gantry_value_view *view = cpu_qdq_value(q, value);
    const gantry_node_view *node = cpu_qdq_producer(q, value);
    if (!node || view->dtype != GANTRY_FLOAT32 || view->rank < 0 || !write_value(&w, value, &result) ||
        result.kind != CPU_QROW_REGISTER || result.index != 0)
        return false;
    m->rows = gt_arena_copy(&q->f->program->arena, &rows, sizeof rows);
    m->node = node;
    m->row = &cpu_qrows_row;
    m->rule = "qdq_rows";
    return m->rows != NULL;
}
