/* Kernels that move elements, against naive index arithmetic: every permutation, slices with any step, pads
 * of any mode, and shapes around the edges of a tile. */
#include "kernel_fixture.h"

static void count_up(int32_t *out, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        out[k] = (int32_t)k;
}

/* ---- Transpose ------------------------------------------------------------------------------- */

static void check_transpose(uint32_t rank, const int64_t *dims, const int64_t *perm, gantry_dtype dtype)
{
    cpu_tensor in = fixture_tensor(dtype, rank, dims);
    int64_t out_dims[6], strides[6], stride = 1;
    size_t bytes = cpu_dtype_bits(dtype) / 8;
    uint8_t *data = malloc((size_t)in.count * bytes + 1);
    for (size_t k = 0; k < (size_t)in.count * bytes; k++)
        data[k] = (uint8_t)(k * 31 + k / 251);
    for (uint32_t k = rank; k-- > 0; stride *= dims[k])
        strides[k] = stride;
    for (uint32_t k = 0; k < rank; k++)
        out_dims[k] = dims[perm[k]];
    fixture *f = fixture_open("", "Transpose", 13);
    fixture_ints(f, "perm", rank, perm);
    fixture_input(f, dtype, rank, dims, data);
    fixture_output(f, dtype, rank, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int64_t k = 0; k < in.count; k++) {
        int64_t rest = k, from = 0;
        for (uint32_t axis = rank; axis-- > 0; rest /= out_dims[axis])
            from += rest % out_dims[axis] * strides[perm[axis]];
        cr_assert_arr_eq((char *)f->out_data[0] + (size_t)k * bytes, data + (size_t)from * bytes, bytes,
                         "element %d of rank %u", (int)k, rank);
    }
    fixture_close(f);
    free(data);
}

Test(kernels_movement, every_permutation)
{
    static const int64_t dims[] = {3, 5, 17, 4};
    static const gantry_dtype types[] = {GANTRY_INT8, GANTRY_FLOAT16, GANTRY_FLOAT32, GANTRY_INT64};
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 4; c++) {
                int d = 6 - a - b - c;
                if (a == b || a == c || b == c || d == a || d == b || d == c || d < 0 || d > 3)
                    continue;
                check_transpose(4, dims, (int64_t[]){a, b, c, d}, types[(a + b + d) % 4]);
            }
    for (int64_t n = 1; n < 40; n += 5)
        for (int64_t m = 1; m < 40; m += 3)
            check_transpose(2, (int64_t[]){n, m}, (int64_t[]){1, 0}, GANTRY_FLOAT32);
    check_transpose(4, (int64_t[]){2, 130, 12, 64}, (int64_t[]){0, 2, 1, 3}, GANTRY_FLOAT32);
    check_transpose(4, (int64_t[]){2, 130, 12, 64}, (int64_t[]){0, 2, 3, 1}, GANTRY_FLOAT32);
    check_transpose(3, (int64_t[]){7, 9, 2}, (int64_t[]){1, 0, 2}, GANTRY_FLOAT32);
    check_transpose(3, (int64_t[]){7, 9, 3}, (int64_t[]){1, 0, 2}, GANTRY_FLOAT32);
    check_transpose(4, (int64_t[]){3, 4, 5, 2}, (int64_t[]){2, 1, 0, 3}, GANTRY_INT8);
    check_transpose(3, (int64_t[]){2, 0, 3}, (int64_t[]){2, 1, 0}, GANTRY_FLOAT32);
}

/* ---- Slice ----------------------------------------------------------------------------------- */

