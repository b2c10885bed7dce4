/* Writing ONNX: a model as a file of standard operators, whose bytes depend on the model alone.
 *
 *     onnx_write.c        the model: opset imports, metadata; which parts are asked for in which order
 *     onnx_write_names.c  which values are in the file and what they are called there
 *     onnx_write_graph.c  graphs, nodes, attributes
 *     onnx_write_type.c   types and shapes of values
 *     onnx_write_tensor.c tensors; data goes from where it lies to the file without a copy of the model
 *     onnx_write_file.c   the files: written beside their place, then renamed into it */
#ifndef GT_GRAPH_ONNX_WRITE_H
#define GT_GRAPH_ONNX_WRITE_H

#include "graph.h"

/* What protobuf readers take: two gigabytes less one byte. */
#define GT_WRITE_MAX_BYTES ((uint64_t)INT32_MAX)
/* Smaller constants are not worth a place of their own in a file of external data. */
#define GT_WRITE_EXTERNAL_MIN_BYTES ((uint64_t)1024)

typedef struct gt_write_options {
    const char *version;       /* of Gantry, for producer_version */
    const char *external_name; /* a file name beside the model for large constants; NULL: all in the model */
    uint64_t
        external_min_bytes; /* constants of at least that size go there; 0: GT_WRITE_EXTERNAL_MIN_BYTES */
    uint64_t max_bytes;     /* of the model file; 0: GT_WRITE_MAX_BYTES */
} gt_write_options;

typedef struct gt_write_result {
    uint64_t model_bytes, external_bytes;
    uint64_t constant_bytes; /* data of all initializers */
    uint32_t node_count;     /* bodies included */
    uint32_t initializer_count;
    int64_t opset; /* of ai.onnx; 0 when no node and no import needs one */
} gt_write_result;

/* Takes bytes in order; fills err when it fails. */
typedef struct gt_write_sink {
    void *self;
    gantry_status (*put)(void *self, const void *bytes, size_t count, gantry_error *err);
} gt_write_sink;

/* Makes one opset of ai.onnx that gives every node of the model the definition it was read with: the model's
 * own where it does, else the nearest that does. Inlined functions may have brought others. None:
 * GANTRY_UNSUPPORTED naming two nodes that exclude each other. */
gantry_status gt_write_choose_opset(const gt_model *model, int64_t *out_opset, gantry_error *err);

/* Nodes of the domain "gantry" become the standard operator that the model's own opset has for them and their
 * element type, or the nodes they stand for. Afterwards the graph and its bodies are inferred and sorted. */
gantry_status gt_graph_make_standard(gt_graph *graph, gantry_error *err);
/* The opset of ai.onnx from which the composites that a rewrite rule makes can be written as one node:
 * INT32_MAX when none can, 0 for rules that make no composites. Below it the rule only moves names around. */
int32_t gt_write_rule_opset(const char *rule);

/* Writes an inferred model without composites. external may be NULL when options->external_name is. Nothing
 * of the model is changed. */
gantry_status gt_onnx_write(gt_model *model, const gt_write_options *options, const gt_write_sink *file,
                            const gt_write_sink *external, gt_write_result *out_result, gantry_error *err);

/* The same into files: temporary ones in the folder of path, renamed when all is written. A path that is one
 * of the files the model was read from is refused (GANTRY_INVALID_ARGUMENT); what cannot be written is
 * GANTRY_RESOURCE, and no file is left behind. */
gantry_status gt_onnx_write_file(gt_model *model, const char *path, const gt_write_options *options,
                                 gt_write_result *out_result, gantry_error *err);

#endif
