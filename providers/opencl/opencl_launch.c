/* Launches: what prepare functions add to a shaped program. A failure sticks to the build. */
#include "opencl_program.h"

/* ---- growing --------------------------------------------------------------------------------- */

/* Room for `more` elements beyond count; false when out of memory. */
static bool grow(opencl_build *build, void *inout_array, uint32_t count, uint32_t more,
                 uint32_t *inout_capacity, size_t element_bytes)
{
    if (build->status != GANTRY_OK)
        return false;
    if (count + more <= *inout_capacity)
        return true;
    uint32_t capacity = 2 * (count + more) + 16;
    void *array, *bigger;
    memcpy(&array, inout_array, sizeof array);
    bigger = opencl_alloc(build->device, capacity, element_bytes);
    if (!bigger) {
        build->status = opencl_out_of_memory(build->err);
        return false;
    }
    if (count)
        memcpy(bigger, array, count * element_bytes);
    opencl_free(build->device, array);
    memcpy(inout_array, &bigger, sizeof bigger);
    *inout_capacity = capacity;
    return true;
}

void opencl_build_fail(opencl_build *build, gantry_status status, const char *text)
{
    if (build->status == GANTRY_OK)
        build->status = opencl_fail(build->err, status, GANTRY_STAGE_RUN, "opencl: %s: %s",
                                    build->shaped->program->graph->nodes[build->node]->name, text);
}

void *opencl_build_alloc(opencl_build *build, size_t count, size_t size)
{
    void *memory = build->status == GANTRY_OK ? opencl_alloc(build->device, count, size) : NULL;
    if (!memory && build->status == GANTRY_OK)
        build->status = opencl_out_of_memory(build->err);
    return memory;
}

void opencl_build_free(opencl_build *build, void *memory)
{
    opencl_free(build->device, memory);
}

/* ---- a launch -------------------------------------------------------------------------------- */

static opencl_launch *new_launch(opencl_build *build)
{
    gantry_shaped *shaped = build->shaped;
    if (!grow(build, &shaped->launches, shaped->launch_count, 1, &shaped->launch_capacity,
              sizeof *shaped->launches)) {
        build->failed = (opencl_launch){.build = build};
        return &build->failed;
    }
    opencl_launch *launch = &shaped->launches[shaped->launch_count++];
    *launch = (opencl_launch){.build = build,
                              .node = build->node,
                              .argument_begin = shaped->argument_count,
                              .bytes = -1,
                              .flops = -1};
    return launch;
}

static char *join(const opencl_device *device, const char *defines, const char *source)
{
    size_t bytes = strlen(opencl_prelude) + strlen(defines) + strlen(source) + 1;
    char *text = opencl_alloc(device, bytes, 1);
    if (text)
        snprintf(text, bytes, "%s%s%s", opencl_prelude, defines, source);
    return text;
}

opencl_launch *opencl_launch_add(opencl_build *build, const char *defines, const char *source,
                                 const char *name)
{
    opencl_launch *launch = new_launch(build);
    if (build->status != GANTRY_OK)
        return launch;
    char *text = join(build->device, defines, source);
    build->status = text ? opencl_variant_get(build->device, text, build->shaped->program->is_fast,
                                              &build->counts, &launch->program, build->err)
                         : opencl_out_of_memory(build->err);
    opencl_free(build->device, text);
    snprintf(launch->kernel, sizeof launch->kernel, "%s", name);
    snprintf(launch->variant, sizeof launch->variant, "%s", name);
    return launch;
}

