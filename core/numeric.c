/* The numeric check of one program: its inputs are copied to the host before it runs, its outputs after, and
 * its nodes computed by the CPU provider in between. It takes memory and waits for devices: a mode for
 * looking. */
#include "run.h"

#include "base/half.h"

struct gt_numeric_check {
    gt_arena arena;
    gt_frame *frame;
    gt_plan_state *state;
    const gt_step *step;
    const gt_partition *partition;
    gantry_tensor *tensors; /* by value id: what was given, then what was computed; dtype 0: not there */
    bool possible;
};

/* ---- copying what the program reads and writes ----------------------------------------------- */

/* A tensor of the value's size in the check's memory. False: its extents are not known, or there is no
 * memory; its dtype is GANTRY_UNDEFINED then. */
static bool make_tensor(gt_numeric_check *check, uint32_t value, gantry_tensor *out_tensor)
{
    uint32_t rank = 0;
    const int64_t *dims = gt_frame_value_dims(check->frame, check->state, value, &rank);
    const gt_value *of = check->frame->leaf->graph->values.data[value];
    uint64_t count = 1;
    *out_tensor = (gantry_tensor){0};
    rank = dims ? rank : 0;
    if ((!dims && of->rank != 0) || of->kind != GANTRY_KIND_TENSOR || !gantry_dtype_bits(of->dtype))
        return false;
    for (uint32_t d = 0; d < rank; d++)
        count *= (uint64_t)dims[d];
    size_t bytes = gantry_dtype_bytes(of->dtype, count);
    *out_tensor = (gantry_tensor){.struct_bytes = sizeof *out_tensor,
                                  .dtype = of->dtype,
                                  .rank = rank,
                                  .dims = gt_arena_copy(&check->arena, dims, rank * sizeof *dims),
                                  .buffer = {gt_arena_alloc(&check->arena, bytes + 64), 0},
                                  .size_bytes = bytes};
    if (!out_tensor->dims || !out_tensor->buffer.handle)
        out_tensor->dtype = GANTRY_UNDEFINED;
    return out_tensor->dtype != GANTRY_UNDEFINED;
}

static gantry_status copy_from(const gt_numeric_check *check, uint32_t slot, gantry_tensor *tensor,
                               gantry_error *err)
{
    gantry_run *run = check->frame->run;
    uint32_t d = check->state->plan->slots[slot].domain;
    const gantry_buffer *at = &check->state->slots[slot];
    if (tensor->size_bytes == 0)
        return GANTRY_OK;
    if (d == 0) {
        memcpy(tensor->buffer.handle, (const char *)at->handle + at->offset_bytes, tensor->size_bytes);
        return GANTRY_OK;
    }
    const gantry_domain *table = run->session->domains[d].entry->table;
    GT_TRY(table->copy(table->self, run->queues[d], GANTRY_COPY_TO_HOST, tensor->buffer, *at,
                       tensor->size_bytes, err));
    return table->queue_sync(table->self, run->queues[d], err);
}

static bool is_plain(const gantry_format *format, gantry_dtype dtype)
{
    return format->dtype == dtype && format->tag == 0 && format->quantization == 0;
}

/* Layouts of a provider's own cannot be read; random nodes give something else each time. */
static bool can_check(const gt_numeric_check *check)
{
    const gt_graph *graph = check->frame->leaf->graph;
    const gt_program *program = &check->frame->leaf->programs[check->step->partition];
    bool can = true;
    for (uint32_t k = 0; k < check->partition->input_count; k++)
        can = can &&
              is_plain(&program->input_formats[k], graph->values.data[check->partition->inputs[k]]->dtype) &&
              check->step->inputs[k] != GT_NO_SLOT;
    for (uint32_t k = 0; k < check->partition->output_count; k++)
        can =
            can &&
            is_plain(&program->output_formats[k], graph->values.data[check->partition->outputs[k]]->dtype) &&
            check->step->outputs[k] != GT_NO_SLOT;
    for (uint32_t k = 0; k < check->partition->node_count; k++) {
        const gt_node *node = graph->nodes.data[check->partition->nodes[k]];
        can = can && !(node->op && node->op->flags & GT_OP_RANDOM);
    }
    return can;
}

