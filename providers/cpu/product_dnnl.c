/* float32 products through oneDNN's matmul: constant weights packed once for all shapes, bias and activation
 * fused. */
#include "dnnl_kernel.h"
#include "product.h"

typedef struct shape_set {
    dnnl_memory_desc_t a, b, b_wanted, bias, y;
} shape_set;

static void destroy_shapes(shape_set *set)
{
    dnnl_memory_desc_destroy(set->a);
    dnnl_memory_desc_destroy(set->b);
    dnnl_memory_desc_destroy(set->b_wanted);
    dnnl_memory_desc_destroy(set->bias);
    dnnl_memory_desc_destroy(set->y);
}

/* A matrix with the batch dims in front; those with stride 0 have extent 1 and are broadcast. */
static bool describe_matrix(dnnl_memory_desc_t *out_md, const cpu_product *p, int64_t rows, int64_t columns,
                            int64_t row, int64_t column, const int64_t *batch)
{
    dnnl_dims_t dims, strides;
    int rank = (int)p->batch_rank;
    int64_t dense = rows * columns;
    for (int k = rank; k-- > 0;) {
        dims[k] = batch && batch[k] == 0 ? 1 : p->batch_dims[k];
        strides[k] = batch ? (batch[k] == 0 ? dense : batch[k]) : dense;
        if (!batch)
            dense *= dims[k];
    }
    dims[rank] = rows;
    dims[rank + 1] = columns;
    strides[rank] = row;
    strides[rank + 1] = column;
    return dnnl_memory_desc_create_with_strides(out_md, rank + 2, dims, dnnl_f32, strides) == dnnl_success;
}

/* A row that is longer than it needs to be never matters when there is only one. */
static bool describe(shape_set *set, const cpu_product *p, bool pack, bool bias)
{
    dnnl_dims_t dims = {p->k, p->n};
    if (!describe_matrix(&set->a, p, p->m, p->k, p->a_row, p->a_column, p->a_batch) ||
        !describe_matrix(&set->b, p, p->k, p->n, p->b_row, p->b_column, p->b_batch) ||
        !describe_matrix(&set->y, p, p->m, p->n, p->n, 1, NULL))
        return false;
    if (pack && dnnl_memory_desc_create_with_tag(&set->b_wanted, 2, dims, dnnl_f32, dnnl_format_tag_any) !=
                    dnnl_success)
        return false;
    if (!bias)
        return true;
    dnnl_dims_t bias_dims, bias_strides;
    int rank = (int)p->batch_rank + 2;
    for (int k = 0; k < rank; k++) {
        bias_dims[k] = k == rank - 1 ? p->n : 1;
        bias_strides[k] = k == rank - 1 ? 1 : p->n;
    }
    return dnnl_memory_desc_create_with_strides(&set->bias, rank, bias_dims, dnnl_f32, bias_strides) ==
           dnnl_success;
}

bool cpu_product_can_share(const cpu_build *build, const cpu_product *p)
{
    return cpu_dnnl_engine(build) && p->n >= CPU_PANEL;
}

const float *cpu_product_pack_shared(cpu_build *build, const cpu_product *p)
{
    dnnl_dims_t dims = {p->k, p->n}, strides = {p->b_row, p->b_column};
    dnnl_memory_desc_t plain = NULL, panels = NULL;
    const float *packed = NULL;
    if (dnnl_memory_desc_create_with_strides(&plain, 2, dims, dnnl_f32, strides) == dnnl_success &&
        dnnl_memory_desc_create_with_tag(&panels, 2, dims, dnnl_f32, dnnl_BA16a64b) == dnnl_success)
        packed = cpu_dnnl_pack(build, &build->inputs[1], plain, panels);
    else
        gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    dnnl_memory_desc_destroy(plain);
    dnnl_memory_desc_destroy(panels);
    return packed;
}

