/* Convolution tiles for AVX-512: 24 sums of 16 columns, 3 inputs and a factor fill 32 registers. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#include <immintrin.h>

#define TILE_LANES 16
#define TILE_VECTOR __m512
#define TILE_NAME cpu_conv_tiles_avx512
#define TILE_ISA "avx512"
#define TILE_MANY_REGISTERS
#define TILE_MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "conv_tile_impl.h"
#else
typedef int cpu_conv_tiles_no_avx512;
#endif
