/* The printed report's tables: partitions, boundaries, kernels, rewrites and notes. Rows that say the same
 * are one. */
#include "report_print.h"

#define LISTED_PHASES 6u /* of a partition */
#define LISTED_PHASE_MS 0.1
#define LISTED_ROWS 40u /* of partitions and of boundaries; the JSON has all */

static void say_rest(size_t count, const char *name, gt_text *text)
{
    if (count > LISTED_ROWS)
        gt_text_printf(text, "  and %zu more in the JSON, under \"%s\"\n", count - LISTED_ROWS, name);
}

/* ---- partitions ------------------------------------------------------------------------------ */

/* What the provider said it spent its time on, where that is worth a line. */
static void print_phases(const json_t *row, gt_text *text)
{
    size_t k, listed = 0;
    json_t *phase;
    char line[400];
    gt_print_room room;
    json_array_foreach(json_object_get(row, "phases"), k, phase)
    {
        const char *detail = gt_report_text_at(phase, "detail");
        if (gt_report_number_at(phase, "ms") < LISTED_PHASE_MS || listed == LISTED_PHASES)
            continue;
        listed++;
        snprintf(line, sizeof line, "%.20s, %.60s: %s%s%.200s", gt_report_text_at(phase, "during"),
                 gt_report_text_at(phase, "name"),
                 gt_print_time(1e3 * gt_report_number_at(phase, "ms"), &room), *detail ? ", " : "", detail);
        gt_print_wrapped(text, "              ", "                  ", line);
    }
}

/* Whether the program was compiled in another process, and why it was not. */
static void print_cache(const json_t *row, gt_text *text)
{
    char line[1600], kept[400] = "";
    gt_print_room bytes, us;
    const json_t *cache = json_object_get(row, "cache");
    const char *not_kept = gt_report_text_at(cache, "not_kept");
    if (!json_is_object(cache))
        return;
    gt_print_bytes(cache, "bytes", &bytes);
    if (strcmp(gt_report_text_at(cache, "state"), "hit") == 0)
        snprintf(line, sizeof line, "cache: hit, %s read in %s, %.200s", bytes.text,
                 gt_print_us(cache, "lookup_us", &us), gt_report_text_at(cache, "file"));
    else {
        if (*not_kept)
            snprintf(kept, sizeof kept, "; not kept: %.300s", not_kept);
        snprintf(line, sizeof line, "cache: %.20s, %.900s%s", gt_report_text_at(cache, "state"),
                 gt_report_text_at(cache, "detail"), kept);
    }
    gt_print_wrapped(text, "              ", "                  ", line);
}

static void print_cache_total(const json_t *rows, gt_text *text)
{
    size_t k, hits = 0, others = 0;
    json_t *row;
    json_array_foreach(rows, k, row)
    {
        const json_t *cache = json_object_get(row, "cache");
        bool hit = strcmp(gt_report_text_at(cache, "state"), "hit") == 0;
        hits += hit;
        others += json_is_object(cache) && !hit;
    }
    if (hits + others)
        gt_text_printf(text, "  cache of programs: %zu loaded, %zu compiled\n", hits, others);
}

static void print_partitions(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    gt_print_room room;
    const json_t *rows = json_object_get(document, "partitions");
    gt_print_heading(text, "Partitions");
    gt_text_printf(text, "  graph part. provider    nodes  in out  compiled in    last run  ran in\n");
    json_array_foreach(rows, k, row)
    {
        char number[64];
        if (k == LISTED_ROWS)
            break;
        gt_text_append(text, "  ", 2);
        gt_print_right(text, gt_print_count(row, "graph", &room), 5);
        gt_print_right(text, gt_print_count(row, "id", &room), 5);
        gt_print_left(text, gt_report_text_at(row, "provider"), 10);
        static const char *const LISTS[] = {"nodes", "inputs", "outputs"};
        for (size_t m = 0; m < 3; m++) {
            snprintf(number, sizeof number, "%zu", json_array_size(json_object_get(row, LISTS[m])));
            gt_print_right(text, number, m ? 3 : 6);
        }
        bool control = json_is_true(json_object_get(row, "control"));
        gt_print_right(text, control ? "control" : gt_print_us(row, "compile_us", &room), 12);
        if (json_is_number(json_object_get(row, "executions")))
            snprintf(number, sizeof number, "%s x", gt_print_count(row, "executions", &room));
        else
            snprintf(number, sizeof number, "-");
        gt_print_right(text, number, 11);
        gt_text_append(text, " ", 1);
        gt_print_last(text, gt_print_us(row, "us", &room), 14);
        print_phases(row, text);
        print_cache(row, text);
    }
    say_rest(json_array_size(rows), "partitions", text);
    print_cache_total(rows, text);
}

