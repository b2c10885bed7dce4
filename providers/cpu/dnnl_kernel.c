/* Turns oneDNN primitives into kernels of the provider: one function makes them all, reads which
 * implementation was chosen, and never accepts the reference one (782 ms instead of 0.15 were seen). */
#include "dnnl_kernel.h"
#include "program.h"

#include <cblas.h>
#include <omp.h>

/* ---- opening --------------------------------------------------------------------------------- */

/* Old OpenBLAS builds are wrong on new CPUs: one product whose result is known decides. */
static bool sgemv_is_right(void)
{
    enum { ROWS = 37, COLUMNS = 53 };
    float matrix[ROWS * COLUMNS], vector[ROWS], result[COLUMNS];
    for (int k = 0; k < ROWS * COLUMNS; k++)
        matrix[k] = (float)(k % 13 - 6);
    for (int k = 0; k < ROWS; k++)
        vector[k] = (float)(k % 5 - 2);
    cblas_sgemv(CblasRowMajor, CblasTrans, ROWS, COLUMNS, 1.0f, matrix, COLUMNS, vector, 1, 0.0f, result, 1);
    for (int c = 0; c < COLUMNS; c++) {
        float expected = 0;
        for (int r = 0; r < ROWS; r++)
            expected += vector[r] * matrix[r * COLUMNS + c];
        if (result[c] != expected)
            return false;
    }
    return true;
}

