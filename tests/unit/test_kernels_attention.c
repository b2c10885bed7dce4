/* The composite Attention of the CPU provider against sums in double: packed and separate operands, masks of
 * every kind, sizes around the edges of tiles and panels. */
#include "kernel_fixture.h"

enum { BATCHES = 2, HEADS = 3 };

typedef enum mask_kind { NO_MASK, ROW_MASK, FULL_MASK, SCALAR_MASK, CONDITION, MASK_KINDS } mask_kind;

typedef struct shape {
    int64_t queries, keys, size, value_size;
} shape;

/* [batch, head, position, size] of any layout, by strides. */
typedef struct view {
    const float *data;
    int64_t batch, head, step, unit;
} view;

static double at(const view *v, int64_t b, int64_t h, int64_t s, int64_t d)
{
    return (double)v->data[b * v->batch + h * v->head + s * v->step + d * v->unit];
}

/* The score that a mask makes of x. */
static double masked(mask_kind kind, const void *mask, const shape *s, double x, int64_t b, int64_t h,
                     int64_t query, int64_t key)
{
    const float *numbers = mask;
    const uint8_t *bits = mask;
    switch (kind) {
    case ROW_MASK:
        return x + (double)numbers[b * s->keys + key];
    case FULL_MASK:
        return x + (double)numbers[((b * HEADS + h) * s->queries + query) * s->keys + key];
    case SCALAR_MASK:
        return x + (double)numbers[0];
    case CONDITION:
        return bits[query * s->keys + key] ? x : -1e30;
    default:
        return x;
    }
}

static void wanted_row(const view *q, const view *k, const view *v, const shape *s, mask_kind kind,
                       const void *mask, int64_t b, int64_t h, int64_t query, double *row)
{
    double *p = calloc((size_t)s->keys, sizeof *p), most = -INFINITY, sum = 0;
    for (int64_t key = 0; key < s->keys; key++) {
        for (int64_t d = 0; d < s->size; d++)
            p[key] += at(q, b, h, query, d) * at(k, b, h, key, d);
        p[key] = masked(kind, mask, s, p[key] * 0.3, b, h, query, key);
        most = fmax(most, p[key]);
    }
    for (int64_t key = 0; key < s->keys; key++)
        sum += p[key] = exp(p[key] - most);
    for (int64_t e = 0; e < s->value_size; e++) {
        row[e] = 0;
        for (int64_t key = 0; key < s->keys; key++)
            row[e] += p[key] / sum * at(v, b, h, key, e);
    }
    free(p);
}

static void *make_mask(mask_kind kind, const shape *s, fixture *f)
{
    int64_t row[] = {BATCHES, 1, 1, s->keys}, full[] = {BATCHES, HEADS, s->queries, s->keys},
            square[] = {s->queries, s->keys};
    int64_t count = kind == ROW_MASK      ? BATCHES * s->keys
                    : kind == SCALAR_MASK ? 1
                                          : BATCHES * HEADS * s->queries * s->keys;
    float *numbers = malloc((size_t)count * sizeof *numbers + (size_t)(s->queries * s->keys));
    fixture_fill(numbers, count, -3, 1, 5);
    uint32_t index = f->node.input_count;
    if (kind == CONDITION) {
        uint8_t *bits = (uint8_t *)numbers;
        for (int64_t k = 0; k < s->queries * s->keys; k++)
            bits[k] = k % s->keys == 0 || k % 3 == 1;
        fixture_input(f, GANTRY_BOOL, 2, square, bits);
        fixture_int(f, "condition", index);
        fixture_float(f, "fill", -1e30f);
        return numbers;
    }
    for (int64_t k = 0; k < count && kind != SCALAR_MASK; k += 5)
        numbers[k] = k % s->keys ? -INFINITY : 0;
    fixture_input(f, GANTRY_FLOAT32, kind == SCALAR_MASK ? 0 : 4, kind == ROW_MASK ? row : full, numbers);
    fixture_int(f, "mask", index);
    return numbers;
}

static void check(const view *q, const view *k, const view *v, const shape *s, mask_kind kind, fixture *f,
                  bool merged)
{
    void *mask = kind == NO_MASK ? NULL : make_mask(kind, s, f);
    int64_t dims[4] = {BATCHES, HEADS, s->queries, s->value_size};
    if (merged)
        dims[1] = s->queries, dims[2] = HEADS;
    fixture_float(f, "scale", 0.3f);
    fixture_int(f, "merged", merged);
    fixture_output(f, GANTRY_FLOAT32, 4, dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK, "%s", f->error.message);
    const float *y = f->out_data[0];
    double *row = calloc((size_t)s->value_size, sizeof *row);
    for (int64_t r = 0; r < BATCHES * HEADS * s->queries; r++) {
        int64_t b = r / (HEADS * s->queries), h = r / s->queries % HEADS, query = r % s->queries;
        wanted_row(q, k, v, s, kind, mask, b, h, query, row);
        const float *got =
            merged ? y + ((b * s->queries + query) * HEADS + h) * s->value_size : y + r * s->value_size;
        for (int64_t e = 0; e < s->value_size; e++)
            cr_assert(fabs((double)got[e] - row[e]) < 2e-6,
                      "queries %d keys %d size %d value %d mask %d: query %d element %d: %g, want %g",
                      (int)s->queries, (int)s->keys, (int)s->size, (int)s->value_size, kind, (int)query,
                      (int)e, got[e], row[e]);
    }
    free(row);
    free(mask);
    fixture_close(f);
}

