/* Shared by the files of products, convolutions, pools and normalizations: windows, and products as launches.
 */
#ifndef GANTRY_OPENCL_HEAVY_H
#define GANTRY_OPENCL_HEAVY_H

#include "opencl_ops.h"

/* Computed in float32, stored as they are. */
#define OPENCL_SINGLE_OR_HALF (OPENCL_F32 | OPENCL_F16)

/* ---- sources: .cl files, each with heavy.cl before it ---- */

extern const char opencl_product_source[];
extern const char opencl_conv_source[];
extern const char opencl_pool_source[];
extern const char opencl_norm_source[];

/* Adds a launch with "#define HALF" where x is float16, and the defines. */
opencl_launch *opencl_heavy_add(opencl_build *build, const opencl_operand *x, const char *defines,
                                const char *source, const char *name);

/* An item for each x, y, z. Groups of 64 along x, so kernels check x: a driver that may choose builds a
 * kernel anew for each size, or takes a group of one where x is prime. */
void opencl_launch_items(opencl_launch *launch, int64_t x, int64_t y, int64_t z);

/* ---- limits ---- */

/* Inputs and outputs from `first` on have the type of input 0 and fewer than 2^31 elements. */
bool opencl_same_types(const opencl_node *node, gantry_verdict *verdict);
/* An output beyond the first that somebody wants. */
bool opencl_only_first_output(const opencl_node *node, gantry_verdict *verdict);

/* ---- windows ---- */

/* Over depth, height, width; of fewer spatial dims the first ones are 1. pad lies before the first element,
 * end behind the last one as the model has it. */
typedef struct opencl_window {
    int32_t in[4], out[4], kernel[4], stride[4], dilation[4], pad[4], end[4];
} opencl_window;

/* Asks whether the node's attributes and ranks fit a window of 1 to 3 spatial dims. kernel: its extents, of
 * as many dims as input 0 has beyond two; read once they are known. */
bool opencl_window_limits(const opencl_node *node, const int64_t *kernel, gantry_verdict *verdict);
void opencl_window_read(const opencl_node *node, const int64_t *kernel, opencl_window *out_window);
/* The first `count` vectors of a window, as arguments of four ints each. */
void opencl_window_args(opencl_launch *launch, const opencl_window *window, uint32_t count);
int64_t opencl_product3(const int32_t *dims);

/* ---- rows ---- */

/* A launch of a kernel of norm.cl for the type of input 0, then its arguments, then its size: a group of
 * items for each row. */
opencl_launch *opencl_rows_add(opencl_build *build, const opencl_node *node, const char *defines,
                               const char *name);
void opencl_rows_launch(opencl_launch *launch, const opencl_node *node, int64_t rows, const char *variant);

/* ---- products ---- */

/* c = alpha * a b + beta * bias for batches over up to eight axes, innermost first. Strides and begins are in
 * elements; columns of c are dense. b is an operand or scratch memory. bias NULL: none. */
typedef struct opencl_product {
    const opencl_operand *a, *b, *bias, *c;
    bool b_is_scratch;
    uint32_t b_scratch;
    int32_t rows, columns, depth;
    int32_t batch_dims[8], a_batch[8], b_batch[8], bias_batch[8], c_batch[8];
    int32_t row_strides[4], column_strides[4]; /* a, b, bias, c */
    int32_t c_begin;
    float alpha, beta;
    const char *name; /* for the report: "matmul" */
} opencl_product;

/* One matrix, no bias, alpha 1. */
opencl_product opencl_product_of(const opencl_operand *a, const opencl_operand *b, const opencl_operand *c);
void opencl_product_add(opencl_build *build, const opencl_node *node, const opencl_product *product);

#endif