static const struct {
    dnnl_cpu_isa_t isa;
    const char *name;
} isa_names[] = {{dnnl_cpu_isa_sse41, "sse41"},
                 {dnnl_cpu_isa_avx, "avx"},
                 {dnnl_cpu_isa_avx2, "avx2"},
                 {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
                 {dnnl_cpu_isa_avx2_vnni_2, "avx2_vnni_2"},
                 {dnnl_cpu_isa_avx512_core, "avx512_core"},
                 {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
                 {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
                 {dnnl_cpu_isa_avx512_core_fp16, "avx512_core_fp16"},
                 {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
                 {dnnl_cpu_isa_avx512_core_amx_fp16, "avx512_core_amx_fp16"}};

static const char *isa_name(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    for (size_t k = 0; k < sizeof isa_names / sizeof *isa_names; k++)
        if (isa_names[k].isa == isa)
            return isa_names[k].name;
    return "generic";
}

void cpu_dnnl_open(cpu_provider *provider)
{
    dnnl_engine_t engine = NULL;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success)
        provider->dnnl_engine = engine;
    provider->isa = isa_name();
    provider->exact_bytes = strstr(provider->isa, "vnni") || strstr(provider->isa, "bf16") ||
                            strstr(provider->isa, "fp16") || strstr(provider->isa, "amx");
    provider->channel_block = strncmp(provider->isa, "avx512", 6) == 0 ? 16 : 8;
    provider->sgemv_right = sgemv_is_right();
}

void cpu_dnnl_close(cpu_provider *provider)
{
    if (provider->dnnl_engine)
        dnnl_engine_destroy(provider->dnnl_engine);
    provider->dnnl_engine = NULL;
}

/* Emptying and refilling the capacity is oneDNN's only way to drop cached primitives. */
void cpu_dnnl_trim(cpu_provider *provider)
{
    int capacity = 0;
    if (provider->dnnl_engine && dnnl_get_primitive_cache_capacity(&capacity) == dnnl_success) {
        dnnl_set_primitive_cache_capacity(0);
        dnnl_set_primitive_cache_capacity(capacity);
    }
}

void cpu_dnnl_describe(const cpu_provider *provider, char *text, size_t capacity)
{
    const dnnl_version_t *version = dnnl_version();
    const char *blas = openblas_get_config();
    int length = (int)strcspn(blas, " ");
    length += (int)strspn(blas + length, " ");
    int number = (int)strcspn(blas + length, " ");
    snprintf(text, capacity, "oneDNN %d.%d.%d (%s)%s; %.*s%s", version->major, version->minor, version->patch,
             provider->isa, provider->dnnl_engine ? "" : " without a CPU engine", length + number, blas,
             provider->sgemv_right ? "" : " (not used: it failed a known product)");
}

dnnl_engine_t cpu_dnnl_engine(const cpu_build *build)
{
    return build->provider->dnnl_engine;
}

int cpu_dnnl_enter(const cpu_build *build, int threads)
{
    int before = omp_get_max_threads();
    omp_set_num_threads(threads > 0 ? threads : 1);
    return before;
}

void cpu_dnnl_leave(int before)
{
    omp_set_num_threads(before);
}

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct kernel_arg {
    int arg;
    cpu_dnnl_source source;
    uint32_t index;
    const void *fixed;
    dnnl_memory_desc_t md;
} kernel_arg;

/* Immutable; the primitive is thread-safe because its scratchpad is the caller's. */
typedef struct kernel_state {
    dnnl_engine_t engine;
    dnnl_primitive_t primitive;
    uint32_t arg_count;
    kernel_arg args[CPU_DNNL_MAX_ARGS];
    int residual_input;
    size_t residual_bytes;
} kernel_state;

/* One context's memory objects. */
typedef struct kernel_context {
    dnnl_stream_t stream;
    dnnl_exec_arg_t args[CPU_DNNL_MAX_ARGS];
    void *bound[CPU_DNNL_MAX_ARGS];
} kernel_context;

static void *arg_address(const kernel_arg *arg, const cpu_call *call)
{
    switch (arg->source) {
    case CPU_DNNL_INPUT:
        return (void *)call->inputs[arg->index];
    case CPU_DNNL_OUTPUT:
        return call->outputs[arg->index];
    case CPU_DNNL_FIXED:
        return (void *)arg->fixed;
    case CPU_DNNL_SCRATCH:
        return call->scratch;
    }
    return NULL;
}

static gantry_status kernel_run(const void *self, const cpu_call *call)
{
    const kernel_state *state = self;
    kernel_context *context = call->context;
    for (uint32_t k = 0; k < state->arg_count; k++) {
        void *address = arg_address(&state->args[k], call);
        if (address == context->bound[k])
            continue;
        if (dnnl_memory_set_data_handle(context->args[k].memory, address) != dnnl_success)
            return GANTRY_PROVIDER;
        context->bound[k] = address;
    }
    if (state->residual_input >= 0 && call->inputs[state->residual_input] != call->outputs[0])
        memcpy(call->outputs[0], call->inputs[state->residual_input], state->residual_bytes);
    dnnl_status_t status =
        dnnl_primitive_execute(state->primitive, context->stream, (int)state->arg_count, context->args);
    return status == dnnl_success         ? GANTRY_OK
           : status == dnnl_out_of_memory ? GANTRY_RESOURCE
                                          : GANTRY_PROVIDER;
}

static void context_destroy(const void *self, void *memory)
{
    const kernel_state *state = self;
    kernel_context *context = memory;
    for (uint32_t k = 0; k < state->arg_count; k++)
        if (context->args[k].memory)
            dnnl_memory_destroy(context->args[k].memory);
    if (context->stream)
        dnnl_stream_destroy(context->stream);
    memset(context, 0, sizeof *context);
}

static gantry_status context_init(const void *self, void *memory, gantry_error *err)
{
    const kernel_state *state = self;
    kernel_context *context = memory;
    memset(context, 0, sizeof *context);
    bool failed =
        dnnl_stream_create(&context->stream, state->engine, dnnl_stream_default_flags) != dnnl_success;
    for (uint32_t k = 0; k < state->arg_count && !failed; k++) {
        context->args[k].arg = state->args[k].arg;
        failed = dnnl_memory_create(&context->args[k].memory, state->args[k].md, state->engine,
                                    DNNL_MEMORY_NONE) != dnnl_success;
    }
    if (!failed)
        return GANTRY_OK;
    context_destroy(self, memory);
    return gt_out_of_memory(err, GANTRY_STAGE_RUN);
}

static void kernel_destroy(void *self)
{
    kernel_state *state = self;
    for (uint32_t k = 0; k < CPU_DNNL_MAX_ARGS; k++)
        if (state->args[k].md)
            dnnl_memory_desc_destroy(state->args[k].md);
    if (state->primitive)
        dnnl_primitive_destroy(state->primitive);
    memset(state, 0, sizeof *state);
}

cpu_dnnl_rating cpu_dnnl_rate(const_dnnl_primitive_desc_t descriptor, const char **out_name)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, (void *)&name) != dnnl_success ||
        !name)
        name = "unknown";
    *out_name = name;
    if (strstr(name, "ref"))
        return CPU_DNNL_REFERENCE;
    return strstr(name, "gemm") ? CPU_DNNL_SLOW : CPU_DNNL_FAST;
}

