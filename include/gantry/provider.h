/* The provider ABI: what a plugin (.so) implements to compute parts of a graph, and what the host offers it.
 *
 * A plugin holds a manifest in an ELF section (GANTRY_MANIFEST), read from the file before it is loaded, and
 * exports one function, gantry_plugin_open. That function fills a gantry_plugin: the domains (where bytes
 * live) and the providers (what computes) that it brings. The life of a provider's objects:
 *
 * - judge: every unit of the graph, pure -> verdicts (supported + estimate, or refused + reason)
 * - compile: a partition the provider was given -> program (immutable, slow, once)
 * - reshape: the program for one set of shapes -> shaped program (immutable, shared by all runs)
 * - context_create -> context (one caller's scratch; one thread at a time)
 * - run: the context, on a queue -> enqueues work; results are ready when the queue is
 *
 * Rules: every struct starts with its size in bytes, 0 is refused, and fields are only appended, behind the
 * end of the older struct (its padding holds anything). Structs without a size never change, nor do
 * gantry_tensor, gantry_error and gantry_memory_class: arrays of them cross in both directions. A NULL entry
 * marked "optional" has the default named beside it. Functions return a gantry_status and fill *err on
 * failure; nothing is thrown across the boundary. A function that fills a struct of the host's writes no
 * further than the struct_bytes it finds there. Every object is freed by its creator. All pointers handed
 * to a call are valid during that call only, unless it says otherwise. This header includes only types.h and
 * the C standard library. This is ABI 1, a candidate: until the CUDA providers use it, it may still change.
 */
#ifndef GANTRY_PROVIDER_H
#define GANTRY_PROVIDER_H

#include "types.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_PROVIDER_ABI 1u

/* Whether a table that somebody else filled has an entry: its writer may have been built with an older
 * header. For entries below a line "appended" and for optional ones; type is the table's struct. */
#define GANTRY_HAS(type, table, entry)                                                                       \
    ((table)->struct_bytes >= offsetof(type, entry) + sizeof((table)->entry) && (table)->entry)

/* Writes status and words, cut to fit, to *err (NULL: nobody wants them) and returns status, for `return`. */
GANTRY_PRINTF(3, 4)
static inline gantry_status gantry_fail(gantry_error *err, gantry_status status, const char *format, ...)
{
    va_list args;
    if (!err || err->struct_bytes < sizeof *err)
        return status;
    err->code = status;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return status;
}

/* ---- manifest -------------------------------------------------------------------------------- */

#define GANTRY_MANIFEST_MAGIC "GANTRYPM"
#define GANTRY_MANIFEST_SECTION ".gantry_manifest"

/* Texts are NUL-terminated. cpu_features is a comma-separated list of /proc/cpuinfo flags that must be
 * present ("" for none). dependencies says in words what the library needs, for the user whose loader
 * complains. */
typedef struct gantry_manifest {
    char magic[8];
    uint32_t struct_bytes;
    uint32_t abi_min;
    uint32_t abi_max;
    char name[64];
    char version[32];
    char cpu_features[128];
    char dependencies[256];
} gantry_manifest;

#define GANTRY_MANIFEST(name, version, cpu_features, dependencies)                                           \
    __attribute__((used,                                                                                     \
                   section(GANTRY_MANIFEST_SECTION))) static const gantry_manifest gantry_manifest_ = {      \
        {'G', 'A', 'N', 'T', 'R', 'Y', 'P', 'M'},                                                            \
        sizeof(gantry_manifest),                                                                             \
        1u,                                                                                                  \
        GANTRY_PROVIDER_ABI,                                                                                 \
        name,                                                                                                \
        version,                                                                                             \
        cpu_features,                                                                                        \
        dependencies}

/* ---- the graph as a provider sees it --------------------------------------------------------- */

typedef enum gantry_attribute_kind {
    GANTRY_ATTR_FLOAT = 1,
    GANTRY_ATTR_INT = 2,
    GANTRY_ATTR_STRING = 3,
    GANTRY_ATTR_TENSOR = 4,
    GANTRY_ATTR_FLOATS = 6,
    GANTRY_ATTR_INTS = 7,
    GANTRY_ATTR_STRINGS = 8,
    GANTRY_ATTR_TENSORS = 9
} gantry_attribute_kind;

/* One attribute that is no graph. count is the number of elements (1 for the single kinds; for STRING use the
 * length field). A STRING is NUL-terminated and may hold NULs inside; length is its size in bytes. */
typedef struct gantry_attribute {
    size_t struct_bytes;
    const char *name;
    gantry_attribute_kind kind;
    uint32_t count;
    int64_t i;
    float f;
    const char *s;
    size_t length;
    const int64_t *ints;
    const float *floats;
    const char *const *strings;
    const gantry_tensor *tensors; /* TENSOR: one; host memory */
} gantry_attribute;

/* A dim that is not known before a run. */
#define GANTRY_DIM_UNKNOWN (-1)

enum {
    GANTRY_VALUE_CONSTANT = 1u << 0,   /* known at creation; constant_id is valid */
    GANTRY_VALUE_HOST_KNOWN = 1u << 1, /* its elements are known at reshape: host_values is not NULL there */
    GANTRY_VALUE_CAPTURE = 1u << 2,    /* comes from an outer graph */
    GANTRY_VALUE_BOUNDED =
        1u << 3 /* its size depends on data: dims at reshape are upper bounds, run reports the true ones */
};

/* rank is -1 when unknown. dims holds extents, GANTRY_DIM_UNKNOWN where symbolic; dim_names the symbol or
 * NULL; typical_dims what costs are estimated with (never negative). */
