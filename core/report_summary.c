/* The lines that lead a report: at most five findings, each with its time, its share, and the row it rests
 * on. */
#include "report_print.h"

#define MAX_LINES 5

/* us and share may be NAN. */
GANTRY_PRINTF(5, 6)
static void add_line(json_t *lines, double us, double share, const char *evidence, const char *format, ...)
{
    if (json_array_size(lines) >= MAX_LINES)
        return;
    char text[2200]; /* an error of several lines fits */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_t *line = json_pack("{s:o, s:s}", "text", gt_report_string(text), "evidence", evidence);
    json_object_set_new(line, "us", gt_report_number(us));
    json_object_set_new(line, "share", gt_report_number(share));
    json_array_append_new(lines, line);
}

static const double nothing = __builtin_nan("");

static void say_missing_providers(const json_t *document, json_t *lines)
{
    size_t k;
    json_t *row;
    json_array_foreach(json_object_get(document, "providers"), k,
                       row) if (json_is_true(json_object_get(row, "requested")) &&
                                json_is_false(json_object_get(row, "created")))
        add_line(lines, nothing, nothing, "providers", "provider %s was asked for and is not there: %.500s",
                 gt_report_text_at(row, "name"), gt_report_text_at(row, "detail"));
}

static double wall_us(const json_t *document)
{
    const json_t *account = json_object_get(json_object_get(document, "run"), "account");
    const json_t *wall = json_object_get(account, "wall_us");
    return json_is_number(wall) ? json_number_value(wall) : nothing;
}

/* ---- where, and how long --------------------------------------------------------------------- */

static void say_where(const json_t *document, json_t *lines)
{
    char text[500] = "";
    size_t k, used = 0;
    json_t *row;
    const json_t *nodes = json_object_get(json_object_get(document, "totals"), "nodes");
    double total = 0;
    json_array_foreach(json_object_get(document, "providers"), k, row)
    {
        double assigned = gt_report_number_at(row, "nodes_assigned");
        if (assigned > 0 && used + 100 < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.0f on %.64s", used ? ", " : "",
                                     assigned, gt_report_text_at(row, "name"));
        total += assigned;
    }
    static const struct {
        const char *state, *text;
    } OTHERS[] = {{"at_bind", "are shape arithmetic, done when a shape is bound"},
                  {"removed", "were removed by passes"},
                  {"waiting", "are in branches not chosen so far"},
                  {"unplaced", "have no provider"},
                  {"not_placed", "were not placed"}};
    for (size_t m = 0; m < sizeof OTHERS / sizeof *OTHERS; m++)
        if (gt_report_number_at(nodes, OTHERS[m].state) > 0 && used + 80 < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.0f %s", used ? "; " : "",
                                     gt_report_number_at(nodes, OTHERS[m].state), OTHERS[m].text);
    double inserted = gt_report_number_at(nodes, "inserted");
    char extra[60] = "";
    if (inserted > 0)
        snprintf(extra, sizeof extra, " and %.0f that passes inserted", inserted);
    add_line(lines, nothing, nothing, "totals.nodes", "%.0f of the %.0f nodes of the file%s run: %s",
             total - inserted, gt_report_number_at(nodes, "in_file"), extra, text);
}

/* What making plans took, when only one run has shown what it costs. */
static double plans_us(const json_t *document)
{
    size_t k;
    json_t *row;
    double us = 0;
    json_array_foreach(json_object_get(json_object_get(document, "plans"), "rows"), k, row) us +=
        gt_report_number_at(row, "executions") > 0 ? gt_report_number_at(row, "bind_us") : 0;
    const json_t *lookups = json_object_get(json_object_get(document, "run"), "plan_lookups");
    return gt_report_number_at(lookups, "made") > 0 ? us : 0;
}

