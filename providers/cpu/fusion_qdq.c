/* Joins what a model writes as DequantizeLinear -> float operators -> QuantizeLinear into groups that read
 * and write bytes. Nodes are looked at from the last to the first: what nobody asks for any more, because the
 * groups behind it read the bytes themselves, is not computed at all. A DequantizeLinear with several readers
 * thus serves each of them, and remains only for those that want floats.
 *
 * The group of a QuantizeLinear is, by what stands before it:
 *     Conv, Gemm, MatMul [Relu, Clip]    the row of QLinearConv ..., with activations as a range
 *     Add, Mul                           QLinearAdd, QLinearMul
 *     a chain of elementwise operators   a table of 256 results
 *     MaxPool, Concat, Resize ...        that operator, on bytes
 *     Reshape, Transpose ...             that operator, on bytes; what makes its operand quantizes
 *     other float operators              a program over rows (fusion_rows.c) */
#include "fusion_qdq.h"
#include "fusion.h"

#include <math.h>
#include <stdio.h>

/* ---- what quantizes -------------------------------------------------------------------------- */

const gantry_node_view *cpu_qdq_producer(const cpu_qdq *q, uint32_t value)
{
    uint32_t node = value == GANTRY_NO_ID ? GANTRY_NO_ID : q->f->uses.producer[value];
    return node == GANTRY_NO_ID ? NULL : q->f->program->graph->nodes[node];
}

const gantry_value_view *cpu_qdq_value(const cpu_qdq *q, uint32_t value)
{
    return value == GANTRY_NO_ID ? NULL : q->f->program->graph->values[value];
}

const void *cpu_qdq_map(const cpu_qdq *q, uint32_t value, size_t *out_bytes)
{
    const gantry_host *host = q->f->program->provider->host;
    const void *data = NULL;
    bool mapped = cpu_qdq_is_constant(q, value) &&
                  host->constant_map(host, q->f->args->constants, cpu_qdq_value(q, value)->constant_id, &data,
                                     out_bytes, NULL) == GANTRY_OK;
    return mapped ? data : NULL;
}

void cpu_qdq_unmap(const cpu_qdq *q, uint32_t value, const void *data)
{
    const gantry_host *host = q->f->program->provider->host;
    if (data)
        host->constant_unmap(host, q->f->args->constants, cpu_qdq_value(q, value)->constant_id);
}

bool cpu_qdq_read(const cpu_qdq *q, uint32_t value, void *out, size_t capacity, size_t *out_bytes)
{
    const void *data = cpu_qdq_map(q, value, out_bytes);
    if (!data)
        return false;
    memcpy(out, data, *out_bytes < capacity ? *out_bytes : capacity);
    cpu_qdq_unmap(q, value, data);
    return true;
}

cpu_qparams cpu_qdq_params(const cpu_qdq *q, const gantry_node_view *node)
{
    cpu_qparams p = {.value = node->inputs[0],
                     .scale = node->inputs[1],
                     .zero = node->input_count > 2 ? node->inputs[2] : GANTRY_NO_ID};
    const gantry_value_view *scale = cpu_qdq_value(q, p.scale), *zero = cpu_qdq_value(q, p.zero);
    size_t bytes = 0;
    if (!scale || scale->dtype != GANTRY_FLOAT32 || (zero && !cpu_qdq_is_constant(q, p.zero)) ||
        !cpu_qdq_read(q, p.scale, &p.scale_value, sizeof p.scale_value, &bytes))
        return p;
    p.constant = true;
    p.scalar = bytes == sizeof(float) && gantry_node_int(node, "block_size", 0) == 0;
    if (p.scalar && zero && cpu_qdq_is_byte(zero)) {
        uint8_t byte = 0;
        p.scalar = cpu_qdq_read(q, p.zero, &byte, 1, &bytes) && bytes == 1;
        p.zero_value = zero->dtype == GANTRY_INT8 ? (int8_t)byte : byte;
    }
    p.scalar = p.scalar && p.scale_value > 0;
    return p;
}

