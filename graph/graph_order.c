/* Who uses a value, and in which order nodes can run: both derived from the nodes, made again after a change.
 */
#include "graph_internal.h"

/* ---- uses ------------------------------------------------------------------------------------ */

void gt_graph_changed(gt_graph *graph)
{
    for (; graph; graph = graph->parent)
        graph->uses_valid = false;
}

static gantry_status capture_is_used(gt_graph *body, uint32_t value, bool *out_used, gantry_error *err)
{
    const gt_use *uses;
    uint32_t count = 0;
    *out_used = false;
    if (body->values.data[value]->captured != GT_NONE)
        GT_TRY(gt_graph_uses(body, value, &uses, &count, err));
    *out_used = count > 0;
    return GANTRY_OK;
}

/* Calls are made twice: uses NULL counts into first[value + 1], then uses are put at first[value]++. */
static void put_use(gt_use *uses, uint32_t *first, uint32_t value, uint32_t node, uint32_t index)
{
    if (value == GT_NONE)
        return;
    if (!uses)
        first[value + 1]++;
    else
        uses[first[value]++] = (gt_use){node, index};
}

static gantry_status put_captures(gt_use *uses, uint32_t *first, uint32_t node_id, gt_graph *body,
                                  gantry_error *err)
{
    for (uint32_t k = 0; k < body->values.count; k++) {
        bool used;
        GT_TRY(capture_is_used(body, k, &used, err));
        if (used)
            put_use(uses, first, body->values.data[k]->captured, node_id, GT_NONE);
    }
    return GANTRY_OK;
}

static gantry_status put_all_uses(gt_graph *graph, gt_use *uses, uint32_t *first, gantry_error *err)
{
    for (uint32_t k = 0; k < graph->nodes.count; k++) {
        const gt_node *node = graph->nodes.data[k];
        if (node->removed)
            continue;
        for (uint32_t j = 0; j < node->input_count; j++)
            put_use(uses, first, node->inputs[j], k, j);
        for (uint32_t j = 0; j < node->body_count; j++)
            GT_TRY(put_captures(uses, first, k, node->bodies[j].graph, err));
    }
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        put_use(uses, first, graph->outputs.data[k], GT_NONE, k);
    return GANTRY_OK;
}

static gantry_status build_uses(gt_graph *graph, gantry_error *err)
{
    gt_allocator *allocator = graph->model->allocator;
    uint32_t value_count = graph->values.count;
    gt_free(allocator, graph->uses);
    gt_free(allocator, graph->uses_first);
    graph->uses = NULL;
    graph->uses_first = GT_NEW_ARRAY(allocator, uint32_t, (size_t)value_count + 2);
    if (!graph->uses_first)
        return gt_graph_no_memory(err);
    /* Shifted by one, so that after the second pass first[v] is where v begins again. */
    uint32_t *first = graph->uses_first + 1;
    GT_TRY(put_all_uses(graph, NULL, first, err));
    first[0] = 0;
    for (uint32_t k = 0; k < value_count; k++)
        first[k + 1] += first[k];
    graph->uses = GT_NEW_ARRAY(allocator, gt_use, (size_t)first[value_count] + 1);
    if (!graph->uses)
        return gt_graph_no_memory(err);
    GT_TRY(put_all_uses(graph, graph->uses, first, err));
    graph->uses_valid = true;
    return GANTRY_OK;
}

