/* Inside the fake device: a plugin for tests that computes with the host's evaluate and otherwise behaves
 * like a real device: memory of its own that the host cannot read, queues that work late, limits, faults,
 * failures.
 *
 *     fake_config.c   what the JSON text asks for       fake_memory.c    two mappings of one file
 *     fake_queue.c    order, events, time               fake_copy.c      copies, pinned memory, peers
 *     fake_judge.c    verdicts                          fake_log.c       what it did, in order
 *     fake_compile.c, fake_reshape.c, fake_run.c        the life of a program
 *     fake_blob.c     programs as bytes
 *     fake_constants.c their weights                    fake_options.c   options, phases
 *     fake_class.c    what the concurrency class promises
 *     fake_numerics.c precision and faults              fake_device.c    the tables and gantry_plugin_open */
#ifndef FAKE_H
#define FAKE_H

#include <gantry/provider.h>

#include <pthread.h>
#include <stdatomic.h>

#define FAKE_MAX_RULES 64
#define FAKE_MAX_DEVICES 8
#define FAKE_MAX_TYPES 16

/* ---- configuration --------------------------------------------------------------------------- */

/* An operator or a pattern, and the element types it is taken in. */
typedef struct fake_rule {
    char name[96];
    uint32_t type_count;
    gantry_dtype types[FAKE_MAX_TYPES];
} fake_rule;

typedef struct fake_limit {
    char op[64];
    uint32_t input;
    int32_t axis; /* negative: from the end */
    int64_t max;
} fake_limit;

typedef struct fake_host_input {
    char op[64];
    uint32_t input;
} fake_host_input;

typedef struct fake_work {
    char op[64];
    double us;
} fake_work;

typedef enum fake_fault_kind {
    FAKE_FAULT_NONE,
    FAKE_FAULT_ACCUMULATE_FLOAT16, /* RMSNormalization: the squares are summed in float16 */
    FAKE_FAULT_ZERO,               /* all elements are 0 */
    FAKE_FAULT_NAN,                /* the first element is not a number */
    FAKE_FAULT_OFFSET              /* every element is 1 too large */
} fake_fault_kind;

typedef struct fake_fault {
    char op[64];
    fake_fault_kind kind;
} fake_fault;

/* Calls that can be told to fail: the Nth call of that kind does; 0 never. */
typedef enum fake_call {
    FAKE_CALL_COMPILE,
    FAKE_CALL_RESHAPE,
    FAKE_CALL_CONTEXT,
    FAKE_CALL_RUN,
    FAKE_CALL_RUN_LATE, /* the run returns well and fails on the queue: sync reports it */
    FAKE_CALL_ALLOC,
    FAKE_CALL_COPY,
    FAKE_CALL_SYNC,
    FAKE_CALL_LOST, /* at the Nth run the device is lost for good */
    FAKE_CALL_QUEUE,
    FAKE_CALL_EVENT,
    FAKE_CALL_RECORD,
    FAKE_CALL_WAIT,  /* of a queue for an event */
    FAKE_CALL_AWAIT, /* of the host for an event */
    FAKE_CALL_JUDGE,
    FAKE_CALL_DESCRIBE, /* of providers */
    FAKE_CALL_SAVE,     /* of a program as bytes */
    FAKE_CALL_LOAD,
    FAKE_CALL_STALE, /* a load that says the bytes do not fit */
    FAKE_CALL_COUNT
} fake_call;

