/* A provider for tests: verdicts, formats, views and workspaces are hashes of its seed; runs check that what
 * they are given is in the format they were promised, and leave garbage in everything else they may write to.
 */
#include "stub.h"

#include <stdlib.h>

#define GARBAGE 0x5a
#define TAGGED_BYTES 32u /* what a format of ours adds: a header before, padding behind */

struct gantry_program {
    stub_provider *provider;
    const gantry_graph_view *view;
    gantry_format *in_formats, *out_formats;
    stub_tensor *constants; /* by value */
};

struct gantry_shaped {
    gantry_program *program;
    stub_tensor *known; /* by value: extents, and elements where they are known */
    gantry_output_plan *plans;
    size_t workspace_bytes;
};

struct gantry_context {
    gantry_shaped *shaped;
};

static void *room(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        abort();
    return memory;
}

static bool happens(const stub_provider *p, uint32_t percent, uint64_t a, uint64_t b)
{
    return random_hash(p->seed, a, b) % 100 < percent;
}

/* ---- verdicts and formats -------------------------------------------------------------------- */

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    *out_info = ((stub_provider *)self)->entry.info;
    return GANTRY_OK;
}

static gantry_status judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    const stub_provider *p = self;
    uint32_t id = graph->nodes[nodes[0]]->id;
    if (graph->nodes[nodes[0]]->body_count || !happens(p, p->yes_percent, id, 1)) {
        gantry_refuse(out_verdict, GANTRY_REFUSE_no_kernel, "x", "", "", "");
        return GANTRY_OK;
    }
    out_verdict->supported = 1;
    out_verdict->estimate_source = 'e';
    out_verdict->estimate_ns = p->scale_ns * (double)(1 + random_hash(p->seed, id, 2) % 100);
    return GANTRY_OK;
}

static gantry_status formats(void *self, const gantry_graph_view *partition, gantry_edge_format *inputs,
                             gantry_edge_format *outputs)
{
    const stub_provider *p = self;
    for (uint32_t k = 0; k < partition->input_count + partition->output_count; k++) {
        bool input = k < partition->input_count;
        uint32_t at = input ? partition->inputs[k] : partition->outputs[k - partition->input_count];
        gantry_edge_format *edge = input ? &inputs[k] : &outputs[k - partition->input_count];
        const gantry_value_view *value = partition->values[at];
        if (value->dtype != GANTRY_BFLOAT16 || !happens(p, p->format_percent, value->id, 3))
            continue;
        edge->preferred.tag = 1 + (uint32_t)(random_hash(p->seed, value->id, 4) % 2);
        edge->required = happens(p, 80, value->id, 5);
    }
    return GANTRY_OK;
}

static size_t plain_bytes(gantry_dtype dtype, const gantry_shape *shape)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < shape->rank; d++)
        count *= (uint64_t)shape->dims[d];
    return gantry_dtype_bytes(dtype, count);
}

static size_t format_bytes(void *self, const gantry_format *format, gantry_dtype dtype,
                           const gantry_shape *shape)
{
    return plain_bytes(dtype, shape) + (format->tag ? TAGGED_BYTES : 0);
}

/* A header that names the tag, then the bytes, each changed by it. */
static void encode(uint32_t tag, const uint8_t *plain, uint8_t *tagged, size_t bytes)
{
    memset(tagged, (int)(0x80 + tag), TAGGED_BYTES / 2);
    for (size_t k = 0; plain && k < bytes; k++)
        tagged[TAGGED_BYTES / 2 + k] = plain[k] ^ (uint8_t)(0x30 + tag);
    memset(tagged + TAGGED_BYTES / 2 + bytes, GARBAGE, TAGGED_BYTES / 2);
}

static bool decode(uint32_t tag, const uint8_t *tagged, uint8_t *plain, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++)
        plain[k] = tagged[TAGGED_BYTES / 2 + k] ^ (uint8_t)(0x30 + tag);
    return tagged[0] == 0x80 + tag;
}

typedef struct convert_work {
    stub_provider *provider;
    gantry_format from, to;
    size_t bytes;
    gantry_buffer source, target;
} convert_work;

