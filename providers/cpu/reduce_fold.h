/* Folding rows of elements into an accumulator: what reductions are made of. */
#ifndef CPU_REDUCE_FOLD_H
#define CPU_REDUCE_FOLD_H

#include "kernels.h"

/* What is done to each element, and how elements are folded. */
typedef enum cpu_fold_kind {
    CPU_FOLD_SUM,
    CPU_FOLD_ABS,
    CPU_FOLD_SQUARE,
    CPU_FOLD_PROD,
    CPU_FOLD_MAX,
    CPU_FOLD_MIN,
    CPU_FOLD_COUNT
} cpu_fold_kind;

typedef union cpu_accumulator {
    double f;
    int64_t i;
} cpu_accumulator;

/* acc[0] over a row; or acc[k] with element k of a row. */
typedef void (*cpu_fold_row_fn)(const void *row, int64_t n, cpu_accumulator *acc);
/* acc[k] over row k of many that follow each other. */
typedef void (*cpu_fold_short_fn)(const float *in, int64_t n, int64_t rows, cpu_accumulator *acc);

/* NULL: there is no such fold for elements of this type. */
cpu_fold_row_fn cpu_fold_row(gantry_dtype dtype, cpu_fold_kind fold);
cpu_fold_row_fn cpu_fold_columns(gantry_dtype dtype, cpu_fold_kind fold);
/* Of float32. */
cpu_fold_short_fn cpu_fold_short(cpu_fold_kind fold);
/* What folding starts from. */
cpu_accumulator cpu_fold_neutral(cpu_fold_kind fold, gantry_dtype dtype);

#endif