bool cpu_qdq_bytes(const cpu_qdq *q, uint32_t value, cpu_qparams *out_params)
{
    const gantry_node_view *node = cpu_qdq_producer(q, value);
    if (!node || !cpu_qdq_is_op(node, "DequantizeLinear") || node->input_count < 2 ||
        !cpu_qdq_is_byte(cpu_qdq_value(q, node->inputs[0])))
        return false;
    *out_params = cpu_qdq_params(q, node);
    return out_params->scalar && !cpu_qdq_is_constant(q, out_params->value);
}

bool cpu_qdq_same_bytes(const cpu_qdq *q, uint32_t value, const cpu_qparams *y, cpu_qparams *out_x)
{
    return cpu_qdq_bytes(q, value, out_x) && out_x->scale_value == y->scale_value &&
           out_x->zero_value == y->zero_value && cpu_qdq_value(q, out_x->value)->dtype == y->dtype;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Adds a node that the group computes; false when it has too many. */
bool cpu_qdq_absorb(cpu_qdq_match *m, uint32_t node)
{
    if (m->absorbed_count >= CPU_QDQ_MAX_NODES)
        return false;
    m->absorbed[m->absorbed_count++] = node;
    return true;
}

bool cpu_qdq_absorb_producer(const cpu_qdq *q, cpu_qdq_match *m, uint32_t value)
{
    return cpu_qdq_absorb(m, q->f->uses.producer[value]);
}

void cpu_qdq_operand(const cpu_qdq *q, cpu_qdq_match *m, uint32_t value)
{
    m->inputs[m->input_count++] = value;
}

/* value, scale, zero point. */
void cpu_qdq_operands(const cpu_qdq *q, cpu_qdq_match *m, const cpu_qparams *p)
{
    cpu_qdq_operand(q, m, p->value);
    cpu_qdq_operand(q, m, p->scale);
    cpu_qdq_operand(q, m, p->zero);
}

/* Why the bytes y of a float value are not made by one kernel, or NULL. */
static const char *match_value(const cpu_qdq *q, uint32_t value, const cpu_qparams *y, cpu_qdq_match *m)
{
    const char *guard = cpu_qdq_center(q, value, y, m);
    if (!guard)
        return NULL;
    *m = (cpu_qdq_match){.row = NULL};
    return cpu_qdq_rows(q, value, y, m) ? NULL : guard;
}

/* ---- operators that only move elements: their operand may as well be quantized before ------- */

static bool moves(const gantry_node_view *node)
{
    static const char *const names[] = {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Concat"};
    if (node && cpu_qdq_is_op(node, "Resize")) /* outside of a cropped image lies a number of its own */
        return strcmp(gantry_node_string(node, "mode", "nearest"), "nearest") == 0 &&
               strcmp(gantry_node_string(node, "coordinate_transformation_mode", ""), "tf_crop_and_resize") &&
               node->output_count == 1;
    for (size_t k = 0; node && k < sizeof names / sizeof *names; k++)
        if (cpu_qdq_is_op(node, names[k]))
            return node->output_count == 1;
    return false;
}

static uint32_t moved_inputs(const gantry_node_view *node)
{
    return cpu_qdq_is_op(node, "Concat") ? node->input_count : 1;
}

/* The operand of a moving operator as bytes: those that were dequantized for it when they are the same
 * numbers, else what makes the floats shall quantize. */
static uint32_t bytes_before(cpu_qdq *q, cpu_qdq_match *m, uint32_t value, uint32_t quantize,
                             const cpu_qparams *y)
{
    cpu_qparams x;
    if (cpu_qdq_same_bytes(q, value, y, &x)) {
        cpu_qdq_absorb_producer(q, m, value);
        return x.value;
    }
    q->bytes[value] = quantize;
    return value;
}

static void take_move(cpu_qdq *q, uint32_t value, uint32_t quantize, const cpu_qparams *y, cpu_qdq_match *m)
{
    const gantry_node_view *node = cpu_qdq_producer(q, value);
    for (uint32_t k = 0; k < node->input_count; k++)
        cpu_qdq_operand(q, m,
                        k < moved_inputs(node) ? bytes_before(q, m, node->inputs[k], quantize, y)
                                               : node->inputs[k]);
    cpu_qdq_absorb_producer(q, m, value);
    m->node = node;
    m->row = cpu_find_op("", node->op);
    m->rule = "qdq_pass";
}

/* Other bytes y of bytes x: a table of 256 results. */
static const char *match_requantize(const cpu_qdq *q, uint32_t value, const cpu_qparams *x,
                                    const cpu_qparams *y, cpu_qdq_match *m)
{
    uint8_t *table = gt_arena_alloc(&q->f->program->arena, 256);
    int32_t low = y->dtype == GANTRY_INT8 ? -128 : 0;
    bool is_signed = cpu_qdq_value(q, x->value)->dtype == GANTRY_INT8;
    if (!table)
        return "there is no memory for its table";
    for (int k = 0; k < 256; k++) {
        float real = (float)((is_signed ? (int8_t)k : k) - x->zero_value) * x->scale_value;
        double whole = (double)rintf(real / y->scale_value) + y->zero_value;
        table[k] = (uint8_t)(int32_t)(whole < low ? low : whole > low + 255 ? low + 255 : whole);
    }
    m->table = table;
    m->node = cpu_qdq_producer(q, value);
    m->row = &cpu_table_row;
    m->rule = "qdq_table";
    cpu_qdq_operand(q, m, x->value);
    cpu_qdq_absorb_producer(q, m, value);
    return NULL;
}

/* Whether what makes the value can quantize it, with moving operators on the way. */
static bool can_quantize(const cpu_qdq *q, uint32_t value, const cpu_qparams *y, uint32_t depth)
{
    const gantry_node_view *node = cpu_qdq_producer(q, value);
    cpu_qdq_match trial = {.row = NULL};
    cpu_qparams x;
    if (cpu_qdq_same_bytes(q, value, y, &x))
        return true;
    if (!node || !cpu_qdq_is_private(q, value))
        return false;
    if (!moves(node))
        return cpu_qdq_bytes(q, value, &x) || match_value(q, value, y, &trial) == NULL;
    const cpu_op_row *row = cpu_find_op("", node->op);
    bool can = row && cpu_row_takes(row, 0, y->dtype) && node->input_count <= CPU_QDQ_MAX_INPUTS &&
               depth < CPU_QDQ_MAX_NODES;
    for (uint32_t k = 0; k < moved_inputs(node) && can; k++)
        can = can_quantize(q, node->inputs[k], y, depth + 1);
    return can;
}

static bool match_move(cpu_qdq *q, uint32_t value, uint32_t quantize, const cpu_qparams *y, cpu_qdq_match *m)
{
    if (!moves(cpu_qdq_producer(q, value)) || !can_quantize(q, value, y, 0))
        return false;
    take_move(q, value, quantize, y, m);
    return true;
}

/* ---- recording ------------------------------------------------------------------------------- */

static void record(const cpu_qdq *q, const char *rule, uint32_t count, const uint32_t *ids, const char *guard)
{
    if (!q->f->args->recorder)
        return;
    gantry_fusion_record fusion = {.struct_bytes = sizeof fusion,
                                   .rule = rule,
                                   .node_count = count,
                                   .node_ids = ids,
                                   .applied = guard == NULL,
                                   .guard = guard ? guard : ""};
    q->f->program->provider->host->record_fusion(q->f->args->recorder, &fusion);
}

/* "DequantizeLinear+Conv+QuantizeLinear" would fill the tables: the operators between say enough. */
static char *label_of(const cpu_qdq *q, const cpu_qdq_match *m, uint32_t quantize)
{
    size_t capacity = 32 + 24 * (size_t)(m->post_count + 1), length;
    char *label = gt_arena_alloc(&q->f->program->arena, capacity);
    if (!label)
        return NULL;
    length = (size_t)snprintf(label, capacity, "Q%.24s", m->node->op);
    for (uint32_t k = 0; k < m->post_count; k++)
        length += (size_t)snprintf(label + length, capacity - length, "+%s",
                                   m->posts[k].kind == CPU_POST_RELU ? "Relu" : "Clip");
    return label;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static void demand(cpu_qdq *q, uint32_t value)
{
    if (value != GANTRY_NO_ID && q->f->uses.producer[value] != GANTRY_NO_ID)
        q->wanted[q->f->uses.producer[value]] = 1;
}

/* Makes the group of the match; the nodes it absorbed are noted for later. */
static gantry_status take(cpu_qdq *q, const cpu_qdq_match *m, uint32_t index)
{
    cpu_fuser *f = q->f;
    gt_arena *arena = &f->program->arena;
    cpu_group *group = &f->led[index];
    *group = (cpu_group){
        .node = m->node,
        .row = m->row,
        .input_count = m->input_count,
        .inputs = gt_arena_copy(arena, m->inputs, m->input_count * sizeof *m->inputs),
        .output_count = 1,
        .outputs = f->program->graph->nodes[index]->outputs,
        .post_count = m->post_count,
        .posts = m->post_count ? gt_arena_copy(arena, m->posts, m->post_count * sizeof *m->posts) : NULL,
        .table = m->table,
        .rows = m->rows,
        .label = label_of(q, m, index)};
    if (!group->inputs || !group->label || (m->post_count && !group->posts))
        return gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE);
    q->rule[index] = m->rule;
    f->taken_by[index] = f->last[index] = index;
    for (uint32_t k = 0; k < m->absorbed_count; k++)
        if (q->absorber[m->absorbed[k]] == GANTRY_NO_ID)
            q->absorber[m->absorbed[k]] = index;
    for (uint32_t k = 0; k < m->input_count; k++)
        demand(q, m->inputs[k]);
    return GANTRY_OK;
}

/* What that QuantizeLinear says about its result. */
static cpu_qparams result_params(const cpu_qdq *q, uint32_t quantize)
{
    const gantry_node_view *node = q->f->program->graph->nodes[quantize];
    cpu_qparams y = cpu_qdq_params(q, node);
    y.dtype = cpu_qdq_value(q, node->outputs[0])->dtype;
    return y;
}

/* Why no group ends in this QuantizeLinear, or NULL. */
static const char *match_quantize(cpu_qdq *q, uint32_t index, cpu_qdq_match *m)
{
    const gantry_node_view *node = q->f->program->graph->nodes[index];
    cpu_qparams y = result_params(q, index);
    if (!cpu_qdq_is_byte(cpu_qdq_value(q, node->outputs[0])))
        return "it quantizes to another type than 8 bits";
    if (!y.scalar)
        return "its scale is no positive constant scalar";
    if (cpu_qdq_table(q, index, m))
        return NULL;
    *m = (cpu_qdq_match){.row = NULL};
    if (match_move(q, node->inputs[0], index, &y, m))
        return NULL;
    *m = (cpu_qdq_match){.row = NULL};
    return match_value(q, node->inputs[0], &y, m);
}

/* The group that makes a value as bytes that a moving operator behind it wants. */
static const char *match_bytes(cpu_qdq *q, uint32_t value, cpu_qdq_match *m)
{
    uint32_t quantize = q->bytes[value];
    cpu_qparams y = result_params(q, quantize);
    cpu_qparams x;
    q->f->program->carried[value] = (uint8_t)y.dtype;
    if (cpu_qdq_bytes(q, value, &x))
        return match_requantize(q, value, &x, &y, m);
    if (!moves(cpu_qdq_producer(q, value)))
        return match_value(q, value, &y, m);
    take_move(q, value, quantize, &y, m);
    return NULL;
}

static gantry_status visit(cpu_qdq *q, uint32_t index)
{
    const gantry_node_view *node = q->f->program->graph->nodes[index];
    uint32_t value = node->output_count ? node->outputs[0] : GANTRY_NO_ID;
    bool carries = value != GANTRY_NO_ID && q->bytes[value] != GANTRY_NO_ID;
    if (!q->wanted[index] && q->absorber[index] != GANTRY_NO_ID)
        return GANTRY_OK;
    if (carries || (cpu_qdq_is_op(node, "QuantizeLinear") && node->input_count >= 2)) {
        cpu_qdq_match m = {.row = NULL};
        const char *guard = carries ? match_bytes(q, value, &m) : match_quantize(q, index, &m);
        if (!guard)
            return take(q, &m, index);
        if (carries)
            return gt_fail(q->f->err, GANTRY_INTERNAL, GANTRY_STAGE_COMPILE, node->name,
                           "%s (node '%s') was to give bytes: %s", node->op, node->name, guard);
        record(q, "qdq", 1, &node->id, guard);
    }
    for (uint32_t k = 0; k < node->input_count; k++)
        demand(q, node->inputs[k]);
    return GANTRY_OK;
}

/* The nodes of each group, now that it is known which of them are still computed on their own. */
static gantry_status list_nodes(cpu_qdq *q, uint32_t index)
{
    cpu_fuser *f = q->f;
    const gantry_graph_view *graph = f->program->graph;
    uint32_t count = 0;
    for (uint32_t k = 0; k <= index; k++)
        count += f->taken_by[k] == index;
    uint32_t *ids = GT_ARENA_ARRAY(&f->program->arena, uint32_t, count);
    if (!ids)
        return gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE);
    f->led[index].node_ids = ids;
    for (uint32_t k = 0; k <= index; k++)
        if (f->taken_by[k] == index)
            ids[f->led[index].node_count++] = graph->nodes[k]->id;
    record(q, q->rule[index], count, ids, NULL);
    return GANTRY_OK;
}

static const char *leftover_guard(const cpu_qdq *q, const gantry_node_view *node)
{
    uint32_t value = node->outputs[0];
    const gantry_node_view *reader =
        q->f->uses.count[value] ? q->f->program->graph->nodes[q->f->uses.consumer[value]] : NULL;
    return q->f->uses.is_output[value] ? "its result is an output"
           : reader && cpu_qdq_is_op(reader, "QuantizeLinear")
               ? "a QuantizeLinear follows at once and was not joined"
               : "an operator that computes with floats reads it";
}

static bool has_quantize(const gantry_graph_view *graph)
{
    for (uint32_t k = 0; k < graph->node_count; k++)
        if (cpu_qdq_is_op(graph->nodes[k], "QuantizeLinear") ||
            cpu_qdq_is_op(graph->nodes[k], "DequantizeLinear"))
            return true;
    return false;
}

static gantry_status fuse(cpu_qdq *q)
{
    cpu_fuser *f = q->f;
    const gantry_graph_view *graph = f->program->graph;
    gt_arena *arena = &q->scratch;
    q->wanted = GT_ARENA_ARRAY(arena, uint8_t, graph->node_count);
    q->absorber = GT_ARENA_ARRAY(arena, uint32_t, graph->node_count);
    q->rule = GT_ARENA_ARRAY(arena, const char *, graph->node_count);
    q->roots = GT_ARENA_ARRAY(arena, cpu_qdq_root, graph->value_count);
    q->bytes = GT_ARENA_ARRAY(arena, uint32_t, graph->value_count);
    if (!q->wanted || !q->absorber || !q->rule || !q->roots || !q->bytes)
        return gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE);
    memset(q->bytes, 0xFF, graph->value_count * sizeof *q->bytes);
    memset(q->absorber, 0xFF, graph->node_count * sizeof *q->absorber);
    cpu_qdq_find_roots(q);
    for (uint32_t k = 0; k < graph->output_count; k++)
        demand(q, graph->outputs[k]);
    for (uint32_t k = graph->node_count; k-- > 0;)
        GT_TRY(visit(q, k));
    for (uint32_t k = 0; k < graph->node_count; k++)
        if (!q->wanted[k] && q->absorber[k] != GANTRY_NO_ID && f->taken_by[k] == GANTRY_NO_ID)
            f->taken_by[k] = q->absorber[k];
    for (uint32_t k = 0; k < graph->node_count; k++) {
        if (q->rule[k])
            GT_TRY(list_nodes(q, k));
        else if (f->taken_by[k] == GANTRY_NO_ID && cpu_qdq_is_derived(f, graph->nodes[k]))
            GT_TRY(cpu_qdq_derive(f, k));
        else if (f->taken_by[k] == GANTRY_NO_ID && cpu_qdq_is_op(graph->nodes[k], "DequantizeLinear"))
            record(q, "qdq", 1, &graph->nodes[k]->id, leftover_guard(q, graph->nodes[k]));
    }
    return GANTRY_OK;
}

gantry_status cpu_fuse_qdq(cpu_fuser *f)
{
    cpu_qdq q = {.f = f};
    if (!has_quantize(f->program->graph))
        return GANTRY_OK;
    gt_arena_init(&q.scratch, &f->program->provider->allocator);
    gantry_status status = fuse(&q);
    gt_arena_clear(&q.scratch);
    return status;
}
