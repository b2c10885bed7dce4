/* The session API: load an ONNX model, place it over providers, run it, and ask where each node runs, why,
 * and at what cost.
 *
 * - gantry_runtime: plugins and devices of a process
 * - gantry_session: one model, placed and compiled; any thread
 * - gantry_run: one caller's bindings and memory
 * - gantry_report: a snapshot of what was decided and counted
 *
 * Every function that can fail returns a gantry_status and fills *err (see GANTRY_ERROR_INIT), which may be
 * NULL. Outs are set to zero first. Destroy functions take the address of the pointer, accept NULL and NULL
 * pointers, and set it to NULL. The library never prints, aborts, exits, forks or changes the environment. A
 * process that forks must not use Gantry in the child when the parent has run a session (OpenMP does not
 * survive a fork). */
#ifndef GANTRY_GANTRY_H
#define GANTRY_GANTRY_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_VERSION_MAJOR 0
#define GANTRY_VERSION_MINOR 1
#define GANTRY_VERSION_PATCH 0

typedef struct gantry_runtime gantry_runtime; /* thread-safe */
typedef struct gantry_options gantry_options; /* one thread at a time; copied by what takes it */
typedef struct gantry_session gantry_session; /* thread-safe */
typedef struct gantry_run gantry_run;         /* one thread at a time; make one per thread and reuse it */
typedef struct gantry_report gantry_report;   /* immutable; thread-safe */

GANTRY_API const char *gantry_version(void);                             /* "0.1.0" */
GANTRY_API const char *gantry_status_text(gantry_status status);         /* "input shape" */
GANTRY_API const char *gantry_stage_text(gantry_stage stage);            /* "run" */
GANTRY_API const char *gantry_refusal_text(gantry_refusal_code code);    /* "no_kernel" */
GANTRY_API const char *gantry_refusal_meaning(gantry_refusal_code code); /* one sentence */
GANTRY_API const char *gantry_dtype_text(gantry_dtype dtype);            /* "float32", "bfloat16" ... */
GANTRY_API uint32_t gantry_dtype_bits(gantry_dtype dtype); /* bits an element; 0 for STRING and UNDEFINED */
GANTRY_API size_t gantry_dtype_bytes(gantry_dtype dtype,
                                     uint64_t count); /* bytes of count elements, sub-byte types packed */

/* ---- runtime --------------------------------------------------------------------------------- */

/* Where memory comes from. resize(self, NULL, 0, n) allocates, resize(self, p, old, 0) frees, otherwise
 * resizes; returns NULL when out of memory. Alignment is at least 16. Must be thread-safe and outlive the
 * runtime. */
typedef struct gantry_allocator {
    size_t struct_bytes;
    void *self;
    void *(*resize)(void *self, void *memory, size_t old_bytes, size_t new_bytes);
} gantry_allocator;

/* Creates a runtime that knows the provider "cpu". allocator NULL: malloc. */
GANTRY_API gantry_status gantry_runtime_create(const gantry_allocator *allocator,
                                               gantry_runtime **out_runtime, gantry_error *err);

/* Refused with GANTRY_INVALID_ARGUMENT, and *runtime kept, while a session of it lives. */
GANTRY_API gantry_status gantry_runtime_destroy(gantry_runtime **runtime, gantry_error *err);

/* clang-format off */
/* Sets what holds for all of the runtime; unknown keys and bad values are refused, NULL takes a value back. Keys:
 *
 *   provider_path   folders where libraries of providers are looked for by name, colon-separated; not set: those of
 *                   the environment variable GANTRY_PROVIDER_PATH
 *   cache           folder of files that outlive the process, such as compiled kernels; made when it is not there
 *                   (its parent is), "": none; not set: that of the environment variable GANTRY_CACHE
 *
 * The environment is read when a value is needed, and never in a program that runs with raised rights. */
/* clang-format on */
GANTRY_API gantry_status gantry_runtime_set(gantry_runtime *runtime, const char *key, const char *value,
                                            gantry_error *err);

