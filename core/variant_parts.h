/* What the variant_*.c files share: the steps of gt_variant_compile. The caller holds the session's lock. */
#ifndef GT_CORE_VARIANT_PARTS_H
#define GT_CORE_VARIANT_PARTS_H

#include "variant.h"

/* Places the graph and compiles its partitions; a program that fails to compile becomes a verdict, and the
 * graph is placed again. Bodies of control nodes become variants of their own. */
gantry_status gt_variant_place(gt_variant *variant, gantry_error *err);
void gt_variant_destroy_program(gantry_session *session, const gt_placement *placement, gt_program *programs,
                                uint32_t index);

/* Groups the partitions by segment and lists the symbols of each. */
gantry_status gt_variant_make_segments(gt_variant *variant, gantry_error *err);

/* Finds the Ifs whose condition is an expression over what is known when the graph is entered. */
gantry_status gt_variant_find_choices(gt_variant *variant, gantry_error *err);

#endif
