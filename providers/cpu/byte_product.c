/* Exact products of 8-bit matrices in int32 (byte_product.h). */
#include "byte_product.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PANEL 16

static size_t panel_bytes(int64_t k)
{
    return (size_t)cpu_byte_depth(k) * PANEL;
}

static int64_t panel_count(int64_t n)
{
    return (n + PANEL - 1) / PANEL;
}

size_t cpu_byte_b_bytes(int64_t k, int64_t n)
{
    return (size_t)panel_count(n) * (panel_bytes(k) + PANEL * sizeof(int32_t));
}

static const int32_t *column_sums(const void *packed, int64_t k, int64_t n)
{
    return (const int32_t *)((const char *)packed + (size_t)panel_count(n) * panel_bytes(k));
}

void cpu_byte_pack_b(gantry_dtype dtype, const void *b, int64_t k, int64_t n, int64_t k_stride,
                     int64_t n_stride, void *packed)
{
    const uint8_t *in = b;
    const uint8_t flip = dtype == GANTRY_UINT8 ? 0x80 : 0; /* x - 128 as a signed byte */
    int32_t *sums = (int32_t *)((char *)packed + (size_t)panel_count(n) * panel_bytes(k));
    memset(packed, 0, cpu_byte_b_bytes(k, n));
    for (int64_t j = 0; j < n; j++) {
        int8_t *panel = (int8_t *)packed + (size_t)(j / PANEL) * panel_bytes(k) + j % PANEL * 4;
        int32_t sum = 0;
        for (int64_t i = 0; i < k; i++) {
            int8_t x = (int8_t)(in[i * k_stride + j * n_stride] ^ flip);
            panel[i / 4 * PANEL * 4 + i % 4] = x;
            sum += x;
        }
        sums[j] = sum;
    }
}

int32_t cpu_byte_pack_row(gantry_dtype dtype, const void *a, int64_t k, uint8_t *packed)
{
    const uint8_t *in = a;
    const uint8_t flip = dtype == GANTRY_INT8 ? 0x80 : 0; /* x + 128 as an unsigned byte */
    int32_t sum = 0;
    for (int64_t i = 0; i < k; i++) {
        packed[i] = in[i] ^ flip;
        sum += packed[i];
    }
    memset(packed + k, 0, (size_t)(cpu_byte_depth(k) - k));
    return sum;
}

/* Sums may wrap, as the operators say: unsigned arithmetic. */
void cpu_byte_correct(int32_t *c, int64_t columns, const void *packed_b, int64_t k, int64_t n, int64_t column,
                      int32_t a_sum, int32_t a_zero, const int32_t *b_zeros)
{
    const int32_t *sums = column_sums(packed_b, k, n) + column;
    for (int64_t j = 0; j < columns; j++) {
        uint32_t b_zero = b_zeros ? (uint32_t)b_zeros[j] : 0;
        uint32_t terms = (uint32_t)k * (uint32_t)a_zero * b_zero - b_zero * (uint32_t)a_sum -
                         (uint32_t)a_zero * (uint32_t)sums[j];
        c[j] = (int32_t)((uint32_t)c[j] + terms);
    }
}

/* One row times one panel. */
static void row_panel(const uint8_t *a, const int8_t *panel, int64_t depth, int32_t *c)
{
    int32_t sums[PANEL] = {0};
    for (int64_t i = 0; i < depth; i += 4, panel += PANEL * 4)
        for (int j = 0; j < PANEL; j++)
            sums[j] += a[i] * panel[j * 4] + a[i + 1] * panel[j * 4 + 1] + a[i + 2] * panel[j * 4 + 2] +
                       a[i + 3] * panel[j * 4 + 3];
    memcpy(c, sums, sizeof sums);
}

static void block_c(const uint8_t *a, int64_t rows, const int8_t *panels, int64_t k, int64_t count,
                    int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS])
{
    for (int64_t p = 0; p < count; p++)
        for (int64_t i = 0; i < rows; i++)
            row_panel(a + i * cpu_byte_depth(k), panels + (size_t)p * panel_bytes(k), cpu_byte_depth(k),
                      &c[i][p * PANEL]);
}

#if defined(__x86_64__)
/* Without VNNI: bytes are widened to 16 bits, because the 8-bit multiply of AVX2 saturates. Each accumulator
 * holds two partial sums for each of four columns. */
