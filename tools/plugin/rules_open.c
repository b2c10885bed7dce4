/* Rules about opening: what gantry_plugin_open fills in, older and newer hosts, several instances, a hundred
 * times. */
#include "kit.h"

#include "base/table_entries.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>

/* The size of what release 1.0 had. */
#define HOST_1_0 offsetof(gantry_host, constant_read)
#define PLUGIN_1_0 offsetof(gantry_plugin, operator_count)
#define NEWER 256 /* bytes that a later release may have appended */

/* ---- tables ---------------------------------------------------------------------------------- */

static void check_entries(kit *k, const char *what, const void *table, const gt_table_entry *entries,
                          size_t count)
{
    for (size_t e = 0; e < count; e++) {
        if (entries[e].group == 0 && !gt_has_entry(table, entries[e].offset))
            kit_fail(k, "%s: the required entry %s is NULL", what, entries[e].name);
        for (size_t other = 0; other < count && entries[e].group; other++)
            if (entries[other].group == entries[e].group && gt_has_entry(table, entries[e].offset) &&
                !gt_has_entry(table, entries[other].offset))
                kit_fail(k, "%s: %s is NULL and %s is not: both or none", what, entries[other].name,
                         entries[e].name);
    }
}

/* The plugin's own table, of which at least what every release had must be there. */
static bool check_size(kit *k, const char *what, const void *table, size_t least)
{
    if (!table) {
        kit_fail(k, "%s: the table is NULL", what);
        return false;
    }
    size_t bytes = *(const size_t *)table;
    if (bytes < least)
        kit_fail(k, "%s: struct_bytes is %zu, at least %zu are needed: set it to sizeof the table", what,
                 bytes, least);
    else if (bytes > 65536)
        kit_fail(k, "%s: struct_bytes is %zu, which can't be: set it to sizeof the table", what, bytes);
    return bytes >= least && bytes <= 65536;
}

static void check_tables(kit *k)
{
    const gantry_plugin *p = &k->subject.plugin;
    char what[64];
    for (uint32_t d = 0; d < p->domain_count && !kit_failed(k); d++) {
        gantry_domain table;
        snprintf(what, sizeof what, "domain %u", d);
        if (!check_size(k, what, p->domains[d], offsetof(gantry_domain, memory_info)))
            return;
        KIT_COPY_TABLE(table, p->domains[d]);
        check_entries(k, what, &table, gt_domain_entries,
                      sizeof gt_domain_entries / sizeof *gt_domain_entries);
    }
    for (uint32_t r = 0; r < p->provider_count && !kit_failed(k); r++) {
        gantry_provider table;
        bool available = !kit_subject_unavailable(&k->subject, r);
        snprintf(what, sizeof what, "provider %u", r);
        if (!check_size(k, what, p->providers[r], offsetof(gantry_provider, judge)))
            return;
        KIT_COPY_TABLE(table, p->providers[r]);
        check_entries(k, what, &table, gt_provider_entries,
                      available ? sizeof gt_provider_entries / sizeof *gt_provider_entries : 1);
    }
    kit_pass(k, "%u domains, %u providers; required entries are there, optional ones together or NULL",
             p->domain_count, p->provider_count);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What a runtime takes. */
#define MOST_LISTED 1024u

static void check_opens(kit *k)
{
    char words[2200];
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_plugin p = {.struct_bytes = sizeof p};
    kit_doing(k, "gantry_plugin_open with ABI %u", GANTRY_PROVIDER_ABI);
    gantry_status status = k->open(&k->host.table, GANTRY_PROVIDER_ABI, &p, &err);
    if (status != GANTRY_OK) {
        kit_fail(k, "gantry_plugin_open failed: %s", kit_error_text(status, &err, words, sizeof words));
        return;
    }
    if (p.struct_bytes < offsetof(gantry_plugin, close) || p.struct_bytes > 65536)
        kit_fail(k, "it left a struct_bytes of %zu: set it to the size of what it filled", p.struct_bytes);
    else if (p.abi < 1 || p.abi > GANTRY_PROVIDER_ABI)
        kit_fail(k, "it says it works at ABI level %u; the host offered %u", p.abi, GANTRY_PROVIDER_ABI);
    else if (p.domain_count > MOST_LISTED || p.provider_count > MOST_LISTED ||
             (p.struct_bytes > offsetof(gantry_plugin, operators) && p.operators &&
              p.operator_count > MOST_LISTED))
        kit_fail(k, "it counts %u domains, %u providers and %u operators; %u of each are possible",
                 p.domain_count, p.provider_count, p.operator_count, MOST_LISTED);
    else if ((p.domain_count && !p.domains) || (p.provider_count && !p.providers))
        kit_fail(k, "%u domains and %u providers are counted, and a list is NULL", p.domain_count,
                 p.provider_count);
    else if (!p.name || !p.version)
        kit_fail(k, "name or version are NULL");
    else if (!p.close && k->host.live_blocks)
        kit_fail(k, "there is no close, and it holds memory");
    else
        kit_pass(k, "\"%s\" %s at ABI level %u", p.name, p.version, p.abi);
    if (!kit_failed(k) && p.close)
        p.close(p.self);
    if (kit_failed(k))
        return;
    k->host.live_blocks = 0;
    if (kit_subject_open(k->open, &k->host, 0, &k->subject, &err) != GANTRY_OK)
        kit_fail(k, "it can't be opened again after its close: %s", err.message);
}

/* Tells the parent which providers there are. */
static void tell_providers(kit *k)
{
    const kit_subject *s = &k->subject;
    for (uint32_t r = 0; s->open && r < s->plugin.provider_count; r++) {
        gantry_provider table;
        gantry_provider_info info = {.struct_bytes = sizeof info};
        KIT_COPY_TABLE(table, s->plugin.providers[r]);
        if (table.describe)
            table.describe(table.self, &info);
        fprintf(k->out, "%c%.63s\n", kit_subject_unavailable(s, r) ? 'U' : 'A', info.name);
    }
    fflush(k->out);
}

static void check_abi_zero(kit *k)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_plugin p = {.struct_bytes = sizeof p};
    kit_doing(k, "gantry_plugin_open with ABI 0");
    gantry_status status = k->open(&k->host.table, 0, &p, &err);
    if (status == GANTRY_OK)
        kit_fail(k, "a host of ABI level 0 is accepted: compare abi with the lowest level that you work at");
    else if (!*err.message)
        kit_fail(k, "refused without words: name the level you need and the one that was offered");
    else
        kit_pass(k, "refused: %s", err.message);
}

