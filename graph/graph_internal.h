/* What the files of the graph share among themselves: names, sources, files, captures. Not for others. */
#ifndef GT_GRAPH_GRAPH_INTERNAL_H
#define GT_GRAPH_GRAPH_INTERNAL_H

#include "op.h"

static inline gantry_status gt_graph_no_memory(gantry_error *err)
{
    return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

static inline bool gt_value_is_constant(const gt_value *value)
{
    return value->constant != GT_NONE && value->input_index < 0;
}

/* A copy of `wanted` in the arena that no node has yet, and takes it; wanted NULL: "OP_number". NULL when out
 * of memory. */
const char *gt_model_take_node_name(gt_model *model, const char *wanted, const char *op_type);

/* A value of the graph with that name, GT_NONE when there is none. */
uint32_t gt_graph_find_value(const gt_graph *graph, const char *name);

/* Gives a value another name, which must be free. */
bool gt_graph_rename_value(gt_graph *graph, uint32_t value, const char *name);

/* A new node under a name that is taken already (gt_model_take_node_name). Texts and arrays are copied. */
gantry_status gt_graph_put_node(gt_graph *graph, const char *taken_name, const char *domain,
                                const char *op_type, int32_t opset, uint32_t input_count,
                                const uint32_t *inputs, uint32_t output_count, const uint32_t *outputs,
                                uint32_t *out_node, gantry_error *err);

/* A new constant of the model (copied struct), and its index. */
gantry_status gt_model_add_constant(gt_model *model, const gt_constant *constant, uint32_t *out_constant,
                                    gantry_error *err);

/* Makes the value a holder of the constant, with its type and shape. */
gantry_status gt_value_set_constant(gt_graph *graph, uint32_t value, uint32_t constant, gantry_error *err);

/* A capture whose outer value has become a constant is that constant; so are the captures of it further
 * inside. */
gantry_status gt_graph_settle_capture(gt_graph *body, uint32_t value, gantry_error *err);

/* Takes over fd (closed on failure): its identity goes into model->files. */
gantry_status gt_model_add_file(gt_model *model, int fd, const char *path, uint32_t *out_file,
                                gantry_error *err);
/* Maps files[file] when it is not mapped yet; a file that changed since it was opened is GANTRY_DATA. */
gantry_status gt_model_map_file(gt_model *model, uint32_t file, gantry_error *err);
void gt_model_unmap_file(gt_model *model, uint32_t file);
void gt_model_close_files(gt_model *model); /* unmaps and closes all */
void gt_model_drop_scaled(gt_model *model); /* frees the bytes of all scaled constants */

/* A constant that is constant `base` scaled; factor is copied. *out_finite: whether every element is. Nothing
 * is computed but that. */
gantry_status gt_model_add_scaled(gt_model *model, const char *name, const gt_scaling *scaling,
                                  uint32_t *out_constant, bool *out_finite, gantry_error *err);

/* A float32 constant with the elements of constant `base`, which is float16 or bfloat16. */
gantry_status gt_model_add_widened(gt_model *model, const char *name, uint32_t base, uint32_t *out_constant,
                                   gantry_error *err);

#endif
