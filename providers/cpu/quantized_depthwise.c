/* Convolutions of bytes with one channel a group, channels last, exact: four rows of the window are
 * multiplied by one instruction. For one row of the result and 16 channels the input rows that it meets are
 * woven together once,
 *
 *     columns: [column][quad][16 channels][4 rows]        quad: rows 0-3 of the window, 4-7
 *     weights: [16 channels' group][kernel column][quad][16 channels][4 rows]
 *
 * and every result is the sum of a few of these vectors. Padding holds the zero point. */
#include "byte_product.h"
#include "conv_dnnl.h"
#include "quantized.h"
#include "quantized_dnnl.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define LANES 16
#define QUAD_BYTES 64
#define MOST_ROWS 8
#define TOGETHER 4 /* results of one row that share a load of the weights */
/* Assembler, because the compiler moves sums about around the intrinsic. */
#define ADD_PRODUCTS(sum, bytes, by) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(by))

typedef struct depthwise_state {
    int64_t batches, channels, groups; /* groups of LANES channels */
    int64_t in[2], out[2], kernel[2], stride[2], dilation[2], pad[2];
    int64_t quads, columns; /* columns: of the woven rows */
    int64_t chunk;
    size_t buffer_bytes;
    uint8_t x_flip, x_zero; /* unsigned */
    uint8_t padding[LANES]; /* as it is stored */
    float low, high;
    int32_t zero;
    const int8_t *weights;
    const int32_t *terms; /* for each channel, padded to LANES */
    const float *multipliers;
} depthwise_state;

typedef struct depthwise_work {
    const depthwise_state *state;
    const uint8_t *x;
    uint8_t *y;
    uint8_t *buffers;
} depthwise_work;

/* ---- weaving --------------------------------------------------------------------------------- */

/* A row of the input that the window meets: column 0, the group's first channel; outside of the image a
 * piece of padding that is met again and again. */
typedef struct window_row {
    const uint8_t *at;
    int64_t step;
} window_row;

/* [4 rows][16 channels] as [16 channels][4 rows]: first by fours of channels, then within them. */
VNNI static inline __m512i weave_quad(__m128i a, __m128i b, __m128i c, __m128i d, __m512i flip)
{
    const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i within = _mm512_set4_epi32(0x0F0B0703, 0x0E0A0602, 0x0D090501, 0x0C080400);
    __m512i x = _mm512_castsi128_si512(a);
    x = _mm512_inserti32x4(x, b, 1);
    x = _mm512_inserti32x4(x, c, 2);
    x = _mm512_inserti32x4(x, d, 3);
    return _mm512_xor_si512(_mm512_shuffle_epi8(_mm512_permutexvar_epi32(fours, x), within), flip);
}

VNNI static inline __m128i load_row(const window_row *row, int64_t column, bool whole, __mmask16 mask)
{
    const uint8_t *at = row->at + column * row->step;
    return whole ? _mm_loadu_si128((const __m128i *)at) : _mm_maskz_loadu_epi8(mask, at);
}

/* One quad of the columns that lie in the image. */
VNNI static inline void weave_inside(const window_row *rows, int64_t count, int64_t out_step, __m512i flip,
                                     bool whole, __mmask16 mask, uint8_t *out)
{
    for (int64_t c = 0; c < count; c++, out += out_step)
        _mm512_store_si512(
            out, weave_quad(load_row(&rows[0], c, whole, mask), load_row(&rows[1], c, whole, mask),
                            load_row(&rows[2], c, whole, mask), load_row(&rows[3], c, whole, mask), flip));
}

VNNI static void weave(const depthwise_state *s, const window_row *rows, __mmask16 mask, uint8_t *out)
{
    const __m512i padding = _mm512_set1_epi8((char)s->x_zero), flip = _mm512_set1_epi8((char)s->x_flip);
    int64_t column = s->quads * QUAD_BYTES, left = cpu_min64(s->pad[1], s->columns);
    int64_t inside = cpu_min64(s->in[1], s->columns - left), right = s->columns - left - inside;
    for (int64_t k = 0; k < left * s->quads; k++)
        _mm512_store_si512(out + k * QUAD_BYTES, padding);
    out += left * column;
    for (int64_t quad = 0; quad < s->quads; quad++)
        if (mask == 0xFFFF)
            weave_inside(rows + quad * 4, inside, column, flip, true, mask, out + quad * QUAD_BYTES);
        else
            weave_inside(rows + quad * 4, inside, column, flip, false, mask, out + quad * QUAD_BYTES);
    out += inside * column;
    for (int64_t k = 0; k < right * s->quads; k++)
        _mm512_store_si512(out + k * QUAD_BYTES, padding);
}

/* ---- multiplying ----------------------------------------------------------------------------- */

VNNI static inline __m128i finish(const depthwise_state *s, __m512i sum, __m512 multipliers)
{
    __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), multipliers);
    x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(s->low)), _mm512_set1_ps(s->high));
    return _mm512_cvtepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(s->zero)));
}

