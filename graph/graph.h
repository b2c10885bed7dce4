/* The graph: nodes compute values. One gt_model holds a root graph, the bodies of its control nodes, its
 * constants and the record of where every node came from.
 *
 * Everything lives in the model's arena and is named by 32-bit ids. A graph is changed only while a session
 * is created, by one thread; afterwards it is read by all. Removing marks (gt_node.removed); gt_graph_sort
 * drops what is marked and restores a topological order. */
#ifndef GT_GRAPH_GRAPH_H
#define GT_GRAPH_GRAPH_H

#include "expr.h"

#include <gantry/provider.h>

#define GT_NONE UINT32_MAX

typedef struct gt_op gt_op; /* op.h */
typedef struct gt_graph gt_graph;
typedef struct gt_model gt_model;

/* ---- constants ------------------------------------------------------------------------------- */

typedef enum gt_constant_origin {
    GT_CONSTANT_MEMORY, /* data is in the model's arena, or owned */
    GT_CONSTANT_FILE,   /* data lies in files[file] at offset; `data` is NULL until somebody maps it */
    GT_CONSTANT_SCALED  /* another constant times a factor for each channel, or widened to float32; `data` is
                           NULL until somebody asks */
} gt_constant_origin;

/* Weights that a rewrite scaled: kept as what they are made of, because a copy would double the memory of a
 * model and every program packs its own. float32: rows of channels of `inner` elements; element (row,
 * channel, i) is the one of `base` times factor[row / rows_of_group * channels_of_row + channel], computed in
 * double and rounded once. */
typedef struct gt_scaling {
    uint32_t base; /* a constant of the model */
    uint64_t rows, rows_of_group, channels_of_row, inner;
    const double *factor; /* NULL: base is float16 or bfloat16, and this is the same in float32 */
} gt_scaling;

/* What a constant is made of that a file gives as a sparse tensor: its elements that are not zero, and where.
 */
typedef struct gt_sparse {
    gantry_tensor values, indices;
} gt_sparse;

/* Bytes known at creation, dense row-major in the packing of types.h; of a STRING an array of const char *.
 * Up to GT_CONSTANT_COPY_BYTES they are aligned to 16. Larger ones that lie in a file start wherever the file
 * put them: read their elements with memcpy or unaligned loads. */
#define GT_CONSTANT_COPY_BYTES 65536u
typedef struct gt_constant {
    const char *name;
    gantry_dtype dtype;
    uint32_t rank;
    const int64_t *dims;
    size_t bytes;
    gt_constant_origin origin;
    const void *data;
    uint32_t file;
    uint64_t offset;
    const gt_scaling *scaling; /* SCALED */
    const gt_sparse *sparse;   /* NULL; data is dense all the same */
    uint32_t maps;             /* gt_constant_map less gt_constant_unmap */
    bool hashed;
    uint64_t hash[2]; /* once hashed: XXH3 (128 bits) of the bytes, of a STRING of its texts */
} gt_constant;

/* A file that constants come from: the model itself (index 0 when read from a file) or external data. map is
 * valid while the session is created; fd is kept for later reads after an identity check. */
typedef struct gt_file {
    const char *path; /* resolved */
    int fd;           /* -1: none (a model from memory) */
    const uint8_t *map;
    uint64_t bytes;
    uint64_t device, inode, mtime_ns;
    bool mapped; /* map is ours to unmap */
} gt_file;

/* ---- lineage --------------------------------------------------------------------------------- */

typedef struct gt_metadata {
    const char *key;
    const char *value;
} gt_metadata;

/* What a file says of a node that no runtime needs. */
typedef struct gt_source_notes {
    const char *doc; /* "" when there is none */
    uint32_t count;
    const gt_metadata *metadata;
} gt_source_notes;

/* One node of the file, whatever became of it. name is unique and stable: the file's name, else "OP_k" by
 * position; bodies are prefixed "outer.role.", functions "caller/". */
