/* The run API: bindings, symbols read from them, execution. */
#include "run.h"
#include "answer.h"

#include "base/clock.h"

/* ---- creation -------------------------------------------------------------------------------- */

static gantry_status list_symbols(gantry_run *run, gantry_error *err)
{
    const gt_model *model = run->session->model;
    run->symbols = GT_NEW_ARRAY(run->session->allocator, gt_run_symbol, model->exprs.symbols.count + 1);
    if (!run->symbols)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < model->exprs.symbols.count; k++) {
        const gt_symbol *symbol = &model->exprs.symbols.data[k];
        if (symbol->kind != GT_SYMBOL_INPUT_DIM && symbol->kind != GT_SYMBOL_INPUT_ELEMENT)
            continue;
        /* Elements on a device can't be read: what depends on them has no size, and says so when it is bound.
         */
        if (symbol->kind == GT_SYMBOL_INPUT_ELEMENT && run->session->input_domains[symbol->input])
            continue;
        run->symbols[run->symbol_count++] = (gt_run_symbol){
            .symbol = k,
            .input = symbol->input,
            .axis = symbol->axis,
            .element = symbol->kind == GT_SYMBOL_INPUT_ELEMENT,
            .real = symbol->real,
            .dtype = model->root->values.data[model->root->inputs.data[symbol->input]]->dtype};
    }
    return gt_env_reserve(run->session->allocator, &run->env, model->exprs.symbols.count, err);
}

gantry_status gt_run_create_event(const gantry_run *run, uint32_t domain, gantry_event **out_event,
                                  gantry_error *err)
{
    const gt_session_domain *of = &run->session->domains[domain];
    const gantry_domain *table = of->entry->table;
    gt_error_clear(err);
    gantry_status status = table->event_create(table->self, out_event, err);
    status = gt_domain_answer(of->name, "event_create", GANTRY_STAGE_RUN, status, *out_event, err);
    if (status != GANTRY_OK)
        *out_event = NULL;
    return status;
}

static gantry_status open_queue(const gt_session_domain *domain, gantry_queue **out_queue, gantry_error *err)
{
    const gantry_domain *table = domain->entry->table;
    gt_error_clear(err);
    gantry_status status = table->queue_open(table->self, out_queue, err);
    status = gt_domain_answer(domain->name, "queue_open", GANTRY_STAGE_RUN, status, *out_queue, err);
    if (status != GANTRY_OK)
        *out_queue = NULL;
    return status;
}

static gantry_status open_queues(gantry_run *run, gantry_error *err)
{
    gantry_session *session = run->session;
    run->queues = GT_NEW_ARRAY(session->allocator, gantry_queue *, session->domain_count);
    run->copiers = GT_NEW_ARRAY(session->allocator, gantry_queue *, session->domain_count);
    run->waits = GT_NEW_ARRAY(session->allocator, gt_lock_wait, session->provider_count);
    run->forgotten = GT_NEW_ARRAY(session->allocator, gt_forgotten, session->domain_count);
    run->staging = GT_NEW_ARRAY(session->allocator, gt_staging, 2 * session->domain_count);
    if (!run->queues || !run->copiers || !run->waits || !run->staging || !run->forgotten)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t d = 1; d < session->domain_count; d++) {
        GT_TRY(open_queue(&session->domains[d], &run->queues[d], err));
        if (session->domains[d].copy_queue)
            GT_TRY(open_queue(&session->domains[d], &run->copiers[d], err));
    }
    return GANTRY_OK;
}

