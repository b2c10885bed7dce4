/* The loops of conv_loops.h for one instruction set. The including file sets the target before any header,
 * and defines LOOPS_NAME, LOOPS_ISA, LOOPS_WIDTH, LOOPS_VECTOR, VEC(intrinsic), LOOPS_PANEL (vectors of the
 * widest panel), most_tiles (multiplied at a time, by vectors of the panel) and LOOPS_SHAPES(X), which lists
 * X(tiles, vectors) for all of them. */
#include "conv_loops.h"

#define W LOOPS_WIDTH

typedef LOOPS_VECTOR vf;
typedef int32_t vi __attribute__((vector_size(W * 4)));
#define VECTOR_LANES W
#include "vector_exp.h"

/* Some are handed on as pointers, which only an optimizing compiler sees through. */
#ifdef __OPTIMIZE__
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline __attribute__((unused))
#endif
/* A loop whose count is known when this is compiled. Sanitizers check every load and store: unrolled, that
 * takes the compiler minutes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EACH(k, n) _Pragma("GCC unroll 1") for (int k = 0; k < (n); k++)
#else
#define EACH(k, n) _Pragma("GCC unroll 16") for (int k = 0; k < (n); k++)
#endif

#define MOST_TILES 14 /* of all shapes */
#define SQRT_2 1.41421356237309505f
#define SQRT_HALF 0.70710678118654752f

INLINE vf load(const float *p)
{
    return VEC(loadu_ps)(p);
}

INLINE void store(float *p, vf x)
{
    VEC(storeu_ps)(p, x);
}

INLINE vf all(float x)
{
    return VEC(set1_ps)(x);
}

/* a * b + c, rounded once */
INLINE vf fma3(vf a, vf b, vf c)
{
    return VEC(fmadd_ps)(a, b, c);
}

INLINE vf add(vf a, vf b)
{
    return VEC(add_ps)(a, b);
}

INLINE vf sub(vf a, vf b)
{
    return VEC(sub_ps)(a, b);
}

/* c - a * b */
INLINE vf fnma3(vf a, vf b, vf c)
{
    return VEC(fnmadd_ps)(a, b, c);
}

/* In this order NaN stays NaN. */
INLINE vf clamp(vf low, vf high, vf x)
{
    return VEC(min_ps)(high, VEC(max_ps)(low, x));
}

/* ---- products -------------------------------------------------------------------------------- */

/* `rows` tiles times `panel` vectors; both are known when this is compiled. */
INLINE void multiply_rows(const int rows, const int panel, const float *v, int64_t v_block, const float *u,
                          int64_t channels, float *m, int64_t m_vector, const char *ahead, int64_t ahead_step)
{
    vf sums[MOST_TILES][LOOPS_PANEL];
    EACH (r, rows)
        EACH (k, panel)
            sums[r][k] = all(0);
    for (int64_t done = 0; done < channels; done += W, v += v_block) {
        int64_t count = channels - done < W ? channels - done : W;
        for (int64_t c = 0; c < count; c++, u += panel * W, ahead += ahead_step) {
            _mm_prefetch(ahead, _MM_HINT_T1);
            _mm_prefetch(ahead + 64, _MM_HINT_T1);
            vf weights[LOOPS_PANEL];
            EACH (k, panel)
                weights[k] = load(u + k * W);
            EACH (r, rows) {
                vf x = all(v[r * W + c]);
                EACH (k, panel)
                    sums[r][k] = fma3(x, weights[k], sums[r][k]);
            }
        }
    }
    EACH (r, rows)
        EACH (k, panel)
            store(m + k * m_vector + r * W, sums[r][k]);
}

typedef void (*multiply_fn)(const float *v, int64_t v_block, const float *u, int64_t channels, float *m,
                            int64_t m_vector, const char *ahead, int64_t ahead_step);

