/* Decisions of the host that overrule a provider's yes, each kept as a verdict with its reason: late
 * refusals, the precision policy, pins, and the rule that shape arithmetic stays on the host. */
#include "place_parts.h"

/* ---- precision ------------------------------------------------------------------------------- */

static bool is_float(gantry_dtype dtype)
{
    switch (dtype) {
    case GANTRY_FLOAT64:
    case GANTRY_FLOAT32:
    case GANTRY_FLOAT16:
    case GANTRY_BFLOAT16:
    case GANTRY_FLOAT8E4M3FN:
    case GANTRY_FLOAT8E4M3FNUZ:
    case GANTRY_FLOAT8E5M2:
    case GANTRY_FLOAT8E5M2FNUZ:
    case GANTRY_FLOAT4E2M1:
        return true;
    default:
        return false;
    }
}

static bool is_op(const gt_graph *graph, uint32_t node, const char *op_type)
{
    return node != GT_NONE && strcmp(graph->nodes.data[node]->op_type, op_type) == 0;
}

static bool reads_dequantized(const gt_graph *graph, const gt_node *node)
{
    bool any = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        const gt_value *value = gt_graph_value(graph, node->inputs[k]);
        if (!value || gt_value_is_fixed(value) || !is_float(value->dtype))
            continue;
        if (!is_op(graph, value->producer, "DequantizeLinear"))
            return false;
        any = true;
    }
    return any;
}

static bool is_quantized_after(gt_graph *graph, const gt_node *node)
{
    for (uint32_t k = 0; k < node->output_count; k++) {
        const gt_use *uses;
        uint32_t count;
        if (node->outputs[k] == GT_NONE)
            continue;
        if (gt_graph_uses(graph, node->outputs[k], &uses, &count, NULL) != GANTRY_OK)
            return false;
        for (uint32_t u = 0; u < count; u++)
            if (!is_op(graph, uses[u].node, "QuantizeLinear"))
                return false;
    }
    return true;
}

/* A float node between DequantizeLinear and QuantizeLinear is the model's way to write 8-bit arithmetic. */
uint32_t gt_node_model_bits(gt_graph *graph, uint32_t node_id)
{
    const gt_node *node = graph->nodes.data[node_id];
    const gt_value *input = node->input_count ? gt_graph_value(graph, node->inputs[0]) : NULL;
    const gt_value *output = node->output_count ? gt_graph_value(graph, node->outputs[0]) : NULL;
    if (!input || !output || !is_float(input->dtype) || !is_float(output->dtype))
        return 0;
    if (reads_dequantized(graph, node) && is_quantized_after(graph, node))
        return 8;
    uint32_t in = gantry_dtype_bits(input->dtype), out = gantry_dtype_bits(output->dtype);
    return in < out ? in : out;
}

static bool runs_below(gt_graph *graph, const gt_unit *unit, gantry_dtype executes_in)
{
    uint32_t bits = gantry_dtype_bits(executes_in);
    for (uint32_t k = 0; bits && k < unit->node_count; k++)
        if (bits < 64 && bits < gt_node_model_bits(graph, unit->nodes[k]))
            return true;
    return false;
}

static gantry_status apply_precision(gt_placer *placer, gt_unit *unit, gantry_error *err)
{
    const gt_node *node = placer->graph->nodes.data[unit->nodes[0]];
    for (uint32_t p = 0; p < placer->provider_count; p++) {
        gt_kept_verdict *verdict = &unit->verdicts[p];
        if (!verdict->supported || !runs_below(placer->graph, unit, verdict->executes_in))
            continue;
        const gt_value *output = placer->graph->values.data[node->outputs[0]];
        GT_TRY(gt_verdicts_overrule(placer, verdict, GANTRY_REFUSE_precision_policy, output->name,
                                    gantry_dtype_text(verdict->executes_in), gantry_dtype_text(output->dtype),
                                    "allow_precision", err));
    }
    return GANTRY_OK;
}

uint32_t gt_policies_count_below(gt_placer *placer)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < placer->placement->unit_count; k++) {
        const gt_unit *unit = &placer->placement->units[k];
        if (unit->provider == GT_NONE)
            continue;
        gantry_dtype executes_in = unit->verdicts[unit->provider].executes_in;
        for (uint32_t n = 0; n < unit->node_count; n++)
            count +=
                runs_below(placer->graph, &(gt_unit){.node_count = 1, .nodes = &unit->nodes[n]}, executes_in);
    }
    return count;
}

/* ---- pins ------------------------------------------------------------------------------------ */

typedef struct pin_table {
    gt_map names; /* pin.node -> index */
    uint32_t *providers;
} pin_table;

