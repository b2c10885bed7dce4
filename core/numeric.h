/* The numeric check: every program of a run computed again, node by node, with the CPU's kernels on the
 * inputs that it really had, and compared. What is wrong is blamed on the program that made it wrong, not on
 * those that passed it on. */
#ifndef GT_CORE_NUMERIC_H
#define GT_CORE_NUMERIC_H

#include "base/vec.h"
#include "graph/graph.h"

typedef struct gt_frame gt_frame;
typedef struct gt_plan_state gt_plan_state;

/* One tensor that is not what it should be. Names live as long as the session. */
typedef struct gt_numeric_row {
    const char *tensor, *producer, *op, *pass;
    const char *finding; /* "not_finite", "all_zero", "outside_tolerance" */
    uint32_t provider, partition, node_count;
    uint64_t elements, differing, not_finite;
    double max_error, mean_error, largest; /* of finite elements; the largest magnitude expected */
    double tolerance_absolute, tolerance_relative;
} gt_numeric_row;

/* Of one gantry_run; begins anew with each execution. */
typedef struct gt_numeric {
    GT_VEC(gt_numeric_row) rows; /* the first GT_NUMERIC_ROWS, in the order in which they were computed */
    uint64_t checked, unchecked, wrong; /* tensors */
} gt_numeric;

#define GT_NUMERIC_ROWS 64u

typedef struct gt_numeric_check gt_numeric_check;

/* Before a step that runs a program: keeps its inputs. On failure *out_check may be set: drop it. A program
 * that can't be checked has a check too, which counts its outputs as unchecked. */
gantry_status gt_numeric_begin(gt_frame *frame, gt_plan_state *state, uint32_t step,
                               gt_numeric_check **out_check, gantry_error *err);
/* After it ran: computes, compares, and notes what is wrong. Frees the check, also on failure. */
gantry_status gt_numeric_end(gt_numeric_check **check, gantry_error *err);
/* Frees the check of a program that did not run to its end; NULL is fine. */
void gt_numeric_drop(gt_numeric_check **check);

#endif