gantry_status gantry_run_create(gantry_session *session, gantry_run **out_run, gantry_error *err)
{
    if (!out_run)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_create: out_run is NULL");
    *out_run = NULL;
    if (!session)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_create: session is NULL");
    gantry_run *run = GT_NEW(session->allocator, gantry_run);
    if (!run)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    run->session = session;
    atomic_fetch_add(&session->run_count, 1);
    run->input_count = gt_session_graph(session)->inputs.count;
    run->inputs = GT_NEW_ARRAY(session->allocator, gt_run_input, run->input_count + 1);
    run->symbols_dirty = true;
    run->threads = session->options.threads;
    run->stamp_ns = session->options.timing == GT_TIMING_OFF ? 0 : gt_timing_stamp_ns();
    pthread_mutex_lock(&session->lock);
    gantry_status status = run->inputs ? list_symbols(run, err) : gt_out_of_memory(err, GANTRY_STAGE_RUN);
    pthread_mutex_unlock(&session->lock);
    if (status == GANTRY_OK)
        status = open_queues(run, err);
    if (status == GANTRY_OK)
        status = gt_frame_create(run, session->root, &run->root, err);
    if (status != GANTRY_OK) {
        gantry_run_destroy(&run);
        return status;
    }
    *out_run = run;
    return GANTRY_OK;
}

void *gantry_run_native_queue(const gantry_run *run, const char *domain)
{
    for (uint32_t d = 1; run && domain && d < run->session->domain_count; d++) {
        const gantry_domain *table = run->session->domains[d].entry->table;
        if (strcmp(run->session->domains[d].name, domain) == 0 && table->queue_native)
            return table->queue_native(table->self, run->queues[d]);
    }
    return NULL;
}

static void close_queues(gantry_session *session, gantry_queue **queues)
{
    for (uint32_t d = 1; queues && d < session->domain_count; d++)
        if (queues[d])
            session->domains[d].entry->table->queue_close(session->domains[d].entry->table->self, queues[d]);
    gt_free(session->allocator, queues);
}

void gantry_run_destroy(gantry_run **inout_run)
{
    if (!inout_run || !*inout_run)
        return;
    gantry_run *run = *inout_run;
    gantry_session *session = run->session;
    gantry_run_cancel(run);
    gt_worker_destroy(&run->worker, session->allocator);
    gt_frame_destroy(&run->root);
    gt_staging_destroy(run);
    gt_free(session->allocator, run->forgotten);
    close_queues(session, run->copiers);
    close_queues(session, run->queues);
    gt_free(session->allocator, run->waits);
    gt_free(session->allocator, run->inputs);
    gt_free(session->allocator, run->symbols);
    gt_env_free(session->allocator, &run->env);
    gt_vec_free(session->allocator, &run->numeric.rows);
    gt_free(session->allocator, run);
    atomic_fetch_sub(&session->run_count, 1);
    *inout_run = NULL;
}

/* ---- bindings -------------------------------------------------------------------------------- */

static const gt_value *input_value(const gantry_run *run, uint32_t index)
{
    const gt_graph *graph = gt_session_graph(run->session);
    return graph->values.data[graph->inputs.data[index]];
}

static gantry_status check_idle(const gantry_run *run, const char *call, gantry_error *err)
{
    if (!run)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL, "%s: run is NULL", call);
    if (atomic_load(&((gantry_run *)(uintptr_t)run)->executing))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "%s: this run is executing; wait for it, or make a gantry_run for each thread", call);
    return GANTRY_OK;
}

static gantry_status check_tensor(const gantry_tensor *tensor, const char *call, const char *name,
                                  const char *domain, bool reads_dims, gantry_error *err)
{
    if (tensor->struct_bytes < sizeof *tensor)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "%s: struct_bytes of the tensor for %s is %zu; set it to %zu", call, name,
                       tensor->struct_bytes, sizeof *tensor);
    if (tensor->strides)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "%s: the tensor for %s has strides; only dense ones are taken", call, name);
    if (tensor->rank && !tensor->dims && reads_dims)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "%s: the tensor for %s has rank %u and dims NULL", call, name, tensor->rank);
    if (strcmp(tensor->domain ? tensor->domain : "host", domain) != 0)
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, NULL,
                       "%s: the tensor for %s lies in %s, the session expects it in %s (option bind.%s)",
                       call, name, tensor->domain ? tensor->domain : "host", domain, name);
    uint32_t bits = gantry_dtype_bits(tensor->dtype);
    uintptr_t element = bits >= 64 ? 8 : bits / 8, address = (uintptr_t)tensor->buffer.handle;
    if (element && strcmp(domain, "host") == 0 && (address + tensor->buffer.offset_bytes) % element)
        return gt_fail(
            err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
            "%s: the memory for %s starts at %p, no multiple of %zu bytes as %s elements need; copy it", call,
            name, (void *)(address + tensor->buffer.offset_bytes), (size_t)element,
            gantry_dtype_text(tensor->dtype));
    return GANTRY_OK;
}

