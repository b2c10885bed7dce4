/* Making a shaped program: for each group the kernel of its row at these shapes, with conversions of layout
 * where its operands need them; then the places of all operands are planned.
 *
 * A value may lie in two places at once, one plain and one in its private layout; the second is made when
 * somebody asks. */
#include "dnnl_kernel.h"
#include "program.h"
#include "program_layout.h"
#include "program_states.h"

#define MAX_TENSOR_BYTES                                                                                     \
    ((uint64_t)1 << 46) /* beyond what any machine addresses: the product of dims is wrong */

typedef struct shaper {
    cpu_program *program;
    const gantry_reshape_args *args;
    cpu_shaped *shaped;
    gantry_shaped_info *info;
    gantry_error *err;
    cpu_places *places; /* for each value of the graph */
    uint8_t *produced;  /* for each value: some step of this program writes it */
    gt_arena scratch;   /* what only the making needs */
    cpu_states states;
} shaper;

/* ---- values ---------------------------------------------------------------------------------- */

static const gantry_value_view *value_of(const shaper *s, uint32_t value)
{
    return s->program->graph->values[value];
}

/* node: whose operand the value is; NULL: an input or output of the partition. */
static gantry_status count_elements(const shaper *s, const gantry_node_view *node, uint32_t value,
                                    cpu_tensor *tensor)
{
    uint64_t count = 1;
    bool fits = true, empty = false;
    for (uint32_t k = 0; k < tensor->rank; k++) {
        fits = fits && tensor->dims[k] >= 0;
        empty = empty || tensor->dims[k] == 0;
    }
    for (uint32_t k = 0; k < tensor->rank && fits && !empty; k++)
        fits = !__builtin_mul_overflow(count, (uint64_t)tensor->dims[k], &count) &&
               count <= MAX_TENSOR_BYTES / 16;
    if (!fits)
        return gt_fail(s->err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, node ? node->name : NULL,
                       "%s (node '%s'): the shape of '%s' asks for more than 2^46 bytes",
                       node ? node->op : "Partition", node ? node->name : "-", value_of(s, value)->name);
    tensor->count = empty ? 0 : (int64_t)count;
    return GANTRY_OK;
}

/* The operand for a value at this shape, without its data. */
static gantry_status tensor_of(const shaper *s, const gantry_node_view *node, uint32_t value,
                               cpu_tensor *out_tensor)
{
    *out_tensor = (cpu_tensor){.constant_id = GANTRY_NO_ID};
    if (value == GANTRY_NO_ID)
        return GANTRY_OK;
    const gantry_value_view *view = value_of(s, value);
    const gantry_shape *shape = &s->args->shapes[value];
    if (shape->rank > GANTRY_MAX_RANK)
        return gt_fail(s->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, NULL,
                       "'%s' has rank %u, the limit is %u", view->name, shape->rank, GANTRY_MAX_RANK);
    out_tensor->present = true;
    out_tensor->dtype = cpu_program_dtype(s->program, value);
    out_tensor->rank = shape->rank;
    out_tensor->bounded = (view->flags & GANTRY_VALUE_BOUNDED) != 0;
    for (uint32_t k = 0; k < shape->rank; k++)
        out_tensor->dims[k] = shape->dims[k];
    bool derived = s->program->derived[value] != NULL;
    out_tensor->constant_id = derived ? CPU_DERIVED_ID | value : view->constant_id;
    out_tensor->constant = derived || view->constant_id != GANTRY_NO_ID;
    out_tensor->kept = out_tensor->constant && s->program->kept[value];
    return count_elements(s, node, value, out_tensor);
}

/* ---- constants ------------------------------------------------------------------------------- */

