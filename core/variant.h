/* A graph ready to be bound: the root, a body, or a copy with chosen branches. Its placement, its programs
 * and its plans.
 *
 * If nodes whose condition is known at bind are no steps: each vector of choices has a child variant in which
 * the chosen branches are inlined, made when it is first seen. */
#ifndef GT_CORE_VARIANT_H
#define GT_CORE_VARIANT_H

#include "plan.h"
#include "view.h"

#include <stdatomic.h>

/* What the cache of programs did for one; state NULL: it took no part. */
typedef struct gt_cache_event {
    const char *state;    /* "hit", "miss", "damaged" (the file), "refused" (by the provider) */
    const char *detail;   /* why it is no hit */
    const char *key;      /* lines of "component=value" */
    const char *file;     /* "" when it has no name */
    const char *not_kept; /* why a program that was compiled then is not in the cache; "": it is */
    uint64_t bytes;       /* read, or kept */
    double lookup_ns;     /* making the key and reading */
    double keep_ns;
} gt_cache_event;

/* A compiled partition. */
typedef struct gt_program {
    gantry_program *program; /* NULL for control partitions */
    gt_view view;
    gt_arena arena; /* of the view and the records */
    struct gantry_recorder records;
    gantry_format *input_formats, *output_formats;
    gantry_edge_format *edges; /* what its provider named: inputs, then outputs */
    gt_cache_event cache;
    double compile_ns;
    uint64_t held_bytes;   /* what its provider said last that it holds: see gt_session_charge_program */
    gt_variant *bodies[2]; /* control partitions: Loop {body, NULL}, If {then, else} */
} gt_program;

/* An If that is decided at bind. */
typedef struct gt_choice {
    uint32_t node;
    gt_expr condition;
} gt_choice;

typedef struct gt_variant_child {
    const uint8_t *branches; /* one for each choice: 1 = then */
    gt_variant *variant;
} gt_variant_child;

/* A symbol whose value a segment makes: extent or element `axis` of a value. */
typedef struct gt_result_symbol {
    uint32_t symbol, value, axis;
    bool element;
} gt_result_symbol;

/* A shape that a provider refused when it was bound: for these values of the first segment's symbols the
 * graph is placed anew, without the nodes that were refused. */
typedef struct gt_refused_shape {
    const int64_t *key;
    gt_variant *alternate;
} gt_refused_shape;

/* The partitions of one segment, and the symbols whose values are the key of its plans. */
typedef struct gt_segment {
    uint32_t number; /* gt_partition.segment */
    uint32_t first_partition, partition_count;
    uint32_t symbol_count;
    const uint32_t *symbols; /* those not defined inside the segment itself, ascending */
    uint32_t result_count;
    gt_result_symbol *results;
} gt_segment;

struct gt_variant {
    gantry_session *session;
    gt_graph *graph;
    gt_variant *parent; /* the variant this one is a choice of, or whose control node this is a body of */
    gt_arena arena;
    uint32_t choice_count;
    gt_choice *choices;
    uint32_t choice_symbol_count;
    const uint32_t *choice_symbols;
    GT_VEC(gt_variant_child) children;
    GT_VEC(gt_refused_shape) refused; /* only grows, under the lock */
    atomic_uint refused_count;        /* of it, for those who hold no lock */
    bool body;                        /* of a control node */
    bool compiled;
    gt_placement *placement;
    gt_program *programs; /* by partition */
    GT_VEC(gt_late_refusal) late;
    uint32_t segment_count;
    gt_segment *segments;
    GT_VEC(gt_plan *) plans;
    /* Where the graph's inputs and outputs lie, as session domains: of the root as the session says, of a
     * body as variant_edges.c chose. */
    const uint32_t *input_domains, *output_domains;
    /* Values of the graph that are captures, in id order, once for each domain in which they are read: frame
     * inputs after the graph's inputs. */
    uint32_t capture_count;
    const uint32_t *captures, *capture_domains;
    const gt_variant *first; /* the one whose edges and captures this one keeps to; NULL: it has its own */
    double iterations;       /* how often a body runs in one entry, as far as one can say; 1 for others */
    double compile_ns, place_ns, simplify_ns;
};

/* A variant of `graph`, which it takes over; not compiled. */
gantry_status gt_variant_create(gantry_session *session, gt_variant *parent, gt_graph *graph,
                                gt_variant **out_variant, gantry_error *err);
void gt_variant_destroy(gt_variant **variant);

/* Places and compiles, bodies included. Does nothing when it is done already, or when the variant has
 * choices: then only its children are compiled. The caller holds the session's lock. On failure the placement
 * made so far is kept for the report. */
gantry_status gt_variant_compile(gt_variant *variant, gantry_error *err);

/* The graph around a body, as it is placed; NULL for the root (variant_edges.c). */
const gt_variant *gt_variant_outer(const gt_variant *variant);

/* The domain in which a value of a placed graph lies when it is made. */
uint32_t gt_variant_value_domain(const gt_variant *variant, uint32_t value);

/* True when a provider of lower priority may take the nodes that this partition's provider does not. */
bool gt_variant_has_alternative(const gt_variant *variant, const gt_partition *partition);

/* The same graph placed without the nodes of this partition that a provider refused at the shapes of `key`;
 * made when it is new, and kept in variant->refused. The caller holds the session's lock. */
gantry_status gt_variant_refuse(gt_variant *variant, uint32_t partition, const gantry_shaped_info *info,
                                const int64_t *key, gantry_error *err);

/* The index of the segment whose plan delivers a graph output: the one that makes it, else the last. */
uint32_t gt_variant_output_segment(const gt_variant *variant, uint32_t output);

/* Whether input k of a partition comes in the very format, not the default, in which another one in its
 * domain leaves it: nobody converts then. And whether somebody reads output k, which has a format of its own,
 * in the default one (variant_formats.c). */
bool gt_formats_is_given(const gt_variant *variant, uint32_t partition, uint32_t k);
bool gt_formats_needs_default(const gt_variant *variant, uint32_t partition, uint32_t k);

/* The child for these branches, made and compiled when it is new. The caller holds the session's lock. */
gantry_status gt_variant_choose(gt_variant *variant, const uint8_t *branches, gt_variant **out_child,
                                gantry_error *err);

#endif