static gantry_status read_pins(gt_placer *placer, pin_table *table, gantry_error *err)
{
    const gt_place_options *options = placer->options;
    table->providers = GT_ARENA_ARRAY(&placer->scratch, uint32_t, options->pin_count + 1);
    if (!table->providers)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; k < options->pin_count; k++) {
        const gt_pin *pin = &options->pins[k];
        uint32_t p = 0;
        while (p < placer->provider_count && strcmp(placer->providers[p].name, pin->provider) != 0)
            p++;
        if (p == placer->provider_count)
            return gt_fail(
                err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLACE, pin->node,
                "'%s' is pinned to '%s', which is not among the session's providers (option providers)",
                pin->node, pin->provider);
        table->providers[k] = p;
        if (!gt_map_set(&table->names, pin->node, strlen(pin->node), k))
            return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    }
    return GANTRY_OK;
}

/* The pin of a name: its own, else that of the nearest body around it ("loop1.body" holds "loop1.body.neg1").
 */
static uint32_t pin_of_name(const pin_table *table, const char *name)
{
    for (size_t length = strlen(name); length > 0; length--) {
        if (name[length] != 0 && name[length] != '.')
            continue;
        uint32_t pin = gt_map_get(&table->names, name, length, GT_NONE);
        if (pin != GT_NONE)
            return pin;
    }
    return GT_NONE;
}

/* A pin on the node, or on one of the file's nodes it stands for. */
static uint32_t pin_of_node(const gt_placer *placer, const pin_table *table, uint32_t node_id,
                            uint32_t *out_other)
{
    const gt_node *node = placer->graph->nodes.data[node_id];
    uint32_t pin = pin_of_name(table, node->name);
    *out_other = GT_NONE;
    for (uint32_t k = 0; k < node->lineage.count; k++) {
        uint32_t next = pin_of_name(table, placer->graph->model->sources.data[node->lineage.sources[k]].name);
        if (next == GT_NONE)
            continue;
        if (pin == GT_NONE)
            pin = next;
        else if (table->providers[next] != table->providers[pin])
            *out_other = next;
    }
    return pin;
}

static gantry_status pin_refused(const gt_placer *placer, const gt_unit *unit, const gt_pin *pin,
                                 const gt_kept_verdict *verdict, gantry_error *err)
{
    const gt_node *node = placer->graph->nodes.data[unit->nodes[0]];
    const gantry_refusal *r = verdict->refusal;
    gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_PLACE, node->name,
            "node '%s' (%s) is pinned to provider '%s' (pin '%s'), which refuses it: %s%s%s%s%s%s%s%s%s. "
            "Remove the pin "
            "or pin it to another provider",
            node->name, node->op_type, pin->provider, pin->node, gantry_refusal_text(r->code),
            r->operand[0] ? " " : "", r->operand, r->actual[0] ? ", found " : "", r->actual,
            r->required[0] ? ", needs " : "", r->required, r->detail[0] ? ": " : "", r->detail);
    if (err && err->struct_bytes >= sizeof *err)
        snprintf(err->provider, sizeof err->provider, "%s", pin->provider);
    return GANTRY_UNSUPPORTED;
}

static gantry_status pin_unit(gt_placer *placer, uint32_t index, const gt_pin *pin, uint32_t provider,
                              gantry_error *err)
{
    gt_unit *unit = &placer->placement->units[index];
    bool executor = strcmp(unit->kind, "control") == 0 && provider == placer->host;
    if (!unit->verdicts[provider].supported && !executor)
        return pin_refused(placer, unit, pin, &unit->verdicts[provider], err);
    for (uint32_t p = 0; p < placer->provider_count; p++)
        if (p != provider && unit->verdicts[p].supported)
            GT_TRY(gt_verdicts_overrule(placer, &unit->verdicts[p], GANTRY_REFUSE_user_pinned, pin->node,
                                        placer->providers[p].name, pin->provider, "unpin", err));
    return GANTRY_OK;
}

static gantry_status apply_pins(gt_placer *placer, const pin_table *table, uint8_t *pinned, gantry_error *err)
{
    for (uint32_t k = 0; k < placer->placement->unit_count; k++) {
        const gt_unit *unit = &placer->placement->units[k];
        uint32_t pin = GT_NONE, other = GT_NONE;
        for (uint32_t n = 0; n < unit->node_count && pin == GT_NONE; n++)
            pin = pin_of_node(placer, table, unit->nodes[n], &other);
        if (pin == GT_NONE)
            continue;
        const gt_pin *pins = placer->options->pins;
        if (other != GT_NONE)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLACE, pins[other].node,
                           "'%s' is pinned to '%s' and '%s' to '%s', but both are part of node '%s' now: pin "
                           "them to one "
                           "provider, or switch the rewrite off",
                           pins[pin].node, pins[pin].provider, pins[other].node, pins[other].provider,
                           placer->graph->nodes.data[unit->nodes[0]]->name);
        pinned[k] = 1;
        GT_TRY(pin_unit(placer, k, &pins[pin], table->providers[pin], err));
    }
    return GANTRY_OK;
}

/* ---- shape arithmetic ------------------------------------------------------------------------ */