/* A program in a plugin that was opened with another host table than usual. */
static void drive_one(kit *k, const char *host)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_model *model;
    kit_data data;
    double largest = 0;
    if (kit_subject_unavailable(&k->subject, 0) || kit_subject_is_foreign(&k->subject) ||
        kit_supported(k, true, 1, &model) == 0) {
        kit_pass(k, "opens with %s", host);
        return;
    }
    if (kit_data_make(model, KIT_TYPICAL_N, 1, k->cpu, &data, &err)) {
        kit_try(k, model, &data, &largest);
        kit_data_free(&data);
    }
    kit_pass(k, "opens with %s, and computes %s", host, model->row->op);
    kit_models_free(1, &model);
}

/* A domain's describe in a host that knows less of gantry_domain_info. */
static void describe_older(kit *k, const gantry_plugin *plugin)
{
    for (uint32_t d = 0; d < plugin->domain_count; d++) {
        gantry_domain table;
        gantry_domain_info *info = kit_at_the_edge(KIT_DOMAIN_INFO_1_0);
        KIT_COPY_TABLE(table, plugin->domains[d]);
        if (!info)
            return;
        info->struct_bytes = KIT_DOMAIN_INFO_1_0;
        kit_doing(k, "describe of domain %u into the shorter struct of an older host", d);
        if (table.describe(table.self, info) != GANTRY_OK)
            kit_fail(k, "describe of domain %u fails for an older host's struct", d);
    }
}

