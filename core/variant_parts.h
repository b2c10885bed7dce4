/* What the variant_*.c files share: the steps of gt_variant_compile. The caller holds the session's lock. */
#ifndef GT_CORE_VARIANT_PARTS_H
#define GT_CORE_VARIANT_PARTS_H

#include "session.h"

/* Places the graph and compiles its partitions; a program that fails to compile becomes a verdict, and the
 * graph is placed again. Bodies of control nodes become variants of their own. */
gantry_status gt_variant_place(gt_variant *variant, gantry_error *err);
void gt_variant_destroy_program(gantry_session *session, const gt_placement *placement, gt_program *programs,
                                uint32_t index);

/* program_cache.c: compiles a partition with its provider, or loads the program that an earlier compile left
 * in the runtime's cache folder, with the provider's lock held where it asks for it. Fills slot->program,
 * records, compile_ns and cache. A failure is the compile's. */
gantry_status gt_program_make(gantry_session *session, gt_session_provider *provider,
                              const gantry_compile_args *args, gt_program *slot, gantry_error *err);

/* Places a body of `node` as if its edges could lie anywhere, to see where it would compute; nothing is
 * compiled. */
gantry_status gt_variant_place_open(gt_variant *variant, const gt_node *node, gantry_error *err);

/* variant_edges.c: chooses where the inputs and outputs of a control node's bodies lie, before they are
 * compiled; and lists what a placed graph captures in which domain. */
gantry_status gt_variant_choose_edges(const gt_variant *outer, const gt_node *node,
                                      gt_variant *const bodies[2], gantry_error *err);
gantry_status gt_variant_find_captures(gt_variant *variant, gantry_error *err);

/* Groups the partitions by segment and lists the symbols of each. */
gantry_status gt_variant_make_segments(gt_variant *variant, gantry_error *err);

/* Finds the Ifs whose condition is an expression over what is known when the graph is entered. */
gantry_status gt_variant_find_choices(gt_variant *variant, gantry_error *err);

/* ---- variant_formats.c ----------------------------------------------------------------------- */

/* What the provider of a partition prefers and requires at its edges, into slot->edges. */
gantry_status gt_formats_ask(const gantry_provider *table, const char *provider, gt_program *slot,
                             gantry_error *err);
/* When all partitions were asked or are kept: the outputs of all that are new, then their inputs. */
void gt_formats_settle_outputs(gt_variant *variant, uint32_t index);
void gt_formats_settle_inputs(gt_variant *variant, uint32_t index);

#endif