static bool add_arg(kernel_state *state, const cpu_dnnl_arg *arg)
{
    kernel_arg *slot = &state->args[state->arg_count++];
    *slot = (kernel_arg){arg->arg, arg->source, arg->index, arg->fixed, NULL};
    return dnnl_memory_desc_clone(&slot->md, arg->md) == dnnl_success;
}

/* The scratchpad becomes one more argument when the primitive wants one. */
static bool add_scratch(kernel_state *state, const_dnnl_primitive_desc_t descriptor, size_t *out_bytes)
{
    const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
    *out_bytes = md ? dnnl_memory_desc_get_size(md) : 0;
    if (*out_bytes == 0)
        return true;
    cpu_dnnl_arg arg = {.arg = DNNL_ARG_SCRATCHPAD, .source = CPU_DNNL_SCRATCH, .md = md};
    return add_arg(state, &arg);
}

/* The part of an implementation's name behind the colon is its instruction set. */
static const char *isa_of(const char *name)
{
    const char *colon = strchr(name, ':');
    return colon ? colon + 1 : "any";
}

gantry_status cpu_dnnl_kernel(cpu_build *build, const_dnnl_primitive_desc_t descriptor,
                              const cpu_dnnl_arg *args, uint32_t arg_count, int residual_input,
                              cpu_kernel *out_kernel)
{
    const char *name;
    if (cpu_dnnl_rate(descriptor, &name) == CPU_DNNL_REFERENCE)
        return GANTRY_UNSUPPORTED;
    kernel_state *state = cpu_state(build, sizeof *state);
    char *kept_name = gt_arena_text(build->arena, name, strlen(name));
    if (!state || !kept_name)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    state->engine = cpu_dnnl_engine(build);
    state->residual_input = residual_input;
    size_t scratch_bytes = 0;
    bool good = arg_count < CPU_DNNL_MAX_ARGS;
    for (uint32_t k = 0; k < arg_count && good; k++)
        good = add_arg(state, &args[k]);
    for (uint32_t k = 0; k < arg_count && good && residual_input >= 0; k++)
        if (args[k].source == CPU_DNNL_OUTPUT)
            state->residual_bytes = dnnl_memory_desc_get_size(args[k].md);
    good = good && add_scratch(state, descriptor, &scratch_bytes) &&
           dnnl_primitive_create(&state->primitive, descriptor) == dnnl_success;
    if (!good) {
        kernel_destroy(state);
        return gt_fail(build->err, GANTRY_PROVIDER, GANTRY_STAGE_COMPILE, build->node->name,
                       "oneDNN failed to make %s for %s (node '%s')", kept_name, build->node->op,
                       build->node->name);
    }
    *out_kernel = cpu_kernel_of(kernel_run, state);
    out_kernel->destroy = kernel_destroy;
    out_kernel->name = kept_name;
    out_kernel->isa = isa_of(kept_name);
    out_kernel->scratch_bytes = scratch_bytes;
    out_kernel->context_bytes = sizeof(kernel_context);
    out_kernel->context_init = context_init;
    out_kernel->context_destroy = context_destroy;
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->overwrite_input = residual_input;
    out_kernel->overwrite_alone = true;
    return GANTRY_OK;
}

/* ---- memory descriptors ---------------------------------------------------------------------- */

uint64_t cpu_dnnl_layout_key(const_dnnl_memory_desc_t md)
{
    enum { RANK = DNNL_MAX_NDIMS };
    struct {
        int32_t ndims, type, kind, block_count;
        dnnl_dims_t dims, padded, strides, blocks, block_axes;
        uint64_t bytes;
    } key;
    memset(&key, 0, sizeof key);
    const dnnl_dims_t *list = NULL;
    dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &key.ndims);
    dnnl_memory_desc_query(md, dnnl_query_data_type, &key.type);
    dnnl_memory_desc_query(md, dnnl_query_format_kind, &key.kind);
    dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &key.block_count);
    size_t bytes = (size_t)key.ndims * sizeof(dnnl_dim_t);
    if (dnnl_memory_desc_query(md, dnnl_query_dims, &list) == dnnl_success && list)
        memcpy(key.dims, list, bytes);
    if (dnnl_memory_desc_query(md, dnnl_query_padded_dims, &list) == dnnl_success && list)
        memcpy(key.padded, list, bytes);
    if (dnnl_memory_desc_query(md, dnnl_query_strides, &list) == dnnl_success && list)
        memcpy(key.strides, list, bytes);
    if (dnnl_memory_desc_query(md, dnnl_query_inner_blks, &list) == dnnl_success && list)
        memcpy(key.blocks, list, (size_t)key.block_count * sizeof(dnnl_dim_t));
    if (dnnl_memory_desc_query(md, dnnl_query_inner_idxs, &list) == dnnl_success && list)
        memcpy(key.block_axes, list, (size_t)key.block_count * sizeof(dnnl_dim_t));
    key.bytes = dnnl_memory_desc_get_size(md);
    uint64_t hash = 1469598103934665603u; /* FNV-1a: a few hundred bytes, once per weight */
    for (size_t k = 0; k < sizeof key; k++)
        hash = (hash ^ ((const unsigned char *)&key)[k]) * 1099511628211u;
    return hash;
}

