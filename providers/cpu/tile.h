/* The inner kernels of products: rows of A over packed panels of B. Those of many rows keep up to 6 rows by
 * up to 64 columns in registers through all of k. */
#ifndef CPU_TILE_H
#define CPU_TILE_H

#include "cpu.h"

#define CPU_PANEL 64 /* columns of a panel: four AVX-512 registers, the width oneDNN packs with as well */

/* product_small.c, for kernels that multiply inside: B [k, n] packed once in panels of 64 columns, then any
 * rows of A. */
size_t cpu_panel_bytes(int64_t k, int64_t n);
void cpu_panel_pack(const cpu_unaligned_f32 *b, int64_t b_row, int64_t b_column, int64_t k, int64_t n,
                    float *packed);
/* Columns first..first+63 (a multiple of 64) of y = a * B for `rows` rows. */
void cpu_panel_product(const float *a, int64_t a_row, int64_t rows, const float *packed, int64_t k, int64_t n,
                       int64_t first, float *y, int64_t y_row);

/* y [rows, 64] = a [rows, k] * b [k, 64], any strides of rows. */
void cpu_panel_rows(const float *a, int64_t a_row, int64_t rows, const float *b, int64_t b_row, int64_t k,
                    float *y, int64_t y_row);

#define CPU_TILE_ROWS 6 /* 24 accumulators, 4 columns of B and one element of A fit into 32 registers */

/* y[r][c] = (add ? y[r][c] : 0) + sum_k a[r][k] * b[k][c] for the rows and columns that the kernel is made
 * for. With `fetch`, one line of it is asked for in each of the k steps: what the next kernels read. */
typedef void (*cpu_tile_fn)(const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t k, float *y,
                            int64_t y_row, bool add, const char *fetch);

/* Kernels by rows - 1 and columns / 16 - 1. */
typedef struct cpu_tiles {
    const char *isa;
    /* y[c][r] = x[r][c] of 16 rows and columns */
    void (*transpose)(const float *x, int64_t x_row, float *y, int64_t y_row);
    cpu_tile_fn by_size[CPU_TILE_ROWS][4];
} cpu_tiles;

/* The table for this processor, or NULL when it has no AVX-512: then oneDNN's products are the faster ones.
 */
const cpu_tiles *cpu_tiles_best(void);

/* `count` rows in parts of at most `most` that differ by one row at most; part k begins at cpu_part_begin. */
static inline int64_t cpu_part_count(int64_t count, int64_t most)
{
    return (count + most - 1) / most;
}

static inline int64_t cpu_part_begin(int64_t count, int64_t parts, int64_t k)
{
    int64_t size = count / parts, larger = count % parts;
    return k * size + (k < larger ? k : larger);
}

#endif
