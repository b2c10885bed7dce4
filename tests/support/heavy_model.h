/* A model whose weights are large enough to be shared by sessions: what a convolution packs, what a product
 * packs, and a table that is read as it is. */
#ifndef GT_TESTS_HEAVY_MODEL_H
#define GT_TESTS_HEAVY_MODEL_H

#include "small_models.h"

#define HEAVY_CHANNELS 32
#define HEAVY_SIDE 24
#define HEAVY_INPUTS (HEAVY_CHANNELS * HEAVY_SIDE * HEAVY_SIDE)
#define HEAVY_OUTPUTS (HEAVY_INPUTS / HEAVY_SIDE * 64)
#define HEAVY_FORMS                                                                                          \
    3u /* of "k", "w" and "t"; more when the weights of the convolution are looked through                   \
        */

/* Small whole numbers: sums of their products are exact. */
static inline void heavy_weights(wire *graph, const char *name, int rank, const int64_t *dims, int seed)
{
    size_t count = 1;
    for (int k = 0; k < rank; k++)
        count *= (size_t)dims[k];
    float *values = malloc(count * sizeof *values);
    for (size_t k = 0; values && k < count; k++)
        values[k] = (float)((int)(k * 7 + (size_t)seed * 3) % 5 - 2);
    if (values)
        wire_message(graph, GRAPH_INITIALIZER,
                     onnx_raw_tensor(name, SMALL_F32, rank, dims, values, count * sizeof *values));
    free(values);
}

/* y = (Conv(x, k) + t[rows]) w, of [1, 32, 24, 24]; seed: another one has other weights of the same sizes. */
static inline wire heavy_model(int seed)
{
    const int64_t kernel[4] = {HEAVY_CHANNELS, HEAVY_CHANNELS, 3, 3}, pads[4] = {1, 1, 1, 1};
    const int64_t product[2] = {HEAVY_SIDE, 64}, table[2] = {100, HEAVY_SIDE};
    const int64_t image[4] = {1, HEAVY_CHANNELS, HEAVY_SIDE, HEAVY_SIDE};
    const int64_t result[4] = {1, HEAVY_CHANNELS, HEAVY_SIDE, 64}, rows[1] = {HEAVY_SIDE};
    wire g = small_graph("heavy"), conv = onnx_node("Conv", "conv", "x,k", "c"), padding = {0};
    heavy_weights(&g, "k", 4, kernel, seed);
    heavy_weights(&g, "w", 2, product, seed + 1);
    heavy_weights(&g, "t", 2, table, seed + 2);
    for (int k = 0; k < 4; k++)
        wire_int(&padding, 8, pads[k]);
    wire_text(&padding, 1, "pads");
    wire_int(&padding, 20, 7);
    wire_message(&conv, 5, padding);
    wire_message(&g, GRAPH_NODE, conv);
    wire_message(&g, GRAPH_NODE, onnx_node("Gather", "gather", "t,rows", "r"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add", "c,r", "a"));
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", "product", "a,w", "y"));
    wire_message(&g, GRAPH_INPUT, onnx_value("x", SMALL_F32, 4, image));
    wire_message(&g, GRAPH_INPUT, onnx_value("rows", SMALL_I64, 1, rows));
    wire_message(&g, GRAPH_OUTPUT, onnx_value("y", SMALL_F32, 4, result));
    return small_model(g);
}

/* Runs it once; the caller frees the HEAVY_OUTPUTS elements. NULL: it failed, s->err says why. */
static inline float *heavy_run(small_session *s)
{
    static const int64_t image[4] = {1, HEAVY_CHANNELS, HEAVY_SIDE, HEAVY_SIDE}, rows[1] = {HEAVY_SIDE};
    float *x = malloc(HEAVY_INPUTS * sizeof *x), *y = malloc(HEAVY_OUTPUTS * sizeof *y);
    int64_t picked[HEAVY_SIDE];
    for (int k = 0; x && k < HEAVY_INPUTS; k++)
        x[k] = (float)(k % 7 - 3) * 0.25f;
    for (int k = 0; k < HEAVY_SIDE; k++)
        picked[k] = 99 - k;
    gantry_tensor a = small_tensor(SMALL_F32, 4, image, x, HEAVY_INPUTS * sizeof *x);
    gantry_tensor b = small_tensor(SMALL_I64, 1, rows, picked, sizeof picked);
    s->status = x && y ? gantry_run_bind_input(s->run, 0, &a, &s->err) : GANTRY_RESOURCE;
    if (s->status == GANTRY_OK)
        s->status = gantry_run_bind_input(s->run, 1, &b, &s->err);
    if (s->status == GANTRY_OK)
        s->status = gantry_run_execute(s->run, &s->err);
    gantry_tensor out = {.struct_bytes = sizeof out};
    if (s->status == GANTRY_OK)
        out = small_result(s, 0);
    if (s->status == GANTRY_OK)
        memcpy(y, small_floats_of(&out), HEAVY_OUTPUTS * sizeof *y);
    free(x);
    if (s->status == GANTRY_OK)
        return y;
    free(y);
    return NULL;
}

/* Whether two results are the same. */
static inline bool heavy_equal(const float *a, const float *b)
{
    for (size_t k = 0; k < HEAVY_OUTPUTS; k++)
        if (a[k] != b[k])
            return false;
    return true;
}

#endif