typedef struct reorder_job {
    dnnl_engine_t engine;
    const_dnnl_memory_desc_t from, to;
    const void *source;
    int threads;
} reorder_job;

static gantry_status fill_reordered(void *arg, void *packed)
{
    reorder_job *job = arg;
    dnnl_primitive_desc_t descriptor = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t source = NULL, target = NULL;
    dnnl_stream_t stream = NULL;
    int before = omp_get_max_threads();
    omp_set_num_threads(job->threads);
    bool good = dnnl_reorder_primitive_desc_create(&descriptor, job->from, job->engine, job->to, job->engine,
                                                   NULL) == dnnl_success &&
                dnnl_primitive_create(&primitive, descriptor) == dnnl_success &&
                dnnl_memory_create(&source, job->from, job->engine, (void *)job->source) == dnnl_success &&
                dnnl_memory_create(&target, job->to, job->engine, packed) == dnnl_success &&
                dnnl_stream_create(&stream, job->engine, dnnl_stream_default_flags) == dnnl_success;
    if (good) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}};
        good = dnnl_primitive_execute(primitive, stream, 2, args) == dnnl_success &&
               dnnl_stream_wait(stream) == dnnl_success;
    }
    omp_set_num_threads(before);
    dnnl_memory_destroy(source);
    dnnl_memory_destroy(target);
    dnnl_stream_destroy(stream);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(descriptor);
    return good ? GANTRY_OK : GANTRY_PROVIDER;
}

const void *cpu_dnnl_pack(cpu_build *build, const cpu_tensor *weight, const_dnnl_memory_desc_t plain,
                          const_dnnl_memory_desc_t wanted)
{
    return cpu_dnnl_pack_from(build, weight, weight->data, 0, plain, wanted);
}

const void *cpu_dnnl_pack_from(cpu_build *build, const cpu_tensor *weight, const void *source, uint64_t kind,
                               const_dnnl_memory_desc_t plain, const_dnnl_memory_desc_t wanted)
{
    reorder_job job = {cpu_dnnl_engine(build), plain, wanted, source, build->threads};
    /* Of plain, too: a square matrix as it is and its transpose want the same layout. */
    uint64_t key = cpu_dnnl_layout_key(wanted) ^ 3 * cpu_dnnl_layout_key(plain) ^ kind;
    return cpu_pack(build, weight, key, dnnl_memory_desc_get_size(wanted), fill_reordered, &job);
}

static dnnl_data_type_t type_of(gantry_dtype dtype)
{
    return dtype == GANTRY_UINT8   ? dnnl_u8
           : dtype == GANTRY_INT8  ? dnnl_s8
           : dtype == GANTRY_INT32 ? dnnl_s32
                                   : dnnl_f32;
}