/* q [b, h, s, d]; k [b, h, d, t]; v [b, t, h, e]. */
static void check_separate(shape s, mask_kind kind)
{
    static const int64_t q_axes[] = {0, 0, 1, 2, 3, -1, 0}, k_axes[] = {1, 0, 1, 3, 2, -1, 0},
                         v_axes[] = {2, 0, 2, 1, 3, -1, 0};
    int64_t q_dims[] = {BATCHES, HEADS, s.queries, s.size}, k_dims[] = {BATCHES, HEADS, s.size, s.keys},
            v_dims[] = {BATCHES, s.keys, HEADS, s.value_size}, all = BATCHES * HEADS;
    float *q = malloc((size_t)(all * s.queries * s.size) * 4),
          *k = malloc((size_t)(all * s.keys * s.size) * 4),
          *v = malloc((size_t)(all * s.keys * s.value_size) * 4);
    fixture_fill(q, all * s.queries * s.size, -1, 1, 1);
    fixture_fill(k, all * s.keys * s.size, -1, 1, 2);
    fixture_fill(v, all * s.keys * s.value_size, -1, 1, 3);
    fixture *f = fixture_open("gantry", "Attention", 1);
    fixture_input(f, GANTRY_FLOAT32, 4, q_dims, q);
    fixture_input(f, GANTRY_FLOAT32, 4, k_dims, k);
    fixture_input(f, GANTRY_FLOAT32, 4, v_dims, v);
    fixture_ints(f, "q", 7, q_axes);
    fixture_ints(f, "k", 7, k_axes);
    fixture_ints(f, "v", 7, v_axes);
    check(&(view){q, HEADS * s.queries * s.size, s.queries * s.size, s.size, 1},
          &(view){k, HEADS * s.keys * s.size, s.keys * s.size, 1, s.keys},
          &(view){v, HEADS * s.keys * s.value_size, s.value_size, HEADS * s.value_size, 1}, &s, kind, f,
          false);
    free(q);
    free(k);
    free(v);
}

/* All three in one tensor [b, s, 3, h, d]. */
static void check_packed(int64_t positions, int64_t size, mask_kind kind)
{
    static const int64_t axes[3][7] = {{0, 0, 3, 1, 4, 2, 0}, {0, 0, 3, 1, 4, 2, 1}, {0, 0, 3, 1, 4, 2, 2}};
    static const char *const names[] = {"q", "k", "v"};
    int64_t dims[] = {BATCHES, positions, 3, HEADS, size}, step = 3 * HEADS * size,
            count = BATCHES * positions * step;
    shape s = {positions, positions, size, size};
    float *x = malloc((size_t)count * sizeof *x);
    view views[3];
    fixture_fill(x, count, -1, 1, 4);
    fixture *f = fixture_open("gantry", "Attention", 1);
    fixture_input(f, GANTRY_FLOAT32, 5, dims, x);
    for (int k = 0; k < 3; k++) {
        fixture_ints(f, names[k], 7, axes[k]);
        views[k] = (view){x + k * HEADS * size, positions * step, size, step, 1};
    }
    check(&views[0], &views[1], &views[2], &s, kind, f, true);
    free(x);
}

Test(kernels_attention, sizes_and_masks)
{
    static const int64_t queries[] = {1, 3, 4, 7, 50}, keys[] = {1, 15, 64, 65, 400}, sizes[] = {15, 64, 70};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            check_separate((shape){queries[i], keys[j], sizes[(i + j) % 3], sizes[(i + 2 * j + 1) % 3]},
                           (mask_kind)((i + j) % MASK_KINDS));
    for (int kind = 0; kind < MASK_KINDS; kind++)
        check_separate((shape){5, 33, 16, 32}, (mask_kind)kind);
}

Test(kernels_attention, packed_operands)
{
    for (int kind = 0; kind < MASK_KINDS; kind++)
        check_packed(2 + 37 * kind, kind % 2 ? 64 : 20, (mask_kind)kind);
}

/* What the written-out graph gives: NaN where every key is masked with -inf, and in the rows that see a NaN.
 */
