/* The tiles of direct convolutions: every size of every instruction set this processor runs, against sums in
 * double. */
#include "providers/cpu/conv_tile.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { TAPS = 37, SPREAD = 200, Y_ROW = CPU_TILE_MAX_COLUMNS + 5 };

static float number(int k)
{
    return (float)((k * 37 + 11) % 64 - 32) / 16.0f;
}

static void check_tile(const cpu_conv_tiles *tiles, int log2, int width, bool add)
{
    static float x[SPREAD + CPU_TILE_MAX_COLUMNS], w[TAPS * 8], y[8 * Y_ROW];
    int32_t offsets[TAPS];
    int channels = 1 << log2, columns = (int)(cpu_conv_tile_vectors[width] * tiles->lanes);
    for (int k = 0; k < SPREAD + CPU_TILE_MAX_COLUMNS; k++)
        x[k] = number(k);
    for (int k = 0; k < TAPS * channels; k++)
        w[k] = number(3 * k + 1);
    for (int k = 0; k < 8 * Y_ROW; k++)
        y[k] = 100;
    for (int t = 0; t < TAPS; t++)
        offsets[t] = t * 53 % SPREAD;
    tiles->tile[log2][width](x, offsets, TAPS, w, y, Y_ROW, add);
    for (int m = 0; m < 8; m++)
        for (int c = 0; c < Y_ROW; c++) {
            double wanted = 100;
            if (m < channels && c < columns) {
                wanted = add ? 100 : 0;
                for (int t = 0; t < TAPS; t++)
                    wanted += (double)w[t * channels + m] * (double)x[offsets[t] + c];
            }
            cr_assert(fabs((double)y[m * Y_ROW + c] - wanted) < 1e-3,
                      "%s %dx%d channel %d column %d: %g, want %g", tiles->isa, channels, columns, m, c,
                      (double)y[m * Y_ROW + c], wanted);
        }
}

/* One row of 4 tap rows and 3 tap columns, of which columns first .. last-1 count. */
static void check_depthwise(const cpu_conv_tiles *tiles, bool silu, int64_t step, int64_t first, int64_t last)
{
    enum { ROWS = 4, COLUMNS = 3, COUNT = 15, X_ROW = 40 };
    static float x[ROWS * X_ROW * CPU_TILE_MAX_LANES], w[ROWS * COLUMNS * CPU_TILE_MAX_LANES];
    float y[(COUNT + 1) * CPU_TILE_MAX_LANES], bias[CPU_TILE_MAX_LANES];
    int64_t lanes = tiles->lanes, dilation = 2;
    for (int k = 0; k < ROWS * X_ROW * CPU_TILE_MAX_LANES; k++)
        x[k] = number(k);
    for (int k = 0; k < ROWS * COLUMNS * CPU_TILE_MAX_LANES; k++)
        w[k] = number(3 * k + 1) / 4;
    for (int k = 0; k < CPU_TILE_MAX_LANES; k++)
        bias[k] = number(5 * k);
    cpu_depthwise_row row = {x, w, bias, {ROWS, COLUMNS}, {X_ROW * lanes, dilation * lanes}, step * lanes};
    for (int64_t count = 0; count <= COUNT; count++) {
        for (int k = 0; k < (COUNT + 1) * CPU_TILE_MAX_LANES; k++)
            y[k] = 100;
        tiles->depthwise[silu](&row, 2 * lanes, first, last, count, y);
        for (int64_t k = 0; k < (count + 1) * lanes; k++) {
            double wanted = (double)bias[k % lanes];
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t j = first; j < last; j++)
                    wanted +=
                        (double)
                            x[i * X_ROW * lanes + (2 + k / lanes * step + j * dilation) * lanes + k % lanes] *
                        (double)w[(i * COLUMNS + j) * lanes + k % lanes];
            wanted = silu ? wanted / (1 + exp(-wanted)) : wanted;
            wanted = k < count * lanes ? wanted : 100;
            cr_assert(fabs((double)y[k] - wanted) < 1e-4, "%s step %d taps %d..%d element %d: %g, want %g",
                      tiles->isa, (int)step, (int)first, (int)last, (int)k, (double)y[k], wanted);
        }
    }
}

static void check_table(const cpu_conv_tiles *tiles)
{
    int count = 0;
    for (int log2 = 0; log2 < CPU_TILE_CHANNELS; log2++)
        for (int width = 0; width < CPU_TILE_WIDTHS; width++)
            for (int add = 0; add < 2 && tiles->tile[log2][width]; add++, count++)
                check_tile(tiles, log2, width, add);
    cr_assert_gt(count, 20);
    for (int silu = 0; silu < 2; silu++) {
        check_depthwise(tiles, silu, 1, 0, 3);
        check_depthwise(tiles, silu, 2, 1, 3);
        check_depthwise(tiles, silu, 1, 0, 0);
    }
}

Test(conv_tile, every_instruction_set)
{
    check_table(&cpu_conv_tiles_base);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        check_table(&cpu_conv_tiles_avx2);
    if (cpu_conv_tiles_best() == &cpu_conv_tiles_avx512)
        check_table(&cpu_conv_tiles_avx512);
#endif
}

/* A kernel asks for one vector when there is nothing wider, and for one channel when there is one left. */
Test(conv_tile, smallest_is_always_there)
{
    const cpu_conv_tiles *tables[] = {
        &cpu_conv_tiles_base,
#if defined(__x86_64__)
        &cpu_conv_tiles_avx2,
        &cpu_conv_tiles_avx512
#endif
    };
    for (size_t k = 0; k < sizeof tables / sizeof tables[0]; k++) {
        cr_assert_leq(tables[k]->lanes, CPU_TILE_MAX_LANES);
        cr_assert_not_null(tables[k]->tile[0][0]);
        for (int log2 = 0; log2 < CPU_TILE_CHANNELS; log2++)
            cr_assert(tables[k]->tile[log2][0] || !tables[k]->tile[log2][1]);
    }
}
