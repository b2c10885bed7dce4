/* The report as text for people: the same document, in tables of at most 100 columns. */
#include "report.h"

#define WIDTH 100

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* A number, or the word that stands for it: "not measured", or "-" for null. */
static const char *number_text(const json_t *object, const char *key, const char *format, char *room,
                               size_t bytes)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value))
        return json_string_value(value);
    if (!json_is_number(value))
        return "-";
    snprintf(room, bytes, format, json_number_value(value));
    return room;
}

static void heading(gt_text *text, const char *title)
{
    gt_text_printf(text, "\n%s\n", title);
}

/* Words of a line, broken before the right margin; continuation lines are indented. Control characters become
 * '?'. */
static void wrapped(gt_text *text, const char *first, const char *indent, const char *line)
{
    size_t column = strlen(first);
    gt_text_append(text, first, column);
    for (const char *word = line; *word;) {
        size_t length = strcspn(word, " ");
        if (column + length > WIDTH && column > strlen(indent)) {
            gt_text_printf(text, "\n%s", indent);
            column = strlen(indent);
        }
        for (size_t k = 0; k < length; k++)
            gt_text_append(text, (unsigned char)word[k] < 32 || word[k] == 127 ? "?" : word + k, 1);
        column += length;
        word += length;
        if (*word) {
            gt_text_append(text, " ", 1);
            column++;
            word++;
        }
    }
    gt_text_append(text, "\n", 1);
}

/* Text cut to a column: the end of a long name says more than its start. */
static const char *fit(const char *name, size_t width, char *room)
{
    size_t length = strlen(name), at = 0;
    if (length > width) {
        room[at++] = '.';
        room[at++] = '.';
        name += length - (width - 2);
    }
    for (; *name && at < width; name++)
        room[at++] = (unsigned char)*name < 32 || *name == 127 ? '?' : *name;
    room[at] = 0;
    return room;
}

static void print_summary(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *line;
    json_array_foreach(json_object_get(document, "summary"), k, line)
        wrapped(text, "* ", "  ", text_at(line, "text"));
}

static void print_providers(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    heading(text, "Providers, in priority order");
    json_array_foreach(json_object_get(document, "providers"), k, row)
    {
        char line[512];
        bool created = json_is_true(json_object_get(row, "created"));
        if (!json_is_true(json_object_get(row, "requested")))
            snprintf(line, sizeof line, "%s: not asked for%s%s", text_at(row, "name"), created ? "" : "; ",
                     created ? "" : text_at(row, "detail"));
        else if (!created)
            snprintf(line, sizeof line, "%s: NOT CREATED: %s", text_at(row, "name"), text_at(row, "detail"));
        else
            snprintf(line, sizeof line, "%s %s in domain %s: supports %lld nodes, runs %lld; %s",
                     text_at(row, "name"), text_at(row, "version"), text_at(row, "domain"),
                     (long long)json_integer_value(json_object_get(row, "nodes_supported")),
                     (long long)json_integer_value(json_object_get(row, "nodes_assigned")),
                     text_at(row, "libraries"));
        wrapped(text, "  ", "      ", line);
    }
}

static void print_refusals(const json_t *row, gt_text *text)
{
    size_t k;
    json_t *verdict;
    json_array_foreach(json_object_get(row, "candidates"), k, verdict)
    {
        if (json_is_true(json_object_get(verdict, "supported")) && !json_object_get(verdict, "reason"))
            continue;
        char line[640], a[32], b[32], c[32];
        int n = snprintf(line, sizeof line, "not on %s: %s", text_at(verdict, "provider"),
                         text_at(verdict, "reason"));
        if (text_at(verdict, "operand")[0])
            n += snprintf(line + n, sizeof line - (size_t)n, " %s", text_at(verdict, "operand"));
        if (text_at(verdict, "actual")[0])
            n += snprintf(line + n, sizeof line - (size_t)n, ", is %s", text_at(verdict, "actual"));
        if (text_at(verdict, "required")[0])
            n += snprintf(line + n, sizeof line - (size_t)n, ", needs %s", text_at(verdict, "required"));
        if (json_object_get(verdict, "boundary_us"))
            n += snprintf(line + n, sizeof line - (size_t)n,
                          "; estimated there %s us, here %s us, boundary %s us",
                          number_text(verdict, "estimate_here_us", "%.3f", a, sizeof a),
                          number_text(verdict, "estimate_there_us", "%.3f", b, sizeof b),
                          number_text(verdict, "boundary_us", "%.3f", c, sizeof c));
        if (text_at(verdict, "detail")[0] && (size_t)n < sizeof line)
            snprintf(line + n, sizeof line - (size_t)n, "; %s", text_at(verdict, "detail"));
        wrapped(text, "      ", "        ", line);
    }
}

