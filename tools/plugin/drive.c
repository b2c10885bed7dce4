/* The life of a program, driven as the executor would, with guards around every buffer. */
#include "kit.h"

#include <stdlib.h>

/* ---- compile, reshape, context --------------------------------------------------------------- */

static gantry_status agree_on_formats(kit_program *p, gantry_error *err)
{
    const gantry_graph_view *view = &p->model->view;
    gantry_edge_format edges[2 * KIT_MAX_OPERANDS] = {{{0}, 0}};
    gantry_edge_format *outputs = edges + view->input_count;
    for (uint32_t k = 0; k < view->input_count; k++)
        edges[k].preferred.dtype = view->values[view->inputs[k]]->dtype;
    for (uint32_t k = 0; k < view->output_count; k++)
        outputs[k].preferred.dtype = view->values[view->outputs[k]]->dtype;
    gantry_provider *table = &p->subject->provider;
    gantry_status status = table->formats ? table->formats(table->self, view, edges, outputs) : GANTRY_OK;
    if (status != GANTRY_OK)
        snprintf(err->message, sizeof err->message, "formats failed");
    for (uint32_t k = 0; k < view->input_count; k++)
        p->inputs[k] = edges[k].required ? edges[k].preferred
                                         : (gantry_format){view->values[view->inputs[k]]->dtype, 0, 0};
    for (uint32_t k = 0; k < view->output_count; k++)
        p->outputs[k] = outputs[k].required ? outputs[k].preferred
                                            : (gantry_format){view->values[view->outputs[k]]->dtype, 0, 0};
    return status;
}

/* blob NULL: compiled. */
static gantry_status make_program(kit_subject *subject, const kit_model *model, const void *blob,
                                  size_t blob_bytes, kit_program *out_program, gantry_error *err)
{
    kit_program *p = out_program;
    *p = (kit_program){.subject = subject, .model = model, .constants = {.model = model}};
    p->recorder = (gantry_recorder){.host = subject->host, .graph = &model->view};
    gantry_status status = agree_on_formats(p, err);
    if (status != GANTRY_OK)
        return status;
    gantry_compile_args args = {.struct_bytes = sizeof args,
                                .graph = &model->view,
                                .constants = &p->constants,
                                .threads = 2,
                                .input_formats = p->inputs,
                                .output_formats = p->outputs,
                                .recorder = &p->recorder};
    gantry_provider *table = &subject->provider;
    status = blob ? table->blob_load(table->self, &args, blob, blob_bytes, &p->program, err)
                  : table->compile(table->self, &args, &p->program, err);
    kit_constants_end(&p->constants);
    p->recorder.over = true;
    if (status != GANTRY_OK)
        p->program = NULL;
    return status;
}

gantry_status kit_program_compile(kit_subject *subject, const kit_model *model, kit_program *out_program,
                                  gantry_error *err)
{
    return make_program(subject, model, NULL, 0, out_program, err);
}

gantry_status kit_program_load(kit_subject *subject, const kit_model *model, const void *data, size_t bytes,
                               kit_program *out_program, gantry_error *err)
{
    return make_program(subject, model, data, bytes, out_program, err);
}

void kit_program_destroy(kit_program *program)
{
    if (program->program)
        program->subject->provider.program_destroy(program->subject->provider.self, program->program);
    program->program = NULL;
}

/* The operand that graph input k of the view is. */
static uint32_t operand_of(const kit_model *m, uint32_t input)
{
    for (uint32_t k = 0; k < m->operand_count; k++)
        if (m->node_inputs[k] == m->graph_inputs[input])
            return k;
    return 0;
}

/* The array whose shape value v has: an operand's or a result's. */
static const kit_array *array_of(const kit_model *m, const kit_data *data, uint32_t value)
{
    for (uint32_t k = 0; k < m->operand_count; k++)
        if (m->node_inputs[k] == value)
            return &data->inputs[k];
    for (uint32_t k = 0; k < m->result_count; k++)
        if (m->node_outputs[k] == value)
            return &data->expected[k];
    return NULL;
}

