/* Pools over three spatial dims (fewer: the first ones are 1): one item for each output element. Vectors hold
 * depth, height, width. `end` is the padding behind the input that counts for an average. */
#define WINDOW int4 in, int4 out, int4 window, int4 stride, int4 dilation, int4 pad, int4 end

#define PLACE                                                                                                \
    int at = get_global_id(0), plane = get_global_id(1), outs = out.s0 * out.s1 * out.s2;                    \
    if (at >= outs)                                                                                          \
        return;                                                                                              \
    int x0 = at % out.s2 * stride.s2 - pad.s2, y0 = at / out.s2 % out.s1 * stride.s1 - pad.s1;               \
    int z0 = at / out.s2 / out.s1 * stride.s0 - pad.s0;                                                      \
    x += x_begin + (ulong)plane * (in.s0 * in.s1 * in.s2);                                                   \
    y += y_begin + (ulong)plane * outs

#define EACH_TAP                                                                                             \
    for (int iz = z0, kz = 0; kz < window.s0; kz++, iz += dilation.s0)                                       \
        for (int iy = y0, ky = 0; ky < window.s1; ky++, iy += dilation.s1)                                   \
            for (int ix = x0, kx = 0; kx < window.s2; kx++, ix += dilation.s2)

#define INSIDE (iz >= 0 && iz < in.s0 && iy >= 0 && iy < in.s1 && ix >= 0 && ix < in.s2)

/* INDICES: also where the maximum lies, in the whole input; COLUMN_MAJOR: counted along the columns. */
__kernel void pool_max(IN(x), OUT(y),
#ifdef INDICES
                       __global long *restrict indices, ulong indices_begin,
#endif
                       WINDOW)
{
    PLACE;
    float best = -INFINITY;
    int where = 0;
    bool first = true;
    EACH_TAP
    {
        if (!INSIDE)
            continue;
        float v = LOAD(x, (iz * in.s1 + iy) * in.s2 + ix);
        if (first || v > best || isnan(v)) {
            best = v;
#ifdef COLUMN_MAJOR
            where = (ix * in.s1 + iy) * in.s0 + iz;
#else
            where = (iz * in.s1 + iy) * in.s2 + ix;
#endif
            first = false;
        }
    }
    STORE(y, at, best);
#ifdef INDICES
    indices[indices_begin + (ulong)plane * outs + at] = (long)plane * (in.s0 * in.s1 * in.s2) + where;
#endif
}

/* NORM: the sum of |x|^p, and its root, else the mean. */
__kernel void pool_sum(IN(x), OUT(y), WINDOW, int include_pad, float p)
{
    PLACE;
    float sum = 0.0f;
    int count = 0;
    EACH_TAP
    {
        count += include_pad && iz < in.s0 + end.s0 && iy < in.s1 + end.s1 && ix < in.s2 + end.s2 ? 1 : 0;
        if (!INSIDE)
            continue;
        float v = LOAD(x, (iz * in.s1 + iy) * in.s2 + ix);
#ifdef NORM
        sum += p == 1.0f ? fabs(v) : p == 2.0f ? v * v : pow(fabs(v), p);
#else
        sum += v;
#endif
        count += include_pad ? 0 : 1;
    }
#ifdef NORM
    STORE(y, at, p == 1.0f ? sum : p == 2.0f ? sqrt(sum) : pow(sum, 1.0f / p));
#else
    STORE(y, at, count ? sum / (float)count : 0.0f);
#endif
}
