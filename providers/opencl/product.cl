/* c[z][m][n] = alpha * sum of a[z][m][k] * b[z][k][n] + beta * bias[z][m][n]. Strides are in elements;
 * batches z are counted over up to eight axes, innermost first, along which an operand may stand still
 * (stride 0). */
#define OPERANDS                                                                                             \
    IN(a), IN(b), IN(bias), OUT(c), int rows, int columns, int depth, int c_first, int8 batch_dims,          \
        int8 a_batch, int8 b_batch, int8 bias_batch, int8 c_batch, int4 row_strides, int4 column_strides,    \
        float alpha, float beta
#define A_ROW row_strides.s0
#define A_COLUMN column_strides.s0
#define B_ROW row_strides.s1
#define B_COLUMN column_strides.s1
#define BIAS_ROW row_strides.s2
#define BIAS_COLUMN column_strides.s2
#define C_ROW row_strides.s3

int batch_offset(int z, int8 batch_dims, int8 strides)
{
    int d[8], s[8], at = 0;
    vstore8(batch_dims, 0, d);
    vstore8(strides, 0, s);
    for (int axis = 0; axis < 8 && z; axis++) {
        at += z % d[axis] * s[axis];
        z /= d[axis];
    }
    return at;
}

#define BEGIN(z)                                                                                             \
    a += a_begin + batch_offset(z, batch_dims, a_batch);                                                     \
    b += b_begin + batch_offset(z, batch_dims, b_batch);                                                     \
    bias += bias_begin + batch_offset(z, batch_dims, bias_batch);                                            \
    c += c_begin + c_first + batch_offset(z, batch_dims, c_batch)

#ifdef BIAS
#define FINISH(sum, m, n) fma(beta, LOAD(bias, (m)*BIAS_ROW + (n)*BIAS_COLUMN), alpha *(sum))
#else
#define FINISH(sum, m, n) (alpha * (sum))
#endif

