/* The runtime: which plugins, domains and providers a process has, and the table the host offers them. */
#ifndef GT_CORE_RUNTIME_H
#define GT_CORE_RUNTIME_H

#include "base/alloc.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"
#include "base/vec.h"

#include <gantry/provider.h>
#include <pthread.h>

#define GT_HOST_DOMAIN 0u

/* A struct that a plugin fills, with room behind it: one of a newer header may write all of its own. */
#define GT_NEWER_BYTES 1024
#define GT_ROOMY(type)                                                                                       \
    union {                                                                                                  \
        type value;                                                                                          \
        char room[sizeof(type) + GT_NEWER_BYTES];                                                            \
    }

#define GT_NO_PLUGIN UINT32_MAX

/* One domain; index 0 is the host, which core implements itself (table NULL: plain memory, synchronous).
 * spare: its plugin was unloaded; nobody finds it, and the next load of that library may take it over. */
typedef struct gt_domain_entry {
    const gantry_domain *table; /* NULL or own */
    gantry_domain own;
    gantry_domain_info info;
    bool probed; /* under the runtime's probe_lock, as are these */
    gantry_domain_info measured;
    char probe_failure[256]; /* why measured is what the domain says of itself; "": it is not */
    uint32_t plugin;         /* index into runtime->plugins, GT_NO_PLUGIN for the host's */
    uint32_t user_count;     /* blocks and calls of gantry_memory_*; under the runtime's lock */
    bool spare;
} gt_domain_entry;

/* One provider, or the row of one that is not there (available false, detail in the loader's or the plugin's
 * words). Nothing changes while a session has acquired it; else all of it may, under the runtime's lock. */
typedef struct gt_provider_entry {
    const gantry_provider *table; /* NULL when not available, else own */
    gantry_provider own;
    gantry_provider_info info;
    uint32_t domain; /* index into runtime->domains */
    uint32_t plugin; /* index into runtime->plugins; GT_NO_PLUGIN for the linked-in CPU provider */
    bool available;
    bool spare; /* a failed load or an unloaded library left it: the next load of that library may take it */
    char detail[1024];
    /* Held around all calls that work by the SERIAL class, around context_create by PER_CONTEXT; see
     * gt_provider_lock. */
    pthread_mutex_t serial;
    atomic_uint_least64_t lock_waits, lock_wait_ns; /* of all sessions */
} gt_provider_entry;

/* What is known of a library file; name: of the manifest, else of the file or what the caller asked for. */
typedef struct gt_library {
    char path[1024]; /* absolute; "" when it was looked for by name and not found */
    char name[64];
    char version[32];
    uint64_t stamp; /* of the file: another one when it was replaced; 0 when there is none */
} gt_library;

typedef enum gt_plugin_state {
    GT_PLUGIN_LOADING,
    GT_PLUGIN_FAILED,
    GT_PLUGIN_OPEN,
    GT_PLUGIN_CLOSING,
    GT_PLUGIN_UNLOADED
} gt_plugin_state;

/* A library that was loaded, or failed to. state, texts and counts are under the runtime's lock. */
typedef struct gt_plugin_entry {
    char path[1024];
    char name[64];
    char version[32];
    gt_plugin_state state;
    uint64_t mapped_stamp;  /* of the file when its code was loaded; 0: it never was */
    uint32_t session_count; /* uses of its providers and operators by sessions: it is kept until they are 0 */
    uint64_t order;         /* of opening; they close in the reverse one */
    gantry_plugin plugin;
    gantry_host host; /* the table this instance was opened with */
    char *config;
    uint64_t load_ns; /* 0 until the load has ended, well or not */
} gt_plugin_entry;

/* What gantry_runtime_set keeps (settings.c). */
typedef enum gt_setting { GT_SETTING_PROVIDER_PATH, GT_SETTING_CACHE, GT_SETTING_COUNT } gt_setting;
#define GT_SETTING_BYTES 4096 /* of a value with its NUL: PATH_MAX, and many folders */

/* An operator that a plugin brought. */
typedef struct gt_operator_entry {
    struct gt_own_op *op;
    uint32_t plugin; /* index into runtime->plugins, or GT_NO_PLUGIN */
} gt_operator_entry;

/* A session's log sink: lines of providers go to all of them. */
typedef struct gt_log_sink {
    int level;
    gantry_log_fn log;
    void *user;
} gt_log_sink;

/* The constants in providers' own forms that sessions share (packed.c). Thread-safe: its lock is taken alone,
 * and never held while a plugin is called. Each entry hangs in one list of both tables. */
struct gt_packed_entry;
typedef struct gt_packed_store {
    pthread_mutex_t lock;
    uint32_t count, bucket_count; /* bucket_count: a power of two, or 0 */
    struct gt_packed_entry **by_form, **by_data;
} gt_packed_store;

/* Thread-safe where not said otherwise: entries are only added or taken over, under lock, and never move.
 * Lock order: lock, then nothing; log_lock and constants_lock are taken alone. */
