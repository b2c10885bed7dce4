/* The lines that lead a report: at most five findings, each with its time, its share, and the row it rests
 * on. */
#include "report.h"

#define MAX_LINES 5

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : 0;
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

GANTRY_PRINTF(4, 5)
static void add_line(json_t *lines, double us, const char *evidence, const char *format, ...)
{
    if (json_array_size(lines) >= MAX_LINES)
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_t *line = json_pack("{s:s, s:s}", "text", text, "evidence", evidence);
    json_object_set_new(line, "us", us > 0 ? json_real(us) : json_null());
    json_array_append_new(lines, line);
}

static void say_missing_providers(const json_t *document, json_t *lines)
{
    size_t k;
    json_t *row;
    json_array_foreach(json_object_get(document, "providers"), k,
                       row) if (json_is_true(json_object_get(row, "requested")) &&
                                json_is_false(json_object_get(row, "created")))
        add_line(lines, 0, "providers", "provider %s was asked for and is not there: %s",
                 text_at(row, "name"), text_at(row, "detail"));
}

static void say_where(const json_t *document, json_t *lines)
{
    char text[400] = "";
    size_t k, used = 0, at_bind = 0, total = 0;
    json_t *row;
    json_array_foreach(json_object_get(document, "providers"), k, row)
    {
        int nodes = (int)number_at(row, "nodes_assigned");
        if (nodes && used < sizeof text - 100)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d on %s", used ? ", " : "", nodes,
                                     text_at(row, "name"));
        total += (size_t)nodes;
    }
    json_array_foreach(json_object_get(document, "nodes"), k, row) at_bind +=
        strcmp(text_at(row, "state"), "at_bind") == 0;
    if (at_bind && used < sizeof text - 100)
        snprintf(text + used, sizeof text - used, "%s%zu are shape arithmetic, done when a shape is bound",
                 used ? "; " : "", at_bind);
    double us = number_at(json_object_get(document, "totals"), "chosen_us");
    if (us > 0)
        add_line(lines, us, "totals", "%zu nodes run: %s; estimated %.3f ms a run", total, text, us / 1e3);
    else
        add_line(lines, 0, "nodes", "%zu nodes run: %s", total, text);
}

/* The nodes that better providers refused, for the line about crossings: they are what makes islands. */
static void list_causes(const json_t *document, char *text, size_t bytes)
{
    size_t k, used = 0, count = 0;
    json_t *row;
    json_array_foreach(json_object_get(document, "nodes"), k, row)
    {
        const json_t *first = json_array_get(json_object_get(row, "candidates"), 0);
        if (strcmp(text_at(row, "state"), "placed") != 0 || !first || !text_at(first, "reason")[0])
            continue;
        if (++count > 4 || used + 160 > bytes)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%.60s (%.30s: %s)",
                                 used ? ", " : "; off the first provider are ", text_at(row, "name"),
                                 text_at(row, "op"), text_at(first, "reason"));
    }
    if (count > 4 && used + 32 < bytes)
        snprintf(text + used, bytes - used, " and %zu more", count - 4);
}

static void say_crossings(const json_t *document, json_t *lines)
{
    size_t k, count = 0;
    json_t *row;
    double us = 0, bytes = 0;
    json_array_foreach(json_object_get(document, "boundaries"), k, row)
    {
        if (strcmp(text_at(row, "type"), "device") != 0 || strcmp(text_at(row, "scope"), "inner") != 0)
            continue;
        count++;
        us += number_at(row, "estimate_us");
        bytes += number_at(row, "bytes_typical");
    }
    if (!count)
        return;
    double total = number_at(json_object_get(document, "totals"), "chosen_us");
    char share[48] = "", causes[600] = "";
    if (total > 0)
        snprintf(share, sizeof share, ", %.0f %% of it", 100 * us / total);
    list_causes(document, causes, sizeof causes);
    add_line(lines, us, "boundaries",
             "%zu crossings between devices move %.0f bytes, estimated %.3f ms a run%s%s", count, bytes,
             us / 1e3, share, causes);
}

static void say_worth(const json_t *document, json_t *lines)
{
    size_t k, m, count = 0;
    json_t *row, *verdict, *first = NULL;
    const char *node = "";
    json_array_foreach(json_object_get(document, "nodes"), k, row)
        json_array_foreach(json_object_get(row, "candidates"), m,
                           verdict) if (strcmp(text_at(verdict, "reason"), "island_not_worth") == 0)
    {
        count++;
        if (!first) {
            first = verdict;
            node = text_at(row, "name");
        }
    }
    if (first)
        add_line(lines, number_at(first, "boundary_us"), "nodes",
                 "%zu nodes were kept off %s: their boundaries cost more than they gain (%s: %.3f us there, "
                 "%.3f us here, %.3f us of boundary)",
                 count, text_at(first, "provider"), node, number_at(first, "estimate_here_us"),
                 number_at(first, "estimate_there_us"), number_at(first, "boundary_us"));
}

static void say_precision(const json_t *document, json_t *lines)
{
    int below = (int)number_at(json_object_get(document, "totals"), "nodes_below_model_precision");
    if (below)
        add_line(lines, 0, "nodes",
                 "%d nodes run below the model's precision, because a provider that does so was asked for",
                 below);
}

static void say_slow_kernels(const json_t *document, json_t *lines)
{
    size_t k, count = 0;
    json_t *row, *first = NULL;
    json_array_foreach(json_object_get(document, "kernels"), k,
                       row) if (strstr(text_at(row, "kernel"), "gemm:") == text_at(row, "kernel") ||
                                strstr(text_at(row, "kernel"), "ref") == text_at(row, "kernel"))
    {
        count++;
        first = first ? first : row;
    }
    if (first)
        add_line(lines, 0, "kernels", "%zu kernels run in a slow implementation (%s, first for %s)", count,
                 text_at(first, "kernel"),
                 json_string_value(json_array_get(json_object_get(first, "nodes"), 0)));
}

json_t *gt_report_summary(const gt_report_scope *scope, const json_t *document)
{
    json_t *lines = json_array();
    if (scope->session->failure.code)
        add_line(lines, 0, "status", "the session could not be created: %s", scope->session->failure.message);
    say_missing_providers(document, lines);
    say_where(document, lines);
    say_crossings(document, lines);
    say_worth(document, lines);
    say_precision(document, lines);
    say_slow_kernels(document, lines);
    return lines;
}