static void print_nodes(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    char name[64], op[32], provider[24];
    heading(text, "Nodes");
    gt_text_printf(text, "  %-44s %-20s %-12s %-10s %s\n", "node of the file", "operator", "provider",
                   "precision", "partition");
    json_array_foreach(json_object_get(document, "nodes"), k, row)
    {
        const char *state = text_at(row, "state");
        char partition[24] = "";
        if (strcmp(state, "placed") == 0 && json_is_integer(json_object_get(row, "partition")))
            snprintf(partition, sizeof partition, "%lld",
                     (long long)json_integer_value(json_object_get(row, "partition")));
        else
            snprintf(partition, sizeof partition, "%s",
                     strcmp(state, "removed") == 0 ? text_at(row, "reason") : state);
        gt_text_printf(text, "  %-44s %-20s %-12s %-10s %s\n", fit(text_at(row, "name"), 44, name),
                       fit(text_at(row, "op"), 20, op), fit(text_at(row, "provider"), 12, provider),
                       text_at(row, "precision"), partition);
        print_refusals(row, text);
    }
}

static void print_partitions(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    heading(text, "Partitions");
    json_array_foreach(json_object_get(document, "partitions"), k, row)
    {
        char compile[32];
        gt_text_printf(text, "  graph %lld, partition %lld: %zu nodes on %s, compiled in %s us\n",
                       (long long)json_integer_value(json_object_get(row, "graph")),
                       (long long)json_integer_value(json_object_get(row, "id")),
                       json_array_size(json_object_get(row, "nodes")), text_at(row, "provider"),
                       number_text(row, "compile_us", "%.1f", compile, sizeof compile));
    }
}

static void print_boundaries(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    char name[64], a[32], b[32], c[32];
    heading(text, "Boundaries");
    if (!json_array_size(json_object_get(document, "boundaries")))
        gt_text_printf(text, "  none\n");
    json_array_foreach(json_object_get(document, "boundaries"), k, row)
        gt_text_printf(text, "  %-36s %-9s %s -> %s; %s bytes in %s copies; estimated %s us a copy\n",
                       fit(text_at(row, "tensor"), 36, name), text_at(row, "type"), text_at(row, "source"),
                       text_at(row, "target"), number_text(row, "bytes", "%.0f", a, sizeof a),
                       number_text(row, "executions", "%.0f", b, sizeof b),
                       number_text(row, "estimate_us", "%.3f", c, sizeof c));
}

/* Kernels of one implementation are one line: the JSON has each with its nodes. */
static void print_kernels(const json_t *document, gt_text *text)
{
    size_t k, m;
    json_t *row, *other;
    const json_t *kernels = json_object_get(document, "kernels");
    heading(text, "Kernels, by operator and implementation");
    json_array_foreach(kernels, k, row)
    {
        size_t count = 0, first = k;
        json_array_foreach(kernels, m,
                           other) if (strcmp(text_at(row, "op"), text_at(other, "op")) == 0 &&
                                      strcmp(text_at(row, "kernel"), text_at(other, "kernel")) == 0 &&
                                      strcmp(text_at(row, "isa"), text_at(other, "isa")) == 0)
        {
            count++;
            first = m < first ? m : first;
        }
        char op[40], name[40];
        if (first == k)
            gt_text_printf(text, "  %4zu x %-30s %-34s %-12s %s\n", count, fit(text_at(row, "op"), 30, op),
                           fit(text_at(row, "kernel"), 34, name), text_at(row, "isa"),
                           text_at(row, "precision_in"));
    }
}