/* ---- boundaries ------------------------------------------------------------------------------ */

static void print_boundary(const json_t *row, gt_text *text)
{
    char way[120], count[40];
    gt_print_room room;
    snprintf(way, sizeof way, "%.40s -> %.40s", gt_report_text_at(row, "source"),
             gt_report_text_at(row, "target"));
    snprintf(count, sizeof count, "%s x", gt_print_count(row, "executions", &room));
    bool counted = json_is_number(json_object_get(row, "executions"));
    gt_text_append(text, "  ", 2);
    gt_print_left(text, gt_report_text_at(row, "tensor"), 28);
    gt_print_left(text, gt_report_text_at(row, "type"), 9);
    gt_print_left(text, way, 18);
    gt_print_right(text, counted ? count : "-", 6);
    gt_print_right(text, gt_print_bytes(row, counted ? "bytes" : "bytes_typical", &room), 9);
    gt_print_right(text, gt_print_us(row, "estimate_us", &room), 9);
    gt_print_last(text, gt_print_us(row, "us", &room), 12);
}

static void print_boundary_total(const json_t *document, gt_text *text)
{
    char line[500];
    gt_print_room share, bytes, us, copied;
    const json_t *total = json_object_get(json_object_get(document, "totals"), "boundaries");
    bool run = json_is_number(json_object_get(total, "bytes"));
    int used = snprintf(line, sizeof line, "%.0f between devices", gt_report_number_at(total, "device"));
    if (run)
        used += snprintf(line + used, sizeof line - (size_t)used,
                         "; the last run made %.0f copies of %s in %s (%s of it, %s)",
                         gt_report_number_at(total, "executions"), gt_print_bytes(total, "bytes", &bytes),
                         gt_print_us(total, "us", &us), gt_print_share(total, "share", &share),
                         gt_report_text_at(total, "share_source"));
    if (gt_report_number_at(total, "remainder_bytes") != 0)
        snprintf(line + used, sizeof line - (size_t)used, "; %s are in no row",
                 gt_print_bytes(total, "remainder_bytes", &copied));
    gt_print_wrapped(text, "  in all: ", "      ", line);
}

static void print_boundaries(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    const json_t *rows = json_object_get(document, "boundaries");
    gt_print_heading(text, "Boundaries: what crosses between devices, or changes precision or layout");
    if (!json_array_size(rows)) {
        gt_text_printf(text, "  none: inputs, outputs and all between them stay where they are\n");
        return;
    }
    gt_text_printf(text, "  tensor                       kind      from -> to         copies     bytes "
                         "estimate  took\n");
    json_array_foreach(rows, k, row)
    {
        if (k == LISTED_ROWS)
            break;
        print_boundary(row, text);
    }
    say_rest(json_array_size(rows), "boundaries", text);
    print_boundary_total(document, text);
}

/* ---- capture --------------------------------------------------------------------------------- */