#define MULTIPLY(rows, panel)                                                                                \
    static void multiply_##rows##x##panel(const float *v, int64_t v_block, const float *u, int64_t channels, \
                                          float *m, int64_t m_vector, const char *ahead, int64_t ahead_step) \
    {                                                                                                        \
        multiply_rows(rows, panel, v, v_block, u, channels, m, m_vector, ahead, ahead_step);                 \
    }
#define ENTRY(rows, panel) [panel][rows] = multiply_##rows##x##panel,
LOOPS_SHAPES(MULTIPLY)
static const multiply_fn multiply_table[LOOPS_PANEL + 1][MOST_TILES + 1] = {LOOPS_SHAPES(ENTRY)};

/* Groups of rows of nearly the same size: a last group of one would read the weights for little work. While
 * the first two groups are multiplied, the next weights (they lie behind these) are brought from memory: two
 * lines for each channel, about what memory gives in that time. */
static void multiply(const float *v, int64_t v_block, int64_t tiles, const float *u, int64_t channels,
                     int panel, float *m, int64_t m_vector)
{
    int64_t groups = (tiles + most_tiles[panel] - 1) / most_tiles[panel];
    const char *next = (const char *)(u + channels * panel * W);
    for (int64_t g = 0, done = 0; g < groups; g++) {
        int64_t rows = (tiles - done) / (groups - g);
        multiply_table[panel][rows](v + done * W, v_block, u, channels, m + done * W, m_vector,
                                    g < 2 ? next + g * channels * 128 : (const char *)u, g < 2 ? 128 : 0);
        done += rows;
    }
}

/* ---- input ----------------------------------------------------------------------------------- */

/* One row of transformed inputs; s holds the six columns. */
INLINE void input_row_4(const vf *s, float *v, int64_t v_point)
{
    vf even = fnma3(all(2.0f), s[2], s[4]), odd = fnma3(all(2.0f), s[1], s[3]);
    store(v, add(fnma3(all(2.5f), s[2], s[0]), s[4]));
    store(v + v_point, fma3(all(SQRT_HALF), odd, even));
    store(v + 2 * v_point, fnma3(all(SQRT_HALF), odd, even));
    even = fnma3(all(0.5f), s[2], s[4]), odd = fnma3(all(0.5f), s[1], s[3]);
    store(v + 3 * v_point, fma3(all(SQRT_2), odd, even));
    store(v + 4 * v_point, fnma3(all(SQRT_2), odd, even));
    store(v + 5 * v_point, add(fnma3(all(2.5f), s[3], s[1]), s[5]));
}

/* A row for 0 (first = 0) or infinity (first = 1). */
INLINE void input_outer_row_4(const float *x, int64_t row, float *v, int64_t v_point)
{
    vf s[6];
    EACH (j, 6)
        s[j] = add(fnma3(all(2.5f), load(x + 2 * row + j * W), load(x + j * W)), load(x + 4 * row + j * W));
    input_row_4(s, v, v_point);
}

/* The two rows for +-root; square is the square of the other root. */
INLINE void input_inner_rows_4(const float *x, int64_t row, float root, float square, float *v,
                               int64_t v_point)
{
    vf plus[6], minus[6];
    EACH (j, 6) {
        vf even = fnma3(all(square), load(x + 2 * row + j * W), load(x + 4 * row + j * W));
        vf odd = fnma3(all(square), load(x + row + j * W), load(x + 3 * row + j * W));
        plus[j] = fma3(all(root), odd, even);
        minus[j] = fnma3(all(root), odd, even);
    }
    input_row_4(plus, v, v_point);
    input_row_4(minus, v + 6 * v_point, v_point);
}

static void input_block_4(const float *x, int64_t row, float *v, int64_t v_point)
{
    input_outer_row_4(x, row, v, v_point);
    input_inner_rows_4(x, row, SQRT_HALF, 2.0f, v + 6 * v_point, v_point);
    input_inner_rows_4(x, row, SQRT_2, 0.5f, v + 18 * v_point, v_point);
    input_outer_row_4(x + row, row, v + 30 * v_point, v_point);
}