static void do_convert(void *arg)
{
    const convert_work *c = arg;
    size_t more = TAGGED_BYTES;
    uint8_t *source = stub_bytes(c->provider->domain, c->source, c->bytes + (c->from.tag ? more : 0));
    uint8_t *target = stub_bytes(c->provider->domain, c->target, c->bytes + (c->to.tag ? more : 0));
    if (!source || !target)
        return;
    if (c->to.tag)
        encode(c->to.tag, source, target, c->bytes);
    else if (!decode(c->from.tag, source, target, c->bytes))
        snprintf(c->provider->failure, sizeof c->provider->failure,
                 "a conversion from tag %u gets another format", c->from.tag);
}

static gantry_status convert(void *self, gantry_queue *queue, const gantry_format *from,
                             const gantry_format *to, gantry_dtype dtype, const gantry_shape *shape,
                             gantry_buffer source, gantry_buffer target, gantry_error *err)
{
    convert_work *c = room(1, sizeof *c);
    *c = (convert_work){self, *from, *to, plain_bytes(dtype, shape), source, target};
    stub_order *order = c->provider->order;
    stub_work_begin(order, queue);
    stub_work_touch(order, queue, c->provider->domain, source, c->bytes + (from->tag ? TAGGED_BYTES : 0),
                    false, "a conversion reads");
    stub_work_touch(order, queue, c->provider->domain, target, c->bytes + (to->tag ? TAGGED_BYTES : 0), true,
                    "a conversion writes");
    stub_enqueue(queue, do_convert, c);
    return GANTRY_OK;
}

/* ---- programs -------------------------------------------------------------------------------- */

static void program_destroy(void *self, gantry_program *program)
{
    ((stub_provider *)self)->alive--;
    free(program->in_formats);
    free(program->out_formats);
    free(program->constants);
    free(program);
}

static void load_constants(gantry_program *program)
{
    for (uint32_t k = 0; k < program->view->value_count; k++) {
        const gantry_value_view *value = program->view->values[k];
        if (!(value->flags & GANTRY_VALUE_CONSTANT))
            continue;
        const gt_constant *c = &program->provider->model->constants.data[value->constant_id];
        program->constants[k] =
            (stub_tensor){.dtype = c->dtype, .rank = c->rank, .data = (uint8_t *)(uintptr_t)c->data};
        memcpy(program->constants[k].dims, c->dims, c->rank * sizeof *c->dims);
    }
}

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    stub_provider *p = self;
    const gantry_graph_view *view = args->graph;
    if (happens(p, p->compile_fails_percent, view->nodes[0]->id, view->node_count))
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_COMPILE, NULL, "not today");
    gantry_program *program = room(1, sizeof *program);
    program->provider = p;
    program->view = view;
    program->in_formats = room(view->input_count, sizeof *program->in_formats);
    program->out_formats = room(view->output_count, sizeof *program->out_formats);
    program->constants = room(view->value_count, sizeof *program->constants);
    memcpy(program->in_formats, args->input_formats, view->input_count * sizeof *args->input_formats);
    memcpy(program->out_formats, args->output_formats, view->output_count * sizeof *args->output_formats);
    load_constants(program);
    p->alive++;
    *out_program = program;
    return GANTRY_OK;
}

/* ---- shaped programs ------------------------------------------------------------------------- */

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    ((stub_provider *)self)->alive--;
    for (uint32_t k = 0; k < shaped->program->view->value_count; k++)
        stub_tensor_free(&shaped->known[k]);
    free(shaped->known);
    free(shaped->plans);
    free(shaped);
}

/* The node that makes an output when it is the program's input moved, and which part of it. */
static const gantry_node_view *moving_node(const gantry_graph_view *view, uint32_t output, uint32_t *out_part)
{
    static const char *const ops[] = {"Identity", "Reshape", "Split"};
    for (uint32_t n = 0; n < view->node_count; n++)
        for (uint32_t o = 0; o < view->nodes[n]->output_count; o++)
            for (int k = 0; k < 3 && view->nodes[n]->outputs[o] == output; k++)
                if (strcmp(view->nodes[n]->op, ops[k]) == 0) {
                    *out_part = o;
                    return view->nodes[n];
                }
    return NULL;
}

