/* Running a shaped program: a context holds every operand as an address, renewed only when a buffer moved;
 * a run walks the steps and allocates nothing. */
#include "program.h"

#include <omp.h>

/* One caller's. One thread at a time. */
typedef struct cpu_context {
    const cpu_shaped *shaped;
    gt_allocator *allocator;
    void **addresses;     /* parallel to shaped->places */
    cpu_call *calls;      /* one for each step */
    char *memory;         /* the kernels' own contexts */
    uint32_t initialised; /* steps whose kernel context was made */
    int64_t ***true_dims; /* for each step: NULL or its outputs' true dims, renewed each run */
    cpu_fault fault;      /* of the step that failed last */
    uint64_t bindings;
    bool bound;
} cpu_context;

/* ---- context --------------------------------------------------------------------------------- */

void cpu_context_destroy(void *self, gantry_context *handle)
{
    cpu_context *context = (cpu_context *)handle;
    if (!context)
        return;
    for (uint32_t k = 0; k < context->initialised; k++) {
        const cpu_step *step = &context->shaped->steps.data[k];
        if (step->kernel.context_destroy)
            step->kernel.context_destroy(step->kernel.state, context->memory + step->context_offset);
    }
    for (uint32_t k = 0; context->true_dims && k < context->shaped->steps.count; k++)
        gt_free(context->allocator, context->true_dims[k]);
    gt_free(context->allocator, context->true_dims);
    gt_free(context->allocator, context->addresses);
    gt_free(context->allocator, context->calls);
    if (context->memory)
        cpu_drop_kernels(context->shaped->program, context->shaped->context_bytes);
    cpu_free(self, context->memory);
    gt_free(context->allocator, context);
}

static gantry_status init_step(cpu_context *context, uint32_t index, gantry_error *err)
{
    const cpu_step *step = &context->shaped->steps.data[index];
    cpu_call *call = &context->calls[index];
    void **first = context->addresses + step->first_place;
    call->inputs = (const void *const *)first;
    call->outputs = first + step->input_count;
    call->fault = &context->fault;
    call->context = step->kernel.context_bytes ? context->memory + step->context_offset : NULL;
    if (step->bounded_outputs) {
        context->true_dims[index] = GT_NEW_ARRAY(context->allocator, int64_t *, step->output_count);
        if (!context->true_dims[index])
            return gt_out_of_memory(err, GANTRY_STAGE_RUN);
        call->true_dims = context->true_dims[index];
    }
    if (step->kernel.context_init)
        GT_TRY(step->kernel.context_init(step->kernel.state, call->context, err));
    context->initialised = index + 1;
    return GANTRY_OK;
}

static gantry_status init_context(cpu_provider *provider, cpu_context *context, gantry_error *err)
{
    const cpu_shaped *shaped = context->shaped;
    context->addresses = GT_NEW_ARRAY(context->allocator, void *, shaped->places.count);
    context->calls = GT_NEW_ARRAY(context->allocator, cpu_call, shaped->steps.count);
    context->true_dims = GT_NEW_ARRAY(context->allocator, int64_t **, shaped->steps.count);
    context->memory = cpu_alloc(provider, shaped->context_bytes);
    if (context->memory)
        cpu_hold_kernels(shaped->program, shaped->context_bytes);
    if (!context->addresses || !context->calls || !context->true_dims || !context->memory)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    memset(context->memory, 0, shaped->context_bytes);
    for (uint32_t k = 0; k < shaped->steps.count; k++)
        GT_TRY(init_step(context, k, err));
    return GANTRY_OK;
}

