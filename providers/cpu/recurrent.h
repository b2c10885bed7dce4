/* LSTM, GRU and RNN at known shapes. */
#ifndef CPU_RECURRENT_H
#define CPU_RECURRENT_H

#include "cpu.h"

typedef enum cpu_cell_kind { CPU_CELL_RNN, CPU_CELL_GRU, CPU_CELL_LSTM } cpu_cell_kind;

/* y[k] = f(y[k]) over a vector. */
typedef void (*cpu_cell_fn)(float *y, int64_t count, float alpha, float beta);

typedef struct cpu_cell_activation {
    cpu_cell_fn fn;
    float alpha, beta;
} cpu_cell_activation;

#define CPU_CELL_ACTIVATIONS 3

/* One layer. Strides in elements; they say which layout the node has. */
typedef struct cpu_recurrent {
    cpu_cell_kind kind;
    uint32_t input_count, output_count; /* of the node: those behind are left out */
    int64_t gates;                      /* 1, 3, 4 */
    int64_t steps, batch, input, hidden, directions;
    bool reverse_first; /* direction "reverse" */
    bool linear_before_reset, input_forget, packed;
    float clip; /* 0: none */
    cpu_cell_activation activations[2][CPU_CELL_ACTIVATIONS];
    int64_t x_step, x_batch; /* in rows of X */
    int64_t y_step, y_direction, y_batch;
    int64_t state_direction, state_batch;
    const float *w[2], *r[2], *r_last[2]; /* packed panels for each direction; r_last: GRU's hidden gate */
} cpu_recurrent;

/* One time step of all batch rows. hr and xw hold gates * hidden numbers a row; state arrays hidden ones. */
typedef struct cpu_cell_row {
    const float *xw;       /* x W^T of this row and step */
    float *hr;             /* h R^T, then overwritten by the gates */
    const float *bias;     /* 2 * gates * hidden, or NULL */
    const float *peephole; /* 3 * hidden, or NULL */
    float *h, *c;
} cpu_cell_row;

void cpu_cell_lstm(const cpu_recurrent *r, int direction, const cpu_cell_row *row);
void cpu_cell_rnn(const cpu_recurrent *r, int direction, const cpu_cell_row *row);
/* GRU in two parts: between them the caller multiplies reset_h with the hidden gate's weights, unless
 * linear_before_reset. hidden_r: that product (or the linear one). */
void cpu_cell_gru_gates(const cpu_recurrent *r, int direction, const cpu_cell_row *row, float *reset_h);
void cpu_cell_gru_update(const cpu_recurrent *r, int direction, const cpu_cell_row *row, float *hidden_r);

/* Finds the activation of that name and takes its alpha and beta from the lists. False when unknown. */
bool cpu_cell_activation_find(const char *name, const float **inout_alpha, uint32_t *inout_alpha_count,
                              const float **inout_beta, uint32_t *inout_beta_count,
                              cpu_cell_activation *out_activation);

#endif