VNNI static inline void put(uint8_t *out, __mmask16 mask, __m128i bytes)
{
    if (mask == 0xFFFF) /* masked stores of bytes are slow */
        _mm_storeu_si128((__m128i *)out, bytes);
    else
        _mm_mask_storeu_epi8(out, mask, bytes);
}

/* One row of the result, one group of channels. */
VNNI static void multiply(const depthwise_state *s, const uint8_t *woven, int64_t group, __mmask16 mask,
                          uint8_t *out)
{
    const int8_t *weights = s->weights + group * s->kernel[1] * s->quads * QUAD_BYTES;
    const __m512i terms = _mm512_loadu_si512(s->terms + group * LANES);
    const __m512 multipliers = _mm512_loadu_ps(s->multipliers + group * LANES);
    const int64_t column = s->quads * QUAD_BYTES, step = s->stride[1] * column, tap = s->dilation[1] * column;
    for (int64_t x = 0; x < s->out[1]; x += TOGETHER, woven += TOGETHER * step) {
        __m512i a = terms, b = terms, c = terms, d = terms;
        const int8_t *w = weights;
        for (int64_t k = 0; k < s->kernel[1]; k++)
            for (int64_t quad = 0; quad < s->quads; quad++, w += QUAD_BYTES) {
                const uint8_t *at = woven + k * tap + quad * QUAD_BYTES;
                __m512i by = _mm512_loadu_si512(w);
                ADD_PRODUCTS(a, _mm512_load_si512(at), by);
                ADD_PRODUCTS(b, _mm512_load_si512(at + step), by);
                ADD_PRODUCTS(c, _mm512_load_si512(at + 2 * step), by);
                ADD_PRODUCTS(d, _mm512_load_si512(at + 3 * step), by);
            }
        uint8_t *y = out + x * s->channels;
        int64_t left = s->out[1] - x;
        put(y, mask, finish(s, a, multipliers));
        if (left > 1)
            put(y + s->channels, mask, finish(s, b, multipliers));
        if (left > 2)
            put(y + 2 * s->channels, mask, finish(s, c, multipliers));
        if (left > 3)
            put(y + 3 * s->channels, mask, finish(s, d, multipliers));
    }
}

static void depthwise_row(const depthwise_work *work, int64_t row, uint8_t *woven)
{
    const depthwise_state *s = work->state;
    int64_t batch = row / s->out[0], y = row % s->out[0], line = s->in[1] * s->channels;
    const uint8_t *image = work->x + batch * s->in[0] * line;
    for (int64_t group = 0; group < s->groups; group++) {
        window_row rows[MOST_ROWS];
        int64_t first = group * LANES, n = cpu_min64(LANES, s->channels - first);
        __mmask16 mask = (__mmask16)((1u << n) - 1);
        for (int64_t k = 0; k < MOST_ROWS; k++) {
            int64_t at = y * s->stride[0] + k * s->dilation[0] - s->pad[0];
            bool inside = k < s->kernel[0] && at >= 0 && at < s->in[0];
            rows[k] =
                inside ? (window_row){image + at * line + first, s->channels} : (window_row){s->padding, 0};
        }
        weave(s, rows, mask, woven);
        multiply(s, woven, group, mask, work->y + row * s->out[1] * s->channels + first);
    }
}

static void depthwise_chunk(void *arg, int64_t begin, int64_t end)
{
    const depthwise_work *work = arg;
    const depthwise_state *s = work->state;
    uint8_t *woven = work->buffers + (size_t)(begin / s->chunk) * s->buffer_bytes;
    for (int64_t row = begin; row < end; row++)
        depthwise_row(work, row, woven);
}

static gantry_status depthwise_run(const void *opaque, const cpu_call *call)
{
    const depthwise_state *s = opaque;
    depthwise_work work = {s, call->inputs[0], call->outputs[0], call->scratch};
    cpu_parallel(call, s->batches * s->out[0], s->chunk, depthwise_chunk, &work);
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

typedef struct pack_job {
    const depthwise_state *state;
    const int8_t *weights; /* [channels][rows][columns] */
} pack_job;

static size_t weight_bytes(const depthwise_state *s)
{
    return (size_t)(s->groups * s->kernel[1] * s->quads) * QUAD_BYTES;
}

static gantry_status pack_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    const depthwise_state *s = job->state;
    int8_t *out = packed;
    memset(out, 0, weight_bytes(s));
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t row = 0; row < s->kernel[0]; row++)
            for (int64_t column = 0; column < s->kernel[1]; column++) {
                int64_t vector = (c / LANES * s->kernel[1] + column) * s->quads + row / 4;
                out[vector * QUAD_BYTES + c % LANES * 4 + row % 4] =
                    job->weights[(c * s->kernel[0] + row) * s->kernel[1] + column];
            }
    return GANTRY_OK;
}