/* The bytes of a constant for the duration of a make: the copy when there is one, else mapped. */
static gantry_status map_constant(const shaper *s, uint32_t value, cpu_tensor *tensor, bool *out_mapped)
{
    *out_mapped = false;
    const void *owned = s->program->owned[value];
    if (owned || tensor->count == 0) {
        tensor->data = owned;
        return GANTRY_OK;
    }
    const gantry_host *host = s->program->provider->host;
    size_t bytes = 0;
    GT_TRY(host->constant_map(host, s->args->constants, tensor->constant_id, &tensor->data, &bytes, s->err));
    *out_mapped = true;
    if (bytes >= cpu_tensor_bytes(tensor))
        return GANTRY_OK;
    host->constant_unmap(host, s->args->constants, tensor->constant_id);
    *out_mapped = false;
    return gt_fail(s->err, GANTRY_DATA, GANTRY_STAGE_COMPILE, NULL,
                   "constant '%s' has %zu bytes, its shape needs %zu", value_of(s, value)->name, bytes,
                   cpu_tensor_bytes(tensor));
}

/* Copies a mapped constant, so that runs and later makes find it without the model file. */
static gantry_status own_constant(const shaper *s, uint32_t value, cpu_tensor *tensor)
{
    cpu_program *program = s->program;
    if (program->owned[value] || tensor->count == 0)
        return GANTRY_OK;
    if (cpu_program_copy(program, s->args->constants, tensor, &program->owned[value]) != GANTRY_OK)
        return gt_out_of_memory(s->err, GANTRY_STAGE_COMPILE);
    tensor->data = program->owned[value];
    return GANTRY_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static gantry_status add_storage(shaper *s, cpu_storage storage, uint32_t *out_storage)
{
    cpu_shaped *shaped = s->shaped;
    *out_storage = shaped->storages.count;
    storage.merged_into = GANTRY_NO_ID;
    storage.first = storage.last = shaped->steps.count;
    if (!gt_vec_push(shaped->arena.allocator, &shaped->storages, storage))
        return gt_out_of_memory(s->err, GANTRY_STAGE_RUN);
    return GANTRY_OK;
}

static gantry_status add_workspace(shaper *s, size_t bytes, cpu_place *out_place)
{
    *out_place = (cpu_place){GANTRY_NO_ID, 0, bytes};
    return add_storage(s, (cpu_storage){.base = CPU_BASE_WORKSPACE, .bytes = bytes}, &out_place->storage);
}

static const char *layout_names[CPU_LAYOUT_COUNT] = {"plain", "nhwc", "nChw16c"};

static void record_step(const shaper *s, uint32_t index)
{
    const cpu_step *step = &s->shaped->steps.data[index];
    const cpu_group *group = step->group == GANTRY_NO_ID ? NULL : &s->program->groups[step->group];
    double bytes = 0;
    for (uint32_t k = 0; k < step->input_count + step->output_count; k++)
        bytes += (double)s->shaped->places.data[step->first_place + k].bytes;
    gantry_kernel_record record = {.struct_bytes = sizeof record,
                                   .index = index,
                                   .op = group                        ? group->label
                                         : step->kernel.context_bytes ? "Reorder"
                                                                      : "Copy",
                                   .name = step->kernel.name,
                                   .isa = step->kernel.isa,
                                   .layout = layout_names[step->layout],
                                   .node_count = group ? group->node_count : 0,
                                   .node_ids = group ? group->node_ids : NULL,
                                   .precision_in = step->precision_in,
                                   .precision_out = step->precision_out,
                                   .accumulate = step->kernel.accumulate,
                                   .bytes = bytes,
                                   .flops = step->kernel.flops};
    const gantry_host *host = s->program->provider->host;
    host->record_kernel(s->args->recorder, &record);
}

/* Says what the step just added works on. */
static void describe_step(shaper *s, const cpu_tensor *input, const cpu_tensor *output)
{
    cpu_step *step = &s->shaped->steps.data[s->shaped->steps.count - 1];
    step->precision_in = input ? input->dtype : GANTRY_UNDEFINED;
    step->precision_out = output ? output->dtype : GANTRY_UNDEFINED;
    step->layout = output ? output->layout : CPU_PLAIN;
}

/* Appends a kernel call. Takes over the kernel, also on failure. */
static gantry_status add_step(shaper *s, const cpu_kernel *kernel, uint32_t group, const cpu_place *inputs,
                              uint32_t input_count, const cpu_place *outputs, uint32_t output_count)
{
    cpu_shaped *shaped = s->shaped;
    gt_allocator *allocator = shaped->arena.allocator;
    cpu_step step = {.kernel = *kernel,
                     .first_place = shaped->places.count,
                     .input_count = input_count,
                     .output_count = output_count,
                     .context_offset = shaped->context_bytes,
                     .group = group};
    cpu_place scratch = {GANTRY_NO_ID, 0, 0};
    uint32_t place_count = input_count + output_count + 1;
    gantry_status status =
        kernel->scratch_bytes ? add_workspace(s, kernel->scratch_bytes, &scratch) : GANTRY_OK;
    if (status != GANTRY_OK || !gt_vec_reserve(allocator, &shaped->steps, shaped->steps.count + 1) ||
        !gt_vec_reserve(allocator, &shaped->places, shaped->places.count + place_count)) {
        if (kernel->destroy)
            kernel->destroy((void *)kernel->state);
        return gt_out_of_memory(s->err, GANTRY_STAGE_RUN);
    }
    for (uint32_t k = 0; k < input_count; k++)
        shaped->places.data[shaped->places.count++] = inputs[k];
    for (uint32_t k = 0; k < output_count; k++)
        shaped->places.data[shaped->places.count++] = outputs[k];
    shaped->places.data[shaped->places.count++] = scratch;
    shaped->steps.data[shaped->steps.count++] = step;
    shaped->context_bytes += (kernel->context_bytes + 63) & ~(size_t)63;
    shaped->threaded = shaped->threaded || kernel->threads > 1;
    return GANTRY_OK;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* A value that the host computed for this shape and that nobody hands to a run: its elements are kept in the
 * shaped program. */
static gantry_status place_host_value(shaper *s, const cpu_build *build, uint32_t value,
                                      const cpu_tensor *tensor)
{
    const void *data = s->args->host_values ? s->args->host_values[value] : NULL;
    cpu_place *place = &s->places[value].at[CPU_PLAIN];
    if (!data && tensor->count)
        return gt_fail(s->err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, build->node->name,
                       "'%s' is read by '%s' before it is computed", value_of(s, value)->name,
                       build->node->name);
    *place = (cpu_place){GANTRY_NO_ID, 0, cpu_tensor_bytes(tensor)};
    const void *copy = gt_arena_copy(&s->shaped->arena, data, place->bytes);
    if (!copy)
        return gt_out_of_memory(s->err, GANTRY_STAGE_RUN);
    s->places[value].known[CPU_PLAIN] = true;
    return add_storage(s, (cpu_storage){.base = CPU_BASE_CONSTANT, .address = copy, .bytes = place->bytes},
                       &place->storage);
}

/* The place of a value in that layout; converted by a step of its own when it lies in the other only. */
static gantry_status place_in(shaper *s, cpu_build *build, uint32_t value, const cpu_tensor *tensor,
                              cpu_layout layout, cpu_place *out_place)
{
    cpu_places *places = &s->places[value];
    cpu_layout other = layout == CPU_PLAIN ? cpu_private_layout(tensor) : CPU_PLAIN;
    if (!places->known[CPU_PLAIN] && !places->known[other] && !places->known[layout])
        GT_TRY(place_host_value(s, build, value, tensor));
    if (places->known[layout]) {
        *out_place = places->at[layout];
        return GANTRY_OK;
    }
    if (cpu_layouts_agree(build->provider, tensor)) {
        *out_place = places->at[layout] = places->at[other];
        places->known[layout] = true;
        return GANTRY_OK;
    }
    cpu_kernel kernel = {0};
    cpu_place place;
    GT_TRY(cpu_dnnl_reorder(build, tensor, other, layout, &kernel));
    gantry_status status = add_workspace(s, cpu_layout_bytes(build->provider, tensor, layout), &place);
    if (status != GANTRY_OK) {
        kernel.destroy((void *)kernel.state);
        return status;
    }
    GT_TRY(add_step(s, &kernel, GANTRY_NO_ID, &places->at[other], 1, &place, 1));
    cpu_tensor shown = *tensor;
    shown.layout = layout;
    describe_step(s, tensor, &shown);
    places->at[layout] = *out_place = place;
    places->known[layout] = true;
    return GANTRY_OK;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* The place of operand k for a run, after the kernel is made. */
static gantry_status place_input(shaper *s, cpu_build *build, const cpu_group *group,
                                 const cpu_kernel *kernel, uint32_t k, cpu_tensor *tensor,
                                 cpu_place *out_place)
{
    *out_place = (cpu_place){GANTRY_NO_ID, 0, 0};
    uint32_t value = group->inputs[k];
    if (!tensor->present)
        return GANTRY_OK;
    if (!tensor->constant)
        return place_in(s, build, value, tensor, tensor->layout, out_place);
    out_place->bytes = cpu_tensor_bytes(tensor);
    if ((group->row->flags & CPU_ROW_PACKS) && k < 32 && (kernel->packed_inputs >> k & 1))
        return GANTRY_OK;
    GT_TRY(own_constant(s, value, tensor));
    cpu_places *places = &s->places[value];
    if (!places->known[CPU_PLAIN]) {
        places->known[CPU_PLAIN] = true;
        places->at[CPU_PLAIN] = *out_place;
        GT_TRY(add_storage(s,
                           (cpu_storage){.base = CPU_BASE_CONSTANT,
                                         .address = s->program->owned[value],
                                         .bytes = out_place->bytes},
                           &places->at[CPU_PLAIN].storage));
    }
    *out_place = places->at[CPU_PLAIN];
    return GANTRY_OK;
}

/* Where outputs go: new workspace, or inside the input that the kernel says they are. */
static gantry_status place_output(shaper *s, const cpu_build *build, const cpu_group *group,
                                  const cpu_kernel *kernel, uint32_t k, const cpu_place *inputs,
                                  cpu_place *out_place)
{
    *out_place = (cpu_place){GANTRY_NO_ID, 0, 0};
    uint32_t value = group->outputs[k];
    const cpu_tensor *tensor = &build->outputs[k];
    if (!tensor->present)
        return GANTRY_OK;
    size_t bytes = cpu_layout_bytes(build->provider, tensor, tensor->layout);
    if (k == 0 && kernel->view_of_input >= 0) {
        *out_place = inputs[kernel->view_of_input];
        out_place->offset_bytes += kernel->view_offset_bytes;
        out_place->bytes = bytes;
    } else {
        GT_TRY(add_workspace(s, bytes, out_place));
    }
    s->places[value].known[tensor->layout] = true;
    s->places[value].at[tensor->layout] = *out_place;
    s->produced[value] = 1;
    return GANTRY_OK;
}

/* For a step with bounded outputs: which partition output's true dims each of them writes. */
static gantry_status note_bounded(shaper *s, const cpu_group *group, cpu_step *step)
{
    const gantry_graph_view *graph = s->program->graph;
    bool any = false;
    for (uint32_t k = 0; k < group->output_count; k++)
        any = any || (group->outputs[k] != GANTRY_NO_ID &&
                      (value_of(s, group->outputs[k])->flags & GANTRY_VALUE_BOUNDED));
    if (!any)
        return GANTRY_OK;
    uint32_t *map = GT_ARENA_ARRAY(&s->shaped->arena, uint32_t, group->output_count);
    if (!map)
        return gt_out_of_memory(s->err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < group->output_count; k++) {
        uint32_t value = group->outputs[k];
        map[k] = GANTRY_NO_ID;
        if (value == GANTRY_NO_ID || !(value_of(s, value)->flags & GANTRY_VALUE_BOUNDED))
            continue;
        for (uint32_t j = 0; j < graph->output_count && map[k] == GANTRY_NO_ID; j++)
            if (graph->outputs[j] == value)
                map[k] = j;
    }
    step->bounded_outputs = map;
    return GANTRY_OK;
}

/* Turns "this kernel does not exist at these shapes" into the refusal that reshape returns. */
static gantry_status refuse_group(shaper *s, const cpu_group *group)
{
    gantry_shaped_info *info = s->info;
    info->refused_count = group->node_count < 16 ? group->node_count : 16;
    for (uint32_t k = 0; k < info->refused_count; k++)
        info->refused_nodes[k] = group->node_ids[k];
    info->refusal = (gantry_refusal){.code = GANTRY_REFUSE_op_attr};
    snprintf(info->refusal.operand, sizeof info->refusal.operand, "%s", group->node->op);
    if (s->err)
        snprintf(info->refusal.detail, sizeof info->refusal.detail, "%.190s", s->err->message);
    return GANTRY_UNSUPPORTED;
}

static gantry_status check_unbounded(const shaper *s, const cpu_group *group)
{
    for (uint32_t k = 0; k < group->input_count; k++) {
        uint32_t value = group->inputs[k];
        if (value != GANTRY_NO_ID && s->produced[value] && (value_of(s, value)->flags & GANTRY_VALUE_BOUNDED))
            return gt_fail(
                s->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, group->node->name,
                "'%s' has a size known only after the run and is read in the same partition by '%s'",
                value_of(s, value)->name, group->node->name);
    }
    return GANTRY_OK;
}

static gantry_status describe_operands(shaper *s, cpu_build *build, const cpu_group *group)
{
    for (uint32_t k = 0; k < group->input_count; k++) {
        uint32_t value = group->inputs[k];
        GT_TRY(tensor_of(s, group->node, value, &build->inputs[k]));
        if (value != GANTRY_NO_ID && !build->inputs[k].constant)
            build->inputs[k].data = s->args->host_values ? s->args->host_values[value] : NULL;
    }
    for (uint32_t k = 0; k < group->output_count; k++)
        GT_TRY(tensor_of(s, group->node, group->outputs[k], &build->outputs[k]));
    return GANTRY_OK;
}

/* Fusion joined a residual because its shape is the output's; the run would write past it otherwise. */
static gantry_status check_residuals(const shaper *s, const cpu_build *build)
{
    for (uint32_t k = 0; k < build->post_count; k++) {
        const cpu_post *post = &build->posts[k];
        if (post->kind == CPU_POST_RESIDUAL && build->inputs[post->input].count != build->outputs[0].count)
            return gt_fail(s->err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, build->node->name,
                           "a fused addend of %s has %lld elements, the output %lld", build->node->op,
                           (long long)build->inputs[post->input].count, (long long)build->outputs[0].count);
    }
    return GANTRY_OK;
}

/* Making a kernel may take memory in proportion to what it will write: what memory_limit forbids anyway is
 * not begun. What is no larger than an input may be a view of it. */
static gantry_status check_memory(const shaper *s, const cpu_build *build, const cpu_group *group)
{
    size_t most = s->program->memory_limit ? s->program->memory_limit : SIZE_MAX;
    for (uint32_t k = 0; k < build->input_count; k++)
        if (build->inputs[k].present && cpu_tensor_bytes(&build->inputs[k]) > most)
            most = cpu_tensor_bytes(&build->inputs[k]);
    for (uint32_t k = 0; k < build->output_count; k++)
        if (build->outputs[k].present && cpu_tensor_bytes(&build->outputs[k]) > most)
            return gt_fail(s->err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, build->node->name,
                           "%s (node '%s'): '%s' takes %zu bytes; memory_limit is %llu", build->node->op,
                           build->node->name, value_of(s, group->outputs[k])->name,
                           cpu_tensor_bytes(&build->outputs[k]),
                           (unsigned long long)s->program->memory_limit);
    return GANTRY_OK;
}

/* An output of a size that depends on data has its true size to say, even when it can hold nothing. */
static bool nothing_to_compute(const cpu_build *build)
{
    for (uint32_t k = 0; k < build->output_count; k++)
        if (build->outputs[k].present && (build->outputs[k].count > 0 || build->outputs[k].bounded))
            return false;
    return true;
}

/* Float32 constants above this are weights: kernels and oneDNN pack them from any address, a copy would be
 * too large. */
#define ALIGNED_FLOAT_BYTES 65536u

/* A copy, until the make is over, of a constant that lies at an address its elements must not have. */
static gantry_status align_constant(const cpu_build *build, cpu_tensor *tensor, void **out_copy)
{
    uint32_t bits = cpu_dtype_bits(tensor->dtype);
    size_t element = bits < 8 ? 1 : bits > 64 ? 8 : bits / 8, bytes = cpu_tensor_bytes(tensor);
    if ((tensor->dtype == GANTRY_FLOAT32 && bytes > ALIGNED_FLOAT_BYTES) ||
        (uintptr_t)tensor->data % element == 0)
        return GANTRY_OK;
    *out_copy = cpu_alloc(build->provider, bytes);
    if (!*out_copy)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    memcpy(*out_copy, tensor->data, bytes);
    tensor->data = *out_copy;
    return GANTRY_OK;
}

/* Makes the kernel with the constants mapped, and gives its inputs their places before they are unmapped. */
static gantry_status make_kernel(shaper *s, cpu_build *build, const cpu_group *group, cpu_kernel *kernel,
                                 cpu_place *inputs)
{
    bool *mapped = GT_ARENA_ARRAY(&s->scratch, bool, build->input_count);
    void **copies = GT_ARENA_ARRAY(&s->scratch, void *, build->input_count);
    cpu_state_begin begin;
    if (!mapped || !copies || !cpu_states_begin(&s->states, &begin))
        return gt_out_of_memory(s->err, GANTRY_STAGE_RUN);
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; k < build->input_count && status == GANTRY_OK; k++) {
        cpu_tensor *tensor = &build->inputs[k];
        if (tensor->constant)
            status = map_constant(s, group->inputs[k], tensor, &mapped[k]);
        if (status == GANTRY_OK && mapped[k])
            status = group->row->flags & CPU_ROW_PACKS ? align_constant(build, tensor, &copies[k])
                                                       : own_constant(s, group->inputs[k], tensor);
    }
    if (status == GANTRY_OK)
        status = cpu_layout_make(s->places, build, group, kernel);
    if (status == GANTRY_OK)
        cpu_states_share(&s->states, &begin, kernel);
    for (uint32_t k = 0; k < build->input_count && status == GANTRY_OK; k++)
        status = place_input(s, build, group, kernel, k, &build->inputs[k], &inputs[k]);
    const gantry_host *host = build->host;
    for (uint32_t k = 0; k < build->input_count; k++) {
        cpu_free(build->provider, copies[k]);
        if (mapped[k])
            host->constant_unmap(host, s->args->constants, build->inputs[k].constant_id);
    }
    return status;
}

static gantry_status shape_group(shaper *s, uint32_t index)
{
    const cpu_group *group = &s->program->groups[index];
    gt_arena *arena = &s->scratch;
    cpu_build build = {.provider = s->program->provider,
                       .host = s->program->provider->host,
                       .arena = &s->shaped->arena,
                       .scratch = arena,
                       .graph = s->program->graph,
                       .node = group->node,
                       .input_count = group->input_count,
                       .output_count = group->output_count,
                       .inputs = GT_ARENA_ARRAY(arena, cpu_tensor, group->input_count),
                       .outputs = GT_ARENA_ARRAY(arena, cpu_tensor, group->output_count),
                       .post_count = group->post_count,
                       .posts = group->posts,
                       .b_transposed = group->b_transposed,
                       .table = group->table,
                       .rows = group->rows,
                       .threads = s->program->threads,
                       .exact = s->program->exact,
                       .err = s->err,
                       .program = s->program,
                       .constants = s->args->constants};
    cpu_place *inputs = GT_ARENA_ARRAY(arena, cpu_place, group->input_count);
    cpu_place *outputs = GT_ARENA_ARRAY(arena, cpu_place, group->output_count);
    if (!build.inputs || !build.outputs || !inputs || !outputs)
        return gt_out_of_memory(s->err, GANTRY_STAGE_RUN);
    GT_TRY(check_unbounded(s, group));
    GT_TRY(describe_operands(s, &build, group));
    GT_TRY(check_residuals(s, &build));
    GT_TRY(check_memory(s, &build, group));
    cpu_kernel kernel = {.view_of_input = -1, .overwrite_input = -1};
    bool idle = nothing_to_compute(&build);
    gantry_status status = idle ? GANTRY_OK : make_kernel(s, &build, group, &kernel, inputs);
    if (status == GANTRY_UNSUPPORTED)
        status = refuse_group(s, group);
    if (status == GANTRY_RESOURCE && !s->err->node[0])
        gt_fail(s->err, status, GANTRY_STAGE_RUN, group->node->name,
                "%s (node '%s'): out of memory while its kernel was made", group->node->op,
                group->node->name);
    for (uint32_t k = 0; k < group->output_count && status == GANTRY_OK; k++)
        status = place_output(s, &build, group, &kernel, k, inputs, &outputs[k]);
    if (status != GANTRY_OK || !kernel.run) {
        if (kernel.destroy)
            kernel.destroy((void *)kernel.state);
        return status;
    }
    GT_TRY(add_step(s, &kernel, index, inputs, group->input_count, outputs, group->output_count));
    cpu_step *step = &s->shaped->steps.data[s->shaped->steps.count - 1];
    GT_TRY(note_bounded(s, group, step));
    describe_step(s, group->input_count ? &build.inputs[0] : NULL,
                  group->output_count ? &build.outputs[0] : NULL);
    return GANTRY_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gantry_status place_partition_inputs(shaper *s)
{
    const gantry_graph_view *graph = s->program->graph;
    for (uint32_t k = 0; k < graph->input_count; k++) {
        cpu_tensor tensor;
        GT_TRY(tensor_of(s, NULL, graph->inputs[k], &tensor));
        cpu_place place = {0, 0, cpu_tensor_bytes(&tensor)};
        GT_TRY(add_storage(s, (cpu_storage){.base = CPU_BASE_INPUT, .index = k, .bytes = place.bytes},
                           &place.storage));
        s->places[graph->inputs[k]].at[CPU_PLAIN] = place;
        s->places[graph->inputs[k]].known[CPU_PLAIN] = true;
    }
    return GANTRY_OK;
}

/* A constant that is an output of the partition: no kernel read it, so it has no copy yet. */
static gantry_status place_constant_output(shaper *s, uint32_t value, cpu_tensor *tensor)
{
    bool mapped;
    cpu_place *place = &s->places[value].at[CPU_PLAIN];
    GT_TRY(map_constant(s, value, tensor, &mapped));
    gantry_status status = own_constant(s, value, tensor);
    if (mapped)
        s->program->provider->host->constant_unmap(s->program->provider->host, s->args->constants,
                                                   tensor->constant_id);
    if (status != GANTRY_OK)
        return status;
    *place = (cpu_place){0, 0, cpu_tensor_bytes(tensor)};
    s->places[value].known[CPU_PLAIN] = true;
    return add_storage(
        s,
        (cpu_storage){.base = CPU_BASE_CONSTANT, .address = s->program->owned[value], .bytes = place->bytes},
        &place->storage);
}

static gantry_status place_partition_outputs(shaper *s, cpu_place *outputs)
{
    const gantry_graph_view *graph = s->program->graph;
    for (uint32_t k = 0; k < graph->output_count; k++) {
        uint32_t value = graph->outputs[k];
        cpu_tensor tensor;
        GT_TRY(tensor_of(s, NULL, value, &tensor));
        if (tensor.constant && !s->places[value].known[CPU_PLAIN])
            GT_TRY(place_constant_output(s, value, &tensor));
        gantry_node_view nobody = {.struct_bytes = sizeof nobody, .name = "output", .op = "output"};
        cpu_build build = {.provider = s->program->provider,
                           .host = s->program->provider->host,
                           .arena = &s->shaped->arena,
                           .scratch = &s->scratch,
                           .graph = graph,
                           .node = &nobody,
                           .threads = s->program->threads,
                           .err = s->err,
                           .program = s->program,
                           .constants = s->args->constants};
        GT_TRY(place_in(s, &build, value, &tensor, CPU_PLAIN, &outputs[k]));
    }
    return GANTRY_OK;
}

static gantry_status shape(shaper *s)
{
    cpu_shaped *shaped = s->shaped;
    const gantry_graph_view *graph = s->program->graph;
    s->places = GT_ARENA_ARRAY(&s->scratch, cpu_places, graph->value_count);
    s->produced = GT_ARENA_ARRAY(&s->scratch, uint8_t, graph->value_count);
    cpu_place *outputs = GT_ARENA_ARRAY(&s->scratch, cpu_place, graph->output_count);
    shaped->output_plans = GT_ARENA_ARRAY(&shaped->arena, gantry_output_plan, graph->output_count);
    if (!s->places || !s->produced || !outputs || !shaped->output_plans)
        return gt_out_of_memory(s->err, GANTRY_STAGE_RUN);
    GT_TRY(place_partition_inputs(s));
    for (uint32_t k = 0; k < s->program->group_count; k++)
        GT_TRY(shape_group(s, k));
    GT_TRY(place_partition_outputs(s, outputs));
    GT_TRY(cpu_shaped_plan(shaped, outputs, &s->scratch, s->err));
    for (uint32_t k = 0; s->args->recorder && k < shaped->steps.count; k++)
        record_step(s, k);
    return GANTRY_OK;
}

gantry_status cpu_shaped_create(void *self, gantry_program *handle, const gantry_reshape_args *args,
                                gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    cpu_provider *provider = self;
    cpu_program *program = (cpu_program *)handle;
    *out_shaped = NULL;
    gantry_error own =
        GANTRY_ERROR_INIT; /* the text of a refusal is needed even when nobody asks for errors */
    cpu_shaped *shaped = GT_NEW(&provider->allocator, cpu_shaped);
    if (!shaped)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    shaped->program = program;
    gt_arena_init(&shaped->arena, &provider->allocator);
    shaper s = {
        .program = program, .args = args, .shaped = shaped, .info = out_info, .err = err ? err : &own};
    gt_arena_init(&s.scratch, &provider->allocator);
    cpu_states_init(&s.states, &shaped->arena);
    pthread_mutex_lock(
        &program->lock); /* the only lock of the provider; host calls made inside take their own */
    gantry_status status = shape(&s);
    pthread_mutex_unlock(&program->lock);
    cpu_states_free(&s.states);
    gt_arena_clear(&s.scratch);
    if (status != GANTRY_OK) {
        cpu_shaped_destroy(self, (gantry_shaped *)shaped);
        return status;
    }
    shaped->counted_bytes = sizeof *shaped + shaped->arena.total_bytes;
    cpu_hold_kernels(program, shaped->counted_bytes);
    out_info->workspace_bytes = shaped->workspace_bytes;
    out_info->output_plans = shaped->output_plans;
    out_info->refused_count = 0;
    *out_shaped = (gantry_shaped *)shaped;
    return GANTRY_OK;
}

void cpu_shaped_destroy(void *self, gantry_shaped *handle)
{
    cpu_shaped *shaped = (cpu_shaped *)handle;
    cpu_provider *provider = self;
    if (!shaped)
        return;
    cpu_drop_kernels(shaped->program, shaped->counted_bytes);
    for (uint32_t k = 0; k < shaped->steps.count; k++)
        if (shaped->steps.data[k].kernel.destroy)
            shaped->steps.data[k].kernel.destroy((void *)shaped->steps.data[k].kernel.state);
    gt_vec_free(&provider->allocator, &shaped->storages);
    gt_vec_free(&provider->allocator, &shaped->places);
    gt_vec_free(&provider->allocator, &shaped->steps);
    gt_arena_clear(&shaped->arena);
    gt_free(&provider->allocator, shaped);
}
