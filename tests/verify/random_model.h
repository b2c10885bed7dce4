/* Random models with inferred shapes: open extents, sizes that depend on data, shape arithmetic, views, If
 * and Loop. What a node computes is up to whoever runs it; only integers of shapes mean what ONNX says. */
#ifndef GT_TESTS_VERIFY_RANDOM_MODEL_H
#define GT_TESTS_VERIFY_RANDOM_MODEL_H

#include "random_graph.h"

#define MODEL_WIDTH 4 /* columns of most values */
#define MODEL_OPENS 2 /* open extents, "n0" and "n1" */

typedef struct random_model_shape {
    uint32_t node_count;
    uint32_t input_count;
    uint32_t locality; /* operands are among the last so many values */
    bool open, splits, movement, shapes, data_sized, control;
} random_model_shape;

random_model_shape random_model_choose(random_source *random, uint32_t max_nodes);

/* Float values are bfloat16: inference leaves those alone. Graph outputs may be inputs, constants, values
 * known at bind, and one value twice. */
gantry_status random_model_make(gt_allocator *allocator, random_source *random,
                                const random_model_shape *shape, gt_model **out_model, gantry_error *err);

#endif
