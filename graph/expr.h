/* Symbolic scalars: a hash-consed DAG over symbols, from which all shapes, known elements and conditions of a
 * model are made.
 *
 * An expression is an index into one table per model; operands always have lower indexes than results, so one
 * pass in index order evaluates everything. Values are int64 (bools are 0 and 1) or, for kinds marked real,
 * double. Building simplifies: two equal expressions have the same index. */
#ifndef GT_GRAPH_EXPR_H
#define GT_GRAPH_EXPR_H

#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"
#include "base/text.h"
#include "base/vec.h"

typedef uint32_t gt_expr;
#define GT_EXPR_UNKNOWN UINT32_MAX /* an extent or element nobody can name */

typedef enum gt_expr_kind {
    GT_EXPR_CONST,  /* int64 */
    GT_EXPR_SYMBOL, /* a = symbol index; real when the symbol is */
    GT_EXPR_ADD,    /* GT_EXPR_ADD .. GT_EXPR_MAX: int64 or real, as their operands are */
    GT_EXPR_SUB,
    GT_EXPR_MUL,
    GT_EXPR_MIN,
    GT_EXPR_MAX,
    GT_EXPR_FLOORDIV, /* rounds towards minus infinity; division by 0 is an evaluation error */
    GT_EXPR_CEILDIV,
    GT_EXPR_TRUNCDIV,  /* ONNX Div and C */
    GT_EXPR_MOD,       /* sign of the divisor, as Python and ONNX Mod with fmod = 0 */
    GT_EXPR_BROADCAST, /* the common extent of two that may be 1; an evaluation error when neither is 1 and
                          they differ */
    GT_EXPR_SAME,      /* a, which must be b; an evaluation error when it is not */
    GT_EXPR_EQ,
    GT_EXPR_LT,
    GT_EXPR_AND,
    GT_EXPR_OR,
    GT_EXPR_NOT,
    GT_EXPR_SELECT,     /* a ? b : c */
    GT_EXPR_REAL_CONST, /* real */
    GT_EXPR_TO_REAL,    /* real(a) */
    GT_EXPR_TO_INT,     /* truncates */
    GT_EXPR_REAL_DIV,
    GT_EXPR_REAL_FLOOR,
    GT_EXPR_REAL_CEIL,
    GT_EXPR_REAL_SQRT,
    GT_EXPR_REAL_ROUND32, /* the nearest float: what an f32 operator leaves of a double */
    GT_EXPR_KIND_COUNT
} gt_expr_kind;

typedef union gt_scalar {
    int64_t i;
    double r;
} gt_scalar;

typedef struct gt_expr_node {
    uint8_t kind; /* gt_expr_kind */
    bool real;    /* the value is a double */
    gt_expr a, b, c;
    gt_scalar constant; /* of CONST and REAL_CONST */
} gt_expr_node;

typedef enum gt_symbol_kind {
    GT_SYMBOL_INPUT_DIM,     /* extent `axis` of graph input `input` */
    GT_SYMBOL_INPUT_ELEMENT, /* element `axis` of graph input `input` */
    GT_SYMBOL_DATA_DIM,      /* extent `axis` of value `value`, known only after its producer ran */
    GT_SYMBOL_DATA_ELEMENT   /* element `axis` of value `value`, likewise */
} gt_symbol_kind;

/* Each (input, axis) is a symbol of its own even when the file gives several the same name: what they are
 * bound to may differ. */
typedef struct gt_symbol {
    gt_symbol_kind kind;
    bool real;
    const char *name; /* "batch", "x[2]"; never NULL */
    uint32_t input;   /* index among the graph's inputs */
    uint32_t value;   /* value id in its graph */
    uint32_t axis;
    uint32_t segment; /* DATA_*: the first segment in which it is known (1, 2, ...); INPUT_*: 0 */
    gt_expr bound;    /* DATA_DIM: an upper bound, or GT_EXPR_UNKNOWN */
    int64_t range_low, range_typical,
        range_high;               /* typical is what costs are estimated with; high INT64_MAX when open */
    bool range_given;             /* by the user; else assumed */
    const struct gt_graph *graph; /* DATA_*: the graph that `value` is of */
    uint32_t depth;               /* DATA_*: how many graphs lie around that one */
} gt_symbol;