static void check_slice(int64_t start, int64_t end, int64_t step)
{
    enum { ROWS = 3, COLUMNS = 11 };
    int32_t data[ROWS * COLUMNS];
    count_up(data, ROWS * COLUMNS);
    int64_t begin = start < 0 ? start + COLUMNS : start, stop = end < 0 ? end + COLUMNS : end,
            picked[COLUMNS], count = 0, dims[] = {ROWS, COLUMNS}, one = 1, axis = -1;
    begin = begin < 0 ? 0 : begin > COLUMNS - (step < 0) ? COLUMNS - (step < 0) : begin;
    stop = stop < -(step < 0) ? -(step < 0) : stop > COLUMNS ? COLUMNS : stop;
    for (int64_t k = begin; step > 0 ? k < stop : k > stop; k += step)
        picked[count++] = k;
    int64_t out_dims[] = {ROWS, count};
    fixture *f = fixture_open("", "Slice", 13);
    fixture_input(f, GANTRY_INT32, 2, dims, data);
    fixture_constant(f, GANTRY_INT64, 1, &one, &start);
    fixture_constant(f, GANTRY_INT64, 1, &one, &end);
    fixture_constant(f, GANTRY_INT64, 1, &one, &axis);
    fixture_constant(f, GANTRY_INT64, 1, &one, &step);
    fixture_output(f, GANTRY_INT32, 2, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int64_t k = 0; k < ROWS * count; k++)
        cr_assert_eq(((int32_t *)f->out_data[0])[k], (int32_t)(k / count * COLUMNS + picked[k % count]),
                     "start %d end %d step %d", (int)start, (int)end, (int)step);
    fixture_close(f);
}

Test(kernels_movement, slices_with_any_bounds_and_steps)
{
    static const int64_t bounds[] = {INT64_MIN + 20, -20, -11, -5, -1, 0, 3, 10, 11, 30, INT64_MAX};
    static const int64_t steps[] = {1, 2, 3, 20, -1, -2, -20};
    for (int a = 0; a < 11; a++)
        for (int b = 0; b < 11; b++)
            for (int s = 0; s < 7; s++)
                check_slice(bounds[a], bounds[b], steps[s]);
}

/* ---- Pad ------------------------------------------------------------------------------------- */

static int64_t padded_source(const char *mode, int64_t at, int64_t extent)
{
    if (at >= 0 && at < extent)
        return at;
    if (strcmp(mode, "edge") == 0)
        return at < 0 ? 0 : extent - 1;
    if (strcmp(mode, "wrap") == 0)
        return ((at % extent) + extent) % extent;
    if (strcmp(mode, "reflect") == 0) {
        while (extent > 1 && (at < 0 || at >= extent))
            at = at < 0 ? -at : 2 * (extent - 1) - at;
        return extent > 1 ? at : 0;
    }
    return -1;
}

static void check_pad(const char *mode, const int64_t *pads)
{
    enum { ROWS = 4, COLUMNS = 5 };
    int32_t data[ROWS * COLUMNS], fill = -7;
    int64_t dims[] = {ROWS, COLUMNS}, four = 4, one = 1;
    int64_t cut[2], kept[2], out_dims[2];
    for (int k = 0; k < 2; k++) {
        cut[k] = pads[k] < 0 ? -pads[k] : 0;
        kept[k] = dims[k] - cut[k] - (pads[k + 2] < 0 ? -pads[k + 2] : 0);
        out_dims[k] = dims[k] + pads[k] + pads[k + 2];
    }
    count_up(data, ROWS * COLUMNS);
    fixture *f = fixture_open("", "Pad", 19);
    fixture_text(f, "mode", mode);
    fixture_input(f, GANTRY_INT32, 2, dims, data);
    fixture_constant(f, GANTRY_INT64, 1, &four, pads);
    fixture_constant(f, GANTRY_INT32, 0, &one, &fill);
    fixture_output(f, GANTRY_INT32, 2, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int64_t k = 0; k < out_dims[0] * out_dims[1]; k++) {
        int64_t y = padded_source(mode, k / out_dims[1] - (pads[0] > 0 ? pads[0] : 0), kept[0]);
        int64_t x = padded_source(mode, k % out_dims[1] - (pads[1] > 0 ? pads[1] : 0), kept[1]);
        int32_t wanted = y < 0 || x < 0 ? fill : data[(y + cut[0]) * COLUMNS + x + cut[1]];
        cr_assert_eq(((int32_t *)f->out_data[0])[k], wanted, "%s %d %d %d %d at %d", mode, (int)pads[0],
                     (int)pads[1], (int)pads[2], (int)pads[3], (int)k);
    }
    fixture_close(f);
}

Test(kernels_movement, pads_of_every_mode)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "wrap"};
    static const int64_t pads[][4] = {{1, 2, 3, 1}, {0, 3, 0, 0},   {-1, 2, 1, -2},
                                      {0, 0, 0, 3}, {2, -1, -1, 2}, {7, 9, 6, 8}};
    for (int m = 0; m < 4; m++)
        for (size_t k = 0; k < sizeof pads / sizeof pads[0]; k++)
            check_pad(modes[m], pads[k]);
}