/* What the file declares for an input: a symbolic extent takes anything, a static one only itself. */
static bool fits_declaration(const gantry_run *run, const gt_value *value, const gantry_tensor *tensor)
{
    if (tensor->dtype != value->dtype || tensor->rank > GANTRY_MAX_RANK ||
        (value->rank >= 0 && tensor->rank != (uint32_t)value->rank))
        return false;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        int64_t extent;
        if (tensor->dims[d] < 0)
            return false;
        if (value->rank >= 0 && value->dims[d] != GT_EXPR_UNKNOWN &&
            gt_expr_is_const(&run->session->model->exprs, value->dims[d], &extent) &&
            extent != tensor->dims[d])
            return false;
    }
    return true;
}

gantry_status gantry_run_bind_input(gantry_run *run, uint32_t index, const gantry_tensor *tensor,
                                    gantry_error *err)
{
    GT_TRY(check_idle(run, "gantry_run_bind_input", err));
    if (index >= run->input_count)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_bind_input: input %u of %u", index, run->input_count);
    gt_run_input *input = &run->inputs[index];
    const gt_value *value = input_value(run, index);
    if (!tensor) {
        run->symbols_dirty |= input->bound;
        input->bound = false;
        return GANTRY_OK;
    }
    GT_TRY(check_tensor(tensor, "gantry_run_bind_input", value->name,
                        run->session->domains[run->session->input_domains[index]].name, true, err));
    if (!fits_declaration(run, value, tensor))
        return gt_run_explain_input(run, index, tensor, err);
    uint64_t count = 1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        if (__builtin_mul_overflow(count, (uint64_t)tensor->dims[d], &count))
            return gt_run_explain_input(run, index, tensor, err);
    size_t needed = gantry_dtype_bytes(tensor->dtype, count);
    if (tensor->size_bytes < needed || (needed && !tensor->buffer.handle))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "input %s needs %zu bytes for its shape; the buffer has %zu", value->name, needed,
                       tensor->buffer.handle ? tensor->size_bytes : 0);
    if (!input->bound || input->rank != tensor->rank ||
        (tensor->rank && memcmp(input->dims, tensor->dims, tensor->rank * sizeof *tensor->dims) != 0))
        run->symbols_dirty = true;
    input->bound = true;
    input->dtype = tensor->dtype;
    input->rank = tensor->rank;
    input->buffer = tensor->buffer;
    input->count = count;
    if (tensor->rank)
        memcpy(input->dims, tensor->dims, tensor->rank * sizeof *tensor->dims);
    gt_frame_set_input(run->root, index, tensor->buffer, 0);
    run->overlap_unchecked = true;
    return GANTRY_OK;
}

gantry_status gantry_run_bind_output(gantry_run *run, uint32_t index, const gantry_tensor *tensor,
                                     gantry_error *err)
{
    GT_TRY(check_idle(run, "gantry_run_bind_output", err));
    if (index >= run->root->output_count)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_bind_output: output %u of %u", index, run->root->output_count);
    if (!tensor) {
        gt_frame_own_output(run->root, index);
        return GANTRY_OK;
    }
    const gt_graph *graph = gt_session_graph(run->session);
    const gt_value *value = graph->values.data[graph->outputs.data[index]];
    GT_TRY(check_tensor(tensor, "gantry_run_bind_output", value->name,
                        run->session->domains[run->session->output_domains[index]].name, false, err));
    if (tensor->dtype != value->dtype)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "output %s is %s; the buffer bound for it is %s", value->name,
                       gantry_dtype_text(value->dtype), gantry_dtype_text(tensor->dtype));
    if (tensor->size_bytes && !tensor->buffer.handle)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "output %s: a buffer of %zu bytes at NULL; bind no tensor for memory of the run's own",
                       value->name, tensor->size_bytes);
    gt_frame_set_output(run->root, index, tensor->buffer, tensor->size_bytes, 0);
    run->overlap_unchecked = true;
    return GANTRY_OK;
}