static gantry_status keep_inputs(gt_numeric_check *check, gantry_error *err)
{
    for (uint32_t k = 0; check->possible && k < check->partition->input_count; k++) {
        gantry_tensor *tensor = &check->tensors[check->partition->inputs[k]];
        check->possible = make_tensor(check, check->partition->inputs[k], tensor);
        if (check->possible)
            GT_TRY(copy_from(check, check->step->inputs[k], tensor, err));
    }
    return GANTRY_OK;
}

gantry_status gt_numeric_begin(gt_frame *frame, gt_plan_state *state, uint32_t step,
                               gt_numeric_check **out_check, gantry_error *err)
{
    gantry_session *session = frame->run->session;
    gt_numeric_check *check = GT_NEW(session->allocator, gt_numeric_check);
    *out_check = check;
    if (!check)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    gt_arena_init(&check->arena, session->allocator);
    check->frame = frame;
    check->state = state;
    check->step = &state->plan->steps[step];
    check->partition = &frame->leaf->placement->partitions[check->step->partition];
    check->tensors = GT_ARENA_ARRAY(&check->arena, gantry_tensor, frame->leaf->graph->values.count + 1);
    if (!check->tensors)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    check->possible = can_check(check);
    return keep_inputs(check, err);
}

void gt_numeric_drop(gt_numeric_check **inout_check)
{
    if (!*inout_check)
        return;
    gantry_session *session = (*inout_check)->frame->run->session;
    gt_arena_clear(&(*inout_check)->arena);
    gt_free(session->allocator, *inout_check);
    *inout_check = NULL;
}

/* ---- computing ------------------------------------------------------------------------------- */

/* The bytes of a constant, copied: whoever maps it gives it back at once. */
static gantry_status read_constant(gt_numeric_check *check, uint32_t index, gantry_tensor *out_tensor,
                                   gantry_error *err)
{
    gantry_session *session = check->frame->run->session;
    const void *data = NULL;
    pthread_mutex_lock(&session->runtime->constants_lock);
    gantry_status status = gt_constant_map(session->model, index, &data, err);
    const gt_constant *constant = &session->model->constants.data[index];
    if (status == GANTRY_OK) {
        void *copy = gt_arena_take(&check->arena, constant->bytes + 16);
        if (copy && constant->bytes)
            memcpy(copy, data, constant->bytes);
        *out_tensor = (gantry_tensor){.struct_bytes = sizeof *out_tensor,
                                      .dtype = copy ? constant->dtype : GANTRY_UNDEFINED,
                                      .rank = constant->rank,
                                      .dims = constant->dims,
                                      .buffer = {copy, 0},
                                      .size_bytes = constant->bytes};
        gt_constant_unmap(session->model, index);
    }
    pthread_mutex_unlock(&session->runtime->constants_lock);
    return status;
}

/* An input of a node inside the program: given, computed before, a constant, or known since the bind. */
static gantry_status find_input(gt_numeric_check *check, uint32_t id, gantry_tensor *out_tensor,
                                gantry_error *err)
{
    gantry_tensor *kept = &check->tensors[id];
    const gt_value *value = check->frame->leaf->graph->values.data[id];
    const void *known = check->state->plan->known_data ? check->state->plan->known_data[id] : NULL;
    if (!kept->dtype && value->constant != GT_NONE)
        GT_TRY(read_constant(check, value->constant, kept, err));
    if (!kept->dtype && known && make_tensor(check, id, kept) && kept->size_bytes)
        memcpy(kept->buffer.handle, known, kept->size_bytes);
    check->possible = check->possible && kept->dtype != GANTRY_UNDEFINED;
    *out_tensor = *kept;
    return GANTRY_OK;
}

