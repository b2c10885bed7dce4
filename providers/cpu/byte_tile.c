/* One tile of a product of bytes: up to 6 rows times 64 columns in registers, and what becomes of the sums
 * while they are there (byte_product.h has the layout of B). */
#include "byte_product.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PANEL 16

/* ---- any processor --------------------------------------------------------------------------- */

/* One row of sums of `columns` neighbours, the first of which is column `at` of B. */
CPU_CLONES static void store_sums(const cpu_byte_tile *t, const int32_t *sums, int64_t row, int64_t at,
                                  int64_t columns)
{
    const uint32_t a_sum = t->b_zeros ? (uint32_t)t->a_sums[row] : 0;
    int32_t c[PANEL];
    for (int64_t j = 0; j < columns; j++) {
        uint32_t zero = t->b_zeros ? (uint32_t)t->b_zeros[at + j] : 0;
        c[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)t->add[at + j] - zero * a_sum);
    }
    if (t->kind == CPU_BYTE_INT32) {
        memcpy((int32_t *)t->out + row * t->out_stride + at - t->column, c, (size_t)columns * sizeof *c);
    } else if (t->kind == CPU_BYTE_FLOAT32) {
        float *out = (float *)t->out + row * t->out_stride + at - t->column;
        for (int64_t j = 0; j < columns; j++)
            out[j] = (float)c[j] * t->multipliers[at + j];
    } else {
        uint8_t *out = (uint8_t *)t->out + row * t->out_stride + at - t->column;
        for (int64_t j = 0; j < columns; j++) {
            float rounded = rintf((float)c[j] * t->multipliers[at + j]);
            float raised = rounded > t->low ? rounded : t->low;
            out[j] = (uint8_t)((int32_t)(raised < t->high ? raised : t->high) + t->zero);
        }
    }
}

static void row_panel(const uint8_t *a, const int8_t *panel, int64_t depth, int32_t *c)
{
    int32_t sums[PANEL] = {0};
    for (int64_t i = 0; i < depth; i += 4, panel += PANEL * 4)
        for (int j = 0; j < PANEL; j++)
            sums[j] += a[i] * panel[j * 4] + a[i + 1] * panel[j * 4 + 1] + a[i + 2] * panel[j * 4 + 2] +
                       a[i + 3] * panel[j * 4 + 3];
    memcpy(c, sums, sizeof sums);
}

static void tile_c(const cpu_byte_tile *t, const int8_t *panels, int64_t columns)
{
    int64_t depth = cpu_byte_depth(t->k);
    for (int64_t at = 0; at < columns; at += PANEL, panels += depth * PANEL)
        for (int64_t i = 0; i < t->rows; i++) {
            int32_t sums[PANEL];
            row_panel(t->a + i * t->a_stride, panels, depth, sums);
            store_sums(t, sums, i, t->column + at, cpu_min64(PANEL, columns - at));
        }
}

#if defined(__x86_64__)
/* ---- AVX2 ------------------------------------------------------------------------------------ */

/* Bytes are widened to 16 bits, because the 8-bit multiply of AVX2 saturates. Each accumulator holds two
 * partial sums for each of four columns. rows is a constant where this is inlined. */
__attribute__((target("avx2"), always_inline)) static inline void
panel_avx2(const uint8_t *a, int64_t a_stride, int rows, const int8_t *panel, int64_t depth,
           int32_t sums[3][PANEL])
{
    __m256i c[3][4];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            c[i][q] = _mm256_setzero_si256();
    for (int64_t at = 0; at < depth; at += 4, panel += PANEL * 4) {
        __m256i x[3];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            int32_t four;
            memcpy(&four, a + i * a_stride + at, sizeof four);
            x[i] = _mm256_cvtepu8_epi16(_mm_set1_epi32(four));
        }
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            __m256i y = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(panel + q * 16)));
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                c[i][q] = _mm256_add_epi32(c[i][q], _mm256_madd_epi16(x[i], y));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int q = 0; q < 4; q += 2) {
            __m256i pairs = _mm256_hadd_epi32(c[i][q], c[i][q + 1]);
            _mm256_storeu_si256((__m256i *)&sums[i][q * 4], _mm256_permute4x64_epi64(pairs, 0xD8));
        }
}

