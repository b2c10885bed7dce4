/* The arithmetic of LSTM, GRU and RNN cells for one row, and their activations. */
#include "recurrent.h"

#include <math.h>
#include <strings.h>

/* ---- activations ----------------------------------------------------------------------------- */

/* exp with a relative error of about 2e-7: 2^n times a polynomial on [-ln2/2, ln2/2]. Branch-free, so that
 * loops over it become vector code. */
static inline float fast_exp(float x)
{
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = nearbyintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union {
        int32_t i;
        float f;
    } scale = {.i = ((int32_t)n + 127) << 23};
    return p * scale.f;
}

static CPU_CLONES void act_sigmoid(float *y, int64_t count, float alpha, float beta)
{
    for (int64_t k = 0; k < count; k++)
        y[k] = 1.0f / (1.0f + fast_exp(-y[k]));
}

/* Near 0 the quotient loses digits, the odd polynomial does not. */
static inline float fast_tanh(float x)
{
    float square = x * x;
    float near_zero = x * (1.0f - square * (0.33333333f - square * (0.13333333f - square * 0.053968254f)));
    float far = 1.0f - 2.0f / (fast_exp(2.0f * x) + 1.0f);
    return square < 0.01f ? near_zero : far;
}

static CPU_CLONES void act_tanh(float *y, int64_t count, float alpha, float beta)
{
    for (int64_t k = 0; k < count; k++)
        y[k] = fast_tanh(y[k]);
}

#define ACTIVATION(name, formula)                                                                            \
    static void name(float *y, int64_t count, float alpha, float beta)                                       \
    {                                                                                                        \
        for (int64_t k = 0; k < count; k++) {                                                                \
            float x = y[k];                                                                                  \
            y[k] = formula;                                                                                  \
        }                                                                                                    \
    }

ACTIVATION(act_relu, x > 0 ? x : 0)
ACTIVATION(act_affine, alpha *x + beta)
ACTIVATION(act_leaky_relu, x >= 0 ? x : alpha * x)
ACTIVATION(act_thresholded_relu, x >= alpha ? x : 0)
ACTIVATION(act_scaled_tanh, alpha *tanhf(beta *x))
ACTIVATION(act_hard_sigmoid, fminf(fmaxf(alpha *x + beta, 0), 1))
ACTIVATION(act_elu, x >= 0 ? x : alpha * (expf(x) - 1))
ACTIVATION(act_softsign, x / (1 + fabsf(x)))
ACTIVATION(act_softplus, logf(1 + expf(x)))

static const struct {
    const char *name;
    cpu_cell_fn fn;
    bool takes_alpha, takes_beta;
    float alpha, beta;
} activations[] = {
    {"Sigmoid", act_sigmoid, false, false, 0, 0},
    {"Tanh", act_tanh, false, false, 0, 0},
    {"Relu", act_relu, false, false, 0, 0},
    {"Affine", act_affine, true, true, 1, 0},
    {"LeakyRelu", act_leaky_relu, true, false, 0.01f, 0},
    {"ThresholdedRelu", act_thresholded_relu, true, false, 1, 0},
    {"ScaledTanh", act_scaled_tanh, true, true, 1, 1},
    {"HardSigmoid", act_hard_sigmoid, true, true, 0.2f, 0.5f},
    {"Elu", act_elu, true, false, 1, 0},
    {"Softsign", act_softsign, false, false, 0, 0},
    {"Softplus", act_softplus, false, false, 0, 0},
};

static float take(const float **list, uint32_t *count, float otherwise)
{
    if (*count == 0)
        return otherwise;
    (*count)--;
    return *(*list)++;
}