static void print_rewrites(const json_t *document, gt_text *text)
{
    size_t k, m;
    json_t *row, *other;
    const json_t *rewrites = json_object_get(document, "rewrites");
    heading(text, "Rewrites");
    json_array_foreach(rewrites, k, row)
    {
        if (strcmp(text_at(row, "state"), "skipped") == 0 || strcmp(text_at(row, "state"), "partly") == 0) {
            char line[400];
            snprintf(line, sizeof line, "%s %s at %s: %s", text_at(row, "rule"), text_at(row, "state"),
                     text_at(row, "node"), text_at(row, "guard"));
            wrapped(text, "  ", "      ", line);
            continue;
        }
        size_t count = 0, first = k;
        json_array_foreach(rewrites, m,
                           other) if (strcmp(text_at(row, "rule"), text_at(other, "rule")) == 0 &&
                                      strcmp(text_at(row, "state"), text_at(other, "state")) == 0)
        {
            count++;
            first = m < first ? m : first;
        }
        if (first == k)
            gt_text_printf(text, "  %s %s %zu times\n", text_at(row, "rule"), text_at(row, "state"), count);
    }
}

static void print_times(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    char a[32], b[32];
    const json_t *creation = json_object_get(document, "creation");
    heading(text, "Time");
    gt_text_printf(text, "  creation %s ms:", number_text(creation, "total_ms", "%.3f", a, sizeof a));
    json_array_foreach(json_object_get(creation, "phases"), k, row)
        gt_text_printf(text, " %s %s", text_at(row, "name"), number_text(row, "ms", "%.3f", a, sizeof a));
    gt_text_printf(text, "; remainder %s\n", number_text(creation, "remainder_ms", "%.3f", a, sizeof a));
    const json_t *run = json_object_get(document, "run");
    if (json_is_object(run))
        gt_text_printf(text, "  first run %s us, last run %s us, of %lld\n",
                       number_text(run, "first_us", "%.1f", a, sizeof a),
                       number_text(run, "last_us", "%.1f", b, sizeof b),
                       (long long)json_integer_value(json_object_get(run, "count")));
    else
        gt_text_printf(text, "  runs: not measured\n");
    const json_t *plans = json_object_get(document, "plans");
    gt_text_printf(text, "  plans: %lld made, %lld kept, %lld evicted, limit %lld\n",
                   (long long)json_integer_value(json_object_get(plans, "made")),
                   (long long)json_integer_value(json_object_get(plans, "kept")),
                   (long long)json_integer_value(json_object_get(plans, "evicted")),
                   (long long)json_integer_value(json_object_get(plans, "limit")));
}

static void print_notes(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    if (!json_array_size(json_object_get(document, "notes")))
        return;
    heading(text, "Notes");
    json_array_foreach(json_object_get(document, "notes"), k, row)
    {
        char line[640];
        snprintf(line, sizeof line, "%s %s: %s", text_at(row, "code"), text_at(row, "node"),
                 text_at(row, "text"));
        wrapped(text, "  ", "      ", line);
    }
}

static void print_options(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    heading(text, "Options that are not at their default");
    json_array_foreach(json_object_get(document, "options"), k,
                       row) if (strcmp(text_at(row, "origin"), "default") != 0)
        gt_text_printf(text, "  %s = %s (%s)\n", text_at(row, "key"), text_at(row, "effective"),
                       text_at(row, "origin"));
}

bool gt_report_print(const json_t *document, gt_text *text)
{
    print_summary(document, text);
    print_providers(document, text);
    print_nodes(document, text);
    print_partitions(document, text);
    print_boundaries(document, text);
    print_kernels(document, text);
    print_rewrites(document, text);
    print_notes(document, text);
    print_times(document, text);
    print_options(document, text);
    return !text->failed;
}
