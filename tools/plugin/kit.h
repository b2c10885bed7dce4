/* Inside `gantry plugin check`: the conformance kit, which drives a plugin through the tables of provider.h
 * with a host of its own, and compares what it computes with the CPU provider.
 *
 *     results.c  one line a rule           group.c    child processes, so that a crash is a failed rule
 *     elf.c      what the file says        host.c     the kit's own host table
 *     models.c   models of one node        onnx.c     the same as ONNX        cpu.c   their reference results
 *     subject.c  the opened plugin         drive.c    compile, reshape, run
 *     rules_*.c  the rules                         show.c     what a library brings
 *
 * Everything below `kit` runs in a child process, on one thread where it does not say otherwise; it may leave
 * memory behind when a rule has failed. */
#ifndef GT_TOOLS_KIT_H
#define GT_TOOLS_KIT_H

#include <gantry/gantry.h>
#include <gantry/provider.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

/* ---- results --------------------------------------------------------------------------------- */

typedef enum kit_state { KIT_PASS, KIT_FAIL, KIT_SKIP } kit_state;

typedef struct kit_result {
    char provider[64]; /* "" for rules of the library */
    char rule[64];
    kit_state state;
    bool refused; /* an operator that the provider does not take, with its reason: no line of its own */
    char text[1024];
} kit_result;

typedef struct kit_results {
    bool json;
    bool plain; /* no states and totals: it is shown, not checked */
    uint32_t count, capacity;
    kit_result *rows;
    uint32_t counts[3]; /* by state */
    uint32_t refused_count;
    char refused[256]; /* the first of them, for their common line */
} kit_results;

/* Prints it at once when it is text. */
void kit_results_add(kit_results *results, const kit_result *row);
/* The total, or the whole of it as JSON. */
void kit_results_end(kit_results *results, const char *path);

/* ---- the file, before anything of it is loaded ----------------------------------------------- */

/* The manifest alone: a line of it, or why there is none. */
bool kit_show_file(kit_results *results, const char *path);
/* Rules manifest, exports, constructors. false: it is no library, or none for this machine: nothing else can
 * be checked. */
bool kit_check_file(kit_results *results, const char *path);

/* ---- one child: a group of rules ------------------------------------------------------------- */

typedef struct kit kit;

/* check reports once at most; when it does not, the rule has passed, and what says so. */
typedef struct kit_rule {
    const char *name;
    void (*check)(kit *k);
    const char *what;
} kit_rule;

/* Begins the next rule; false: an earlier child did it, go on to the next. */
bool kit_rule_begin(kit *k, const char *name);
void kit_rule_end(kit *k, const char *what);
void kit_run_rules(kit *k, const kit_rule *rules, size_t count);
/* What is about to happen, for the words about a crash. */
GANTRY_PRINTF(2, 3) void kit_doing(kit *k, const char *format, ...);
/* The first report of a rule counts. fail: text says what was seen, what is demanded and what to do. */
GANTRY_PRINTF(2, 3) void kit_pass(kit *k, const char *format, ...);
GANTRY_PRINTF(2, 3) void kit_fail(kit *k, const char *format, ...);
GANTRY_PRINTF(2, 3) void kit_skip(kit *k, const char *format, ...);
/* A pass: the provider does not take the operator, and says why. */
GANTRY_PRINTF(2, 3) void kit_refused(kit *k, const char *format, ...);
bool kit_failed(const kit *k); /* this rule, so far */

typedef struct kit_group {
    const char *name;
    void (*run)(kit *k);
    bool once;   /* for the library; else for each of its providers */
    bool closed; /* opens the plugin itself */
    int seconds; /* for one rule */
} kit_group;

void kit_group_open(kit *k);
void kit_group_cycles(kit *k);
void kit_group_domain(kit *k);
void kit_group_judge(kit *k);
void kit_group_shapes(kit *k);
void kit_group_operators(kit *k);
void kit_group_programs(kit *k);
void kit_group_faults(kit *k);
void kit_group_session(kit *k);
void kit_group_versions(kit *k);
void kit_group_show(kit *k);

/* The parent's side: runs all groups, each in children of its own. */
typedef struct kit_job {
    const char *path, *config;
    double seconds; /* for one rule; 0: as the groups say */
    const char
        *only; /* names of groups with commas between them, or NULL: all. "open" is always among them */
    kit_results *results;
} kit_job;
void kit_check_plugin(const kit_job *job);
/* A line for each domain, provider, option and operator of its own. */
void kit_show_plugin(const kit_job *job);
/* Whether all of that list are groups; a message if not. */
bool kit_check_groups(const char *only);
/* The child's side: arguments as the parent gives them. */
int kit_child_main(int argc, char **argv);
#define KIT_CHILD "--kit-child"