/* Axes of one element in front, between and behind, and a single element that shows another position. */
Test(kernels_movement, pads_between_axes_of_one_element)
{
    int32_t data[3 * 4], fill = -7, single = 11;
    int64_t dims[] = {1, 3, 1, 4, 1}, out_dims[] = {1, 4, 1, 7, 1}, ten = 10, one = 1;
    int64_t pads[] = {0, 1, 0, 2, 0, 0, 0, 0, 1, 0}, shift[] = {-1, 1}, line[] = {1}, two = 2;
    count_up(data, 12);
    fixture *f = fixture_open("", "Pad", 19);
    fixture_input(f, GANTRY_INT32, 5, dims, data);
    fixture_constant(f, GANTRY_INT64, 1, &ten, pads);
    fixture_constant(f, GANTRY_INT32, 0, &one, &fill);
    fixture_output(f, GANTRY_INT32, 5, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int k = 0; k < 4 * 7; k++) {
        int y = k / 7 - 1, x = k % 7 - 2;
        cr_assert_eq(((int32_t *)f->out_data[0])[k], y < 0 || x < 0 || x > 3 ? fill : data[y * 4 + x]);
    }
    fixture_close(f);
    f = fixture_open("", "Pad", 19);
    fixture_input(f, GANTRY_INT32, 1, line, &single);
    fixture_constant(f, GANTRY_INT64, 1, &two, shift);
    fixture_constant(f, GANTRY_INT32, 0, &one, &fill);
    fixture_output(f, GANTRY_INT32, 1, line);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_assert_eq(*(int32_t *)f->out_data[0], fill);
    fixture_close(f);
}

/* ---- Concat and Split undo each other; Tile, Expand ------------------------------------------ */

Test(kernels_movement, split_undoes_concat_along_every_axis)
{
    for (int64_t axis = 0; axis < 3; axis++) {
        int64_t parts[3][3], whole[3] = {4, 5, 6};
        int32_t *data[3];
        whole[axis] = 0;
        fixture *join = fixture_open("", "Concat", 13);
        fixture_int(join, "axis", axis - 3);
        for (int k = 0; k < 3; k++) {
            int64_t dims[3] = {4, 5, 6};
            dims[axis] = k * 2; /* the first is empty */
            memcpy(parts[k], dims, sizeof dims);
            whole[axis] += dims[axis];
            int64_t count = dims[0] * dims[1] * dims[2];
            data[k] = malloc((size_t)count * 4 + 4);
            count_up(data[k], count);
            fixture_input(join, GANTRY_INT32, 3, parts[k], data[k]);
        }
        fixture_output(join, GANTRY_INT32, 3, whole);
        cr_assert_eq(fixture_run(join), GANTRY_OK);
        fixture *split = fixture_open("", "Split", 18);
        fixture_int(split, "axis", axis);
        fixture_input(split, GANTRY_INT32, 3, whole, join->out_data[0]);
        for (int k = 0; k < 3; k++)
            fixture_output(split, GANTRY_INT32, 3, parts[k]);
        cr_assert_eq(fixture_run(split), GANTRY_OK);
        for (int k = 0; k < 3; k++) {
            cr_assert_arr_eq(split->out_data[k], data[k], fixture_bytes(&split->outputs[k]),
                             "axis %d part %d", (int)axis, k);
            free(data[k]);
        }
        fixture_close(split);
        fixture_close(join);
    }
}

Test(kernels_movement, tile_and_expand_repeat)
{
    int32_t data[6];
    int64_t dims[] = {2, 3}, repeats[] = {3, 2}, out_dims[] = {6, 6}, two = 2, shape[] = {4, 2, 3}, three = 3;
    count_up(data, 6);
    fixture *f = fixture_open("", "Tile", 13);
    fixture_input(f, GANTRY_INT32, 2, dims, data);
    fixture_constant(f, GANTRY_INT64, 1, &two, repeats);
    fixture_output(f, GANTRY_INT32, 2, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int k = 0; k < 36; k++)
        cr_assert_eq(((int32_t *)f->out_data[0])[k], k / 6 % 2 * 3 + k % 3);
    fixture_close(f);

    f = fixture_open("", "Expand", 13);
    fixture_input(f, GANTRY_INT32, 2, dims, data);
    fixture_constant(f, GANTRY_INT64, 1, &three, shape);
    fixture_output(f, GANTRY_INT32, 3, shape);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int k = 0; k < 24; k++)
        cr_assert_eq(((int32_t *)f->out_data[0])[k], k % 6);
    fixture_close(f);
}