typedef struct gt_source {
    const char *name;
    const char *op;
    const char *domain;
    const char *removed_by; /* NULL while some node still computes it; else "folded", "identity", "dead",
                               "at_bind", "inlined" ... */
    const char *removed_pass;
    const gt_source_notes *notes; /* NULL: none, or not asked for */
    uint32_t
        holders; /* private: nodes whose lineage names it; see gt_lineage_join and gt_graph_remove_node */
} gt_source;

/* The sources a node stands for, ascending. */
typedef struct gt_lineage {
    uint32_t count;
    const uint32_t *sources;
    const char *pass; /* the pass that made the node; NULL: it is as in the file */
} gt_lineage;

/* ---- values and nodes ------------------------------------------------------------------------ */

typedef struct gt_use {
    uint32_t node;  /* node id; GT_NONE: graph output */
    uint32_t index; /* input index, or output index of the graph; captures of bodies count as uses of the
                       control node with index GT_NONE */
} gt_use;

typedef struct gt_value {
    const char *name; /* unique in its graph, never NULL or empty */
    gantry_value_kind kind;
    gantry_dtype dtype;  /* GANTRY_UNDEFINED until inferred */
    int32_t rank;        /* -1: unknown */
    const gt_expr *dims; /* rank of them; GT_EXPR_UNKNOWN where nobody can say */
    /* Elements known symbolically: integers, bools and reals up to GT_MAX_ELEMENTS, in row-major order; NULL
     * when not known. */
    uint32_t element_count;
    const gt_expr *elements;
    uint32_t producer;        /* node id, or GT_NONE: input, constant, capture */
    uint32_t producer_output; /* which output of it */
    uint32_t constant;        /* index into model->constants, or GT_NONE */
    uint32_t captured;        /* value id in the parent graph when this is a capture, else GT_NONE */
    int32_t input_index;      /* among the graph's inputs, or -1 */
    bool is_output;           /* of the graph */
    /* What the file declared (value_info, graph outputs): hints only. rank -1: nothing. */
    gantry_dtype declared_dtype;
    int32_t declared_rank;
    const int64_t *declared_dims;          /* -1 where symbolic */
    const char *const *declared_dim_names; /* NULL where none */
    const void *declared_type;             /* of what is no tensor: the TypeProto's bytes, or NULL */
    uint32_t declared_type_bytes;
} gt_value;

#define GT_MAX_ELEMENTS 64u /* more elements than this are data, not shape arithmetic */

typedef struct gt_body {
    const char *name; /* attribute: "body", "then_branch", "else_branch" */
    gt_graph *graph;
} gt_body;

/* An attribute that nobody computes with (a type), kept as the bytes of its AttributeProto to be written. */
typedef struct gt_kept_attribute {
    const char *name;
    const void *bytes;
    size_t size;
} gt_kept_attribute;

typedef struct gt_node {
    const char *name; /* unique in the session */
    const char *op_type;
    const char *domain; /* "" for ai.onnx */
    const gt_op *op;    /* NULL: not in the operator table */
    int32_t opset;      /* what the file (or function body) stamps for this domain */
    int32_t version;    /* the definition in force: the largest since_version <= opset; 0 when op is NULL */
    uint32_t input_count;
    uint32_t *inputs; /* value ids; GT_NONE: left out */
    uint32_t output_count;
    uint32_t *outputs;
    uint32_t attribute_count;
    gantry_attribute *attributes;
    uint32_t kept_count;
    const gt_kept_attribute *kept;
    uint32_t body_count;
    gt_body *bodies;
    gt_graph *composite; /* the original nodes this one stands for, with inputs and outputs in the same order;
                            NULL */
    gt_lineage lineage;
    bool removed;
    bool
        at_bind; /* all its outputs' elements are known at bind: it never runs; set by inference at the end */
    uint32_t segment; /* the first segment in which its inputs' sizes are known; set by inference */
} gt_node;

/* What inference could not decide and a bind must: expr, a GT_EXPR_BROADCAST or GT_EXPR_SAME over an extent
 * of value a and one of value b, both inputs of node, must have a value when its operands do. Axes are
 * counted from the right: 1 is the last. An axis of 0 means the whole tensor (its element count). */