/* What each channel adds to its sums: its bias, and the term of x's zero point. */
static gantry_status fill_channels(cpu_build *build, const cpu_qoperands *o, const cpu_qfactors *f,
                                   depthwise_state *s)
{
    int64_t taps = s->kernel[0] * s->kernel[1];
    const int32_t *bias = f->bias ? build->inputs[o->bias].data : NULL;
    int32_t *terms = cpu_state(build, (size_t)(s->groups * LANES) * sizeof *terms);
    float *multipliers = cpu_state(build, (size_t)(s->groups * LANES) * sizeof *multipliers);
    if (!terms || !multipliers)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    for (int64_t c = 0; c < s->channels; c++) {
        int32_t sum = 0;
        for (int64_t t = 0; t < taps; t++)
            sum += f->weights[c * taps + t];
        terms[c] = (int32_t)((bias ? (uint32_t)bias[c] : 0) - (uint32_t)s->x_zero * (uint32_t)sum);
        multipliers[c] = f->multipliers[c];
    }
    s->terms = terms;
    s->multipliers = multipliers;
    return GANTRY_OK;
}

static bool plan_window(cpu_build *build, depthwise_state *s)
{
    const cpu_tensor *x = &build->inputs[0], *w = &build->inputs[3], *y = &build->outputs[0];
    cpu_window window;
    if (cpu_window_read(build, w->dims + 2, 2, &window) != GANTRY_OK ||
        cpu_window_fit(build, &window) != GANTRY_OK)
        return false;
    *s = (depthwise_state){.batches = x->dims[0], .channels = x->dims[1]};
    for (int k = 0; k < 2; k++) {
        s->in[k] = x->dims[2 + k];
        s->out[k] = y->dims[2 + k];
        s->kernel[k] = w->dims[2 + k];
        s->stride[k] = window.stride[k];
        s->dilation[k] = window.dilation[k];
        s->pad[k] = window.pad[k];
    }
    s->groups = (s->channels + LANES - 1) / LANES;
    s->quads = (s->kernel[0] + 3) / 4;
    int64_t rounded = (s->out[1] + TOGETHER - 1) / TOGETHER * TOGETHER;
    s->columns = (rounded - 1) * s->stride[1] + (s->kernel[1] - 1) * s->dilation[1] + 1;
    s->buffer_bytes = (size_t)(s->columns * s->quads) * QUAD_BYTES;
    return s->kernel[0] <= MOST_ROWS && s->buffer_bytes <= (256u << 10);
}

gantry_status cpu_qdepthwise(cpu_build *build, const cpu_qoperands *o, cpu_kernel *out_kernel)
{
    const cpu_tensor *x = &build->inputs[0], *w = &build->inputs[o->w], *y = &build->outputs[0];
    cpu_qfactors f;
    if (cpu_byte_best() != CPU_BYTE_VNNI || o->w != 3 || x->rank != 4 || w->rank != 4 || x->constant ||
        x->count == 0 || w->dims[1] != 1 || w->dims[0] != x->dims[1] || y->dims[1] != x->dims[1] ||
        gantry_node_int(build->node, "group", 1) != x->dims[1])
        return GANTRY_UNSUPPORTED;
    GT_TRY(cpu_qfactors_read(build, o, w->dims[0], &f));
    depthwise_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (!plan_window(build, s))
        return GANTRY_UNSUPPORTED;
    s->x_flip = x->dtype == GANTRY_INT8 ? 0x80 : 0;
    s->x_zero = (uint8_t)((uint32_t)f.zeros[0] + s->x_flip);
    memset(s->padding, f.zeros[0], sizeof s->padding);
    s->zero = f.zeros[1];
    s->low = f.low;
    s->high = f.high;
    GT_TRY(fill_channels(build, o, &f, s));
    pack_job job = {s, f.weights};
    s->weights = cpu_pack(build, w, 0x4457424954u ^ f.weights_kind, weight_bytes(s), pack_weights, &job);
    if (!s->weights)
        return build->err->code;
    int64_t rows = s->batches * s->out[0], chunks = cpu_min64(rows, 16 * (int64_t)build->threads);
    s->chunk = (rows + chunks - 1) / chunks;
    *out_kernel = cpu_kernel_of(depthwise_run, s);
    out_kernel->name = "depthwise";
    out_kernel->isa = cpu_byte_isa_name();
    out_kernel->accumulate = GANTRY_INT32;
    out_kernel->flops = 2.0 * (double)y->count * (double)(s->kernel[0] * s->kernel[1]);
    out_kernel->threads = cpu_threads_for(build, (double)y->count);
    out_kernel->scratch_bytes = (size_t)((rows - 1) / s->chunk + 1) * s->buffer_bytes;
    out_kernel->packed_inputs = ((1u << build->input_count) - 1) & ~1u;
    build->inputs[0].layout = build->outputs[0].layout = CPU_NHWC;
    return GANTRY_OK;
}
#else
gantry_status cpu_qdepthwise(cpu_build *build, const cpu_qoperands *operands, cpu_kernel *out_kernel)
{
    return GANTRY_UNSUPPORTED;
}
#endif