/* Loads a provider library and opens it with the text config (NULL: ""). path is a file, or, without '/' and
 * ".so", a name: libgantry_NAME.so ('-' of the name is '_') is then looked for in the folders of
 * provider_path, and last where Gantry installs plugins (gantry/ beside libgantry). A library that is
 * missing, has a missing dependency, does not fit this ABI or is no library gives an error with the loader's
 * own words (or all files that were tried), and a provider row "unavailable" in every later report, named as
 * the library's manifest says, else after the file (libgantry_NAME.so is NAME). A library may be loaded
 * several times, with configs that give its providers and domains other names. */
GANTRY_API gantry_status gantry_runtime_load_provider(gantry_runtime *runtime, const char *path,
                                                      const char *config, gantry_error *err);

/* Closes the library that brought the provider `name`, with all its providers and domains; their rows then
 * say "unloaded". Refused with GANTRY_INVALID_ARGUMENT while a session uses one of them, while memory of
 * gantry_memory_alloc lies in one of its domains, or another library computes there. Its code stays in the
 * process; it can be loaded again. */
GANTRY_API gantry_status gantry_runtime_unload_provider(gantry_runtime *runtime, const char *name,
                                                        gantry_error *err);

/* Providers known, in the order they came. *out_available is 0 for one that cannot be used, and detail says
 * why. name and detail live as long as the runtime; they change when the library is unloaded or loaded again.
 */
GANTRY_API uint32_t gantry_runtime_provider_count(const gantry_runtime *runtime);
GANTRY_API gantry_status gantry_runtime_provider(const gantry_runtime *runtime, uint32_t index,
                                                 const char **out_name, int *out_available,
                                                 const char **out_detail);

/* Asks all providers to give back what they keep only to be faster and can make again (primitives, kernels
 * that no program uses). Thread-safe; runs go on beside it. */
GANTRY_API void gantry_runtime_trim(gantry_runtime *runtime);

/* Calls to the allocator since the runtime was created: what a steady-state run does not add to. */
GANTRY_API uint64_t gantry_runtime_allocation_count(const gantry_runtime *runtime);

/* ---- memory of a domain ---------------------------------------------------------------------- */

/* Memory that stays on a device, for inputs and outputs named in the option bind.TENSOR. domain is a name
 * such as "cuda:0", or "host". Free it with the same runtime and domain, when no run has it bound any more.
 */
GANTRY_API gantry_status gantry_memory_alloc(gantry_runtime *runtime, const char *domain, size_t bytes,
                                             gantry_buffer *out_buffer, gantry_error *err);
GANTRY_API void gantry_memory_free(gantry_runtime *runtime, const char *domain, gantry_buffer *buffer);
/* Makes a buffer of what the device's own API calls memory (a cl_mem, a device pointer), for at least bytes
 * bytes: freed with gantry_memory_free, which does not free what the caller made. GANTRY_UNSUPPORTED where
 * the domain takes none, which the host is: bind its addresses as they are. */
GANTRY_API gantry_status gantry_memory_import(gantry_runtime *runtime, const char *domain, void *native,
                                              size_t bytes, gantry_buffer *out_buffer, gantry_error *err);
/* Copies bytes and waits. The handle of a buffer of "host" is a plain address. From device to device it goes
 * straight where the target's device can, else through the host. */
GANTRY_API gantry_status gantry_memory_copy(gantry_runtime *runtime, const char *target_domain,
                                            gantry_buffer target, const char *source_domain,
                                            gantry_buffer source, size_t bytes, gantry_error *err);

/* ---- options --------------------------------------------------------------------------------- */