static gantry_status compute_node(gt_numeric_check *check, uint32_t id, gantry_error *err)
{
    gantry_session *session = check->frame->run->session;
    const gt_graph *graph = check->frame->leaf->graph;
    const gt_node *node = graph->nodes.data[id];
    const gantry_provider *table = gt_runtime_provider_at(session->runtime, session->evaluator)->table;
    gantry_tensor *inputs = GT_ARENA_ARRAY(&check->arena, gantry_tensor, node->input_count + 1);
    gantry_tensor *outputs = GT_ARENA_ARRAY(&check->arena, gantry_tensor, node->output_count + 1);
    gt_view view;
    if (!inputs || !outputs)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; check->possible && k < node->input_count; k++)
        if (node->inputs[k] != GT_NONE)
            GT_TRY(find_input(check, node->inputs[k], &inputs[k], err));
    for (uint32_t k = 0; check->possible && k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE) {
            check->possible = !check->state->plan->shapes[node->outputs[k]].bounded &&
                              make_tensor(check, node->outputs[k], &outputs[k]);
            check->tensors[node->outputs[k]] = outputs[k];
        }
    if (!check->possible)
        return GANTRY_OK;
    GT_TRY(gt_view_nodes(&check->arena, graph, 1, &id, 0, NULL, 0, NULL, &view, err));
    gantry_error refused = GANTRY_ERROR_INIT;
    check->possible = table && table->evaluate &&
                      table->evaluate(table->self, &view.view, 0, inputs, outputs, &refused) == GANTRY_OK;
    return GANTRY_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Others (float8, complex numbers, packed ones) are not compared. */
static bool has_elements(gantry_dtype dtype)
{
    bool real;
    return gt_dtype_is_symbolic(dtype, &real) || dtype == GANTRY_BFLOAT16 || dtype == GANTRY_UINT64;
}

static double element_of(const gantry_tensor *tensor, uint64_t k)
{
    const void *data = tensor->buffer.handle;
    switch (tensor->dtype) {
    case GANTRY_BFLOAT16:
        return gt_brain_value(((const uint16_t *)data)[k]);
    case GANTRY_FLOAT16:
    case GANTRY_FLOAT32:
    case GANTRY_FLOAT64:
        return gt_scalar_read(tensor->dtype, data, k).r;
    default:
        return (double)gt_scalar_read(tensor->dtype, data, k).i;
    }
}

/* What may differ between two right answers: rounding of the type that was computed in (the 8-bit float
 * stands for floats with 8-bit integers behind them), and for quantized values a step on either side. */
static void set_tolerance(gantry_dtype dtype, gt_numeric_row *row)
{
    static const struct {
        gantry_dtype dtype;
        double relative, of_largest, absolute;
    } TABLE[] = {{GANTRY_FLOAT32, 1e-3, 1e-4, 0},
                 {GANTRY_FLOAT64, 1e-9, 1e-10, 0},
                 {GANTRY_FLOAT16, 1e-2, 2e-3, 0},
                 {GANTRY_BFLOAT16, 5e-2, 1e-2, 0},
                 {GANTRY_FLOAT8E4M3FN, 5e-2, 1e-1, 0},
                 {GANTRY_INT8, 0, 0, 2},
                 {GANTRY_UINT8, 0, 0, 2}};
    for (size_t k = 0; k < sizeof TABLE / sizeof *TABLE; k++)
        if (TABLE[k].dtype == dtype) {
            row->tolerance_relative = TABLE[k].relative;
            row->tolerance_absolute = TABLE[k].absolute + TABLE[k].of_largest * row->largest;
        }
}

/* Integer steps inside of a program add up on the way to its outputs. */
static bool is_quantized(const gt_numeric_check *check)
{
    const gt_graph *graph = check->frame->leaf->graph;
    for (uint32_t k = 0; k < check->partition->node_count; k++) {
        const char *op = graph->nodes.data[check->partition->nodes[k]]->op_type;
        if (strstr(op, "Quantize") || strstr(op, "QLinear") || strstr(op, "Integer"))
            return true;
    }
    return false;
}

/* Of how coarse a type the arithmetic behind an output was: the tensor's own, or what the provider said that
 * it computes in. 8-bit integers inside count as such. */
static gantry_dtype computed_in(const gt_numeric_check *check, uint32_t node, gantry_dtype dtype)
{
    const gt_placement *placement = check->frame->leaf->placement;
    uint32_t unit = node == GT_NONE ? GT_NONE : placement->unit_of_node[node];
    gantry_dtype executed = unit == GT_NONE
                                ? GANTRY_UNDEFINED
                                : placement->units[unit].verdicts[check->step->provider].executes_in;
    if (dtype != GANTRY_FLOAT32 && dtype != GANTRY_FLOAT16)
        return dtype;
    if (executed == GANTRY_INT8 || is_quantized(check))
        return GANTRY_FLOAT8E4M3FN;
    return executed == GANTRY_FLOAT16 || executed == GANTRY_BFLOAT16 ? executed : dtype;
}