/* A view needs an input of the program in the same format; in a format of ours, all of it. */
static void plan_output(gantry_shaped *shaped, uint32_t output)
{
    gantry_program *program = shaped->program;
    const gantry_graph_view *view = program->view;
    gantry_output_plan *plan = &shaped->plans[output];
    uint32_t part = 0, value = view->outputs[output], tag = program->out_formats[output].tag;
    const gantry_node_view *node = moving_node(view, value, &part);
    for (uint32_t k = 0; k < view->input_count; k++) {
        size_t bytes = stub_tensor_bytes(&shaped->known[value]);
        if (tag == program->in_formats[k].tag &&
            bytes <= stub_tensor_bytes(&shaped->known[view->inputs[k]]) &&
            happens(program->provider, 30, view->values[value]->id, 10 + k))
            plan->overwrite_input = (int32_t)k;
        if (!node || node->inputs[0] != view->inputs[k] || tag != program->in_formats[k].tag ||
            (tag && strcmp(node->op, "Split") == 0) ||
            !happens(program->provider, program->provider->view_percent, view->values[value]->id, 6))
            continue;
        plan->view_of_input = (int32_t)k;
        if (part)
            plan->view_offset_bytes = stub_tensor_bytes(&shaped->known[view->inputs[k]]) - bytes;
    }
}

static void know_value(gantry_shaped *shaped, uint32_t k, const gantry_shape *shape, const void *elements)
{
    stub_tensor *tensor = &shaped->known[k];
    tensor->dtype = shaped->program->view->values[k]->dtype;
    tensor->rank = shape->rank;
    if (shape->rank && shape->dims)
        memcpy(tensor->dims, shape->dims, shape->rank * sizeof *shape->dims);
    if (!elements)
        return;
    tensor->data = room(stub_tensor_bytes(tensor), 1);
    tensor->owned = true;
    memcpy(tensor->data, elements, stub_tensor_bytes(tensor));
}

/* Some node's shapes do not please it today; the same shapes never will. */
static bool refuse_shape(const stub_provider *p, const gantry_graph_view *view,
                         const gantry_reshape_args *args, gantry_shaped_info *out_info)
{
    uint64_t extents = 0;
    for (uint32_t k = 0; k < view->value_count; k++)
        for (uint32_t d = 0; d < args->shapes[k].rank; d++)
            extents = random_hash(extents, (uint64_t)args->shapes[k].dims[d], d);
    const gantry_node_view *node = view->nodes[extents % view->node_count];
    if (!happens(p, p->refuse_percent, extents, node->id))
        return false;
    out_info->refused_count = 1;
    out_info->refused_nodes[0] = node->id;
    out_info->refusal.code = GANTRY_REFUSE_no_kernel;
    return true;
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    stub_provider *p = self;
    const gantry_graph_view *view = program->view;
    if (refuse_shape(p, view, args, out_info))
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, NULL, "these extents are refused");
    gantry_shaped *shaped = room(1, sizeof *shaped);
    uint64_t hash = random_hash(p->seed, view->nodes[0]->id, 7);
    shaped->program = program;
    shaped->known = room(view->value_count, sizeof *shaped->known);
    shaped->plans = room(view->output_count, sizeof *shaped->plans);
    for (uint32_t k = 0; k < view->value_count; k++)
        know_value(shaped, k, &args->shapes[k], args->host_values[k]);
    for (uint32_t k = 0; k < view->output_count; k++) {
        shaped->plans[k] = (gantry_output_plan){.view_of_input = -1, .overwrite_input = -1};
        plan_output(shaped, k);
    }
    shaped->workspace_bytes = hash % 3 ? 0 : hash / 3 % 700;
    out_info->workspace_bytes = shaped->workspace_bytes;
    out_info->output_plans = hash % 17 || view->output_count > 1 ? shaped->plans : NULL;
    for (uint32_t k = 0; !out_info->output_plans && k < view->output_count; k++)
        shaped->plans[k].view_of_input = -1;
    p->alive++;
    *out_shaped = shaped;
    return GANTRY_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    *out_context = room(1, sizeof **out_context);
    (*out_context)->shaped = shaped;
    ((stub_provider *)self)->alive++;
    return GANTRY_OK;
}

static void context_destroy(void *self, gantry_context *context)
{
    ((stub_provider *)self)->alive--;
    free(context);
}