typedef struct extent {
    gantry_buffer buffer;
    size_t bytes;
    uint32_t domain;
} extent;

static extent extent_of(gantry_buffer buffer, size_t bytes, uint32_t domain)
{
    return (extent){buffer, buffer.handle ? bytes : 0, domain};
}

/* On a device two handles are two pieces of memory, and no addresses. */
static bool overlap(extent a, extent b)
{
    if (a.domain != b.domain || !a.bytes || !b.bytes || (a.domain && a.buffer.handle != b.buffer.handle))
        return false;
    uintptr_t at_a = (a.domain ? 0 : (uintptr_t)a.buffer.handle) + a.buffer.offset_bytes;
    uintptr_t at_b = (b.domain ? 0 : (uintptr_t)b.buffer.handle) + b.buffer.offset_bytes;
    return at_a < at_b + b.bytes && at_b < at_a + a.bytes;
}

static gantry_status overlap_error(const gantry_run *run, uint32_t output, const char *kind, const char *name,
                                   gantry_error *err)
{
    const gt_graph *graph = gt_session_graph(run->session);
    return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                   "the buffer bound for output %s overlaps that of %s %s; give it memory of its own",
                   graph->values.data[graph->outputs.data[output]]->name, kind, name);
}

/* A node may read its inputs after another one wrote an output, so shared memory would give wrong numbers. */
static gantry_status check_overlap(gantry_run *run, gantry_error *err)
{
    const gt_graph *graph = gt_session_graph(run->session);
    const uint32_t *in_domains = run->session->input_domains, *out_domains = run->session->output_domains;
    for (uint32_t k = 0; k < run->root->output_count; k++) {
        const gt_frame_output *output = &run->root->outputs[k];
        if (!output->given)
            continue;
        extent written = extent_of(output->buffer, output->capacity, out_domains[k]);
        for (uint32_t m = 0; m < run->input_count; m++) {
            const gt_run_input *input = &run->inputs[m];
            if (input->bound &&
                overlap(written, extent_of(input->buffer, gantry_dtype_bytes(input->dtype, input->count),
                                           in_domains[m])))
                return overlap_error(run, k, "input", input_value(run, m)->name, err);
        }
        for (uint32_t m = 0; m < k; m++) {
            const gt_frame_output *other = &run->root->outputs[m];
            if (other->given && overlap(written, extent_of(other->buffer, other->capacity, out_domains[m])))
                return overlap_error(run, k, "output", graph->values.data[graph->outputs.data[m]]->name, err);
        }
    }
    run->overlap_unchecked = false;
    return GANTRY_OK;
}

/* ---- symbols --------------------------------------------------------------------------------- */

static gantry_status check_bound(gantry_run *run, gantry_error *err)
{
    for (uint32_t k = 0; k < run->input_count; k++) {
        gt_run_input *input = &run->inputs[k];
        const gt_value *value = input_value(run, k);
        if (input->bound)
            continue;
        if (value->constant == GT_NONE)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL, "input %s is not bound",
                           value->name);
        const gt_constant *constant = &run->session->model->constants.data[value->constant];
        const void *data;
        GT_TRY(gt_constant_data(run->session->model, value->constant, &data, err));
        input->rank = constant->rank;
        input->count = 1;
        for (uint32_t d = 0; d < constant->rank; d++)
            input->count *= (uint64_t)(input->dims[d] = constant->dims[d]);
        input->buffer = (gantry_buffer){(void *)(uintptr_t)data, 0};
        gt_frame_set_input(run->root, k, input->buffer, 0);
    }
    return GANTRY_OK;
}