#define PANEL_AVX2(rows)                                                                                     \
    __attribute__((target("avx2"))) static void panel_avx2_##rows(                                           \
        const uint8_t *a, int64_t a_stride, const int8_t *panel, int64_t depth, int32_t sums[3][PANEL])      \
    {                                                                                                        \
        panel_avx2(a, a_stride, rows, panel, depth, sums);                                                   \
    }
PANEL_AVX2(1)
PANEL_AVX2(2)
PANEL_AVX2(3)

static void tile_avx2(const cpu_byte_tile *t, const int8_t *panels, int64_t columns)
{
    typedef void (*panel_fn)(const uint8_t *a, int64_t a_stride, const int8_t *panel, int64_t depth,
                             int32_t sums[3][PANEL]);
    static const panel_fn fns[3] = {panel_avx2_1, panel_avx2_2, panel_avx2_3};
    int64_t depth = cpu_byte_depth(t->k);
    for (int64_t at = 0; at < columns; at += PANEL, panels += depth * PANEL)
        for (int64_t i = 0; i < t->rows; i += 3) {
            int32_t sums[3][PANEL];
            int64_t rows = cpu_min64(3, t->rows - i);
            fns[rows - 1](t->a + i * t->a_stride, t->a_stride, panels, depth, sums);
            for (int64_t j = 0; j < rows; j++)
                store_sums(t, sums[j], i + j, t->column + at, cpu_min64(PANEL, columns - at));
        }
}

/* ---- AVX-512 VNNI ---------------------------------------------------------------------------- */

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define VNNI_INLINE                                                                                          \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"), always_inline)) static inline

/* The sums of a tile are written here between the product and what is made of them: kept in registers for
 * both, they would be spilled within the loop. */
typedef int32_t tile_sums[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS];

VNNI_INLINE __m512i terms_of(const cpu_byte_tile *t, const int32_t *sums, int64_t row, int64_t at)
{
    __m512i c = _mm512_add_epi32(_mm512_load_si512(sums), _mm512_loadu_si512(t->add + at));
    if (!t->b_zeros)
        return c;
    __m512i a_sum = _mm512_set1_epi32(t->a_sums[row]);
    return _mm512_sub_epi32(c, _mm512_mullo_epi32(a_sum, _mm512_loadu_si512(t->b_zeros + at)));
}

VNNI_INLINE void store_row_vnni(const cpu_byte_tile *t, const int32_t *sums, int64_t row, int64_t columns)
{
    for (int64_t p = 0; p < columns; p += PANEL) {
        __mmask16 mask = columns - p >= PANEL ? (__mmask16)0xFFFF : (__mmask16)((1u << (columns - p)) - 1);
        __m512i c = terms_of(t, sums + p, row, t->column + p);
        if (t->kind == CPU_BYTE_INT32) {
            _mm512_mask_storeu_epi32((int32_t *)t->out + row * t->out_stride + p, mask, c);
            continue;
        }
        __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(c), _mm512_loadu_ps(t->multipliers + t->column + p));
        if (t->kind == CPU_BYTE_FLOAT32) {
            _mm512_mask_storeu_ps((float *)t->out + row * t->out_stride + p, mask, x);
            continue;
        }
        /* The second operand wins when one is no number: NaN becomes low. Clamped numbers are rounded by
         * the conversion; low and high are whole, so clamping first gives the same. */
        x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(t->low)), _mm512_set1_ps(t->high));
        c = _mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(t->zero));
        uint8_t *out = (uint8_t *)t->out + row * t->out_stride + p;
        if (mask == 0xFFFF) /* masked stores of bytes are slow */
            _mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8(c));
        else
            _mm_mask_storeu_epi8(out, mask, _mm512_cvtepi32_epi8(c));
    }
}

VNNI static void store_vnni(const cpu_byte_tile *t, const tile_sums sums, int64_t columns)
{
    for (int64_t row = 0; row < t->rows; row++)
        if (columns == CPU_BYTE_COLUMNS)
            store_row_vnni(t, sums[row], row, CPU_BYTE_COLUMNS);
        else
            store_row_vnni(t, sums[row], row, columns);
}

/* X is used for each of 6 rows and 4 panels; those beyond `rows` and `count`, which are constants where this
 * is inlined, vanish. The sums are variables of their own, because the compiler keeps an array of them in
 * memory; assembler, because it moves them about around the intrinsic. */
