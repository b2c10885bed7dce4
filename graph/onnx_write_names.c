/* Names in a written file: which values it needs, which graph of it holds them, and under what name.
 *
 * A name of the model stays. Where a body would hide a name of a graph around it, which ONNX forbids, the
 * body's value gets a suffix. A constant that an outer graph holds under the same name is not written again.
 */
#include "onnx_write_internal.h"

/* ---- what is used ---------------------------------------------------------------------------- */

static gantry_status mark_graph(gt_writer *writer, gt_written *written);

static gantry_status new_written(gt_writer *writer, gt_graph *graph, gt_written *outer, gt_written **out)
{
    gt_arena *arena = &writer->arena;
    uint32_t count = graph->values.count;
    gt_written *w = *out = GT_ARENA_NEW(arena, gt_written);
    if (!w)
        return gt_write_no_memory(writer);
    *w = (gt_written){.outer = outer,
                      .graph = graph,
                      .used = gt_arena_alloc(arena, count + 1),
                      .at = GT_ARENA_ARRAY(arena, gt_written *, count),
                      .as = GT_ARENA_ARRAY(arena, uint32_t, count),
                      .names = GT_ARENA_ARRAY(arena, const char *, count),
                      .outputs = GT_ARENA_ARRAY(arena, const char *, graph->outputs.count)};
    gt_map_init(&w->taken, writer->allocator);
    gt_map_init(&w->holders, writer->allocator);
    if (!w->used || !w->at || !w->as || !w->names || !w->outputs ||
        !gt_vec_push(writer->allocator, &writer->graphs, w))
        return gt_write_no_memory(writer);
    return GANTRY_OK;
}

void gt_written_free(gt_written *written)
{
    gt_map_free(&written->taken);
    gt_map_free(&written->holders);
}

/* The graph around that holds the same constant under the same name; *out_value is the one there. */
static gt_written *outer_holder(const gt_written *written, const gt_value *value, uint32_t *out_value)
{
    for (gt_written *w = written->outer; w; w = w->outer) {
        *out_value = gt_graph_find_value(w->graph, value->name);
        if (*out_value == GT_NONE)
            continue;
        const gt_value *found = w->graph->values.data[*out_value];
        return gt_value_is_constant(found) && found->constant == value->constant ? w : NULL;
    }
    return NULL;
}

/* own: the value must be there under its own name, whoever else holds its constant. */
static gantry_status use(gt_writer *writer, gt_written *written, uint32_t id, bool own)
{
    if (id == GT_NONE || written->used[id])
        return GANTRY_OK;
    gt_value *value = written->graph->values.data[id];
    written->used[id] = 1;
    written->at[id] = written;
    written->as[id] = id;
    if (value->captured != GT_NONE) {
        written->at[id] = written->outer;
        written->as[id] = value->captured;
        return use(writer, written->outer, value->captured, false);
    }
    if (!gt_value_is_constant(value))
        return GANTRY_OK;
    uint32_t there;
    gt_written *holder = outer_holder(written, value, &there);
    if (holder) {
        written->at[id] = holder;
        written->as[id] = there;
        return use(writer, holder, there, false);
    }
    uint32_t first = gt_map_get(&written->holders, &value->constant, sizeof value->constant, id);
    if (own && first != id)
        return GANTRY_OK;
    written->as[id] = first;
    return gt_map_set(&written->holders, &value->constant, sizeof value->constant, written->as[id])
               ? GANTRY_OK
               : gt_write_no_memory(writer);
}

static gantry_status use_value(gt_writer *writer, gt_written *written, uint32_t id)
{
    return use(writer, written, id, false);
}

static uint32_t count_bodies(const gt_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < graph->order.count; k++)
        count += graph->nodes.data[graph->order.data[k]]->body_count;
    return count;
}

static gantry_status mark_node(gt_writer *writer, gt_written *written, const gt_node *node)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        GT_TRY(use_value(writer, written, node->inputs[k]));
    for (uint32_t k = 0; k < node->output_count; k++)
        GT_TRY(use_value(writer, written, node->outputs[k]));
    for (uint32_t k = 0; k < node->body_count; k++) {
        gt_written *body;
        GT_TRY(new_written(writer, node->bodies[k].graph, written, &body));
        written->bodies[written->body_count++] = body;
        GT_TRY(mark_graph(writer, body));
    }
    return GANTRY_OK;
}