/* One entry of "devices". Not changed after opening. */
typedef struct fake_config {
    char name[64];
    char domain[64]; /* "fake:ID" with a device_id, else the name */
    char unavailable[256];
    char quirk[32]; /* how the tables are spoilt, for tests of the loader */
    fake_rule ops[FAKE_MAX_RULES];
    fake_rule fused[FAKE_MAX_RULES];
    fake_limit limits[FAKE_MAX_RULES];
    fake_host_input host_inputs[FAKE_MAX_RULES];
    fake_work work[FAKE_MAX_RULES];
    fake_fault faults[FAKE_MAX_RULES];
    uint32_t op_count, fused_count, limit_count, host_input_count, work_count, fault_count;
    gantry_dtype compute; /* UNDEFINED, FLOAT16 or INT8 */
    gantry_concurrency concurrency;
    double transfer_gbps, latency_us, copy_us; /* copy_us < 0: not given */
    double pageable_gbps;                      /* where the host's end is not pinned; 0: the same */
    double assumed_gbps, assumed_latency_us;   /* what it says of itself; < 0: the truth */
    bool pinned, peers;
    uint32_t queues;
    double enqueue_us, reshape_us;
    bool timing, late, views, blobs;
    bool fuse, share, cache; /* options, which a session may set too */
    char exclude[128];
    uint64_t memory_bytes;
    uint64_t fail[FAKE_CALL_COUNT];
} fake_config;

typedef struct fake_configs {
    uint32_t count;
    fake_config devices[FAKE_MAX_DEVICES];
    char counters_file[1024];
    char log_file[1024];
    bool fail_open;
} fake_configs;

gantry_status fake_configs_parse(const char *text, fake_configs *out_configs, gantry_error *err);
/* The rule of that name, or NULL. */
const fake_rule *fake_find_rule(const fake_rule *rules, uint32_t count, const char *name);
bool fake_rule_takes(const fake_rule *rule, gantry_dtype dtype);
double fake_work_us(const fake_config *config, const char *op); /* < 0: not given */

/* ---- a domain: memory, queues, counters ------------------------------------------------------ */

/* What the device itself counted, as 64-bit numbers in a file that anybody may read (counters_file): eight
 * bytes "GFAKECNT", the number of domains, then these records. */
typedef struct fake_counters {
    char domain[64];
    atomic_uint_least64_t copies;       /* between host and device, in both directions */
    atomic_uint_least64_t copied_bytes; /* of these */
    atomic_uint_least64_t inside_copies;
    atomic_uint_least64_t inside_bytes;
    atomic_uint_least64_t runs;    /* programs */
    atomic_uint_least64_t kernels; /* nodes computed */
    atomic_uint_least64_t syncs;
    atomic_uint_least64_t allocations;
    atomic_uint_least64_t live_bytes;     /* of device memory */
    atomic_uint_least64_t uploaded_bytes; /* weights, at compile: no copies */
    atomic_uint_least64_t compiles;
    atomic_uint_least64_t reshapes;
    atomic_uint_least64_t peer_copies; /* into this device, from another one */
    atomic_uint_least64_t peer_bytes;
    atomic_uint_least64_t pinned_copies; /* of copies, those whose host end is pinned */
    atomic_uint_least64_t pinned_bytes;
} fake_counters;

typedef struct fake_block {
    size_t offset, bytes;
    uint32_t users; /* one more for each import */
} fake_block;

/* Thread-safe. The host gets addresses in `shown`, which nobody may read; `own` is the same memory. */
typedef struct fake_memory {
    const gantry_host *host;
    int fd;
    char *shown, *own;
    size_t bytes;
    fake_block *blocks; /* by offset */
    uint32_t block_count, block_capacity;
    pthread_mutex_t lock;
} fake_memory;

gantry_status fake_memory_open(fake_memory *memory, const gantry_host *host, size_t bytes, gantry_error *err);
void fake_memory_close(fake_memory *memory);
/* NULL when there is no room. */
void *fake_memory_alloc(fake_memory *memory, size_t bytes);
size_t fake_memory_free(fake_memory *memory, void *shown); /* returns the bytes given back */
/* One user more of the block that begins at shown and has that many bytes; false: there is none. */
bool fake_memory_share(fake_memory *memory, void *shown, size_t bytes);
/* The device's own address of buffer, or NULL unless all bytes lie in one living block. */
void *fake_memory_own(fake_memory *memory, gantry_buffer buffer, size_t bytes);
uint64_t fake_memory_live(fake_memory *memory);

