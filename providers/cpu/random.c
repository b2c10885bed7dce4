/* RandomNormal, RandomUniform, Bernoulli, Multinomial, and Dropout in training mode.
 *
 * Element k of a node's output is a function of the node's seed and of k alone: a run draws the same numbers
 * again, on any number of threads, and nothing is kept between runs. Without a seed the node's id stands in.
 */
#include "random.h"

#include <math.h>

typedef struct random_state {
    uint64_t seed;
    int64_t count;
    bool normal;
    double first, second;     /* mean and scale, or low and high */
    int64_t classes, samples; /* Multinomial */
    gantry_dtype dtype;       /* of what is written */
    size_t bytes;             /* Dropout: of one element */
    gantry_dtype ratio_dtype; /* UNDEFINED: none */
    bool has_training, has_mask;
} random_state;

/* Splitmix64: a counter, well mixed. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* 0 <= u < 1, the k-th of a seed. */
static double uniform(uint64_t seed, int64_t k)
{
    return (double)(mix(seed ^ mix((uint64_t)k)) >> 11) * 0x1p-53;
}

static double normal(uint64_t seed, int64_t k)
{
    const double two_pi = 6.28318530717958647692;
    double radius = sqrt(-2 * log(1 - uniform(seed, 2 * k)));
    return radius * cos(two_pi * uniform(seed, 2 * k + 1));
}

static uint64_t seed_of(const cpu_build *build)
{
    const gantry_attribute *seed = gantry_node_attribute(build->node, "seed");
    uint64_t bits = build->node->id;
    if (seed && seed->kind == GANTRY_ATTR_INT)
        bits = (uint64_t)seed->i;
    else if (seed)
        memcpy(&bits, &seed->f, sizeof seed->f);
    return mix(bits + (seed ? 0x100000000u : 0));
}

/* ---- RandomNormal, RandomUniform ------------------------------------------------------------- */

typedef struct random_work {
    const random_state *state;
    const cpu_call *call;
} random_work;

static void random_chunk(void *arg, int64_t begin, int64_t end)
{
    const random_work *work = arg;
    const random_state *s = work->state;
    double *out = work->call->outputs[0];
    for (int64_t k = begin; k < end; k++)
        out[k] = s->normal ? s->first + s->second * normal(s->seed, k)
                           : s->first + (s->second - s->first) * uniform(s->seed, k);
}