gantry_status cpu_context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                 gantry_error *err)
{
    cpu_provider *provider = self;
    *out_context = NULL;
    cpu_context *context = GT_NEW(&provider->allocator, cpu_context);
    if (!context)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    context->shaped = (const cpu_shaped *)shaped;
    context->allocator = &provider->allocator;
    gantry_status status = init_context(provider, context, err);
    if (status == GANTRY_OK)
        *out_context = (gantry_context *)context;
    else
        cpu_context_destroy(self, (gantry_context *)context);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static char *buffer_address(const gantry_buffer *buffer)
{
    return buffer->handle ? (char *)buffer->handle + buffer->offset_bytes : NULL;
}

/* Where empty tensors lie: NULL would say that the operand was left out. */
static char nowhere[64];

static void *place_address(const cpu_shaped *shaped, const cpu_place *place, const gantry_run_args *args)
{
    if (place->storage == GANTRY_NO_ID)
        return NULL;
    if (place->bytes == 0)
        return nowhere;
    const cpu_storage *storage = &shaped->storages.data[place->storage];
    char *base = NULL;
    switch (storage->base) {
    case CPU_BASE_INPUT:
        base = buffer_address(&args->inputs[storage->index]);
        break;
    case CPU_BASE_OUTPUT:
        base = buffer_address(&args->outputs[storage->index]);
        break;
    case CPU_BASE_WORKSPACE:
        base = buffer_address(&args->workspace);
        base = base ? base + storage->offset_bytes : NULL;
        break;
    case CPU_BASE_CONSTANT:
        base = (char *)(uintptr_t)storage->address;
        break;
    case CPU_BASE_NONE:
        break;
    }
    return base ? base + place->offset_bytes : NULL;
}

static void rebind(cpu_context *context, const gantry_run_args *args)
{
    const cpu_shaped *shaped = context->shaped;
    for (uint32_t k = 0; k < shaped->places.count; k++)
        context->addresses[k] = place_address(shaped, &shaped->places.data[k], args);
    for (uint32_t k = 0; k < shaped->steps.count; k++) {
        const cpu_step *step = &shaped->steps.data[k];
        void *scratch = context->addresses[step->first_place + step->input_count + step->output_count];
        context->calls[k].scratch = scratch ? scratch : nowhere;
    }
    context->bindings = args->bindings;
    context->bound = true;
}

/* The executor's places for true dims may change with every run. */
static void point_true_dims(cpu_context *context, uint32_t index, const gantry_run_args *args)
{
    const cpu_step *step = &context->shaped->steps.data[index];
    for (uint32_t k = 0; k < step->output_count; k++) {
        uint32_t output = step->bounded_outputs[k];
        context->true_dims[index][k] =
            output != GANTRY_NO_ID && args->true_dims ? args->true_dims[output] : NULL;
    }
}

/* "input 'i' holds 1000, -3 to 2 are allowed" */
static void fault_text(const cpu_program *program, const cpu_group *group, const cpu_fault *fault, char *out,
                       size_t room)
{
    uint32_t value = fault->input < group->input_count ? group->inputs[fault->input] : GANTRY_NO_ID;
    snprintf(out, room, ": input '%.200s' holds %lld, %lld to %lld are allowed",
             value == GANTRY_NO_ID ? "" : program->graph->values[value]->name, (long long)fault->value,
             (long long)fault->low, (long long)fault->high);
}

static gantry_status run_failed(const cpu_context *context, const cpu_step *step, gantry_status status,
                                gantry_error *err)
{
    const cpu_program *program = context->shaped->program;
    const cpu_group *group = step->group == GANTRY_NO_ID ? NULL : &program->groups[step->group];
    char why[320] = "";
    if (group && context->fault.found)
        fault_text(program, group, &context->fault, why, sizeof why);
    else if (status == GANTRY_INPUT_SHAPE || status == GANTRY_DATA)
        snprintf(why, sizeof why,
                 ": an input holds a value the operator does not take (an index out of range)");
    return gt_fail(err, status, GANTRY_STAGE_RUN, group ? group->node->name : NULL,
                   "node '%s' (%s) failed in a run%s\n  kernel %s of provider cpu",
                   group ? group->node->name : "-", group ? group->label : "layout conversion", why,
                   step->kernel.name);
}

static gantry_status run_steps(cpu_context *context, const gantry_run_args *args, gantry_error *err)
{
    const cpu_shaped *shaped = context->shaped;
    const gantry_host *host = shaped->program->provider->host;
    int in_force = omp_get_max_threads();
    uint32_t timed = 0;
    for (uint32_t k = 0; k < shaped->steps.count; k++) {
        const cpu_step *step = &shaped->steps.data[k];
        cpu_call *call = &context->calls[k];
        if (gantry_stop_asked(args->stop))
            return gt_fail(err, GANTRY_CANCELLED, GANTRY_STAGE_RUN, NULL, "the run was stopped");
        call->threads = step->kernel.threads < args->threads ? step->kernel.threads : args->threads;
        if (call->threads < 1)
            call->threads = 1;
        call->stop = args->stop;
        if (call->true_dims)
            point_true_dims(context, k, args);
        if (call->threads != in_force)
            omp_set_num_threads(in_force = call->threads);
        bool stamp = args->timing && timed < args->timing_capacity;
        uint64_t begin_ns = stamp ? host->now_ns(host) : 0;
        context->fault.found = false;
        gantry_status status = step->kernel.run(step->kernel.state, call);
        if (status != GANTRY_OK)
            return run_failed(context, step, status, err);
        if (stamp)
            args->timing[timed++] = (gantry_timing_event){k, begin_ns, host->now_ns(host) - begin_ns};
    }
    if (args->out_timing_count)
        *args->out_timing_count = timed;
    return GANTRY_OK;
}

/* A primitive made for T threads forks T even after omp_set_num_threads(1): only the level limit stops it. */
static gantry_status run_on_one_thread(cpu_context *context, const gantry_run_args *args, gantry_error *err)
{
    int levels = omp_get_max_active_levels();
    omp_set_max_active_levels(0);
    gantry_status status = run_steps(context, args, err);
    omp_set_max_active_levels(levels);
    return status;
}

gantry_status cpu_context_run(void *self, gantry_context *handle, const gantry_run_args *args,
                              gantry_error *err)
{
    cpu_context *context = (cpu_context *)handle;
    if (!context->bound || context->bindings != args->bindings)
        rebind(context, args);
    if (args->out_timing_count)
        *args->out_timing_count = 0;
    int before = omp_get_max_threads();
    bool alone = context->shaped->threaded && args->threads <= 1;
    gantry_status status = alone ? run_on_one_thread(context, args, err) : run_steps(context, args, err);
    omp_set_num_threads(before);
    return status;
}
