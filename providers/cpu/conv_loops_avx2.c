/* The inner loops of own convolutions for AVX2 with FMA. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma")
#include <immintrin.h>

#define LOOPS_NAME cpu_conv_loops_avx2
#define LOOPS_ISA "avx2"
#define LOOPS_WIDTH 8
#define LOOPS_VECTOR __m256
#define VEC(f) _mm256_##f
/* (tiles, vectors of weights) that are multiplied at a time: 12 sums, 2 weights and one input fit into 16
 * registers. */
#define LOOPS_PANEL 2
static const int most_tiles[LOOPS_PANEL + 1] = {0, 10, 6};
#define LOOPS_SHAPES_1(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1) X(9, 1) X(10, 1)
#define LOOPS_SHAPES_2(X) X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2)
#define LOOPS_SHAPES(X) LOOPS_SHAPES_1(X) LOOPS_SHAPES_2(X)

#include "conv_loops_impl.h"
#else
typedef int cpu_conv_loops_no_avx2;
#endif