static gantry_status random_run(const void *opaque, const cpu_call *call)
{
    random_work work = {opaque, call};
    cpu_parallel(call, work.state->count, CPU_CHUNK_ELEMENTS, random_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_random_f64(cpu_build *build, cpu_kernel *out_kernel)
{
    random_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    bool is_normal = strncmp(build->node->op, "RandomNormal", 12) == 0;
    *s = (random_state){.seed = seed_of(build),
                        .count = build->outputs[0].count,
                        .normal = is_normal,
                        .first = (double)gantry_node_float(build->node, is_normal ? "mean" : "low", 0),
                        .second = (double)gantry_node_float(build->node, is_normal ? "scale" : "high", 1)};
    *out_kernel = cpu_kernel_of(random_run, s);
    out_kernel->threads = cpu_threads_for(build, (double)s->count * 8);
    return GANTRY_OK;
}

/* Drawn in double and converted; the input of a Like is not read. */
gantry_status cpu_make_random(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[1] = {build->input_count ? build->inputs[0].dtype : GANTRY_UNDEFINED},
                 out_types[1] = {GANTRY_FLOAT64};
    return cpu_make_converted(build, make_random_f64, in_types, out_types, out_kernel);
}

/* ---- Bernoulli ------------------------------------------------------------------------------- */

static void bernoulli_chunk(void *arg, int64_t begin, int64_t end)
{
    const random_work *work = arg;
    const double *in = work->call->inputs[0];
    for (int64_t k = begin; k < end; k++)
        ((double *)work->call->outputs[0])[k] = uniform(work->state->seed, k) < in[k];
}

static gantry_status bernoulli_run(const void *opaque, const cpu_call *call)
{
    random_work work = {opaque, call};
    cpu_parallel(call, work.state->count, CPU_CHUNK_ELEMENTS, bernoulli_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_bernoulli_f64(cpu_build *build, cpu_kernel *out_kernel)
{
    random_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *s = (random_state){.seed = seed_of(build), .count = build->outputs[0].count};
    *out_kernel = cpu_kernel_of(bernoulli_run, s);
    out_kernel->threads = cpu_threads_for(build, (double)s->count * 4);
    return GANTRY_OK;
}

gantry_status cpu_make_bernoulli(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[1] = {GANTRY_FLOAT64}, out_types[1] = {GANTRY_FLOAT64};
    return cpu_make_converted(build, make_bernoulli_f64, in_types, out_types, out_kernel);
}

/* ---- Multinomial: classes by their unnormalized log-probabilities ---------------------------- */

static int64_t draw_class(const double *logs, int64_t classes, double u)
{
    double most = -INFINITY, sum = 0, at = 0;
    for (int64_t c = 0; c < classes; c++)
        most = logs[c] > most ? logs[c] : most;
    for (int64_t c = 0; c < classes; c++)
        sum += exp(logs[c] - most);
    for (int64_t c = 0; c < classes; c++) {
        at += exp(logs[c] - most);
        if (u * sum < at)
            return c;
    }
    return classes - 1;
}

static gantry_status multinomial_run(const void *opaque, const cpu_call *call)
{
    const random_state *s = opaque;
    for (int64_t k = 0; k < s->count; k++) {
        const double *logs = (const double *)call->inputs[0] + k / s->samples * s->classes;
        int64_t drawn = draw_class(logs, s->classes, uniform(s->seed, k));
        if (s->dtype == GANTRY_INT64)
            ((int64_t *)call->outputs[0])[k] = drawn;
        else
            ((int32_t *)call->outputs[0])[k] = (int32_t)drawn;
    }
    return GANTRY_OK;
}

static gantry_status make_multinomial_f64(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    random_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (in->rank != 2 || out->rank != 2 || in->dims[1] < 1)
        return cpu_unsupported(build, "needs log-probabilities [batch, classes]");
    if (out->dtype != GANTRY_INT32 && out->dtype != GANTRY_INT64)
        return cpu_unsupported(build, "gives int32 or int64 only");
    *s = (random_state){.seed = seed_of(build),
                        .count = out->count,
                        .classes = in->dims[1],
                        .samples = cpu_max64(1, out->dims[1]),
                        .dtype = out->dtype};
    *out_kernel = cpu_kernel_of(multinomial_run, s);
    return GANTRY_OK;
}

gantry_status cpu_make_multinomial(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[1] = {GANTRY_FLOAT64}, out_types[1] = {build->outputs[0].dtype};
    return cpu_make_converted(build, make_multinomial_f64, in_types, out_types, out_kernel);
}

/* ---- Dropout --------------------------------------------------------------------------------- */

static gantry_status dropout_run(const void *opaque, const cpu_call *call)
{
    const random_state *s = opaque;
    double ratio = s->ratio_dtype ? cpu_load_double(s->ratio_dtype, call->inputs[1], 0) : 0.5;
    bool training = s->has_training && *(const uint8_t *)call->inputs[2];
    ratio = training ? ratio : 0;
    const float scale = (float)(ratio < 1 ? 1 / (1 - ratio) : 0);
    uint8_t *mask = s->has_mask ? call->outputs[1] : NULL;
    for (int64_t k = 0; k < s->count; k++) {
        bool keep = uniform(s->seed, k) >= ratio;
        if (mask)
            mask[k] = keep;
        if (s->dtype == GANTRY_FLOAT64)
            ((double *)call->outputs[0])[k] = keep ? ((const double *)call->inputs[0])[k] * (double)scale : 0;
        else
            ((float *)call->outputs[0])[k] = keep ? ((const float *)call->inputs[0])[k] * scale : 0;
    }
    return GANTRY_OK;
}

static gantry_status make_dropout(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *ratio = cpu_input(build, 1);
    random_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *s = (random_state){.seed = seed_of(build),
                        .count = build->inputs[0].count,
                        .dtype = build->inputs[0].dtype,
                        .ratio_dtype = ratio ? ratio->dtype : GANTRY_UNDEFINED,
                        .has_training = cpu_input(build, 2) != NULL,
                        .has_mask = cpu_output(build, 1) != NULL};
    if (!cpu_dtype_in(s->dtype, CPU_FLOATS) || (s->has_mask && build->outputs[1].dtype != GANTRY_BOOL))
        return cpu_unsupported(build, "no kernel for element type %d", (int)s->dtype);
    *out_kernel = cpu_kernel_of(dropout_run, s);
    out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

gantry_status cpu_make_dropout_training(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_dropout, out_kernel);
}
