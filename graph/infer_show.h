/* How the errors of shapes show tensors: a table of extents, symbols and their values, hints. Private to
 * infer_error.c, infer_show.c and infer_hint.c. */
#ifndef GT_GRAPH_INFER_SHOW_H
#define GT_GRAPH_INFER_SHOW_H

#include "infer_rules.h"

#define GT_DIM_TEXT 40
#define GT_MAX_SHOWN 8

/* Values of expressions at bind; a NULL pointer to one: while a session is created. */
typedef struct gt_binding {
    const gt_scalar *values;
    const uint8_t *known;
} gt_binding;

typedef struct gt_shown {
    const gt_value *value;
    const gt_node *reader; /* of which it is input `operand`; NULL: it is not shown as that */
    uint32_t operand;
    uint32_t mark;                           /* the axis to point at, counted from the right; 0: none */
    char dims[GANTRY_MAX_RANK][GT_DIM_TEXT]; /* from the right */
} gt_shown;

/* The extent on an axis counted from the right, from 1; GT_EXPR_UNKNOWN when there is no such axis. */
static inline gt_expr gt_extent_from_right(const gt_value *value, uint32_t axis)
{
    return axis && (int32_t)axis <= value->rank ? value->dims[value->rank - (int32_t)axis] : GT_EXPR_UNKNOWN;
}
/* The extent, when it is a constant or bound. */
bool gt_bound_value(const gt_exprs *exprs, gt_expr e, const gt_binding *at, int64_t *out);
/* "64", "n=3", "past+1=128", "k1" when it is not bound yet. out has GT_DIM_TEXT bytes. */
void gt_dim_text(const gt_exprs *exprs, gt_expr e, const gt_binding *at, gt_allocator *allocator, char *out);

/* A row for a value of the graph; reader (may be NULL): the node that it is an input of. */
void gt_show_value(const gt_graph *graph, uint32_t value, const gt_node *reader, const gt_binding *at,
                   gt_shown *out);
/* The inputs of a node, at most GT_MAX_SHOWN; returns how many. */
uint32_t gt_show_inputs(const gt_graph *graph, const gt_node *node, const gt_binding *at, gt_shown *out);
/* Appends one line for each, extents in columns counted from the right, and a line of ^ under what is marked.
 */
void gt_show_table(const gt_graph *graph, const gt_shown *all, uint32_t count, const gt_binding *at,
                   gt_text *text);
/* Appends "symbols: n=3 is axis 0 of input 'x'; ..." for all extents shown. */
void gt_show_symbols(const gt_graph *graph, const gt_shown *all, uint32_t count, const gt_binding *at,
                     gt_text *text);

/* Appends what would make the two tensors of a broken check fit, if something simple would. */
void gt_hint_pair(const gt_graph *graph, const gt_shape_check *check, const gt_binding *at, gt_text *text);

#endif
