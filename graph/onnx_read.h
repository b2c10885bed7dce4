/* What the files of the ONNX reader share: the reader, scopes of names, and who reads what. Not for others.
 *
 *     onnx_scan.c           the bytes: limits, and the skeleton without tensor data
 *     onnx_read.c           files, the unpacked skeleton, opset imports, metadata
 *     onnx_read_graph.c     a graph or body: inputs, initializers, outputs, captures
 *     onnx_read_node.c      nodes: names, inputs, Constant
 *     onnx_read_attribute.c attributes, and references of functions to those of their caller
 *     onnx_read_function.c  model-local functions put in place of their callers
 *     onnx_read_tensor.c    tensor data in the file; onnx_read_external.c: beside it
 *
 * Every function returns a status and fills reader->err. */
#ifndef GT_GRAPH_ONNX_READ_H
#define GT_GRAPH_ONNX_READ_H

#include "graph_internal.h"
#include "onnx_scan.h"

#include "onnx.pb-c.h"

typedef ProtobufCBinaryData gt_bytes;

typedef struct gt_reader {
    gt_model *model;
    gt_allocator *allocator;
    gt_arena temp; /* what lives until the end of reading: the skeleton's messages, prefixes, keys of maps */
    gt_onnx_scan scan;
    const GtOnnx__Model *proto;
    const char *what;      /* the model in errors: its path */
    const char *base;      /* the folder of external data, resolved; NULL: none is known */
    int base_fd;           /* -1: none */
    gt_read_limits limits; /* without zeros */
    gt_map functions;      /* domain, name and overload -> index in proto->functions */
    struct gt_function_state *function_states;
    gt_map external_files; /* location -> index in model->files */
    gt_map captures;       /* graph and value of its parent -> value of the graph */
    gt_map constants;      /* address of a tensor message -> constant: a function called often shares them */
    uint64_t name_bytes;
    gantry_error *err;
} gt_reader;

/* A call of a model-local function. Attributes that refer to the caller's are looked up here. */
typedef struct gt_call {
    const GtOnnx__Function *function;
    const GtOnnx__Node *caller;
    struct gt_scope *caller_scope;
} gt_call;

/* An output of a function that its caller has a value for already. */
typedef struct gt_pending_output {
    gt_bytes name;
    uint32_t value;
    bool produced;
} gt_pending_output;

/* Names that can be seen while a graph, body or function is read. */
typedef struct gt_scope {
    struct gt_scope *outer; /* NULL: root and functions see nothing outside */
    gt_graph *graph;        /* where nodes go; a function's scope has its caller's graph */
    gt_map names;           /* name in the file -> value of graph; GT_NONE: an input the caller left out */
    const char *prefix;     /* of node names */
    const char *value_prefix;
    const gt_opset *opsets;
    uint32_t opset_count;
    const gt_call *call; /* NULL outside of functions */
    gt_pending_output *pending;
    uint32_t pending_count;
    uint32_t depth;
} gt_scope;

/* A Tensor's place in a model message becomes an error with what, where, and the limit. */
#define GT_READ_FAIL(reader, code, node, ...)                                                                \
    gt_fail((reader)->err, (code), GANTRY_STAGE_LOAD, (node), __VA_ARGS__)

/* Names of nodes in bodies and functions repeat their owner's: a bound for files that make use of that. */
#define GT_READ_MAX_NAME_BYTES ((uint64_t)256 << 20)

static inline gantry_status gt_read_no_memory(gt_reader *reader)
{
    if (reader->name_bytes > GT_READ_MAX_NAME_BYTES)
        return gt_fail(reader->err, GANTRY_RESOURCE, GANTRY_STAGE_LOAD, NULL,
                       "names of nodes in bodies and functions take more than the limit of %llu bytes",
                       (unsigned long long)GT_READ_MAX_NAME_BYTES);
    return gt_out_of_memory(reader->err, GANTRY_STAGE_LOAD);
}

/* ---- texts: onnx_read.c ---------------------------------------------------------------------- */

/* Valid UTF-8 without NUL as it is; other bytes as \xHH. In the arena; NULL when out of memory. */
const char *gt_read_text(gt_reader *reader, gt_arena *arena, gt_bytes bytes);
/* For errors: never NULL. */
const char *gt_read_show(gt_reader *reader, gt_bytes bytes);
/* The texts one after another, in reader->temp; NULL when out of memory. */
const char *gt_read_join(gt_reader *reader, const char *a, const char *b, const char *c);
bool gt_bytes_equal(gt_bytes a, gt_bytes b);
bool gt_bytes_are(gt_bytes bytes, const char *text);