Test(kernels_attention, rows_without_a_key_are_nan)
{
    enum { KEYS = 70, SIZE = 16 };
    static const int64_t axes[] = {0, 0, 1, 2, 3, -1, 0};
    for (int64_t queries = 2; queries <= 9; queries += 7) {
        int64_t dims[] = {1, 1, KEYS, SIZE}, q_dims[] = {1, 1, queries, SIZE}, mask_dims[] = {queries, KEYS};
        float x[KEYS * SIZE], mask[9 * KEYS];
        fixture_fill(x, KEYS * SIZE, -1, 1, 1);
        for (int64_t k = 0; k < 9 * KEYS; k++)
            mask[k] = k < KEYS ? -INFINITY : 0;
        static const int64_t k_axes[] = {1, 0, 1, 2, 3, -1, 0};
        fixture *f = fixture_open("gantry", "Attention", 1);
        fixture_input(f, GANTRY_FLOAT32, 4, q_dims, x);
        fixture_input(f, GANTRY_FLOAT32, 4, dims, x);
        fixture_input(f, GANTRY_FLOAT32, 2, mask_dims, mask);
        fixture_ints(f, "q", 7, axes);
        fixture_ints(f, "k", 7, k_axes);
        fixture_ints(f, "v", 7, k_axes);
        fixture_int(f, "mask", 2);
        fixture_output(f, GANTRY_FLOAT32, 4, q_dims);
        cr_assert_eq(fixture_make(f), GANTRY_OK, "%s", f->error.message);
        cr_assert_eq(fixture_run_once(f, 1), GANTRY_OK, "%s", f->error.message);
        for (int64_t k = 0; k < queries * SIZE; k++)
            cr_expect_eq(isnan(((float *)f->out_data[0])[k]) != 0, k < SIZE, "element %d of %d queries",
                         (int)k, (int)queries);
        fixture_close(f);
    }
}

Test(kernels_attention, a_mask_larger_than_the_scores_is_refused)
{
    static const int64_t axes[] = {0, 0, 1, 2, 3, -1, 0}, dims[] = {1, 1, 4, 8}, mask_dims[] = {2, 1, 4, 4},
                         out_dims[] = {2, 1, 4, 8};
    float x[32] = {0}, mask[32] = {0};
    fixture *f = fixture_open("gantry", "Attention", 1);
    fixture_input(f, GANTRY_FLOAT32, 4, dims, x);
    fixture_input(f, GANTRY_FLOAT32, 4, mask_dims, mask);
    fixture_ints(f, "q", 7, axes);
    fixture_ints(f, "k", 7, axes);
    fixture_ints(f, "v", 7, axes);
    fixture_int(f, "mask", 1);
    fixture_output(f, GANTRY_FLOAT32, 4, out_dims);
    cr_expect_eq(fixture_make(f), GANTRY_UNSUPPORTED);
    fixture_close(f);
}

/* A product over nothing is 0, also one of probabilities with no values. */
Test(kernels_attention, without_keys_the_result_is_zero)
{
    static const int64_t q_axes[] = {0, 0, 1, 2, 3, -1, 0}, k_axes[] = {1, 0, 1, 2, 3, -1, 0};
    for (int64_t queries = 1; queries <= 9; queries += 4) {
        int64_t q_dims[] = {1, 2, queries, 8}, k_dims[] = {1, 2, 0, 8};
        float x[2 * 9 * 8];
        fixture_fill(x, 2 * 9 * 8, -1, 1, 1);
        fixture *f = fixture_open("gantry", "Attention", 1);
        fixture_input(f, GANTRY_FLOAT32, 4, q_dims, x);
        fixture_input(f, GANTRY_FLOAT32, 4, k_dims, x);
        fixture_ints(f, "q", 7, q_axes);
        fixture_ints(f, "k", 7, k_axes);
        fixture_ints(f, "v", 7, k_axes);
        fixture_output(f, GANTRY_FLOAT32, 4, q_dims);
        cr_assert_eq(fixture_run(f), GANTRY_OK, "%s", f->error.message);
        for (int64_t k = 0; k < 2 * queries * 8; k++)
            cr_assert_eq(((float *)f->out_data[0])[k], 0);
        fixture_close(f);
    }
}

/* softmax(x x^T + x) x: the mask is input 0, as the queries are. */
Test(kernels_attention, queries_may_be_the_mask)
{
    enum { N = 8 };
    static const int64_t axes[] = {0, 0, 1, 2, 3, -1, 0}, dims[] = {1, 1, N, N};
    float x[N * N], weights[N];
    fixture_fill(x, N * N, -1, 1, 1);
    fixture *f = fixture_open("gantry", "Attention", 1);
    fixture_input(f, GANTRY_FLOAT32, 4, dims, x);
    fixture_ints(f, "q", 7, axes);
    fixture_ints(f, "k", 7, axes);
    fixture_ints(f, "v", 7, axes);
    fixture_int(f, "mask", 0);
    fixture_output(f, GANTRY_FLOAT32, 4, dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK, "%s", f->error.message);
    for (int q = 0; q < N; q++) {
        float sum = 0;
        for (int k = 0; k < N; k++) {
            weights[k] = x[q * N + k];
            for (int d = 0; d < N; d++)
                weights[k] += x[q * N + d] * x[k * N + d];
            weights[k] = expf(weights[k]);
            sum += weights[k];
        }
        for (int e = 0; e < N; e++) {
            float wanted = 0;
            for (int k = 0; k < N; k++)
                wanted += weights[k] / sum * x[k * N + e];
            cr_assert(fabsf(((float *)f->out_data[0])[q * N + e] - wanted) < 2e-6f);
        }
    }
    fixture_close(f);
}
