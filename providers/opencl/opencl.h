/* Inside the OpenCL provider: one device with memory, queues and events of its own, its errors, and the
 * kernels that were built for it. Written against gantry/provider.h only, to be read as an example of a
 * plugin; opencl_ops.h is what the files of the operators see. README.md says which file does what. */
#ifndef GANTRY_OPENCL_H
#define GANTRY_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <gantry/provider.h>
#include <pthread.h>

/* One source text built for the device. Kept until the plugin closes; a later program with the same text
 * shares it. */
typedef struct opencl_variant {
    char *source;
    const char *build_options; /* one of the device's two */
    cl_program program;
    struct opencl_variant *next;
} opencl_variant;

/* Memory that host and device share: the address that alloc gave, and what OpenCL knows it by. */
typedef struct opencl_pinned {
    void *address;
    cl_mem memory;
    struct opencl_pinned *next;
} opencl_pinned;

typedef struct opencl_site opencl_site;
typedef struct opencl_errors opencl_errors;

/* What estimates rest on. */
typedef struct opencl_speed {
    double launch_ns; /* of one kernel that does nothing */
    double bytes_per_ns, flops_per_ns;
    double to_device_ns, to_host_ns; /* of one small copy */
    double to_device_bytes_per_ns, to_host_bytes_per_ns;
    char source; /* 'm' measured when the plugin was opened, 'e' from the device's words */
} opencl_speed;

/* One device. What stands above `lock` is set when the plugin is opened and not changed after; thread-safe.
 */
typedef struct opencl_device {
    const gantry_host *host;
    char domain_name[32]; /* "opencl:0" */
    char unavailable[256];
    char device_name[128];
    char driver[128];
    char platform[128];
    char build_options[128], fast_build_options[192];
    uint32_t index;          /* over all platforms */
    bool runs_items_in_turn; /* a group's items one after the other, as a CPU does: local memory gains nothing
                              */
    cl_device_id id;
    cl_context context;
    cl_command_queue own_queue; /* for mapping pinned memory and for probes, under memory_lock */
    bool has_float64;
    cl_uint unit_count;
    size_t group_size_max;
    cl_ulong local_bytes, memory_bytes, allocation_bytes_max;
    opencl_speed speed;
    gantry_domain domain;
    gantry_provider provider;
    const gantry_domain *domain_list[1];
    const gantry_provider *provider_list[1];
    const char *unavailable_list[1];

    pthread_mutex_t lock;
    opencl_variant *variants;
    int keeps; /* the host keeps what it is given: 1, 0; -1: not asked yet; under lock */
    pthread_mutex_t memory_lock;
    opencl_pinned *pinned; /* under memory_lock, as the next two */
    opencl_site *sites;
    int32_t last_site;
    uint64_t live_bytes;     /* of device memory that alloc gave; atomic */
    uint64_t constant_bytes; /* of all programs; atomic */
    int lost;                /* atomic */
} opencl_device;

/* A kernel of a timed run whose times are read when the queue has passed it. */
typedef struct opencl_timed_kernel {
    cl_event event;
    uint32_t kernel_index;
    gantry_timing_event *target;
} opencl_timed_kernel;

/* What a wait may have to report: a queue's own errors, and those of queues whose events it waited for. round
 * tells what was written since from what an earlier failure left. */
#define OPENCL_ERROR_SOURCES 4
typedef struct opencl_source {
    opencl_errors *errors;
    uint32_t round;
} opencl_source;

struct gantry_queue {
    opencl_device *device;
    cl_command_queue commands;
    opencl_errors *errors;
    /* Whose kernels were enqueued, or awaited, since the last queue_sync; each is shared. */
    opencl_source sources[OPENCL_ERROR_SOURCES];
    uint32_t source_count;
    opencl_timed_kernel *timed;
    uint32_t timed_count, timed_capacity;
};

/* Takes over the event; false when there is no memory for it: the kernel is then not timed. */
bool opencl_time_kernel(gantry_queue *queue, cl_event event, uint32_t kernel_index,
                        gantry_timing_event *target);

