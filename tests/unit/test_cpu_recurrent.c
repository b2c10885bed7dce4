/* LSTM, GRU and RNN of the CPU provider against naive cells, for all directions, lengths and states. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

typedef struct layer_case {
    const char *op, *direction;
    int64_t steps, batch, input, hidden;
    bool bias, lengths, states, peephole, linear, constant;
} layer_case;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Gate `gate` of hidden unit k: W x + R h + both biases; h may be another vector than the state. */
static double gate_sum(const layer_case *t, const float *w, const float *r, const float *b, const float *x,
                       const double *h, int64_t gates, int64_t gate, int64_t k, bool input_part,
                       bool hidden_part)
{
    int64_t row = gate * t->hidden + k;
    double sum = 0;
    for (int64_t j = 0; j < t->input && input_part; j++)
        sum += (double)w[row * t->input + j] * x[j];
    for (int64_t j = 0; j < t->hidden && hidden_part; j++)
        sum += (double)r[row * t->hidden + j] * h[j];
    if (b && input_part)
        sum += b[row];
    if (b && hidden_part)
        sum += b[gates * t->hidden + row];
    return sum;
}

static void cell(const layer_case *t, const float *w, const float *r, const float *b, const float *p,
                 const float *x, double *h, double *c)
{
    double next[256], reset[256] = {0};
    int64_t n = t->hidden;
#define GATE(gates, g, k) gate_sum(t, w, r, b, x, h, gates, g, k, true, true)
    for (int64_t k = 0; k < n && t->op[0] == 'G'; k++)
        reset[k] = sigmoid(GATE(3, 1, k)) * h[k];
    for (int64_t k = 0; k < n; k++) {
        if (t->op[0] == 'R') {
            next[k] = tanh(GATE(1, 0, k));
        } else if (t->op[0] == 'L') {
            double i = sigmoid(GATE(4, 0, k) + (p ? p[k] * c[k] : 0));
            double f = sigmoid(GATE(4, 2, k) + (p ? p[2 * n + k] * c[k] : 0));
            c[k] = f * c[k] + i * tanh(GATE(4, 3, k));
            next[k] = sigmoid(GATE(4, 1, k) + (p ? p[n + k] * c[k] : 0)) * tanh(c[k]);
        } else {
            double z = sigmoid(GATE(3, 0, k));
            double own = gate_sum(t, w, r, b, x, h, 3, 2, k, true, false);
            double other = t->linear
                               ? sigmoid(GATE(3, 1, k)) * gate_sum(t, w, r, b, x, h, 3, 2, k, false, true)
                               : gate_sum(t, w, r, b, x, reset, 3, 2, k, false, true);
            next[k] = (1 - z) * tanh(own + other) + z * h[k];
        }
    }
    memcpy(h, next, (size_t)n * sizeof *h);
}