/* A work-group computes a tile of 64 x 64, an item 4 x 4 of it; operands pass through local memory. */
#define TILE 64
#define STEP 16
#define EACH 4
#define SIDE (TILE / EACH)
__kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void product_tiles(OPERANDS)
{
    __local float left[STEP][TILE], right[STEP][TILE];
    int x = get_local_id(0), y = get_local_id(1), item = y * SIDE + x;
    int m0 = get_group_id(1) * TILE, n0 = get_group_id(0) * TILE;
    float sum[EACH][EACH];
    BEGIN(get_global_id(2));
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            sum[i][j] = 0.0f;
    for (int k0 = 0; k0 < depth; k0 += STEP) {
        for (int e = item; e < STEP * TILE; e += SIDE * SIDE) {
            int k = e % STEP, m = e / STEP;
            left[k][m] =
                m0 + m < rows && k0 + k < depth ? LOAD(a, (m0 + m) * A_ROW + (k0 + k) * A_COLUMN) : 0.0f;
        }
        for (int e = item; e < STEP * TILE; e += SIDE * SIDE) {
            int n = e % TILE, k = e / TILE;
            right[k][n] =
                n0 + n < columns && k0 + k < depth ? LOAD(b, (k0 + k) * B_ROW + (n0 + n) * B_COLUMN) : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < STEP; k++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    sum[i][j] = fma(left[k][y + i * SIDE], right[k][x + j * SIDE], sum[i][j]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int m = m0 + y + i * SIDE, n = n0 + x + j * SIDE;
            if (m < rows && n < columns)
                STORE(c, m * C_ROW + n, FINISH(sum[i][j], m, n));
        }
}

/* Few rows: a work-group computes WIDE columns of a row, SLICES items share the depth. */
#ifdef WIDE
__kernel __attribute__((reqd_work_group_size(WIDE, SLICES, 1))) void product_vector(OPERANDS)
{
    __local float part[SLICES][WIDE];
    int x = get_local_id(0), slice = get_local_id(1);
    int n = get_global_id(0), m = get_group_id(1);
    float sum = 0.0f;
    BEGIN(get_global_id(2));
    if (n < columns)
        for (int k = slice; k < depth; k += SLICES)
            sum = fma(LOAD(a, m * A_ROW + k * A_COLUMN), LOAD(b, k * B_ROW + n * B_COLUMN), sum);
    part[slice][x] = sum;
    for (int half_count = SLICES / 2; half_count > 0; half_count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice < half_count)
            part[slice][x] += part[slice + half_count][x];
    }
    if (slice == 0 && n < columns)
        STORE(c, m * C_ROW + n, FINISH(part[0][x], m, n));
}
#endif

/* For a device whose items run one after the other: an item computes EACH_ROWS rows of 16 columns. Columns of
 * b are neighbours. The last 16 columns may begin before the item's own; those are computed twice, stored
 * once. */
#ifdef EACH_ROWS
__kernel void product_rows(OPERANDS)
{
    int own = get_global_id(0) * 16, m0 = get_global_id(1) * EACH_ROWS, wide = min(columns, 16);
    int n0 = min(own, columns - wide);
    if (own >= columns)
        return;
    float16 sum[EACH_ROWS];
    int at[EACH_ROWS];
    BEGIN(get_global_id(2));
    for (int i = 0; i < EACH_ROWS; i++) {
        sum[i] = 0.0f;
        at[i] = min(m0 + i, rows - 1) * A_ROW;
    }
    if (wide == 16)
        for (int k = 0; k < depth; k++) {
            float16 right = LOAD16(b, k * B_ROW + n0);
            for (int i = 0; i < EACH_ROWS; i++)
                sum[i] = fma((float16)(LOAD(a, at[i] + k * A_COLUMN)), right, sum[i]);
        }
    else
        for (int k = 0; k < depth; k++) {
            float lanes[16];
            for (int j = 0; j < 16; j++)
                lanes[j] = LOAD(b, k * B_ROW + min(j, wide - 1));
            float16 right = vload16(0, lanes);
            for (int i = 0; i < EACH_ROWS; i++)
                sum[i] = fma((float16)(LOAD(a, at[i] + k * A_COLUMN)), right, sum[i]);
        }
    for (int i = 0; i < EACH_ROWS && m0 + i < rows; i++) {
        float lanes[16];
        vstore16(sum[i], 0, lanes);
        for (int j = own - n0; j < wide; j++)
            STORE(c, (m0 + i) * C_ROW + n0 + j, FINISH(lanes[j], m0 + i, n0 + j));
    }
}

/* The same where rows of a and columns of b are dense: an item computes EACH_ROWS rows of one column. */
__kernel void product_dots(OPERANDS)
{
    int n = get_global_id(0), m0 = get_global_id(1) * EACH_ROWS, k = 0;
    if (n >= columns)
        return;
    float16 sum[EACH_ROWS];
    int at[EACH_ROWS];
    BEGIN(get_global_id(2));
    for (int i = 0; i < EACH_ROWS; i++) {
        sum[i] = 0.0f;
        at[i] = min(m0 + i, rows - 1) * A_ROW;
    }
    for (; k + 16 <= depth; k += 16) {
        float16 right = LOAD16(b, n * B_COLUMN + k);
        for (int i = 0; i < EACH_ROWS; i++)
            sum[i] = fma(LOAD16(a, at[i] + k), right, sum[i]);
    }
    for (int i = 0; i < EACH_ROWS && m0 + i < rows; i++) {
        float8 eight = sum[i].lo + sum[i].hi;
        float4 four = eight.lo + eight.hi;
        float2 two = four.lo + four.hi;
        float one = two.x + two.y;
        for (int rest = k; rest < depth; rest++)
            one = fma(LOAD(a, at[i] + rest), LOAD(b, n * B_COLUMN + rest), one);
        STORE(c, (m0 + i) * C_ROW + n, FINISH(one, m0 + i, n));
    }
}
#endif