gantry_status kit_shaped_make(kit_program *program, const kit_data *data, kit_shaped *out_shaped,
                              gantry_error *err)
{
    const kit_model *m = program->model;
    gantry_provider *table = &program->subject->provider;
    gantry_shape shapes[2 * KIT_MAX_OPERANDS];
    const void *host_values[2 * KIT_MAX_OPERANDS] = {0};
    kit_shaped *s = out_shaped;
    *s = (kit_shaped){.program = program, .data = data, .info.struct_bytes = sizeof s->info};
    for (uint32_t v = 0; v < m->view.value_count; v++) {
        const kit_array *array = array_of(m, data, v);
        shapes[v] = (gantry_shape){array->rank, array->dims};
        host_values[v] = m->values[v].flags & GANTRY_VALUE_HOST_KNOWN ? array->data : NULL;
    }
    gantry_reshape_args args = {.struct_bytes = sizeof args,
                                .shapes = shapes,
                                .host_values = host_values,
                                .constants = &program->constants,
                                .recorder = &program->recorder};
    program->recorder.over = false;
    gantry_status status = table->reshape(table->self, program->program, &args, &s->shaped, &s->info, err);
    program->recorder.over = true;
    kit_constants_end(&program->constants);
    if (status != GANTRY_OK)
        s->shaped = NULL;
    return status;
}

void kit_shaped_destroy(kit_shaped *shaped)
{
    if (shaped->shaped)
        shaped->program->subject->provider.shaped_destroy(shaped->program->subject->provider.self,
                                                          shaped->shaped);
    shaped->shaped = NULL;
}

gantry_status kit_call_open(kit_shaped *shaped, kit_call *out_call, gantry_error *err)
{
    kit_subject *s = shaped->program->subject;
    gantry_status status = GANTRY_OK;
    *out_call = (kit_call){0};
    if (s->own_domain)
        status = s->domain.queue_open(s->domain.self, &out_call->queue, err);
    if (status != GANTRY_OK) {
        out_call->queue = NULL;
        return status;
    }
    status = s->provider.context_create(s->provider.self, shaped->shaped, &out_call->context, err);
    if (status != GANTRY_OK) {
        out_call->context = NULL;
        kit_call_close(shaped, out_call);
    }
    return status;
}

void kit_call_close(kit_shaped *shaped, kit_call *call)
{
    kit_subject *s = shaped->program->subject;
    if (call->context)
        s->provider.context_destroy(s->provider.self, call->context);
    if (call->queue)
        s->domain.queue_close(s->domain.self, call->queue);
    call->context = NULL;
    call->queue = NULL;
}

/* ---- one run --------------------------------------------------------------------------------- */

#define GUARD 0xc3

/* A buffer of the domain with a guard on both sides, and the host's picture of all of it. */
typedef struct guarded {
    void *handle;
    size_t pad, bytes;
    unsigned char *picture;
    gantry_buffer inner; /* the middle */
} guarded;

typedef struct running {
    kit_shaped *shaped;
    kit_call *call;
    guarded inputs[KIT_MAX_OPERANDS], outputs[KIT_MAX_OPERANDS], workspace;
    void *formatted[2 * KIT_MAX_OPERANDS]; /* buffers in the provider's formats */
    uint32_t formatted_count;
    gantry_buffer run_inputs[KIT_MAX_OPERANDS], run_outputs[KIT_MAX_OPERANDS];
} running;

static gantry_status guarded_make(running *r, size_t bytes, const void *content, guarded *out,
                                  gantry_error *err)
{
    kit_subject *s = r->shaped->program->subject;
    size_t pad = s->own_domain && s->domain_info.alignment > 64 ? s->domain_info.alignment : 64;
    *out = (guarded){.pad = pad, .bytes = bytes};
    gantry_status status = kit_memory_alloc(s, bytes + 2 * pad, &out->handle, err);
    out->picture = malloc(bytes + 2 * pad);
    if (status != GANTRY_OK || !out->picture)
        return status != GANTRY_OK ? status : GANTRY_RESOURCE;
    memset(out->picture, GUARD, bytes + 2 * pad);
    if (content && bytes)
        memcpy(out->picture + pad, content, bytes);
    out->inner = (gantry_buffer){out->handle, pad};
    return kit_upload(s, r->call->queue, (gantry_buffer){out->handle, 0}, out->picture, bytes + 2 * pad, err);
}

static void guarded_free(running *r, guarded *g)
{
    kit_memory_free(r->shaped->program->subject, g->handle);
    free(g->picture);
    *g = (guarded){0};
}

static bool is_default(const gantry_format *format, gantry_dtype dtype)
{
    return format->tag == 0 && format->quantization == 0 && (format->dtype == dtype || !format->dtype);
}