static void check(layer_case t)
{
    int64_t gates = t.op[0] == 'L'   ? 4
                    : t.op[0] == 'G' ? 3
                                     : 1,
            d = strcmp(t.direction, "bidirectional") ? 1 : 2;
    int64_t g = gates * t.hidden, states = d * t.batch * t.hidden, ys = t.steps * states;
    float *x = test_filled(t.steps * t.batch * t.input, 1), *w = test_filled(d * g * t.input, 2),
          *r = test_filled(d * g * t.hidden, 3);
    float *b = test_filled(d * 2 * g, 4), *h0 = test_filled(states, 5), *c0 = test_filled(states, 6),
          *p = test_filled(d * 3 * t.hidden, 7);
    float *y = test_filled(ys, 8), *yh = test_filled(states, 9), *yc = test_filled(states, 10);
    float *ey = calloc((size_t)ys + 1, 4), *eh = test_filled(states, 0), *ec = test_filled(states, 0);
    int32_t lengths[8];
    for (int64_t k = 0; k < t.batch; k++)
        lengths[k] = t.lengths ? (int32_t)(k % (t.steps + 1)) : (int32_t)t.steps;
    test_net *net = test_net_open();
    uint32_t in[8], out[3];
    in[0] = test_value_add(net, GANTRY_FLOAT32, 3, (int64_t[]){t.steps, t.batch, t.input});
    int64_t wd[3] = {d, g, t.input}, rd[3] = {d, g, t.hidden}, sd[3] = {d, t.batch, t.hidden};
    in[1] = t.constant ? test_constant_add(net, 1, 3, wd, w) : test_value_add(net, 1, 3, wd);
    in[2] = t.constant ? test_constant_add(net, 1, 3, rd, r) : test_value_add(net, 1, 3, rd);
    in[3] = t.bias ? test_constant_add(net, 1, 2, (int64_t[]){d, 2 * g}, b) : GANTRY_NO_ID;
    in[4] = t.lengths ? test_constant_add(net, GANTRY_INT32, 1, &t.batch, lengths) : GANTRY_NO_ID;
    in[5] = t.states ? test_constant_add(net, 1, 3, sd, h0) : GANTRY_NO_ID;
    in[6] = t.states && gates == 4 ? test_constant_add(net, 1, 3, sd, c0) : GANTRY_NO_ID;
    in[7] = t.peephole ? test_constant_add(net, 1, 2, (int64_t[]){d, 3 * t.hidden}, p) : GANTRY_NO_ID;
    out[0] = test_value_add(net, 1, 4, (int64_t[]){t.steps, d, t.batch, t.hidden});
    out[1] = test_value_add(net, 1, 3, sd);
    out[2] = gates == 4 ? test_value_add(net, 1, 3, sd) : GANTRY_NO_ID;
    test_input(net, in[0]);
    if (!t.constant) {
        test_input(net, in[1]);
        test_input(net, in[2]);
    }
    for (int k = 0; k < (gates == 4 ? 3 : 2); k++)
        test_output(net, out[k]);
    test_node_add(net, "", t.op, 14,
                  t.peephole  ? 8
                  : t.states  ? (gates == 4 ? 7 : 6)
                  : t.lengths ? 5
                  : t.bias    ? 4
                              : 3,
                  in, gates == 4 ? 3 : 2, out);
    test_text(net, "direction", t.direction);
    test_int(net, "hidden_size", t.hidden);
    test_int(net, "linear_before_reset", t.linear);
    cr_assert_eq(test_net_build(net, 2), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 2, (void *[]){x, w, r}, (void *[]){y, yh, yc}), GANTRY_OK);
    for (int64_t k = 0; k < d; k++)
        for (int64_t j = 0; j < t.batch; j++) {
            double h[256] = {0}, c[256] = {0};
            bool backward = k == 1 || strcmp(t.direction, "reverse") == 0;
            for (int64_t u = 0; u < t.hidden && t.states; u++) {
                h[u] = h0[(k * t.batch + j) * t.hidden + u];
                c[u] = c0[(k * t.batch + j) * t.hidden + u];
            }
            for (int64_t s = 0; s < lengths[j]; s++) {
                int64_t step = backward ? lengths[j] - 1 - s : s;
                cell(&t, w + k * g * t.input, r + k * g * t.hidden, t.bias ? b + k * 2 * g : NULL,
                     t.peephole ? p + k * 3 * t.hidden : NULL, x + (step * t.batch + j) * t.input, h, c);
                for (int64_t u = 0; u < t.hidden; u++)
                    ey[((step * d + k) * t.batch + j) * t.hidden + u] = (float)h[u];
            }
            for (int64_t u = 0; u < t.hidden; u++) {
                eh[(k * t.batch + j) * t.hidden + u] = (float)h[u];
                ec[(k * t.batch + j) * t.hidden + u] = (float)c[u];
            }
        }
    cr_assert_lt(test_difference(y, ey, ys), 1e-4, "%s %s Y %g", t.op, t.direction,
                 test_difference(y, ey, ys));
    cr_assert_lt(test_difference(yh, eh, states), 1e-4, "%s %s Y_h", t.op, t.direction);
    if (gates == 4)
        cr_assert_lt(test_difference(yc, ec, states), 1e-4, "%s %s Y_c", t.op, t.direction);
    cr_assert_eq(test_net_close(net), 0);
    float *all[] = {x, w, r, b, h0, c0, p, y, yh, yc, ey, eh, ec};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        free(all[k]);
}

Test(cpu_recurrent, all_kinds)
{
    static const char *const ops[] = {"LSTM", "GRU", "RNN"}, *const ways[] = {"forward", "reverse",
                                                                              "bidirectional"};
    for (int o = 0; o < 3; o++)
        for (int w = 0; w < 3; w++)
            for (int bits = 0; bits < 16; bits++)
                check((layer_case){ops[o], ways[w], 1 + bits % 5, 1 + bits % 3, 3 + 7 * bits,
                                   5 + 9 * (bits % 9), bits & 1, bits & 2, bits & 4, o == 0 && (bits & 8),
                                   o == 1 && (bits & 8), w != 1});
}

Test(cpu_recurrent, big_enough_for_two_threads)
{
    check((layer_case){"LSTM", "bidirectional", 6, 8, 130, 200, true, true, true, true, false, true});
    check((layer_case){"GRU", "forward", 6, 8, 130, 200, true, false, true, false, true, true});
}