static void check_other_host(kit *k, size_t host_bytes, size_t plugin_bytes, uint32_t abi, const char *host)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_host *table = kit_at_the_edge(host_bytes);
    gantry_plugin *plugin = kit_at_the_edge(plugin_bytes);
    if (!table || !plugin)
        return;
    memset(table, 0xff, host_bytes);
    memset(plugin, 0, plugin_bytes);
    memcpy(table, &k->host.table, host_bytes < sizeof k->host.table ? host_bytes : sizeof k->host.table);
    table->struct_bytes = host_bytes;
    table->abi = abi;
    plugin->struct_bytes = plugin_bytes;
    kit_doing(k, "gantry_plugin_open with %s: it may touch struct_bytes of the host's tables, no more", host);
    gantry_status status = k->open(table, abi, plugin, &err);
    if (status != GANTRY_OK && !*err.message) {
        kit_fail(k, "%s is refused without words", host);
        return;
    }
    if (status != GANTRY_OK) {
        if (abi > GANTRY_PROVIDER_ABI)
            kit_fail(k, "%s is refused: %s; work at the level that both have", host, err.message);
        else
            kit_pass(k, "%s is refused: %s", host, err.message);
        return;
    }
    if (plugin->abi < 1 || plugin->abi > abi)
        kit_fail(k, "with %s it says it works at ABI level %u, of %u that the host offers", host, plugin->abi,
                 abi);
    if (host_bytes == HOST_1_0)
        describe_older(k, plugin);
    if (plugin->close)
        plugin->close(plugin->self);
    k->host.shown = table;
    k->host.plugin_bytes = plugin_bytes;
    if (!kit_failed(k) && kit_subject_open(k->open, &k->host, 0, &k->subject, &err) == GANTRY_OK)
        drive_one(k, host);
    kit_subject_close(&k->subject);
    k->host.shown = &k->host.table;
    k->host.plugin_bytes = sizeof(gantry_plugin);
}

static void check_older_host(kit *k)
{
    check_other_host(k, HOST_1_0, PLUGIN_1_0, 1, "an older host");
}

static void check_newer_host(kit *k)
{
    check_other_host(k, sizeof(gantry_host) + NEWER, sizeof(gantry_plugin) + NEWER, GANTRY_PROVIDER_ABI + 98,
                     "a newer host");
}

/* ---- describe -------------------------------------------------------------------------------- */

static bool is_cost(double number)
{
    return number >= 0 && number < HUGE_VAL;
}

static void check_domain_info(kit *k, const gantry_domain_info *d)
{
    if (!*d->name)
        kit_fail(k, "a domain has no name");
    else if (d->alignment == 0 || (d->alignment & (d->alignment - 1)) != 0)
        kit_fail(k, "domain %s: the alignment is %zu, no power of two", d->name, d->alignment);
    else if (!is_cost(d->to_device_ns) || !is_cost(d->to_host_ns) || !is_cost(d->to_device_bytes_per_ns) ||
             !is_cost(d->to_host_bytes_per_ns))
        kit_fail(k, "domain %s: a cost of copies is negative or no number; 0 is not known", d->name);
    else if (d->cost_source && !strchr("mae", d->cost_source))
        kit_fail(k, "domain %s: cost_source is '%c'; there are m, a and e", d->name, d->cost_source);
    else if (d->queue_count > 64)
        kit_fail(k, "domain %s: queue_count is %llu", d->name, (unsigned long long)d->queue_count);
}

static void check_provider_info(kit *k, const gantry_provider_info *i)
{
    if (!*i->name || strchr(i->name, ',') || strchr(i->name, ' '))
        kit_fail(k, "a provider is named \"%s\": it needs a name without spaces and commas", i->name);
    else if (strcmp(i->name, "cpu") == 0)
        kit_fail(k, "the name \"cpu\" is the built-in provider's");
    else if (!*i->version)
        kit_fail(k, "provider %s has no version: caches depend on it", i->name);
    else if (i->concurrency > GANTRY_CONCURRENCY_SERIAL)
        kit_fail(k, "provider %s: there is no concurrency class %u", i->name, (unsigned)i->concurrency);
    else if (i->precision >= GANTRY_DTYPE_COUNT)
        kit_fail(k, "provider %s: there is no element type %u", i->name, (unsigned)i->precision);
}

/* Twice, the second time at the edge of memory: what it writes is the same and not more. */
/* Member by member: what lies between them may be anything. */
static bool same_domain_info(const gantry_domain_info *a, const gantry_domain_info *b)
{
    return a->struct_bytes == b->struct_bytes && memcmp(a->name, b->name, sizeof a->name) == 0 &&
           memcmp(a->device, b->device, sizeof a->device) == 0 && a->alignment == b->alignment &&
           a->separate_memory == b->separate_memory && a->has_clock == b->has_clock &&
           a->to_device_ns == b->to_device_ns && a->to_host_ns == b->to_host_ns &&
           a->to_device_bytes_per_ns == b->to_device_bytes_per_ns &&
           a->to_host_bytes_per_ns == b->to_host_bytes_per_ns && a->cost_source == b->cost_source &&
           a->queue_count == b->queue_count;
}

