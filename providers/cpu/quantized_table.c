/* Functions of one byte: a table of 256 results. Chains of elementwise operators between a DequantizeLinear
 * and a QuantizeLinear become one of these (fusion_qdq.c), whatever they compute. Also the range that a fused
 * activation leaves of a quantized result. */
#include "quantized.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- ranges ---------------------------------------------------------------------------------- */

static int32_t quantized(float x, float scale, int32_t zero, int32_t low, int32_t high)
{
    double y = (double)rintf(x / scale) + zero;
    return !(y > low) ? low : y < high ? (int32_t)y : high;
}

cpu_qrange cpu_qrange_of(const cpu_build *build, gantry_dtype dtype, float scale, int32_t zero)
{
    int32_t low = dtype == GANTRY_INT8 ? -128 : 0, high = low + 255;
    cpu_qrange range = {low, high, false};
    for (uint32_t k = 0; k < build->post_count; k++) {
        const cpu_post *post = &build->posts[k];
        float from = post->kind == CPU_POST_CLIP ? post->alpha : 0;
        float to = post->kind == CPU_POST_CLIP ? post->beta : INFINITY;
        int32_t floor = quantized(from, scale, zero, low, high), top = quantized(to, scale, zero, low, high);
        range.low = range.low < floor ? floor : range.low > top ? top : range.low;
        range.high = range.high > top ? top : range.high < floor ? floor : range.high;
    }
    range.clamped = range.low > low || range.high < high;
    return range;
}

gantry_status cpu_qrange_read(cpu_build *build, uint32_t scale, uint32_t zero, cpu_qrange *out_range)
{
    gantry_dtype dtype = build->outputs[0].dtype;
    const cpu_tensor *scales = cpu_input(build, scale), *zeros = cpu_input(build, zero);
    if (build->post_count && (!scales || !scales->data || (zeros && !zeros->data)))
        return cpu_unsupported(build, "an activation is fused, but the output's scale is no constant");
    *out_range = build->post_count
                     ? cpu_qrange_of(build, dtype, *(const float *)scales->data,
                                     zeros ? (int32_t)cpu_load_int(zeros->dtype, zeros->data, 0) : 0)
                     : cpu_qrange_of(build, dtype, 1, 0);
    return GANTRY_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

typedef struct table_state {
    const uint8_t *table;
    int64_t count;
    bool wide; /* AVX-512 VBMI */
} table_state;

typedef struct table_work {
    const table_state *state;
    const uint8_t *in;
    uint8_t *out;
} table_work;

static void look_up(const uint8_t *table, const uint8_t *in, uint8_t *out, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        out[k] = table[in[k]];
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi"))) static void
look_up_wide(const uint8_t *table, const uint8_t *in, uint8_t *out, int64_t n)
{
    __m512i part[4];
    for (int k = 0; k < 4; k++)
        part[k] = _mm512_loadu_si512(table + 64 * k);
    for (int64_t k = 0; k < n; k += 64) {
        __mmask64 mask = n - k >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - k)) - 1;
        __m512i x = _mm512_maskz_loadu_epi8(mask, in + k);
        __m512i low = _mm512_permutex2var_epi8(part[0], x, part[1]);
        __m512i high = _mm512_permutex2var_epi8(part[2], x, part[3]);
        _mm512_mask_storeu_epi8(out + k, mask, _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high));
    }
}
#else
#define look_up_wide look_up
#endif

static bool has_wide(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

static void table_chunk(void *arg, int64_t begin, int64_t end)
{
    const table_work *work = arg;
    (work->state->wide ? look_up_wide : look_up)(work->state->table, work->in + begin, work->out + begin,
                                                 end - begin);
}

static gantry_status table_run(const void *opaque, const cpu_call *call)
{
    const table_state *state = opaque;
    table_work work = {state, call->inputs[0], call->outputs[0]};
    cpu_parallel(call, state->count, 4 * CPU_CHUNK_ELEMENTS, table_chunk, &work);
    return GANTRY_OK;
}

/* Position by position, so any layout does. */
static gantry_status make_table(cpu_build *build, cpu_kernel *out_kernel)
{
    table_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (table_state){build->table, build->inputs[0].count, has_wide()};
    build->outputs[0].layout = build->inputs[0].layout;
    *out_kernel = cpu_kernel_of(table_run, state);
    out_kernel->name = "table";
    out_kernel->isa = state->wide ? "avx512_vbmi" : "c";
    out_kernel->accumulate = GANTRY_INT32;
    out_kernel->threads = cpu_threads_for(build, (double)state->count / 4);
    out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

const cpu_op_row cpu_table_row = {
    .op = "table", .domain = "", .types = {CPU_BYTES}, .make = make_table, .flags = CPU_ROW_PICKS_LAYOUT};
