/* Staging: pageable memory of the caller is copied to pinned memory of the run piece by piece, and from there
 * to the device, and the other way round.
 *
 *     [ half 0 | half 1 ]     the host fills one half while the queue copies from the other
 *
 * A half is used again once its event has passed. What a queue writes to a half needs no such wait: it comes
 * after all that the queue was given before. */
#include "run.h"

/* Large enough that a copy's latency does not show, small enough to fill while another one is on its way. */
#define HALF_MOST ((size_t)1 << 20)
#define HALF_LEAST ((size_t)4096)
#define PIECE_ALIGNMENT ((size_t)64)

static gt_staging *staging_of(gantry_run *run, uint32_t domain, uint32_t queue)
{
    return &run->staging[2 * domain + queue];
}

static const gantry_domain *table_of(const gantry_run *run, uint32_t domain)
{
    return run->session->domains[domain].entry->table;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void give_back(gantry_run *run, gt_staging *staging, uint32_t domain)
{
    for (int h = 0; h < 2; h++) {
        if (staging->halves[h].event)
            table_of(run, domain)->event_destroy(table_of(run, domain)->self, staging->halves[h].event);
        staging->halves[h] = (gt_staging_half){NULL, false};
    }
    gt_block_free(run->session, 0, &staging->block);
    staging->half_bytes = staging->used = 0;
}

static bool make_events(gantry_run *run, gt_staging *staging, uint32_t domain)
{
    const gantry_domain *table = table_of(run, domain);
    if (!table->event_create || !table->event_sync)
        return true;
    for (int h = 0; h < 2; h++)
        if (table->event_create(table->self, &staging->halves[h].event, NULL) != GANTRY_OK) {
            staging->halves[h].event = NULL;
            return false;
        }
    return true;
}

bool gt_staging_prepare(gantry_run *run, uint32_t domain, uint32_t queue, size_t bytes)
{
    gt_staging *staging = staging_of(run, domain, queue);
    size_t half = HALF_LEAST;
    while (half < bytes && half < HALF_MOST)
        half *= 2;
    if (half <= staging->wanted)
        return staging->half_bytes > 0;
    staging->wanted = half;
    const gantry_domain *table = table_of(run, domain);
    if (staging->half_bytes &&
        table->queue_sync(table->self, gt_run_queue(run, domain, queue), NULL) != GANTRY_OK)
        return true; /* the smaller halves do, and the queue will say what is wrong */
    give_back(run, staging, domain);
    while (half >= HALF_LEAST && !gt_block_pin(run->session, domain, &staging->block, 2 * half))
        half /= 2;
    if (half < HALF_LEAST)
        return false;
    staging->half_bytes = half;
    if (make_events(run, staging, domain))
        return true;
    give_back(run, staging, domain);
    return false;
}

void gt_staging_idle(gantry_run *run, uint32_t domain, uint32_t queue)
{
    gt_staging *staging = staging_of(run, domain, queue);
    staging->halves[0].busy = staging->halves[1].busy = false;
    staging->used = 0;
}

void gt_staging_destroy(gantry_run *run)
{
    for (uint32_t k = 2; run->staging && k < 2 * run->session->domain_count; k++)
        give_back(run, &run->staging[k], k / 2);
    gt_free(run->session->allocator, run->staging);
    run->staging = NULL;
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct staged_copy {
    gantry_run *run;
    gt_staging *staging;
    const gantry_domain *table;
    gantry_queue *queue;
    uint64_t *calls;
    gantry_error *err;
} staged_copy;

static gantry_buffer piece_at(const staged_copy *c, uint32_t half, size_t offset)
{
    return (gantry_buffer){c->staging->block.handle, half * c->staging->half_bytes + offset};
}

static char *address_of(gantry_buffer buffer)
{
    return (char *)buffer.handle + buffer.offset_bytes;
}

static gantry_status mark_half(const staged_copy *c, uint32_t half)
{
    gt_staging_half *h = &c->staging->halves[half];
    h->busy = true;
    return h->event ? c->table->event_record(c->table->self, c->queue, h->event, c->err) : GANTRY_OK;
}

/* Until the queue is done with a half. */
static gantry_status await_half(const staged_copy *c, uint32_t half)
{
    gt_staging_half *h = &c->staging->halves[half];
    if (!h->busy)
        return GANTRY_OK;
    h->busy = false;
    return h->event ? c->table->event_sync(c->table->self, h->event, c->err)
                    : c->table->queue_sync(c->table->self, c->queue, c->err);
}

static gantry_status next_half(const staged_copy *c)
{
    GT_TRY(mark_half(c, c->staging->at));
    c->staging->at ^= 1;
    c->staging->used = 0;
    return await_half(c, c->staging->at);
}

static gantry_status upload(const staged_copy *c, gantry_buffer target, const char *source, size_t bytes)
{
    gt_staging *staging = c->staging;
    while (bytes) {
        if (staging->used >= staging->half_bytes)
            GT_TRY(next_half(c));
        size_t room = staging->half_bytes - staging->used, n = bytes < room ? bytes : room;
        gantry_buffer piece = piece_at(c, staging->at, staging->used);
        memcpy(address_of(piece), source, n);
        GT_TRY(c->table->copy(c->table->self, c->queue, GANTRY_COPY_TO_DEVICE, target, piece, n, c->err));
        ++*c->calls;
        staging->used += (n + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
        source += n;
        target.offset_bytes += n;
        bytes -= n;
    }
    return GANTRY_OK;
}

/* Piece after piece into alternate halves; each is taken out while the next one is on its way. */
static gantry_status download(const staged_copy *c, char *target, gantry_buffer source, size_t bytes)
{
    gt_staging *staging = c->staging;
    size_t before = 0;
    uint32_t half = 0;
    while (bytes || before) {
        size_t n = bytes < staging->half_bytes ? bytes : staging->half_bytes;
        if (n) {
            GT_TRY(c->table->copy(c->table->self, c->queue, GANTRY_COPY_TO_HOST, piece_at(c, half, 0), source,
                                  n, c->err));
            ++*c->calls;
            GT_TRY(mark_half(c, half));
        }
        if (before) {
            GT_TRY(await_half(c, half ^ 1));
            memcpy(target, address_of(piece_at(c, half ^ 1, 0)), before);
            target += before;
        }
        before = n;
        source.offset_bytes += n;
        bytes -= n;
        half ^= 1;
    }
    /* The queue has passed all that it was given. */
    staging->halves[0].busy = staging->halves[1].busy = false;
    staging->used = 0;
    return GANTRY_OK;
}

gantry_status gt_staging_copy(gantry_run *run, const gt_step *step, bool to_device, gantry_buffer target,
                              gantry_buffer source, size_t bytes, uint64_t *inout_calls, gantry_error *err)
{
    staged_copy c = {.run = run,
                     .staging = staging_of(run, step->domain, step->queue),
                     .table = table_of(run, step->domain),
                     .queue = gt_run_queue(run, step->domain, step->queue),
                     .calls = inout_calls,
                     .err = err};
    return to_device ? upload(&c, target, address_of(source), bytes)
                     : download(&c, address_of(target), source, bytes);
}