/* A buffer in a format of the provider's; for an input it is converted from its default form. */
static gantry_status make_formatted(running *r, const gantry_format *format, const kit_array *array,
                                    const guarded *source, gantry_buffer *out_buffer, gantry_error *err)
{
    kit_subject *s = r->shaped->program->subject;
    gantry_format plain = {array->dtype, 0, 0};
    gantry_shape shape = {array->rank, array->dims};
    void **handle = &r->formatted[r->formatted_count++];
    if (!s->provider.format_bytes || !s->provider.convert) {
        snprintf(err->message, sizeof err->message, "formats asks for a format, and there is no convert");
        return GANTRY_PROVIDER;
    }
    size_t bytes = s->provider.format_bytes(s->provider.self, format, array->dtype, &shape);
    gantry_status status = kit_memory_alloc(s, bytes, handle, err);
    *out_buffer = (gantry_buffer){*handle, 0};
    if (status != GANTRY_OK || !source)
        return status;
    return s->provider.convert(s->provider.self, r->call->queue, &plain, format, array->dtype, &shape,
                               source->inner, *out_buffer, err);
}

static gantry_status make_buffers(running *r, const kit_data *data, gantry_error *err)
{
    const kit_program *p = r->shaped->program;
    gantry_status status = guarded_make(r, r->shaped->info.workspace_bytes, NULL, &r->workspace, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < p->model->view.input_count; k++) {
        const kit_array *array = &data->inputs[operand_of(p->model, k)];
        status = guarded_make(r, array->bytes, array->data, &r->inputs[k], err);
        r->run_inputs[k] = r->inputs[k].inner;
        if (status == GANTRY_OK && !is_default(&p->inputs[k], array->dtype))
            status = make_formatted(r, &p->inputs[k], array, &r->inputs[k], &r->run_inputs[k], err);
    }
    for (uint32_t k = 0; status == GANTRY_OK && k < p->model->result_count; k++) {
        const kit_array *array = &data->expected[k];
        status = guarded_make(r, array->bytes, NULL, &r->outputs[k], err);
        r->run_outputs[k] = r->outputs[k].inner;
        if (status == GANTRY_OK && !is_default(&p->outputs[k], array->dtype))
            status = make_formatted(r, &p->outputs[k], array, NULL, &r->run_outputs[k], err);
    }
    return status;
}

static gantry_status execute(running *r, gantry_error *err)
{
    kit_subject *s = r->shaped->program->subject;
    kit_call *call = r->call;
    int64_t *true_dims[KIT_MAX_OPERANDS] = {0};
    volatile int stop = call->stopped;
    static _Atomic uint64_t bindings;
    gantry_run_args args = {.struct_bytes = sizeof args,
                            .queue = call->queue,
                            .inputs = r->run_inputs,
                            .outputs = r->run_outputs,
                            .workspace = r->workspace.inner,
                            .bindings = ++bindings,
                            .threads = 2,
                            .true_dims = true_dims,
                            .stop = &stop};
    call->event_count = 0;
    if (call->timed) {
        memset(call->events, 0xff, sizeof call->events);
        args.timing = call->events;
        args.timing_capacity = KIT_MAX_EVENTS;
        args.out_timing_count = &call->event_count;
    }
    gantry_status status = kit_sync(s, call->queue, err);
    uint64_t begin = s->host->table.now_ns(&s->host->table);
    if (status == GANTRY_OK)
        status = s->provider.run(s->provider.self, call->context, &args, err);
    if (status == GANTRY_OK)
        status = kit_sync(s, call->queue, err);
    call->wall_ns = s->host->table.now_ns(&s->host->table) - begin;
    return status;
}

/* Outputs in a format of the provider's go back to their default form. */
static gantry_status convert_outputs(running *r, const kit_data *data, gantry_error *err)
{
    const kit_program *p = r->shaped->program;
    gantry_provider *table = &p->subject->provider;
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; status == GANTRY_OK && k < p->model->result_count; k++) {
        const kit_array *array = &data->expected[k];
        gantry_format plain = {array->dtype, 0, 0};
        gantry_shape shape = {array->rank, array->dims};
        if (!is_default(&p->outputs[k], array->dtype))
            status = table->convert(table->self, r->call->queue, &p->outputs[k], &plain, array->dtype, &shape,
                                    r->run_outputs[k], r->outputs[k].inner, err);
    }
    return status;
}