INLINE void input_row_2(const vf *s, float *v, int64_t v_point)
{
    store(v, sub(s[0], s[2]));
    store(v + v_point, add(s[1], s[2]));
    store(v + 2 * v_point, sub(s[2], s[1]));
    store(v + 3 * v_point, sub(s[3], s[1]));
}

static void input_block_2(const float *x, int64_t row, float *v, int64_t v_point)
{
    vf s[4][4];
    EACH (j, 4) {
        vf d0 = load(x + j * W), d1 = load(x + row + j * W), d2 = load(x + 2 * row + j * W),
           d3 = load(x + 3 * row + j * W);
        s[0][j] = sub(d0, d2);
        s[1][j] = add(d1, d2);
        s[2][j] = sub(d2, d1);
        s[3][j] = sub(d3, d1);
    }
    EACH (i, 4)
        input_row_2(s[i], v + i * 4 * v_point, v_point);
}

/* Stride 2, a row: the even columns for +-1/2, +-5/4 and infinity, then the odd ones as they are. */
INLINE void input_row_4_stride_2(const vf *s, float *v, int64_t v_point)
{
    vf even = fnma3(all(1.5625f), s[0], s[4]), odd = fnma3(all(1.5625f), s[2], s[6]);
    store(v, fma3(all(0.5f), even, odd));
    store(v + v_point, fnma3(all(0.5f), even, odd));
    even = fnma3(all(0.25f), s[0], s[4]), odd = fnma3(all(0.25f), s[2], s[6]);
    store(v + 2 * v_point, fma3(all(1.25f), even, odd));
    store(v + 3 * v_point, fnma3(all(1.25f), even, odd));
    store(v + 4 * v_point, fma3(all(0.390625f), s[0], fnma3(all(1.8125f), s[4], s[8])));
    EACH (j, 4)
        store(v + (5 + j) * v_point, s[2 * j + 1]);
}

/* The two rows of points for +-root; square is the square of the other root. */
INLINE void input_rows_4_stride_2(const float *x, int64_t row, float root, float square, float *v,
                                  int64_t v_point)
{
    vf plus[9], minus[9];
    EACH (j, 9) {
        vf even = fnma3(all(square), load(x + j * W), load(x + 4 * row + j * W));
        vf odd = fnma3(all(square), load(x + 2 * row + j * W), load(x + 6 * row + j * W));
        plus[j] = fma3(all(root), even, odd);
        minus[j] = fnma3(all(root), even, odd);
    }
    input_row_4_stride_2(plus, v, v_point);
    input_row_4_stride_2(minus, v + 9 * v_point, v_point);
}

static void input_block_4_stride_2(const float *x, int64_t row, float *v, int64_t v_point)
{
    vf s[9];
    input_rows_4_stride_2(x, row, 0.5f, 1.5625f, v, v_point);
    input_rows_4_stride_2(x, row, 1.25f, 0.25f, v + 18 * v_point, v_point);
    EACH (j, 9)
        s[j] = fma3(all(0.390625f), load(x + j * W),
                    fnma3(all(1.8125f), load(x + 4 * row + j * W), load(x + 8 * row + j * W)));
    input_row_4_stride_2(s, v + 36 * v_point, v_point);
    for (int i = 0; i < 4; i++) {
        EACH (j, 9)
            s[j] = load(x + (2 * i + 1) * row + j * W);
        input_row_4_stride_2(s, v + (45 + 9 * i) * v_point, v_point);
    }
}

typedef void (*input_block_fn)(const float *x, int64_t row, float *v, int64_t v_point);