typedef struct run_work {
    gantry_shaped *shaped;
    gantry_buffer workspace;
    gantry_buffer *buffers; /* inputs, then outputs: behind this struct */
    int64_t **true_dims;
} run_work;

static bool complain(const gantry_shaped *shaped, const char *what, const char *name)
{
    snprintf(shaped->program->provider->failure, sizeof shaped->program->provider->failure, "%s: %s", name,
             what);
    return false;
}

static bool load_inputs(const run_work *w, stub_tensor *values)
{
    const gantry_program *program = w->shaped->program;
    const gantry_graph_view *view = program->view;
    for (uint32_t k = 0; k < view->value_count; k++) {
        values[k] = program->constants[k].data ? program->constants[k] : w->shaped->known[k];
        values[k].owned = false;
    }
    for (uint32_t k = 0; k < view->input_count; k++) {
        stub_tensor *value = &values[view->inputs[k]];
        uint32_t tag = program->in_formats[k].tag;
        size_t bytes = stub_tensor_bytes(value);
        if (!w->buffers[k].handle) {
            if (!value->data && bytes)
                return complain(w->shaped, "has no buffer", view->values[view->inputs[k]]->name);
            continue;
        }
        uint8_t *data =
            stub_bytes(program->provider->domain, w->buffers[k], bytes + (tag ? TAGGED_BYTES : 0));
        if (!data)
            return complain(w->shaped, "is read outside of its block", view->values[view->inputs[k]]->name);
        value->data = room(bytes, 1);
        value->owned = true;
        if (!tag)
            memcpy(value->data, data, bytes);
        else if (!decode(tag, data, value->data, bytes))
            return complain(w->shaped, "is not in the format agreed on", view->values[view->inputs[k]]->name);
    }
    return true;
}

static bool compute_nodes(const run_work *w, stub_tensor *values)
{
    const gantry_graph_view *view = w->shaped->program->view;
    for (uint32_t n = 0; n < view->node_count; n++) {
        const gantry_node_view *node = view->nodes[n];
        stub_tensor in[8] = {{0}}, out[2] = {{0}};
        for (uint32_t k = 0; k < node->input_count && k < 8; k++)
            if (node->inputs[k] != GANTRY_NO_ID) {
                in[k] = values[node->inputs[k]];
                if (!in[k].data && stub_tensor_bytes(&in[k]))
                    return complain(w->shaped, "is read before it is there",
                                    view->values[node->inputs[k]]->name);
            }
        for (uint32_t k = 0; k < node->output_count; k++)
            out[k].dtype = view->values[node->outputs[k]]->dtype;
        bool right = stub_compute(node->op, node->input_count, in, node->output_count, out);
        for (uint32_t k = 0; k < node->output_count; k++)
            values[node->outputs[k]] = out[k];
        if (!right)
            return complain(w->shaped, "has inputs that do not fit", node->name);
    }
    return true;
}

static bool store_output(const run_work *w, const stub_tensor *values, uint32_t k)
{
    const gantry_program *program = w->shaped->program;
    const gantry_graph_view *view = program->view;
    const stub_tensor *value = &values[view->outputs[k]], *planned = &w->shaped->known[view->outputs[k]];
    uint32_t tag = program->out_formats[k].tag;
    size_t bytes = stub_tensor_bytes(value), most = stub_tensor_bytes(planned);
    const char *name = view->values[view->outputs[k]]->name;
    if (bytes > most ||
        (!w->true_dims[k] && memcmp(value->dims, planned->dims, 8 * (size_t)value->rank) != 0))
        return complain(w->shaped, "has other extents than reshape was told", name);
    if (w->true_dims[k])
        memcpy(w->true_dims[k], value->dims, 8 * (size_t)value->rank);
    if (w->shaped->plans[k].view_of_input >= 0)
        return true;
    uint8_t *data = stub_bytes(program->provider->domain, w->buffers[view->input_count + k],
                               most + (tag ? TAGGED_BYTES : 0));
    if (!data || (!w->buffers[view->input_count + k].handle && most))
        return complain(w->shaped, "is written outside of its block", name);
    if (tag) {
        encode(tag, value->data, data, bytes);
    } else if (most) {
        memset(data, GARBAGE, most);
        if (value->data)
            memcpy(data, value->data, bytes);
    }
    return true;
}