typedef struct gantry_value_view {
    size_t struct_bytes;
    uint32_t id; /* the same for a value in every view of one session */
    const char *name;
    gantry_value_kind kind;
    gantry_dtype dtype;
    int32_t rank;
    const int64_t *dims;
    const int64_t *typical_dims;
    const char *const *dim_names;
    uint32_t constant_id; /* GANTRY_NO_ID when the value is no constant */
    uint32_t flags;       /* GANTRY_VALUE_* */
} gantry_value_view;

struct gantry_graph_view;

typedef struct gantry_body_view {
    size_t struct_bytes;
    const char *name; /* the attribute's name: "body", "then_branch" ... */
    const struct gantry_graph_view *graph;
} gantry_body_view;

/* version: the opset version whose definition of op holds for this node (its "since version"), whatever the
 * model is stamped. inputs and outputs are indexes into the view's values, GANTRY_NO_ID for one left out.
 * composite is the original body of a node that stands for a recognised pattern, else NULL. */
typedef struct gantry_node_view {
    size_t struct_bytes;
    uint32_t id; /* the same for a node in every view of one session */
    const char *name;
    const char *op;
    const char *domain; /* "" for ai.onnx; "gantry" for composites */
    int32_t version;
    uint32_t input_count;
    const uint32_t *inputs;
    uint32_t output_count;
    const uint32_t *outputs;
    uint32_t attribute_count;
    const gantry_attribute
        *attributes; /* in arrays of this release's struct; step by attributes[0].struct_bytes */
    uint32_t body_count;
    const gantry_body_view *const *bodies;
    const struct gantry_graph_view *composite;
} gantry_node_view;

/* Nodes in an order in which they can run. inputs and outputs are value indexes: what the graph or partition
 * reads from outside (constants are not among them) and what somebody outside reads. */
typedef struct gantry_graph_view {
    size_t struct_bytes;
    uint32_t node_count;
    const gantry_node_view *const *nodes;
    uint32_t value_count;
    const gantry_value_view *const *values;
    uint32_t input_count;
    const uint32_t *inputs;
    uint32_t output_count;
    const uint32_t *outputs;
} gantry_graph_view;

/* The attribute of that name, or NULL. */
static inline const gantry_attribute *gantry_node_attribute(const gantry_node_view *node, const char *name)
{
    for (uint32_t k = 0; k < node->attribute_count; k++) {
        const gantry_attribute *a =
            (const gantry_attribute *)((const char *)node->attributes + k * node->attributes[0].struct_bytes);
        if (strcmp(a->name, name) == 0)
            return a;
    }
    return NULL;
}

static inline int64_t gantry_node_int(const gantry_node_view *node, const char *name, int64_t otherwise)
{
    const gantry_attribute *a = gantry_node_attribute(node, name);
    return a && a->kind == GANTRY_ATTR_INT ? a->i : otherwise;
}

static inline float gantry_node_float(const gantry_node_view *node, const char *name, float otherwise)
{
    const gantry_attribute *a = gantry_node_attribute(node, name);
    return a && a->kind == GANTRY_ATTR_FLOAT ? a->f : otherwise;
}

static inline const char *gantry_node_string(const gantry_node_view *node, const char *name,
                                             const char *otherwise)
{
    const gantry_attribute *a = gantry_node_attribute(node, name);
    return a && a->kind == GANTRY_ATTR_STRING ? a->s : otherwise;
}

/* The value of input k, or NULL when it is left out or past the end. */
static inline const gantry_value_view *gantry_node_input(const gantry_graph_view *graph,
                                                         const gantry_node_view *node, uint32_t k)
{
    return k < node->input_count && node->inputs[k] != GANTRY_NO_ID ? graph->values[node->inputs[k]] : NULL;
}

static inline const gantry_value_view *gantry_node_output(const gantry_graph_view *graph,
                                                          const gantry_node_view *node, uint32_t k)
{
    return k < node->output_count && node->outputs[k] != GANTRY_NO_ID ? graph->values[node->outputs[k]]
                                                                      : NULL;
}