#define EACH_PANEL(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define CLEAR(i, p) __m512i c##i##p = _mm512_setzero_si512();
#define MULTIPLY(i, p)                                                                                       \
    if (rows > i && count > p)                                                                               \
        __asm__("vpdpbusd %2, %1, %0" : "+v"(c##i##p) : "v"(x), "v"(b##p));
#define STORE(i, p)                                                                                          \
    if (rows > i && count > p)                                                                               \
        _mm512_store_si512(&sums[i][p * PANEL], c##i##p);
#define CLEAR_ROW(i) EACH_PANEL(CLEAR, i)
#define STORE_ROW(i) EACH_PANEL(STORE, i)
#define MULTIPLY_ROW(i)                                                                                      \
    if (rows > i) {                                                                                          \
        memcpy(&four, a##i + at, sizeof four);                                                               \
        __m512i x = _mm512_set1_epi32(four);                                                                 \
        EACH_PANEL(MULTIPLY, i)                                                                              \
    }
#define POINT(i) const uint8_t *a##i = t->a + (i < rows ? i : 0) * t->a_stride;
#define LOAD(p) __m512i b##p = count > p ? _mm512_loadu_si512(panels + p * stride) : _mm512_setzero_si512();

VNNI_INLINE void tile_vnni(const cpu_byte_tile *t, int rows, const int8_t *panels, int count, tile_sums sums)
{
    const int64_t depth = cpu_byte_depth(t->k), stride = depth * PANEL;
    int32_t four;
    EACH_ROW(POINT)
    EACH_ROW(CLEAR_ROW)
    for (int64_t at = 0; at < depth; at += 4, panels += PANEL * 4) {
        LOAD(0) LOAD(1) LOAD(2) LOAD(3) EACH_ROW(MULTIPLY_ROW)
    }
    EACH_ROW(STORE_ROW)
}

#define TILE(rows, count)                                                                                    \
    VNNI static void tile_##rows##_##count(const cpu_byte_tile *t, const int8_t *panels, tile_sums sums)     \
    {                                                                                                        \
        tile_vnni(t, rows, panels, count, sums);                                                             \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3) TILE(rows, 4)
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)

typedef void (*tile_fn)(const cpu_byte_tile *t, const int8_t *panels, tile_sums sums);
#define TILE_ROW(rows)                                                                                       \
    {                                                                                                        \
        tile_##rows##_1, tile_##rows##_2, tile_##rows##_3, tile_##rows##_4                                   \
    }
static const tile_fn tiles[CPU_BYTE_ROWS][4] = {TILE_ROW(1), TILE_ROW(2), TILE_ROW(3),
                                                TILE_ROW(4), TILE_ROW(5), TILE_ROW(6)};

static void tile_wide(const cpu_byte_tile *t, const int8_t *panels, int64_t columns)
{
    tile_sums sums __attribute__((aligned(64)));
    tiles[t->rows - 1][(columns - 1) / PANEL](t, panels, sums);
    store_vnni(t, sums, columns);
}
#endif

/* ---- the choice ------------------------------------------------------------------------------ */

cpu_byte_isa cpu_byte_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return CPU_BYTE_VNNI;
    if (__builtin_cpu_supports("avx2"))
        return CPU_BYTE_AVX2;
#endif
    return CPU_BYTE_C;
}

const char *cpu_byte_isa_name(void)
{
    static const char *const names[] = {"c", "avx2", "avx512_vnni"};
    return names[cpu_byte_best()];
}

void cpu_byte_tile_run_on(cpu_byte_isa isa, const cpu_byte_tile *t)
{
    int64_t columns = cpu_min64(CPU_BYTE_COLUMNS, t->n - t->column);
    const int8_t *panels = (const int8_t *)t->packed_b + t->column * cpu_byte_depth(t->k);
    if (t->rows < 1 || columns < 1)
        return;
    switch (isa) {
#if defined(__x86_64__)
    case CPU_BYTE_VNNI:
        tile_wide(t, panels, columns);
        return;
    case CPU_BYTE_AVX2:
        tile_avx2(t, panels, columns);
        return;
#endif
    default:
        tile_c(t, panels, columns);
    }
}

void cpu_byte_tile_run(const cpu_byte_tile *t)
{
    cpu_byte_tile_run_on(cpu_byte_best(), t);
}