/* Opset imports as an array in the model's arena. "ai.onnx" becomes "". */
gantry_status gt_read_opsets(gt_reader *reader, GtOnnx__OperatorSetId *const *imports, size_t count,
                             const char *where, gt_opset **out_opsets, uint32_t *out_count);

/* ---- graphs: onnx_read_graph.c --------------------------------------------------------------- */

/* Reads into scope->graph, which is new. */
gantry_status gt_read_graph(gt_reader *reader, gt_scope *scope, const GtOnnx__Graph *proto);
/* A body of `node`, which is in at->graph. outer is whose names it sees: at, or the scope of a caller when
 * the body was given to a function as an attribute. */
gantry_status gt_read_body(gt_reader *reader, gt_scope *outer, const gt_scope *at, uint32_t node,
                           const char *role, const GtOnnx__Graph *proto, gt_graph **out_graph);
/* A new value for a name; who (a node, or NULL) and what are for errors. */
gantry_status gt_scope_declare(gt_reader *reader, gt_scope *scope, gt_bytes name, const char *what,
                               const char *who, uint32_t *out_value);
/* The value of a name for use in scope->graph: makes captures. *out_found is false when nobody defines it. */
gantry_status gt_scope_find(gt_reader *reader, gt_scope *scope, gt_bytes name, uint32_t *out_value,
                            bool *out_found);
bool gt_scope_set(gt_scope *scope, gt_bytes name, uint32_t value);
gantry_status gt_read_hints(gt_reader *reader, gt_scope *scope, GtOnnx__ValueInfo *const *infos,
                            size_t count);

/* ---- nodes ----------------------------------------------------------------------------------- */

gantry_status gt_read_nodes(gt_reader *reader, gt_scope *scope, GtOnnx__Node *const *nodes, size_t count);
gantry_status gt_read_attributes(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *proto,
                                 uint32_t node);
/* Follows references of a function's attribute; *out_attribute NULL: the caller leaves it out. out_scope is
 * whose names a graph in it sees. */
gantry_status gt_resolve_attribute(gt_reader *reader, gt_scope *scope, const GtOnnx__Attribute *attribute,
                                   const GtOnnx__Attribute **out_attribute, gt_scope **out_scope);
/* Makes `value` the constant that a node Constant holds. */
gantry_status gt_read_constant_node(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *proto,
                                    const char *node, uint32_t value);
/* The type field, or for old files the one that is filled. */
int32_t gt_attribute_type(const GtOnnx__Attribute *attribute);

/* ---- functions: onnx_read_function.c --------------------------------------------------------- */

/* Finds all functions, refuses recursion, and checks how many nodes the model has when they are in place. */
gantry_status gt_read_functions(gt_reader *reader);
/* *out_function NULL: the node is no call. */
gantry_status gt_find_function(gt_reader *reader, const GtOnnx__Node *node,
                               const GtOnnx__Function **out_function);
gantry_status gt_inline_function(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *caller,
                                 const GtOnnx__Function *function, const char *name, const uint32_t *inputs,
                                 const uint32_t *outputs);

/* ---- tensors --------------------------------------------------------------------------------- */

gantry_status gt_read_constant(gt_reader *reader, const GtOnnx__Tensor *proto, const char *name,
                               uint32_t *out_constant);
gantry_status gt_read_sparse(gt_reader *reader, const GtOnnx__SparseTensor *proto, const char *name,
                             uint32_t *out_constant);
/* All in the model's arena. */
gantry_status gt_read_tensor(gt_reader *reader, const GtOnnx__Tensor *proto, const char *name,
                             gantry_tensor *out_tensor);
/* Adds to an error where in the model file the tensor's message is, for whoever looks at the bytes; gives
 * status. */
gantry_status gt_read_say_where(const gt_reader *reader, const GtOnnx__Tensor *proto, gantry_status status);
/* Fills file and offset of constant, whose name, dtype, dims and bytes are set. */
gantry_status gt_read_external(gt_reader *reader, const GtOnnx__Tensor *proto, gt_constant *constant);

#endif
