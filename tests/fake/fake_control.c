/* If and Loop that the fake device takes whole ("ops" names them): their bodies are interpreted node by node
 * on the queue's thread. All sizes in them have to be in the model. */
#include "fake_program.h"

/* Constants of one body, by value of its view. */
typedef struct body_constants {
    const gantry_graph_view *graph;
    void **data;
} body_constants;

struct fake_bodies {
    uint32_t count;
    body_constants *bodies;
};

/* ---- captures -------------------------------------------------------------------------------- */

/* A capture of the body; it has the name of a value of the graph around. */
static bool is_capture(const gantry_value_view *value)
{
    return value->flags & GANTRY_VALUE_CAPTURE && !(value->flags & GANTRY_VALUE_CONSTANT);
}

static uint32_t count_body_captures(const gantry_graph_view *body)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < body->value_count; v++)
        count += is_capture(body->values[v]);
    return count;
}

uint32_t fake_count_captures(const gantry_graph_view *graph, const gantry_node_view *node)
{
    uint32_t count = 0;
    for (uint32_t b = 0; b < node->body_count; b++)
        count += count_body_captures(node->bodies[b]->graph);
    return count;
}

static uint32_t find_value(const gantry_graph_view *graph, const char *name)
{
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (strcmp(graph->values[v]->name, name) == 0)
            return v;
    return GANTRY_NO_ID;
}

uint32_t fake_capture(const gantry_graph_view *graph, const gantry_node_view *node, uint32_t k)
{
    for (uint32_t b = 0; b < node->body_count; b++)
        for (uint32_t v = 0; v < node->bodies[b]->graph->value_count; v++)
            if (is_capture(node->bodies[b]->graph->values[v]) && k-- == 0)
                return find_value(graph, node->bodies[b]->graph->values[v]->name);
    return GANTRY_NO_ID;
}

/* ---- judging --------------------------------------------------------------------------------- */

static bool has_sizes(const gantry_graph_view *graph, gantry_verdict *verdict)
{
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const gantry_value_view *value = graph->values[v];
        bool known = value->rank >= 0;
        for (int32_t d = 0; known && d < value->rank; d++)
            known = value->dims[d] >= 0;
        if (known)
            continue;
        gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, value->name, "an open size",
                      "sizes that the model says, in bodies", "");
        return false;
    }
    return true;
}

bool fake_takes_bodies(const fake_config *config, const gantry_graph_view *graph,
                       const gantry_node_view *node, gantry_verdict *verdict)
{
    for (uint32_t b = 0; b < node->body_count; b++) {
        const gantry_graph_view *body = node->bodies[b]->graph;
        if (!has_sizes(body, verdict))
            return false;
        for (uint32_t n = 0; n < body->node_count; n++) {
            bool constant_only = strcmp(body->nodes[n]->op, "Identity") == 0;
            if (!constant_only && !fake_judge_node(config, body, body->nodes[n], verdict))
                return false;
        }
    }
    return has_sizes(graph, verdict);
}

/* ---- constants ------------------------------------------------------------------------------- */

void fake_bodies_destroy(fake_provider *provider, struct fake_bodies *bodies)
{
    const gantry_host *host = provider->host;
    for (uint32_t b = 0; bodies && b < bodies->count; b++) {
        for (uint32_t v = 0; bodies->bodies[b].data && v < bodies->bodies[b].graph->value_count; v++)
            host->free(host, bodies->bodies[b].data[v]);
        host->free(host, bodies->bodies[b].data);
    }
    if (bodies)
        host->free(host, bodies->bodies);
    host->free(host, bodies);
}

static gantry_status read_constants(fake_provider *provider, body_constants *body,
                                    gantry_constants *constants, gantry_error *err)
{
    const gantry_host *host = provider->host;
    for (uint32_t v = 0; v < body->graph->value_count; v++) {
        const void *data;
        size_t bytes;
        if (body->graph->values[v]->constant_id == GANTRY_NO_ID)
            continue;
        gantry_status status =
            host->constant_map(host, constants, body->graph->values[v]->constant_id, &data, &bytes, err);
        if (status != GANTRY_OK)
            return status;
        body->data[v] = fake_zeroed(host, bytes, 1);
        if (body->data[v])
            memcpy(body->data[v], data, bytes);
        host->constant_unmap(host, constants, body->graph->values[v]->constant_id);
        if (!body->data[v])
            return fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    }
    return GANTRY_OK;
}

