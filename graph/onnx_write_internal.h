/* What the files of the ONNX writer share. Not for others. */
#ifndef GT_GRAPH_ONNX_WRITE_INTERNAL_H
#define GT_GRAPH_ONNX_WRITE_INTERNAL_H

#include "graph_internal.h"
#include "onnx_write.h"

#include "onnx.pb-c.h"

/* A graph on its way into the file. Names are looked up by value id: a value either is in this graph of the
 * file, or stands for one of the same or of an outer graph (captures, constants that several values hold). */
typedef struct gt_written {
    struct gt_written *outer; /* NULL: the root */
    gt_graph *graph;
    uint8_t *used;          /* by value id */
    struct gt_written **at; /* by value id: the graph of the file that holds it */
    uint32_t *as;           /* and the value it is there */
    const char **names;     /* by value id, of those that are held here */
    const char **outputs;   /* by output: its name; another than the value's where an Identity must make it */
    gt_map taken;           /* names of this graph */
    gt_map holders;         /* constant -> the value that holds it here */
    struct gt_written **bodies; /* in the order of nodes and their bodies */
    uint32_t body_count, next_body;
} gt_written;

typedef struct gt_external_place {
    uint32_t constant;
    uint64_t offset;
} gt_external_place;

typedef struct gt_writer {
    gt_model *model;
    gt_allocator *allocator;
    gt_arena arena; /* messages and names, until the end of writing */
    const gt_write_options *options;
    gt_write_result *result;
    /* A tensor message points at stand_ins[constant] in place of its data. */
    uint8_t *stand_ins;
    GT_VEC(gt_external_place) external;
    GT_VEC(gt_written *) graphs; /* to free them */
    gt_text text;                /* scratch */
    gantry_error *err;
} gt_writer;

#define GT_WRITE_FAIL(writer, code, node, ...)                                                               \
    gt_fail((writer)->err, (code), GANTRY_STAGE_LOAD, (node), __VA_ARGS__)
#define GT_WRITE_NEW(writer, type, init)                                                                     \
    ((type *)gt_arena_copy(&(writer)->arena, &(const type)init, sizeof(type)))

static inline gantry_status gt_write_no_memory(const gt_writer *writer)
{
    return gt_out_of_memory(writer->err, GANTRY_STAGE_LOAD);
}

/* A text that lives at least as long as the message. */
static inline ProtobufCBinaryData gt_write_text(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

/* ---- names: onnx_write_names.c */

/* Finds what the file needs of the graph and of its bodies, and names it. */
gantry_status gt_write_plan_names(gt_writer *writer, gt_graph *root, gt_written **out_root);
/* The name of a used value; "" for GT_NONE. */
const char *gt_written_name(const gt_written *written, uint32_t value);
/* Whether the value is one of this graph of the file. */
static inline bool gt_written_is_held(const gt_written *written, uint32_t value)
{
    return written->used[value] && written->at[value] == written && written->as[value] == value;
}
void gt_written_free(gt_written *written);

/* ---- messages */

/* value NULL: out of memory. */
gantry_status gt_write_entry(gt_writer *writer, const char *key, const char *value,
                             GtOnnx__StringStringEntry **out_entry);
gantry_status gt_write_graph(gt_writer *writer, gt_written *written, GtOnnx__Graph **out_graph);
/* name, type and shape; a value nobody knows the type of gives a name alone. declared: what the file said of
 * the shape stands where inference knows nothing. */
gantry_status gt_write_value_info(gt_writer *writer, const gt_written *written, uint32_t value,
                                  const char *name, bool declared, GtOnnx__ValueInfo **out_info);
/* Whether the file can say anything of the value's type. */
bool gt_write_has_type(const gt_value *value);
gantry_status gt_write_constant(gt_writer *writer, uint32_t constant, const char *name,
                                GtOnnx__Tensor **out_tensor);
/* Of a constant that was sparse. */
gantry_status gt_write_sparse(gt_writer *writer, uint32_t constant, const char *name,
                              GtOnnx__SparseTensor **out_tensor);
gantry_status gt_write_tensor(gt_writer *writer, const gantry_tensor *tensor, GtOnnx__Tensor **out_tensor);
/* For messages that were kept as bytes: unpacked, they live as long as the others. */
ProtobufCAllocator gt_write_allocator(gt_writer *writer);

/* ---- bytes: onnx_write_tensor.c */

gantry_status gt_write_message(gt_writer *writer, const ProtobufCMessage *message, const gt_write_sink *sink);
gantry_status gt_write_external(gt_writer *writer, const gt_write_sink *sink);

#endif
