/* Convolution tiles for AVX2 with FMA: 12 sums of 8 columns, 3 inputs and a factor fill 16 registers. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma")
#include <immintrin.h>

#define TILE_LANES 8
#define TILE_VECTOR __m256
#define TILE_NAME cpu_conv_tiles_avx2
#define TILE_ISA "avx2"
#define TILE_MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "conv_tile_impl.h"
#else
typedef int cpu_conv_tiles_no_avx2;
#endif
