/* Makes and runs one kernel of the CPU provider directly, without a graph around it: operands are plain
 * arrays, outputs and scratch are followed by guard bytes that must survive, and each run is done on one
 * thread and on three. */
#ifndef KERNEL_FIXTURE_H
#define KERNEL_FIXTURE_H

#include "providers/cpu/cpu.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define FIXTURE_OPERANDS 10
#define FIXTURE_GUARD 64

typedef struct fixture {
    gt_allocator allocator;
    gt_arena arena;
    gantry_attribute attributes[12];
    gantry_node_view node;
    gantry_graph_view graph;
    cpu_tensor inputs[FIXTURE_OPERANDS], outputs[FIXTURE_OPERANDS];
    const void *in_data[FIXTURE_OPERANDS];
    void *out_data[FIXTURE_OPERANDS];
    int64_t true_dims[FIXTURE_OPERANDS][GANTRY_MAX_RANK];
    gantry_value_view views[2 * FIXTURE_OPERANDS]; /* inputs, then outputs */
    const gantry_value_view *values[2 * FIXTURE_OPERANDS];
    uint32_t in_ids[FIXTURE_OPERANDS], out_ids[FIXTURE_OPERANDS];
    cpu_build build;
    cpu_kernel kernel;
    gantry_error error;
} fixture;

static inline size_t fixture_bytes(const cpu_tensor *tensor)
{
    return cpu_dtype_bytes(tensor->dtype, tensor->count);
}

static inline fixture *fixture_open(const char *domain, const char *op, int version)
{
    fixture *f = calloc(1, sizeof *f);
    gt_allocator_init(&f->allocator, NULL);
    gt_arena_init(&f->arena, &f->allocator);
    f->error = (gantry_error)GANTRY_ERROR_INIT;
    f->node = (gantry_node_view){.struct_bytes = sizeof f->node,
                                 .name = "n",
                                 .op = op,
                                 .domain = domain,
                                 .version = version,
                                 .attributes = f->attributes};
    return f;
}

static inline void fixture_close(fixture *f)
{
    if (f->kernel.destroy)
        f->kernel.destroy((void *)(uintptr_t)f->kernel.state);
    for (int k = 0; k < FIXTURE_OPERANDS; k++)
        free(f->out_data[k]);
    gt_arena_clear(&f->arena);
    free(f);
}

static inline gantry_attribute *fixture_attribute(fixture *f, const char *name, gantry_attribute_kind kind)
{
    gantry_attribute *a = &f->attributes[f->node.attribute_count++];
    *a = (gantry_attribute){.struct_bytes = sizeof *a, .name = name, .kind = kind, .count = 1};
    return a;
}

static inline void fixture_int(fixture *f, const char *name, int64_t value)
{
    fixture_attribute(f, name, GANTRY_ATTR_INT)->i = value;
}

static inline void fixture_float(fixture *f, const char *name, float value)
{
    fixture_attribute(f, name, GANTRY_ATTR_FLOAT)->f = value;
}

static inline void fixture_text(fixture *f, const char *name, const char *value)
{
    gantry_attribute *a = fixture_attribute(f, name, GANTRY_ATTR_STRING);
    a->s = value;
    a->length = strlen(value);
}

static inline void fixture_ints(fixture *f, const char *name, uint32_t count, const int64_t *values)
{
    gantry_attribute *a = fixture_attribute(f, name, GANTRY_ATTR_INTS);
    a->ints = values;
    a->count = count;
}

static inline cpu_tensor fixture_tensor(gantry_dtype dtype, uint32_t rank, const int64_t *dims)
{
    cpu_tensor t = {.present = true, .dtype = dtype, .rank = rank, .count = 1, .constant_id = GANTRY_NO_ID};
    for (uint32_t k = 0; k < rank; k++)
        t.count *= t.dims[k] = dims[k];
    return t;
}

/* An input whose elements are known only in the run. */
static inline void fixture_input(fixture *f, gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                                 const void *data)
{
    f->inputs[f->node.input_count] = fixture_tensor(dtype, rank, dims);
    f->in_data[f->node.input_count++] = data;
}

/* A constant input. */
static inline void fixture_constant(fixture *f, gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                                    const void *data)
{
    fixture_input(f, dtype, rank, dims, data);
    f->inputs[f->node.input_count - 1].data = data;
    f->inputs[f->node.input_count - 1].constant = true;
}

static inline void fixture_no_input(fixture *f)
{
    f->inputs[f->node.input_count++].present = false;
}

static inline void fixture_output(fixture *f, gantry_dtype dtype, uint32_t rank, const int64_t *dims)
{
    f->outputs[f->node.output_count++] = fixture_tensor(dtype, rank, dims);
}

/* The graph view of the one node: types only. */
static inline void fixture_fill_view(fixture *f)
{
    for (uint32_t k = 0; k < 2 * FIXTURE_OPERANDS; k++) {
        bool is_input = k < FIXTURE_OPERANDS;
        uint32_t at = is_input ? k : k - FIXTURE_OPERANDS;
        const cpu_tensor *tensor = is_input ? &f->inputs[at] : &f->outputs[at];
        f->views[k] =
            (gantry_value_view){.struct_bytes = sizeof f->views[k], .dtype = tensor->dtype, .rank = -1};
        f->values[k] = &f->views[k];
        (is_input ? f->in_ids : f->out_ids)[at] = tensor->present ? k : GANTRY_NO_ID;
    }
    f->graph = (gantry_graph_view){
        .struct_bytes = sizeof f->graph, .value_count = 2 * FIXTURE_OPERANDS, .values = f->values};
    f->node.inputs = f->in_ids;
    f->node.outputs = f->out_ids;
}

