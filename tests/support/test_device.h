/* Drives a plugin's device through its tables: opens it in a small host, moves bytes, builds and runs a net.
 *
 * The host's evaluate is a handful of naive float32 loops, so that a device which computes with it needs no
 * provider of ours. One thread at a time. */
#ifndef TEST_DEVICE_H
#define TEST_DEVICE_H

#include "test_host.h"

typedef struct test_device {
    test_net *net;
    gantry_plugin plugin;
    const gantry_provider *provider; /* the first */
    const gantry_domain *domain;
    gantry_queue *queue;
    void *handles[64]; /* freed on close */
    uint32_t handle_count;
    void *workspace;
    size_t workspace_bytes;
} test_device;

/* NULL, with the reason in out_err, when the library cannot be opened. A plugin without an available provider
 * is opened with domain and queue NULL. */
test_device *test_device_open(const char *path, const char *config, gantry_error *out_err);
/* Returns the host blocks still alive, which must be 0. */
long test_device_close(test_device *device);

/* Device memory, freed on close. */
gantry_buffer test_device_alloc(test_device *device, size_t bytes);
/* Enqueue only: data must stay as it is until the queue is synchronised. */
gantry_status test_device_put(test_device *device, gantry_buffer target, const void *data, size_t bytes);
gantry_status test_device_get(test_device *device, void *data, gantry_buffer source, size_t bytes);
gantry_status test_device_sync(test_device *device);

/* compile (once), reshape, context_create for the net's shapes. */
gantry_status test_device_build(test_device *device);
/* Enqueues one run. timing may be NULL. */
gantry_status test_device_run(test_device *device, const gantry_buffer *inputs, const gantry_buffer *outputs,
                              gantry_timing_event *timing, uint32_t capacity, uint32_t *out_count);

#endif