__attribute__((target("avx2"))) static void row_panel_avx2(const uint8_t *a, const int8_t *panel,
                                                           int64_t depth, int32_t *c)
{
    __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                       _mm256_setzero_si256()};
    for (int64_t i = 0; i < depth; i += 4, panel += PANEL * 4) {
        int32_t four;
        memcpy(&four, a + i, sizeof four);
        __m256i x = _mm256_cvtepu8_epi16(_mm_set1_epi32(four));
        for (int q = 0; q < 4; q++) {
            __m256i y = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(panel + q * 16)));
            sums[q] = _mm256_add_epi32(sums[q], _mm256_madd_epi16(x, y));
        }
    }
    for (int q = 0; q < 4; q++) {
        int32_t pairs[8];
        _mm256_storeu_si256((__m256i *)pairs, sums[q]);
        for (int j = 0; j < 4; j++)
            c[q * 4 + j] = pairs[2 * j] + pairs[2 * j + 1];
    }
}

static void block_avx2(const uint8_t *a, int64_t rows, const int8_t *panels, int64_t k, int64_t count,
                       int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS])
{
    for (int64_t p = 0; p < count; p++)
        for (int64_t i = 0; i < rows; i++)
            row_panel_avx2(a + i * cpu_byte_depth(k), panels + (size_t)p * panel_bytes(k), cpu_byte_depth(k),
                           &c[i][p * PANEL]);
}

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

/* rows and count are constants where this is inlined, so the accumulators are registers. */
VNNI static inline __attribute__((always_inline)) void tile_vnni(const uint8_t *a, int rows,
                                                                 const int8_t *panels, int64_t k, int count,
                                                                 int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS])
{
    __m512i sums[CPU_BYTE_ROWS][4];
    int64_t depth = cpu_byte_depth(k);
    size_t stride = panel_bytes(k);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 6
        for (int p = 0; p < count; p++)
            sums[i][p] = _mm512_setzero_si512();
    for (int64_t at = 0; at < depth; at += 4, panels += PANEL * 4) {
        __m512i b[4];
#pragma GCC unroll 6
        for (int p = 0; p < count; p++)
            b[p] = _mm512_loadu_si512(panels + (size_t)p * stride);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            int32_t four;
            memcpy(&four, a + i * depth + at, sizeof four);
            __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 6
            for (int p = 0; p < count; p++)
                sums[i][p] = _mm512_dpbusd_epi32(sums[i][p], x, b[p]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 6
        for (int p = 0; p < count; p++)
            _mm512_storeu_si512(&c[i][p * PANEL], sums[i][p]);
}

#define TILE(rows, count)                                                                                    \
    VNNI static void tile_##rows##_##count(const uint8_t *a, const int8_t *panels, int64_t k,                \
                                           int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS])                       \
    {                                                                                                        \
        tile_vnni(a, rows, panels, k, count, c);                                                             \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3) TILE(rows, 4)
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)

typedef void (*tile_fn)(const uint8_t *a, const int8_t *panels, int64_t k,
                        int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS]);
#define TILE_ROW(rows)                                                                                       \
    {                                                                                                        \
        tile_##rows##_1, tile_##rows##_2, tile_##rows##_3, tile_##rows##_4                                   \
    }
static const tile_fn tiles[CPU_BYTE_ROWS][4] = {TILE_ROW(1), TILE_ROW(2), TILE_ROW(3),
                                                TILE_ROW(4), TILE_ROW(5), TILE_ROW(6)};
#endif

typedef enum byte_isa { BYTE_C, BYTE_AVX2, BYTE_VNNI } byte_isa;

static byte_isa best_isa(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return BYTE_VNNI;
    if (__builtin_cpu_supports("avx2"))
        return BYTE_AVX2;
#endif
    return BYTE_C;
}

const char *cpu_byte_isa(void)
{
    static const char *const names[] = {"c", "avx2", "avx512_vnni"};
    return names[best_isa()];
}

void cpu_byte_block(const uint8_t *a, int64_t rows, const void *packed_b, int64_t k, int64_t n,
                    int64_t column, int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS])
{
    const int8_t *panels = (const int8_t *)packed_b + (size_t)(column / PANEL) * panel_bytes(k);
    int64_t count = cpu_min64(CPU_BYTE_COLUMNS / PANEL, panel_count(n) - column / PANEL);
    if (rows < 1 || count < 1)
        return;
    switch (best_isa()) {
#if defined(__x86_64__)
    case BYTE_VNNI:
        tiles[rows - 1][count - 1](a, panels, k, c);
        return;
    case BYTE_AVX2:
        block_avx2(a, rows, panels, k, count, c);
        return;
#endif
    default:
        block_c(a, rows, panels, k, count, c);
    }
}
