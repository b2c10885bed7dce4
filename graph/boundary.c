/* Boundaries: every value that must move between domains or whose reader computes in another precision, once
 * for each value and target domain, session inputs and outputs included. */
#include "place_parts.h"

/* What a conversion inside one domain is taken to move; an assumption, only shown. */
#define ASSUMED_CONVERT_BYTES_PER_NS 10.0

/* What one value needs in one domain. */
typedef struct target {
    bool wanted;
    bool precision;
    uint32_t
        partition; /* the first that reads it there, rather one of another precision; GT_NONE: graph output */
} target;

typedef struct boundary_list {
    gt_placer *placer;
    target *targets;          /* by domain */
    uint8_t *done;            /* by value */
    uint64_t *output_domains; /* by value: a bit for each domain where it is wanted as a graph output */
    uint32_t *control_first;  /* by value: 1 + its first control read, 0 for none */
    uint32_t *control_next;   /* by control read, likewise */
    GT_VEC(gt_boundary) rows;
} boundary_list;

/* Types in which the precision of arithmetic shows: floats and the quantized ones. */
static bool carries_precision(gantry_dtype dtype)
{
    return dtype == GANTRY_FLOAT32 || dtype == GANTRY_FLOAT64 || dtype == GANTRY_FLOAT16 ||
           dtype == GANTRY_BFLOAT16 ||
           (dtype != GANTRY_BOOL && gantry_dtype_bits(dtype) && gantry_dtype_bits(dtype) <= 8);
}

static gantry_dtype own_precision(gantry_dtype dtype)
{
    return dtype == GANTRY_FLOAT32 || dtype == GANTRY_FLOAT64 || dtype == GANTRY_FLOAT16 ||
                   dtype == GANTRY_BFLOAT16
               ? dtype
               : GANTRY_UNDEFINED;
}

/* What the node computes in; as the model says where the provider does not: for a float value, its type. */
static gantry_dtype executed_precision(const gt_placer *placer, uint32_t node, gantry_dtype value_dtype)
{
    const gt_unit *unit = node == GT_NONE || placer->placement->unit_of_node[node] == GT_NONE
                              ? NULL
                              : gt_placer_unit(placer, node);
    gantry_dtype executes_in = unit ? unit->verdicts[unit->provider].executes_in : GANTRY_UNDEFINED;
    return executes_in != GANTRY_UNDEFINED ? executes_in : own_precision(value_dtype);
}

static void want(target *wanted, uint32_t partition, bool precision)
{
    bool better = !wanted->wanted || (precision && !wanted->precision) ||
                  (precision == wanted->precision && partition < wanted->partition);
    if (better)
        wanted->partition = partition;
    wanted->wanted = true;
    wanted->precision |= precision;
}

static bool differs(const gt_placer *placer, const gt_value *value, uint32_t reader)
{
    gantry_dtype from = executed_precision(placer, value->producer, value->dtype);
    gantry_dtype to = executed_precision(placer, reader, value->dtype);
    return carries_precision(value->dtype) && from != GANTRY_UNDEFINED && to != GANTRY_UNDEFINED &&
           from != to;
}

static void find_targets(boundary_list *list, uint32_t value_id, uint32_t source_partition)
{
    const gt_placer *placer = list->placer;
    const gt_placement *placement = placer->placement;
    const gt_value *value = placer->graph->values.data[value_id];
    memset(list->targets, 0, placer->domain_count * sizeof *list->targets);
    for (uint32_t k = placer->edges.user_first[value_id]; k < placer->edges.user_first[value_id + 1]; k++) {
        uint32_t node = placer->edges.users[k], partition = placement->partition_of_node[node];
        if (placer->edges.user_kinds[k] != GT_READ_TENSOR || partition == source_partition)
            continue;
        const gt_partition *reader = &placement->partitions[partition];
        uint32_t domain = reader->control ? 0 : gt_placer_domain(placer, reader->provider);
        want(&list->targets[domain], partition, differs(placer, value, node));
    }
    for (uint32_t k = list->control_first[value_id]; k; k = list->control_next[k - 1]) {
        const gt_control_read *read = &placer->options->control_reads[k - 1];
        want(&list->targets[read->domain], placement->partition_of_node[read->node], false);
    }
    for (uint32_t d = 0; list->output_domains[value_id] >> d; d++)
        if (list->output_domains[value_id] >> d & 1)
            want(&list->targets[d], GT_NONE, differs(placer, value, GT_NONE));
}