static void check_describe(kit *k)
{
    const gantry_plugin *p = &k->subject.plugin;
    char names[512] = "";
    for (uint32_t d = 0; d < p->domain_count; d++) {
        gantry_domain table;
        gantry_domain_info a = {.struct_bytes = sizeof a}, *b = kit_at_the_edge(sizeof *b);
        KIT_COPY_TABLE(table, p->domains[d]);
        *b = a;
        kit_doing(k, "describe of domain %u", d);
        if (table.describe(table.self, &a) != GANTRY_OK || table.describe(table.self, b) != GANTRY_OK)
            kit_fail(k, "describe of domain %u failed", d);
        check_domain_info(k, &a); /* first: what is no number equals nothing */
        if (!same_domain_info(&a, b))
            kit_fail(k, "describe of domain %u is not the same the second time", d);
    }
    for (uint32_t r = 0; r < p->provider_count; r++) {
        gantry_provider table;
        gantry_provider_info a = {.struct_bytes = sizeof a}, *b = kit_at_the_edge(sizeof *b);
        KIT_COPY_TABLE(table, p->providers[r]);
        *b = a;
        kit_doing(k, "describe of provider %u", r);
        if (table.describe(table.self, &a) != GANTRY_OK || table.describe(table.self, b) != GANTRY_OK)
            kit_fail(k, "describe of provider %u failed", r);
        else if (memcmp(&a, b, sizeof a) != 0)
            kit_fail(k, "describe of provider %u is not the same the second time", r);
        else if (a.struct_bytes == 0)
            kit_fail(k, "describe of provider %u left a struct_bytes of 0", r);
        check_provider_info(k, &a);
        const char *absent = kit_subject_unavailable(&k->subject, r);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s in %s%s%.100s",
                 *names ? ", " : "", a.name, *a.domain ? a.domain : "host", absent ? ", unavailable: " : "",
                 absent ? absent : "");
    }
    kit_pass(k, "%s", names);
}

static void check_options(kit *k)
{
    const gantry_plugin *p = &k->subject.plugin;
    uint32_t count = 0;
    for (uint32_t r = 0; r < p->provider_count; r++) {
        gantry_provider table;
        KIT_COPY_TABLE(table, p->providers[r]);
        for (uint32_t o = 0; table.options && o < table.option_count; o++, count++) {
            gantry_option_info info;
            KIT_COPY_TABLE(info, (const char *)table.options + o * table.options[0].struct_bytes);
            if (!info.key || !*info.key || strchr(info.key, '.') || !info.value || !info.description)
                kit_fail(
                    k,
                    "option %u of provider %u: key (without \"PROVIDER.\"), value and description are needed",
                    o, r);
        }
    }
    for (uint32_t o = 0; p->operators && o < p->operator_count; o++) {
        gantry_operator op;
        KIT_COPY_TABLE(op, p->operators[o]);
        if (!op.domain || !*op.domain || strcmp(op.domain, "gantry") == 0 ||
            strncmp(op.domain, "ai.onnx", 7) == 0 || !op.name || !op.infer || op.since_version < 1 ||
            op.input_min > op.input_max || op.output_min > op.output_max)
            kit_fail(k,
                     "operator %u: it needs a domain of its own, a name, a since_version, arities and infer",
                     o);
    }
    if (count + p->operator_count == 0)
        kit_skip(k, "it lists no options and no operators of its own");
    else
        kit_pass(k, "%u options, %u operators of its own", count, p->operator_count);
}

/* ---- instances ------------------------------------------------------------------------------- */

static void check_two_instances(kit *k)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_provider table;
    kit_subject second;
    kit_doing(k, "a second gantry_plugin_open while the first instance is open");
    if (kit_subject_open(k->open, &k->host, 0, &second, &err) != GANTRY_OK) {
        kit_fail(k, "a second instance can't be opened: %s", err.message);
        return;
    }
    if (second.plugin.self && second.plugin.self == k->subject.plugin.self)
        kit_fail(k, "two instances have one self: keep no state in globals");
    kit_subject_close(&second);
    kit_doing(k, "describe of the first instance after the second was closed");
    KIT_COPY_TABLE(table, k->subject.plugin.providers[0]);
    gantry_provider_info info = {.struct_bytes = sizeof info};
    if (table.describe(table.self, &info) != GANTRY_OK)
        kit_fail(k, "closing one instance breaks the other");
}

static void check_close(kit *k)
{
    kit_doing(k, "close");
    kit_subject_close(&k->subject);
    if (k->host.live_blocks)
        kit_fail(k, "after close %llu blocks (%llu bytes) of host->alloc are not freed",
                 (unsigned long long)k->host.live_blocks, (unsigned long long)k->host.live_bytes);
    else if (k->host.packed)
        kit_fail(k, "after close a packed constant still has users: packed_release goes with the program");
    else
        kit_pass(k, "nothing of host->alloc is left");
}

