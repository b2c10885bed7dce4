/* Convolutions over three spatial dims (fewer: the first ones are 1). Vectors hold depth, height, width; s3
 * is not used. */
#define WINDOW int4 in, int4 out, int4 window, int4 stride, int4 dilation, int4 pad
#define INSIDE(z, y, x) ((z) >= 0 && (z) < in.s0 && (y) >= 0 && (y) < in.s1 && (x) >= 0 && (x) < in.s2)

/* Each input element that a window reads, as a matrix of one row a weight and one column an output position:
 * columns[batch][row][position], for batches and positions from the given ones on. */
__kernel void conv_columns(IN(x), OUT(columns), WINDOW, int channels, int batch_first, int first, int count)
{
    int column = get_global_id(0), row = get_global_id(1), batch = get_global_id(2);
    int rows = get_global_size(1);
    if (column >= count)
        return;
    int taps = window.s0 * window.s1 * window.s2, c = row / taps, tap = row % taps;
    int kx = tap % window.s2, ky = tap / window.s2 % window.s1, kz = tap / window.s2 / window.s1;
    int at = first + column;
    int ix = at % out.s2 * stride.s2 - pad.s2 + kx * dilation.s2;
    int iy = at / out.s2 % out.s1 * stride.s1 - pad.s1 + ky * dilation.s1;
    int iz = at / out.s2 / out.s1 * stride.s0 - pad.s0 + kz * dilation.s0;
    bool inside = INSIDE(iz, iy, ix);
    int from = ((((batch_first + batch) * channels + c) * in.s0 + iz) * in.s1 + iy) * in.s2 + ix;
    float v = LOAD(x, x_begin + (inside ? from : 0));
    STORE(columns, columns_begin + ((ulong)batch * rows + row) * count + column, inside ? v : 0.0f);
}

/* One item for each output element; for few channels in a group. */
__kernel void conv_direct(IN(x), IN(w), IN(bias), OUT(y), WINDOW, int group_in, int group_out)
{
    int at = get_global_id(0), oc = get_global_id(1), batch = get_global_id(2);
    int filters = get_global_size(1), groups = filters / group_out, group = oc / group_out;
    int outs = out.s0 * out.s1 * out.s2;
    if (at >= outs)
        return;
    int ox = at % out.s2, oy = at / out.s2 % out.s1, oz = at / out.s2 / out.s1;
    int x0 = ox * stride.s2 - pad.s2, y0 = oy * stride.s1 - pad.s1, z0 = oz * stride.s0 - pad.s0;
    int from = (batch * groups + group) * group_in, taps = oc * group_in * window.s0 * window.s1 * window.s2;
    float sum = 0.0f;
    x += x_begin;
    w += w_begin;
    for (int c = 0; c < group_in; c++)
        for (int kz = 0; kz < window.s0; kz++)
            for (int ky = 0; ky < window.s1; ky++)
                for (int kx = 0; kx < window.s2; kx++) {
                    int iz = z0 + kz * dilation.s0, iy = y0 + ky * dilation.s1, ix = x0 + kx * dilation.s2;
                    bool inside = INSIDE(iz, iy, ix);
                    int k = (((from + c) * in.s0 + iz) * in.s1 + iy) * in.s2 + ix;
                    float v = LOAD(x, inside ? k : 0);
                    sum = fma(LOAD(w, taps++), inside ? v : 0.0f, sum);
                }
#ifdef BIAS
    sum += LOAD(bias, bias_begin + oc);
#endif
    STORE(y, y_begin + ((ulong)batch * filters + oc) * outs + at, sum);
}

/* For a device whose items run one after the other: an item computes EACH_ROWS filters at 16 neighbours in x.
 * The last 16 may begin before the item's own; those are computed twice, stored once. */
#ifdef EACH_ROWS
float16 load_line(__global const T *restrict row, int ix, int stride, int extent)
{
    if (stride == 1 && ix >= 0 && ix + 16 <= extent)
        return LOAD16(row, ix);
    if (stride == 2 && ix >= 0 && ix + 32 <= extent) {
        float16 near = LOAD16(row, ix), far = LOAD16(row, ix + 16);
        return (float16)(near.even, far.even);
    }
    float lanes[16];
    for (int j = 0; j < 16; j++) {
        int at = ix + j * stride;
        float v = LOAD(row, clamp(at, 0, extent - 1));
        lanes[j] = at >= 0 && at < extent ? v : 0.0f;
    }
    return vload16(0, lanes);
}

