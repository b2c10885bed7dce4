/* Kernels over rows: a work-group of ITEMS items takes one row and joins its items' results in a tree, so a
 * row has the same bits in every run. ITEMS is 1 on devices that run a group's items one after the other.
 * Sums are made in blocks, which keeps their error small on long rows. */
#define BLOCK 128
#define ROW get_group_id(0)
#define ITEM (int)get_local_id(0)

#define JOIN(name, both)                                                                                     \
    float name(float v, __local float *part)                                                                 \
    {                                                                                                        \
        part[ITEM] = v;                                                                                      \
        for (int count = ITEMS / 2; count > 0; count /= 2) {                                                 \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
            float a = part[ITEM], b = ITEM < count ? part[ITEM + count] : a;                                 \
            if (ITEM < count)                                                                                \
                part[ITEM] = both;                                                                           \
        }                                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        v = part[0];                                                                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        return v;                                                                                            \
    }
JOIN(join_sum, a + b)
JOIN(join_max, isnan(b) || b > a ? b : a)

/* sum = the sum over this item's elements e of the row */
#define ROW_SUM(sum, length, addend)                                                                         \
    for (int block = ITEM; block < length; block += BLOCK * ITEMS) {                                         \
        float of_block = 0.0f;                                                                               \
        int limit = min(length, block + BLOCK * ITEMS);                                                      \
        for (int e = block; e < limit; e += ITEMS)                                                           \
            of_block += addend;                                                                              \
        sum += of_block;                                                                                     \
    }

/* Rows of `length` elements that lie `inner` apart. LOGARITHM: LogSoftmax. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void softmax_rows(IN(x), OUT(y), int length,
                                                                              int inner)
{
    __local float part[ITEMS];
    ulong begin = (ulong)(ROW / inner) * length * inner + ROW % inner;
    float top = -INFINITY, sum = 0.0f;
    x += x_begin + begin;
    y += y_begin + begin;
    for (int e = ITEM; e < length; e += ITEMS) {
        float v = LOAD(x, e * inner);
        top = isnan(v) || v > top ? v : top;
    }
    top = join_max(top, part);
    ROW_SUM(sum, length, exp(LOAD(x, e * inner) - top))
    sum = join_sum(sum, part);
#ifdef LOGARITHM
    sum = log(sum);
    for (int e = ITEM; e < length; e += ITEMS)
        STORE(y, e * inner, LOAD(x, e * inner) - top - sum);
#else
    sum = 1.0f / sum;
    for (int e = ITEM; e < length; e += ITEMS)
        STORE(y, e * inner, exp(LOAD(x, e * inner) - top) * sum);
#endif
}

/* y = (x - mean) / sqrt(variance + epsilon) * scale + bias, mean and variance of the row; element e of row r
 * has scale and bias number (r % groups * span + e) / inner. RMS: mean is 0. STATISTICS: both are results
 * too. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
normalize_rows(IN(x), IN(scale), IN(bias), OUT(y),
#ifdef STATISTICS
               __global float *restrict means, ulong means_begin, __global float *restrict inverses,
               ulong inverses_begin,
#endif
               int length, int groups, int span, int inner, float epsilon)
{
    __local float part[ITEMS];
    ulong begin = (ulong)ROW * length;
    int first = ROW % groups * span;
    float mean = 0.0f, variance = 0.0f;
    x += x_begin + begin;
    y += y_begin + begin;
#ifndef RMS
    ROW_SUM(mean, length, LOAD(x, e))
    mean = join_sum(mean, part) / (float)length;
#endif
    ROW_SUM(variance, length, (LOAD(x, e) - mean) * (LOAD(x, e) - mean))
    variance = join_sum(variance, part) / (float)length;
    float inverse = 1.0f / sqrt(variance + epsilon);
    for (int e = ITEM; e < length; e += ITEMS) {
        float v = (LOAD(x, e) - mean) * inverse;
#ifdef SCALE
        v *= LOAD(scale, scale_begin + (first + e) / inner);
#endif
#ifdef BIAS
        v += LOAD(bias, bias_begin + (first + e) / inner);
#endif
        STORE(y, e, v);
    }
#ifdef STATISTICS
    if (ITEM == 0) {
        means[means_begin + ROW] = mean;
        inverses[inverses_begin + ROW] = inverse;
    }
#endif
}

/* One result a row: the mean, the maximum (MAXIMUM), or the norm (NORM). */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void pool_row(IN(x), OUT(y), int length, float p)
{
    __local float part[ITEMS];
    x += x_begin + (ulong)ROW * length;
#ifdef MAXIMUM
    float result = -INFINITY;
    for (int e = ITEM; e < length; e += ITEMS) {
        float v = LOAD(x, e);
        result = isnan(v) || v > result ? v : result;
    }
    result = join_max(result, part);
#else
    float result = 0.0f;
#ifdef NORM
    ROW_SUM(result, length, (p == 1.0f ? fabs(LOAD(x, e)) : pow(fabs(LOAD(x, e)), p)))
    result = join_sum(result, part);
    result = p == 1.0f ? result : pow(result, 1.0f / p);
#else
    ROW_SUM(result, length, LOAD(x, e))
    result = join_sum(result, part) / (float)length;
#endif
#endif
    if (ITEM == 0)
        STORE(y, y_begin + ROW, result);
}

/* ---- one item for each element --------------------------------------------------------------- */

/* Channels are axis 1: ids are position, channel, batch. */
__kernel void batch_normalize(IN(x), IN(scale), IN(bias), IN(mean), IN(variance), OUT(y), int inner,
                              float epsilon)
{
    int c = get_global_id(1);
    if (get_global_id(0) >= inner)
        return;
    ulong at = ((ulong)get_global_id(2) * get_global_size(1) + c) * inner + get_global_id(0);
    float factor = LOAD(scale, scale_begin + c) / sqrt(LOAD(variance, variance_begin + c) + epsilon);
    float v = (LOAD(x, x_begin + at) - LOAD(mean, mean_begin + c)) * factor + LOAD(bias, bias_begin + c);
    STORE(y, y_begin + at, v);
}

__kernel void local_response(IN(x), OUT(y), int inner, int size, float alpha, float beta, float k)
{
    int c = get_global_id(1), channels = get_global_size(1);
    if (get_global_id(0) >= inner)
        return;
    ulong begin = (ulong)get_global_id(2) * channels * inner + get_global_id(0);
    int first = max(0, c - (size - 1) / 2), last = min(channels - 1, c + size / 2);
    float sum = 0.0f;
    x += x_begin + begin;
    y += y_begin + begin;
    for (int other = first; other <= last; other++)
        sum = fma(LOAD(x, other * inner), LOAD(x, other * inner), sum);
    STORE(y, c * inner, LOAD(x, c * inner) / pow(k + alpha / (float)size * sum, beta));
}

float gelu(float v)
{
    return 0.5f * v * (1.0f + erf(v * 0.70710678118654752f));
}

float gelu_by_tanh(float v)
{
    return 0.5f * v * (1.0f + tanh(0.79788456080286536f * (v + 0.044715f * v * v * v)));
}

float silu(float v)
{
    return v / (1.0f + exp(-v));
}

float hard_swish(float v)
{
    return v * clamp(v / 6.0f + 0.5f, 0.0f, 1.0f);
}

/* APPLY: what becomes of one element. */
#ifdef APPLY
__kernel void activate(IN(x), OUT(y), int count)
{
    if (get_global_id(0) >= count)
        return;
    float v = LOAD(x, x_begin + get_global_id(0));
    STORE(y, y_begin + get_global_id(0), APPLY(v));
}
#endif