/* Any text gives a status: users mistype. */
static void check_strange_config(kit *k)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_plugin p = {.struct_bytes = sizeof p};
    gantry_host table = k->host.table;
    uint64_t blocks = k->host.live_blocks;
    table.config = "{\"kit\": [\xff, =;";
    kit_doing(k, "gantry_plugin_open with the config text {\"kit\": [?, =;");
    gantry_status status = k->open(&table, GANTRY_PROVIDER_ABI, &p, &err);
    if (status == GANTRY_OK && p.close)
        p.close(p.self);
    if (status == GANTRY_OK)
        kit_pass(k, "accepted");
    else if (!*err.message)
        kit_fail(k, "refused without words");
    else if (k->host.live_blocks != blocks)
        kit_fail(k, "refused, and %llu blocks of host->alloc stay behind",
                 (unsigned long long)(k->host.live_blocks - blocks));
    else
        kit_pass(k, "refused: %s", err.message);
}

void kit_group_open(kit *k)
{
    static const kit_rule FIRST[] = {{"opens", check_opens, NULL}};
    static const kit_rule OPEN[] = {
        {"tables", check_tables, NULL},
        {"describe", check_describe, NULL},
        {"options", check_options, NULL},
        {"two instances", check_two_instances, "open at once, the first works when the second is closed"},
        {"closes", check_close, NULL},
        {"ABI 0", check_abi_zero, NULL},
        {"strange config", check_strange_config, NULL}};
    gantry_error err = GANTRY_ERROR_INIT;
    kit_run_rules(k, FIRST, 1);
    if (k->first > 0 && kit_subject_open(k->open, &k->host, 0, &k->subject, &err) != GANTRY_OK)
        return;
    if (!k->subject.open)
        return;
    kit_run_rules(k, OPEN, 1); /* the rest reads tables that this one checked */
    if (k->first <= 1 && kit_failed(k))
        return;
    if (k->first <= 1)
        tell_providers(k);
    kit_run_rules(k, OPEN + 1, sizeof OPEN / sizeof *OPEN - 1);
}

void kit_group_versions(kit *k)
{
    static const kit_rule RULES[] = {{"older host", check_older_host, NULL},
                                     {"newer host", check_newer_host, NULL}};
    kit_run_rules(k, RULES, sizeof RULES / sizeof *RULES);
}

/* ---- a hundred times ------------------------------------------------------------------------- */

#define CYCLES 100
#define WARM_CYCLES 10
/* What a driver may keep of a hundred openings: 4 KiB each time were seen with one. */
#define CYCLE_GROWTH_BYTES (CYCLES * UINT64_C(16384))

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static bool cycle(kit *k, int count)
{
    for (int c = 0; c < count; c++) {
        gantry_error err = GANTRY_ERROR_INIT;
        char words[512];
        if (!kit_load(k->path, words, sizeof words) ||
            kit_subject_open(k->open, &k->host, 0, &k->subject, &err) != GANTRY_OK) {
            kit_fail(k, "opening it again failed: %s", err.message);
            return false;
        }
        kit_subject_close(&k->subject);
    }
    return true;
}

static void check_cycles(kit *k)
{
    kit_doing(k, "one of %d times loading, opening and closing it", CYCLES);
    if (!cycle(k, WARM_CYCLES))
        return;
    int files = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    if (!cycle(k, CYCLES))
        return;
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd, grown = after > before ? after - before : 0;
    int new_files = count_entries("/proc/self/fd") - files,
        new_threads = count_entries("/proc/self/task") - threads;
    if (new_files > 0)
        kit_fail(k, "%d file descriptors more than before: close them in close", new_files);
    else if (new_threads > 0)
        kit_fail(k, "%d threads more than before: end them in close", new_threads);
    else if (k->host.live_blocks)
        kit_fail(k, "%llu blocks of host->alloc are not freed", (unsigned long long)k->host.live_blocks);
    else if (grown > CYCLE_GROWTH_BYTES)
        kit_fail(k, "%zu bytes more than before: free in close what open allocates", grown);
    else
        kit_pass(k, "%d times; no new file descriptors and threads, %zu bytes more", CYCLES, grown);
}

void kit_group_cycles(kit *k)
{
    static const kit_rule RULES[] = {{"loaded and closed x100", check_cycles, NULL}};
    kit_run_rules(k, RULES, 1);
}