typedef struct gt_shape_check {
    gt_expr expr;
    uint32_t node;
    uint32_t a, b; /* value ids; b may be GT_NONE */
    uint32_t axis_a, axis_b;
    const char
        *rule; /* what the operator demands, in words; NULL: see the tensors. a and b are GT_NONE then */
} gt_shape_check;

/* values and nodes are stored by pointer: they don't move. order is a topological order of the nodes that are
 * not removed. */
struct gt_graph {
    gt_model *model;
    gt_graph *parent;     /* NULL for the root */
    uint32_t parent_node; /* the control node in the parent, GT_NONE for the root */
    const char *name;
    const char *scope; /* prefix of node names: "" for the root, "loop1.body." */
    GT_VEC(gt_value *) values;
    GT_VEC(gt_node *) nodes;
    GT_VEC(uint32_t) order;
    GT_VEC(uint32_t)
    inputs; /* value ids, the file's order, overwritable initializers included; then nothing else */
    GT_VEC(uint32_t) outputs; /* value ids; may hold inputs, constants, and one id twice */
    gt_map value_names;       /* name -> id */
    gt_use *uses;             /* private: grouped by value, see gt_graph_uses */
    uint32_t *uses_first;
    bool uses_valid;
    /* Of this graph without its bodies; made anew by each gt_infer_graph, in the model's arena. See
     * gt_infer_first_failure. */
    gt_shape_check *checks;
    uint32_t check_count, check_capacity;
};

typedef struct gt_opset {
    const char *domain;
    int64_t version;
} gt_opset;

/* One line of the rewrite log. state: "applied", "applied_with_copy", "partly", "skipped" (a near miss: guard
 * says what failed). */
typedef struct gt_rewrite_record {
    const char *rule;
    const char *node;
    const char *state;
    const char *guard;
    uint32_t removed_count;
    const char *const *removed; /* names of removed nodes */
    const char *added;          /* name of the new node, or NULL */
} gt_rewrite_record;

/* A short finding for the report: code "constant_recomputed", "promoted" ... */
typedef struct gt_note {
    const char *code;
    const char *node; /* or NULL */
    const char *text;
} gt_note;

struct gt_model {
    gt_allocator *allocator;
    gt_arena arena;
    gt_exprs exprs;
    gt_graph *root;
    GT_VEC(gt_constant) constants;
    GT_VEC(gt_file) files;
    GT_VEC(gt_source) sources;
    GT_VEC(gt_rewrite_record) rewrites;
    GT_VEC(gt_note) notes;
    GT_VEC(gt_opset) opsets;
    GT_VEC(gt_metadata) metadata; /* custom keys, then the fixed ones of gantry_session_metadata */
    uint32_t custom_metadata_count;
    int64_t ir_version;
    uint32_t next_name;               /* for synthetic names */
    GT_VEC(gt_graph *) graphs;        /* private: every graph ever made, to free them */
    gt_map node_names;                /* private: names of nodes that are taken */
    const struct gt_own_ops *own_ops; /* operators of plugins that nodes may be of; lives as long; or NULL */
};

gantry_status gt_model_create(gt_allocator *allocator, gt_model **out_model, gantry_error *err);
void gt_model_destroy(gt_model **model); /* closes and unmaps files */
/* The opset of ai.onnx that the model imports; 0 when it imports none. */
int64_t gt_model_opset(const gt_model *model);

/* ---- building and changing ------------------------------------------------------------------- */

gantry_status gt_graph_create(gt_model *model, gt_graph *parent, uint32_t parent_node, const char *name,
                              const char *scope, gt_graph **out_graph, gantry_error *err);

/* A new value with no producer; name is copied, NULL makes a fresh unique one. Fails with GANTRY_MODEL_GRAPH
 * when the name is taken. */
gantry_status gt_graph_add_value(gt_graph *graph, const char *name, uint32_t *out_value, gantry_error *err);