struct gantry_runtime {
    gt_allocator allocator;
    pthread_mutex_t lock;
    pthread_mutex_t log_lock;       /* held around sinks' callbacks */
    pthread_mutex_t probe_lock;     /* held while a domain measures its copies; taken alone */
    pthread_mutex_t constants_lock; /* held while a constant's file is mapped */
    gt_packed_store packed;
    GT_VEC(gt_log_sink) sinks;
    char *settings[GT_SETTING_COUNT]; /* NULL: not set, the environment's counts */
    GT_VEC(gt_plugin_entry *) plugins;
    GT_VEC(gt_domain_entry *) domains;
    GT_VEC(gt_provider_entry *) providers;
    GT_VEC(gt_operator_entry) operators;
    uint32_t session_count;
    uint64_t opened_count; /* plugins opened so far */
    uint32_t cpu;          /* index of the provider "cpu" */
    double cpu_load_ns;    /* opening the CPU provider */
    gantry_host host;      /* what the CPU provider was opened with */
    gantry_plugin cpu_plugin;
    const gt_provider_entry *cpu_provider; /* NULL until it is registered */
};

/* Entry of the linked-in CPU provider: the same contract as a plugin's gantry_plugin_open. */
gantry_status gt_cpu_plugin_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                                 gantry_error *err);

/* Finds one by name, an available one first; GT_NO_PLUGIN when there is none. The caller holds no lock. */
uint32_t gt_runtime_find_provider(gantry_runtime *runtime, const char *name);
uint32_t gt_runtime_find_domain(gantry_runtime *runtime, const char *name);

/* The entry at an index, under lock: entries never move, so the pointer stays valid. */
gt_provider_entry *gt_runtime_provider_at(gantry_runtime *runtime, uint32_t index);
gt_domain_entry *gt_runtime_domain_at(gantry_runtime *runtime, uint32_t index);

/* The host table that the provider's plugin was opened with: whoever uses the provider keeps it open. */
const gantry_host *gt_runtime_host_of(gantry_runtime *runtime, const gt_provider_entry *entry);

/* Copies of what may change, made under lock, for reports; false past the end. Without table and mutex. */
typedef struct gt_provider_row {
    gantry_provider_info info;
    uint32_t plugin;
    bool available;
    uint64_t lock_waits, lock_wait_ns;
    char detail[1024];
} gt_provider_row;
typedef struct gt_plugin_row {
    gt_library file;
    uint64_t load_ns; /* 0: it is being loaded */
} gt_plugin_row;
bool gt_runtime_provider_row(gantry_runtime *runtime, uint32_t index, gt_provider_row *out_row);
bool gt_runtime_plugin_row(gantry_runtime *runtime, uint32_t index, gt_plugin_row *out_row);

/* The available provider of that name, which then stays until gt_runtime_release; NULL when there is none,
 * with the reason. row and plugin are indexes or GT_NO_PLUGIN. */
typedef struct gt_provider_use {
    uint32_t row, plugin;
    char reason[1024]; /* "" when it is available */
} gt_provider_use;
gt_provider_entry *gt_runtime_acquire(gantry_runtime *runtime, const char *name, gt_provider_use *out_use);
void gt_runtime_release(gantry_runtime *runtime, const gt_provider_entry *entry); /* NULL is fine */

/* The same for domains and those who use their memory without a session. */
bool gt_runtime_domain_use(gantry_runtime *runtime, const char *name, gt_domain_entry **out_entry);
void gt_runtime_domain_leave(gantry_runtime *runtime, gt_domain_entry *entry);

/* Finds the file for a path or a provider's name (library.c). On failure *out_library has the name. */
gantry_status gt_library_find(gantry_runtime *runtime, const char *what, gt_library *out_library,
                              gantry_error *err);
/* Checks the manifest and this machine, and loads the file; *inout_library gets what the manifest says, on
 * failure too. */
gantry_status gt_library_open(gt_library *inout_library, gantry_plugin_open_fn *out_open, gantry_error *err);

/* plugins.c. The first calls close whatever is open; the second calls it for all, last opened first. */
void gt_plugin_close(gantry_runtime *runtime, gt_plugin_entry *entry);
void gt_plugins_close(gantry_runtime *runtime);

/* Waits for the provider's lock and returns how long: 0, without reading a clock, when it was free. Lock
 * order: a session's lock, this one, then any of the runtime's, which the provider's calls take (serial.c).
 */
uint64_t gt_provider_lock(gt_provider_entry *entry);
void gt_provider_unlock(gt_provider_entry *entry);
static inline bool gt_provider_is_serial(const gt_provider_entry *entry)
{
    return entry->info.concurrency == GANTRY_CONCURRENCY_SERIAL;
}

/* What was set, else what the environment says now, else "". A folder of the environment need not exist. */
void gt_runtime_setting(gantry_runtime *runtime, gt_setting setting, char out_text[GT_SETTING_BYTES]);
void gt_runtime_settings_free(gantry_runtime *runtime);

