/* The tiles of conv_tile.h for one instruction set. The including file sets the target before any header and
 * defines TILE_LANES (floats of a vector), TILE_VECTOR (its type), TILE_NAME (the table), TILE_ISA (text) and
 * TILE_MULTIPLY_ADD(a, b, c); TILE_MANY_REGISTERS when there are 32. */
#include "conv_tile.h"

#define TILE_PIXELS 8 /* of a depthwise tile: as many independent sums as hide the latency of an addition */

typedef TILE_VECTOR vf;
typedef int32_t vi __attribute__((vector_size(TILE_LANES * 4)));
#define VECTOR_LANES TILE_LANES
#include "vector_exp.h"

typedef float vf_unaligned __attribute__((vector_size(TILE_LANES * 4), aligned(4), may_alias));

static inline __attribute__((always_inline)) vf load(const float *p)
{
    return (vf)(*(const vf_unaligned *)p);
}

/* Both loops over m and v have constant bounds: the sums live in registers. */
#define TILE(M, V)                                                                                           \
    static void tile_##M##x##V(const float *x, const int32_t *offsets, int64_t taps, const float *w,         \
                               float *y, int64_t y_row, bool add)                                            \
    {                                                                                                        \
        vf sum[M][V];                                                                                        \
        TILE_EACH(m, M)                                                                                      \
        TILE_EACH(v, V)                                                                                      \
        sum[m][v] = (vf){0};                                                                                 \
        for (int64_t t = 0; t < taps; t++) {                                                                 \
            const float *from = x + offsets[t];                                                              \
            vf in[V];                                                                                        \
            TILE_EACH(v, V)                                                                                  \
            in[v] = load(from + v * TILE_LANES);                                                             \
            TILE_EACH(m, M)                                                                                  \
            {                                                                                                \
                vf factor = vector_all(w[t * M + m]);                                                        \
                TILE_EACH(v, V)                                                                              \
                sum[m][v] = TILE_MULTIPLY_ADD(factor, in[v], sum[m][v]);                                     \
            }                                                                                                \
        }                                                                                                    \
        TILE_EACH(m, M)                                                                                      \
        TILE_EACH(v, V)                                                                                      \
        {                                                                                                    \
            float *to = y + m * y_row + v * TILE_LANES;                                                      \
            if (add)                                                                                         \
                sum[m][v] += load(to);                                                                       \
            *(vf_unaligned *)to = (vf_unaligned)sum[m][v];                                                   \
        }                                                                                                    \
    }
#define TILE_EACH(index, count) _Pragma("GCC unroll 8") for (int index = 0; index < (count); index++)

TILE(1, 1)
TILE(1, 2)
TILE(1, 3)
TILE(1, 6)
TILE(2, 1)
TILE(2, 2)
TILE(2, 3)
TILE(2, 6)
TILE(4, 1)
TILE(4, 2)
TILE(4, 3)
#ifdef TILE_MANY_REGISTERS
TILE(4, 6)
TILE(8, 1)
TILE(8, 2)
TILE(8, 3)
#endif

/* `pixels` and `silu` are known when this is compiled. The activation of one tile fills the time in which the
 * next one waits for memory. */
static inline __attribute__((always_inline)) void depthwise_pixels(const int pixels, const bool silu,
                                                                   const cpu_depthwise_row *r, const float *x,
                                                                   int64_t first_tap, int64_t last_tap,
                                                                   float *y)
{
    vf sum[TILE_PIXELS];
    TILE_EACH(p, pixels)
    sum[p] = load(r->bias);
    for (int64_t i = 0; i < r->taps[0]; i++)
        for (int64_t j = first_tap; j < last_tap; j++) {
            const float *from = x + i * r->x_tap[0] + j * r->x_tap[1];
            vf factor = load(r->w + (i * r->taps[1] + j) * TILE_LANES);
            TILE_EACH(p, pixels)
            sum[p] = TILE_MULTIPLY_ADD(load(from + p * r->step), factor, sum[p]);
        }
    TILE_EACH(p, pixels)
    *(vf_unaligned *)(y + p * TILE_LANES) = (vf_unaligned)(silu ? vector_silu(sum[p], 1.0f) : sum[p]);
}

static inline __attribute__((always_inline)) void depthwise(const bool silu, const cpu_depthwise_row *r,
                                                            int64_t column, int64_t first_tap,
                                                            int64_t last_tap, int64_t count, float *y)
{
    const float *x = r->x + column;
    int64_t k = 0;
    for (; k + TILE_PIXELS <= count; k += TILE_PIXELS)
        depthwise_pixels(TILE_PIXELS, silu, r, x + k * r->step, first_tap, last_tap, y + k * TILE_LANES);
    for (; k + 4 <= count; k += 4)
        depthwise_pixels(4, silu, r, x + k * r->step, first_tap, last_tap, y + k * TILE_LANES);
    for (; k + 2 <= count; k += 2)
        depthwise_pixels(2, silu, r, x + k * r->step, first_tap, last_tap, y + k * TILE_LANES);
    if (k < count)
        depthwise_pixels(1, silu, r, x + k * r->step, first_tap, last_tap, y + k * TILE_LANES);
}

static void depthwise_plain(const cpu_depthwise_row *r, int64_t column, int64_t first_tap, int64_t last_tap,
                            int64_t count, float *y)
{
    depthwise(false, r, column, first_tap, last_tap, count, y);
}

static void depthwise_silu(const cpu_depthwise_row *r, int64_t column, int64_t first_tap, int64_t last_tap,
                           int64_t count, float *y)
{
    depthwise(true, r, column, first_tap, last_tap, count, y);
}

const cpu_conv_tiles TILE_NAME = {TILE_ISA,
                                  TILE_LANES,
                                  {{tile_1x1, tile_1x2, tile_1x3, tile_1x6},
                                   {tile_2x1, tile_2x2, tile_2x3, tile_2x6},
#ifdef TILE_MANY_REGISTERS
                                   {tile_4x1, tile_4x2, tile_4x3, tile_4x6},
                                   {tile_8x1, tile_8x2, tile_8x3, 0}
#else
                                   {tile_4x1, tile_4x2, tile_4x3, 0},
                                   {0}
#endif
                                  },
                                  {depthwise_plain, depthwise_silu}};
