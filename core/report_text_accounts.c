/* The printed report's accounts: where creation and the last run spent their time, and which plans there are.
 */
#include "report_print.h"

#define LISTED_PLANS 12u

/* ---- creation -------------------------------------------------------------------------------- */

static void print_ms(double ms, const char *name, double total_ms, gt_text *text)
{
    char share[24];
    gt_print_room room;
    gt_text_append(text, "  ", 2);
    gt_print_left(text, name, 30);
    gt_print_right(text, gt_print_time(1e3 * ms, &room), 10);
    share[0] = 0;
    if (total_ms > 0)
        snprintf(share, sizeof share, "%5.1f %%", 100 * ms / total_ms);
    gt_print_last(text, share, 10);
}

static void print_creation(const json_t *document, gt_text *text)
{
    size_t k, m;
    json_t *row, *part;
    char name[120];
    const json_t *creation = json_object_get(document, "creation");
    double total = gt_report_number_at(creation, "total_ms");
    gt_print_heading(text, "Creation");
    json_array_foreach(json_object_get(creation, "before"), k, row)
    {
        snprintf(name, sizeof name, "before: load %.60s", gt_report_text_at(row, "provider"));
        print_ms(gt_report_number_at(row, "ms"), name, 0, text);
    }
    json_array_foreach(json_object_get(creation, "phases"), k, row)
    {
        print_ms(gt_report_number_at(row, "ms"), gt_report_text_at(row, "name"), total, text);
        json_array_foreach(json_object_get(row, "providers"), m, part)
        {
            snprintf(name, sizeof name, "    in %.60s", gt_report_text_at(part, "provider"));
            print_ms(gt_report_number_at(part, "ms"), name, 0, text);
        }
    }
    print_ms(gt_report_number_at(creation, "remainder_ms"), "remainder", total, text);
    print_ms(total, "in all", 0, text);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void print_run_times(const json_t *run, gt_text *text)
{
    char line[400];
    gt_print_room a, b, c;
    const json_t *steady = json_object_get(run, "steady");
    snprintf(line, sizeof line, "%.0f on %.0f threads; first %s, second %s, last %s",
             gt_report_number_at(run, "finished"), gt_report_number_at(run, "threads"),
             gt_print_us(run, "first_us", &a), gt_print_us(run, "second_us", &b),
             gt_print_us(run, "last_us", &c));
    gt_print_wrapped(text, "  runs: ", "      ", line);
    int used = snprintf(line, sizeof line, "%.0f that made no plan: ", gt_report_number_at(steady, "count"));
    if (gt_report_number_at(steady, "count") > 0)
        snprintf(line + used, sizeof line - (size_t)used, "half within %s, nine in ten within %s, best %s",
                 gt_print_us(steady, "p50_us", &a), gt_print_us(steady, "p90_us", &b),
                 gt_print_us(steady, "min_us", &c));
    else
        snprintf(line + used, sizeof line - (size_t)used, "not measured");
    gt_print_wrapped(text, "  later runs: ", "      ", line);
}

static void print_lock_waits(const json_t *run, gt_text *text)
{
    size_t k;
    json_t *row;
    char line[300];
    gt_print_room a, b, c, d;
    json_array_foreach(json_object_get(run, "lock_waits"), k, row)
    {
        snprintf(line, sizeof line,
                 "%.60s takes one caller at a time; the last run waited %s x, %s; all runs %s x, %s",
                 gt_report_text_at(row, "provider"), gt_print_count(row, "count", &a),
                 gt_print_us(row, "us", &b), gt_print_count(row, "total_count", &c),
                 gt_print_us(row, "total_us", &d));
        gt_print_wrapped(text, "  ", "      ", line);
    }
}

static void print_account(const json_t *account, gt_text *text)
{
    size_t k;
    json_t *row;
    char line[400];
    gt_print_room a, b, c, d;
    double wall = gt_report_number_at(account, "wall_us");
    if (!json_is_number(json_object_get(account, "remainder_us"))) {
        gt_text_printf(text, "  where the last one spent its time: not measured (--option timing=events)\n");
        return;
    }
    snprintf(line, sizeof line,
             "where the last one spent its time, timing=%s:", gt_report_text_at(account, "mode"));
    gt_print_wrapped(text, "  ", "      ", line);
    json_array_foreach(json_object_get(account, "classes"), k, row)
    {
        snprintf(line, sizeof line, "    %.20s, %.0f x", gt_report_text_at(row, "name"),
                 gt_report_number_at(row, "count"));
        if (gt_report_number_at(row, "count") == 0)
            *strchr(line, ',') = 0;
        print_ms(gt_report_number_at(row, "us") / 1e3, line, wall / 1e3, text);
    }
    print_ms(gt_report_number_at(account, "remainder_us") / 1e3, "    remainder", wall / 1e3, text);
    print_ms(wall / 1e3, "    in all", 0, text);
    json_array_foreach(json_object_get(account, "devices"), k, row)
    {
        snprintf(line, sizeof line, "meanwhile %.60s, by its own clock: %s programs %s, %s copies %s",
                 gt_report_text_at(row, "domain"), gt_print_count(row, "programs", &a),
                 gt_print_us(row, "programs_us", &b), gt_print_count(row, "copies", &c),
                 gt_print_us(row, "copies_us", &d));
        gt_print_wrapped(text, "    ", "      ", line);
    }
    snprintf(line, sizeof line, "the measuring itself: %.0f readings of the clock at %.0f ns, about %s",
             gt_report_number_at(account, "stamps"), gt_report_number_at(account, "stamp_ns"),
             gt_print_us(account, "overhead_us", &a));
    gt_print_wrapped(text, "    ", "      ", line);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void print_memory(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    char line[400];
    gt_print_room a, b, c, d;
    const json_t *memory = json_object_get(document, "memory");
    gt_print_heading(text, "Memory");
    snprintf(line, sizeof line,
             "the session holds %s: %s of constants, %s that providers keep, %s of its runs",
             gt_print_bytes(memory, "held_bytes", &a), gt_print_bytes(memory, "constant_bytes", &b),
             gt_print_bytes(memory, "provider_bytes", &c), gt_print_bytes(memory, "run_bytes", &d));
    gt_print_wrapped(text, "  ", "      ", line);
    json_array_foreach(json_object_get(memory, "classes"), k, row)
    {
        if (gt_report_number_at(row, "bytes") == 0)
            continue;
        snprintf(line, sizeof line, "%.60s holds, for all sessions, %s of %.31s in %.60s",
                 gt_report_text_at(row, "provider"), gt_print_bytes(row, "bytes", &a),
                 gt_report_text_at(row, "class"), gt_report_text_at(row, "domain"));
        gt_print_wrapped(text, "  ", "      ", line);
    }
    json_array_foreach(json_object_get(memory, "packed"), k, row)
    {
        snprintf(line, sizeof line, "%.60s shares %s packed constants, %s, with %s users",
                 gt_report_text_at(row, "plugin"), gt_print_count(row, "forms", &a),
                 gt_print_bytes(row, "bytes", &b), gt_print_count(row, "users", &c));
        gt_print_wrapped(text, "  ", "      ", line);
    }
    json_array_foreach(json_object_get(document, "domains"), k, row)
    {
        if (!json_is_number(json_object_get(row, "memory_total_bytes")))
            continue;
        snprintf(line, sizeof line, "%.60s has %s free of %s", gt_report_text_at(row, "name"),
                 gt_print_bytes(row, "memory_free_bytes", &a), gt_print_bytes(row, "memory_total_bytes", &b));
        gt_print_wrapped(text, "  ", "      ", line);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* ", batch = 4": a second symbol of one name is worth a word only where its value is another. */
static size_t print_key(const json_t *key, char *line, size_t bytes)
{
    size_t used = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)key, name, value)
    {
        char base[200];
        const char *mark = strstr(name, " #");
        snprintf(base, sizeof base, "%.*s", mark ? (int)(mark - name) : 0, name);
        if (used + 160 > bytes || (mark && json_equal(json_object_get(key, base), value)))
            continue;
        if (json_is_number(value))
            used += (size_t)snprintf(line + used, bytes - used, ", %.80s = %.17g", name,
                                     json_number_value(value));
        else
            used += (size_t)snprintf(line + used, bytes - used, ", %.80s not known before", name);
    }
    return used;
}

static void print_plan(const json_t *row, gt_text *text)
{
    char line[1200];
    gt_print_room room, own;
    const json_t *reason = json_object_get(row, "reason");
    size_t used = (size_t)snprintf(line, sizeof line, "plan %.0f, graph %.0f",
                                   gt_report_number_at(row, "number"), gt_report_number_at(row, "graph"));
    used += print_key(json_object_get(row, "key"), line + used, 700);
    used += (size_t)snprintf(line + used, sizeof line - used, ": made in %s (%s of it core's), ran %.0f x",
                             gt_print_us(row, "bind_us", &room), gt_print_us(row, "core_bind_us", &own),
                             gt_report_number_at(row, "executions_total"));
    if (strcmp(gt_report_text_at(reason, "code"), "new_size") == 0)
        snprintf(line + used, sizeof line - used, "; made because %.80s changed",
                 gt_report_text_at(reason, "symbol"));
    gt_print_wrapped(text, "  ", "      ", line);
}

static void print_plans(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    char line[300];
    const json_t *plans = json_object_get(document, "plans"), *rows = json_object_get(plans, "rows");
    const json_t *lookups = json_object_get(json_object_get(document, "run"), "plan_lookups");
    gt_print_heading(text, "Plans: one for each set of sizes");
    int used = snprintf(line, sizeof line, "%.0f made, %.0f kept of at most %.0f, %.0f given up",
                        gt_report_number_at(plans, "made"), gt_report_number_at(plans, "kept"),
                        gt_report_number_at(plans, "limit"), gt_report_number_at(plans, "evicted"));
    if (lookups)
        snprintf(line + used, sizeof line - (size_t)used,
                 "; looked up by this run: %.0f as before, %.0f known, %.0f from the session, %.0f made anew",
                 gt_report_number_at(lookups, "same"), gt_report_number_at(lookups, "held"),
                 gt_report_number_at(lookups, "cached"), gt_report_number_at(lookups, "made"));
    gt_print_wrapped(text, "  ", "      ", line);
    json_array_foreach(rows, k, row) if (k < LISTED_PLANS) print_plan(row, text);
    if (json_array_size(rows) > LISTED_PLANS)
        gt_text_printf(text, "  and %zu more in the JSON, under \"plans\"\n",
                       json_array_size(rows) - LISTED_PLANS);
}

void gt_print_accounts(const json_t *document, gt_text *text)
{
    const json_t *run = json_object_get(document, "run");
    print_creation(document, text);
    gt_print_heading(text, "Runs");
    if (json_is_object(run)) {
        print_run_times(run, text);
        print_lock_waits(run, text);
        print_account(json_object_get(run, "account"), text);
    } else {
        gt_text_printf(text, "  not measured: nothing has run\n");
    }
    print_plans(document, text);
    print_memory(document, text);
}