static inline gantry_status fixture_make(fixture *f)
{
    fixture_fill_view(f);
    const cpu_op_row *row = cpu_find_op(f->node.domain, f->node.op);
    cr_assert_not_null(row, "no row for %s", f->node.op);
    f->build = (cpu_build){.arena = &f->arena,
                           .scratch = &f->arena,
                           .graph = &f->graph,
                           .node = &f->node,
                           .input_count = f->node.input_count,
                           .output_count = f->node.output_count,
                           .inputs = f->inputs,
                           .outputs = f->outputs,
                           .threads = 3,
                           .err = &f->error};
    return row->make(&f->build, &f->kernel);
}

static inline bool fixture_guard_is_whole(const char *memory, size_t bytes)
{
    for (size_t k = 0; k < FIXTURE_GUARD; k++)
        if (memory[bytes + k] != (char)0xA5)
            return false;
    return true;
}

static inline gantry_status fixture_run_once(fixture *f, int threads)
{
    int64_t *dims[FIXTURE_OPERANDS];
    for (uint32_t k = 0; k < f->node.output_count; k++) {
        size_t bytes = fixture_bytes(&f->outputs[k]);
        free(f->out_data[k]);
        f->out_data[k] = malloc(bytes + FIXTURE_GUARD);
        cr_assert(f->out_data[k]);
        memset(f->out_data[k], 0xA5, bytes + FIXTURE_GUARD);
        memcpy(f->true_dims[k], f->outputs[k].dims, sizeof f->true_dims[k]);
        dims[k] = f->true_dims[k];
    }
    if (f->kernel.view_of_input >= 0) {
        cr_assert(f->out_data[0]);
        memcpy(f->out_data[0],
               (const char *)f->in_data[f->kernel.view_of_input] + f->kernel.view_offset_bytes,
               fixture_bytes(&f->outputs[0]));
        return GANTRY_OK;
    }
    char *scratch = aligned_alloc(64, (f->kernel.scratch_bytes + 2 * FIXTURE_GUARD) / 64 * 64);
    cr_assert(scratch && f->kernel.run, "%s has no kernel or no memory", f->node.op);
    memset(scratch, 0xA5, f->kernel.scratch_bytes + FIXTURE_GUARD);
    cpu_call call = {.inputs = f->in_data,
                     .outputs = f->out_data,
                     .scratch = scratch,
                     .threads = threads,
                     .true_dims = dims};
    gantry_status status = f->kernel.run(f->kernel.state, &call);
    cr_expect(fixture_guard_is_whole(scratch, f->kernel.scratch_bytes), "%s writes behind its scratch",
              f->node.op);
    for (uint32_t k = 0; k < f->node.output_count; k++)
        cr_expect(fixture_guard_is_whole(f->out_data[k], fixture_bytes(&f->outputs[k])),
                  "%s writes behind output %u", f->node.op, k);
    free(scratch);
    return status;
}

/* Makes the kernel when it is not made, runs it on three threads and on one, and checks that they agree. */
static inline gantry_status fixture_run(fixture *f)
{
    if (!f->kernel.run && f->kernel.view_of_input == 0 && !f->kernel.name)
        cr_assert_eq(fixture_make(f), GANTRY_OK, "%s: %s", f->node.op, f->error.message);
    const uint32_t count = f->node.output_count;
    gantry_status many = fixture_run_once(f, 3);
    void *kept[FIXTURE_OPERANDS] = {NULL};
    for (uint32_t k = 0; k < count; k++) {
        kept[k] = f->out_data[k];
        f->out_data[k] = NULL;
    }
    gantry_status one = fixture_run_once(f, 1);
    cr_expect_eq(one, many, "%s: the status depends on the threads", f->node.op);
    for (uint32_t k = 0; k < count; k++) {
        cr_assert(kept[k] && f->out_data[k]);
        if (one == GANTRY_OK)
            cr_expect_arr_eq(kept[k], f->out_data[k], fixture_bytes(&f->outputs[k]),
                             "%s: output %u depends on the threads", f->node.op, k);
        free(kept[k]);
    }
    return one;
}

/* Numbers from a fixed sequence. */
static inline uint32_t fixture_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static inline void fixture_fill(float *out, int64_t count, float low, float high, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (int64_t k = 0; k < count; k++)
        out[k] = low + (high - low) * (float)(fixture_random(&state) >> 8) / 16777216.0f;
}

/* |got - wanted| in units of the last place of wanted; 0 for equal ones, NaN twice included. */
static inline double fixture_ulps(float got, double wanted)
{
    if ((isnan(got) && isnan(wanted)) || (double)got == wanted || (float)wanted == got)
        return 0;
    if (isnan(got) || isnan(wanted) || isinf(got) || isinf((float)wanted))
        return INFINITY;
    float magnitude = fmaxf(fabsf((float)wanted), 0x1p-126f);
    double unit = (double)nextafterf(magnitude, INFINITY) - (double)magnitude;
    return fabs((double)got - wanted) / unit;
}

#endif