/* A new node after copying the arrays; outputs get it as producer. name NULL or taken: a fresh unique one. op
 * and version are looked up. */
gantry_status gt_graph_add_node(gt_graph *graph, const char *name, const char *domain, const char *op_type,
                                int32_t opset, uint32_t input_count, const uint32_t *inputs,
                                uint32_t output_count, const uint32_t *outputs, uint32_t *out_node,
                                gantry_error *err);

/* Attributes are appended; texts and arrays are copied into the arena. */
gantry_status gt_node_set_attribute(gt_graph *graph, uint32_t node, const gantry_attribute *attribute,
                                    gantry_error *err);
gantry_status gt_node_set_int(gt_graph *graph, uint32_t node, const char *name, int64_t value,
                              gantry_error *err);
gantry_status gt_node_set_float(gt_graph *graph, uint32_t node, const char *name, float value,
                                gantry_error *err);
gantry_status gt_node_set_ints(gt_graph *graph, uint32_t node, const char *name, const int64_t *values,
                               uint32_t count, gantry_error *err);

/* A new constant in memory, bytes copied into the arena, and a value of the graph that holds it. */
gantry_status gt_graph_add_constant(gt_graph *graph, const char *name, gantry_dtype dtype, uint32_t rank,
                                    const int64_t *dims, const void *data, uint32_t *out_value,
                                    gantry_error *err);

/* Every use of `from` (consumers, graph outputs, captures in bodies) becomes a use of `to`. A graph output
 * keeps its name: when from is one, `to` takes over the name, or an Identity is put between (when `to` is an
 * input, a constant or an output itself). */
gantry_status gt_graph_replace_value(gt_graph *graph, uint32_t from, uint32_t to, gantry_error *err);

/* Marks a node removed and says in its sources why, unless another node has taken over its lineage. */
void gt_graph_remove_node(gt_graph *graph, uint32_t node, const char *reason, const char *pass);

/* The union of the lineages of the nodes, as the lineage of a new node. Use it for one node too: it counts
 * who holds a source, which is how gt_graph_remove_node knows that another node has taken over. Removing
 * before or after joining makes no difference. */
gantry_status gt_lineage_join(gt_model *model, gt_graph *graph, const uint32_t *nodes, uint32_t count,
                              const char *pass, gt_lineage *out_lineage, gantry_error *err);

/* Who reads a value, uses by bodies included. Valid until the graph changes. */
gantry_status gt_graph_uses(gt_graph *graph, uint32_t value, const gt_use **out_uses, uint32_t *out_count,
                            gantry_error *err);
void gt_graph_changed(gt_graph *graph); /* after changing nodes by hand: forgets uses */

/* Drops removed nodes, restores a topological order (stable: the file's order where it is one).
 * GANTRY_MODEL_GRAPH on a cycle, naming a node on it. */
gantry_status gt_graph_sort(gt_graph *graph, gantry_error *err);

/* A deep copy inside the same model (constants, exprs and sources are shared): the base of a variant. */
gantry_status gt_graph_clone(const gt_graph *graph, gt_graph **out_graph, gantry_error *err);

/* Puts the nodes of a body in place of its control node `node` (an If whose branch is chosen): captures
 * become the outer values, body outputs replace the node's outputs. The other bodies are dropped with reason
 * "branch_not_taken". */
gantry_status gt_graph_inline_body(gt_graph *graph, uint32_t node, uint32_t body, gantry_error *err);

/* ---- reading a node -------------------------------------------------------------------------- */

const gantry_attribute *gt_node_attribute(const gt_node *node, const char *name);
int64_t gt_node_int(const gt_node *node, const char *name, int64_t otherwise);
float gt_node_float(const gt_node *node, const char *name, float otherwise);
const char *gt_node_string(const gt_node *node, const char *name, const char *otherwise);
/* NULL when absent. */
const int64_t *gt_node_ints(const gt_node *node, const char *name, uint32_t *out_count);