static void say_times(const json_t *document, json_t *lines)
{
    const json_t *run = json_object_get(document, "run"), *steady = json_object_get(run, "steady");
    double estimate = gt_report_number_at(json_object_get(document, "totals"), "chosen_us");
    double first = gt_report_number_at(run, "first_us"), p50 = gt_report_number_at(steady, "p50_us");
    double plans = gt_report_number_at(run, "finished") == 1 ? plans_us(document) : 0;
    char said[64] = "", made[64] = "";
    gt_print_room a, b;
    if (estimate > 0)
        snprintf(said, sizeof said, "; estimated were %s", gt_print_time(estimate, &a));
    if (plans > 0)
        snprintf(made, sizeof made, ", %s of it to make a plan", gt_print_time(plans, &a));
    if (p50 > 0)
        add_line(lines, p50, nothing, "run", "a run takes %s (half of the last %.0f), the first took %s%s",
                 gt_print_time(p50, &a), gt_report_number_at(steady, "kept"), gt_print_time(first, &b), said);
    else if (first > 0)
        add_line(lines, first, nothing, "run", "the first run took %s%s%s; run more for a steady time",
                 gt_print_time(first, &a), made, said);
    else if (estimate > 0)
        add_line(lines, estimate, nothing, "totals", "estimated %s a run; not measured",
                 gt_print_time(estimate, &a));
}

/* ---- crossings ------------------------------------------------------------------------------- */

/* The nodes that better providers refused, for the line about crossings: they are what makes islands. */
static void list_causes(const json_t *document, char *text, size_t bytes)
{
    size_t k, used = 0, count = 0;
    json_t *row;
    json_array_foreach(json_object_get(document, "nodes"), k, row)
    {
        const json_t *first = json_array_get(json_object_get(row, "candidates"), 0);
        if (strcmp(gt_report_text_at(row, "state"), "placed") != 0 || !first ||
            !gt_report_text_at(first, "reason")[0])
            continue;
        if (++count > 4 || used + 160 > bytes)
            continue;
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%.60s (%.30s: %.40s)",
                             used ? ", " : "; off the first provider are ", gt_report_text_at(row, "name"),
                             gt_report_text_at(row, "op"), gt_report_text_at(first, "reason"));
    }
    if (count > 4 && used + 32 < bytes)
        snprintf(text + used, bytes - used, " and %zu more", count - 4);
}

static void say_crossings(const json_t *document, json_t *lines)
{
    size_t k, count = 0;
    json_t *row;
    double estimate = 0, typical = 0, measured = 0;
    bool timed = wall_us(document) > 0;
    json_array_foreach(json_object_get(document, "boundaries"), k, row)
    {
        if (strcmp(gt_report_text_at(row, "type"), "device") != 0 ||
            strcmp(gt_report_text_at(row, "scope"), "inner") != 0)
            continue;
        count++;
        estimate += gt_report_number_at(row, "estimate_us");
        typical += gt_report_number_at(row, "bytes_typical");
        measured += gt_report_number_at(row, "us");
        timed = timed && json_is_number(json_object_get(row, "us"));
    }
    if (!count)
        return;
    double us = timed ? measured : estimate;
    double total =
        timed ? wall_us(document) : gt_report_number_at(json_object_get(document, "totals"), "chosen_us");
    char share[48] = "", causes[600] = "";
    if (total > 0)
        snprintf(share, sizeof share, ", %.0f %% of it", 100 * us / total);
    list_causes(document, causes, sizeof causes);
    gt_print_room room;
    add_line(lines, us, total > 0 ? us / total : nothing, "boundaries",
             "%zu crossing%s between devices move %.0f bytes, %s %s a run%s%s", count, count == 1 ? "" : "s",
             typical, timed ? "measured" : "estimated", gt_print_time(us, &room), share, causes);
}

/* ---- decisions and kernels ------------------------------------------------------------------- */

static void say_worth(const json_t *document, json_t *lines)
{
    size_t k, m, count = 0;
    json_t *row, *verdict, *first = NULL;
    const char *node = "";
    json_array_foreach(json_object_get(document, "nodes"), k, row)
        json_array_foreach(json_object_get(row, "candidates"), m,
                           verdict) if (strcmp(gt_report_text_at(verdict, "reason"), "island_not_worth") == 0)
    {
        count++;
        if (!first) {
            first = verdict;
            node = gt_report_text_at(row, "name");
        }
    }
    gt_print_room there, here, boundary;
    if (first)
        add_line(
            lines, gt_report_number_at(first, "boundary_us"), nothing, "nodes",
            "%zu node%s kept off %.64s: the boundaries cost more than the gain (%.100s: %s there, %s here, "
            "%s of boundary)",
            count, count == 1 ? " was" : "s were", gt_report_text_at(first, "provider"), node,
            gt_print_us(first, "estimate_here_us", &there), gt_print_us(first, "estimate_there_us", &here),
            gt_print_us(first, "boundary_us", &boundary));
}