bool cpu_cell_activation_find(const char *name, const float **inout_alpha, uint32_t *inout_alpha_count,
                              const float **inout_beta, uint32_t *inout_beta_count,
                              cpu_cell_activation *out_activation)
{
    for (size_t k = 0; k < sizeof activations / sizeof *activations; k++) {
        if (strcasecmp(activations[k].name, name) != 0)
            continue;
        *out_activation = (cpu_cell_activation){activations[k].fn, activations[k].alpha, activations[k].beta};
        if (activations[k].takes_alpha)
            out_activation->alpha = take(inout_alpha, inout_alpha_count, activations[k].alpha);
        if (activations[k].takes_beta)
            out_activation->beta = take(inout_beta, inout_beta_count, activations[k].beta);
        return true;
    }
    return false;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void activate(const cpu_recurrent *r, int direction, int which, float *y, int64_t count)
{
    const cpu_cell_activation *a = &r->activations[direction][which];
    if (r->clip > 0)
        for (int64_t k = 0; k < count; k++)
            y[k] = y[k] < -r->clip ? -r->clip : y[k] > r->clip ? r->clip : y[k];
    a->fn(y, count, a->alpha, a->beta);
}

/* hr += xw + both halves of the bias, for gates first .. first+count-1. */
static void add_input(const cpu_recurrent *r, const cpu_cell_row *row, int64_t first, int64_t count)
{
    int64_t begin = first * r->hidden, end = (first + count) * r->hidden;
    for (int64_t k = begin; k < end; k++)
        row->hr[k] += row->xw[k];
    if (!row->bias)
        return;
    const float *second = row->bias + r->gates * r->hidden;
    for (int64_t k = begin; k < end; k++)
        row->hr[k] += row->bias[k] + second[k];
}

static void add_peephole(float *gate, const float *weight, const float *c, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        gate[k] += weight[k] * c[k];
}

/* Gates lie in the order i, o, f, c; peepholes i, o, f. */
void cpu_cell_lstm(const cpu_recurrent *r, int direction, const cpu_cell_row *row)
{
    int64_t h = r->hidden;
    float *i = row->hr, *o = i + h, *f = o + h, *c = f + h;
    add_input(r, row, 0, 4);
    if (row->peephole) {
        add_peephole(i, row->peephole, row->c, h);
        add_peephole(f, row->peephole + 2 * h, row->c, h);
    }
    activate(r, direction, 0, i, h);
    activate(r, direction, 1, c, h);
    if (!r->input_forget)
        activate(r, direction, 0, f, h);
    for (int64_t k = 0; k < h; k++)
        row->c[k] = (r->input_forget ? 1 - i[k] : f[k]) * row->c[k] + i[k] * c[k];
    if (row->peephole)
        add_peephole(o, row->peephole + h, row->c, h);
    activate(r, direction, 0, o, h);
    memcpy(row->h, row->c, (size_t)h * sizeof *row->h);
    const cpu_cell_activation *last = &r->activations[direction][2];
    last->fn(row->h, h, last->alpha, last->beta);
    for (int64_t k = 0; k < h; k++)
        row->h[k] *= o[k];
}

void cpu_cell_rnn(const cpu_recurrent *r, int direction, const cpu_cell_row *row)
{
    add_input(r, row, 0, 1);
    activate(r, direction, 0, row->hr, r->hidden);
    memcpy(row->h, row->hr, (size_t)r->hidden * sizeof *row->h);
}

/* Gates lie in the order z, r, h. */
void cpu_cell_gru_gates(const cpu_recurrent *r, int direction, const cpu_cell_row *row, float *reset_h)
{
    int64_t h = r->hidden;
    add_input(r, row, 0, 2);
    activate(r, direction, 0, row->hr, 2 * h);
    for (int64_t k = 0; k < h; k++)
        reset_h[k] = row->hr[h + k] * row->h[k];
}

void cpu_cell_gru_update(const cpu_recurrent *r, int direction, const cpu_cell_row *row, float *hidden_r)
{
    int64_t h = r->hidden;
    const float *z = row->hr, *reset = z + h, *x = row->xw + 2 * h;
    const float *wb = row->bias ? row->bias + 2 * h : NULL, *rb = row->bias ? row->bias + 5 * h : NULL;
    for (int64_t k = 0; k < h; k++) {
        float recurrent = hidden_r[k] + (rb ? rb[k] : 0);
        hidden_r[k] = x[k] + (wb ? wb[k] : 0) + (r->linear_before_reset ? reset[k] * recurrent : recurrent);
    }
    activate(r, direction, 1, hidden_r, h);
    for (int64_t k = 0; k < h; k++)
        row->h[k] = (1 - z[k]) * hidden_r[k] + z[k] * row->h[k];
}
