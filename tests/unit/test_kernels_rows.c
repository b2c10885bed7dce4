/* Reductions and normalization against sums in double: every set of axes, empty sets, large values, and
 * results that do not depend on the threads (the fixture checks that). */
#include "kernel_fixture.h"

/* ---- Reduce ---------------------------------------------------------------------------------- */

enum { REDUCE_RANK = 4 };
static const int64_t reduce_dims[REDUCE_RANK] = {3, 5, 7, 21};

static void check_reduce(const char *op, unsigned bits, const float *x)
{
    int64_t axes[REDUCE_RANK], out_dims[REDUCE_RANK], count = 0, out_count = 1;
    for (int k = 0; k < REDUCE_RANK; k++) {
        bool reduced = bits >> k & 1;
        if (reduced)
            axes[count++] = k - REDUCE_RANK;
        out_dims[k] = reduced ? 1 : reduce_dims[k];
        out_count *= out_dims[k];
    }
    double *sums = calloc((size_t)out_count, sizeof *sums), *most = calloc((size_t)out_count, sizeof *most),
           *squares = calloc((size_t)out_count, sizeof *squares),
           *exponentials = calloc((size_t)out_count, sizeof *most);
    int64_t total = 3 * 5 * 7 * 21, each = total / out_count;
    for (int64_t k = 0; k < out_count; k++)
        most[k] = -INFINITY;
    for (int64_t k = 0; k < total; k++) {
        int64_t rest = k, at = 0, stride = 1;
        for (int axis = REDUCE_RANK; axis-- > 0; rest /= reduce_dims[axis]) {
            at += out_dims[axis] == 1 ? 0 : rest % reduce_dims[axis] * stride;
            stride *= out_dims[axis];
        }
        sums[at] += (double)x[k];
        squares[at] += (double)x[k] * (double)x[k];
        exponentials[at] += exp((double)x[k]);
        most[at] = fmax(most[at], (double)x[k]);
    }
    fixture *f = fixture_open("", op, 18);
    fixture_int(f, "noop_with_empty_axes", 1);
    fixture_input(f, GANTRY_FLOAT32, REDUCE_RANK, reduce_dims, x);
    fixture_constant(f, GANTRY_INT64, 1, &count, axes);
    fixture_output(f, GANTRY_FLOAT32, REDUCE_RANK, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK, "%s", f->error.message);
    for (int64_t k = 0; k < out_count; k++) {
        double wanted = strcmp(op, "ReduceSum") == 0         ? sums[k]
                        : strcmp(op, "ReduceMean") == 0      ? sums[k] / (double)each
                        : strcmp(op, "ReduceMax") == 0       ? most[k]
                        : strcmp(op, "ReduceL2") == 0        ? sqrt(squares[k])
                        : strcmp(op, "ReduceLogSumExp") == 0 ? log(exponentials[k])
                                                             : squares[k];
        double got = (double)((float *)f->out_data[0])[k];
        cr_assert(fabs(got - wanted) <= 2e-6 * (1 + fabs(wanted)), "%s axes %x element %d: %g, want %g", op,
                  bits, (int)k, got, wanted);
    }
    fixture_close(f);
    free(sums);
    free(most);
    free(squares);
    free(exponentials);
}

Test(kernels_rows, reductions_over_every_set_of_axes)
{
    static const char *const ops[] = {"ReduceSum", "ReduceMean",      "ReduceMax",
                                      "ReduceL2",  "ReduceSumSquare", "ReduceLogSumExp"};
    float x[3 * 5 * 7 * 21];
    fixture_fill(x, 3 * 5 * 7 * 21, -2, 3, 6);
    for (int o = 0; o < 6; o++)
        for (unsigned bits = 1; bits < 16; bits++)
            check_reduce(ops[o], bits, x);
}

