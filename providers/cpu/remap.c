/* Output elements that each show one input element or a fill: Pad and nearest-neighbour Resize. */
#include "remap.h"

typedef struct remap_work {
    const cpu_remap *state;
    const char *in;
    char *out;
    const void *value;
} remap_work;

#define MAP_ROW(bytes, type)                                                                                 \
    static void map_row_##bytes(const cpu_remap *state, const char *in, int64_t base, const void *value,     \
                                char *out, int64_t begin, int64_t end)                                       \
    {                                                                                                        \
        const int64_t *map = state->map[state->rank - 1];                                                    \
        const type fill = *(const type *)value;                                                              \
        for (int64_t k = begin; k < end; k++)                                                                \
            ((type *)out)[k] = base < 0 || map[k] < 0 ? fill : ((const type *)in)[base + map[k]];            \
    }
typedef struct element16 {
    uint64_t low, high;
} element16;
/* Blocks of channels. */
typedef struct element32 {
    element16 low, high;
} element32;
typedef struct element64 {
    element32 low, high;
} element64;
MAP_ROW(1, uint8_t)
MAP_ROW(2, uint16_t)
MAP_ROW(4, uint32_t)
MAP_ROW(8, uint64_t)
MAP_ROW(16, element16)
MAP_ROW(32, element32)
MAP_ROW(64, element64)

/* Elements of any other size: pixels of bytes. No position of theirs is fill. */
static void map_row_any(const cpu_remap *state, const char *in, int64_t base, const void *value, char *out,
                        int64_t begin, int64_t end)
{
    const int64_t *map = state->map[state->rank - 1];
    size_t bytes = state->element_bytes;
    for (int64_t k = begin; k < end; k++)
        memcpy(out + (size_t)k * bytes, in + (size_t)(base + map[k]) * bytes, bytes);
}

typedef void (*map_row_fn)(const cpu_remap *state, const char *in, int64_t base, const void *value, char *out,
                           int64_t begin, int64_t end);
static const map_row_fn map_rows[65] = {
    [1] = map_row_1,   [2] = map_row_2,   [4] = map_row_4,  [8] = map_row_8,
    [16] = map_row_16, [32] = map_row_32, [64] = map_row_64};

/* Source offset of an output row, or -1 when one of its outer positions is fill. */
static int64_t row_base(const cpu_remap *state, int64_t row)
{
    int64_t base = 0;
    for (uint32_t axis = state->rank - 1; axis-- > 0;) {
        int64_t from = state->map[axis][row % state->dims[axis]];
        row /= state->dims[axis];
        if (from < 0)
            return -1;
        base += from;
    }
    return base;
}

static void remap_chunk(void *arg, int64_t begin, int64_t end)
{
    const remap_work *work = arg;
    const cpu_remap *state = work->state;
    int64_t width = state->dims[state->rank - 1];
    map_row_fn known = state->element_bytes <= 64 ? map_rows[state->element_bytes] : NULL;
    map_row_fn map_row = known ? known : map_row_any;
    int64_t previous = -1;
    for (int64_t row = begin; row < end; row++) {
        char *out = work->out + (size_t)(row * width) * state->element_bytes;
        int64_t base = row_base(state, row);
        if (base >= 0 && base == previous) { /* upscaling shows a row several times */
            memcpy(out, out - (size_t)width * state->element_bytes, (size_t)width * state->element_bytes);
            continue;
        }
        previous = base;
        int64_t copy_begin = base < 0 ? width : state->inner_begin,
                copy_end = base < 0 ? width : state->inner_end;
        map_row(state, work->in, base, work->value, out, 0, copy_begin);
        if (copy_end > copy_begin)
            memcpy(out + (size_t)copy_begin * state->element_bytes,
                   work->in + (size_t)(base + state->map[state->rank - 1][copy_begin]) * state->element_bytes,
                   (size_t)(copy_end - copy_begin) * state->element_bytes);
        map_row(state, work->in, base, work->value, out, cpu_max64(copy_begin, copy_end), width);
    }
}

gantry_status cpu_remap_run(const void *opaque, const cpu_call *call)
{
    const cpu_remap *state = opaque;
    remap_work work = {state, call->inputs[0], call->outputs[0],
                       state->value_input ? call->inputs[state->value_input] : state->value};
    int64_t width = cpu_max64(1, state->dims[state->rank - 1]);
    cpu_parallel(call, state->rows, cpu_max64(1, CPU_CHUNK_ELEMENTS / width), remap_chunk, &work);
    return GANTRY_OK;
}

/* The longest run of the last axis whose sources follow each other. */
static void find_contiguous(cpu_remap *state)
{
    const int64_t *map = state->map[state->rank - 1];
    int64_t width = state->dims[state->rank - 1];
    for (int64_t begin = 0; begin < width;) {
        int64_t end = begin + 1;
        while (map[begin] >= 0 && end < width && map[end] == map[end - 1] + 1)
            end++;
        if (map[begin] >= 0 && end - begin > state->inner_end - state->inner_begin) {
            state->inner_begin = begin;
            state->inner_end = end;
        }
        begin = end;
    }
}

/* Axes of one element would make rows of one element of the axis before them. */
static void drop_single_axes(cpu_remap *state)
{
    uint32_t rank = 0;
    for (uint32_t axis = 0; axis < state->rank; axis++)
        if (state->dims[axis] != 1 || state->map[axis][0] != 0) {
            state->dims[rank] = state->dims[axis];
            state->map[rank++] = state->map[axis];
        }
    state->rank = rank ? rank : 1; /* all were single: the first still is */
}

void cpu_remap_finish(cpu_remap *state)
{
    drop_single_axes(state);
    state->rows = cpu_product(state->dims, 0, state->rank - 1);
    find_contiguous(state);
}
