/* Providers and devices that compute nothing sensible, but always the same: the bytes of an output are a hash
 * of the bytes of the inputs, whoever computes them. So two executions agree only when every byte went where
 * it should.
 *
 *     stub_compute     what a node makes of its inputs
 *     stub_domain      a device whose memory the host can't take for its own, and whose queue is late
 *     stub_order       who may touch which bytes when
 *     stub_provider    random verdicts, formats, views, workspaces and compile failures */
#ifndef GT_TESTS_VERIFY_STUB_H
#define GT_TESTS_VERIFY_STUB_H

#include "random_graph.h"
#include "stub_order.h"

#include "core/session.h"

/* ---- stub_compute.c -------------------------------------------------------------------------- */

/* Dense and on the host; data is malloc'ed, or not owned. */
typedef struct stub_tensor {
    gantry_dtype dtype;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    uint8_t *data;
    bool owned;
} stub_tensor;

size_t stub_tensor_bytes(const stub_tensor *tensor);
void stub_tensor_free(stub_tensor *tensor);

/* What an input of a random model is fed, without data: an open extent "nK" is extents[K]. */
stub_tensor stub_feed(const gt_value *value, const int64_t *extents);
/* Random data of its own. */
void stub_feed_fill(stub_tensor *feed, random_source *random);

/* The dtypes of outputs are set; their extents follow from the inputs; data is allocated. False: the inputs
 * do not fit the operator. */
bool stub_compute(const char *op, uint32_t input_count, const stub_tensor *inputs, uint32_t output_count,
                  stub_tensor *outputs);

/* The whole graph in its order. feeds are the inputs; captures of a body come from `outer`, by value id of
 * the parent. results get the outputs. */
bool stub_evaluate(const gt_graph *graph, const stub_tensor *feeds, const stub_tensor *outer,
                   stub_tensor *results);

/* ---- stub_domain.c --------------------------------------------------------------------------- */

typedef struct stub_domain {
    gantry_domain table;
    gt_domain_entry entry;
    random_source random;
    uint32_t index, pinned_percent; /* of the wishes for pinned memory that are granted */
    uint32_t peers;                 /* a bit for each domain that it can copy from */
    /* Copies that were made, by kind: with the host, from peers, inside. */
    uint64_t copies[3], bytes[3];
    bool broken;       /* some access was outside of its block */
    stub_order *order; /* of all devices */
    uint32_t alive;
} stub_domain;

void stub_domain_init(stub_domain *domain, uint32_t index, stub_order *order, random_source *random);

typedef void (*stub_work_fn)(void *arg);
/* Does the work some time before the next sync, in order; arg is freed after it. queue NULL: at once. */
void stub_enqueue(gantry_queue *queue, stub_work_fn fn, void *arg);

/* Work that is enqueued next, on that queue (NULL: the host's): its begin, and bytes that it touches. */
void stub_work_begin(stub_order *order, gantry_queue *queue);
void stub_work_touch(stub_order *order, gantry_queue *queue, stub_domain *domain, gantry_buffer buffer,
                     size_t bytes, bool writes, const char *what);

/* The bytes of a buffer: of a device when domain is not NULL. NULL when they are not all inside. */
uint8_t *stub_bytes(stub_domain *domain, gantry_buffer buffer, size_t bytes);

/* ---- stub_provider.c ------------------------------------------------------------------------- */

typedef struct stub_provider {
    gantry_provider table;
    gt_provider_entry entry;
    stub_domain *domain; /* NULL: the host */
    stub_order *order;
    const gt_model *model;
    uint64_t seed;
    uint32_t yes_percent, compile_fails_percent, refuse_percent, format_percent, view_percent;
    double scale_ns;
    char failure[200]; /* what went wrong in a run, "" for nothing */
    uint32_t alive;    /* programs, shaped programs and contexts */
} stub_provider;

void stub_provider_init(stub_provider *provider, uint32_t index, stub_domain *domain, stub_order *order,
                        random_source *random);

#endif
