/* Convolution tiles for every processor (vectors of 4 floats), and the choice between the tables. */
typedef float tile_base __attribute__((vector_size(16)));

#define TILE_LANES 4
#define TILE_VECTOR tile_base
#define TILE_NAME cpu_conv_tiles_base
#define TILE_ISA "vector4"
#define TILE_MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#include "conv_tile_impl.h"

const int64_t cpu_conv_tile_vectors[CPU_TILE_WIDTHS] = {1, 2, 3, 6};

const cpu_conv_tiles *cpu_conv_tiles_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &cpu_conv_tiles_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &cpu_conv_tiles_avx2;
#endif
    return &cpu_conv_tiles_base;
}