/* Calls counted so far, and the numbers of those that fail. */
typedef struct fake_script {
    const uint64_t *fail;
    atomic_uint_least64_t calls[FAKE_CALL_COUNT];
} fake_script;

#define FAKE_MAX_PINNED 256

typedef struct fake_pinned {
    char *address;
    size_t bytes;
} fake_pinned;

/* Thread-safe. fd -1: nobody reads it. */
typedef struct fake_log {
    int fd;
    pthread_mutex_t lock;
} fake_log;

typedef struct fake_domain {
    const gantry_host *host;
    fake_log *log;
    atomic_uint queue_count;   /* opened so far */
    const fake_config *config; /* of the first device in it */
    fake_memory memory;
    fake_counters *counters;
    fake_counters own_counters; /* when no file was asked for */
    fake_script script;
    atomic_int lost;
    pthread_mutex_t pinned_lock;
    fake_pinned pinned[FAKE_MAX_PINNED]; /* under pinned_lock */
    uint32_t pinned_count;
    gantry_domain table;
} fake_domain;

/* Counts a call; fails with a text when it is the one that shall, or when the device is lost. */
gantry_status fake_call_begin(fake_domain *domain, fake_script *script, fake_call call, gantry_error *err);
/* Fills domain->table. */
void fake_domain_table(fake_domain *domain);
gantry_status fake_domain_alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                                gantry_error *err);
void fake_domain_free(void *self, void *handle, gantry_memory_kind kind);
gantry_status fake_domain_copy(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                               gantry_buffer source, size_t bytes, gantry_error *err);
gantry_status fake_domain_import(void *self, void *native, size_t bytes, void **out_handle,
                                 gantry_error *err);
gantry_status fake_domain_probe(void *self, gantry_domain_info *inout_info, gantry_error *err);
int fake_domain_peer(void *self, const char *other_name, const gantry_domain *other);
gantry_status fake_copy_from_peer(void *self, gantry_queue *queue, const gantry_domain *other,
                                  gantry_buffer target, gantry_buffer source, size_t bytes,
                                  gantry_error *err);
gantry_status fake_log_open(fake_log *log, const char *path, gantry_error *err);
void fake_log_close(fake_log *log);
/* One line: the domain, "queue N" or, on another thread than a queue's, "host", and what begins or ends
 * there. The order of lines is that in which it happened. */
GANTRY_PRINTF(2, 3) void fake_note(fake_domain *domain, const char *format, ...);
/* Of the queue whose thread calls, from 0 in the order in which the domain's were opened; -1: of none. */
int fake_queue_number(void);
/* How long a copy takes. */
double fake_copy_ns(const fake_config *config, size_t bytes, bool pinned);
void fake_sleep_until(const fake_domain *domain, uint64_t end_ns);

/* Work for a queue: called on the queue's thread. */
typedef gantry_status (*fake_work_fn)(void *arg, gantry_error *err);
/* Enqueues fn(arg); arg_bytes of *arg are copied. Nothing is allocated once the queue was as full before. */
gantry_status fake_queue_push(gantry_queue *queue, fake_work_fn fn, const void *arg, size_t arg_bytes,
                              gantry_error *err);

struct fake_bodies;

/* ---- a provider ------------------------------------------------------------------------------ */

typedef enum fake_option_key {
    FAKE_OPTION_FUSE,
    FAKE_OPTION_SHARE,
    FAKE_OPTION_CACHE,
    FAKE_OPTION_EXCLUDE,
    FAKE_OPTION_COUNT
} fake_option_key;

typedef struct fake_provider {
    fake_config config;
    fake_domain *domain;
    const gantry_host *host;
    fake_script script;
    atomic_int inside; /* calls that must not meet */
    atomic_uint_least64_t held_bytes;
    gantry_option_info options[FAKE_OPTION_COUNT];
    gantry_provider table;
} fake_provider;

