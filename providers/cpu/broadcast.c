/* Applying row functions over broadcast operands, in chunks of the output. */
#include "broadcast.h"

/* A rank-1 stand-in for a tensor that is walked as it lies in memory. */
static cpu_tensor flat(const cpu_tensor *tensor)
{
    cpu_tensor line = {.rank = 1, .dims = {cpu_physical_count(tensor)}, .count = cpu_physical_count(tensor)};
    return line;
}

static bool make_nest(cpu_nest *nest, const cpu_tensor *out, const cpu_tensor *a, const cpu_tensor *b)
{
    if (out->layout == CPU_PLAIN) {
        const cpu_tensor *operands[2] = {a, b};
        return cpu_nest_broadcast(nest, out->rank, out->dims, 2, operands);
    }
    if (a->count != 1 && !cpu_same_dims(a, out))
        return false;
    if (b->count != 1 && !cpu_same_dims(b, out))
        return false;
    cpu_tensor flat_out = flat(out), flat_a = a->count == 1 ? (cpu_tensor){.count = 1} : flat_out,
               flat_b = b->count == 1 ? (cpu_tensor){.count = 1} : flat_out;
    const cpu_tensor *operands[2] = {&flat_a, &flat_b};
    return cpu_nest_broadcast(nest, 1, flat_out.dims, 2, operands);
}

/* Short rows of one operand are copied side by side this far, so that a call takes many rows of the other. */
#define REPEATED_BYTES 2048
#define SHORT_ROW 64 /* elements, of 8 bytes at most: four rows fit at least */

static int find_repeated(const cpu_nest *nest)
{
    uint32_t before = nest->rank - 1;
    if (nest->rank == 0 || nest->inner < 2 || nest->inner > SHORT_ROW || nest->step[0] != 1 ||
        nest->step[1] != 1)
        return -1;
    for (int k = 0; k < 2; k++)
        if (nest->strides[k][before] == 0 && nest->strides[1 - k][before] == nest->inner)
            return k;
    return -1;
}

bool cpu_pairing_make(cpu_pairing *pairing, const cpu_tensor *out, const cpu_tensor *a, const cpu_tensor *b)
{
    pairing->repeated = -1;
    if (!make_nest(&pairing->nest, out, a, b))
        return false;
    pairing->repeated = find_repeated(&pairing->nest);
    return true;
}

/* `rows` rows that follow each other in one operand and in the output, with one row of the other. */
static void pair_repeated(const cpu_pairing *pairing, const char *a, const char *b, char *out, int64_t rows)
{
    char copies[REPEATED_BYTES] __attribute__((aligned(64)));
    size_t bytes = (size_t)pairing->nest.inner * pairing->in_bytes;
    int64_t most = cpu_min64(rows, (int64_t)(REPEATED_BYTES / bytes));
    bool first = pairing->repeated == 0;
    for (int64_t k = 0; k < most; k++)
        memcpy(copies + (size_t)k * bytes, first ? a : b, bytes);
    for (int64_t done = 0; done < rows; done += most) {
        int64_t count = cpu_min64(most, rows - done) * pairing->nest.inner;
        size_t at = (size_t)done * bytes;
        pairing->row.row_row(first ? copies : a + at, first ? b + at : copies,
                             out + (size_t)(done * pairing->nest.inner) * pairing->out_bytes, count);
    }
}

static void pair_row(const cpu_pairing *pairing, const char *a, const char *b, char *out, int64_t n)
{
    bool a_moves = pairing->nest.step[0] != 0, b_moves = pairing->nest.step[1] != 0;
    if (a_moves && b_moves)
        pairing->row.row_row(a, b, out, n);
    else if (a_moves)
        pairing->row.row_scalar(a, b, out, n);
    else if (b_moves)
        pairing->row.scalar_row(a, b, out, n);
    else
        for (int64_t k = 0; k < n; k++)
            pairing->row.row_row(a, b, out + (size_t)k * pairing->out_bytes, 1);
}

/* Whole rows from element `begin` on that one call of pair_repeated can take. */
static int64_t rows_together(const cpu_pairing *pairing, int64_t begin, int64_t end)
{
    const cpu_nest *nest = &pairing->nest;
    if (pairing->repeated < 0)
        return 0;
    int64_t extent = nest->dims[nest->rank - 1], row = begin / nest->inner;
    return cpu_min64((end - begin) / nest->inner, extent - row % extent);
}