/* Outputs come first: where several values hold one constant, the one that is an output keeps its name. */
static gantry_status mark_graph(gt_writer *writer, gt_written *written)
{
    const gt_graph *graph = written->graph;
    written->bodies = GT_ARENA_ARRAY(&writer->arena, gt_written *, count_bodies(graph));
    if (!written->bodies)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < graph->inputs.count; k++)
        GT_TRY(use_value(writer, written, graph->inputs.data[k]));
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        GT_TRY(use(writer, written, graph->outputs.data[k], !written->outer));
    for (uint32_t k = 0; k < graph->order.count; k++)
        GT_TRY(mark_node(writer, written, graph->nodes.data[graph->order.data[k]]));
    return GANTRY_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_taken(const gt_written *written, const char *name)
{
    for (; written; written = written->outer)
        if (gt_map_get(&written->taken, name, strlen(name), GT_NONE) != GT_NONE)
            return true;
    return false;
}

/* The name itself, or with a suffix that no value of the model's graph has either. NULL: out of memory. */
static const char *free_name(gt_writer *writer, gt_written *written, const char *name, bool must_differ)
{
    if (!must_differ && !is_taken(written, name))
        return name;
    size_t room = strlen(name) + 16;
    char *fresh = gt_arena_alloc(&writer->arena, room);
    for (uint32_t k = 1; fresh; k++) {
        snprintf(fresh, room, "%s_%u", name, k);
        if (!is_taken(written, fresh) && gt_graph_find_value(written->graph, fresh) == GT_NONE)
            break;
    }
    return fresh;
}

static gantry_status take_name(gt_writer *writer, gt_written *written, const char *wanted, bool must_differ,
                               const char **out_name)
{
    *out_name = free_name(writer, written, wanted, must_differ);
    if (!*out_name || !gt_map_set(&written->taken, *out_name, strlen(*out_name), 1))
        return gt_write_no_memory(writer);
    return GANTRY_OK;
}

static gantry_status name_value(gt_writer *writer, gt_written *written, uint32_t id)
{
    if (!gt_written_is_held(written, id) || written->names[id])
        return GANTRY_OK;
    return take_name(writer, written, written->graph->values.data[id]->name, false, &written->names[id]);
}

static bool is_earlier_output(const gt_graph *graph, uint32_t output)
{
    for (uint32_t k = 0; k < output; k++)
        if (graph->outputs.data[k] == graph->outputs.data[output])
            return true;
    return false;
}

/* A body hands out values of its own, each once; a model's outputs keep the names they have. */
static gantry_status name_outputs(gt_writer *writer, gt_written *written)
{
    const gt_graph *graph = written->graph;
    for (uint32_t k = 0; k < graph->outputs.count; k++) {
        uint32_t id = graph->outputs.data[k];
        bool foreign = !gt_written_is_held(written, id);
        bool again = written->outer && is_earlier_output(graph, k);
        if (foreign || again)
            GT_TRY(take_name(writer, written, graph->values.data[id]->name, true, &written->outputs[k]));
        else
            written->outputs[k] = written->names[id];
    }
    return GANTRY_OK;
}

static gantry_status name_graph(gt_writer *writer, gt_written *written)
{
    for (uint32_t id = 0; id < written->graph->values.count; id++)
        GT_TRY(name_value(writer, written, id));
    GT_TRY(name_outputs(writer, written));
    for (uint32_t k = 0; k < written->body_count; k++)
        GT_TRY(name_graph(writer, written->bodies[k]));
    return GANTRY_OK;
}

gantry_status gt_write_plan_names(gt_writer *writer, gt_graph *root, gt_written **out_root)
{
    GT_TRY(new_written(writer, root, NULL, out_root));
    GT_TRY(mark_graph(writer, *out_root));
    return name_graph(writer, *out_root);
}

const char *gt_written_name(const gt_written *written, uint32_t id)
{
    if (id == GT_NONE)
        return "";
    while (!gt_written_is_held(written, id)) {
        const gt_written *holder = written->at[id];
        id = written->as[id];
        written = holder;
    }
    return written->names[id];
}