static void say_precision(const json_t *document, json_t *lines)
{
    double below = gt_report_number_at(json_object_get(document, "totals"), "nodes_below_model_precision");
    if (below > 0)
        add_line(lines, nothing, nothing, "nodes",
                 "%.0f nodes run below the model's precision, because a provider that does so was asked for",
                 below);
}

static bool is_slow(const char *kernel)
{
    return strncmp(kernel, "gemm:", 5) == 0 || strncmp(kernel, "ref", 3) == 0;
}

static void say_slow_kernels(const json_t *document, json_t *lines)
{
    size_t k, count = 0;
    json_t *row, *first = NULL;
    json_array_foreach(json_object_get(document, "kernels"), k,
                       row) if (is_slow(gt_report_text_at(row, "kernel")))
    {
        count++;
        first = first ? first : row;
    }
    if (!first)
        return;
    const char *node = json_string_value(json_array_get(json_object_get(first, "nodes"), 0));
    add_line(lines, nothing, nothing, "kernels",
             "%zu kernels run in a slow implementation (%.60s, first for %.100s)", count,
             gt_report_text_at(first, "kernel"), node ? node : "no node");
}

/* The implementation that most of a timed run went to. */
static void say_largest(const json_t *document, json_t *lines)
{
    size_t k, count = 0;
    json_t *row, *sums = json_object();
    const char *key, *largest = "";
    double us = 0, wall = wall_us(document);
    json_array_foreach(json_object_get(document, "kernels"), k, row)
    {
        char name[300];
        snprintf(name, sizeof name, "%.120s (%.120s)", gt_report_text_at(row, "op"),
                 gt_report_text_at(row, "kernel"));
        double sum = gt_report_number_at(sums, name) + gt_report_number_at(row, "us");
        json_object_set_new_nocheck(sums, name, json_real(sum));
    }
    json_object_foreach(sums, key, row) if (json_number_value(row) > us)
    {
        us = json_number_value(row);
        largest = key;
    }
    json_array_foreach(json_object_get(document, "kernels"), k, row)
    {
        size_t length = strlen(gt_report_text_at(row, "op"));
        count += strncmp(largest, gt_report_text_at(row, "op"), length) == 0 && largest[length] == ' ' &&
                 strncmp(largest + length + 2, gt_report_text_at(row, "kernel"),
                         strlen(gt_report_text_at(row, "kernel"))) == 0;
    }
    gt_print_room room;
    if (us > 0 && wall > 0)
        add_line(lines, us, us / wall, "kernels", "%.0f %% of the last run is %s in %zu kernel%s, %s",
                 100 * us / wall, largest, count, count == 1 ? "" : "s", gt_print_time(us, &room));
    json_decref(sums);
}

static void say_wrong_numbers(const json_t *document, json_t *lines)
{
    const json_t *check = json_object_get(document, "numeric_check");
    const json_t *first = json_array_get(json_object_get(check, "rows"), 0);
    if (first)
        add_line(lines, nothing, nothing, "numeric_check",
                 "numbers go wrong at %.100s, from %.100s (%.60s) on %.60s: %s; %.0f of %.0f tensors differ "
                 "from the CPU's",
                 gt_report_text_at(first, "tensor"), gt_report_text_at(first, "producer"),
                 gt_report_text_at(first, "op"), gt_report_text_at(first, "provider"),
                 gt_report_text_at(first, "finding"), gt_report_number_at(check, "wrong"),
                 gt_report_number_at(check, "checked"));
}

json_t *gt_report_summary(const gt_report_scope *scope, const json_t *document)
{
    json_t *lines = json_array();
    if (scope->session->failure.code)
        add_line(lines, nothing, nothing, "status", "the session could not be created:%s%s",
                 strchr(scope->session->failure.message, '\n') ? "\n" : " ", scope->session->failure.message);
    say_wrong_numbers(document, lines);
    say_missing_providers(document, lines);
    say_where(document, lines);
    say_crossings(document, lines);
    say_times(document, lines);
    say_worth(document, lines);
    say_precision(document, lines);
    say_slow_kernels(document, lines);
    say_largest(document, lines);
    return lines;
}
