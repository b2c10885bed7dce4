/* The kernels of tile.h for AVX-512. Every product is one fused multiply-add on one accumulator, in the order
 * of k: an element does not depend on the tile it is computed in. */
#include "tile.h"

#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx512f")
#include <immintrin.h>

/* rows and columns are constants of the caller, so that all of `sum` lies in registers. */
static inline __attribute__((always_inline)) void tile(const float *a, int64_t a_row, const float *b,
                                                       int64_t b_row, int64_t k, float *y, int64_t y_row,
                                                       bool add, const char *fetch, const int rows,
                                                       const int columns)
{
    __m512 sum[CPU_TILE_ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            sum[r][c] = _mm512_setzero_ps();
    for (int64_t j = 0; j < k; j++) {
        __m512 x[4];
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            x[c] = _mm512_loadu_ps(b + j * b_row + 16 * c);
        if (fetch)
            __builtin_prefetch(fetch + j * 64, 0, 2);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512 u = _mm512_set1_ps(a[r * a_row + j]);
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
                sum[r][c] = _mm512_fmadd_ps(u, x[c], sum[r][c]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            float *out = y + r * y_row + 16 * c;
            _mm512_storeu_ps(out, add ? _mm512_add_ps(_mm512_loadu_ps(out), sum[r][c]) : sum[r][c]);
        }
}

/* Pairs of rows, of pairs, of fours and of eights change places; after each step a register holds what
 * belongs together twice as much. */
static void transpose16(const float *x, int64_t x_row, float *y, int64_t y_row)
{
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++)
        a[r] = _mm512_loadu_ps(x + r * x_row);
#pragma GCC unroll 8
    for (int r = 0; r < 16; r += 2) {
        b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 16; r += 4) {
        a[r] = _mm512_shuffle_ps(b[r], b[r + 2], 0x44);
        a[r + 1] = _mm512_shuffle_ps(b[r], b[r + 2], 0xee);
        a[r + 2] = _mm512_shuffle_ps(b[r + 1], b[r + 3], 0x44);
        a[r + 3] = _mm512_shuffle_ps(b[r + 1], b[r + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        b[r] = _mm512_shuffle_f32x4(a[r], a[r + 4], 0x88);
        b[r + 4] = _mm512_shuffle_f32x4(a[r], a[r + 4], 0xdd);
        b[r + 8] = _mm512_shuffle_f32x4(a[r + 8], a[r + 12], 0x88);
        b[r + 12] = _mm512_shuffle_f32x4(a[r + 8], a[r + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        _mm512_storeu_ps(y + r * y_row, _mm512_shuffle_f32x4(b[r], b[r + 8], 0x88));
        _mm512_storeu_ps(y + (r + 8) * y_row, _mm512_shuffle_f32x4(b[r], b[r + 8], 0xdd));
        _mm512_storeu_ps(y + (r + 4) * y_row, _mm512_shuffle_f32x4(b[r + 4], b[r + 12], 0x88));
        _mm512_storeu_ps(y + (r + 12) * y_row, _mm512_shuffle_f32x4(b[r + 4], b[r + 12], 0xdd));
    }
}

#define TILE(rows, columns)                                                                                  \
    static void tile_##rows##x##columns(const float *a, int64_t a_row, const float *b, int64_t b_row,        \
                                        int64_t k, float *y, int64_t y_row, bool add, const char *fetch)     \
    {                                                                                                        \
        if (fetch)                                                                                           \
            tile(a, a_row, b, b_row, k, y, y_row, add, fetch, rows, columns / 16);                           \
        else                                                                                                 \
            tile(a, a_row, b, b_row, k, y, y_row, add, NULL, rows, columns / 16);                            \
    }
#define TILES_OF(rows) TILE(rows, 16) TILE(rows, 32) TILE(rows, 48) TILE(rows, 64)
TILES_OF(1)
TILES_OF(2)
TILES_OF(3)
TILES_OF(4)
TILES_OF(5)
TILES_OF(6)

#define ENTRIES_OF(rows)                                                                                     \
    {                                                                                                        \
        tile_##rows##x16, tile_##rows##x32, tile_##rows##x48, tile_##rows##x64                               \
    }
static const cpu_tiles avx512 = {
    "avx512",
    transpose16,
    {ENTRIES_OF(1), ENTRIES_OF(2), ENTRIES_OF(3), ENTRIES_OF(4), ENTRIES_OF(5), ENTRIES_OF(6)}};
#pragma GCC pop_options

const cpu_tiles *cpu_tiles_best(void)
{
    return __builtin_cpu_supports("avx512f") ? &avx512 : NULL;
}
#else
const cpu_tiles *cpu_tiles_best(void)
{
    return NULL;
}
#endif