static void print_capture(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    const json_t *capture = json_object_get(document, "capture"),
                 *rows = json_object_get(capture, "blockers");
    if (!json_is_boolean(json_object_get(capture, "possible")))
        return;
    gt_print_heading(text, "Nodes that keep device work from being recorded once and replayed");
    if (json_array_size(rows) == 0)
        gt_text_printf(text, "  none\n");
    json_array_foreach(rows, k, row)
    {
        char line[400];
        if (k == LISTED_ROWS)
            break;
        snprintf(line, sizeof line, "%.200s (%.60s): %.100s", gt_report_text_at(row, "node"),
                 gt_report_text_at(row, "op"), gt_report_text_at(row, "detail"));
        gt_print_wrapped(text, "  ", "      ", line);
    }
    say_rest(json_array_size(rows), "capture", text);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static json_t *group_kernels(const json_t *kernels)
{
    size_t k;
    json_t *row, *groups = json_object();
    json_array_foreach(kernels, k, row)
    {
        char key[900];
        snprintf(key, sizeof key, "%.60s\n%.200s\n%.200s\n%.80s\n%.80s\n%.40s",
                 gt_report_text_at(row, "provider"), gt_report_text_at(row, "op"),
                 gt_report_text_at(row, "kernel"), gt_report_text_at(row, "isa"),
                 gt_report_text_at(row, "layout"), gt_report_text_at(row, "precision_in"));
        gt_print_group(groups, key, row);
    }
    return groups;
}

static void print_kernel_group(const json_t *group, double wall_us, gt_text *text)
{
    char took[80];
    gt_print_room room;
    const json_t *first = json_object_get(group, "first"), *us = json_object_get(group, "us");
    gt_text_append(text, "  ", 2);
    gt_print_right(text, gt_print_count(group, "count", &room), 5);
    gt_text_append(text, "x ", 2);
    gt_print_left(text, gt_report_text_at(first, "op"), 24);
    gt_print_left(text, gt_report_text_at(first, "kernel"), 22);
    gt_print_left(text, gt_report_text_at(first, "layout"), 10);
    gt_print_left(text, gt_report_text_at(first, "precision_in"), 8);
    if (json_is_number(us) && wall_us > 0)
        snprintf(took, sizeof took, "%s %4.1f %%", gt_print_time(json_number_value(us), &room),
                 100 * json_number_value(us) / wall_us);
    else
        snprintf(took, sizeof took, "%s", gt_print_us(group, "us", &room));
    gt_print_last(text, took, 20);
}

static void print_kernels(const json_t *document, gt_text *text)
{
    const char *key;
    json_t *group;
    const json_t *kernels = json_object_get(document, "kernels");
    double wall_us =
        gt_report_number_at(json_object_get(json_object_get(document, "run"), "account"), "wall_us");
    gt_print_heading(text, "Kernels, by operator and implementation");
    if (!json_array_size(kernels)) {
        gt_text_printf(text, "  none yet: they are chosen when a shape is bound\n");
        return;
    }
    gt_text_printf(text,
                   "         operator                 kernel                 layout     computes took\n");
    json_t *groups = group_kernels(kernels);
    json_object_foreach(groups, key, group) print_kernel_group(group, wall_us, text);
    json_decref(groups);
}

/* ---- what passes and fusions did ------------------------------------------------------------- */

static void group_records(const json_t *rows, const char *name, const char *state, json_t *groups)
{
    size_t k;
    json_t *row;
    json_array_foreach(rows, k, row)
    {
        char key[700];
        const json_t *applied = json_object_get(row, "applied");
        snprintf(key, sizeof key, "%.60s\n%.100s\n%.60s\n%.300s", name ? gt_report_text_at(row, name) : "",
                 gt_report_text_at(row, "rule"),
                 applied ? json_is_true(applied) ? "applied" : "skipped" : gt_report_text_at(row, state),
                 gt_report_text_at(row, "guard"));
        gt_print_group(groups, key, row);
    }
}

/* Applied ones in one line; of the others the guard and an example are what the user wants. */
static void print_records(const json_t *groups, const char *who, gt_text *text)
{
    char line[2000] = "";
    size_t used = 0;
    const char *key;
    json_t *group;
    json_object_foreach((json_t *)groups, key, group)
    {
        const json_t *first = json_object_get(group, "first");
        const char *state = strstr(strchr(key, '\n') + 1, "\n") + 1;
        if (strncmp(state, "applied", 7) == 0 && used + 150 < sizeof line)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%.80s %.0f x%s", used ? ", " : "",
                                     gt_report_text_at(first, "rule"), gt_report_number_at(group, "count"),
                                     strncmp(state, "applied_with_copy", 17) == 0 ? " with a copy" : "");
    }
    if (used)
        gt_print_wrapped(text, who, "      ", line);
    json_object_foreach((json_t *)groups, key, group)
    {
        const json_t *first = json_object_get(group, "first");
        const char *state = strstr(strchr(key, '\n') + 1, "\n") + 1;
        if (strncmp(state, "applied", 7) == 0)
            continue;
        const char *node = json_object_get(first, "applied")
                               ? json_string_value(json_array_get(json_object_get(first, "nodes"), 0))
                               : gt_report_text_at(first, "node");
        snprintf(line, sizeof line, "%.80s %s %.0f x: %.300s (%.100s)", gt_report_text_at(first, "rule"),
                 strncmp(state, "partly", 6) == 0 ? "partly" : "not applied",
                 gt_report_number_at(group, "count"), gt_report_text_at(first, "guard"), node ? node : "-");
        gt_print_wrapped(text, who, "      ", line);
    }
}