static bool guards_are_whole(const unsigned char *seen, const guarded *g)
{
    for (size_t k = 0; k < g->pad; k++)
        if (seen[k] != GUARD || seen[g->pad + g->bytes + k] != GUARD)
            return false;
    return true;
}

/* Brings a whole buffer back; content NULL: only the guards are looked at. */
static gantry_status look_at(running *r, const guarded *g, const char *what, uint32_t index, bool unchanged,
                             kit_array *out_array, gantry_error *err)
{
    kit_subject *s = r->shaped->program->subject;
    size_t bytes = g->bytes + 2 * g->pad;
    unsigned char *seen = malloc(bytes);
    if (!seen)
        return GANTRY_RESOURCE;
    gantry_status status = kit_download(s, r->call->queue, seen, (gantry_buffer){g->handle, 0}, bytes, err);
    if (status == GANTRY_OK)
        status = kit_sync(s, r->call->queue, err);
    if (status == GANTRY_OK && !*r->call->problem) {
        if (!guards_are_whole(seen, g))
            snprintf(r->call->problem, sizeof r->call->problem, "run wrote outside of %s %u", what, index);
        else if (unchanged && g->bytes && memcmp(seen + g->pad, g->picture + g->pad, g->bytes) != 0)
            snprintf(r->call->problem, sizeof r->call->problem, "run changed %s %u", what, index);
    }
    if (status == GANTRY_OK && out_array && g->bytes)
        memcpy(out_array->data, seen + g->pad, g->bytes);
    free(seen);
    return status;
}

/* An output that is a view of an input was not written. */
static bool view_of(const running *r, uint32_t output, const guarded **out_source, size_t *out_offset)
{
    const gantry_output_plan *plans = r->shaped->info.output_plans;
    if (!plans || plans[output].view_of_input < 0)
        return false;
    *out_source = &r->inputs[plans[output].view_of_input];
    *out_offset = plans[output].view_offset_bytes;
    return true;
}

static gantry_status collect(running *r, const kit_data *data, kit_array *out_got, gantry_error *err)
{
    const kit_model *m = r->shaped->program->model;
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; status == GANTRY_OK && k < m->view.input_count; k++)
        status = look_at(r, &r->inputs[k], "input", k, true, NULL, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < m->result_count; k++) {
        const guarded *source;
        size_t offset;
        out_got[k] = data->expected[k];
        out_got[k].data = calloc(1, out_got[k].bytes + 64);
        if (!out_got[k].data)
            return GANTRY_RESOURCE;
        if (!view_of(r, k, &source, &offset))
            status = look_at(r, &r->outputs[k], "output", k, false, &out_got[k], err);
        else if (offset > source->bytes || out_got[k].bytes > source->bytes - offset)
            snprintf(r->call->problem, sizeof r->call->problem,
                     "output %u is a view past the end of its input", k);
        else
            memcpy(out_got[k].data, source->picture + source->pad + offset, out_got[k].bytes);
    }
    return status == GANTRY_OK ? look_at(r, &r->workspace, "the workspace", 0, false, NULL, err) : status;
}