/* A tile that reaches over the edge is copied, with zeros around what is inside. */
INLINE void input_tile(const int side, const input_block_fn block, const cpu_conv_source *s, const float *x,
                       float *v, int64_t v_point)
{
    if (s->top == 0 && s->left == 0 && s->bottom == side && s->right == side) {
        block(x + s->first, s->row, v, v_point);
        return;
    }
    float buffer[81 * W] __attribute__((aligned(64)));
    EACH (k, side * side)
        store(buffer + k * W, all(0));
    for (int64_t i = s->top; i < s->bottom; i++)
        for (int64_t j = s->left; j < s->right; j++)
            store(buffer + (i * side + j) * W, load(x + (s->first + i * s->row + j * W)));
    block(buffer, side * W, v, v_point);
}

static void input_4(const cpu_conv_source *s, const float *x, float *v, int64_t v_point)
{
    input_tile(6, input_block_4, s, x, v, v_point);
}

static void input_2(const cpu_conv_source *s, const float *x, float *v, int64_t v_point)
{
    input_tile(4, input_block_2, s, x, v, v_point);
}

static void input_4_stride_2(const cpu_conv_source *s, const float *x, float *v, int64_t v_point)
{
    input_tile(9, input_block_4_stride_2, s, x, v, v_point);
}

/* ---- output ---------------------------------------------------------------------------------- */

/* `kind` is known when this is compiled. */
INLINE vf activate(const cpu_conv_activation kind, vf low, vf high, vf x)
{
    if (kind == CPU_CONV_SILU)
        return vector_silu(x, 1.0f);
    if (kind == CPU_CONV_HARD_SWISH)
        return VEC(mul_ps)(x, clamp(all(0.0f), all(1.0f), fma3(x, all(1.0f / 6.0f), all(0.5f))));
    return clamp(low, high, x);
}

/* Keeps the lanes of channels that exist. */
INLINE vf channel_mask(const cpu_conv_finish *f, int64_t block)
{
    static const int32_t ones_then_zeros[2 * W] = {
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
#if LOOPS_WIDTH == 16
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
        -1
#endif
    };
    int64_t left = f->channels - block * W;
    return load((const float *)(ones_then_zeros + (left < W ? W - left : 0)));
}

/* All results of a tile, all channels of a block. */
INLINE void finish_whole(const cpu_conv_finish *f, const int m, const cpu_conv_activation kind, vf (*y)[4],
                         const cpu_conv_target *t, const float *residual)
{
    const vf bias = load(f->bias + t->block * W), low = all(f->low), high = all(f->high);
    float *out = t->y + t->offset;
    if (residual) {
        EACH (k, m * m)
            y[k / m][k % m] = add(y[k / m][k % m], load(residual + k / m * t->row + k % m * W));
    }
    EACH (k, m * m)
        store(out + k / m * t->row + k % m * W, activate(kind, low, high, add(y[k / m][k % m], bias)));
}

INLINE void finish_kind(const cpu_conv_finish *f, const int m, const cpu_conv_activation kind, vf (*y)[4],
                        const cpu_conv_target *t)
{
    const float *residual = f->residual_input >= 0 ? t->inputs[f->residual_input] + t->offset : NULL;
    if (t->rows == m && t->columns == m && f->channels - t->block * W >= W) {
        finish_whole(f, m, kind, y, t, residual);
        return;
    }
    const vf bias = load(f->bias + t->block * W), low = all(f->low), high = all(f->high);
    const vf mask = channel_mask(f, t->block);
    for (int i = 0; i < m && i < t->rows; i++)
        for (int j = 0; j < m && j < t->columns; j++) {
            vf x = y[i][j];
            if (residual)
                x = add(x, load(residual + i * t->row + j * W));
            store(t->y + t->offset + i * t->row + j * W,
                  VEC(and_ps)(mask, activate(kind, low, high, add(x, bias))));
        }
}

INLINE void add_residual(const float *residual, const int m, const cpu_conv_target *t, float *values)
{
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            float *at = values + (i * m + j) * W;
            store(at, add(load(at), load(residual + t->offset + i * t->row + j * W)));
        }
}

