/* The tiles of conv_tile.h for one instruction set. The including file sets the target before any header and
 * defines TILE_LANES (floats of a vector), TILE_VECTOR (its type), TILE_NAME (the table), TILE_ISA (text) and
 * TILE_MULTIPLY_ADD(a, b, c); TILE_MANY_REGISTERS when there are 32. */
#include "conv_tile.h"

typedef TILE_VECTOR vf;
typedef float vf_unaligned __attribute__((vector_size(TILE_LANES * 4), aligned(4), may_alias));

static inline __attribute__((always_inline)) vf load(const float *p)
{
    return (vf)(*(const vf_unaligned *)p);
}

static inline __attribute__((always_inline)) vf all(float x)
{
    return x - (vf){0};
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
                vf factor = all(w[t * M + m]);                                                               \
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
                                  }};