dnnl_memory_desc_t cpu_dnnl_describe_tensor(const cpu_build *build, const cpu_tensor *tensor,
                                            cpu_layout layout)
{
    static const dnnl_format_tag_t plain[] = {dnnl_a,    dnnl_a,     dnnl_ab,    dnnl_abc,
                                              dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    static const dnnl_format_tag_t blocked16[] = {0, 0, 0, dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c, 0};
    static const dnnl_format_tag_t blocked8[] = {0, 0, 0, dnnl_nCw8c, dnnl_nChw8c, dnnl_nCdhw8c, 0};
    static const dnnl_format_tag_t last[] = {0, 0, 0, dnnl_nwc, dnnl_nhwc, dnnl_ndhwc, 0};
    const dnnl_format_tag_t *tags = layout == CPU_PLAIN                    ? plain
                                    : layout == CPU_NHWC                   ? last
                                    : build->provider->channel_block == 16 ? blocked16
                                                                           : blocked8;
    dnnl_memory_desc_t md = NULL;
    if (tensor->rank > 6 || tags[tensor->rank] == 0)
        return NULL;
    if (dnnl_memory_desc_create_with_tag(&md, (int)tensor->rank, tensor->dims, type_of(tensor->dtype),
                                         tags[tensor->rank]) != dnnl_success)
        return NULL;
    return md;
}

/* ---- post-ops and conversions ---------------------------------------------------------------- */

static const dnnl_alg_kind_t post_algorithms[] = {
    [CPU_POST_RELU] = dnnl_eltwise_relu,
    [CPU_POST_CLIP] = dnnl_eltwise_clip,
    [CPU_POST_SIGMOID] = dnnl_eltwise_logistic,
    [CPU_POST_TANH] = dnnl_eltwise_tanh,
    [CPU_POST_HARD_SIGMOID] = dnnl_eltwise_hardsigmoid,
    [CPU_POST_HARD_SWISH] = dnnl_eltwise_hardswish,
    [CPU_POST_SWISH] = dnnl_eltwise_swish,
    [CPU_POST_LINEAR] = dnnl_eltwise_linear,
    [CPU_POST_GELU_ERF] = dnnl_eltwise_gelu_erf,
    [CPU_POST_GELU_TANH] = dnnl_eltwise_gelu_tanh,
};

static bool append_posts(const cpu_build *build, dnnl_post_ops_t posts, int *out_residual)
{
    for (uint32_t k = 0; k < build->post_count; k++) {
        const cpu_post *post = &build->posts[k];
        dnnl_status_t status = dnnl_success;
        if (post->kind == CPU_POST_RESIDUAL) {
            *out_residual = (int)post->input;
            status = dnnl_post_ops_append_sum(posts, 1.0f, 0, dnnl_data_type_undef);
        } else if (post->kind != CPU_POST_BIAS)
            status =
                dnnl_post_ops_append_eltwise(posts, post_algorithms[post->kind], post->alpha, post->beta);
        if (status != dnnl_success)
            return false;
    }
    return true;
}

dnnl_primitive_attr_t cpu_dnnl_attributes(const cpu_build *build, int *out_residual)
{
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t posts = NULL;
    *out_residual = -1;
    bool good =
        dnnl_primitive_attr_create(&attributes) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) == dnnl_success &&
        dnnl_post_ops_create(&posts) == dnnl_success && append_posts(build, posts, out_residual) &&
        dnnl_primitive_attr_set_post_ops(attributes, posts) == dnnl_success;
    if (posts)
        dnnl_post_ops_destroy(posts);
    if (good)
        return attributes;
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    return NULL;
}

gantry_status cpu_dnnl_reorder(cpu_build *build, const cpu_tensor *tensor, cpu_layout from, cpu_layout to,
                               cpu_kernel *out_kernel)
{
    dnnl_memory_desc_t source = cpu_dnnl_describe_tensor(build, tensor, from);
    dnnl_memory_desc_t target = cpu_dnnl_describe_tensor(build, tensor, to);
    int residual;
    cpu_build bare = *build;
    bare.post_count = 0;
    dnnl_primitive_attr_t attributes = cpu_dnnl_attributes(&bare, &residual);
    dnnl_primitive_desc_t descriptor = NULL;
    dnnl_engine_t engine = cpu_dnnl_engine(build);
    int threads = tensor->count < CPU_TINY_ELEMENTS ? 1 : build->threads;
    int before = cpu_dnnl_enter(build, threads);
    gantry_status status = GANTRY_PROVIDER;
    if (source && target && attributes &&
        dnnl_reorder_primitive_desc_create(&descriptor, source, engine, target, engine, attributes) ==
            dnnl_success) {
        cpu_dnnl_arg args[] = {{DNNL_ARG_FROM, CPU_DNNL_INPUT, 0, NULL, source},
                               {DNNL_ARG_TO, CPU_DNNL_OUTPUT, 0, NULL, target}};
        status = cpu_dnnl_kernel(&bare, descriptor, args, 2, -1, out_kernel);
        out_kernel->threads = threads;
    }
    cpu_dnnl_leave(before);
    dnnl_primitive_desc_destroy(descriptor);
    dnnl_primitive_attr_destroy(attributes);
    dnnl_memory_desc_destroy(source);
    dnnl_memory_desc_destroy(target);
    if (status != GANTRY_OK)
        return gt_fail(build->err, GANTRY_PROVIDER, GANTRY_STAGE_COMPILE, build->node->name,
                       "oneDNN has no fast conversion of a layout before %s (node '%s')", build->node->op,
                       build->node->name);
    return GANTRY_OK;
}