__kernel void conv_lines(IN(x), IN(w), IN(bias), OUT(y), WINDOW, int group_in, int group_out, int groups)
{
    int own = get_global_id(0) * 16, wide = min(out.s2, 16), ox = min(own, out.s2 - wide);
    int lines = out.s0 * out.s1, blocks = (group_out + EACH_ROWS - 1) / EACH_ROWS, batch = get_global_id(2);
    int line = get_global_id(1) % lines, block = get_global_id(1) / lines, group = block / blocks;
    if (own >= out.s2 || group >= groups)
        return;
    int y0 = line % out.s1 * stride.s1 - pad.s1, z0 = line / out.s1 * stride.s0 - pad.s0;
    int taps = group_in * window.s0 * window.s1 * window.s2, tap = 0, first = block % blocks * EACH_ROWS;
    float16 sum[EACH_ROWS];
    int at[EACH_ROWS];
    for (int i = 0; i < EACH_ROWS; i++) {
        sum[i] = 0.0f;
        at[i] = (group * group_out + min(first + i, group_out - 1)) * taps;
    }
    x += x_begin + ((ulong)batch * groups + group) * group_in * (in.s0 * in.s1 * in.s2);
    w += w_begin;
    for (int c = 0; c < group_in; c++)
        for (int kz = 0; kz < window.s0; kz++)
            for (int ky = 0; ky < window.s1; ky++) {
                int iz = z0 + kz * dilation.s0, iy = y0 + ky * dilation.s1;
                if (iz < 0 || iz >= in.s0 || iy < 0 || iy >= in.s1) {
                    tap += window.s2;
                    continue;
                }
                __global const T *restrict row = x + ((c * in.s0 + iz) * in.s1 + iy) * in.s2;
                for (int kx = 0; kx < window.s2; kx++, tap++) {
                    int ix = ox * stride.s2 - pad.s2 + kx * dilation.s2;
                    float16 v = load_line(row, ix, stride.s2, in.s2);
                    for (int i = 0; i < EACH_ROWS; i++)
                        sum[i] = fma((float16)(LOAD(w, at[i] + tap)), v, sum[i]);
                }
            }
    for (int i = 0; i < EACH_ROWS && first + i < group_out; i++) {
        int oc = group * group_out + first + i;
        ulong to = y_begin + (((ulong)batch * groups * group_out + oc) * lines + line) * out.s2 + ox;
        float lanes[16];
#ifdef BIAS
        sum[i] += LOAD(bias, bias_begin + oc);
#endif
        vstore16(sum[i], 0, lanes);
        for (int j = own - ox; j < wide; j++)
            STORE(y, to + j, lanes[j]);
    }
}
#endif

/* The transposed one gathers: one item for each output element looks for the inputs that reach it. Weights
 * are [channel][filter of the group][window]. */
__kernel void conv_transposed(IN(x), IN(w), IN(bias), OUT(y), WINDOW, int group_in, int group_out)
{
    int at = get_global_id(0), oc = get_global_id(1), batch = get_global_id(2);
    int filters = get_global_size(1), groups = filters / group_out, group = oc / group_out;
    int outs = out.s0 * out.s1 * out.s2;
    if (at >= outs)
        return;
    int ox = at % out.s2 + pad.s2, oy = at / out.s2 % out.s1 + pad.s1, oz = at / out.s2 / out.s1 + pad.s0;
    int taps = window.s0 * window.s1 * window.s2, plane = in.s0 * in.s1 * in.s2;
    float sum = 0.0f;
    x += x_begin + (ulong)(batch * groups + group) * group_in * plane;
    w += w_begin + (ulong)(group * group_in * group_out + oc % group_out) * taps;
    for (int kz = 0; kz < window.s0; kz++)
        for (int ky = 0; ky < window.s1; ky++)
            for (int kx = 0; kx < window.s2; kx++) {
                int iz = oz - kz * dilation.s0, iy = oy - ky * dilation.s1, ix = ox - kx * dilation.s2;
                if (iz < 0 || iy < 0 || ix < 0 || iz % stride.s0 || iy % stride.s1 || ix % stride.s2)
                    continue;
                iz /= stride.s0;
                iy /= stride.s1;
                ix /= stride.s2;
                if (iz >= in.s0 || iy >= in.s1 || ix >= in.s2)
                    continue;
                int k = (iz * in.s1 + iy) * in.s2 + ix, tap = (kz * window.s1 + ky) * window.s2 + kx;
                for (int c = 0; c < group_in; c++)
                    sum = fma(LOAD(w, c * group_out * taps + tap), LOAD(x, c * plane + k), sum);
            }
#ifdef BIAS
    sum += LOAD(bias, bias_begin + oc);
#endif
    STORE(y, y_begin + ((ulong)batch * filters + oc) * outs + at, sum);
}