static __attribute__((noinline)) void finish_posts(const cpu_conv_finish *f, const int m, float *values,
                                                   const cpu_conv_target *t)
{
    for (uint32_t k = 0; k < f->post_count; k++) {
        const cpu_conv_post *post = &f->posts[k];
        if (post->kind == CPU_POST_RESIDUAL)
            add_residual(t->inputs[post->input], m, t, values);
        else
            post->unary(values, values, m * m * W, post->parameters);
    }
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++)
            store(t->y + t->offset + i * t->row + j * W,
                  VEC(and_ps)(channel_mask(f, t->block), load(values + (i * m + j) * W)));
}

INLINE void finish(const cpu_conv_finish *f, const int m, vf (*y)[4], const cpu_conv_target *t)
{
    switch (f->activation) {
    case CPU_CONV_CLAMP:
        finish_kind(f, m, CPU_CONV_CLAMP, y, t);
        return;
    case CPU_CONV_SILU:
        finish_kind(f, m, CPU_CONV_SILU, y, t);
        return;
    case CPU_CONV_HARD_SWISH:
        finish_kind(f, m, CPU_CONV_HARD_SWISH, y, t);
        return;
    case CPU_CONV_POSTS:
        break;
    }
    float values[16 * W] __attribute__((aligned(64)));
    const vf bias = load(f->bias + t->block * W);
    EACH (k, m * m)
        store(values + k * W, add(y[k / m][k % m], bias));
    finish_posts(f, m, values, t);
}

INLINE void finish_pixels_kind(const cpu_conv_finish *f, const cpu_conv_activation kind, const float *m,
                               int64_t m_vector, int64_t spread, int64_t count, int64_t block, float *y,
                               const float *residual)
{
    const vf bias = load(f->bias + block * W), low = all(f->low), high = all(f->high);
    const vf mask = channel_mask(f, block);
    /* In the order of y: lines are written once, side by side. */
    for (int64_t j = 0; j < count; j++)
        for (int64_t b = 0; b < spread; b++) {
            int64_t at = (j * spread + b) * W;
            vf x = add(load(m + b * m_vector + j * W), bias);
            if (residual)
                x = add(x, load(residual + at));
            store(y + at, VEC(and_ps)(mask, activate(kind, low, high, x)));
        }
}

INLINE void finish_pixels_spread(const cpu_conv_finish *f, const float *m, int64_t m_vector, int64_t spread,
                                 int64_t count, int64_t block, float *y, const float *residual)
{
    if (f->activation == CPU_CONV_SILU)
        finish_pixels_kind(f, CPU_CONV_SILU, m, m_vector, spread, count, block, y, residual);
    else if (f->activation == CPU_CONV_HARD_SWISH)
        finish_pixels_kind(f, CPU_CONV_HARD_SWISH, m, m_vector, spread, count, block, y, residual);
    else
        finish_pixels_kind(f, CPU_CONV_CLAMP, m, m_vector, spread, count, block, y, residual);
}

/* A spread of 1 that the compiler knows is one loop. */
static void finish_pixels(const cpu_conv_finish *f, const float *m, int64_t m_vector, int64_t spread,
                          int64_t count, int64_t block, float *y, const float *residual)
{
    if (spread == 1)
        finish_pixels_spread(f, m, m_vector, 1, count, block, y, residual);
    else
        finish_pixels_spread(f, m, m_vector, spread, count, block, y, residual);
}

/* Whether a sum over the results is finite: then all of them are. */
INLINE bool all_finite(const int m, vf (*y)[4])
{
    vf sum = y[0][0];
    EACH (k, m * m - 1)
        sum = add(sum, y[(k + 1) / m][(k + 1) % m]);
    vf zero = sub(sum, sum);
#if LOOPS_WIDTH == 16
    return _mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q) == 0;