/* One NaN in a row, in a whole vector or behind the last, is its largest and its smallest element. */
Test(kernels_rows, extremes_keep_nan)
{
    enum { ROWS = 3 };
    static const int64_t widths[] = {5, 40, 100};
    for (int w = 0; w < 3; w++)
        for (int64_t at = 0; at < widths[w]; at += 3)
            for (int least = 0; least < 2; least++) {
                int64_t dims[] = {ROWS, widths[w]}, out_dims[] = {ROWS, 1}, axis = 1, one = 1;
                float x[ROWS * 100];
                fixture_fill(x, ROWS * widths[w], -2, 3, 6);
                x[widths[w] + at] = NAN;
                fixture *f = fixture_open("", least ? "ReduceMin" : "ReduceMax", 18);
                fixture_input(f, GANTRY_FLOAT32, 2, dims, x);
                fixture_constant(f, GANTRY_INT64, 1, &one, &axis);
                fixture_output(f, GANTRY_FLOAT32, 2, out_dims);
                cr_assert_eq(fixture_run(f), GANTRY_OK);
                for (int r = 0; r < ROWS; r++)
                    cr_assert_eq(isnan(((float *)f->out_data[0])[r]) != 0, r == 1,
                                 "width %d, NaN at %d, row %d", (int)widths[w], (int)at, r);
                fixture_close(f);
            }
}

Test(kernels_rows, empty_sets_give_the_neutral_element)
{
    static const struct {
        const char *op;
        float wanted;
    } cases[] = {
        {"ReduceSum", 0},  {"ReduceProd", 1}, {"ReduceMax", -INFINITY},    {"ReduceMin", INFINITY},
        {"ReduceMean", 0}, {"ReduceL2", 0},   {"ReduceLogSum", -INFINITY}, {"ReduceLogSumExp", -INFINITY}};
    for (size_t k = 0; k < 8; k++) {
        int64_t dims[] = {2, 0, 3}, out_dims[] = {2, 1, 3}, axis = 1, one = 1;
        float nothing = 0;
        fixture *f = fixture_open("", cases[k].op, 20);
        fixture_input(f, GANTRY_FLOAT32, 3, dims, &nothing);
        fixture_constant(f, GANTRY_INT64, 1, &one, &axis);
        fixture_output(f, GANTRY_FLOAT32, 3, out_dims);
        cr_assert_eq(fixture_run(f), GANTRY_OK);
        for (int j = 0; j < 6; j++)
            cr_expect_eq(fixture_ulps(((float *)f->out_data[0])[j], (double)cases[k].wanted), 0, "%s",
                         cases[k].op);
        fixture_close(f);
    }
}

Test(kernels_rows, long_sums_stay_exact)
{
    enum { COUNT = 1 << 20 };
    float *x = malloc(COUNT * sizeof *x);
    for (int k = 0; k < COUNT; k++)
        x[k] = 0.1f;
    int64_t row[] = {1, COUNT}, column[] = {COUNT, 1}, one[] = {1, 1}, axis = 1, single = 1;
    for (int k = 0; k < 2; k++) {
        axis = k ? 0 : 1;
        fixture *f = fixture_open("", "ReduceMean", 18);
        fixture_input(f, GANTRY_FLOAT32, 2, k ? column : row, x);
        fixture_constant(f, GANTRY_INT64, 1, &single, &axis);
        fixture_output(f, GANTRY_FLOAT32, 2, one);
        cr_assert_eq(fixture_run(f), GANTRY_OK);
        cr_expect(fabs((double)*(float *)f->out_data[0] / (double)0.1f - 1) < 1e-6, "%.9g",
                  (double)*(float *)f->out_data[0]);
        fixture_close(f);
    }
    free(x);
}