/* Elements at typical_dims; 1 when not even the rank is known. */
static inline double gantry_value_elements(const gantry_value_view *value)
{
    double count = 1;
    for (int32_t d = 0; d < value->rank; d++)
        count *= (double)value->typical_dims[d];
    return count;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Why a unit was refused. Numbers are NAN where there are none. remedy is a short stable id ("pad_k",
 * "insert_cast"), "" for none. */
typedef struct gantry_refusal {
    gantry_refusal_code code;
    char operand[96]; /* the tensor or attribute */
    char actual[96];
    char required[96];
    char remedy[32];
    char detail[192];
    double actual_number;
    double limit_number;
} gantry_refusal;

/* supported = 1 with an estimate, or 0 with a refusal. estimate_ns is the time of the unit at typical_dims
 * (NAN: not known); what it rests on stands in estimate_source: 'e' estimated, 'm' measured, 'a' assumed.
 * executes_in is the type the arithmetic is done in (GANTRY_UNDEFINED: the model's own). A yes may be
 * conditional on a dim that is not known yet: it counts as yes, and reshape may still refuse. */
typedef struct gantry_verdict {
    size_t struct_bytes;
    int32_t supported;
    char estimate_source;
    double estimate_ns;
    gantry_dtype executes_in;
    gantry_refusal refusal;
    const void *session_options; /* set by the host: for host->option while judge runs; NULL: none */
} gantry_verdict;

/* Turns *verdict into a refusal without numbers, which may be set after it. Texts are cut to fit; NULL is "".
 * Returns what judge then does. */
static inline gantry_status gantry_refuse(gantry_verdict *verdict, gantry_refusal_code code,
                                          const char *operand, const char *actual, const char *required,
                                          const char *remedy)
{
    gantry_refusal *r = &verdict->refusal;
    verdict->supported = 0;
    r->code = code;
    snprintf(r->operand, sizeof r->operand, "%s", operand ? operand : "");
    snprintf(r->actual, sizeof r->actual, "%s", actual ? actual : "");
    snprintf(r->required, sizeof r->required, "%s", required ? required : "");
    snprintf(r->remedy, sizeof r->remedy, "%s", remedy ? remedy : "");
    r->actual_number = r->limit_number = __builtin_nan("");
    return GANTRY_OK;
}

/* ---- formats --------------------------------------------------------------------------------- */

/* How a value crosses an edge. tag 0 is the default: dense row-major in the value's dtype. Other tags are
 * private to a domain: two providers of one domain that name the same tag understand each other. */
typedef struct gantry_format {
    gantry_dtype dtype;
    uint32_t tag;
    uint32_t quantization; /* an id the provider chose for scale and zero point; 0 for none */
} gantry_format;

/* For one edge of a partition: the format the provider prefers, and whether it can also take or give the
 * default one. A required format that the other end does not name leads to a conversion step. */
typedef struct gantry_edge_format {
    gantry_format preferred;
    int32_t required;
} gantry_edge_format;

/* ---- records: what a provider tells the report ----------------------------------------------- */

typedef struct gantry_recorder gantry_recorder; /* opaque; valid during the call it was handed to */

/* One kernel of a program. node_ids are the ids of the node views it computes. name is the implementation
 * ("jit:avx512_core"), isa the instruction set; bytes and flops are what one execution moves and computes, -1
 * when not known. */
typedef struct gantry_kernel_record {
    size_t struct_bytes;
    uint32_t index; /* order inside the program; timing events name it */
    const char *op; /* "Conv+Relu" */
    const char *name;
    const char *isa;
    const char *layout;
    uint32_t node_count;
    const uint32_t *node_ids;
    gantry_dtype precision_in, precision_out, accumulate;
    double bytes, flops;
} gantry_kernel_record;

/* A record of one kernel that computes one node of graph, with the node's index, in the type of its first
 * output. What is known beyond that may be set in it. */
static inline gantry_kernel_record gantry_kernel_of_node(const gantry_graph_view *graph, uint32_t node_index,
                                                         const char *name, const char *isa)
{
    const gantry_node_view *node = graph->nodes[node_index];
    const gantry_value_view *y = gantry_node_output(graph, node, 0);
    gantry_kernel_record record;
    memset(&record, 0, sizeof record);
    record.struct_bytes = sizeof record;
    record.index = node_index;
    record.op = node->op;
    record.name = name;
    record.isa = isa;
    record.layout = "dense";
    record.node_count = 1;
    record.node_ids = &node->id;
    record.precision_in = record.precision_out = record.accumulate = y ? y->dtype : GANTRY_UNDEFINED;
    record.bytes = record.flops = -1;
    return record;
}

/* A fusion inside a provider: applied, or not because of a guard. */
typedef struct gantry_fusion_record {
    size_t struct_bytes;
    const char *rule;
    uint32_t node_count;
    const uint32_t *node_ids;
    int32_t applied;
    const char *guard; /* the guard that failed, "" when applied */
} gantry_fusion_record;

/* What a compile or reshape spent its time on, for the report: name is "build", "tune", "cache" or a word of
 * the provider's own, detail whatever helps ("12 kernels, 9 from the cache"). Phases lie one after the other.
 */
typedef struct gantry_phase_record {
    size_t struct_bytes;
    const char *name;
    const char *detail;
    uint64_t begin_ns; /* of host->now_ns */
    uint64_t duration_ns;
} gantry_phase_record;

/* ---- the host -------------------------------------------------------------------------------- */

/* A constant in a provider's own form. data is what the provider made: memory of host->alloc, a device
 * handle, whatever it likes but NULL, and no two have the same; bytes is what it holds, for the memory
 * report. release(self, data) frees it; it is called once, by the host, when the last user is gone, at the
 * latest before the plugin's close. */
typedef struct gantry_packed {
    size_t struct_bytes;
    void *data;
    size_t bytes;
    void (*release)(void *self, void *data);
    void *self;
} gantry_packed;

typedef enum gantry_option_origin {
    GANTRY_OPTION_DEFAULT = 0, /* the provider's own default */
    GANTRY_OPTION_SESSION = 1, /* gantry_options_set */
    GANTRY_OPTION_CONFIG = 2   /* the config text the plugin was loaded with; only the plugin knows these */
} gantry_option_origin;

/* One option that a provider takes: "PROVIDER.key" in a session's options. */
typedef struct gantry_option_info {
    size_t struct_bytes;
    const char *key; /* without "PROVIDER." */
    const char *value;
    gantry_option_origin origin;
    const char *description; /* one line: meaning, unit, choices */
} gantry_option_info;

typedef struct gantry_constants gantry_constants; /* opaque: the constants of one session */
typedef struct gantry_host gantry_host;

typedef void (*gantry_parallel_fn)(void *arg, int64_t begin, int64_t end, int thread);

/* What the host offers. Entries are never NULL at the ABI the plugin was opened with. self is passed back as
 * first argument. All entries are thread-safe. The table outlives the plugin. */
struct gantry_host {
    size_t struct_bytes;
    uint32_t abi;
    void *self;
    /* The text given with the plugin when it was loaded ("" when none); valid as long as the plugin. */
    const char *config;
    void (*log)(const gantry_host *host, int level, const char *text);       /* level: 0 error .. 3 debug */
    void *(*alloc)(const gantry_host *host, size_t bytes, size_t alignment); /* NULL when out of memory */
    void (*free)(const gantry_host *host, void *memory);
    uint64_t (*now_ns)(const gantry_host *host);
    /* Calls fn for chunks that cover 0..count-1 on at most threads threads and waits. */
    void (*parallel_for)(const gantry_host *host, int threads, int64_t count, int64_t chunk,
                         gantry_parallel_fn fn, void *arg);
    /* The bytes of a constant, whatever their origin: dense row-major, host memory, at any address (raw_data
     * lies anywhere in a model file). Valid until unmap or the end of the call that handed out constants.
     * Fails with GANTRY_DATA when the file behind it changed. */
    gantry_status (*constant_map)(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                  const void **out_data, size_t *out_bytes, gantry_error *err);
    void (*constant_unmap)(const gantry_host *host, gantry_constants *constants, uint32_t constant_id);
    void (*record_kernel)(gantry_recorder *recorder, const gantry_kernel_record *record);
    void (*record_fusion)(gantry_recorder *recorder, const gantry_fusion_record *record);
    /* Places intervals in one arena: for each k, an offset (a multiple of 64) such that buffers whose [first,
     * last] overlap do not share bytes. Writes the total to *out_total. */
    gantry_status (*plan_memory)(const gantry_host *host, uint32_t count, const size_t *bytes,
                                 const uint32_t *first, const uint32_t *last, size_t *out_offsets,
                                 size_t *out_total, gantry_error *err);
    /* Computes one node with the CPU's kernels on host memory: inputs[k] for each input (dtype 0 for one left
     * out); outputs point to buffers of the right size. Slow: for folding, fake devices and checks. */
    gantry_status (*evaluate)(const gantry_host *host, const gantry_graph_view *graph, uint32_t node_index,
                              const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err);
    /* The value of a session option "PROVIDER.key" while compile or judge runs, or NULL. */
    const char *(*option)(const gantry_host *host, const void *session_options, const char *key);

    /* ---- appended: ask GANTRY_HAS(gantry_host, host, entry) before the first use ---- */

    /* Copies bytes of a constant from offset on to target. Fails as constant_map does, and with
     * GANTRY_INVALID_ARGUMENT past the end. */
    gantry_status (*constant_read)(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                   size_t offset, size_t bytes, void *target, gantry_error *err);
    /* Packed constants that the sessions of one runtime share. form is a number of the provider's choice that
     * says everything about the form but the constant's bytes (layout, precision, device); the host adds the
     * constant's content and the plugin. get fills *out_packed and counts one user more, or returns
     * GANTRY_DATA: not there. put hands a new one over and gives the one to use, which is another thread's
     * when that came first (the given one is then released at once); what it refuses stays the caller's. Each
     * get and put is followed by a release, when the program that uses it goes. */
    gantry_status (*packed_get)(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                uint64_t form, gantry_packed *out_packed);
    gantry_status (*packed_put)(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                uint64_t form, const gantry_packed *packed, gantry_packed *out_packed,
                                gantry_error *err);
    void (*packed_release)(const gantry_host *host, const gantry_packed *packed);
    /* Files that outlive the process: generated kernels, tuning results. key names all that the bytes depend
     * on (device, driver, build options, source); the host adds the ABI level and the plugin's name and
     * version, publishes atomically and checks what it reads. get returns GANTRY_DATA when there is none, it
     * is damaged or the runtime has no cache folder, with the reason in *err; memory is freed with
     * host->free. put may be ignored for the same reason: it is no failure. */
    gantry_status (*cache_get)(const gantry_host *host, const char *key, void **out_data, size_t *out_bytes,
                               gantry_error *err);
    void (*cache_put)(const gantry_host *host, const char *key, const void *data, size_t bytes);
    /* For the report; during compile and reshape. */
    void (*record_phase)(gantry_recorder *recorder, const gantry_phase_record *record);
};

/* ---- domains --------------------------------------------------------------------------------- */

typedef struct gantry_domain_info {
    size_t struct_bytes;
    char name[64]; /* "cuda:0" */
    char device[128];
    size_t alignment;
    int32_t separate_memory;                             /* 1: the host cannot read its addresses */
    int32_t has_clock;                                   /* 1: event_elapsed works */
    double to_device_ns, to_host_ns;                     /* latency of one copy */
    double to_device_bytes_per_ns, to_host_bytes_per_ns; /* bandwidth, 0 when not known */
    char cost_source;                                    /* 'm' measured, 'a' assumed, 'e' estimated */
    /* appended */
    uint64_t queue_count; /* queues that work at the same time; 2: copies run beside kernels. 0 means 1 */
} gantry_domain_info;

/* PINNED memory is the host's: alloc gives its address, host and device may both use it, and copies from and
 * to it are the fast ones. */
typedef enum gantry_memory_kind { GANTRY_MEMORY_DEVICE = 0, GANTRY_MEMORY_PINNED = 1 } gantry_memory_kind;
typedef enum gantry_copy_kind {
    GANTRY_COPY_TO_DEVICE = 0,
    GANTRY_COPY_TO_HOST = 1,
    GANTRY_COPY_INSIDE = 2
} gantry_copy_kind;

typedef struct gantry_queue gantry_queue; /* opaque, the plugin's */
typedef struct gantry_event gantry_event; /* opaque, the plugin's */
typedef struct gantry_domain gantry_domain;

/* Memory, order and copies of one device. self is passed to each entry. Entries are thread-safe except that
 * one queue is used by one thread at a time. */
struct gantry_domain {
    size_t struct_bytes;
    void *self;
    gantry_status (*describe)(void *self, gantry_domain_info *out_info);
    gantry_status (*alloc)(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                           gantry_error *err);
    void (*free)(void *self, void *handle, gantry_memory_kind kind);
    /* optional: not known */
    gantry_status (*memory_info)(void *self, uint64_t *out_free_bytes, uint64_t *out_total_bytes);
    /* optional: user handles are refused. Turns a handle of the device's API into one that alloc could have
     * returned. */
    gantry_status (*import)(void *self, void *native, size_t bytes, void **out_handle, gantry_error *err);
    gantry_status (*queue_open)(void *self, gantry_queue **out_queue, gantry_error *err);
    void (*queue_close)(void *self, gantry_queue *queue);
    /* Blocks until all that was enqueued is done; reports what failed on the way. */
    gantry_status (*queue_sync)(void *self, gantry_queue *queue, gantry_error *err);
    void *(*queue_native)(void *self, gantry_queue *queue); /* optional: NULL */
    /* Enqueues a copy of bytes. TO_DEVICE: source is host memory; TO_HOST: target is; INSIDE: both are the
     * device's. Host memory stays valid and unchanged until the queue passed the copy. */
    gantry_status (*copy)(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                          gantry_buffer source, size_t bytes, gantry_error *err);
    /* All six optional together: the executor then waits with queue_sync. event_sync reports as that does. */
    gantry_status (*event_create)(void *self, gantry_event **out_event, gantry_error *err);
    void (*event_destroy)(void *self, gantry_event *event);
    gantry_status (*event_record)(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err);
    gantry_status (*event_wait)(void *self, gantry_queue *queue, gantry_event *event,
                                gantry_error *err);                                  /* the queue waits */
    gantry_status (*event_sync)(void *self, gantry_event *event, gantry_error *err); /* the host waits */
    gantry_status (*event_elapsed)(void *self, gantry_event *from, gantry_event *to, double *out_ns);
    /* optional: never lost. 1 when the device is gone and every call will fail. */
    int (*lost)(void *self);

    /* ---- appended, all optional ---- */

    /* Measures latency and bandwidth of copies and writes them, with cost_source 'm', to *inout_info, which
     * describe filled. Takes 50 ms at most. NULL: what describe says is all there is. */
    gantry_status (*probe)(void *self, gantry_domain_info *inout_info, gantry_error *err);
    /* Both together: whether copy_from_peer can copy from that domain without the host (1 or 0), and that
     * copy, enqueued on a queue of this domain: target is this domain's, source the other's; its source is
     * ready and stays unchanged until the queue passed the copy. NULL: bytes go through host memory. */
    int (*peer)(void *self, const char *other_name, const gantry_domain *other);
    gantry_status (*copy_from_peer)(void *self, gantry_queue *queue, const gantry_domain *other,
                                    gantry_buffer target, gantry_buffer source, size_t bytes,
                                    gantry_error *err);
};

/* ---- providers ------------------------------------------------------------------------------- */

typedef struct gantry_program gantry_program; /* opaque, the plugin's */
typedef struct gantry_shaped gantry_shaped;   /* opaque, the plugin's */
typedef struct gantry_context gantry_context; /* opaque, the plugin's */

typedef enum gantry_concurrency {
    GANTRY_CONCURRENCY_FREE = 0,        /* contexts run at the same time */
    GANTRY_CONCURRENCY_PER_CONTEXT = 1, /* the same, but contexts are made one at a time */
    GANTRY_CONCURRENCY_SERIAL = 2 /* one call of compile, reshape, context_create, run or convert at a time in
                                     the whole provider; the host locks and reports the wait */
} gantry_concurrency;

typedef struct gantry_provider_info {
    size_t struct_bytes;
    char name[64]; /* "cuda-int8" */
    char version[32];
    char domain[64];        /* the domain it computes in; "host" for none of its own */
    gantry_dtype precision; /* the type it computes in; GANTRY_UNDEFINED: as the model says */
    char fingerprint[128];  /* device, driver, library versions: what a compiled program depends on */
    gantry_concurrency concurrency;
    char libraries[256]; /* "oneDNN 3.2.0 (gomp); OpenBLAS 0.3.21" */
} gantry_provider_info;

typedef struct gantry_compile_args {
    size_t struct_bytes;
    const gantry_graph_view *graph;      /* the partition; valid as long as the program */
    gantry_constants *constants;         /* valid during the call */
    const void *session_options;         /* for host->option; valid during the call */
    int threads;                         /* the session's thread count; kernels are made for it */
    int exact;                           /* no result may differ from the operator's definition */
    const gantry_format *input_formats;  /* one for each input of graph */
    const gantry_format *output_formats; /* one for each output of graph */
    gantry_recorder *recorder;
} gantry_compile_args;

/* Bytes that a provider holds, by class: "weights", "workspace", "code", "cache" or a word of its own. */
typedef struct gantry_memory_class {
    size_t struct_bytes;
    char name[32];
    char domain[64]; /* where they lie; "" is the provider's own domain */
    uint64_t bytes;
} gantry_memory_class;

/* Shapes at reshape are concrete: extents, or upper bounds where the value is GANTRY_VALUE_BOUNDED. */
typedef struct gantry_shape {
    uint32_t rank;
    const int64_t *dims;
} gantry_shape;

static inline int64_t gantry_shape_elements(const gantry_shape *shape)
{
    int64_t count = 1;
    for (uint32_t d = 0; d < shape->rank; d++)
        count *= shape->dims[d];
    return count;
}

/* All of it is valid during the call only. */
typedef struct gantry_reshape_args {
    size_t struct_bytes;
    const gantry_shape *shapes; /* one for each value of the program's graph, inner ones too */
    const void *const
        *host_values; /* one for each value: its elements, dense, or NULL when not known before the run */
    gantry_constants *constants;
    gantry_recorder *recorder;
} gantry_reshape_args;

/* What the executor may do with one output. view_of_input >= 0: the output is that input from
 * view_offset_bytes on, nothing is written. overwrite_input >= 0: the output may share the buffer of that
 * input. */
typedef struct gantry_output_plan {
    int32_t view_of_input;
    size_t view_offset_bytes;
    int32_t overwrite_input;
} gantry_output_plan;

/* Filled by reshape; the arrays belong to the shaped program. output_plans may be NULL: every output has a
 * buffer of its own. */
typedef struct gantry_shaped_info {
    size_t struct_bytes;
    size_t workspace_bytes;
    const gantry_output_plan *output_plans;
    uint32_t refused_count;     /* only with GANTRY_UNSUPPORTED */
    uint32_t refused_nodes[16]; /* node ids */
    gantry_refusal refusal;
} gantry_shaped_info;

/* One timing stamp: kernel_index of the record, begin and duration in the domain's clock. */
typedef struct gantry_timing_event {
    uint32_t kernel_index;
    uint64_t begin_ns;
    uint64_t duration_ns;
} gantry_timing_event;

/* What a run gets. inputs and outputs are in the order of the partition's graph view, in the formats agreed
 * on. bindings changes whenever any of the buffers did since the last run of this context; equal means:
 * pointers as before. */
typedef struct gantry_run_args {
    size_t struct_bytes;
    gantry_queue *queue; /* NULL in the domain "host": run returns when done */
    const gantry_buffer *inputs;
    const gantry_buffer *outputs;
    gantry_buffer workspace; /* 64-byte aligned */
    uint64_t bindings;
    int threads; /* 1 or the session's count */
    int64_t *const
        *true_dims; /* for each output: NULL, or where run writes the true extents of a bounded output */
    const volatile int *stop; /* asks for an early GANTRY_CANCELLED: see gantry_stop_asked */
    /* NULL, or room for timing_capacity events. run sets *out_timing_count; the events themselves may be
     * written until the queue has passed the run, so this array stays valid that long. */
    gantry_timing_event *timing;
    uint32_t timing_capacity;
    uint32_t *out_timing_count;
} gantry_run_args;

/* Whether a run has to return GANTRY_CANCELLED soon: other threads set the flag at any time. NULL is fine. */
static inline int gantry_stop_asked(const volatile int *stop)
{
    return stop && __atomic_load_n(stop, __ATOMIC_RELAXED);
}

/* Where a value of a partition lies during a run: in buffer input or output of the run, or, when both are
 * GANTRY_NO_ID, in the workspace. A provider's own notes: it does not cross the boundary. */
typedef struct gantry_place {
    uint32_t input, output;
    size_t offset_bytes; /* in the workspace */
    size_t bytes;
} gantry_place;

/* The place of a value of that size. An inner one is put behind the *inout_workspace_bytes that others have:
 * gantry_host.plan_memory would let those share bytes that do not live at the same time. */
static inline gantry_place gantry_place_value(const gantry_graph_view *graph, uint32_t value, size_t bytes,
                                              size_t *inout_workspace_bytes)
{
    gantry_place place = {GANTRY_NO_ID, GANTRY_NO_ID, 0, bytes};
    for (uint32_t k = 0; k < graph->input_count; k++)
        if (graph->inputs[k] == value)
            place.input = k;
    for (uint32_t k = 0; k < graph->output_count; k++)
        if (graph->outputs[k] == value)
            place.output = k;
    if (place.input == GANTRY_NO_ID && place.output == GANTRY_NO_ID) {
        place.offset_bytes = *inout_workspace_bytes;
        *inout_workspace_bytes += (bytes + 63) / 64 * 64;
    }
    return place;
}

static inline gantry_buffer gantry_place_buffer(const gantry_place *place, const gantry_run_args *args)
{
    gantry_buffer buffer = args->workspace;
    if (place->output != GANTRY_NO_ID)
        return args->outputs[place->output];
    if (place->input != GANTRY_NO_ID)
        return args->inputs[place->input];
    buffer.offset_bytes += place->offset_bytes;
    return buffer;
}

/* In host memory: the address. */
static inline void *gantry_place_address(const gantry_place *place, const gantry_run_args *args)
{
    gantry_buffer buffer = gantry_place_buffer(place, args);
    return (char *)buffer.handle + buffer.offset_bytes;
}

/* One event more, while the host has room for it; *inout_count of them are written. */
static inline void gantry_timing_add(const gantry_run_args *args, uint32_t *inout_count,
                                     uint32_t kernel_index, uint64_t begin_ns, uint64_t end_ns)
{
    gantry_timing_event event = {kernel_index, begin_ns, end_ns - begin_ns};
    if (args->timing && *inout_count < args->timing_capacity)
        args->timing[(*inout_count)++] = event;
    if (args->out_timing_count)
        *args->out_timing_count = *inout_count;
}

typedef struct gantry_provider {
    size_t struct_bytes;
    void *self;
    gantry_status (*describe)(void *self, gantry_provider_info *out_info);
    /* Whether the provider can run nodes[0..count-1] of graph as one unit, what it would take, or why not.
     * Pure: rules and the device record only; no device work. May be called again, from several threads. The
     * verdict comes zeroed but for its size and session_options; leaving supported = 0 without a code counts
     * as no_kernel. */
    gantry_status (*judge)(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict);
    /* optional: default formats everywhere. One entry for each input and output of the partition, preset to
     * the default. */
    gantry_status (*formats)(void *self, const gantry_graph_view *partition, gantry_edge_format *inputs,
                             gantry_edge_format *outputs);
    gantry_status (*compile)(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err);
    void (*program_destroy)(void *self, gantry_program *program);
    /* May refuse a shape: returns GANTRY_UNSUPPORTED with out_info->refused_nodes and out_info->refusal set;
     * that shape then gets a placement without those nodes. */
    gantry_status (*reshape)(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err);
    void (*shaped_destroy)(void *self, gantry_shaped *shaped);
    gantry_status (*context_create)(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err);
    void (*context_destroy)(void *self, gantry_context *context);
    /* May be called again, with the same context and queue, before the queue has passed the run before: what
     * that one still needs is its queue's, not the context's. */
    gantry_status (*run)(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err);
    /* All three optional together: needed by a provider that names other formats than the default. Converts
     * one value of that shape between the default format and one of its own, in its domain. */
    size_t (*format_bytes)(void *self, const gantry_format *format, gantry_dtype dtype,
                           const gantry_shape *shape);
    gantry_status (*convert)(void *self, gantry_queue *queue, const gantry_format *from,
                             const gantry_format *to, gantry_dtype dtype, const gantry_shape *shape,
                             gantry_buffer source, gantry_buffer target, gantry_error *err);
    double (*convert_estimate_ns)(void *self, const gantry_format *from, const gantry_format *to,
                                  gantry_dtype dtype, const gantry_shape *shape);
    /* optional: not known. Bytes the program and its shaped programs hold now. */
    uint64_t (*memory)(void *self, const gantry_program *program);
    /* optional: nothing to drop. Gives back caches that can be rebuilt. */
    void (*trim)(void *self);
    /* optional: cannot. See gantry_host.evaluate. */
    gantry_status (*evaluate)(void *self, const gantry_graph_view *graph, uint32_t node_index,
                              const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err);

    /* ---- appended, all optional ---- */

    /* The options the provider takes, with their defaults as values: another "PROVIDER.key" in a session's
     * options is then refused, and the report lists all with their values and origins. NULL: any key is
     * taken. The array is one of this header's struct, stepped by options[0].struct_bytes; it lives until
     * close. */
    const gantry_option_info *options;
    uint32_t option_count;
    /* All that the provider holds now, in all its programs and beside them, without the constants it gave to
     * packed_put. Fills at most capacity, stepping by out_classes[0].struct_bytes, and returns how many there
     * are. From any thread, while others work. */
    uint32_t (*memory_classes)(void *self, gantry_memory_class *out_classes, uint32_t capacity);
    /* Both together; NULL: each process compiles. A compiled program as bytes that outlive the process, kept
     * in the runtime's cache folder when it has one. To the concurrency class both are a compile. save is
     * called after a compile and gives memory of host->alloc, which the host frees; GANTRY_UNSUPPORTED: this
     * program is not kept. The bytes may be others each time. load is compile with the bytes, at any address,
     * beside its arguments. It makes the same program: the same results to the last bit, the same records of
     * kernels and fusions. GANTRY_DATA: these are not the bytes of this program, which are cut, say. After
     * any failure of load, compile is called. The host's key has the plugin's name, version and config, the
     * ABI level and the host's version, the provider's name, version and fingerprint, its options, threads,
     * exact, and all that the graph view shows, with the bytes of constants and the formats of edges, but the
     * ids of nodes, values and constants: bytes name these by index. */
    gantry_status (*blob_save)(void *self, const gantry_program *program, void **out_data, size_t *out_bytes,
                               gantry_error *err);
    gantry_status (*blob_load)(void *self, const gantry_compile_args *args, const void *data, size_t bytes,
                               gantry_program **out_program, gantry_error *err);
} gantry_provider;

/* Entries of a provider that keeps nothing in these objects. Its program is the graph view of compile, cast.
 */
static inline void gantry_program_keep(void *self, gantry_program *program)
{
    (void)self, (void)program;
}

/* Its runs need no scratch: the context is the shaped program, cast. */
static inline gantry_status gantry_context_of_shaped(void *self, gantry_shaped *shaped,
                                                     gantry_context **out_context, gantry_error *err)
{
    (void)self, (void)err;
    *out_context = (gantry_context *)shaped;
    return GANTRY_OK;
}

static inline void gantry_context_keep(void *self, gantry_context *context)
{
    (void)self, (void)context;
}

/* ---- operators of a plugin's own ------------------------------------------------------------- */

/* An extent while shapes are inferred: a number, or an expression over sizes that come with the run.
 * GANTRY_NO_ID is an extent that the rule does not know: what the model declares is used then. */
typedef uint32_t gantry_dim;

typedef struct gantry_dim_builder gantry_dim_builder; /* opaque; valid during the call it was handed to */

/* Makes extents from others. An argument that is GANTRY_NO_ID gives GANTRY_NO_ID. */
typedef struct gantry_dim_table {
    size_t struct_bytes;
    gantry_dim (*number)(gantry_dim_builder *builder, int64_t value);
    gantry_dim (*add)(gantry_dim_builder *builder, gantry_dim a, gantry_dim b);
    gantry_dim (*subtract)(gantry_dim_builder *builder, gantry_dim a, gantry_dim b);
    gantry_dim (*multiply)(gantry_dim_builder *builder, gantry_dim a, gantry_dim b);
    gantry_dim (*floor_divide)(gantry_dim_builder *builder, gantry_dim a, gantry_dim b);
    gantry_dim (*minimum)(gantry_dim_builder *builder, gantry_dim a, gantry_dim b);
    gantry_dim (*maximum)(gantry_dim_builder *builder, gantry_dim a, gantry_dim b);
    /* 1 and the number when the extent is one already, else 0. */
    int (*is_number)(gantry_dim_builder *builder, gantry_dim a, int64_t *out_value);
    /* Element `index` of an integer input of shape_inputs as an extent; GANTRY_NO_ID when there is none, or
     * the input is large. One that only running can tell ends the part of the graph that is planned at once.
     */
    gantry_dim (*element)(gantry_dim_builder *builder, uint32_t input, uint32_t index);
    /* Extent `axis` of an output whose size comes with the data: at most bound, and true_dims of the run says
     * how much. */
    gantry_dim (*at_most)(gantry_dim_builder *builder, uint32_t output, uint32_t axis, gantry_dim bound);
} gantry_dim_table;

/* What a shape rule gets and fills in. Arrays of inputs have input_count entries; dtype GANTRY_UNDEFINED: the
 * input is left out; rank -1: not known. The outputs come preset to dtype GANTRY_UNDEFINED and rank -1 (which
 * a rule may leave), with room for GANTRY_MAX_RANK extents each. attributes as in a gantry_node_view. */
typedef struct gantry_infer_args {
    size_t struct_bytes;
    const char *node_name;
    uint32_t attribute_count;
    const gantry_attribute *attributes;
    uint32_t input_count;
    const gantry_dtype *input_dtypes;
    const int32_t *input_ranks;
    const gantry_dim *const *input_dims;
    uint32_t output_count;
    gantry_dtype *output_dtypes;
    int32_t *output_ranks;
    gantry_dim *const *output_dims;
    gantry_dim_builder *builder;
    const gantry_dim_table *dims;
} gantry_infer_args;

/* An operator that the plugin brings: a node of `domain` and `name` in a model that imports that domain at
 * since_version or later is then legal, and offered to all providers. Several rows of one name are its
 * versions. domain is not "", "ai.onnx", "ai.onnx.ml" or "gantry", and Gantry has no operator of that name
 * there itself; two plugins cannot bring the same. input_max and output_max: UINT32_MAX for any number. */
typedef struct gantry_operator {
    size_t struct_bytes;
    const char *domain;
    const char *name;
    int32_t since_version;
    uint32_t input_min, input_max;
    uint32_t output_min, output_max;
    /* Bit k: elements of input k may become extents (dims->element): it is read before a run where it can be.
     */
    uint32_t shape_inputs;
    void *self;
    /* Types and shapes of the outputs from those of the inputs; pure, called once a node when a session is
     * created, from several threads. A failure is the model's: GANTRY_MODEL_TYPE or GANTRY_MODEL_SHAPE with
     * the words in *err. */
    gantry_status (*infer)(void *self, const gantry_infer_args *args, gantry_error *err);
} gantry_operator;

/* ---- plugin ---------------------------------------------------------------------------------- */

/* Filled by gantry_plugin_open. The arrays and tables live until close. A provider whose device is absent is
 * listed with an "unavailable" text instead of being left out: providers[k] with unavailable[k] not NULL is
 * shown and never called beyond describe. */
typedef struct gantry_plugin {
    size_t struct_bytes;
    uint32_t abi; /* the level the plugin works at: at most what the host passed */
    void *self;
    const char *name;
    const char *version;
    uint32_t domain_count;
    const gantry_domain *const *domains;
    uint32_t provider_count;
    const gantry_provider *const *providers;
    const char *const *unavailable; /* NULL: all are available */
    void (*close)(void *self);      /* after the last object is gone; not called when the process ends */

    /* ---- appended ---- */

    uint32_t operator_count;
    const gantry_operator *const *operators; /* NULL: none */
} gantry_plugin;

/* *out_plugin = *plugin, as far as the host's struct goes; GANTRY_OK, for `return`. */
static inline gantry_status gantry_plugin_fill(gantry_plugin *out_plugin, const gantry_plugin *plugin)
{
    size_t bytes = out_plugin->struct_bytes < sizeof *plugin ? out_plugin->struct_bytes : sizeof *plugin;
    memcpy(out_plugin, plugin, bytes);
    out_plugin->struct_bytes = bytes;
    return GANTRY_OK;
}

/* The only exported symbol of a plugin. abi is the highest level of the host. On failure nothing stays
 * behind. May be called again, with another config, for a second instance. */
typedef gantry_status (*gantry_plugin_open_fn)(const gantry_host *host, uint32_t abi,
                                               gantry_plugin *out_plugin, gantry_error *err);
#define GANTRY_PLUGIN_ENTRY "gantry_plugin_open"

#if defined(__GNUC__)
#define GANTRY_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define GANTRY_PLUGIN_EXPORT
#endif

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

#ifdef __cplusplus
}
#endif
#endif