/* clang-format off */
/* Keys and values are text; unknown keys and bad values are refused where they are set. The keys, with defaults:
 *
 *   threads=0             worker threads of the session; 0: the CPUs this process may use
 *   providers=cpu         names in priority order, comma-separated; a name below the model's precision is
 *                         consent to it
 *   plan=cost             cost: a partition that gains less than its boundaries cost is given up; priority:
 *                         the first provider that can
 *   strict=off            on: a provider that cannot be created, or two extents for one named dim, is an error
 *   precision=any         model: no provider below the model's precision
 *   exact=off             on: no result may differ from the operator's definition
 *   rewrites=on           off: the graph is run as it is (bind-time shape arithmetic stays)
 *   rewrites.NAME=on      one rewrite by name
 *   fold=on               constant folding; fold_limit_bytes=16777216 caps one result
 *   pin.NODE=PROVIDER     a node, or all nodes of a body ("loop1.body"), on one provider
 *   dim.NAME=lo..opt..hi  range of a symbolic dim; NAME is the symbol, or INPUT[axis]
 *   dim.NAME=N            that dim is N, and the model one of static size there
 *   shape.INPUT=1,3,?,224 the shape of an input; ? leaves an extent as it is
 *   bind.TENSOR=DOMAIN    graph inputs and outputs that the caller keeps in a device domain
 *   base=DIR              folder of external data for a model from memory
 *   weights=copy          mapped: constants may be read from the model file during runs
 *   plan_cache=64         plans kept, least recently used first out
 *   memory_limit=0        bytes that the session may hold, in all domains: constants, what providers keep
 *                         (packed constants, programs), and of all its runs values, outputs, workspaces; those of
 *                         runs are checked before any are taken; 0: no limit
 *   staging_limit=67108864  bytes of pinned host memory that the runs of the session may hold together, where a
 *                         device domain offers it: values on their way to and from devices lie there, and copies
 *                         of memory that is not pinned go through it in pieces; part of memory_limit; 0: none
 *   deadline_ms=0         a run that takes longer is stopped with GANTRY_DEADLINE; 0: none
 *   timing=off            events: kernel stamps in every run; fenced: and a wait after each kernel
 *   probe=off             on: devices measure latency and bandwidth of their copies, once a runtime (50 ms each), and
 *                         placement reckons with that instead of what their plugins assume
 *   numeric_check=off     on: every program of a run is computed again with the CPU's kernels and compared; the
 *                         report names what differs. Slow, takes memory, waits for devices
 *   cpu.disable_types=    element types the CPU provider shall not compute in, comma-separated; nodes of
 *                         float16 or bfloat16 that then have no provider run in float32 (rewrites.promote)
 *   log_level=warning     error, warning, info, debug
 *   PROVIDER.KEY=VALUE    handed to that provider; one that lists its keys takes no other
 */
/* clang-format on */
GANTRY_API gantry_status gantry_options_create(gantry_options **out_options, gantry_error *err);
GANTRY_API void gantry_options_destroy(gantry_options **options);
GANTRY_API gantry_status gantry_options_set(gantry_options *options, const char *key, const char *value,
                                            gantry_error *err);

/* Called for log lines at or above log_level, on any thread. text ends without a newline. */
typedef void (*gantry_log_fn)(void *user, int level, const char *text);
GANTRY_API gantry_status gantry_options_set_log(gantry_options *options, gantry_log_fn log, void *user,
                                                gantry_error *err);

/* ---- session --------------------------------------------------------------------------------- */

/* Reads, places and compiles a model. options NULL: the defaults. out_report (may be NULL) is given for
 * success and failure alike; on failure it says as much as was known, and *out_session is NULL. The runtime
 * outlives the session. */
GANTRY_API gantry_status gantry_session_create_from_file(gantry_runtime *runtime, const char *path,
                                                         const gantry_options *options,
                                                         gantry_session **out_session,
                                                         gantry_report **out_report, gantry_error *err);

/* The same from bytes, which are copied where they are needed: they may be freed after the call. External
 * data is found through the option "base" only. */
GANTRY_API gantry_status gantry_session_create_from_memory(gantry_runtime *runtime, const void *bytes,
                                                           size_t size, const gantry_options *options,
                                                           gantry_session **out_session,
                                                           gantry_report **out_report, gantry_error *err);

/* Refused with GANTRY_INVALID_ARGUMENT, and *session kept, while a gantry_run of it lives. */
GANTRY_API gantry_status gantry_session_destroy(gantry_session **session, gantry_error *err);

/* The providers that the session was asked for, in priority order, and whether it has them: *out_created is 0
 * for one that was not available when the session was created (only without strict=on), and detail says why.
 * Texts live as long as the session. Outs may be NULL. */
GANTRY_API uint32_t gantry_session_provider_count(const gantry_session *session);
GANTRY_API gantry_status gantry_session_provider(const gantry_session *session, uint32_t index,
                                                 const char **out_name, int *out_created,
                                                 const char **out_detail);

