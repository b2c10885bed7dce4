/* Strided copies, and copies through a table for each axis. */
#include "opencl_move.h"

void opencl_dense_strides(uint32_t rank, const int64_t *dims, int64_t *out_strides)
{
    int64_t stride = 1;
    for (uint32_t k = rank; k-- > 0;) {
        out_strides[k] = stride;
        stride *= dims[k];
    }
}

void opencl_move_begin(opencl_move *move, const opencl_operand *output)
{
    memset(move, 0, sizeof *move);
    move->rank = output->rank;
    memcpy(move->dims, output->dims, output->rank * sizeof *output->dims);
    opencl_dense_strides(output->rank, output->dims, move->target_strides);
}

/* ---- strided copies -------------------------------------------------------------------------- */

static void walk_move(const opencl_move *move, opencl_walk *walk)
{
    opencl_walk_begin(walk, move->rank, move->dims);
    opencl_walk_strided(walk, move->source_strides);
    opencl_walk_strided(walk, move->target_strides);
    opencl_walk_join(walk);
}

static bool is_dense(const opencl_walk *walk)
{
    return walk->rank == 1 && (walk->dims[0] == 1 || (walk->strides[0][0] == 1 && walk->strides[1][0] == 1));
}

static void add_kernel(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                       const opencl_move *move, const opencl_walk *walk)
{
    opencl_text text = {.used = 0};
    opencl_text_add(&text,
                    "__kernel void move(__global const T *x, ulong ox, __global T *y, ulong oy, uint n, long "
                    "from, long to");
    opencl_walk_parameters(walk, &text);
    opencl_text_add(&text, ")\n{\n    size_t k = get_global_id(0);\n    if (k >= n)\n        return;\n");
    opencl_walk_indexes(walk, &text);
    opencl_text_add(&text, "    y[(long)oy + to + i1] = x[(long)ox + from + i0];\n}\n");
    char defines[32];
    size_t element = opencl_dtype_bytes(output->dtype);
    snprintf(defines, sizeof defines, "#define T %s\n", opencl_size_name(element));
    opencl_launch *launch = opencl_launch_add(build, defines, text.data, "move");
    opencl_arg_input(launch, input);
    opencl_arg_output(launch, output);
    opencl_arg_int(launch, (int32_t)walk->count);
    opencl_arg_long(launch, move->source_at);
    opencl_arg_long(launch, move->target_at);
    opencl_walk_arguments(walk, launch);
    opencl_launch_flat(launch, walk->count);
    opencl_launch_describe(launch, "move", 2 * (double)walk->count * (double)element, 0);
}

void opencl_move_add(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                     const opencl_move *move)
{
    opencl_walk walk;
    size_t element = opencl_dtype_bytes(output->dtype);
    walk_move(move, &walk);
    if (walk.count == 0)
        return;
    if (is_dense(&walk))
        opencl_copy_add(build, output, (size_t)move->target_at * element, input,
                        (size_t)move->source_at * element, (size_t)walk.count * element);
    else
        add_kernel(build, output, input, move, &walk);
}

void opencl_move_or_view_add(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                             const opencl_move *move)
{
    opencl_walk walk;
    walk_move(move, &walk);
    if (walk.count == 0)
        return;
    if (is_dense(&walk))
        opencl_view_add(build, output, input, (size_t)move->source_at * opencl_dtype_bytes(output->dtype));
    else
        opencl_move_add(build, output, input, move);
}

/* ---- through tables -------------------------------------------------------------------------- */

static void write_remap(uint32_t rank, bool has_fill, opencl_text *text)
{
    opencl_text_add(text, "__kernel void remap(__global const T *x, ulong ox, __global T *y, ulong oy,\n"
                          "    __global const int *map, ulong om, uint n, int8 d, ulong bits");
    if (has_fill)
        opencl_text_add(text, ", __global const T *fill, ulong of");
    opencl_text_add(text, ")\n{\n    size_t k = get_global_id(0);\n    if (k >= n)\n        return;\n"
                          "    uint rest = (uint)k, at = (uint)om;\n    int part, sum = 0, missing = 0;\n");
    for (uint32_t axis = 0; axis < rank; axis++)
        opencl_text_add(text,
                        "    part = map[at + rest %% (uint)d.s%x];\n    missing |= part < 0;\n"
                        "    sum += part;\n    rest /= (uint)d.s%x;\n    at += (uint)d.s%x;\n",
                        axis, axis, axis);
    opencl_text_add(text, "    y[oy + k] = missing ? %s : x[ox + (missing ? 0 : sum)];\n}\n",
                    has_fill ? "fill[of]" : "(T)bits");
}

/* Tables come outermost axis first, the kernel takes them innermost first. */
static uint32_t add_tables(opencl_build *build, const opencl_operand *output, const int32_t *tables)
{
    int64_t total = 0, used = 0;
    for (uint32_t k = 0; k < output->rank; k++)
        total += output->dims[k];
    int32_t *turned = opencl_build_alloc(build, (size_t)total + 1, sizeof *turned);
    if (!turned)
        return 0;
    for (uint32_t k = output->rank; k-- > 0;) {
        total -= output->dims[k];
        memcpy(turned + used, tables + total, (size_t)output->dims[k] * sizeof *turned);
        used += output->dims[k];
    }
    uint32_t place = opencl_table_add(build, turned, (size_t)(used ? used : 1) * sizeof *turned);
    opencl_build_free(build, turned);
    return place;
}

void opencl_remap_add(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                      const int32_t *tables, const opencl_operand *fill, uint64_t fill_bits, const char *name)
{
    opencl_text text = {.used = 0};
    char defines[32];
    int32_t dims[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    size_t element = opencl_dtype_bytes(output->dtype);
    uint32_t place = add_tables(build, output, tables);
    for (uint32_t k = 0; k < output->rank; k++)
        dims[k] = (int32_t)output->dims[output->rank - 1 - k];
    snprintf(defines, sizeof defines, "#define T %s\n", opencl_size_name(element));
    write_remap(output->rank, fill != NULL, &text);
    opencl_launch *launch = opencl_launch_add(build, defines, text.data, "remap");
    opencl_arg_input(launch, input);
    opencl_arg_output(launch, output);
    opencl_arg_scratch(launch, place, sizeof(int32_t));
    opencl_arg_int(launch, (int32_t)opencl_count(output));
    opencl_arg_bytes(launch, dims, sizeof dims);
    opencl_arg_long(launch, (int64_t)fill_bits);
    if (fill)
        opencl_arg_input(launch, fill);
    opencl_launch_flat(launch, opencl_count(output));
    opencl_launch_describe(launch, name, 2 * (double)opencl_bytes(output), 0);
}
