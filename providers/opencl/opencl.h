/* Inside the OpenCL provider: Add, MatMul and Relu in float32 on one OpenCL device, with memory, queues and
 * events of its own. Written against gantry/provider.h only, to be read as an example of a plugin.
 *
 *     opencl_plugin.c   finds the device, fills the tables      opencl_domain.c   memory, queues, copies,
 * events opencl_judge.c    what it can run                         opencl_program.c  compile, reshape, run
 *     opencl_kernels.c  the kernels' source */
#ifndef GANTRY_OPENCL_H
#define GANTRY_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <gantry/provider.h>
#include <pthread.h>

#define OPENCL_MAX_RANK 8 /* of operands of Add: one int8 vector holds the dims */

/* One device. Everything but `program` is set when the plugin is opened and not changed after; thread-safe.
 */
typedef struct opencl_device {
    const gantry_host *host;
    char domain_name[32]; /* "opencl:0" */
    char unavailable[256];
    char device_name[128];
    char driver[128];
    cl_device_id id;
    cl_context context;
    pthread_mutex_t lock;
    cl_program program; /* built by the first compile, under lock */
    gantry_domain domain;
    gantry_provider provider;
    const gantry_domain *domain_list[1];
    const gantry_provider *provider_list[1];
    const char *unavailable_list[1];
} opencl_device;

/* A kernel of a timed run whose times are read when the queue has passed it. */
typedef struct opencl_timed_kernel {
    cl_event event;
    uint32_t kernel_index;
    gantry_timing_event *target;
} opencl_timed_kernel;

struct gantry_queue {
    cl_command_queue commands;
    opencl_timed_kernel *timed;
    uint32_t timed_count, timed_capacity;
};

/* Takes over the event; false when there is no memory for it: the kernel is then not timed. */
bool opencl_time_kernel(gantry_queue *queue, cl_event event, uint32_t kernel_index,
                        gantry_timing_event *target);

/* The OpenCL source of all kernels. */
extern const char opencl_source[];

void opencl_domain_table(opencl_device *device);
void opencl_program_table(opencl_device *device);
gantry_status opencl_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict);

/* Shapes of one node's operands that the kernels can't take: fills *verdict and returns false. */
bool opencl_takes_shapes(const gantry_node_view *node, const char *tensor_a, gantry_shape a, gantry_shape b,
                         gantry_verdict *verdict);

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
/* OK, or an error that names the call and what OpenCL said. */
gantry_status opencl_check(cl_int result, const char *call, gantry_error *err);

#endif
