/* Random graphs of valid ONNX nodes, from a seed: what the verifiers of placements and plans feed on.
 *
 * All values are float32 of [rows, width], rows a power of two, so that nodes can be joined in any way; the
 * graph has its types and static shapes set, so it needs no inference. */
#ifndef GT_TESTS_VERIFY_RANDOM_GRAPH_H
#define GT_TESTS_VERIFY_RANDOM_GRAPH_H

#include "graph/graph.h"

/* Numbers are made of the bytes, one each, while there are any (a fuzzer's: a changed byte changes one
 * decision), then of the state. */
typedef struct random_source {
    uint64_t state;
    const uint8_t *bytes;
    size_t count;
} random_source;

uint64_t random_next(random_source *random);
uint32_t random_below(random_source *random, uint32_t limit); /* 0 .. limit - 1; limit > 0 */
bool random_chance(random_source *random, uint32_t percent);

/* The same number for the same arguments: verdicts and estimates that need no table. */
uint64_t random_hash(uint64_t seed, uint64_t a, uint64_t b);

typedef struct random_graph_shape {
    uint32_t node_count;
    uint32_t input_count;    /* at least 1 */
    uint32_t constant_count; /* operands that are constants */
    uint32_t locality; /* operands are among the last so many values; small makes chains, large makes webs */
    bool two_outputs;  /* some nodes are Splits */
} random_graph_shape;

/* A shape with between 1 and max_nodes nodes. */
random_graph_shape random_graph_choose(random_source *random, uint32_t max_nodes);

/* The model's root is the graph. Some values are graph outputs, among them perhaps an input, a constant, and
 * one twice; some nodes may be dead. */
gantry_status random_graph_make(gt_allocator *allocator, random_source *random,
                                const random_graph_shape *shape, gt_model **out_model, gantry_error *err);

#endif
