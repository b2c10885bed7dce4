/* The inner loops of own convolutions for AVX-512. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#include <immintrin.h>

#define LOOPS_NAME cpu_conv_loops_avx512
#define LOOPS_ISA "avx512"
#define LOOPS_WIDTH 16
#define LOOPS_VECTOR __m512
#define VEC(f) _mm512_##f
/* (tiles, vectors of weights) that are multiplied at a time: 24 sums, 4 weights and one input fit into 32
 * registers. */
#define LOOPS_PANEL 4
static const int most_tiles[LOOPS_PANEL + 1] = {0, 14, 12, 8, 6};
#define LOOPS_SHAPES_1(X)                                                                                    \
    X(1, 1)                                                                                                  \
    X(2, 1)                                                                                                  \
    X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1) X(9, 1) X(10, 1) X(11, 1) X(12, 1) X(13, 1) X(14, 1)
#define LOOPS_SHAPES_2(X)                                                                                    \
    X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2) X(7, 2) X(8, 2) X(9, 2) X(10, 2) X(11, 2) X(12, 2)
#define LOOPS_SHAPES_3(X) X(1, 3) X(2, 3) X(3, 3) X(4, 3) X(5, 3) X(6, 3) X(7, 3) X(8, 3)
#define LOOPS_SHAPES_4(X) X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)
#define LOOPS_SHAPES(X) LOOPS_SHAPES_1(X) LOOPS_SHAPES_2(X) LOOPS_SHAPES_3(X) LOOPS_SHAPES_4(X)

#include "conv_loops_impl.h"
#else
typedef int cpu_conv_loops_no_avx512;
#endif