Test(kernels_rows, arg_max_finds_the_first_or_the_last)
{
    const float x[] = {1, 5, 5, 2, NAN, 7, NAN, 8};
    for (int last = 0; last < 2; last++) {
        int64_t dims[] = {2, 4}, out_dims[] = {2, 1}, wanted = last ? 2 : 1;
        fixture *f = fixture_open("", "ArgMax", 13);
        fixture_int(f, "axis", 1);
        fixture_int(f, "select_last_index", last);
        fixture_input(f, GANTRY_FLOAT32, 2, dims, x);
        fixture_output(f, GANTRY_INT64, 2, out_dims);
        cr_assert_eq(fixture_run(f), GANTRY_OK);
        cr_expect_eq(((int64_t *)f->out_data[0])[0], wanted);
        cr_expect_eq(((int64_t *)f->out_data[0])[1], 0); /* NaN wins */
        fixture_close(f);
    }
}

/* ---- Softmax --------------------------------------------------------------------------------- */

static void check_softmax(uint32_t rank, const int64_t *dims, int64_t axis, int version, float spread)
{
    cpu_tensor shape = fixture_tensor(GANTRY_FLOAT32, rank, dims);
    float *x = malloc((size_t)shape.count * sizeof *x);
    fixture_fill(x, shape.count, -spread, spread, (uint32_t)(shape.count + axis));
    fixture *f = fixture_open("", "Softmax", version);
    fixture_int(f, "axis", axis);
    fixture_input(f, GANTRY_FLOAT32, rank, dims, x);
    fixture_output(f, GANTRY_FLOAT32, rank, dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    const float *y = f->out_data[0];
    int64_t n = 1, inner = 1;
    for (int64_t k = axis; k < (int64_t)rank; k++)
        *(version < 13 || k == axis ? &n : &inner) *= dims[k];
    for (int64_t lane = 0; lane < shape.count / n; lane++) {
        int64_t base = lane / inner * n * inner + lane % inner;
        double most = -INFINITY, sum = 0;
        for (int64_t k = 0; k < n; k++)
            most = fmax(most, (double)x[base + k * inner]);
        for (int64_t k = 0; k < n; k++)
            sum += exp((double)x[base + k * inner] - most);
        for (int64_t k = 0; k < n; k++) {
            double wanted = exp((double)x[base + k * inner] - most) / sum;
            cr_assert(fabs((double)y[base + k * inner] - wanted) <= 8e-6 * wanted + 1e-30,
                      "rank %u axis %d lane %d: %g, want %g", rank, (int)axis, (int)lane,
                      (double)y[base + k * inner], wanted);
        }
    }
    fixture_close(f);
    free(x);
}

Test(kernels_rows, softmax_over_every_axis)
{
    static const int64_t dims[] = {4, 6, 70, 33};
    for (int64_t axis = 0; axis < 4; axis++) {
        check_softmax(4, dims, axis, 13, 5);
        check_softmax(4, dims, axis, 11, 5);
        check_softmax(4, dims, axis, 13, 80);
    }
    for (int64_t n = 1; n < 40; n++)
        check_softmax(2, (int64_t[]){3, n}, 1, 13, 10);
}

Test(kernels_rows, softmax_of_masked_rows)
{
    const float x[] = {-INFINITY, 1, 2, -INFINITY, -INFINITY, -INFINITY};
    int64_t dims[] = {2, 3};
    fixture *f = fixture_open("", "Softmax", 13);
    fixture_input(f, GANTRY_FLOAT32, 2, dims, x);
    fixture_output(f, GANTRY_FLOAT32, 2, dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    const float *y = f->out_data[0];
    cr_expect_eq(y[0], 0);
    cr_expect(fabsf(y[1] + y[2] - 1) < 1e-6f);
    for (int k = 3; k < 6; k++)
        cr_expect(isnan(y[k]));
    fixture_close(f);
}

/* ---- LayerNormalization ---------------------------------------------------------------------- */

Test(kernels_rows, layer_normalization_far_from_zero)
{
    enum { ROWS = 50, N = 197 };
    float *x = malloc(ROWS * N * sizeof *x), gain[N], bias[N];
    fixture_fill(x, ROWS * N, 999, 1001, 3); /* the mean is large against the deviation */
    fixture_fill(gain, N, 0.5f, 2, 4);
    fixture_fill(bias, N, -1, 1, 5);
    int64_t dims[] = {ROWS, N}, statistics[] = {ROWS, 1}, n = N;
    fixture *f = fixture_open("", "LayerNormalization", 17);
    fixture_input(f, GANTRY_FLOAT32, 2, dims, x);
    fixture_input(f, GANTRY_FLOAT32, 1, &n, gain);
    fixture_input(f, GANTRY_FLOAT32, 1, &n, bias);
    fixture_output(f, GANTRY_FLOAT32, 2, dims);
    fixture_output(f, GANTRY_FLOAT32, 2, statistics);
    fixture_output(f, GANTRY_FLOAT32, 2, statistics);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int row = 0; row < ROWS; row++) {
        double mean = 0, variance = 0;
        for (int k = 0; k < N; k++)
            mean += (double)x[row * N + k] / N;
        for (int k = 0; k < N; k++)
            variance += ((double)x[row * N + k] - mean) * ((double)x[row * N + k] - mean) / N;
        double factor = 1 / sqrt(variance + (double)1e-5f);
        cr_assert(fabs((double)((float *)f->out_data[1])[row] - mean) < 1e-4);
        cr_assert(fabs((double)((float *)f->out_data[2])[row] / factor - 1) < 1e-5);
        for (int k = 0; k < N; k++) {
            double wanted = ((double)x[row * N + k] - mean) * factor * (double)gain[k] + (double)bias[k];
            cr_assert(fabs((double)((float *)f->out_data[0])[row * N + k] - wanted) < 3e-4,
                      "row %d: %g, want %g", row, (double)((float *)f->out_data[0])[row * N + k], wanted);
        }
    }
    fixture_close(f);
    free(x);
}

/* ---- Attention: against softmax(Q K^T) V in double ------------------------------------------- */

Test(kernels_rows, attention_of_grouped_heads_with_a_causal_mask)
{
    enum { B = 2, H = 6, G = 3, Q = 17, S = 17, D = 20 };
    float q[B * H * Q * D], k[B * G * S * D], v[B * G * S * D];
    fixture_fill(q, B * H * Q * D, -1, 1, 1);
    fixture_fill(k, B * G * S * D, -1, 1, 2);
    fixture_fill(v, B * G * S * D, -1, 1, 3);
    int64_t q_dims[] = {B, H, Q, D}, k_dims[] = {B, G, S, D};
    fixture *f = fixture_open("", "Attention", 23);
    fixture_int(f, "is_causal", 1);
    fixture_input(f, GANTRY_FLOAT32, 4, q_dims, q);
    fixture_input(f, GANTRY_FLOAT32, 4, k_dims, k);
    fixture_input(f, GANTRY_FLOAT32, 4, k_dims, v);
    fixture_output(f, GANTRY_FLOAT32, 4, q_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK, "%s", f->error.message);
    for (int row = 0; row < B * H * Q; row++) {
        int query = row % Q, kv = row / Q / H * G + row / Q % H / (H / G);
        double scores[S], sum = 0;
        for (int s = 0; s <= query; s++) {
            scores[s] = 0;
            for (int d = 0; d < D; d++)
                scores[s] += (double)q[row * D + d] * (double)k[(kv * S + s) * D + d] / sqrt((double)D);
            sum += scores[s] = exp(scores[s]);
        }
        for (int d = 0; d < D; d++) {
            double wanted = 0;
            for (int s = 0; s <= query; s++)
                wanted += scores[s] / sum * (double)v[(kv * S + s) * D + d];
            cr_assert(fabs((double)((float *)f->out_data[0])[row * D + d] - wanted) < 1e-6);
        }
    }
    fixture_close(f);
}