gantry_status gt_graph_uses(gt_graph *graph, uint32_t value, const gt_use **out_uses, uint32_t *out_count,
                            gantry_error *err)
{
    *out_uses = NULL;
    *out_count = 0;
    if (!graph->uses_valid)
        GT_TRY(build_uses(graph, err));
    *out_uses = graph->uses + graph->uses_first[value];
    *out_count = graph->uses_first[value + 1] - graph->uses_first[value];
    return GANTRY_OK;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Depth first from the nodes in the file's order: each node right after the last one it needs. That is the
 * file's order where it is one, and puts what a rewrite adds beside what it replaces. */
enum { NEW, OPEN, DONE };

typedef struct sort_frame {
    uint32_t node;
    uint32_t
        next; /* the next dependency to look at: inputs, then the values of the bodies one after another */
} sort_frame;

typedef struct sorter {
    gt_graph *graph;
    uint8_t *state;
    sort_frame *stack;
    uint32_t depth;
    uint32_t *order;
    uint32_t count;
} sorter;

/* Dependency `next` of the node: *out_value is a value of the graph or GT_NONE; false past the last one. */
static bool dependency(const gt_node *node, uint32_t next, uint32_t *out_value)
{
    *out_value = GT_NONE;
    if (next < node->input_count) {
        *out_value = node->inputs[next];
        return true;
    }
    next -= node->input_count;
    for (uint32_t k = 0; k < node->body_count; k++) {
        const gt_graph *body = node->bodies[k].graph;
        if (next < body->values.count) {
            *out_value = body->values.data[next]->captured;
            return true;
        }
        next -= body->values.count;
    }
    return false;
}

static uint32_t live_producer(const gt_graph *graph, uint32_t value)
{
    uint32_t producer = value == GT_NONE ? GT_NONE : graph->values.data[value]->producer;
    return producer != GT_NONE && !graph->nodes.data[producer]->removed ? producer : GT_NONE;
}

/* The nodes on the stack from `back_to` on need each other in a ring. */
static gantry_status fail_cycle(const sorter *s, uint32_t back_to, gantry_error *err)
{
    char text[1500] = "";
    uint32_t first = s->depth, shown = 0;
    while (s->stack[first - 1].node != back_to)
        first--;
    for (uint32_t k = first - 1; k < s->depth && shown < 6; k++, shown++) {
        const gt_node *node = s->graph->nodes.data[s->stack[k].node];
        uint32_t value, needed = k + 1 < s->depth ? s->stack[k + 1].node : back_to;
        dependency(node, s->stack[k].next - 1, &value);
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s'%.60s' needs '%.60s' of '%.60s'", shown ? ", " : "",
                 node->name, s->graph->values.data[value]->name, s->graph->nodes.data[needed]->name);
    }
    return gt_fail(err, GANTRY_MODEL_GRAPH, GANTRY_STAGE_LOAD, s->graph->nodes.data[back_to]->name,
                   "the nodes form a cycle, so there is no order to run them in: %s%s", text,
                   s->depth - first + 1 > shown ? " ..." : "");
}

static gantry_status visit(sorter *s, uint32_t root, gantry_error *err)
{
    s->stack[s->depth++] = (sort_frame){root, 0};
    s->state[root] = OPEN;
    while (s->depth) {
        sort_frame *top = &s->stack[s->depth - 1];
        uint32_t value;
        if (!dependency(s->graph->nodes.data[top->node], top->next, &value)) {
            s->state[top->node] = DONE;
            s->order[s->count++] = top->node;
            s->depth--;
            continue;
        }
        top->next++;
        uint32_t producer = live_producer(s->graph, value);
        if (producer == GT_NONE || s->state[producer] == DONE)
            continue;
        if (s->state[producer] == OPEN)
            return fail_cycle(s, producer, err);
        s->state[producer] = OPEN;
        s->stack[s->depth++] = (sort_frame){producer, 0};
    }
    return GANTRY_OK;
}

/* Captures that nobody reads any more would be dependencies for nothing. */
static gantry_status release_unused_captures(gt_graph *graph, gantry_error *err)
{
    for (uint32_t k = 0; graph->parent && k < graph->values.count; k++) {
        bool used;
        GT_TRY(capture_is_used(graph, k, &used, err));
        if (!used)
            graph->values.data[k]->captured = GT_NONE;
    }
    return GANTRY_OK;
}

static gantry_status sort_nodes(sorter *s, gantry_error *err)
{
    gt_graph *graph = s->graph;
    for (uint32_t k = 0; k < graph->nodes.count; k++) {
        const gt_node *node = graph->nodes.data[k];
        for (uint32_t j = 0; !node->removed && j < node->body_count; j++)
            GT_TRY(release_unused_captures(node->bodies[j].graph, err));
    }
    for (uint32_t k = 0; k < graph->nodes.count; k++)
        if (!graph->nodes.data[k]->removed && s->state[k] == NEW)
            GT_TRY(visit(s, k, err));
    graph->order.count = 0;
    if (!gt_vec_reserve(graph->model->allocator, &graph->order, s->count))
        return gt_graph_no_memory(err);
    if (s->count)
        memcpy(graph->order.data, s->order, s->count * sizeof *s->order);
    graph->order.count = s->count;
    return GANTRY_OK;
}

gantry_status gt_graph_sort(gt_graph *graph, gantry_error *err)
{
    gt_allocator *allocator = graph->model->allocator;
    size_t count = graph->nodes.count;
    sorter s = {.graph = graph,
                .state = GT_NEW_ARRAY(allocator, uint8_t, count),
                .stack = GT_NEW_ARRAY(allocator, sort_frame, count),
                .order = GT_NEW_ARRAY(allocator, uint32_t, count)};
    gantry_status status = s.state && s.stack && s.order ? sort_nodes(&s, err) : gt_graph_no_memory(err);
    gt_free(allocator, s.state);
    gt_free(allocator, s.stack);
    gt_free(allocator, s.order);
    return status;
}