#else
    return _mm256_movemask_ps(_mm256_cmp_ps(zero, zero, _CMP_UNORD_Q)) == 0;
#endif
}

INLINE void output_4_of_6(const vf *m, vf *y)
{
    vf s1 = add(m[1], m[2]), d1 = sub(m[1], m[2]), s2 = add(m[3], m[4]), d2 = sub(m[3], m[4]);
    y[0] = add(add(m[0], s1), s2);
    y[1] = fma3(all(SQRT_2), d2, VEC(mul_ps)(all(SQRT_HALF), d1));
    y[2] = fma3(all(2.0f), s2, VEC(mul_ps)(all(0.5f), s1));
    y[3] = fma3(all(2.0f * SQRT_2), d2, fma3(all(0.5f * SQRT_HALF), d1, m[5]));
}

typedef void (*output_line_fn)(const vf *m, vf *y);

/* `points` of each side become 4. */
INLINE bool output_tile_4(const int points, const output_line_fn line, const cpu_conv_finish *f,
                          const float *m, int64_t m_point, const cpu_conv_target *t)
{
    vf half[4][9], y[4][4];
    EACH (j, points) {
        vf column[9], out[4];
        EACH (i, points)
            column[i] = load(m + (i * points + j) * m_point);
        line(column, out);
        EACH (i, 4)
            half[i][j] = out[i];
    }
    EACH (i, 4)
        line(half[i], y[i]);
    if (!all_finite(4, y))
        return false;
    finish(f, 4, y, t);
    return true;
}

static bool output_4(const cpu_conv_finish *f, const float *m, int64_t m_point, const cpu_conv_target *t)
{
    return output_tile_4(6, output_4_of_6, f, m, m_point, t);
}

static bool output_2(const cpu_conv_finish *f, const float *m, int64_t m_point, const cpu_conv_target *t)
{
    vf half[2][4], y[2][4];
    EACH (j, 4) {
        vf m0 = load(m + j * m_point), m1 = load(m + (4 + j) * m_point), m2 = load(m + (8 + j) * m_point),
           m3 = load(m + (12 + j) * m_point);
        half[0][j] = add(add(m0, m1), m2);
        half[1][j] = add(sub(m1, m2), m3);
    }
    EACH (i, 2) {
        y[i][0] = add(add(half[i][0], half[i][1]), half[i][2]);
        y[i][1] = add(sub(half[i][1], half[i][2]), half[i][3]);
    }
    if (!all_finite(2, y))
        return false;
    finish(f, 2, y, t);
    return true;
}

INLINE void output_4_of_9(const vf *m, vf *y)
{
    vf s1 = add(m[0], m[1]), d1 = sub(m[0], m[1]), s2 = add(m[2], m[3]), d2 = sub(m[2], m[3]);
    y[0] = add(add(s1, s2), m[5]);
    y[1] = fma3(all(0.5f), d1, fma3(all(1.25f), d2, m[6]));
    y[2] = fma3(all(0.25f), s1, fma3(all(1.5625f), s2, m[7]));
    y[3] = fma3(all(0.125f), d1, fma3(all(1.953125f), d2, add(m[4], m[8])));
}

static bool output_4_stride_2(const cpu_conv_finish *f, const float *m, int64_t m_point,
                              const cpu_conv_target *t)
{
    return output_tile_4(9, output_4_of_9, f, m, m_point, t);
}

/* ---- by the definition ----------------------------------------------------------------------- */

/* How the weights themselves come back from their transform g -> U: the first is scaled by `first`, of U[0]
 * or of the difference of two, the middle one by `middle`. */
typedef struct restoration {
    int side;                 /* of U */
    int first_of, first_less; /* less -1: none */
    int middle_of, middle_less;
    int last_of;
    float first, middle;
} restoration;

