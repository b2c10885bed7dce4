/* Copies elements between two strided views of memory: rows where one side is contiguous, square tiles where
 * a transposition would walk memory across the lines of the cache. */
#include "copy.h"

/* A tile of 16 x 16 elements of 4 bytes touches 16 lines of 64 bytes on both sides. */
#define TILE 16
/* Bytes of one parallel chunk: large against the cost of handing it out. */
#define CHUNK_BYTES (64 << 10)

/* Glued elements lie at any address that suits their parts. */
typedef uint16_t element2 __attribute__((aligned(1)));
typedef uint32_t element4 __attribute__((aligned(1)));
typedef uint64_t element8 __attribute__((aligned(1)));
typedef struct element16 {
    element8 low, high;
} element16;

#define COPY_FUNCTIONS(bytes, type)                                                                          \
    static void row_##bytes(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n)       \
    {                                                                                                        \
        type *target = (type *)to;                                                                           \
        const type *source = (const type *)from;                                                             \
        if (to_step == 1 && from_step == 1) {                                                                \
            memcpy(target, source, (size_t)n * sizeof(type));                                                \
        } else if (to_step == 1 && from_step == 0) {                                                         \
            const type x = *source;                                                                          \
            for (int64_t k = 0; k < n; k++)                                                                  \
                target[k] = x;                                                                               \
        } else if (to_step == 1) {                                                                           \
            for (int64_t k = 0; k < n; k++)                                                                  \
                target[k] = source[k * from_step];                                                           \
        } else {                                                                                             \
            for (int64_t k = 0; k < n; k++)                                                                  \
                target[k * to_step] = source[k * from_step];                                                 \
        }                                                                                                    \
    }                                                                                                        \
    static void tile_##bytes(char *to, int64_t to_stride, const char *from, int64_t from_stride,             \
                             int64_t rows, int64_t columns)                                                  \
    {                                                                                                        \
        type *target = (type *)to;                                                                           \
        const type *source = (const type *)from;                                                             \
        for (int64_t r0 = 0; r0 < rows; r0 += TILE)                                                          \
            for (int64_t c0 = 0; c0 < columns; c0 += TILE) {                                                 \
                int64_t r1 = cpu_min64(r0 + TILE, rows), c1 = cpu_min64(c0 + TILE, columns);                 \
                for (int64_t r = r0; r < r1; r++)                                                            \
                    for (int64_t c = c0; c < c1; c++)                                                        \
                        target[r * to_stride + c] = source[c * from_stride + r];                             \
            }                                                                                                \
    }
COPY_FUNCTIONS(1, uint8_t)
COPY_FUNCTIONS(2, element2)
COPY_FUNCTIONS(4, element4)
COPY_FUNCTIONS(8, element8)
COPY_FUNCTIONS(16, element16)

typedef struct copy_functions {
    void (*row)(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n);
    void (*tile)(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,
                 int64_t columns);
} copy_functions;

static const copy_functions functions[17] = {[1] = {row_1, tile_1},
                                             [2] = {row_2, tile_2},
                                             [4] = {row_4, tile_4},
                                             [8] = {row_8, tile_8},
                                             [16] = {row_16, tile_16}};

/* Takes the axis that is contiguous in the source out of the nest when tiles pay: the target walks its
 * innermost axis contiguously, the source does not. */
static void find_tile(cpu_copy *copy)
{
    cpu_nest *nest = &copy->nest;
    if (nest->step[0] != 1 || nest->step[1] == 1 || nest->step[1] == 0 || nest->inner < 4)
        return;
    for (uint32_t axis = 0; axis < nest->rank; axis++) {
        if (nest->strides[1][axis] != 1 || nest->dims[axis] < 4)
            continue;
        copy->tile_rows = nest->dims[axis];
        copy->tile_target_stride = nest->strides[0][axis];
        nest->rank--;
        for (uint32_t k = axis; k < nest->rank; k++) {
            nest->dims[k] = nest->dims[k + 1];
            nest->strides[0][k] = nest->strides[0][k + 1];
            nest->strides[1][k] = nest->strides[1][k + 1];
        }
        nest->rows = cpu_product(nest->dims, 0, nest->rank);
        return;
    }
}

/* Innermost elements that stay together on both sides are moved as one element. */
static void glue_elements(cpu_copy *copy)
{
    cpu_nest *nest = &copy->nest;
    int64_t count = nest->inner;
    size_t bytes = copy->element_bytes * (size_t)count;
    if (nest->rank == 0 || count < 2 || nest->step[0] != 1 || nest->step[1] != 1 || bytes > 16 ||
        !functions[bytes].row)
        return;
    for (uint32_t axis = 0; axis < nest->rank; axis++)
        if (nest->strides[0][axis] % count || nest->strides[1][axis] % count)
            return;
    copy->element_bytes = bytes;
    nest->rank--;
    nest->inner = nest->dims[nest->rank];
    for (int side = 0; side < 2; side++) {
        nest->step[side] = nest->strides[side][nest->rank] / count;
        for (uint32_t axis = 0; axis < nest->rank; axis++)
            nest->strides[side][axis] /= count;
    }
    nest->rows = cpu_product(nest->dims, 0, nest->rank);
}