opencl_launch *opencl_launch_last(opencl_build *build)
{
    gantry_shaped *shaped = build->shaped;
    bool there = build->status == GANTRY_OK && shaped->launch_count;
    return there ? &shaped->launches[shaped->launch_count - 1] : NULL;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static opencl_argument *new_argument(opencl_launch *launch, opencl_argument_kind kind)
{
    opencl_build *build = launch->build;
    gantry_shaped *shaped = build->shaped;
    if (!grow(build, &shaped->arguments, shaped->argument_count, 1, &shaped->argument_capacity,
              sizeof *shaped->arguments))
        return NULL;
    opencl_argument *argument = &shaped->arguments[shaped->argument_count++];
    *argument = (opencl_argument){.kind = kind};
    launch->argument_count++;
    return argument;
}

static void add_buffer(opencl_launch *launch, uint32_t place, size_t element_bytes)
{
    opencl_argument *argument = new_argument(launch, OPENCL_ARGUMENT_BUFFER);
    if (!argument)
        return;
    argument->place = place;
    argument->element_bytes = (uint32_t)element_bytes;
}

void opencl_arg_input(opencl_launch *launch, const opencl_operand *operand)
{
    add_buffer(launch, operand->value, opencl_dtype_bytes(operand->dtype));
}

void opencl_arg_output(opencl_launch *launch, const opencl_operand *operand)
{
    add_buffer(launch, operand->value, opencl_dtype_bytes(operand->dtype));
}

uint32_t opencl_scratch_add(opencl_build *build, size_t bytes)
{
    gantry_shaped *shaped = build->shaped;
    if (!grow(build, &shaped->places, shaped->place_count, 1, &shaped->place_capacity,
              sizeof *shaped->places))
        return 0;
    shaped->places[shaped->place_count] = (opencl_place){
        .bytes = bytes, .view_of = GANTRY_NO_ID, .made = true, .first = build->node, .last = build->node};
    return shaped->place_count++;
}

uint32_t opencl_table_add(opencl_build *build, const void *data, size_t bytes)
{
    uint32_t place = opencl_scratch_add(build, bytes);
    cl_int result;
    if (build->status != GANTRY_OK)
        return 0;
    opencl_place *own = &build->shaped->places[place];
    own->kind = OPENCL_PLACE_FIXED;
    if (bytes == 0)
        return place;
    own->memory = clCreateBuffer(build->device->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes,
                                 (void *)data, &result);
    build->status = opencl_check(result, "clCreateBuffer", build->err);
    return place;
}

void opencl_arg_scratch(opencl_launch *launch, uint32_t scratch, size_t element_bytes)
{
    add_buffer(launch, scratch, element_bytes);
}

void opencl_arg_bytes(opencl_launch *launch, const void *data, size_t bytes)
{
    gantry_shaped *shaped = launch->build->shaped;
    if (!grow(launch->build, &shaped->data, shaped->data_bytes, (uint32_t)bytes, &shaped->data_capacity, 1))
        return;
    opencl_argument *argument = new_argument(launch, OPENCL_ARGUMENT_DATA);
    if (!argument)
        return;
    argument->at = shaped->data_bytes;
    argument->bytes = bytes;
    memcpy(shaped->data + shaped->data_bytes, data, bytes);
    shaped->data_bytes += (uint32_t)bytes;
}

void opencl_arg_int(opencl_launch *launch, int32_t value)
{
    opencl_arg_bytes(launch, &value, sizeof value);
}

void opencl_arg_long(opencl_launch *launch, int64_t value)
{
    opencl_arg_bytes(launch, &value, sizeof value);
}

void opencl_arg_float(opencl_launch *launch, float value)
{
    opencl_arg_bytes(launch, &value, sizeof value);
}

void opencl_arg_errors(opencl_launch *launch)
{
    opencl_build *build = launch->build;
    const gantry_node_view *node = build->shaped->program->graph->nodes[build->node];
    if (!new_argument(launch, OPENCL_ARGUMENT_ERRORS))
        return;
    launch->site = opencl_site_add(build->device, node->op, node->name);
    build->shaped->may_fail = true;
    if (launch->site == 0)
        build->status = opencl_out_of_memory(build->err);
}

void opencl_arg_local(opencl_launch *launch, size_t bytes)
{
    opencl_argument *argument = new_argument(launch, OPENCL_ARGUMENT_LOCAL);
    if (argument)
        argument->bytes = bytes;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void round_up(opencl_launch *launch)
{
    for (cl_uint k = 0; launch->has_groups && k < 3; k++)
        launch->size[k] = (launch->size[k] + launch->groups[k] - 1) / launch->groups[k] * launch->groups[k];
}

void opencl_launch_size(opencl_launch *launch, int64_t x, int64_t y, int64_t z)
{
    bool empty = x <= 0 || y <= 0 || z <= 0;
    launch->size[0] = (size_t)x;
    launch->size[1] = (size_t)y;
    launch->size[2] = (size_t)z;
    launch->dimensions = empty ? 0 : 3;
    round_up(launch);
}

void opencl_launch_groups(opencl_launch *launch, size_t x, size_t y, size_t z)
{
    launch->has_groups = true;
    launch->groups[0] = x;
    launch->groups[1] = y;
    launch->groups[2] = z;
    round_up(launch);
}

void opencl_launch_flat(opencl_launch *launch, int64_t count)
{
    size_t most = launch->build->device->group_size_max;
    opencl_launch_size(launch, count, 1, 1);
    opencl_launch_groups(launch, most < 256 ? most : 256, 1, 1);
}

void opencl_launch_describe(opencl_launch *launch, const char *variant, double bytes, double flops)
{
    snprintf(launch->variant, sizeof launch->variant, "%s", variant);
    launch->bytes = bytes;
    launch->flops = flops;
}

/* ---- views and copies ------------------------------------------------------------------------ */

uint32_t opencl_place_root(const gantry_shaped *shaped, uint32_t place, size_t *out_offset_bytes)
{
    size_t offset = 0;
    while (shaped->places[place].view_of != GANTRY_NO_ID) {
        offset += shaped->places[place].view_offset_bytes;
        place = shaped->places[place].view_of;
    }
    if (out_offset_bytes)
        *out_offset_bytes = offset;
    return place;
}

static void add_copy(opencl_build *build, uint32_t target, size_t target_offset, uint32_t source,
                     size_t source_offset, size_t bytes)
{
    opencl_launch *launch = new_launch(build);
    snprintf(launch->variant, sizeof launch->variant, "copy");
    launch->target = target;
    launch->target_offset = target_offset;
    launch->source = source;
    launch->source_offset = source_offset;
    launch->copy_bytes = bytes;
    launch->bytes = 2 * (double)bytes;
    launch->flops = 0;
}

void opencl_copy_add(opencl_build *build, const opencl_operand *output, size_t output_offset,
                     const opencl_operand *input, size_t input_offset, size_t bytes)
{
    if (bytes && build->status == GANTRY_OK)
        add_copy(build, output->value, output_offset, input->value, input_offset, bytes);
}

/* An output of the partition cannot be a view of what the host does not hold: a value that lies nowhere yet
 * is made in its buffer at once, any other is copied. */
void opencl_view_add(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                     size_t offset_bytes)
{
    if (build->status != GANTRY_OK)
        return;
    gantry_shaped *shaped = build->shaped;
    opencl_place *out = &shaped->places[output->value];
    size_t offset;
    uint32_t root_index = opencl_place_root(shaped, input->value, &offset);
    opencl_place *root = &shaped->places[root_index];
    offset += offset_bytes;
    if (out->kind != OPENCL_PLACE_OUTPUT) {
        out->view_of = root_index;
        out->view_offset_bytes = offset;
    } else if (root->kind == OPENCL_PLACE_INPUT) {
        shaped->output_plans[out->index].view_of_input = (int32_t)root->index;
        shaped->output_plans[out->index].view_offset_bytes = offset;
        out->view_of = root_index;
        out->view_offset_bytes = offset;
    } else if (root->kind == OPENCL_PLACE_NONE && offset == 0 && out->bytes == root->bytes) {
        root->kind = OPENCL_PLACE_OUTPUT;
        root->index = out->index;
    } else if (out->bytes) {
        add_copy(build, output->value, 0, root_index, offset, out->bytes);
    }
}