gantry_status fake_bodies_create(fake_provider *provider, const gantry_node_view *node,
                                 gantry_constants *constants, struct fake_bodies **out_bodies,
                                 gantry_error *err)
{
    struct fake_bodies *bodies = fake_zeroed(provider->host, 1, sizeof *bodies);
    gantry_status status = GANTRY_OK;
    *out_bodies = bodies;
    if (!bodies || !(bodies->bodies = fake_zeroed(provider->host, node->body_count, sizeof *bodies->bodies)))
        return fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    bodies->count = node->body_count;
    for (uint32_t b = 0; status == GANTRY_OK && b < node->body_count; b++) {
        bodies->bodies[b].graph = node->bodies[b]->graph;
        bodies->bodies[b].data =
            fake_zeroed(provider->host, node->bodies[b]->graph->value_count, sizeof(void *));
        status = bodies->bodies[b].data ? read_constants(provider, &bodies->bodies[b], constants, err)
                                        : fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    }
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

/* One body while it runs: a tensor for each value; `own` marks those whose memory goes with it. It stands for
 * what a device keeps to itself, so it is not the host's memory. */
typedef struct frame {
    const fake_provider *provider;
    const gantry_graph_view *graph;
    gantry_tensor *tensors;
    void **own;
} frame;

static size_t value_bytes(const gantry_value_view *value)
{
    uint64_t count = 1;
    for (int32_t d = 0; d < value->rank; d++)
        count *= (uint64_t)value->dims[d];
    return (size_t)((count * fake_dtype_bits(value->dtype) + 7) / 8);
}

static void leave(frame *f)
{
    for (uint32_t v = 0; f->own && v < f->graph->value_count; v++)
        free(f->own[v]);
    free(f->own);
    free(f->tensors);
}

/* Constants and captures are there; everything else has memory of its own. */
static gantry_status enter(frame *f, const fake_provider *provider, const body_constants *body,
                           const gantry_tensor *captures, gantry_error *err)
{
    *f = (frame){provider, body->graph, calloc(body->graph->value_count + 1u, sizeof *f->tensors),
                 calloc(body->graph->value_count + 1u, sizeof(void *))};
    if (!f->tensors || !f->own)
        return fake_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t v = 0, at = 0; v < f->graph->value_count; v++) {
        const gantry_value_view *value = f->graph->values[v];
        gantry_tensor *t = &f->tensors[v];
        *t = (gantry_tensor){.struct_bytes = sizeof *t,
                             .dtype = value->dtype,
                             .rank = (uint32_t)value->rank,
                             .dims = value->dims,
                             .size_bytes = value_bytes(value)};
        if (is_capture(value))
            t->buffer = captures[at++].buffer;
        else if (body->data[v])
            t->buffer.handle = body->data[v];
        else if (!(t->buffer.handle = f->own[v] = calloc(t->size_bytes + 1, 1)))
            return fake_out_of_memory(err, GANTRY_STAGE_RUN);
    }
    return GANTRY_OK;
}

static const void *bytes_of(const gantry_tensor *tensor)
{
    return (const char *)tensor->buffer.handle + tensor->buffer.offset_bytes;
}

static gantry_status run_body(frame *f, gantry_error *err)
{
    gantry_status status = GANTRY_OK;
    for (uint32_t n = 0; status == GANTRY_OK && n < f->graph->node_count; n++) {
        const gantry_node_view *node = f->graph->nodes[n];
        gantry_tensor in[16] = {{0}}, out[16] = {{0}};
        if (node->input_count > 16 || node->output_count > 16)
            return fake_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, "fake device: %s has many operands",
                             node->name);
        for (uint32_t k = 0; k < node->input_count; k++)
            if (node->inputs[k] != GANTRY_NO_ID)
                in[k] = f->tensors[node->inputs[k]];
        for (uint32_t k = 0; k < node->output_count; k++)
            if (node->outputs[k] != GANTRY_NO_ID)
                out[k] = f->tensors[node->outputs[k]];
        status = fake_compute(f->provider, f->graph, n, in, out, err);
    }
    return status;
}