/* ---- Resize keeps what it must --------------------------------------------------------------- */

static void check_resize(const char *mode, const char *coordinates, int64_t in, int64_t out)
{
    float *data = malloc((size_t)(in * in) * 4);
    for (int64_t k = 0; k < in * in; k++)
        data[k] = 2.5f;
    int64_t dims[] = {1, 1, in, in}, out_dims[] = {1, 1, out, out}, four = 4;
    fixture *f = fixture_open("", "Resize", 19);
    fixture_text(f, "mode", mode);
    fixture_text(f, "coordinate_transformation_mode", coordinates);
    fixture_input(f, GANTRY_FLOAT32, 4, dims, data);
    fixture_no_input(f);
    fixture_no_input(f);
    fixture_constant(f, GANTRY_INT64, 1, &four, out_dims);
    fixture_output(f, GANTRY_FLOAT32, 4, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int64_t k = 0; k < out * out; k++)
        cr_assert(fabsf(((float *)f->out_data[0])[k] - 2.5f) < 1e-5f, "%s %s %d to %d: %g", mode, coordinates,
                  (int)in, (int)out, (double)((float *)f->out_data[0])[k]);
    fixture_close(f);
    free(data);
}

/* What inference refuses where it knows the ranks reaches the kernel where it does not. */
static void check_resize_refused(uint32_t axis_count, int64_t size_count, const char *policy)
{
    const float data[4] = {0};
    int64_t dims[] = {1, 1, 2, 2}, out_dims[] = {1, 1, 4, 4}, sizes[20], axes[20];
    for (int k = 0; k < 20; k++) {
        sizes[k] = 4;
        axes[k] = k % 4;
    }
    fixture *f = fixture_open("", "Resize", 19);
    fixture_text(f, "keep_aspect_ratio_policy", policy);
    fixture_ints(f, "axes", axis_count, axes);
    fixture_input(f, GANTRY_FLOAT32, 4, dims, data);
    fixture_no_input(f);
    fixture_no_input(f);
    fixture_constant(f, GANTRY_INT64, 1, &size_count, sizes);
    fixture_output(f, GANTRY_FLOAT32, 4, out_dims);
    cr_expect_eq(fixture_make(f), GANTRY_UNSUPPORTED, "%u axes, %d sizes", axis_count, (int)size_count);
    fixture_close(f);
}

Test(kernels_movement, resize_wants_one_size_for_each_of_its_axes)
{
    check_resize_refused(20, 20, "stretch");
    check_resize_refused(4, 2, "not_larger");
    check_resize_refused(2, 4, "not_smaller");
}

Test(kernels_movement, a_constant_image_stays_constant)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const coordinates[] = {"half_pixel", "align_corners", "asymmetric",
                                              "pytorch_half_pixel", "half_pixel_symmetric"};
    for (int m = 0; m < 3; m++)
        for (int c = 0; c < 5; c++)
            for (int64_t out = 1; out < 40; out += 3)
                check_resize(modes[m], coordinates[c], 9, out);
}

Test(kernels_movement, nearest_doubles)
{
    const float data[] = {1, 2, 3, 4}, scales[] = {1, 1, 2, 2};
    const float wanted[] = {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4};
    int64_t dims[] = {1, 1, 2, 2}, out_dims[] = {1, 1, 4, 4}, four = 4;
    fixture *f = fixture_open("", "Resize", 13);
    fixture_input(f, GANTRY_FLOAT32, 4, dims, data);
    fixture_no_input(f);
    fixture_constant(f, GANTRY_FLOAT32, 1, &four, scales);
    fixture_output(f, GANTRY_FLOAT32, 4, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_expect_arr_eq(f->out_data[0], wanted, sizeof wanted);
    fixture_close(f);
}