bool cpu_copy_make(cpu_copy *copy, uint32_t rank, const int64_t *dims, const int64_t *target_strides,
                   const int64_t *source_strides, size_t element_bytes)
{
    const int64_t *strides[2] = {target_strides, source_strides};
    *copy = (cpu_copy){.element_bytes = element_bytes, .offset_unit = (int64_t)element_bytes};
    if (element_bytes > 16 || !functions[element_bytes].row)
        return false;
    cpu_nest_make(&copy->nest, rank, dims, 2, strides);
    glue_elements(copy);
    find_tile(copy);
    int64_t row_bytes = copy->nest.inner * cpu_max64(1, copy->tile_rows) * (int64_t)copy->element_bytes;
    copy->chunk = cpu_max64(1, CHUNK_BYTES / cpu_max64(1, row_bytes));
    return true;
}

typedef struct copy_work {
    const cpu_copy *copy;
    const char *source;
    char *target;
    int64_t pieces; /* of one row or plane */
} copy_work;

/* One piece of a row, or of the rows of a tiled plane. */
static void copy_piece(const copy_work *work, const copy_functions *f, char *to, const char *from,
                       int64_t piece)
{
    const cpu_copy *copy = work->copy;
    const cpu_nest *nest = &copy->nest;
    int64_t extent = copy->tile_rows ? copy->tile_rows : nest->inner;
    int64_t begin = extent * piece / work->pieces, end = extent * (piece + 1) / work->pieces;
    if (copy->tile_rows)
        f->tile(to + begin * copy->tile_target_stride * (int64_t)copy->element_bytes,
                copy->tile_target_stride, from + begin * (int64_t)copy->element_bytes, nest->step[1],
                end - begin, nest->inner);
    else
        f->row(to + begin * nest->step[0] * (int64_t)copy->element_bytes, nest->step[0],
               from + begin * nest->step[1] * (int64_t)copy->element_bytes, nest->step[1], end - begin);
}

static void copy_chunk(void *arg, int64_t begin, int64_t end)
{
    const copy_work *work = arg;
    const cpu_copy *copy = work->copy;
    const copy_functions *f = &functions[copy->element_bytes];
    int64_t bytes = (int64_t)copy->element_bytes;
    cpu_nest_position position;
    cpu_nest_seek(&copy->nest, begin / work->pieces, &position);
    for (int64_t k = begin; k < end; k++) {
        copy_piece(work, f, work->target + position.offset[0] * bytes,
                   work->source + position.offset[1] * bytes, k % work->pieces);
        if ((k + 1) % work->pieces == 0)
            cpu_nest_next(&copy->nest, &position);
    }
}

void cpu_copy_run(const cpu_copy *copy, const cpu_call *call, const void *source, void *target)
{
    int64_t bytes = (int64_t)copy->element_bytes;
    int64_t row_bytes = copy->nest.inner * cpu_max64(1, copy->tile_rows) * bytes;
    copy_work work = {copy, (const char *)source + copy->source_offset * copy->offset_unit,
                      (char *)target + copy->target_offset * copy->offset_unit,
                      cpu_max64(1, row_bytes / CHUNK_BYTES)};
    if (row_bytes)
        cpu_parallel(call, copy->nest.rows * work.pieces, copy->chunk, copy_chunk, &work);
}

static gantry_status copy_kernel_run(const void *opaque, const cpu_call *call)
{
    cpu_copy_run(opaque, call, call->inputs[0], call->outputs[0]);
    return GANTRY_OK;
}

gantry_status cpu_make_copy(cpu_build *build, uint32_t rank, const int64_t *dims,
                            const int64_t *target_strides, const int64_t *source_strides,
                            int64_t source_offset, cpu_kernel *out_kernel)
{
    const cpu_tensor *out = &build->outputs[0];
    cpu_copy *copy = cpu_state(build, sizeof *copy);
    if (!copy)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (!cpu_copy_make(copy, rank, dims, target_strides, source_strides, cpu_dtype_size(out->dtype)))
        return cpu_unsupported(build, "no kernel for element type %d", (int)out->dtype);
    copy->source_offset = source_offset;
    *out_kernel = cpu_kernel_of(copy_kernel_run, copy);
    out_kernel->threads = cpu_threads_for(build, (double)out->count);
    return GANTRY_OK;
}