/* What the model declares for an input or output. dims[k] is -1 where symbolic, dim_names[k] then the symbol
 * (or NULL). rank is -1 when the file gives none. All pointers live as long as the session. */
typedef struct gantry_value_info {
    size_t struct_bytes;
    const char *name;
    gantry_value_kind kind;
    gantry_dtype dtype;
    int32_t rank;
    const int64_t *dims;
    const char *const *dim_names;
    int32_t has_default; /* an input that an initializer of the same name gives a value to */
} gantry_value_info;

GANTRY_API uint32_t gantry_session_input_count(const gantry_session *session);
GANTRY_API uint32_t gantry_session_output_count(const gantry_session *session);
/* Set out_info->struct_bytes first. */
GANTRY_API gantry_status gantry_session_input(const gantry_session *session, uint32_t index,
                                              gantry_value_info *out_info, gantry_error *err);
GANTRY_API gantry_status gantry_session_output(const gantry_session *session, uint32_t index,
                                               gantry_value_info *out_info, gantry_error *err);

/* Model metadata: "producer_name", "producer_version", "domain", "model_version", "doc_string", "graph_name",
 * "ir_version", "opset", or a custom key of metadata_props. NULL when absent. Lives as long as the session.
 */
GANTRY_API const char *gantry_session_metadata(const gantry_session *session, const char *key);
GANTRY_API uint32_t gantry_session_metadata_count(const gantry_session *session); /* custom keys */
GANTRY_API const char *gantry_session_metadata_key(const gantry_session *session, uint32_t index);

/* ---- run ------------------------------------------------------------------------------------- */

GANTRY_API gantry_status gantry_run_create(gantry_session *session, gantry_run **out_run, gantry_error *err);
GANTRY_API void gantry_run_destroy(gantry_run **run);

/* Binds caller memory; it is used in place, without a copy, by every later execute until it is bound again.
 * The memory (dims may go after the call) must stay valid until then; inputs are never written. Memory that
 * is not aligned as its elements are, too small, or strided is GANTRY_INVALID_ARGUMENT. A dtype, rank or
 * static extent that is not the model's is GANTRY_INPUT_SHAPE; what depends on more than one input is checked
 * at execute. On failure what was bound stays. NULL unbinds. An input with a default may stay unbound. */
GANTRY_API gantry_status gantry_run_bind_input(gantry_run *run, uint32_t index, const gantry_tensor *tensor,
                                               gantry_error *err);

/* Binds where an output goes: size_bytes is its capacity, dims are ignored. A size that does not fit is
 * GANTRY_INPUT_SHAPE with both numbers; memory that overlaps a bound input or another output is
 * GANTRY_INVALID_ARGUMENT (both from execute). NULL, or never bound: the run allocates, and the memory is the
 * run's until the output is bound or executed again. */
GANTRY_API gantry_status gantry_run_bind_output(gantry_run *run, uint32_t index, const gantry_tensor *tensor,
                                                gantry_error *err);

/* Makes the plan for the shapes of what is bound, without running: the first execute then is as fast as any
 * other. Values of inputs that shapes depend on are read. */
GANTRY_API gantry_status gantry_run_prepare(gantry_run *run, gantry_error *err);

/* The queue, as the device's own API has it (a cl_command_queue), on which the run computes in a domain; it
 * is the run's. What the caller enqueues there before execute, work that fills a bound input or a wait for an
 * event of another queue, comes before the run's work. NULL where the session does nothing there, or the
 * device does not tell. Not while the run is executing. */
GANTRY_API void *gantry_run_native_queue(const gantry_run *run, const char *domain);

/* Runs once and waits. Fails with GANTRY_CANCELLED or GANTRY_DEADLINE when it was stopped: outputs are then
 * undefined, and the run can be used again. */
GANTRY_API gantry_status gantry_run_execute(gantry_run *run, gantry_error *err);

/* The output of the last execute, or after prepare its shape (extents that depend on data are upper bounds
 * then; buffer is empty). Set out_tensor->struct_bytes. Pointers are valid until the next call on this run.
 */
GANTRY_API gantry_status gantry_run_output(gantry_run *run, uint32_t index, gantry_tensor *out_tensor,
                                           gantry_error *err);

/* Called once on a thread of the run when an asynchronous execution ends; must not call functions of the same
 * run but cancel. */