static void do_run(void *arg)
{
    const run_work *w = arg;
    const gantry_graph_view *view = w->shaped->program->view;
    stub_tensor *values = room(view->value_count, sizeof *values);
    uint8_t *scratch =
        stub_bytes(w->shaped->program->provider->domain, w->workspace, w->shaped->workspace_bytes);
    if (w->shaped->workspace_bytes && scratch)
        memset(scratch, GARBAGE, w->shaped->workspace_bytes);
    bool right = load_inputs(w, values) && compute_nodes(w, values);
    for (uint32_t k = 0; right && k < view->output_count; k++)
        right = store_output(w, values, k);
    for (uint32_t k = 0; k < view->value_count; k++)
        stub_tensor_free(&values[k]);
    free(values);
}

static void note_run(const run_work *w, gantry_queue *queue)
{
    const gantry_program *program = w->shaped->program;
    const gantry_graph_view *view = program->view;
    stub_domain *domain = program->provider->domain;
    stub_order *order = program->provider->order;
    stub_work_begin(order, queue);
    stub_work_touch(order, queue, domain, w->workspace, w->shaped->workspace_bytes, true,
                    "a workspace is used");
    for (uint32_t k = 0; k < view->input_count; k++)
        stub_work_touch(order, queue, domain, w->buffers[k],
                        stub_tensor_bytes(&w->shaped->known[view->inputs[k]]) +
                            (program->in_formats[k].tag ? TAGGED_BYTES : 0),
                        false, "a program reads");
    for (uint32_t k = 0; k < view->output_count; k++)
        if (w->shaped->plans[k].view_of_input < 0)
            stub_work_touch(order, queue, domain, w->buffers[view->input_count + k],
                            stub_tensor_bytes(&w->shaped->known[view->outputs[k]]) +
                                (program->out_formats[k].tag ? TAGGED_BYTES : 0),
                            true, "a program writes");
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    const gantry_graph_view *view = context->shaped->program->view;
    uint32_t in = view->input_count, out = view->output_count;
    run_work *w = room(1, sizeof *w + (in + out) * sizeof *w->buffers + out * sizeof *w->true_dims);
    *w = (run_work){context->shaped, args->workspace, (gantry_buffer *)(w + 1), NULL};
    w->true_dims = (int64_t **)(w->buffers + in + out);
    if (in)
        memcpy(w->buffers, args->inputs, in * sizeof *w->buffers);
    if (out) {
        memcpy(w->buffers + in, args->outputs, out * sizeof *w->buffers);
        memcpy(w->true_dims, args->true_dims, out * sizeof *w->true_dims);
    }
    note_run(w, args->queue);
    stub_enqueue(args->queue, do_run, w);
    return GANTRY_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

void stub_provider_init(stub_provider *provider, uint32_t index, stub_domain *domain, stub_order *order,
                        random_source *random)
{
    *provider = (stub_provider){.domain = domain,
                                .order = order,
                                .seed = random_next(random),
                                .yes_percent = 20 + random_below(random, 80),
                                .compile_fails_percent = random_chance(random, 20) ? 15 : 0,
                                .refuse_percent = random_chance(random, 15) ? 25 : 0,
                                .format_percent = random_chance(random, 35) ? 40 : 0,
                                .view_percent = random_chance(random, 70) ? 80 : 0,
                                .scale_ns = 1 + random_below(random, 20)};
    provider->table = (gantry_provider){.struct_bytes = sizeof provider->table,
                                        .self = provider,
                                        .describe = describe,
                                        .judge = judge,
                                        .formats = formats,
                                        .compile = compile,
                                        .program_destroy = program_destroy,
                                        .reshape = reshape,
                                        .shaped_destroy = shaped_destroy,
                                        .context_create = context_create,
                                        .context_destroy = context_destroy,
                                        .run = run,
                                        .format_bytes = format_bytes,
                                        .convert = convert};
    gantry_provider_info *info = &provider->entry.info;
    *info = (gantry_provider_info){.struct_bytes = sizeof *info};
    snprintf(info->name, sizeof info->name, "stub%u", index);
    provider->entry.table = &provider->table;
    provider->entry.available = true;
}
