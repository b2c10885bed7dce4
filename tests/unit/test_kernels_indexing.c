/* Kernels that choose elements: indices out of range end the run, sizes that depend on data are reported,
 * order and ties are as the operators say. */
#include "kernel_fixture.h"

static const float grid[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const int64_t grid_dims[] = {4, 3};

/* ---- indices --------------------------------------------------------------------------------- */

static gantry_status gather(const char *op, gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                            const void *indices, int64_t axis, uint32_t out_rank, const int64_t *out_dims,
                            float *out)
{
    fixture *f = fixture_open("", op, 13);
    if (axis >= 0)
        fixture_int(f, "axis", axis);
    fixture_input(f, GANTRY_FLOAT32, 2, grid_dims, grid);
    fixture_input(f, dtype, rank, dims, indices);
    fixture_output(f, GANTRY_FLOAT32, out_rank, out_dims);
    gantry_status status = fixture_run(f);
    if (status == GANTRY_OK)
        memcpy(out, f->out_data[0], fixture_bytes(&f->outputs[0]));
    fixture_close(f);
    return status;
}

Test(kernels_indexing, gather_counts_from_the_end_and_checks)
{
    float out[12];
    const int64_t good[] = {3, -4, -1}, past[] = {0, 4, 0}, before[] = {0, -5, 0};
    const int32_t narrow[] = {2, 0};
    const float rows[] = {9, 10, 11, 0, 1, 2, 9, 10, 11}, columns[] = {2, 0, 5, 3, 8, 6, 11, 9};
    int64_t three = 3, two = 2, out_dims[] = {3, 3}, column_dims[] = {4, 2};
    cr_assert_eq(gather("Gather", GANTRY_INT64, 1, &three, good, 0, 2, out_dims, out), GANTRY_OK);
    cr_expect_arr_eq(out, rows, sizeof rows);
    cr_assert_eq(gather("Gather", GANTRY_INT32, 1, &two, narrow, 1, 2, column_dims, out), GANTRY_OK);
    cr_expect_arr_eq(out, columns, sizeof columns);
    cr_expect_eq(gather("Gather", GANTRY_INT64, 1, &three, past, 0, 2, out_dims, out), GANTRY_DATA);
    cr_expect_eq(gather("Gather", GANTRY_INT64, 1, &three, before, 0, 2, out_dims, out), GANTRY_DATA);
}

Test(kernels_indexing, gather_elements_and_tuples_check)
{
    float out[12];
    const int64_t pick[] = {0, -1, 3, 1}, wrong[] = {0, -1, 4, 1}, tuples[] = {3, 2, -4, -3},
                  outside[] = {3, 3, 0, 0};
    const float elements[] = {0, 10, 9, 4}, points[] = {11, 0};
    int64_t dims[] = {2, 2}, pair = 2;
    cr_assert_eq(gather("GatherElements", GANTRY_INT64, 2, dims, pick, 0, 2, dims, out), GANTRY_OK);
    cr_expect_arr_eq(out, elements, sizeof elements);
    cr_expect_eq(gather("GatherElements", GANTRY_INT64, 2, dims, wrong, 0, 2, dims, out), GANTRY_DATA);
    cr_assert_eq(gather("GatherND", GANTRY_INT64, 2, dims, tuples, -1, 1, &pair, out), GANTRY_OK);
    cr_expect_arr_eq(out, points, sizeof points);
    cr_expect_eq(gather("GatherND", GANTRY_INT64, 2, dims, outside, -1, 1, &pair, out), GANTRY_DATA);
}

static gantry_status scatter(const char *op, const char *reduction, const int64_t *indices,
                             const float *updates, uint32_t rank, const int64_t *dims, uint32_t update_rank,
                             const int64_t *update_dims, float *out)
{
    fixture *f = fixture_open("", op, 18);
    fixture_text(f, "reduction", reduction);
    fixture_input(f, GANTRY_FLOAT32, 2, grid_dims, grid);
    fixture_input(f, GANTRY_INT64, rank, dims, indices);
    fixture_input(f, GANTRY_FLOAT32, update_rank, update_dims, updates);
    fixture_output(f, GANTRY_FLOAT32, 2, grid_dims);
    gantry_status status = fixture_run(f);
    if (status == GANTRY_OK)
        memcpy(out, f->out_data[0], sizeof grid);
    fixture_close(f);
    return status;
}

Test(kernels_indexing, scatter_combines_and_checks)
{
    static const struct {
        const char *reduction;
        float first, second;
    } cases[] = {{"none", 7, -2}, {"add", 16, 2}, {"mul", 84, -8}, {"max", 7, 4}, {"min", 3, -2}};
    const int64_t twice[] = {1, 1, -3}, outside[] = {1, 1, 5}, tuples[] = {1, 0, 1, 0, -3, 1};
    const float updates[] = {4, 7, -2};
    int64_t one_row[] = {3, 1}, pairs[] = {3, 2}, three = 3;
    float out[12];
    for (size_t k = 0; k < 5; k++) {
        cr_assert_eq(scatter("ScatterND", cases[k].reduction, tuples, updates, 2, pairs, 1, &three, out),
                     GANTRY_OK);
        float first = cases[k].reduction[0] == 'a' ? 3 + 4 + 7 : cases[k].first;
        cr_expect_eq(out[3], first, "%s: %g", cases[k].reduction, (double)out[3]);
        cr_expect_eq(out[4], cases[k].second, "%s: %g", cases[k].reduction, (double)out[4]);
        cr_expect_eq(out[0], 0);
    }
    cr_assert_eq(scatter("ScatterElements", "add", twice, updates, 2, one_row, 2, one_row, out), GANTRY_OK);
    cr_expect_eq(out[3], 3 + 4 + 7 - 2);
    cr_expect_eq(scatter("ScatterElements", "none", outside, updates, 2, one_row, 2, one_row, out),
                 GANTRY_DATA);
}

/* ---- selections ------------------------------------------------------------------------------ */

Test(kernels_indexing, topk_keeps_the_lower_index_of_equal_elements)
{
    const float x[] = {3, 1, 3, 2, 3, 0};
    const float values[] = {3, 3, 3, 2}, smallest[] = {0, 1, 2, 3};
    const int64_t indices[] = {0, 2, 4, 3}, smallest_indices[] = {5, 1, 3, 0};
    int64_t six = 6, four = 4, one = 1;
    for (int largest = 0; largest < 2; largest++) {
        fixture *f = fixture_open("", "TopK", 11);
        fixture_int(f, "largest", largest);
        fixture_input(f, GANTRY_FLOAT32, 1, &six, x);
        fixture_constant(f, GANTRY_INT64, 1, &one, &four);
        fixture_output(f, GANTRY_FLOAT32, 1, &four);
        fixture_output(f, GANTRY_INT64, 1, &four);
        cr_assert_eq(fixture_run(f), GANTRY_OK);
        cr_expect_arr_eq(f->out_data[0], largest ? values : smallest, sizeof values);
        cr_expect_arr_eq(f->out_data[1], largest ? indices : smallest_indices, sizeof indices);
        fixture_close(f);
    }
}

Test(kernels_indexing, topk_agrees_with_sorting)
{
    enum { LANES = 300, N = 50, K = 7 };
    float *x = malloc(LANES * N * sizeof *x);
    fixture_fill(x, LANES * N, 0, 1, 4);
    int64_t dims[] = {LANES / 3, N, 3}, out_dims[] = {LANES / 3, K, 3}, one = 1, k_value = K;
    fixture *f = fixture_open("", "TopK", 11);
    fixture_int(f, "axis", 1);
    fixture_input(f, GANTRY_FLOAT32, 3, dims, x);
    fixture_constant(f, GANTRY_INT64, 1, &one, &k_value);
    fixture_output(f, GANTRY_FLOAT32, 3, out_dims);
    fixture_output(f, GANTRY_INT64, 3, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int lane = 0; lane < LANES; lane++)
        for (int j = 0; j < K; j++) {
            int at = (lane / 3 * K + j) * 3 + lane % 3, larger = 0;
            float value = ((float *)f->out_data[0])[at];
            int64_t index = ((int64_t *)f->out_data[1])[at];
            for (int n = 0; n < N; n++)
                larger += x[(lane / 3 * N + n) * 3 + lane % 3] > value;
            cr_assert_eq(value, x[(lane / 3 * N + index) * 3 + lane % 3]);
            cr_assert_eq(larger, j);
        }
    fixture_close(f);
    free(x);
}

Test(kernels_indexing, nonzero_reports_its_size)
{
    const float x[] = {0, 2, -0.0f, 3, NAN, 0};
    const int64_t wanted[] = {0, 1, 1, 1, 0, 1};
    int64_t dims[] = {2, 3}, bound[] = {2, 6};
    fixture *f = fixture_open("", "NonZero", 13);
    fixture_input(f, GANTRY_FLOAT32, 2, dims, x);
    fixture_output(f, GANTRY_INT64, 2, bound);
    f->outputs[0].bounded = true;
    cr_assert_eq(fixture_make(f), GANTRY_OK);
    cr_assert_eq(fixture_run_once(f, 1), GANTRY_OK);
    cr_expect_eq(f->true_dims[0][0], 2);
    cr_assert_eq(f->true_dims[0][1], 3);
    cr_expect_arr_eq(f->out_data[0], wanted, sizeof wanted);
    fixture_close(f);
}

Test(kernels_indexing, nms_drops_what_overlaps)
{
    const float boxes[] = {0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 1, 1.1f, 0, 0.1f, 0, 10, 1, 11},
                scores[] = {0.9f, 0.75f, 0.6f, 0.95f};
    const int64_t most = 3, wanted[] = {0, 0, 3, 0, 0, 0};
    const float iou = 0.5f, least = 0.1f;
    int64_t box_dims[] = {1, 4, 4}, score_dims[] = {1, 1, 4}, one = 1, bound[] = {3, 3};
    fixture *f = fixture_open("", "NonMaxSuppression", 11);
    fixture_input(f, GANTRY_FLOAT32, 3, box_dims, boxes);
    fixture_input(f, GANTRY_FLOAT32, 3, score_dims, scores);
    fixture_input(f, GANTRY_INT64, 1, &one, &most);
    fixture_input(f, GANTRY_FLOAT32, 1, &one, &iou);
    fixture_input(f, GANTRY_FLOAT32, 1, &one, &least);
    fixture_output(f, GANTRY_INT64, 2, bound);
    f->outputs[0].bounded = true;
    cr_assert_eq(fixture_make(f), GANTRY_OK);
    cr_assert_eq(fixture_run_once(f, 1), GANTRY_OK);
    cr_assert_eq(f->true_dims[0][0], 2);
    cr_expect_arr_eq(f->out_data[0], wanted, sizeof wanted);
    fixture_close(f);
}