/* fake_options.c. Values are the session's, else the config's. */
void fake_options_table(fake_provider *provider);
const char *fake_option(const fake_provider *provider, const void *session_options, fake_option_key key);
bool fake_option_is_on(const fake_provider *provider, const void *session_options, fake_option_key key);
bool fake_excludes(const fake_provider *provider, const void *session_options, const char *op);

/* What compile spends its time on, for the report. */
typedef struct fake_phase {
    const gantry_host *host;
    gantry_recorder *recorder;
    const char *name;
    uint64_t begin_ns;
} fake_phase;

fake_phase fake_phase_begin(const fake_provider *provider, gantry_recorder *recorder, const char *name);
GANTRY_PRINTF(2, 3) void fake_phase_end(const fake_phase *phase, const char *format, ...);

gantry_status fake_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                         gantry_verdict *out_verdict);
/* True when the node breaks a limit, and *verdict says which. shapes_of_values is by value index; NULL: what
 * the view knows, and a dim that is not known breaks nothing. */
bool fake_breaks_limit(const fake_config *config, const gantry_graph_view *graph,
                       const gantry_node_view *node, const gantry_shape *shapes_of_values,
                       gantry_verdict *verdict);
bool fake_reads_on_host(const fake_config *config, const gantry_node_view *node, uint32_t input);
/* What the provider executes a node in; UNDEFINED: as the model says. */
gantry_dtype fake_executes_in(const fake_config *config, const gantry_graph_view *graph,
                              const gantry_node_view *node);
/* "" domain: the name itself, else "domain.op". */
void fake_op_name(const gantry_node_view *node, char *out_name, size_t capacity);
void fake_programs_table(fake_provider *provider);

/* Computes one node on readable memory: the host's kernels, then this device's precision and faults. */
gantry_status fake_compute(const fake_provider *provider, const gantry_graph_view *graph, uint32_t node_index,
                           const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err);
/* fake_control.c: If and Loop taken whole. Whether the bodies' nodes would be taken one by one, with sizes
 * that the model says. */
bool fake_takes_bodies(const fake_config *config, const gantry_graph_view *graph,
                       const gantry_node_view *node, gantry_verdict *verdict);
bool fake_judge_node(const fake_config *config, const gantry_graph_view *graph, const gantry_node_view *node,
                     gantry_verdict *verdict);
/* How many values of the graph its bodies capture, and which: value indexes, body after body. */
uint32_t fake_count_captures(const gantry_graph_view *graph, const gantry_node_view *node);
uint32_t fake_capture(const gantry_graph_view *graph, const gantry_node_view *node, uint32_t k);
/* Interprets the bodies. captures are in the order of fake_capture. */
gantry_status fake_compute_control(const fake_provider *provider, const gantry_node_view *node,
                                   struct fake_bodies *bodies, const gantry_tensor *inputs,
                                   const gantry_tensor *outputs, const gantry_tensor *captures,
                                   gantry_error *err);
float fake_from_half(uint16_t half);
uint16_t fake_to_half(float value);
uint32_t fake_dtype_bits(gantry_dtype dtype);
const char *fake_dtype_text(gantry_dtype dtype);

GANTRY_PRINTF(4, 5)
gantry_status fake_fail(gantry_error *err, gantry_status code, gantry_stage stage, const char *format, ...);

static inline gantry_status fake_out_of_memory(gantry_error *err, gantry_stage stage)
{
    (void)fake_fail(err, GANTRY_RESOURCE, stage, "fake device: out of memory");
    return GANTRY_RESOURCE;
}

/* Zeroed memory of the host's allocator, which host->free takes back; NULL when out of memory. */
static inline void *fake_zeroed(const gantry_host *host, size_t count, size_t size)
{
    size_t bytes = (count ? count : 1) * size;
    void *memory = count > SIZE_MAX / size ? NULL : host->alloc(host, bytes, 16);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

#endif