/* Small, and made of whole numbers or conditions: what sizes are computed from. */
static bool is_host_number(const gt_placer *placer, uint32_t value_id)
{
    const gt_value *value = placer->graph->values.data[value_id];
    if (value->dtype != GANTRY_INT64 && value->dtype != GANTRY_INT32 && value->dtype != GANTRY_BOOL)
        return false;
    return placer->bytes[value_id] <= GT_MAX_ELEMENTS * 8.0;
}

/* Marks the node that computes a host number and queues what it reads, unless it was marked before. */
typedef struct host_walk {
    uint8_t *marked; /* by node */
    GT_VEC(uint32_t) queue;
} host_walk;

static gantry_status walk_from(gt_placer *placer, host_walk *walk, uint32_t value_id, gantry_error *err)
{
    const gt_graph *graph = placer->graph;
    const gt_value *value = gt_graph_value(graph, value_id);
    if (!value || value->producer == GT_NONE || walk->marked[value->producer] ||
        !is_host_number(placer, value_id))
        return GANTRY_OK;
    if (!gt_node_runs(graph->nodes.data[value->producer]))
        return GANTRY_OK;
    walk->marked[value->producer] = 1;
    return gt_vec_push(placer->allocator, &walk->queue, value->producer)
               ? GANTRY_OK
               : gt_out_of_memory(err, GANTRY_STAGE_PLACE);
}

static gantry_status mark_host_numbers(gt_placer *placer, host_walk *walk, gantry_error *err)
{
    const gt_graph *graph = placer->graph;
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        if (!gt_node_runs(node) || !node->op)
            continue;
        for (uint32_t i = 0; i < node->input_count && i < 32; i++)
            if (node->op->shape_operands & 1u << i)
                GT_TRY(walk_from(placer, walk, node->inputs[i], err));
    }
    for (uint32_t k = 0; k < walk->queue.count; k++) {
        const gt_node *node = graph->nodes.data[walk->queue.data[k]];
        for (uint32_t i = 0; i < node->input_count; i++)
            GT_TRY(walk_from(placer, walk, node->inputs[i], err));
    }
    return GANTRY_OK;
}

/* Only where the host can do it: policy never makes a node unsupported. */
static gantry_status keep_on_host(gt_placer *placer, gt_unit *unit, gantry_error *err)
{
    bool host_can = false;
    for (uint32_t p = 0; p < placer->provider_count; p++)
        host_can |= unit->verdicts[p].supported && gt_placer_domain(placer, p) == 0;
    for (uint32_t p = 0; host_can && p < placer->provider_count; p++)
        if (unit->verdicts[p].supported && gt_placer_domain(placer, p) != 0)
            GT_TRY(gt_verdicts_overrule(placer, &unit->verdicts[p], GANTRY_REFUSE_host_policy, "",
                                        "its result is a shape", "host", "", err));
    return GANTRY_OK;
}

static gantry_status apply_host_policy(gt_placer *placer, const uint8_t *pinned, gantry_error *err)
{
    host_walk walk = {.marked = (uint8_t *)gt_arena_alloc(&placer->scratch, placer->graph->nodes.count + 1)};
    gantry_status status =
        walk.marked ? mark_host_numbers(placer, &walk, err) : gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; status == GANTRY_OK && k < walk.queue.count; k++) {
        uint32_t unit = placer->placement->unit_of_node[walk.queue.data[k]];
        if (!pinned[unit])
            status = keep_on_host(placer, &placer->placement->units[unit], err);
    }
    gt_vec_free(placer->allocator, &walk.queue);
    return status;
}

/* ---- all together ---------------------------------------------------------------------------- */

gantry_status gt_policies_apply_late(gt_placer *placer, gantry_error *err)
{
    for (uint32_t k = 0; k < placer->options->late_count; k++) {
        const gt_late_refusal *late = &placer->options->late[k];
        uint32_t unit =
            late->node < placer->graph->nodes.count ? placer->placement->unit_of_node[late->node] : GT_NONE;
        if (unit == GT_NONE || late->provider >= placer->provider_count)
            continue; /* the node was expanded meanwhile */
        gt_kept_verdict *verdict = &placer->placement->units[unit].verdicts[late->provider];
        if (!verdict->supported)
            continue;
        placer->able[unit] &= ~(1u << late->provider);
        GT_TRY(gt_verdicts_overrule_with(placer, verdict, &late->refusal, err));
    }
    return GANTRY_OK;
}

gantry_status gt_policies_apply(gt_placer *placer, gantry_error *err)
{
    for (uint32_t k = 0; placer->options->model_precision && k < placer->placement->unit_count; k++)
        GT_TRY(apply_precision(placer, &placer->placement->units[k], err));
    uint8_t *pinned = (uint8_t *)gt_arena_alloc(&placer->scratch, placer->placement->unit_count + 1);
    if (!pinned)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    if (placer->options->pin_count) {
        pin_table table = {0};
        gt_map_init(&table.names, placer->allocator);
        gantry_status status = read_pins(placer, &table, err);
        if (status == GANTRY_OK)
            status = apply_pins(placer, &table, pinned, err);
        gt_map_free(&table.names);
        GT_TRY(status);
    }
    return apply_host_policy(placer, pinned, err);
}