static void compare(const gantry_tensor *got, const gantry_tensor *want, gantry_dtype computed,
                    gt_numeric_row *row)
{
    uint64_t count = 1, zeros = 0, wanted_zeros = 0, finite = 0;
    for (uint32_t d = 0; d < got->rank; d++)
        count *= (uint64_t)got->dims[d];
    for (uint64_t k = 0; k < count; k++) {
        double w = fabs(element_of(want, k));
        row->largest = isfinite(w) && w > row->largest ? w : row->largest;
    }
    set_tolerance(computed, row);
    for (uint64_t k = 0; k < count; k++) {
        double g = element_of(got, k), w = element_of(want, k), error = fabs(g - w);
        zeros += g == 0;
        wanted_zeros += w == 0;
        if (g == w || (isnan(g) && isnan(w)))
            continue;
        row->differing += !(error <= row->tolerance_absolute + row->tolerance_relative * fabs(w));
        row->not_finite += !isfinite(g) && isfinite(w);
        if (!isfinite(error))
            continue;
        finite++;
        row->mean_error += error;
        row->max_error = error > row->max_error ? error : row->max_error;
    }
    row->elements = count;
    row->mean_error = finite ? row->mean_error / (double)count : 0;
    row->finding = row->not_finite                                            ? "not_finite"
                   : row->differing && zeros == count && wanted_zeros < count ? "all_zero"
                   : row->differing                                           ? "outside_tolerance"
                                                                              : NULL;
}

static gantry_status note(gt_numeric_check *check, uint32_t value, gt_numeric_row *row, gantry_error *err)
{
    gt_numeric *numeric = &check->frame->run->numeric;
    const gt_graph *graph = check->frame->leaf->graph;
    const gt_node *node = gt_graph_node(graph, graph->values.data[value]->producer);
    numeric->wrong++;
    if (numeric->rows.count >= GT_NUMERIC_ROWS)
        return GANTRY_OK;
    row->tensor = graph->values.data[value]->name;
    row->producer = node ? node->name : NULL;
    row->op = node ? node->op_type : NULL;
    row->pass = node ? node->lineage.pass : NULL;
    row->provider = check->step->provider;
    row->partition = check->step->partition;
    row->node_count = check->partition->node_count;
    return gt_vec_push(check->frame->run->session->allocator, &numeric->rows, *row)
               ? GANTRY_OK
               : gt_out_of_memory(err, GANTRY_STAGE_RUN);
}

static gantry_status compare_outputs(gt_numeric_check *check, gantry_error *err)
{
    gt_numeric *numeric = &check->frame->run->numeric;
    for (uint32_t k = 0; k < check->partition->output_count; k++) {
        uint32_t value = check->partition->outputs[k],
                 maker = check->frame->leaf->graph->values.data[value]->producer;
        gantry_tensor got, *want = &check->tensors[value];
        gt_numeric_row row = {0};
        if (!has_elements(want->dtype) || !make_tensor(check, value, &got)) {
            numeric->unchecked++;
            continue;
        }
        GT_TRY(copy_from(check, check->step->outputs[k], &got, err));
        numeric->checked++;
        compare(&got, want, computed_in(check, maker, got.dtype), &row);
        if (row.finding)
            GT_TRY(note(check, value, &row, err));
    }
    return GANTRY_OK;
}

static gantry_status check_program(gt_numeric_check *check, gantry_error *err)
{
    gantry_run *run = check->frame->run;
    for (uint32_t k = 0; check->possible && k < check->partition->node_count; k++) {
        if (__atomic_load_n(&run->stop, __ATOMIC_RELAXED))
            return gt_run_check_stop(run, err);
        GT_TRY(compute_node(check, check->partition->nodes[k], err));
    }
    if (check->possible)
        return compare_outputs(check, err);
    run->numeric.unchecked += check->partition->output_count;
    return GANTRY_OK;
}

gantry_status gt_numeric_end(gt_numeric_check **inout_check, gantry_error *err)
{
    gantry_status status = check_program(*inout_check, err);
    gt_numeric_drop(inout_check);
    return status;
}