/* ---- the host -------------------------------------------------------------------------------- */

typedef struct kit_model kit_model;
typedef struct kit_cpu kit_cpu;
typedef struct kit_packed_row kit_packed_row;
typedef struct kit_cache_row kit_cache_row;

/* Thread-safe. fail_at: the allocation of that number from now on gives NULL, once; 0: none. */
typedef struct kit_host {
    gantry_host table;
    const gantry_host *shown; /* what plugins are opened with: the table, or another release's */
    size_t plugin_bytes;      /* and the size of gantry_plugin in that release */
    kit_cpu *cpu;
    atomic_uint_least64_t allocations, live_blocks, live_bytes, mapped, logged;
    atomic_int_least64_t fail_at;
    atomic_bool constants_broken;
    pthread_mutex_t lock;
    char problem[256]; /* the first contract that a call of the plugin broke, under lock */
    kit_packed_row *packed;
    kit_cache_row *cache;
} kit_host;

void kit_host_init(kit_host *host, const char *config, kit_cpu *cpu);
void kit_host_free(kit_host *host);
void kit_host_fail_at(kit_host *host, int64_t number);
/* "" or what was broken; forgets it. */
void kit_host_take_problem(kit_host *host, char *out_text, size_t capacity);

/* The opaque types of provider.h on this side. Bytes of constants that were handed out are overwritten when
 * the call that got them is over. */
typedef struct kit_mapping {
    void *block, *shown;
    size_t bytes;
    uint32_t constant;
    struct kit_mapping *next;
} kit_mapping;
struct gantry_constants {
    const kit_model *model;
    kit_mapping *mappings; /* under the host's lock */
};
void kit_constants_end(gantry_constants *constants);

struct gantry_recorder {
    kit_host *host;
    const gantry_graph_view *graph;
    bool over; /* the call that it was handed to */
    uint32_t kernel_count, index_max;
    uint64_t digest; /* of kernels and fusions, with nodes by index */
};

/* ---- models of one node ---------------------------------------------------------------------- */

#define KIT_MAX_OPERANDS 8u
#define KIT_MAX_ATTRIBUTES 8u
#define KIT_MAX_DIMS 6u

/* dims -1: the size "n", which differs from run to run. */
typedef struct kit_value {
    char name[16];
    gantry_dtype dtype;
    uint32_t rank;
    int64_t dims[KIT_MAX_DIMS];
    bool present, constant, positive;
    const char *values; /* "1,2,3", or NULL: made up */
} kit_value;

/* A row of the table, as text: see models.c. */
typedef struct kit_row {
    const char *op;
    int32_t version;
    const char *inputs, *outputs, *attributes;
} kit_row;
extern const kit_row KIT_ROWS[];
extern const uint32_t KIT_ROW_COUNT;

/* Data of one tensor; dims are numbers. */
typedef struct kit_array {
    gantry_dtype dtype;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    void *data;
    size_t bytes;
} kit_array;

/* Not changed once made. n: its size, or -1 for one that comes with the run. */
struct kit_model {
    const kit_row *row;
    int64_t n;
    uint32_t operand_count, result_count;
    kit_value operands[KIT_MAX_OPERANDS], results[KIT_MAX_OPERANDS];
    kit_array constants[KIT_MAX_OPERANDS]; /* by operand; data NULL: it is none */
    bool has_constants, has_n;
    gantry_attribute attributes[KIT_MAX_ATTRIBUTES];
    int64_t ints[KIT_MAX_ATTRIBUTES][8];
    float floats[KIT_MAX_ATTRIBUTES][8];
    char texts[KIT_MAX_ATTRIBUTES][2][24];
    /* the view */
    gantry_value_view values[2 * KIT_MAX_OPERANDS];
    const gantry_value_view *value_list[2 * KIT_MAX_OPERANDS];
    int64_t dims[2 * KIT_MAX_OPERANDS][KIT_MAX_DIMS], typical[2 * KIT_MAX_OPERANDS][KIT_MAX_DIMS];
    const char *dim_names[2 * KIT_MAX_OPERANDS][KIT_MAX_DIMS];
    uint32_t node_inputs[KIT_MAX_OPERANDS], node_outputs[KIT_MAX_OPERANDS];
    uint32_t graph_inputs[KIT_MAX_OPERANDS], graph_outputs[KIT_MAX_OPERANDS];
    gantry_node_view node;
    const gantry_node_view *node_list[1];
    gantry_graph_view view;
};

