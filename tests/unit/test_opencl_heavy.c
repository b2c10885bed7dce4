/* Products, convolutions, pools and normalizations of the OpenCL provider, against the CPU's results. */
#include "../support/opencl_rows.h"

/* Sums of many terms, which are added in another order; what is not here gives the same within rounding. */
static bool sums_much(const char *op)
{
    static const char *const others[] = {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
                                         "Softmax"};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (strcmp(others[k], op) == 0)
            return false;
    return true;
}

static void add_word(char *text, size_t capacity, const char *word)
{
    size_t used = strlen(text);
    snprintf(text + used, capacity - used, "%s%s", used ? " " : "", word);
}

/* A line is a row as text: "OP operands attributes", and where they are not the usual ones opset:N outputs:N
 * tolerance:X. The result has the type of the first operand. */
static void check_line(const char *line)
{
    char text[256], inputs[160] = "", attributes[160] = "", output[8] = "", *rest = NULL;
    snprintf(text, sizeof text, "%s", line);
    row r = {.op = strtok_r(text, " ", &rest), .inputs = inputs, .attributes = attributes, .output = output};
    for (char *word = strtok_r(NULL, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (strncmp(word, "opset:", 6) == 0)
            r.opset = (int)strtol(word + 6, NULL, 10);
        else if (strncmp(word, "outputs:", 8) == 0)
            r.outputs = (int)strtol(word + 8, NULL, 10);
        else if (strncmp(word, "tolerance:", 10) == 0)
            r.tolerance = strtod(word + 10, NULL);
        else if (strchr(word, '='))
            add_word(attributes, sizeof attributes, word);
        else
            add_word(inputs, sizeof inputs, word);
    snprintf(output, sizeof output, "%.*s", (int)strcspn(inputs, "["), inputs);
    if (r.tolerance == 0 && sums_much(r.op))
        r.tolerance = strcmp(output, "f16") == 0 ? 5e-3 : 1e-5;
    check_rows(&r, 1);
}

static void check_lines(const char *const *lines, size_t count)
{
    for (size_t k = 0; k < count; k++)
        check_line(lines[k]);
}

#define CHECK_LINES(lines) check_lines(lines, sizeof(lines) / sizeof *(lines))

TestSuite(opencl_heavy, .init = rows_setup, .fini = rows_teardown, .timeout = 240);

Test(opencl_heavy, products)
{
    static const char *const rows[] = {
        "MatMul f32[4,5] f32[5,3]",
        "MatMul f32[37,70] f32[70,45]",
        "MatMul f32[2,3,9,17] f32[17,33]",
        "MatMul f32[2,3,9,17] f32[2,3,17,20]",
        "MatMul f32[2,1,4,6] f32[3,6,5]",
        "MatMul f32[4,6] f32[3,6,18]",
        "MatMul f32[3,2,2,1,3,4] f32[2,1,5,4,2]",
        "MatMul f32[6] f32[6]",
        "MatMul f32[6] f32[2,6,5]",
        "MatMul f32[2,5,6] f32[6]",
        "MatMul f32[1,64] f32[64,100]",
        "MatMul f16[9,40] f16[40,21]",
        "MatMul f32[3,0] f32[0,4]",
        "MatMul f32[0,3] f32[3,4]",
    };
    CHECK_LINES(rows);
}

Test(opencl_heavy, gemm)
{
    static const char *const rows[] = {
        "Gemm f32[5,7] f32[7,20] f32[5,20] alpha=0.5 beta=0.25",
        "Gemm f32[5,7] f32[7,20] f32[20]",
        "Gemm f32[5,7] f32[7,20] f32[5,1]",
        "Gemm f32[5,7] f32[7,20] f32[1] beta=2.0",
        "Gemm f32[5,7] f32[7,20]",
        "Gemm f32[5,70] f32[20,70] f32[20] transB=1",
        "Gemm f32[1,70] f32[20,70] f32[20] transB=1",
        "Gemm f32[17,6] f32[17,21] transA=1 alpha=3.0",
        "Gemm f32[70,66] f32[80,70] f32[80] transA=1 transB=1",
        "Gemm f16[5,7] f16[20,7] f16[20] transB=1",
        "Gemm f32[2,3] f32[3,4] f32[4] opset:11",
    };
    CHECK_LINES(rows);
}

Test(opencl_heavy, convolutions)
{
    static const char *const rows[] = {
        "Conv f32[1,3,8,8] f32[5,3,3,3] f32[5] pads=1,1,1,1",
        "Conv f32[2,3,9,7] f32[9,3,3,2] strides=2,3 pads=1,0,2,1",
        "Conv f32[1,2,12,12] f32[4,2,3,3] dilations=2,3",
        "Conv f32[2,20,5,5] f32[17,20,1,1] f32[17]",
        "Conv f32[1,8,6,6] f32[8,8,1,1] strides=2,2",
        "Conv f32[1,2,20] f32[6,2,5] f32[6] pads=2,2",
        "Conv f32[1,2,5,6,7] f32[3,2,2,3,2] pads=0,1,1,1,1,0",
        "Conv f32[2,12,7,7] f32[12,1,3,3] f32[12] group=12 pads=1,1,1,1",
        "Conv f32[1,6,19,21] f32[12,1,5,5] group=6 pads=2,2,2,2 strides=2,1",
        "Conv f32[1,6,7,7] f32[4,3,3,3] group=2",
        "Conv f32[2,8,6,6] f32[32,4,3,3] f32[32] group=2 pads=1,1,1,1",
        "Conv f32[2,16,5,5] f32[16,8,1,1] f32[16] group=2",
        "Conv f32[1,3,10,9] f32[4,3,3,3] auto_pad=SAME_UPPER strides=2,2",
        "Conv f32[1,3,10,9] f32[4,3,4,2] auto_pad=SAME_LOWER strides=3,2",
        "Conv f32[1,3,10,9] f32[4,3,3,3] auto_pad=VALID",
        "Conv f16[1,3,8,8] f16[5,3,3,3] f16[5] pads=1,1,1,1",
        "Conv f32[1,3,21,40] f32[9,3,3,3] f32[9] pads=1,1,1,1",
        "Conv f32[2,3,21,45] f32[10,3,5,3] f32[10] pads=2,1,2,1 strides=2,2",
        "Conv f32[1,2,70] f32[3,2,7] pads=9,0 dilations=2, strides=3,",
        "Conv f32[2,4,9,33] f32[8,1,3,3] f32[8] pads=1,1,1,1 group=4",
        "Conv f16[1,4,9,40] f16[4,1,3,3] pads=1,1,1,1 group=4 strides=1,2",
        "Conv f32[0,3,8,8] f32[5,3,3,3]",
        "ConvTranspose f32[1,3,5,5] f32[3,4,3,3] f32[4] strides=2,2 pads=1,1,1,1",
        "ConvTranspose f32[2,4,5,4] f32[4,3,2,2] strides=2,2",
        "ConvTranspose f32[1,4,6] f32[4,2,3] group=2 dilations=2, output_padding=1, strides=2,",
        "ConvTranspose f32[1,2,5,5] f32[2,3,3,3] strides=3,2 output_shape=15,11",
        "ConvTranspose f32[1,2,3,4,5] f32[2,2,2,3,2] strides=2,1,2",
    };
    CHECK_LINES(rows);
}

/* More columns than scratch memory holds at a time: parts of an image, and some images of many. */
Test(opencl_heavy, convolutions_in_parts)
{
    static const char *const rows[] = {
        "Conv f32[1,1,190,12] f32[3,1,61,31] pads=30,15,30,15 tolerance:1e-4",
        "Conv f32[60,1,12,12] f32[2,1,25,25] pads=12,12,12,12 tolerance:1e-4",
    };
    CHECK_LINES(rows);
}

Test(opencl_heavy, pools)
{
    static const char *const rows[] = {
        "MaxPool f32[2,3,8,9] kernel_shape=3,3 strides=2,2 pads=1,1,1,1",
        "MaxPool f32[1,2,8,9] kernel_shape=3,2 dilations=2,1 ceil_mode=1 strides=2,3",
        "MaxPool f32[1,2,17] kernel_shape=4, strides=3, ceil_mode=1",
        "MaxPool f32[1,2,5,6,7] kernel_shape=2,2,3 auto_pad=SAME_UPPER",
        "MaxPool f16[1,2,8,9] kernel_shape=3,3",
        "AveragePool f32[2,3,8,9] kernel_shape=3,3 strides=2,2 pads=1,1,1,1",
        "AveragePool f32[2,3,8,9] kernel_shape=3,3 pads=1,1,1,1 count_include_pad=1",
        "AveragePool f32[1,2,9,8] kernel_shape=3,2 strides=2,3 ceil_mode=1 count_include_pad=1",
        "AveragePool f32[1,2,9,8] kernel_shape=3,3 strides=2,3 ceil_mode=1 pads=1,1,1,1",
        "AveragePool f32[1,2,9,8] kernel_shape=2,2 dilations=2,2 pads=1,1,1,1 count_include_pad=1",
        "AveragePool f32[1,2,9,8] kernel_shape=4,4 auto_pad=SAME_LOWER",
        "AveragePool f16[1,2,9,8] kernel_shape=3,3",
        "LpPool f32[1,2,9,8] kernel_shape=3,3 pads=1,1,1,1 p=2",
        "LpPool f32[1,2,9,8] kernel_shape=3,3 p=3",
        "GlobalAveragePool f32[2,3,7,9]",
        "GlobalAveragePool f32[2,3,50]",
        "GlobalAveragePool f16[2,3,7,7]",
        "GlobalMaxPool f32[2,3,7,9]",
        "GlobalLpPool f32[2,3,7,9] p=1",
    };
    CHECK_LINES(rows);
}

Test(opencl_heavy, softmax)
{
    static const char *const rows[] = {
        "Softmax f32[4,70]",
        "Softmax f32[2,3,4,5] axis=1",
        "Softmax f32[2,3,4,5] axis=-4",
        "Softmax f32[2,3,4,5] opset:11",
        "Softmax f32[2,3,4,5] axis=2 opset:11",
        "Softmax f16[4,70]",
        "LogSoftmax f32[4,70]",
        "LogSoftmax f32[2,3,4,5] axis=0",
        "LogSoftmax f32[2,3,4,5] axis=2 opset:11",
    };
    CHECK_LINES(rows);
}

Test(opencl_heavy, normalizations)
{
    static const char *const rows[] = {
        "LayerNormalization f32[3,5,40] f32[40] f32[40]",
        "LayerNormalization f32[3,5,8] f32[5,8] axis=1 epsilon=0.01",
        "LayerNormalization f32[3,5,8] f32[1] f32[1] axis=-2",
        "LayerNormalization f32[3,5,40] f32[40] f32[40] outputs:3",
        "LayerNormalization f16[3,40] f16[40] f16[40]",
        "RMSNormalization f32[3,5,40] f32[40] opset:23",
        "RMSNormalization f32[3,5,8] f32[5,8] axis=1 opset:23",
        "InstanceNormalization f32[2,3,7,5] f32[3] f32[3]",
        "GroupNormalization f32[2,6,7,5] f32[6] f32[6] num_groups=3",
        "GroupNormalization f32[2,6,7,5] f32[3] f32[3] num_groups=3 opset:18",
        "BatchNormalization f32[2,3,4,5] f32[3] f32[3] f32[3] f32[3]+",
        "BatchNormalization f32[2,3] f32[3] f32[3] f32[3] f32[3]+ epsilon=0.1 opset:9",
        "LRN f32[2,9,4,5] size=4 alpha=0.5 beta=0.6 bias=1.5",
    };
    CHECK_LINES(rows);
}

/* ---- the kernels of a GPU, on whatever device there is --------------------------------------- */

static void groups_setup(void)
{
    rows_setup_with("device=0,kernels=groups");
}

TestSuite(opencl_groups, .init = groups_setup, .fini = rows_teardown, .timeout = 240);

Test(opencl_groups, products)
{
    static const char *const rows[] = {
        "MatMul f32[70,37] f32[37,131]",
        "MatMul f32[2,3,9,17] f32[2,1,17,20]",
        "MatMul f32[1,70] f32[70,45]",
        "MatMul f16[9,40] f16[40,21]",
        "Gemm f32[3,70] f32[45,70] f32[45] transB=1 alpha=0.5",
        "Gemm f32[17,70] f32[45,70] f32[17,1] transB=1 beta=0.5",
        "Gemm f32[17,70] f32[17,66] f32[66] transA=1",
    };
    CHECK_LINES(rows);
}

Test(opencl_groups, convolutions)
{
    static const char *const rows[] = {
        "Conv f32[2,3,19,17] f32[9,3,3,3] f32[9] pads=1,1,1,1 strides=2,1",
        "Conv f32[2,20,5,5] f32[17,20,1,1]",
        "Conv f32[1,6,19,21] f32[12,1,5,5] f32[12] group=6 pads=2,2,2,2 strides=2,1",
        "Conv f32[2,8,6,6] f32[32,4,3,3] f32[32] group=2 pads=1,1,1,1",
    };
    CHECK_LINES(rows);
}

Test(opencl_groups, rows_of_many_items)
{
    static const char *const rows[] = {
        "Softmax f32[4,200]",
        "Softmax f32[2,3,4,5] axis=1",
        "LogSoftmax f16[4,70]",
        "LayerNormalization f32[3,5,300] f32[300] f32[300] outputs:3",
        "RMSNormalization f32[3,5,40] f32[40] opset:23",
        "InstanceNormalization f32[2,3,7,50] f32[3] f32[3]",
        "GlobalAveragePool f32[2,3,17,19]",
        "GlobalMaxPool f32[2,3,17,19]",
    };
    CHECK_LINES(rows);
}

Test(opencl_groups, a_config_that_nobody_knows)
{
    gantry_error err = GANTRY_ERROR_INIT;
    cr_assert_eq(gantry_runtime_load_provider(runtime, OPENCL, "kernels=all", &err), GANTRY_PROVIDER);
    cr_assert(strstr(err.message, "kernels=groups"), "%s", err.message);
}