static inline gt_value *gt_graph_value(const gt_graph *graph, uint32_t id)
{
    return id == GT_NONE ? NULL : graph->values.data[id];
}
static inline gt_node *gt_graph_node(const gt_graph *graph, uint32_t id)
{
    return id == GT_NONE ? NULL : graph->nodes.data[id];
}

/* Whether a value of this type can have symbolic elements, and whether they are reals. */
bool gt_dtype_is_symbolic(gantry_dtype dtype, bool *out_real);
/* Element k of dense data, which need not be aligned: .r of reals, .i of integers and of bools (0 or 1). Of
 * symbolic types and uint64 (its bits); of others 0. */
gt_scalar gt_scalar_read(gantry_dtype dtype, const void *data, uint64_t k);

/* The bytes of a constant: maps its file when it is not mapped yet. Valid while the model's files are mapped.
 */
gantry_status gt_constant_data(gt_model *model, uint32_t constant, const void **out_data, gantry_error *err);

/* The same for somebody who says when he is done: after the last unmap the pages of a file are given back and
 * scaled bytes are freed; both are made again when asked for. */
gantry_status gt_constant_map(gt_model *model, uint32_t constant, const void **out_data, gantry_error *err);
void gt_constant_unmap(gt_model *model, uint32_t constant);

/* For whoever keeps the address: a constant that lies in a mapped file is copied into the model's memory, so
 * its bytes are aligned and stay where they are as long as the model. */
gantry_status gt_constant_own(gt_model *model, uint32_t constant, gantry_error *err);

/* Appends "name: float32[batch,3,224,224]". */
void gt_value_print(const gt_graph *graph, uint32_t value, gt_text *text);

/* ---- logs ------------------------------------------------------------------------------------ */

gantry_status gt_model_log_rewrite(gt_model *model, const char *rule, const char *node, const char *state,
                                   const char *guard, gantry_error *err);
gantry_status gt_model_note(gt_model *model, const char *code, const char *node, gantry_error *err,
                            const char *format, ...) GANTRY_PRINTF(5, 6);

/* ---- reading ONNX ---------------------------------------------------------------------------- */

/* Limits on what a file may ask for; 0 in a field means the default. */
struct gt_own_ops;

typedef struct gt_read_limits {
    uint32_t max_depth;               /* nested graphs and messages; default 64 */
    uint32_t max_nodes;               /* default 4,000,000 */
    uint64_t max_bytes;               /* of the model file; default 1 << 40 */
    bool keep_notes;                  /* doc strings and metadata of nodes are read, into gt_source.notes */
    const struct gt_own_ops *own_ops; /* operators of plugins, or NULL: gt_model.own_ops */
} gt_read_limits;

/* Reads a model. path or (bytes, size); base is where external data of a model from memory lies (NULL:
 * refused). Bytes must stay valid while the model lives or until gt_model_own_constants. Model-local
 * functions are inlined; names made unique; graphs sorted. No shapes are inferred. */
gantry_status gt_onnx_read_file(gt_allocator *allocator, const char *path, const gt_read_limits *limits,
                                gt_model **out_model, gantry_error *err);
gantry_status gt_onnx_read_memory(gt_allocator *allocator, const void *bytes, size_t size, const char *base,
                                  const gt_read_limits *limits, gt_model **out_model, gantry_error *err);

/* The bytes of all constants that some node reads or that are graph outputs; *out_largest is the largest of
 * them, or GT_NONE. */
gantry_status gt_model_count_constants(gt_model *model, uint64_t *out_bytes, uint32_t *out_largest,
                                       gantry_error *err);

/* The bytes of the constants that are in memory and in no mapped file. */
uint64_t gt_model_held_bytes(const gt_model *model);

/* Copies what still lies in mapped files for the constants that some node reads or that are graph outputs,
 * except those with packed[constant] = 1, and unmaps all files: afterwards nothing touches the mapping.
 * Scaled bytes that are not wanted are freed. */
gantry_status gt_model_own_constants(gt_model *model, const uint8_t *packed, gantry_error *err);

#endif