gantry_status gt_run_read_symbols(gantry_run *run, gantry_error *err)
{
    bool dims = run->symbols_dirty;
    if (dims)
        GT_TRY(check_bound(run, err));
    for (uint32_t k = 0; k < run->symbol_count; k++) {
        const gt_run_symbol *symbol = &run->symbols[k];
        const gt_run_input *input = &run->inputs[symbol->input];
        if (symbol->element) {
            const void *data = (const char *)input->buffer.handle + input->buffer.offset_bytes;
            run->env.known[symbol->symbol] = symbol->axis < input->count;
            if (symbol->axis < input->count)
                run->env.values[symbol->symbol] = gt_scalar_read(symbol->dtype, data, symbol->axis);
        } else if (dims) {
            run->env.known[symbol->symbol] = symbol->axis < input->rank;
            run->env.values[symbol->symbol].i = symbol->axis < input->rank ? input->dims[symbol->axis] : 0;
        }
    }
    run->symbols_dirty = false;
    return GANTRY_OK;
}

/* One name, two extents: legal ONNX runtimes differ here, so it is an error only when the user asked for
 * strictness. */
static gantry_status check_names(gantry_run *run, gantry_error *err)
{
    const gt_exprs *exprs = &run->session->model->exprs;
    for (uint32_t k = 0; k < run->symbol_count; k++)
        for (uint32_t m = 0; m < k; m++) {
            const gt_run_symbol *a = &run->symbols[k], *b = &run->symbols[m];
            if (a->element || b->element ||
                strcmp(exprs->symbols.data[a->symbol].name, exprs->symbols.data[b->symbol].name) != 0 ||
                run->env.values[a->symbol].i == run->env.values[b->symbol].i)
                continue;
            return gt_run_explain_names(run, b, a, err);
        }
    return GANTRY_OK;
}

/* ---- executing ------------------------------------------------------------------------------- */

gantry_status gt_run_check_stop(gantry_run *run, gantry_error *err)
{
    if (atomic_load(&run->stop_reason) == GANTRY_DEADLINE)
        return gt_fail(err, GANTRY_DEADLINE, GANTRY_STAGE_RUN, NULL,
                       "the run was stopped after deadline_ms = %llu",
                       (unsigned long long)run->session->options.deadline_ms);
    return gt_fail(err, GANTRY_CANCELLED, GANTRY_STAGE_RUN, NULL, "the run was cancelled");
}

gantry_status gt_run_claim(gantry_run *run, gantry_error *err)
{
    bool idle = false;
    if (!atomic_compare_exchange_strong(&run->executing, &idle, true))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "this run is executing already; wait for it, or make a gantry_run for each thread");
    __atomic_store_n(&run->stop, 0, __ATOMIC_RELAXED);
    atomic_store(&run->stop_reason, GANTRY_CANCELLED);
    return GANTRY_OK;
}

void gt_run_unclaim(gantry_run *run)
{
    atomic_store(&run->executing, false);
}

/* Runs from the third on that made no plan are what a program sees in the long run. */
static void note_time(gantry_run *run, bool made_plan)
{
    gt_run_times *times = &run->times;
    uint64_t ns = run->last_end_ns - run->last_begin_ns;
    times->finished++;
    if (times->finished == 1)
        times->first_ns = (double)ns;
    else if (times->finished == 2)
        times->second_ns = (double)ns;
    else if (!made_plan)
        times->steady_ns[times->steady_count++ % GT_RUN_TIMES] = ns;
}

static void forget_waits(gantry_run *run)
{
    for (uint32_t k = 0; k < run->session->provider_count; k++) {
        run->waits[k].count = 0;
        memset(run->waits[k].ns, 0, sizeof run->waits[k].ns);
    }
}

/* A device that is gone is why, whatever the call that noticed it says. */
static gantry_status explain_loss(const gantry_run *run, gantry_status status, gantry_error *err)
{
    for (uint32_t d = 1; d < run->session->domain_count; d++) {
        const gt_session_domain *domain = &run->session->domains[d];
        const gantry_domain *table = domain->entry->table;
        if (!table->lost || !table->lost(table->self))
            continue;
        if (!err || err->struct_bytes < sizeof *err)
            return GANTRY_PROVIDER;
        char words[600];
        snprintf(words, sizeof words, "%.599s", err->message);
        err->code = GANTRY_PROVIDER;
        snprintf(err->message, sizeof err->message, "the device %s is lost; " GT_LOST_REMEDY " (%s)",
                 domain->name, words);
        return GANTRY_PROVIDER;
    }
    return status;
}