#define KIT_TYPICAL_N 3

/* Inputs of one run and what the CPU makes of them, by operand and result. */
typedef struct kit_data {
    int64_t n;
    kit_array inputs[KIT_MAX_OPERANDS], expected[KIT_MAX_OPERANDS];
} kit_data;

/* false, and words in *err: the CPU cannot run it, or memory ran out. */
bool kit_model_make(const kit_row *row, int64_t n, kit_cpu *cpu, kit_model *out_model, gantry_error *err);
void kit_model_free(kit_model *model);
bool kit_data_make(const kit_model *model, int64_t n, uint32_t seed, kit_cpu *cpu, kit_data *out_data,
                   gantry_error *err);
void kit_data_free(kit_data *data);
void kit_array_free(kit_array *array);
/* The first element outside the tolerance of that precision, in words; true: there is none. */
bool kit_compare(const kit_array *expected, const kit_array *got, gantry_dtype precision,
                 double *inout_largest, char *out_text, size_t capacity);

/* ---- ONNX and the CPU ------------------------------------------------------------------------ */

typedef struct kit_bytes {
    unsigned char *data;
    size_t count, capacity;
    bool failed; /* out of memory */
} kit_bytes;

/* A model of that one node. inputs (by operand of the node): dims, and the data of those to be constants; an
 * input whose data is NULL becomes an input of the model. dims of -1 are "n". */
void kit_onnx_write(const gantry_graph_view *graph, uint32_t node_index, const kit_array *inputs,
                    kit_bytes *out_bytes);

/* Nodes like that one behind each other, each reading the one before as its first operand: the results are
 * the last node's and the first one's. */
void kit_onnx_write_chain(const gantry_graph_view *graph, uint32_t node_count, const kit_array *inputs,
                          kit_bytes *out_bytes);

gantry_status kit_cpu_create(kit_cpu **out_cpu, gantry_error *err);
void kit_cpu_destroy(kit_cpu **cpu);
gantry_runtime *kit_cpu_runtime(kit_cpu *cpu);
/* Runs that node on the CPU; out_arrays by output, to be freed. Thread-safe. */
gantry_status kit_cpu_run(kit_cpu *cpu, const gantry_graph_view *graph, uint32_t node_index,
                          const kit_array *inputs, kit_array *out_arrays, gantry_error *err);
/* The same in a session made of bytes. */
gantry_status kit_session_run(gantry_session *session, const kit_array *inputs, uint32_t input_count,
                              kit_array *out_arrays, gantry_error *err);
gantry_status kit_host_evaluate(const gantry_host *host, const gantry_graph_view *graph, uint32_t node_index,
                                const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err);

/* ---- the plugin under test ------------------------------------------------------------------- */

/* Tables are copied as far as the plugin states their size; what is beyond is NULL. */
typedef struct kit_subject {
    kit_host *host;
    bool open;
    gantry_plugin plugin;
    gantry_provider provider;
    gantry_provider_info provider_info;
    bool own_domain; /* else it computes in host memory */
    gantry_domain domain;
    gantry_domain_info domain_info;
} kit_subject;

/* What a child works on. */
struct kit {
    const char *path, *config;
    uint32_t provider; /* index */
    gantry_plugin_open_fn open;
    kit_cpu *cpu;
    kit_host host;
    kit_subject subject; /* open, but in groups that open it themselves */
    /* results */
    FILE *out;
    uint32_t first, next;
    char rule[64];
    atomic_bool reported, failed; /* rules may report from threads */
};

#define KIT_COPY_TABLE(target, source) kit_copy_table(&(target), sizeof(target), (source))
void kit_copy_table(void *target, size_t bytes, const void *source);
/* Loads the library. NULL, with the loader's words in out_text. */
gantry_plugin_open_fn kit_load(const char *path, char *out_text, size_t capacity);
gantry_status kit_subject_open(gantry_plugin_open_fn open, kit_host *host, uint32_t provider,
                               kit_subject *out_subject, gantry_error *err);
void kit_subject_close(kit_subject *subject);
/* NULL: available. */
const char *kit_subject_unavailable(const kit_subject *subject, uint32_t provider);
/* The provider's domain is another plugin's: its programs cannot be driven here. */
bool kit_subject_is_foreign(const kit_subject *subject);

/* Zeroed memory whose end is the end of what may be touched; stays until the process ends. NULL: there is
 * none. */
