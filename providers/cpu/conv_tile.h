/* Inner loops of own convolutions.
 *
 * Direct: a few output channels times a few vectors of neighbouring output columns stay in registers while
 * all taps pass by. Depthwise: a vector is a block of channels, and a few neighbouring pixels stay in
 * registers. One table for each instruction set (conv_tile_base.c,
 * conv_tile_avx2.c, conv_tile_avx512.c, all made from conv_tile_impl.h). */
#ifndef CPU_CONV_TILE_H
#define CPU_CONV_TILE_H

#include <stdbool.h>
#include <stdint.h>

/* y[m][column] = sum over taps of w[tap][m] * x[offsets[tap] + column], for M channels and V vectors of
 * columns; added to what y holds when `add`. Reads and writes whole vectors. */
typedef void (*cpu_conv_tile)(const float *x, const int32_t *offsets, int64_t taps, const float *w, float *y,
                              int64_t y_row, bool add);

/* One block of channels of one output row. Taps that lie outside of the input are left out: rows of them by
 * x, w and taps[0], columns by first_tap and last_tap. */
typedef struct cpu_depthwise_row {
    const float *x;         /* block of channels at the first tap's row, column 0 of the input */
    const float *w;         /* [taps[0]][taps[1]][lanes] */
    const float *bias;      /* [lanes] */
    int64_t taps[2];        /* rows and columns of the window */
    int64_t x_tap[2], step; /* floats between rows and columns of taps, and between output pixels */
} cpu_depthwise_row;

/* `count` neighbouring output pixels, the first of which has its tap column 0 at x + column (which may lie
 * outside); only tap columns first_tap .. last_tap - 1 count. */
typedef void (*cpu_depthwise_run)(const cpu_depthwise_row *row, int64_t column, int64_t first_tap,
                                  int64_t last_tap, int64_t count, float *y);

#define CPU_TILE_CHANNELS 4 /* 1, 2, 4 and 8 */
#define CPU_TILE_WIDTHS 4   /* 1, 2, 3 and 6 vectors */
#define CPU_TILE_MAX_LANES 16
#define CPU_TILE_MAX_COLUMNS (6 * CPU_TILE_MAX_LANES)

typedef struct cpu_conv_tiles {
    const char *isa;
    int64_t lanes; /* floats of a vector */
    /* By log2 of the channels and by width; NULL: more than the registers hold. */
    cpu_conv_tile tile[CPU_TILE_CHANNELS][CPU_TILE_WIDTHS];
    cpu_depthwise_run depthwise[2]; /* the sums; their SiLU */
} cpu_conv_tiles;

extern const int64_t cpu_conv_tile_vectors[CPU_TILE_WIDTHS];

/* The table for this processor. Thread-safe, cheap. */
const cpu_conv_tiles *cpu_conv_tiles_best(void);

extern const cpu_conv_tiles cpu_conv_tiles_base;
#if defined(__x86_64__)
extern const cpu_conv_tiles cpu_conv_tiles_avx2;
extern const cpu_conv_tiles cpu_conv_tiles_avx512;
#endif

#endif