void cpu_pairing_run(const cpu_pairing *pairing, const void *a, const void *b, void *out, int64_t begin,
                     int64_t end)
{
    const cpu_nest *nest = &pairing->nest;
    cpu_nest_position position;
    if (begin >= end)
        return;
    int64_t at = begin % nest->inner;
    cpu_nest_seek(nest, begin / nest->inner, &position);
    while (begin < end) {
        int64_t rows = at ? 0 : rows_together(pairing, begin, end);
        int64_t n = cpu_min64(nest->inner - at, end - begin);
        const char *a_row =
            (const char *)a + (size_t)(position.offset[0] + at * nest->step[0]) * pairing->in_bytes;
        const char *b_row =
            (const char *)b + (size_t)(position.offset[1] + at * nest->step[1]) * pairing->in_bytes;
        char *out_row = (char *)out + (size_t)begin * pairing->out_bytes;
        if (rows > 1) {
            pair_repeated(pairing, a_row, b_row, out_row, rows);
            begin += rows * nest->inner;
            cpu_nest_seek(nest, begin / nest->inner, &position);
            continue;
        }
        pair_row(pairing, a_row, b_row, out_row, n);
        begin += n;
        at = 0;
        cpu_nest_next(nest, &position);
    }
}

#define CHOOSE(bytes, type)                                                                                  \
    CPU_CLONES static void choose_##bytes(const uint8_t *choose, int64_t choose_step, const void *yes,       \
                                          int64_t yes_step, const void *no, int64_t no_step, void *out,      \
                                          int64_t n)                                                         \
    {                                                                                                        \
        const type *a = yes, *b = no;                                                                        \
        type *target = out;                                                                                  \
        if (choose_step && yes_step && no_step)                                                              \
            for (int64_t k = 0; k < n; k++)                                                                  \
                target[k] = choose[k] ? a[k] : b[k];                                                         \
        else if (choose_step && yes_step) {                                                                  \
            const type other = *b;                                                                           \
            for (int64_t k = 0; k < n; k++)                                                                  \
                target[k] = choose[k] ? a[k] : other;                                                        \
        } else if (choose_step && no_step) {                                                                 \
            const type other = *a;                                                                           \
            for (int64_t k = 0; k < n; k++)                                                                  \
                target[k] = choose[k] ? other : b[k];                                                        \
        } else                                                                                               \
            for (int64_t k = 0; k < n; k++)                                                                  \
                target[k] = choose[k * choose_step] ? a[k * yes_step] : b[k * no_step];                      \
    }
typedef struct wide_element {
    uint64_t low, high;
} wide_element;
CHOOSE(1, uint8_t)
CHOOSE(2, uint16_t)
CHOOSE(4, uint32_t)
CHOOSE(8, uint64_t)
CHOOSE(16, wide_element)

cpu_choose_fn cpu_choose_find(size_t element_bytes)
{
    static const cpu_choose_fn table[17] = {
        [1] = choose_1, [2] = choose_2, [4] = choose_4, [8] = choose_8, [16] = choose_16};
    return element_bytes <= 16 ? table[element_bytes] : NULL;
}

void cpu_choose_run(const cpu_nest *nest, cpu_choose_fn choose, size_t element_bytes,
                    const void *const *operands, void *out, int64_t begin, int64_t end)
{
    cpu_nest_position position;
    if (begin >= end)
        return;
    int64_t at = begin % nest->inner;
    cpu_nest_seek(nest, begin / nest->inner, &position);
    while (begin < end) {
        int64_t n = cpu_min64(nest->inner - at, end - begin);
        int64_t from[3];
        for (int k = 0; k < 3; k++)
            from[k] = position.offset[k] + at * nest->step[k];
        choose((const uint8_t *)operands[0] + from[0], nest->step[0],
               (const char *)operands[1] + (size_t)from[1] * element_bytes, nest->step[1],
               (const char *)operands[2] + (size_t)from[2] * element_bytes, nest->step[2],
               (char *)out + (size_t)begin * element_bytes, n);
        begin += n;
        at = 0;
        cpu_nest_next(nest, &position);
    }
}