static void print_rewrites(const json_t *document, gt_text *text)
{
    json_t *rewrites = json_object(), *fusions = json_object();
    group_records(json_object_get(document, "rewrites"), NULL, "state", rewrites);
    group_records(json_object_get(document, "fusions"), "provider", NULL, fusions);
    if (json_object_size(rewrites) + json_object_size(fusions))
        gt_print_heading(text, "Rewrites of the graph, and fusions of the providers");
    print_records(rewrites, "  graph: ", text);
    print_records(fusions, "  fused: ", text);
    json_decref(rewrites);
    json_decref(fusions);
}

static void print_numeric(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    const json_t *check = json_object_get(document, "numeric_check"), *rows = json_object_get(check, "rows");
    if (!json_is_integer(json_object_get(check, "checked")))
        return;
    gt_print_heading(text, "Numeric check: programs computed again by the CPU on the same inputs");
    gt_text_printf(text, "  %.0f tensors are right, %.0f are not, %.0f could not be checked\n",
                   gt_report_number_at(check, "checked") - gt_report_number_at(check, "wrong"),
                   gt_report_number_at(check, "wrong"), gt_report_number_at(check, "unchecked"));
    json_array_foreach(rows, k, row)
    {
        char line[700];
        snprintf(line, sizeof line,
                 "%.120s from %.120s (%.60s) on %.60s: %s, %.0f of %.0f elements; largest error %.3g where "
                 "%.3g is expected at most",
                 gt_report_text_at(row, "tensor"), gt_report_text_at(row, "producer"),
                 gt_report_text_at(row, "op"), gt_report_text_at(row, "provider"),
                 gt_report_text_at(row, "finding"), gt_report_number_at(row, "differing_elements"),
                 gt_report_number_at(row, "elements"), gt_report_number_at(row, "max_error"),
                 gt_report_number_at(row, "largest_expected"));
        gt_print_wrapped(text, "  ", "      ", line);
    }
}

static void print_notes(const json_t *document, gt_text *text)
{
    const char *key;
    json_t *row, *group, *groups = json_object();
    size_t k;
    json_array_foreach(json_object_get(document, "notes"), k, row)
        gt_print_group(groups, gt_report_text_at(row, "code"), row);
    if (json_object_size(groups))
        gt_print_heading(text, "Notes");
    json_object_foreach(groups, key, group)
    {
        char line[900], more[48] = "";
        const json_t *first = json_object_get(group, "first");
        double count = gt_report_number_at(group, "count");
        if (count > 1)
            snprintf(more, sizeof more, " (and %.0f more)", count - 1);
        snprintf(line, sizeof line, "%.60s%s%.200s: %.400s%s", key,
                 *gt_report_text_at(first, "node") ? " " : "", gt_report_text_at(first, "node"),
                 gt_report_text_at(first, "text"), more);
        gt_print_wrapped(text, "  ", "      ", line);
    }
    json_decref(groups);
}

void gt_print_tables(const json_t *document, gt_text *text)
{
    if (json_array_size(json_object_get(document, "partitions"))) {
        print_partitions(document, text);
        print_boundaries(document, text);
        gt_print_ledger(document, text);
        print_capture(document, text);
        print_kernels(document, text);
    }
    print_numeric(document, text);
    print_rewrites(document, text);
    print_notes(document, text);
}