/* The operand that is added along the columns: C of a Gemm, or a fused Add. -1: none. */
static int bias_operand(const cpu_build *build, const cpu_product *p)
{
    if (p->c_present)
        return 2;
    for (uint32_t k = 0; k < build->post_count; k++)
        if (build->posts[k].kind == CPU_POST_BIAS)
            return (int)build->posts[k].input;
    return -1;
}

static gantry_status make(cpu_build *build, const cpu_product *p, const shape_set *set,
                          dnnl_primitive_desc_t descriptor, int residual, cpu_kernel *out_kernel)
{
    const char *name;
    if (cpu_dnnl_rate(descriptor, &name) == CPU_DNNL_REFERENCE)
        return GANTRY_UNSUPPORTED;
    cpu_dnnl_arg args[4] = {{DNNL_ARG_SRC, CPU_DNNL_INPUT, 0, NULL, set->a},
                            {DNNL_ARG_WEIGHTS, CPU_DNNL_INPUT, 1, NULL, set->b},
                            {DNNL_ARG_DST, CPU_DNNL_OUTPUT, 0, NULL, set->y}};
    uint32_t count = 3;
    if (set->b_wanted) {
        args[1].md = dnnl_primitive_desc_query_md(descriptor, dnnl_query_weights_md, 0);
        args[1].source = CPU_DNNL_FIXED;
        args[1].fixed = cpu_dnnl_pack(build, &build->inputs[1], set->b, args[1].md);
        if (!args[1].fixed)
            return GANTRY_RESOURCE;
    }
    if (set->bias)
        args[count++] =
            (cpu_dnnl_arg){DNNL_ARG_BIAS, CPU_DNNL_INPUT, (uint32_t)bias_operand(build, p), NULL, set->bias};
    GT_TRY(cpu_dnnl_kernel(build, descriptor, args, count, residual, out_kernel));
    out_kernel->packed_inputs = set->b_wanted ? 2 : 0;
    out_kernel->flops = 2.0 * (double)p->batch_count * (double)p->m * (double)p->n * (double)p->k;
    return GANTRY_OK;
}

static bool can_take(const cpu_build *build, const cpu_product *p)
{
    return cpu_dnnl_engine(build) && p->dtype == GANTRY_FLOAT32 && p->alpha == 1.0f && p->k > 0 &&
           (!p->c_present || cpu_product_has_bias(p)) && p->batch_rank + 2 <= 6;
}

gantry_status cpu_product_dnnl(cpu_build *build, const cpu_product *p, cpu_kernel *out_kernel)
{
    if (!can_take(build, p))
        return GANTRY_UNSUPPORTED;
    bool pack = build->inputs[1].constant && p->batch_count == 1 && p->batch_rank == 0 &&
                !cpu_product_reads_kept(build, p);
    double work = (double)p->batch_count * (double)p->m * (double)p->n * (double)p->k;
    int threads = work < 16.0 * CPU_TINY_ELEMENTS ? 1 : build->threads, residual = -1;
    shape_set set = {0};
    dnnl_primitive_desc_t descriptor = NULL;
    dnnl_primitive_attr_t attributes = cpu_dnnl_attributes(build, &residual);
    int before = cpu_dnnl_enter(build, threads);
    gantry_status status = GANTRY_UNSUPPORTED;
    if (attributes && describe(&set, p, pack, bias_operand(build, p) >= 0) &&
        dnnl_matmul_primitive_desc_create(&descriptor, cpu_dnnl_engine(build), set.a,
                                          set.b_wanted ? set.b_wanted : set.b, set.bias, set.y,
                                          attributes) == dnnl_success)
        status = make(build, p, &set, descriptor, residual, out_kernel);
    cpu_dnnl_leave(before);
    if (status == GANTRY_OK)
        out_kernel->threads = threads;
    dnnl_primitive_desc_destroy(descriptor);
    dnnl_primitive_attr_destroy(attributes);
    destroy_shapes(&set);
    return status;
}
