/* Pinned memory of a run between pageable host memory and a device: copies go through it in pieces, one half
 * being filled while a queue is at the other. One thread at a time. */
#ifndef GT_CORE_STAGING_H
#define GT_CORE_STAGING_H

#include "frame.h"

typedef struct gt_staging_half {
    gantry_event *event; /* behind the last copy that uses it; NULL: the domain has no events */
    bool busy;
} gt_staging_half;

/* One for each queue of each device. */
typedef struct gt_staging {
    gt_block block;    /* empty: copies go straight from and to pageable memory */
    size_t half_bytes; /* a power of two */
    size_t wanted;     /* the largest half that was asked for */
    gt_staging_half halves[2];
    uint32_t at; /* the half that is filled now */
    size_t used; /* of it */
} gt_staging;

/* Room for copies of so many bytes on a queue, as far as the option staging_limit allows; false: there is
 * none, and copies go without. */
bool gt_staging_prepare(gantry_run *run, uint32_t domain, uint32_t queue, size_t bytes);
/* Copies between the host and the device of a step. To the device: the source may change afterwards. To the
 * host: the target is there afterwards. *inout_calls counts what the device is asked for. */
gantry_status gt_staging_copy(gantry_run *run, const gt_step *step, bool to_device, gantry_buffer target,
                              gantry_buffer source, size_t bytes, uint64_t *inout_calls, gantry_error *err);
/* The queue has nothing to do. */
void gt_staging_idle(gantry_run *run, uint32_t domain, uint32_t queue);
void gt_staging_destroy(gantry_run *run);

#endif