static gantry_status execute(gantry_run *run, gantry_error *err)
{
    gantry_session *session = run->session;
    bool fresh = run->symbols_dirty;
    gt_error_clear(err);
    run->known_outputs = run->executed = false;
    if (run->overlap_unchecked)
        GT_TRY(check_overlap(run, err));
    GT_TRY(gt_run_read_symbols(run, err));
    if (fresh && session->options.strict)
        GT_TRY(check_names(run, err));
    if (session->options.deadline_ms)
        GT_TRY(gt_worker_arm(run, session->options.deadline_ms, err));
    run->number++;
    forget_waits(run);
    run->numeric.rows.count = 0;
    run->numeric.checked = run->numeric.unchecked = run->numeric.wrong = 0;
    /* All threads for a run that is alone, one for each when several run: two teams on the same cores slow
     * each other many times over. */
    run->threads = atomic_fetch_add(&session->executing_count, 1) == 0 ? session->options.threads : 1;
    uint64_t plans_made = run->plans.made;
    run->stamps = 0;
    run->last_begin_ns = gt_now_ns();
    gantry_status status = gt_frame_execute(run->root, err);
    run->last_end_ns = gt_now_ns();
    atomic_fetch_sub(&session->executing_count, 1);
    if (session->options.deadline_ms)
        gt_worker_disarm(run);
    if (status == GANTRY_OK)
        note_time(run, run->plans.made != plans_made);
    run->known_outputs = run->executed = status == GANTRY_OK;
    return status == GANTRY_OK ? GANTRY_OK : explain_loss(run, status, err);
}

gantry_status gt_run_execute_claimed(gantry_run *run, gantry_error *err)
{
    gantry_status status = execute(run, err);
    gt_run_unclaim(run);
    return status;
}

gantry_status gantry_run_execute(gantry_run *run, gantry_error *err)
{
    if (!run)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_execute: run is NULL");
    GT_TRY(gt_run_claim(run, err));
    return gt_run_execute_claimed(run, err);
}

gantry_status gantry_run_prepare(gantry_run *run, gantry_error *err)
{
    if (!run)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_prepare: run is NULL");
    GT_TRY(gt_run_claim(run, err));
    gantry_status status = gt_run_read_symbols(run, err);
    if (status == GANTRY_OK && run->session->options.strict)
        status = check_names(run, err);
    if (status == GANTRY_OK)
        status = gt_frame_prepare(run->root, err);
    run->executed = false;
    run->known_outputs = status == GANTRY_OK;
    gt_run_unclaim(run);
    return status;
}

void gantry_run_cancel(gantry_run *run)
{
    if (run && atomic_load(&run->executing))
        __atomic_store_n(&run->stop, 1, __ATOMIC_RELAXED);
}

gantry_status gantry_run_output(gantry_run *run, uint32_t index, gantry_tensor *out_tensor, gantry_error *err)
{
    GT_TRY(check_idle(run, "gantry_run_output", err));
    if (index >= run->root->output_count || !out_tensor || out_tensor->struct_bytes < sizeof *out_tensor)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_output: output %u of %u, or out_tensor without its struct_bytes", index,
                       run->root->output_count);
    if (!run->known_outputs)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "gantry_run_output: there is no output before execute or prepare has succeeded");
    const gt_frame_output *output = &run->root->outputs[index];
    const gt_graph *graph = gt_session_graph(run->session);
    size_t struct_bytes = out_tensor->struct_bytes;
    *out_tensor = (gantry_tensor){.struct_bytes = struct_bytes,
                                  .dtype = graph->values.data[graph->outputs.data[index]]->dtype,
                                  .rank = output->rank,
                                  .dims = output->dims,
                                  .domain = run->session->domains[run->session->output_domains[index]].name};
    if (run->executed) {
        out_tensor->buffer = output->buffer;
        out_tensor->size_bytes = output->bytes;
    }
    return GANTRY_OK;
}