/* Providers' log lines at or above `level` go to log until the same (log, user) is taken off. NULL is fine.
 */
gantry_status gt_runtime_log_add(gantry_runtime *runtime, int level, gantry_log_fn log, void *user,
                                 gantry_error *err);
void gt_runtime_log_remove(gantry_runtime *runtime, gantry_log_fn log, void *user);

/* Checks what an open call filled in and adds its domains and providers; all or nothing. `plugin` is an index
 * into runtime->plugins or GT_NO_PLUGIN (loader.c). */
gantry_status gt_runtime_register(gantry_runtime *runtime, gantry_plugin *inout_plugin, uint32_t plugin,
                                  gantry_error *err);
void gt_provider_entry_free(gt_allocator *allocator, gt_provider_entry *entry); /* NULL is fine */
/* Takes back what the plugin brought: rows say "unloaded". The caller holds the lock; nobody uses it. */
void gt_runtime_unregister(gantry_runtime *runtime, uint32_t plugin);
/* The row of a library that could not be loaded. */
gantry_status gt_runtime_add_unavailable(gantry_runtime *runtime, uint32_t plugin, const char *detail,
                                         gantry_error *err);

/* ---- operators of plugins (operators.c) ------------------------------------------------------ */

struct gt_own_ops;

/* Whether all may be added: an operator's versions come from one plugin, each once. Like the two below it is
 * called under the lock; there is room for those that are added. */
gantry_status gt_operators_check(const gantry_runtime *runtime, const gt_operator_entry *entries,
                                 uint32_t count, gantry_error *err);
void gt_operators_add(gantry_runtime *runtime, const gt_operator_entry *entries, uint32_t count,
                      uint32_t plugin);
void gt_operators_remove(gantry_runtime *runtime, uint32_t plugin);
/* Those that are known now, for a session: their plugins stay until they are released. Thread-safe. */
gantry_status gt_operators_acquire(gantry_runtime *runtime, struct gt_own_ops *out_ops, gantry_error *err);
void gt_operators_release(gantry_runtime *runtime, struct gt_own_ops *ops);

/* Reads the manifest section of the ELF file at path; GANTRY_DATA when there is none. Nothing of the file is
 * executed. */
gantry_status gt_manifest_read(const char *path, gantry_manifest *out_manifest, gantry_error *err);

/* The host table every provider gets (host_table.c). */
void gt_host_table_init(gantry_host *host, gantry_runtime *runtime, const char *config);

/* ---- packed constants (packed.c) ------------------------------------------------------------- */

void gt_packed_store_init(gt_packed_store *store);
void gt_packed_store_free(gantry_runtime *runtime);
/* Releases what is left of the plugin that was opened with `host`, before its close. */
void gt_packed_drop(gantry_runtime *runtime, const gantry_host *host);
/* What the plugin keeps there now: forms, who uses them, and the bytes they take. */
typedef struct gt_packed_total {
    uint64_t forms, users, bytes;
} gt_packed_total;
gt_packed_total gt_packed_count(gantry_runtime *runtime, const gantry_host *host);

/* ---- what the opaque types of provider.h are on this side ------------------------------------ */

/* Timed runs have room for every kernel up to a program's largest index below this. */
#define GT_MOST_KERNELS (1u << 20)

/* Where a provider's records go during compile and reshape. */
typedef struct gt_kernel_row {
    const char *op, *name, *isa, *layout;
    uint32_t index;
    uint32_t node_count;
    const uint32_t *node_ids;
    gantry_dtype precision_in, precision_out, accumulate;
    double bytes, flops;
} gt_kernel_row;

typedef struct gt_fusion_row {
    const char *rule, *guard;
    uint32_t node_count;
    const uint32_t *node_ids;
    bool applied;
} gt_fusion_row;

typedef struct gt_phase_row {
    const char *name, *detail;
    uint64_t begin_ns, duration_ns;
} gt_phase_row;

struct gantry_recorder {
    gt_arena *arena; /* everything is copied here */
    GT_VEC(gt_kernel_row) kernels;
    GT_VEC(gt_fusion_row) fusions;
    GT_VEC(gt_phase_row) phases;
    gt_map texts; /* those copied already; not initialised: every text is copied */
    bool failed;  /* memory ran out: the records are incomplete */
};

/* Gives back the lists; a recorder without an arena has none (host_table.c). */
void gt_recorder_free(struct gantry_recorder *recorder);

/* gantry_constants is a gt_model in disguise: constant ids are indexes into model->constants. */
struct gt_model;
static inline gantry_constants *gt_constants_of(struct gt_model *model)
{
    return (gantry_constants *)model;
}

/* Offsets for intervals, best fit by size then first free offset: the arena planner of core and of every
 * provider. */
gantry_status gt_plan_intervals(gt_allocator *allocator, uint32_t count, const size_t *bytes,
                                const uint32_t *first, const uint32_t *last, size_t *out_offsets,
                                size_t *out_total, gantry_error *err);

#endif