gantry_status kit_call_run(kit_shaped *shaped, kit_call *call, const kit_data *data, kit_array *out_got,
                           gantry_error *err)
{
    running r = {.shaped = shaped, .call = call};
    *call->problem = 0;
    memset(out_got, 0, KIT_MAX_OPERANDS * sizeof *out_got);
    gantry_status status = make_buffers(&r, data, err);
    if (status == GANTRY_OK)
        status = execute(&r, err);
    if (status == GANTRY_OK)
        status = convert_outputs(&r, data, err);
    if (status == GANTRY_OK)
        status = collect(&r, data, out_got, err);
    if (status != GANTRY_OK && call->queue) /* what was enqueued still reads the buffers */
        kit_sync(shaped->program->subject, call->queue, NULL);
    for (uint32_t k = 0; k < KIT_MAX_OPERANDS; k++) {
        guarded_free(&r, &r.inputs[k]);
        guarded_free(&r, &r.outputs[k]);
        if (status != GANTRY_OK)
            kit_array_free(&out_got[k]);
    }
    for (uint32_t k = 0; k < r.formatted_count; k++)
        kit_memory_free(shaped->program->subject, r.formatted[k]);
    guarded_free(&r, &r.workspace);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static gantry_dtype precision_of(const kit_subject *s, const kit_model *m)
{
    gantry_verdict verdict;
    kit_judge(s, m, &verdict);
    return verdict.executes_in ? verdict.executes_in : s->provider_info.precision;
}

/* A refusal of a shape is an answer, when it is a whole one. */
static void check_refusal(kit *k, const kit_shaped *s, const gantry_error *err)
{
    const gantry_shaped_info *info = &s->info;
    const char *code = gantry_refusal_text(info->refusal.code);
    if (info->refused_count == 0 || info->refused_count > 16)
        kit_fail(k,
                 "reshape for n=%lld gave GANTRY_UNSUPPORTED with refused_count %u: name the nodes it "
                 "refuses (%s)",
                 (long long)s->data->n, info->refused_count, err->message);
    else if (info->refused_nodes[0] != s->program->model->node.id)
        kit_fail(k, "reshape refused node %u, which the graph does not have; the id is the node view's",
                 info->refused_nodes[0]);
    else if (info->refusal.code <= GANTRY_REFUSE_NONE || info->refusal.code >= GANTRY_REFUSE_COUNT || !code)
        kit_fail(k, "reshape refused n=%lld without a code: use one of refusals.def", (long long)s->data->n);
}

void kit_check_results(kit *k, const kit_model *model, const kit_data *data, const kit_call *call,
                       const kit_array *got, double *inout_largest)
{
    char text[256];
    if (*call->problem)
        kit_fail(k, "%s with n=%lld: %s", model->row->op, (long long)data->n, call->problem);
    for (uint32_t o = 0; o < model->result_count && !kit_failed(k); o++)
        if (!kit_compare(&data->expected[o], &got[o], precision_of(&k->subject, model), inout_largest, text,
                         sizeof text))
            kit_fail(k, "%s with n=%lld, output %u: %s", model->row->op, (long long)data->n, o, text);
}

gantry_status kit_try_size(kit *k, kit_program *p, const kit_data *data, double *inout_largest)
{
    char words[2200];
    gantry_error err = GANTRY_ERROR_INIT;
    kit_shaped shaped;
    kit_call call = {0};
    kit_array got[KIT_MAX_OPERANDS] = {{0}};
    kit_doing(k, "reshape of %s for n=%lld", p->model->row->op, (long long)data->n);
    gantry_status status = kit_shaped_make(p, data, &shaped, &err);
    if (status == GANTRY_UNSUPPORTED) {
        check_refusal(k, &shaped, &err);
        return status;
    }
    const char *what = "reshape";
    if (status == GANTRY_OK) {
        what = "context_create";
        kit_doing(k, "context_create of %s for n=%lld", p->model->row->op, (long long)data->n);
        status = kit_call_open(&shaped, &call, &err);
    }
    if (status == GANTRY_OK) {
        what = "a run";
        kit_doing(k, "a run of %s with n=%lld", p->model->row->op, (long long)data->n);
        status = kit_call_run(&shaped, &call, data, got, &err);
    }
    if (status != GANTRY_OK)
        kit_fail(k, "%s for n=%lld failed after judge said yes: %s", what, (long long)data->n,
                 kit_error_text(status, &err, words, sizeof words));
    else
        kit_check_results(k, p->model, data, &call, got, inout_largest);
    for (uint32_t o = 0; o < KIT_MAX_OPERANDS; o++)
        kit_array_free(&got[o]);
    kit_call_close(&shaped, &call);
    kit_shaped_destroy(&shaped);
    return status;
}

bool kit_try(kit *k, const kit_model *model, const kit_data *data, double *inout_largest)
{
    char words[2200];
    gantry_error err = GANTRY_ERROR_INIT;
    kit_program program;
    bool ran = false;
    kit_doing(k, "compile of %s", model->row->op);
    gantry_status status = kit_program_compile(&k->subject, model, &program, &err);
    if (status != GANTRY_OK)
        kit_fail(k, "compile failed after judge said yes: %s",
                 kit_error_text(status, &err, words, sizeof words));
    else
        ran = kit_try_size(k, &program, data, inout_largest) == GANTRY_OK;
    kit_doing(k, "program_destroy of %s", model->row->op);
    kit_program_destroy(&program);
    return ran && !kit_failed(k);
}
