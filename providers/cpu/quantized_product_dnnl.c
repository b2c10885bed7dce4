/* QLinearMatMul with constant weights through oneDNN, requantized in the primitive; a Gemm between
 * DequantizeLinear and QuantizeLinear too. */
#include "quantized.h"
#include "quantized_dnnl.h"

static dnnl_data_type_t byte_type(gantry_dtype dtype)
{
    return dtype == GANTRY_INT8 ? dnnl_s8 : dnnl_u8;
}

static bool describe(const cpu_build *build, const cpu_qfactors *factors, int64_t m, int64_t k, int64_t n,
                     bool transposed, cpu_qdescriptors *d)
{
    dnnl_dims_t a = {m, k}, b = {k, n}, y = {m, n}, bias = {1, n};
    dnnl_primitive_attr_t attributes = NULL;
    d->parameters[0] = cpu_qmultipliers(factors, 2, 1);
    if (d->parameters[0])
        attributes = cpu_qattributes(factors, d->parameters[0]);
    bool good =
        attributes &&
        dnnl_memory_desc_create_with_tag(&d->x, 2, a, byte_type(build->inputs[0].dtype), dnnl_ab) ==
            dnnl_success &&
        dnnl_memory_desc_create_with_tag(&d->w_plain, 2, b, dnnl_s8, transposed ? dnnl_ba : dnnl_ab) ==
            dnnl_success &&
        dnnl_memory_desc_create_with_tag(&d->w_wanted, 2, b, dnnl_s8, dnnl_format_tag_any) == dnnl_success &&
        (!factors->bias ||
         dnnl_memory_desc_create_with_tag(&d->bias, 2, bias, dnnl_f32, dnnl_ab) == dnnl_success) &&
        dnnl_memory_desc_create_with_tag(&d->y, 2, y, byte_type(build->outputs[0].dtype), dnnl_ab) ==
            dnnl_success &&
        dnnl_matmul_primitive_desc_create(&d->primitive, cpu_dnnl_engine(build), d->x, d->w_wanted, d->bias,
                                          d->y, attributes) == dnnl_success;
    dnnl_primitive_attr_destroy(attributes);
    return good;
}

gantry_status cpu_qproduct_dnnl(cpu_build *build, const cpu_qoperands *o, bool transposed,
                                cpu_kernel *out_kernel)
{
    const cpu_tensor *a = &build->inputs[0], *b = &build->inputs[o->w];
    if (a->rank < 2 || b->rank != 2 || a->count == 0)
        return GANTRY_UNSUPPORTED;
    int64_t k = a->dims[a->rank - 1], m = a->count / k, n = b->dims[transposed ? 0 : 1];
    cpu_qfactors factors;
    if (!cpu_qdnnl_serves(build))
        return GANTRY_UNSUPPORTED;
    if (b->dims[transposed ? 1 : 0] != k)
        return GANTRY_UNSUPPORTED;
    GT_TRY(cpu_qfactors_read(build, o, n, &factors));
    cpu_qdescriptors d = {0};
    const char *name;
    double work = (double)m * (double)n * (double)k;
    int threads = work < 64.0 * CPU_TINY_ELEMENTS ? 1 : build->threads;
    int before = cpu_dnnl_enter(build, threads);
    gantry_status status = GANTRY_UNSUPPORTED;
    if (describe(build, &factors, m, k, n, transposed, &d) &&
        cpu_dnnl_rate(d.primitive, &name) == CPU_DNNL_FAST)
        status = cpu_qkernel(build, o, &factors, &d, out_kernel);
    cpu_dnnl_leave(before);
    cpu_qdescriptors_destroy(&d);
    if (status == GANTRY_OK) {
        out_kernel->threads = threads;
        out_kernel->flops = 2 * work;
    }
    return status;
}
