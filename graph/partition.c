/* Partitions: one topological sort that stays with the current provider as long as it can.
 *
 * Runs of one provider in a topological order can't wait for each other, so the partition graph has no cycle
 * whatever the verdicts. With two providers, staying until nothing of the current one is ready gives the
 * fewest runs for a given start; every start is tried. */
#include "place_parts.h"

/* A binary heap of unit indexes, the smallest position first. */
typedef struct ready_heap {
    uint32_t *units;
    uint32_t count;
} ready_heap;

/* Groups: one for each provider, and one for the executor, whose units are a partition each. */
typedef struct schedule {
    gt_placer *placer;
    uint32_t unit_count;
    uint32_t group_count;
    uint32_t *group;    /* by unit */
    uint32_t *position; /* by unit: place of its first node in the graph's order */
    uint32_t *segment;  /* by unit */
    uint32_t *by_segment;
    uint32_t *waits_at_start; /* by unit: reads of values that other units make */
    uint32_t *waits;
    ready_heap *ready; /* by group */
    uint32_t *sequence;
    uint8_t *starts; /* by place in the sequence: a partition starts here */
    uint32_t done;
    uint32_t partition_count;
} schedule;

/* ---- the heaps ------------------------------------------------------------------------------- */

static void heap_push(const schedule *s, ready_heap *heap, uint32_t unit)
{
    uint32_t at = heap->count++;
    while (at > 0 && s->position[heap->units[(at - 1) / 2]] > s->position[unit]) {
        heap->units[at] = heap->units[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->units[at] = unit;
}

static uint32_t heap_pop(const schedule *s, ready_heap *heap)
{
    uint32_t top = heap->units[0], last = heap->units[--heap->count], at = 0;
    for (uint32_t child = 1; child < heap->count; child = 2 * at + 1) {
        if (child + 1 < heap->count && s->position[heap->units[child + 1]] < s->position[heap->units[child]])
            child++;
        if (s->position[heap->units[child]] >= s->position[last])
            break;
        heap->units[at] = heap->units[child];
        at = child;
    }
    heap->units[at] = last;
    return top;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static bool make_schedule(schedule *s)
{
    gt_arena *arena = &s->placer->scratch;
    uint32_t count = s->unit_count = s->placer->placement->unit_count;
    s->group_count = s->placer->provider_count + 1;
    s->group = GT_ARENA_ARRAY(arena, uint32_t, count + 1);
    s->position = GT_ARENA_ARRAY(arena, uint32_t, count + 1);
    s->segment = GT_ARENA_ARRAY(arena, uint32_t, count + 1);
    s->by_segment = GT_ARENA_ARRAY(arena, uint32_t, count + 1);
    s->waits_at_start = GT_ARENA_ARRAY(arena, uint32_t, count + 1);
    s->waits = GT_ARENA_ARRAY(arena, uint32_t, count + 1);
    s->ready = GT_ARENA_ARRAY(arena, ready_heap, s->group_count);
    s->sequence = GT_ARENA_ARRAY(arena, uint32_t, count + 1);
    s->starts = (uint8_t *)gt_arena_alloc(arena, count + 1);
    return s->group && s->position && s->segment && s->by_segment && s->waits_at_start && s->waits &&
           s->ready && s->sequence && s->starts;
}

static void describe_units(schedule *s)
{
    const gt_placer *placer = s->placer;
    const gt_placement *placement = placer->placement;
    for (uint32_t k = 0; k < s->unit_count; k++) {
        s->group[k] = placer->executor[k] ? placer->provider_count : placement->units[k].provider;
        s->position[k] = UINT32_MAX;
    }
    for (uint32_t k = 0; k < placer->graph->order.count; k++) {
        uint32_t node = placer->graph->order.data[k], unit = placement->unit_of_node[node];
        if (unit == GT_NONE)
            continue;
        if (s->position[unit] == UINT32_MAX)
            s->position[unit] = k;
        if (placer->segments[node] > s->segment[unit])
            s->segment[unit] = placer->segments[node];
        for (uint32_t r = placer->edges.read_first[node]; r < placer->edges.read_first[node + 1]; r++) {
            uint32_t producer = placer->graph->values.data[placer->edges.reads[r].value]->producer;
            uint32_t from = producer == GT_NONE ? GT_NONE : placement->unit_of_node[producer];
            s->waits_at_start[unit] += from != GT_NONE && from != unit;
        }
    }
}

static gantry_status make_heaps(schedule *s, gantry_error *err)
{
    uint32_t *sizes = GT_ARENA_ARRAY(&s->placer->scratch, uint32_t, s->group_count);
    uint32_t *room = GT_ARENA_ARRAY(&s->placer->scratch, uint32_t, s->unit_count + 1);
    if (!sizes || !room)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; k < s->unit_count; k++)
        sizes[s->group[k]]++;
    for (uint32_t g = 0; g < s->group_count; g++) {
        s->ready[g].units = room;
        room += sizes[g];
    }
    return GANTRY_OK;
}

/* Counting sort of the units by segment. */
static gantry_status sort_by_segment(schedule *s, gantry_error *err)
{
    uint32_t segments = 1;
    for (uint32_t k = 0; k < s->unit_count; k++)
        segments = s->segment[k] + 1 > segments ? s->segment[k] + 1 : segments;
    uint32_t *first = GT_ARENA_ARRAY(&s->placer->scratch, uint32_t, (size_t)segments + 1);
    if (!first)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; k < s->unit_count; k++)
        first[s->segment[k] + 1]++;
    for (uint32_t g = 1; g <= segments; g++)
        first[g] += first[g - 1];
    for (uint32_t k = 0; k < s->unit_count; k++)
        s->by_segment[first[s->segment[k]]++] = k;
    return GANTRY_OK;
}

/* ---- scheduling ------------------------------------------------------------------------------ */

/* A unit of a later segment that becomes ready is found when its segment begins. */
static void release_users(schedule *s, uint32_t unit)
{
    const gt_placer *placer = s->placer;
    const gt_placement *placement = placer->placement;
    for (uint32_t n = 0; n < placement->units[unit].node_count; n++) {
        const gt_node *node = placer->graph->nodes.data[placement->units[unit].nodes[n]];
        for (uint32_t o = 0; o < node->output_count; o++) {
            if (node->outputs[o] == GT_NONE)
                continue;
            uint32_t first = placer->edges.user_first[node->outputs[o]];
            uint32_t last = placer->edges.user_first[node->outputs[o] + 1];
            for (uint32_t k = first; k < last; k++) {
                uint32_t user = placement->unit_of_node[placer->edges.users[k]];
                if (user != unit && --s->waits[user] == 0 && s->segment[user] == s->segment[unit])
                    heap_push(s, &s->ready[s->group[user]], user);
            }
        }
    }
}

/* The group whose first ready unit comes first in the graph, or GT_NONE. */
static uint32_t next_group(const schedule *s)
{
    uint32_t best = GT_NONE;
    for (uint32_t g = 0; g < s->group_count; g++)
        if (s->ready[g].count &&
            (best == GT_NONE || s->position[s->ready[g].units[0]] < s->position[s->ready[best].units[0]]))
            best = g;
    return best;
}

static void run_group(schedule *s, uint32_t group)
{
    bool alone = group == s->placer->provider_count;
    for (bool first = true; s->ready[group].count && (first || !alone); first = false) {
        uint32_t unit = heap_pop(s, &s->ready[group]);
        s->starts[s->done] = first;
        s->sequence[s->done++] = unit;
        s->partition_count += first;
        release_users(s, unit);
    }
}

/* Schedules everything, beginning with `start` where it is ready. */
static void run_schedule(schedule *s, uint32_t start)
{
    s->done = s->partition_count = 0;
    memcpy(s->waits, s->waits_at_start, s->unit_count * sizeof *s->waits);
    for (uint32_t at = 0; at < s->unit_count;) {
        uint32_t segment = s->segment[s->by_segment[at]];
        for (; at < s->unit_count && s->segment[s->by_segment[at]] == segment; at++)
            if (s->waits[s->by_segment[at]] == 0)
                heap_push(s, &s->ready[s->group[s->by_segment[at]]], s->by_segment[at]);
        uint32_t group = s->ready[start].count ? start : next_group(s);
        for (; group != GT_NONE; group = next_group(s))
            run_group(s, group);
    }
}

static void find_schedule(schedule *s)
{
    uint32_t best = 0, fewest = UINT32_MAX, last = GT_NONE;
    for (uint32_t g = 0; g + 1 < s->group_count; g++) {
        bool used = false;
        for (uint32_t k = 0; !used && k < s->unit_count; k++)
            used = s->group[k] == g;
        if (!used)
            continue;
        run_schedule(s, g);
        last = g;
        if (s->partition_count < fewest) {
            fewest = s->partition_count;
            best = g;
        }
    }
    if (last != best || last == GT_NONE)
        run_schedule(s, best);
}

/* ---- partitions ------------------------------------------------------------------------------ */

typedef struct partition_builder {
    gt_placer *placer;
    uint32_t *reader;  /* by value: 1 + the partition that has it as an input already */
    uint8_t *observed; /* by value: the executor must see it: graph outputs, sizes known only after a run */
    GT_VEC(uint32_t) values;
} partition_builder;

static gantry_status list_nodes(schedule *s, gantry_error *err)
{
    gt_placement *placement = s->placer->placement;
    gt_arena *arena = &placement->arena;
    uint32_t total = 0;
    for (uint32_t k = 0; k < s->unit_count; k++)
        total += placement->units[k].node_count;
    uint32_t *nodes = GT_ARENA_ARRAY(arena, uint32_t, total + 1);
    placement->partitions = GT_ARENA_ARRAY(arena, gt_partition, s->partition_count + 1);
    placement->partition_of_node = GT_ARENA_ARRAY(arena, uint32_t, s->placer->graph->nodes.count + 1);
    if (!nodes || !placement->partitions || !placement->partition_of_node)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    memset(placement->partition_of_node, 0xff, s->placer->graph->nodes.count * sizeof(uint32_t));
    for (uint32_t k = 0, at = 0; k < s->done; k++) {
        const gt_unit *unit = &placement->units[s->sequence[k]];
        if (s->starts[k])
            placement->partitions[placement->partition_count++] =
                (gt_partition){.provider = unit->provider,
                               .segment = s->segment[s->sequence[k]],
                               .nodes = &nodes[at],
                               .control = s->placer->executor[s->sequence[k]]};
        gt_partition *partition = &placement->partitions[placement->partition_count - 1];
        for (uint32_t n = 0; n < unit->node_count; n++) {
            nodes[at++] = unit->nodes[n];
            partition->node_count++;
            placement->partition_of_node[unit->nodes[n]] = placement->partition_count - 1;
        }
    }
    return GANTRY_OK;
}

static void mark_observed(partition_builder *builder)
{
    const gt_graph *graph = builder->placer->graph;
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        builder->observed[graph->outputs.data[k]] = 1;
    const gt_exprs *exprs = &graph->model->exprs;
    for (uint32_t k = 0; k < exprs->symbols.count; k++) {
        const gt_symbol *symbol = &exprs->symbols.data[k];
        bool data = symbol->kind == GT_SYMBOL_DATA_DIM || symbol->kind == GT_SYMBOL_DATA_ELEMENT;
        if (data && symbol->graph == graph && symbol->value < graph->values.count)
            builder->observed[symbol->value] = 1;
    }
}

static gantry_status add_inputs(partition_builder *builder, uint32_t index, gantry_error *err)
{
    const gt_placer *placer = builder->placer;
    const gt_partition *partition = &placer->placement->partitions[index];
    for (uint32_t n = 0; n < partition->node_count; n++) {
        uint32_t node = partition->nodes[n];
        for (uint32_t r = placer->edges.read_first[node]; r < placer->edges.read_first[node + 1]; r++) {
            const gt_read *read = &placer->edges.reads[r];
            uint32_t producer = placer->graph->values.data[read->value]->producer;
            bool inside = producer != GT_NONE && placer->placement->partition_of_node[producer] == index;
            if (read->kind == GT_READ_HOST || inside || builder->reader[read->value] == index + 1)
                continue;
            builder->reader[read->value] = index + 1;
            if (!gt_vec_push(placer->allocator, &builder->values, read->value))
                return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
        }
    }
    return GANTRY_OK;
}

static bool read_outside(const partition_builder *builder, uint32_t value, uint32_t index)
{
    const gt_placer *placer = builder->placer;
    if (builder->observed[value])
        return true;
    for (uint32_t k = placer->edges.user_first[value]; k < placer->edges.user_first[value + 1]; k++)
        if (placer->placement->partition_of_node[placer->edges.users[k]] != index)
            return true;
    return false;
}

static gantry_status add_outputs(partition_builder *builder, uint32_t index, gantry_error *err)
{
    const gt_placer *placer = builder->placer;
    const gt_partition *partition = &placer->placement->partitions[index];
    for (uint32_t n = 0; n < partition->node_count; n++) {
        const gt_node *node = placer->graph->nodes.data[partition->nodes[n]];
        for (uint32_t o = 0; o < node->output_count; o++)
            if (node->outputs[o] != GT_NONE && read_outside(builder, node->outputs[o], index) &&
                !gt_vec_push(placer->allocator, &builder->values, node->outputs[o]))
                return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    }
    return GANTRY_OK;
}

/* Inputs of all partitions, then outputs of all, in one list each. */
static gantry_status list_values(partition_builder *builder, bool inputs, gantry_error *err)
{
    gt_placement *placement = builder->placer->placement;
    builder->values.count = 0;
    for (uint32_t k = 0; k < placement->partition_count; k++) {
        uint32_t before = builder->values.count;
        GT_TRY(inputs ? add_inputs(builder, k, err) : add_outputs(builder, k, err));
        *(inputs ? &placement->partitions[k].input_count : &placement->partitions[k].output_count) =
            builder->values.count - before;
    }
    const uint32_t *list = (const uint32_t *)gt_arena_copy(&placement->arena, builder->values.data,
                                                           builder->values.count * sizeof(uint32_t));
    if (!list)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; k < placement->partition_count; k++) {
        gt_partition *partition = &placement->partitions[k];
        *(inputs ? &partition->inputs : &partition->outputs) = list;
        list += inputs ? partition->input_count : partition->output_count;
    }
    return GANTRY_OK;
}

static gantry_status list_edges(gt_placer *placer, gantry_error *err)
{
    partition_builder builder = {.placer = placer};
    builder.reader = GT_ARENA_ARRAY(&placer->scratch, uint32_t, placer->graph->values.count + 1);
    builder.observed = (uint8_t *)gt_arena_alloc(&placer->scratch, placer->graph->values.count + 1);
    if (!builder.reader || !builder.observed)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    mark_observed(&builder);
    gantry_status status = list_values(&builder, true, err);
    if (status == GANTRY_OK)
        status = list_values(&builder, false, err);
    gt_vec_free(placer->allocator, &builder.values);
    return status;
}

gantry_status gt_partitions_form(gt_placer *placer, gantry_error *err)
{
    schedule s = {.placer = placer};
    if (!make_schedule(&s))
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    describe_units(&s);
    GT_TRY(make_heaps(&s, err));
    GT_TRY(sort_by_segment(&s, err));
    find_schedule(&s);
    if (s.done != s.unit_count)
        return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_PLACE, NULL,
                       "%u of %u units wait for each other: the graph is not sorted or has a cycle",
                       s.unit_count - s.done, s.unit_count);
    GT_TRY(list_nodes(&s, err));
    return list_edges(placer, err);
}