void *kit_at_the_edge(size_t bytes);
/* gantry_domain_info as release 1.0 had it. */
#define KIT_DOMAIN_INFO_1_0 offsetof(gantry_domain_info, queue_count)

/* Memory in the provider's domain. A queue of NULL is for host memory. */
gantry_status kit_memory_alloc(kit_subject *subject, size_t bytes, void **out_handle, gantry_error *err);
void kit_memory_free(kit_subject *subject, void *handle);
gantry_status kit_upload(kit_subject *subject, gantry_queue *queue, gantry_buffer target, const void *source,
                         size_t bytes, gantry_error *err);
gantry_status kit_download(kit_subject *subject, gantry_queue *queue, void *target, gantry_buffer source,
                           size_t bytes, gantry_error *err);
gantry_status kit_sync(kit_subject *subject, gantry_queue *queue, gantry_error *err);

/* ---- driving a program ----------------------------------------------------------------------- */

typedef struct kit_program {
    kit_subject *subject;
    const kit_model *model;
    gantry_constants constants;
    gantry_recorder recorder;
    gantry_format inputs[KIT_MAX_OPERANDS], outputs[KIT_MAX_OPERANDS]; /* agreed on */
    gantry_program *program;
} kit_program;

/* A program for one size. */
typedef struct kit_shaped {
    kit_program *program;
    const kit_data *data; /* its sizes */
    gantry_shaped *shaped;
    gantry_shaped_info info;
} kit_shaped;

#define KIT_MAX_EVENTS 64u
typedef struct kit_call {
    gantry_queue *queue;
    gantry_context *context;
    bool timed, stopped; /* with timing; with the stop flag set from the beginning */
    gantry_timing_event events[KIT_MAX_EVENTS];
    uint32_t event_count;
    uint64_t wall_ns;
    char problem[256]; /* a contract that the run broke */
} kit_call;

gantry_status kit_program_compile(kit_subject *subject, const kit_model *model, kit_program *out_program,
                                  gantry_error *err);
/* The same from a blob. */
gantry_status kit_program_load(kit_subject *subject, const kit_model *model, const void *data, size_t bytes,
                               kit_program *out_program, gantry_error *err);
void kit_program_destroy(kit_program *program);
gantry_status kit_shaped_make(kit_program *program, const kit_data *data, kit_shaped *out_shaped,
                              gantry_error *err);
void kit_shaped_destroy(kit_shaped *shaped);
gantry_status kit_call_open(kit_shaped *shaped, kit_call *out_call, gantry_error *err);
void kit_call_close(kit_shaped *shaped, kit_call *call);
/* Uploads, runs, downloads: got by result, to be freed. Buffers have guards on both sides. */
gantry_status kit_call_run(kit_shaped *shaped, kit_call *call, const kit_data *data, kit_array *out_got,
                           gantry_error *err);
/* What the program made of one size, from reshape to comparison; a failure or a broken contract fails the
 * rule. GANTRY_UNSUPPORTED: this size was refused, and properly. */
gantry_status kit_try_size(kit *k, kit_program *program, const kit_data *data, double *inout_largest);
/* Differences from what is expected, and contracts that the run broke, fail the rule. */
void kit_check_results(kit *k, const kit_model *model, const kit_data *data, const kit_call *call,
                       const kit_array *got, double *inout_largest);
/* All of it, once: compile to comparison. */
bool kit_try(kit *k, const kit_model *model, const kit_data *data, double *inout_largest);

/* A status that is not GANTRY_OK fails the rule. */
bool kit_good(kit *k, const kit_model *m, gantry_status status, const gantry_error *err, const char *call);
/* The models of a rule about programs; false and a skip when the provider takes none. */
#define KIT_MODEL_MAX 3u
bool kit_take_models(kit *k, kit_model **out_models, uint32_t *out_count);

/* rules_blobs.c: rules of the group "programs". */
void kit_check_blobs(kit *k);
void kit_check_damaged_blobs(kit *k);
void kit_check_blob_memory(kit *k);

/* The verdict of the provider on the model's node. */
gantry_status kit_judge(const kit_subject *subject, const kit_model *model, gantry_verdict *out_verdict);
/* The first rows that the provider takes, made; how many there are. prefer_constants: those with constants
 * first. */
uint32_t kit_supported(kit *k, bool prefer_constants, uint32_t capacity, kit_model **out_models);
void kit_models_free(uint32_t count, kit_model **models);
/* "GANTRY_RESOURCE (resource): words" */
const char *kit_error_text(gantry_status status, const gantry_error *err, char *out_text, size_t capacity);

#endif