/* ---- errors of kernels: site, index (two words), extent ---- */

#define OPENCL_ERROR_WORDS 4

/* A number for a launch of the node, which errors then name. 0 when out of memory: its errors name no node.
 */
int32_t opencl_site_add(opencl_device *device, const char *op, const char *node);
void opencl_site_drop(opencl_device *device, int32_t id);
gantry_status opencl_errors_open(opencl_device *device, opencl_errors **out_errors, gantry_error *err);
opencl_errors *opencl_errors_share(opencl_errors *errors);
void opencl_errors_release(opencl_errors *errors);
cl_mem opencl_errors_words(const opencl_errors *errors);
/* Adds the source to those that waits for the queue report. What finds no room is reported by its own queue
 * only. */
void opencl_queue_watch(gantry_queue *queue, opencl_source source);
void opencl_sources_drop(opencl_source *sources, uint32_t *inout_count);
/* Before a run: clears what was reported. */
cl_int opencl_errors_begin(opencl_errors *errors, cl_command_queue commands);
/* From now on. */
opencl_source opencl_errors_source(opencl_errors *errors);
cl_int opencl_errors_read(const opencl_errors *errors, cl_command_queue commands, cl_bool blocking,
                          int32_t *out_words);
/* OK when the words hold none, or one that was reported. */
gantry_status opencl_source_report(opencl_device *device, const opencl_source *source, const int32_t *words,
                                   gantry_error *err);

void opencl_domain_table(opencl_device *device);
void opencl_program_table(opencl_device *device);
void opencl_shape_table(opencl_device *device);
void opencl_run_table(opencl_device *device);
void opencl_options_table(opencl_device *device);
/* *inout_on stays as it is where the session does not set the option. *err: it is neither "on" nor "off". */
gantry_status opencl_option_switch(const opencl_device *device, const void *session_options, const char *key,
                                   bool *inout_on, gantry_error *err);
/* Whether the option "exclude" of a session names the operator. */
bool opencl_option_excludes(const opencl_device *device, const void *session_options, const char *op);
gantry_status opencl_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict);

/* How many variants a compile or a reshape asked for, and where they came from. */
typedef struct opencl_build_counts {
    uint32_t built, cached;
    uint64_t build_ns, cache_ns;
} opencl_build_counts;

/* Finds or builds the source, from the host's cache where it is there. The program belongs to the device. */
gantry_status opencl_variant_get(opencl_device *device, const char *source, bool fast,
                                 opencl_build_counts *inout_counts, cl_program *out_program,
                                 gantry_error *err);
void opencl_variants_free(opencl_device *device);
/* One "build" or "cache" phase for the report; none when nothing was. */
void opencl_record_builds(const opencl_device *device, gantry_recorder *recorder,
                          const opencl_build_counts *counts);

/* Fills device->speed, measured where that works. */
void opencl_speed_probe(opencl_device *device);
/* Measures the copies only; false when one failed. */
bool opencl_copies_measure(opencl_device *device, opencl_speed *out_speed);

/* Zeroed memory of the host's; NULL only when there is none left. */
void *opencl_alloc(const opencl_device *device, size_t count, size_t size);
void opencl_free(const opencl_device *device, void *memory);

GANTRY_PRINTF(4, 5)
void opencl_fail_fill(gantry_error *err, gantry_status status, gantry_stage stage, const char *format, ...);
static inline gantry_status opencl_failed(gantry_status status)
{
    return status;
}
/* Fills *err and gives status. A macro: no compiler looks through a variadic function, and callers then see
 * that a failure is never GANTRY_OK. */
#define opencl_fail(err, status, stage, ...)                                                                 \
    (opencl_fail_fill((err), (status), (stage), __VA_ARGS__), opencl_failed(status))
gantry_status opencl_out_of_memory(gantry_error *err);
/* OK, or an error that names the call and what OpenCL said. */
gantry_status opencl_check(cl_int result, const char *call, gantry_error *err);

#endif