static void copy_tensor(const gantry_tensor *from, const gantry_tensor *to)
{
    if (to->buffer.handle && to->size_bytes)
        memmove((char *)to->buffer.handle + to->buffer.offset_bytes, bytes_of(from), to->size_bytes);
}

/* Into an input of the body, which has memory of its own. */
static void put_number(const frame *f, uint32_t input, void *number, size_t bytes)
{
    const gantry_tensor from = {.struct_bytes = sizeof from, .buffer = {number, 0}, .size_bytes = bytes};
    gantry_tensor to = f->tensors[f->graph->inputs[input]];
    to.size_bytes = bytes;
    copy_tensor(&from, &to);
}

static gantry_tensor *body_output(frame *f, uint32_t k)
{
    return &f->tensors[f->graph->outputs[k]];
}

static gantry_status compute_if(const fake_provider *provider, const gantry_node_view *node,
                                const struct fake_bodies *bodies, const gantry_tensor *inputs,
                                const gantry_tensor *outputs, const gantry_tensor *captures,
                                gantry_error *err)
{
    bool yes = *(const uint8_t *)bytes_of(&inputs[0]);
    uint32_t b = 0;
    for (; strcmp(node->bodies[b]->name, yes ? "then_branch" : "else_branch") != 0; b++)
        captures += count_body_captures(node->bodies[b]->graph);
    frame f;
    gantry_status status = enter(&f, provider, &bodies->bodies[b], captures, err);
    if (status == GANTRY_OK)
        status = run_body(&f, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < node->output_count; k++)
        copy_tensor(body_output(&f, k), &outputs[k]);
    leave(&f);
    return status;
}

static gantry_status compute_loop(const fake_provider *provider, const gantry_node_view *node,
                                  const struct fake_bodies *bodies, const gantry_tensor *inputs,
                                  const gantry_tensor *outputs, const gantry_tensor *captures,
                                  gantry_error *err)
{
    uint32_t carried = node->input_count - 2;
    int64_t trips = inputs[0].dtype ? *(const int64_t *)bytes_of(&inputs[0]) : INT64_MAX;
    uint8_t go = inputs[1].dtype ? *(const uint8_t *)bytes_of(&inputs[1]) : 1;
    frame f;
    gantry_status status = enter(&f, provider, &bodies->bodies[0], captures, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < carried; k++)
        copy_tensor(&inputs[2 + k], &f.tensors[f.graph->inputs[2 + k]]);
    for (int64_t round = 0; status == GANTRY_OK && go && round < trips; round++) {
        put_number(&f, 0, &round, sizeof round);
        put_number(&f, 1, &go, sizeof go);
        status = run_body(&f, err);
        go = *(const uint8_t *)bytes_of(body_output(&f, 0));
        for (uint32_t k = carried; status == GANTRY_OK && k < node->output_count; k++) {
            gantry_tensor at = outputs[k];
            at.size_bytes = body_output(&f, 1 + k)->size_bytes;
            at.buffer.offset_bytes += (size_t)round * at.size_bytes;
            copy_tensor(body_output(&f, 1 + k), &at);
        }
        for (uint32_t k = 0; status == GANTRY_OK && k < carried; k++)
            copy_tensor(body_output(&f, 1 + k), &f.tensors[f.graph->inputs[2 + k]]);
    }
    for (uint32_t k = 0; status == GANTRY_OK && k < carried && k < node->output_count; k++)
        copy_tensor(&f.tensors[f.graph->inputs[2 + k]], &outputs[k]);
    leave(&f);
    return status;
}

gantry_status fake_compute_control(const fake_provider *provider, const gantry_node_view *node,
                                   struct fake_bodies *bodies, const gantry_tensor *inputs,
                                   const gantry_tensor *outputs, const gantry_tensor *captures,
                                   gantry_error *err)
{
    return strcmp(node->op, "If") == 0 ? compute_if(provider, node, bodies, inputs, outputs, captures, err)
                                       : compute_loop(provider, node, bodies, inputs, outputs, captures, err);
}
