/* Tiles of a direct convolution: a few output channels times a few vectors of neighbouring output columns
 * stay in registers while all taps pass by. One table for each instruction set (conv_tile_base.c,
 * conv_tile_avx2.c, conv_tile_avx512.c, all made from conv_tile_impl.h). */
#ifndef CPU_CONV_TILE_H
#define CPU_CONV_TILE_H

#include <stdbool.h>
#include <stdint.h>

/* y[m][column] = sum over taps of w[tap][m] * x[offsets[tap] + column], for M channels and V vectors of
 * columns; added to what y holds when `add`. Reads and writes whole vectors. */
typedef void (*cpu_conv_tile)(const float *x, const int32_t *offsets, int64_t taps, const float *w, float *y,
                              int64_t y_row, bool add);

#define CPU_TILE_CHANNELS 4 /* 1, 2, 4 and 8 */
#define CPU_TILE_WIDTHS 4   /* 1, 2, 3 and 6 vectors */
#define CPU_TILE_MAX_LANES 16
#define CPU_TILE_MAX_COLUMNS (6 * CPU_TILE_MAX_LANES)

typedef struct cpu_conv_tiles {
    const char *isa;
    int64_t lanes; /* floats of a vector */
    /* By log2 of the channels and by width; NULL: more than the registers hold. */
    cpu_conv_tile tile[CPU_TILE_CHANNELS][CPU_TILE_WIDTHS];
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