typedef void (*gantry_done_fn)(void *user, gantry_status status, const gantry_error *err);

/* Starts execute on the run's own thread and returns. Until it is done, only wait and cancel may be called.
 * done may be NULL. */
GANTRY_API gantry_status gantry_run_start(gantry_run *run, gantry_done_fn done, void *user,
                                          gantry_error *err);
/* Waits for the end of start and gives its status. timeout_ms < 0: for ever; a timeout is GANTRY_DEADLINE
 * with *out_done = 0. */
GANTRY_API gantry_status gantry_run_wait(gantry_run *run, int64_t timeout_ms, int *out_done,
                                         gantry_error *err);
/* Stops a running execute soon. Any thread. A run that is not executing is not affected. */
GANTRY_API void gantry_run_cancel(gantry_run *run);

/* ---- optimized models ------------------------------------------------------------------------ */

/* Where gantry_model_optimize writes, and what the file may be. Use GANTRY_OPTIMIZE_TARGET_INIT. */
typedef struct gantry_optimize_target {
    size_t struct_bytes;
    /* Of the model to write. A file that is there is replaced when all is written, and not before; it must be
     * none that the model is read from. */
    const char *path;
    /* NULL: all is in the model, which can have 2 GiB less a byte. Else the name, without a folder, of a file
     * beside it for the constants of 1024 bytes and more. */
    const char *external_data;
    /* By how many bytes a folded result may exceed the constants it replaces: where it exceeds them by more,
     * the nodes stay (an Expand is not blown up into its result). */
    uint64_t growth_limit_bytes;
} gantry_optimize_target;
#define GANTRY_OPTIMIZE_TARGET_INIT                                                                          \
    {                                                                                                        \
        sizeof(gantry_optimize_target), NULL, NULL, 65536                                                    \
    }

/* Reads a model, rewrites it, and writes what came out as ONNX in standard operators: any ONNX runtime
 * computes the same from it. Names of inputs, outputs and metadata stay; model-local functions are inlined;
 * nodes of domains that Gantry does not know stay as they are. The model's opset imports stay, except where
 * inlined functions need another; patterns become operators such as LayerNormalization when the opset has
 * them. The same model and options give the same bytes, and optimizing the result again gives them too.
 *
 * options (NULL: the defaults) as for a session; of use are rewrites, rewrites.NAME, fold, fold_limit_bytes,
 * dim. and shape. ones, and log. The rest is checked and ignored. out_report (may be NULL) says what was
 * changed: its JSON is described in docs/rewrites.md; it is freed with gantry_report_destroy. It is given for
 * success only, and NULL when there is no memory for it: the file is written then all the same.
 *
 * Fails as creating a session does, and with GANTRY_RESOURCE when the file cannot be written or would be too
 * large, GANTRY_INVALID_ARGUMENT for a path that is read from, GANTRY_UNSUPPORTED when no opset fits all
 * nodes. No file is left behind then. Thread-safe: calls of one runtime may run side by side. */
GANTRY_API gantry_status gantry_model_optimize(gantry_runtime *runtime, const char *path,
                                               const gantry_options *options,
                                               const gantry_optimize_target *target,
                                               gantry_report **out_report, gantry_error *err);

/* ---- report ---------------------------------------------------------------------------------- */

/* What is known of the session, and of one of its runs (NULL: of none), which must not be executing.
 * GANTRY_INVALID_ARGUMENT for a run of another session. Freed with gantry_report_destroy; it may outlive the
 * session, not the runtime. */
GANTRY_API gantry_status gantry_session_report(const gantry_session *session, const gantry_run *run,
                                               gantry_report **out_report, gantry_error *err);
GANTRY_API void gantry_report_destroy(gantry_report **report);

typedef enum gantry_report_format { GANTRY_REPORT_JSON = 1, GANTRY_REPORT_TEXT = 2 } gantry_report_format;

/* The report as UTF-8 text that lives as long as the report. docs/report.schema.json describes the JSON.
 * Rendering is done once a format. */
GANTRY_API gantry_status gantry_report_render(gantry_report *report, gantry_report_format format,
                                              const char **out_text, size_t *out_bytes, gantry_error *err);

#ifdef __cplusplus
}
#endif
#endif
