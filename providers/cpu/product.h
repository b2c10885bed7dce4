/* What MatMul and Gemm have in common: a batch of products with broadcast batches and any strides. */
#ifndef CPU_PRODUCT_H
#define CPU_PRODUCT_H

#include "tile.h"

/* For each of batch_count matrices: y[m][n] = alpha * sum_k a[m][k] * b[k][n] (+ beta * c[m][n]). Strides in
 * elements, 0 where an operand is broadcast; y is dense. c_present: operand 2 of the call. */
typedef struct cpu_product {
    gantry_dtype dtype;
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column;
    uint32_t batch_rank;
    int64_t batch_dims[GANTRY_MAX_RANK];
    int64_t a_batch[GANTRY_MAX_RANK], b_batch[GANTRY_MAX_RANK];
    int64_t batch_count;
    float alpha, beta;
    bool c_present;
    int64_t c_row, c_column;
} cpu_product;

/* Reads the shapes of a MatMul or Gemm. GANTRY_UNSUPPORTED through cpu_unsupported when they do not fit. */
gantry_status cpu_product_of_matmul(cpu_build *build, cpu_product *out_product);
gantry_status cpu_product_of_gemm(cpu_build *build, cpu_product *out_product);

/* Plain loops for every numeric type of 4 and 8 bytes; float32 with the build's post-ops. */
gantry_status cpu_product_plain(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel);

/* float32 of few rows or little work, in panels of 64 columns, without oneDNN's cost of a call (0.2-0.5 us).
 * GANTRY_UNSUPPORTED without an error text when it is not made for that product. */
gantry_status cpu_product_small(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel);

/* float32 of few rows with a constant B whose columns are dense and whose plain copy another kernel keeps: no
 * packed copy. The same convention. */
gantry_status cpu_product_dots(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel);

/* float32 of many rows with a constant B, in tiles over the same panels; AVX-512 only. The same convention.
 */
gantry_status cpu_product_tiled(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel);

/* float32 through oneDNN's matmul with packed constant weights and fused post-ops. The same convention. */
gantry_status cpu_product_dnnl(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel);

/* Whether B lies in memory once for a table (Gather) and for this product: its columns are rows of that. */
static inline bool cpu_product_reads_kept(const cpu_build *build, const cpu_product *p)
{
    return build->inputs[1].kept && p->b_row == 1 && p->b_column == p->k && p->batch_count == 1 &&
           p->n * p->k >= (1 << 20);
}

/* A constant B in the panels of cpu_product_small as oneDNN packs it for many rows (K padded to 16), so that
 * a model that decodes after a prefill has its weights once. NULL with build->err set on failure. */
const float *cpu_product_pack_shared(cpu_build *build, const cpu_product *product);
/* Whether that is possible: with oneDNN, and for whole panels. */
bool cpu_product_can_share(const cpu_build *build, const cpu_product *product);

/* Whether C is a vector along the columns that is added as it is. */
static inline bool cpu_product_has_bias(const cpu_product *p)
{
    return p->c_present && p->c_row == 0 && (p->c_column == 1 || p->n == 1) && p->beta == 1.0f;
}

/* What is computed on the results: C of a Gemm as a bias, then the build's post-ops. Returns how many. */
static inline uint32_t cpu_product_posts(const cpu_build *build, const cpu_product *p,
                                         cpu_post out_posts[CPU_MAX_POSTS + 1])
{
    uint32_t count = 0;
    if (p->c_present)
        out_posts[count++] = (cpu_post){.kind = CPU_POST_BIAS, .input = 2};
    for (uint32_t k = 0; k < build->post_count; k++)
        out_posts[count++] = build->posts[k];
    return count;
}

/* Element offsets of matrix `index` of a batch. */
static inline void cpu_product_offsets(const cpu_product *p, int64_t index, int64_t *out_a, int64_t *out_b)
{
    *out_a = *out_b = 0;
    for (uint32_t k = p->batch_rank; k-- > 0;) {
        int64_t at = index % p->batch_dims[k];
        index /= p->batch_dims[k];
        *out_a += at * p->a_batch[k];
        *out_b += at * p->b_batch[k];
    }
}

#endif
