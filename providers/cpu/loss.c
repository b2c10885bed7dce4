/* NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: the log-probability of each target, weighted and
 * reduced. */
#include "reduce.h"

#include "rows.h"

#include <math.h>

typedef enum loss_reduction { LOSS_NONE, LOSS_SUM, LOSS_MEAN } loss_reduction;

typedef struct loss_state {
    int64_t batches, classes, inner;
    loss_reduction reduction;
    bool softmax; /* the input holds scores, not log-probabilities */
    bool has_weight, has_logs, has_ignored, wide_targets;
    int64_t ignored;
} loss_state;

/* log(sum(exp)) of the scores at one position. */
static double log_sum(const loss_state *s, const float *x)
{
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < s->classes; c++)
        most = (double)x[c * s->inner] > most ? (double)x[c * s->inner] : most;
    for (int64_t c = 0; c < s->classes; c++)
        sum += exp((double)x[c * s->inner] - most);
    return most + log(sum);
}

static gantry_status loss_run(const void *opaque, const cpu_call *call)
{
    const loss_state *s = opaque;
    const float *weights = s->has_weight ? call->inputs[2] : NULL;
    float *out = call->outputs[0], *logs = s->has_logs ? call->outputs[1] : NULL;
    double total = 0, weight_total = 0;
    for (int64_t k = 0; k < s->batches * s->inner; k++) {
        int64_t base = k / s->inner * s->classes * s->inner + k % s->inner;
        const float *x = (const float *)call->inputs[0] + base;
        int64_t target =
            s->wide_targets ? ((const int64_t *)call->inputs[1])[k] : ((const int32_t *)call->inputs[1])[k];
        bool ignored = s->has_ignored && target == s->ignored;
        if (!ignored && (target < 0 || target >= s->classes))
            return cpu_bad_value(call, 1, target, 0, s->classes - 1);
        double shift = s->softmax ? log_sum(s, x) : 0;
        for (int64_t c = 0; logs && c < s->classes; c++)
            logs[base + c * s->inner] = (float)((double)x[c * s->inner] - shift);
        double weight = ignored ? 0 : weights ? (double)weights[target] : 1;
        double loss = ignored ? 0 : -((double)x[target * s->inner] - shift) * weight;
        total += loss;
        weight_total += weight;
        if (s->reduction == LOSS_NONE)
            out[k] = (float)loss;
    }
    if (s->reduction != LOSS_NONE)
        *out = (float)(s->reduction == LOSS_MEAN ? total / weight_total : total);
    return GANTRY_OK;
}

static gantry_status make_loss(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *targets = &build->inputs[1], *weights = cpu_input(build, 2);
    const char *reduction = gantry_node_string(build->node, "reduction", "mean");
    loss_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    /* Not by the number of elements: without classes there are none, of any targets. */
    if (in->rank < 2 || targets->count != in->dims[0] * cpu_product(in->dims, 2, in->rank) ||
        (weights && weights->count != in->dims[1]))
        return cpu_unsupported(build, "targets or weights do not fit the input");
    *s = (loss_state){.batches = in->dims[0],
                      .classes = in->dims[1],
                      .inner = cpu_product(in->dims, 2, in->rank),
                      .reduction = strcmp(reduction, "none") == 0  ? LOSS_NONE
                                   : strcmp(reduction, "sum") == 0 ? LOSS_SUM
                                                                   : LOSS_MEAN,
                      .softmax = strcmp(build->node->op, "SoftmaxCrossEntropyLoss") == 0,
                      .has_weight = weights != NULL,
                      .has_logs = cpu_output(build, 1) != NULL,
                      .has_ignored = gantry_node_attribute(build->node, "ignore_index") != NULL,
                      .ignored = gantry_node_int(build->node, "ignore_index", 0),
                      .wide_targets = targets->dtype == GANTRY_INT64};
    *out_kernel = cpu_kernel_of(loss_run, s);
    out_kernel->accumulate = GANTRY_FLOAT64;
    return GANTRY_OK;
}

/* Computed on float32 operands. */
gantry_status cpu_make_loss(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[3] = {GANTRY_FLOAT32, build->inputs[1].dtype, GANTRY_FLOAT32},
                 out_types[2] = {GANTRY_FLOAT32, GANTRY_FLOAT32};
    if (build->input_count > 3 || build->output_count > 2)
        return cpu_unsupported(build, "more operands than the operator has");
    return cpu_make_converted(build, make_loss, in_types, out_types, out_kernel);
}