/* What is known of an expression whatever its symbols are bound to. */
typedef struct gt_expr_facts {
    int64_t low, high; /* the value lies between; of reals: not known (INT64_MIN, INT64_MAX) */
    uint32_t segment;
    uint32_t depth; /* how deep in nested bodies the deepest symbol lives; 0: the root graph or no symbol */
} gt_expr_facts;

/* One thread at a time while growing; reading is safe for all. `failed` is set when memory ran out while
 * building. */
typedef struct gt_exprs {
    gt_allocator *allocator;
    GT_VEC(gt_expr_node) nodes;
    GT_VEC(gt_expr_facts) facts; /* one for each node */
    GT_VEC(gt_symbol) symbols;
    gt_map index;     /* private: finds equal nodes */
    gt_map reusables; /* private: finds symbols of data again */
    gt_arena keys;
    bool failed;
} gt_exprs;

void gt_exprs_init(gt_exprs *exprs, gt_allocator *allocator);
void gt_exprs_free(gt_exprs *exprs);

/* Building never returns an error: out of memory sets exprs->failed and gives GT_EXPR_UNKNOWN, and an operand
 * that is GT_EXPR_UNKNOWN makes the result unknown. */
gt_expr gt_expr_const(gt_exprs *exprs, int64_t value);
gt_expr gt_expr_real(gt_exprs *exprs, double value);
gt_expr
gt_expr_symbol(gt_exprs *exprs,
               const gt_symbol *symbol); /* a new symbol, even when an equal one exists; name is copied */
/* As gt_expr_symbol, but gives the symbol made before for the same (kind, graph, name, axis, segment). */
gt_expr gt_expr_symbol_again(gt_exprs *exprs, const gt_symbol *symbol);
gt_expr gt_expr_make(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b,
                     gt_expr c); /* unused operands: 0 */

/* The symbol that e is, or NULL when it is something else. */
const gt_symbol *gt_expr_as_symbol(const gt_exprs *exprs, gt_expr e);
bool gt_expr_is_const(const gt_exprs *exprs, gt_expr e, int64_t *out_value); /* int64 constants only */
bool gt_expr_is_real(const gt_exprs *exprs, gt_expr e);
/* True when e can't be negative for any binding in which input extents aren't. */
bool gt_expr_is_nonnegative(const gt_exprs *exprs, gt_expr e);
/* What holds for e under any such binding; of GT_EXPR_UNKNOWN nothing. */
gt_expr_facts gt_expr_known_facts(const gt_exprs *exprs, gt_expr e);
/* The last segment whose symbols e needs: 0 when it depends on inputs and constants only. */
uint32_t gt_expr_segment(const gt_exprs *exprs, gt_expr e);
/* Appends e in infix ("2*batch+1"). */
void gt_expr_print(const gt_exprs *exprs, gt_expr e, gt_text *text);

/* Evaluates all expressions with indexes first..last-1 into values (indexed by expression) from symbol values
 * (indexed by symbol) of which those with known[symbol] = 0 are skipped with everything built on them.
 * out_known says which values are valid. *out_failed is the first expression that has no value (a broadcast
 * that does not fit, division by zero, overflow), or GT_EXPR_UNKNOWN; evaluation goes on past it. The table
 * holds expressions that no value uses (any more) and branches that a select does not take: a failure counts
 * only when gt_infer_first_failure says so, or when something that is needed has no value. */
void gt_exprs_evaluate(const gt_exprs *exprs, gt_expr first, gt_expr last, const gt_scalar *symbols,
                       const uint8_t *known, gt_scalar *out_values, uint8_t *out_known, gt_expr *out_failed);

#endif
