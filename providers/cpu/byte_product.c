/* Packing the operands of products of 8-bit matrices (byte_product.h). */
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

/* ---- B: four rows of 16 columns become one group of 64 bytes --------------------------------- */

/* Any strides, and what is left at the edges: `columns` of the panel, rows from `from` on. */
static void pack_rest(const uint8_t *in, uint8_t flip, int64_t from, int64_t k, int64_t columns,
                      int64_t k_stride, int64_t n_stride, int8_t *panel)
{
    for (int64_t i = from; i < k; i++)
        for (int64_t j = 0; j < columns; j++)
            panel[i / 4 * PANEL * 4 + j * 4 + i % 4] = (int8_t)(in[i * k_stride + j * n_stride] ^ flip);
}

/* Columns side by side. Returns how many rows were packed. */
static int64_t pack_rows(const uint8_t *in, uint8_t flip, int64_t k, int64_t k_stride, int8_t *panel)
{
    int64_t i = 0;
#if defined(__x86_64__)
    const __m128i flips = _mm_set1_epi8((char)flip);
    for (; i + 4 <= k; i += 4, panel += PANEL * 4) {
        __m128i row[4];
        for (int j = 0; j < 4; j++)
            row[j] = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(in + (i + j) * k_stride)), flips);
        __m128i low[2] = {_mm_unpacklo_epi8(row[0], row[1]), _mm_unpacklo_epi8(row[2], row[3])};
        __m128i high[2] = {_mm_unpackhi_epi8(row[0], row[1]), _mm_unpackhi_epi8(row[2], row[3])};
        _mm_storeu_si128((__m128i *)panel, _mm_unpacklo_epi16(low[0], low[1]));
        _mm_storeu_si128((__m128i *)(panel + 16), _mm_unpackhi_epi16(low[0], low[1]));
        _mm_storeu_si128((__m128i *)(panel + 32), _mm_unpacklo_epi16(high[0], high[1]));
        _mm_storeu_si128((__m128i *)(panel + 48), _mm_unpackhi_epi16(high[0], high[1]));
    }
#endif
    return i;
}

/* Columns that are contiguous along k: their fours stay together. */
static int64_t pack_columns(const uint8_t *in, uint8_t flip, int64_t k, int64_t columns, int64_t n_stride,
                            int8_t *panel)
{
    const uint32_t flips = flip * 0x01010101u;
    int64_t fours = k / 4;
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < fours; i++) {
            uint32_t four;
            memcpy(&four, in + j * n_stride + i * 4, sizeof four);
            four ^= flips;
            memcpy(panel + i * PANEL * 4 + j * 4, &four, sizeof four);
        }
    return fours * 4;
}

CPU_CLONES static void sum_panel(const int8_t *panel, int64_t depth, int32_t *sums)
{
    int32_t totals[PANEL] = {0};
    for (int64_t i = 0; i < depth; i += 4, panel += PANEL * 4)
        for (int j = 0; j < PANEL; j++)
            totals[j] += panel[j * 4] + panel[j * 4 + 1] + panel[j * 4 + 2] + panel[j * 4 + 3];
    memcpy(sums, totals, sizeof totals);
}

void cpu_byte_pack_panels(gantry_dtype dtype, const void *b, int64_t k, int64_t n, int64_t k_stride,
                          int64_t n_stride, int64_t first, int64_t count, void *packed)
{
    const uint8_t flip = dtype == GANTRY_UINT8 ? 0x80 : 0; /* x - 128 as a signed byte */
    int32_t *sums = (int32_t *)((char *)packed + (size_t)panel_count(n) * panel_bytes(k));
    for (int64_t p = first; p < first + count && p < panel_count(n); p++) {
        const uint8_t *in = (const uint8_t *)b + p * PANEL * n_stride;
        int8_t *panel = (int8_t *)packed + (size_t)p * panel_bytes(k);
        int64_t columns = cpu_min64(PANEL, n - p * PANEL), done = 0;
        if (columns < PANEL || k % 4)
            memset(panel, 0, panel_bytes(k));
        if (n_stride == 1 && columns == PANEL)
            done = pack_rows(in, flip, k, k_stride, panel);
        else if (k_stride == 1)
            done = pack_columns(in, flip, k, columns, n_stride, panel);
        pack_rest(in, flip, done, k, columns, k_stride, n_stride, panel);
        sum_panel(panel, cpu_byte_depth(k), sums + p * PANEL);
    }
}

void cpu_byte_pack_b(gantry_dtype dtype, const void *b, int64_t k, int64_t n, int64_t k_stride,
                     int64_t n_stride, void *packed)
{
    cpu_byte_pack_panels(dtype, b, k, n, k_stride, n_stride, 0, panel_count(n), packed);
}

const int32_t *cpu_byte_column_sums(const void *packed, int64_t k, int64_t n)
{
    return (const int32_t *)((const char *)packed + (size_t)panel_count(n) * panel_bytes(k));
}

bool cpu_byte_needs_sums(gantry_dtype b_dtype, const cpu_tensor *zeros)
{
    if (!zeros)
        return b_dtype == GANTRY_UINT8;
    for (int64_t k = 0; zeros->data && k < zeros->count; k++)
        if (cpu_byte_b_zero(b_dtype, (int32_t)cpu_load_int(zeros->dtype, zeros->data, k)) != 0)
            return true;
    return !zeros->data || !zeros->constant;
}

/* ---- A --------------------------------------------------------------------------------------- */

CPU_CLONES int32_t cpu_byte_row_sum(const uint8_t *a, int64_t k)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += a[i];
    return sum;
}

CPU_CLONES static void flip_row(const uint8_t *in, uint8_t flip, int64_t k, uint8_t *packed)
{
    for (int64_t i = 0; i < k; i++)
        packed[i] = in[i] ^ flip;
}

int32_t cpu_byte_pack_row(gantry_dtype dtype, const void *a, int64_t k, uint8_t *packed)
{
    flip_row(a, dtype == GANTRY_INT8 ? 0x80 : 0, k, packed); /* x + 128 as an unsigned byte */
    memset(packed + k, 0, (size_t)(cpu_byte_depth(k) - k));
    return cpu_byte_row_sum(packed, k);
}
