/* Exact products of 8-bit matrices in int32, the core of the quantized operators.
 *
 * A (rows x k) is made unsigned, B (k x n) signed, by moving both the elements and their zero points by 128.
 * B lies in panels of 16 columns; four neighbours along k lie together, as one instruction multiplies them:
 *
 *     panel p: [k / 4][16 columns][4]     then, for all panels, the sum of each column
 *
 *     sum (a - za)(b - zb) = sum a b - zb sum a - za sum b + k za zb */
#ifndef CPU_BYTE_PRODUCT_H
#define CPU_BYTE_PRODUCT_H

#include "kernels.h"

/* Rows and columns of one block: 6 x 4 accumulators of 16 leave room for the operands in 32 registers. */
#define CPU_BYTE_ROWS 6
#define CPU_BYTE_COLUMNS 64

/* Tells the packed form of a constant from others (cpu_pack). */
#define CPU_BYTE_LAYOUT_KEY 0x5354455942u

/* k rounded up to fours: the bytes of a packed row of A. */
static inline int64_t cpu_byte_depth(int64_t k)
{
    return (k + 3) / 4 * 4;
}

/* Bytes of a packed B. */
size_t cpu_byte_b_bytes(int64_t k, int64_t n);
/* element (i, j) is b[i * k_stride + j * n_stride]; packed is 64-byte aligned or at least usable unaligned.
 */
void cpu_byte_pack_b(gantry_dtype dtype, const void *b, int64_t k, int64_t n, int64_t k_stride,
                     int64_t n_stride, void *packed);
/* Panels first .. first + count - 1 of it (16 columns each), as far as they exist. */
void cpu_byte_pack_panels(gantry_dtype dtype, const void *b, int64_t k, int64_t n, int64_t k_stride,
                          int64_t n_stride, int64_t first, int64_t count, void *packed);
/* One row of A to cpu_byte_depth(k) bytes; returns the sum of its elements as unsigned numbers. */
int32_t cpu_byte_pack_row(gantry_dtype dtype, const void *a, int64_t k, uint8_t *packed);
/* The zero point that belongs to the packed elements. */
static inline int32_t cpu_byte_a_zero(gantry_dtype dtype, int32_t zero)
{
    return dtype == GANTRY_INT8 ? zero + 128 : zero;
}

static inline int32_t cpu_byte_b_zero(gantry_dtype dtype, int32_t zero)
{
    return dtype == GANTRY_UINT8 ? zero - 128 : zero;
}

/* Whether some zero point of B, as it is packed, may differ from 0. zeros NULL: none is given. */
bool cpu_byte_needs_sums(gantry_dtype b_dtype, const cpu_tensor *zeros);

/* The sums of one row of A as unsigned numbers, without packing it. */
int32_t cpu_byte_row_sum(const uint8_t *a, int64_t k);
/* The sum of each column of a packed B. */
const int32_t *cpu_byte_column_sums(const void *packed_b, int64_t k, int64_t n);

typedef enum cpu_byte_kind {
    CPU_BYTE_INT32,   /* c = sum + add - b_zero * a_sum, wrapping */
    CPU_BYTE_FLOAT32, /* float(c) * multiplier */
    CPU_BYTE_BYTES    /* clamp(round_half_even(float(c) * multiplier), low, high) + zero, the low 8 bits */
} cpu_byte_kind;

/* At most CPU_BYTE_ROWS rows of A times the columns from `column` (a multiple of CPU_BYTE_COLUMNS) on, at
 * most that many. add, b_zeros and multipliers have an element for each column of B and are readable up to a
 * multiple of CPU_BYTE_COLUMNS. */
typedef struct cpu_byte_tile {
    const uint8_t *a; /* rows of cpu_byte_depth(k) readable bytes */
    int64_t a_stride, rows;
    const void *packed_b;
    int64_t k, n, column;
    const int32_t *add;
    const int32_t *b_zeros, *a_sums; /* NULL: all 0 */
    const float *multipliers;
    cpu_byte_kind kind;
    float low, high; /* whole numbers */
    int32_t zero;
    void *out; /* element (0, column) of the result */
    int64_t out_stride;
} cpu_byte_tile;

/* What CPU_BYTE_BYTES leaves: low to high, as the bytes are, of numbers with that zero point. */
static inline void cpu_byte_tile_clamp(cpu_byte_tile *tile, int32_t low, int32_t high, int32_t zero)
{
    tile->low = (float)(low - zero);
    tile->high = (float)(high - zero);
    tile->zero = zero;
}

void cpu_byte_tile_run(const cpu_byte_tile *tile);

typedef enum cpu_byte_isa { CPU_BYTE_C, CPU_BYTE_AVX2, CPU_BYTE_VNNI } cpu_byte_isa;
/* The best instruction set of this processor; any up to it may be asked for, by tests. */
cpu_byte_isa cpu_byte_best(void);
void cpu_byte_tile_run_on(cpu_byte_isa isa, const cpu_byte_tile *tile);
const char *cpu_byte_isa_name(void);

#endif