/* Between devices that are no peers a value passes the host: paid once when the host wants it too. */
static double price(const boundary_list *list, uint32_t source, uint32_t domain, double bytes)
{
    if (source == domain)
        return 2 * bytes / ASSUMED_CONVERT_BYTES_PER_NS;
    if (source != 0 && domain != 0 && list->targets[0].wanted &&
        !gt_cost_are_peers(list->placer, source, domain))
        return gt_cost_move_ns(list->placer, 0, domain, bytes);
    return gt_cost_move_ns(list->placer, source, domain, bytes);
}

static gantry_status add_value(boundary_list *list, uint32_t value_id, uint32_t source_partition,
                               gantry_error *err)
{
    const gt_placer *placer = list->placer;
    if (gt_edges_is_known(placer->graph, value_id) || gt_edges_outside_share(placer, value_id) >= 0)
        return GANTRY_OK;
    find_targets(list, value_id, source_partition);
    uint32_t source = gt_edges_source_domain(placer, value_id);
    double bytes = placer->bytes[value_id];
    for (uint32_t d = 0; d < placer->domain_count; d++) {
        const target *t = &list->targets[d];
        if (!t->wanted || (d == source && !t->precision))
            continue;
        gt_boundary row = {value_id, source_partition, t->partition, source,
                           d,        t->precision,     bytes,        price(list, source, d, bytes)};
        if (!gt_vec_push(placer->allocator, &list->rows, row))
            return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    }
    return GANTRY_OK;
}

/* Inputs and captures in the order of their ids, then what each partition makes. */
static gantry_status add_all(boundary_list *list, gantry_error *err)
{
    const gt_placer *placer = list->placer;
    for (uint32_t v = 0; v < placer->graph->values.count; v++)
        if (placer->graph->values.data[v]->producer == GT_NONE)
            GT_TRY(add_value(list, v, GT_NONE, err));
    for (uint32_t k = 0; k < placer->placement->partition_count; k++) {
        const gt_partition *partition = &placer->placement->partitions[k];
        for (uint32_t o = 0; o < partition->output_count; o++)
            GT_TRY(add_value(list, partition->outputs[o], k, err));
    }
    return GANTRY_OK;
}

/* What the graph's outputs and control nodes want, by value. */
static void list_wants(boundary_list *list)
{
    const gt_placer *placer = list->placer;
    const gt_graph *graph = placer->graph;
    for (uint32_t k = 0; k < graph->outputs.count; k++) {
        uint32_t wanted = gt_edges_output_domain(placer, k);
        if (wanted != GT_PLACE_ANYWHERE)
            list->output_domains[graph->outputs.data[k]] |= (uint64_t)1 << wanted;
    }
    for (uint32_t k = 0; k < placer->options->control_read_count; k++) {
        uint32_t value = placer->options->control_reads[k].value;
        list->control_next[k] = list->control_first[value];
        list->control_first[value] = k + 1;
    }
}

gantry_status gt_boundaries_find(gt_placer *placer, gantry_error *err)
{
    gt_placement *placement = placer->placement;
    uint32_t value_count = placer->graph->values.count;
    boundary_list list = {.placer = placer};
    list.targets = GT_ARENA_ARRAY(&placer->scratch, target, placer->domain_count);
    list.output_domains = GT_ARENA_ARRAY(&placer->scratch, uint64_t, value_count + 1);
    list.control_first = GT_ARENA_ARRAY(&placer->scratch, uint32_t, value_count + 1);
    list.control_next =
        GT_ARENA_ARRAY(&placer->scratch, uint32_t, (size_t)placer->options->control_read_count + 1);
    if (!list.targets || !list.output_domains || !list.control_first || !list.control_next)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    list_wants(&list);
    gantry_status status = add_all(&list, err);
    placement->boundary_count = list.rows.count;
    placement->boundaries = (gt_boundary *)gt_arena_copy(&placement->arena, list.rows.data,
                                                         list.rows.count * sizeof(gt_boundary));
    if (status == GANTRY_OK && !placement->boundaries)
        status = gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    gt_vec_free(placer->allocator, &list.rows);
    return status;
}