static const restoration restorations[CPU_CONV_SCHEME_COUNT] = {
    [CPU_CONV_TILE_2] = {4, 0, -1, 1, 2, 3, 1.0f, 1.0f},
    [CPU_CONV_TILE_4] = {6, 0, -1, 1, 2, 5, 1.0f, -1.5f * SQRT_HALF},
    [CPU_CONV_TILE_4_STRIDE_2] = {6, 1, 0, 5, -1, 4, 0.65625f, 1.0f}};

INLINE void restore_side(const restoration *r, const float *u, int64_t step, vf *g)
{
    vf first = load(u + r->first_of * step), middle = load(u + r->middle_of * step);
    if (r->first_less >= 0)
        first = sub(first, load(u + r->first_less * step));
    if (r->middle_less >= 0)
        middle = sub(middle, load(u + r->middle_less * step));
    g[0] = VEC(mul_ps)(all(r->first), first);
    g[1] = VEC(mul_ps)(all(r->middle), middle);
    g[2] = load(u + r->last_of * step);
}

/* Each is right to a rounding or two of the largest. */
INLINE void restore_weights(const restoration *r, const float *u, int64_t u_point, vf (*g)[3])
{
    float half[3 * 6 * W] __attribute__((aligned(64)));
    vf column[3];
    for (int j = 0; j < r->side; j++) {
        restore_side(r, u + j * u_point, r->side * u_point, column);
        EACH (i, 3)
            store(half + (i * 6 + j) * W, column[i]);
    }
    EACH (i, 3)
        restore_side(r, half + i * 6 * W, W, g[i]);
}

INLINE void direct(const cpu_conv_finish *f, const cpu_conv_scheme kind, const cpu_conv_source *s,
                   int64_t channels, const float *u, int panel, const cpu_conv_target *t)
{
    const int m = kind == CPU_CONV_TILE_2 ? 2 : 4, stride = kind == CPU_CONV_TILE_4_STRIDE_2 ? 2 : 1;
    vf y[4][4], g[3][3];
    int64_t u_point = channels * panel * W;
    for (int k = 0; k < 16; k++)
        y[k / 4][k % 4] = all(0);
    for (int64_t c = 0; c < channels; c++, u += panel * W) {
        const float *x = s->x + c / W * s->plane + c % W;
        restore_weights(&restorations[kind], u, u_point, g);
        for (int k = 0; k < m * m * 9; k++) {
            int i = k / 9 / m, j = k / 9 % m, a = k / 3 % 3, b = k % 3;
            int row = i * stride + a, column = j * stride + b;
            if (row >= s->top && row < s->bottom && column >= s->left && column < s->right)
                y[i][j] = fma3(all(x[s->first + row * s->row + column * W]), g[a][b], y[i][j]);
        }
    }
    finish(f, m, y, t);
}

static void direct_2(const cpu_conv_finish *f, const cpu_conv_source *s, int64_t channels, const float *u,
                     int panel, const cpu_conv_target *t)
{
    direct(f, CPU_CONV_TILE_2, s, channels, u, panel, t);
}

static void direct_4(const cpu_conv_finish *f, const cpu_conv_source *s, int64_t channels, const float *u,
                     int panel, const cpu_conv_target *t)
{
    direct(f, CPU_CONV_TILE_4, s, channels, u, panel, t);
}

static void direct_4_stride_2(const cpu_conv_finish *f, const cpu_conv_source *s, int64_t channels,
                              const float *u, int panel, const cpu_conv_target *t)
{
    direct(f, CPU_CONV_TILE_4_STRIDE_2, s, channels, u, panel, t);
}

const cpu_conv_loops LOOPS_NAME = {.isa = LOOPS_ISA,
                                   .width = W,
                                   .max_panel = LOOPS_PANEL,
                                   .input = {input_2, input_4, input_4_stride_2},
                                   .multiply = multiply,
                                   .output = {output_2, output_4, output_4_stride_2},
                                   .direct = {direct_2, direct_4, direct_4_stride_2},
                                   .finish = finish_pixels};
