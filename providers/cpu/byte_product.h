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

/* c[i][j] = sum a b for `rows` (at most CPU_BYTE_ROWS) packed rows and the columns from `column` (a multiple
 * of 64) on, as far as they exist, without the terms of the zero points. */
void cpu_byte_block(const uint8_t *a, int64_t rows, const void *packed_b, int64_t k, int64_t n,
                    int64_t column, int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS]);
/* Adds the terms of the zero points to one row of a block; b_zeros: one for each column of the block (NULL:
 * all 0). */
void cpu_byte_correct(int32_t *c, int64_t columns, const void *packed_b, int64_t k, int64_t n, int64_t column,
                      int32_t a_sum, int32_t a_zero, const int32_t *b_zeros);
/* The instruction set of cpu_byte_block here. */
const char *cpu_byte_isa(void);

#endif
