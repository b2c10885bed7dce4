/* The printed report's nodes: each by name in a small model, by operator in a large one; and why a better
 * provider did not get them, grouped by reason. */
#include "report_print.h"

#define LISTED_NODES 60u /* more rows than this are counted by operator */
#define EXAMPLES 3u

/* ---- where ----------------------------------------------------------------------------------- */

/* What the row's last column says: the partition, or why it has none. */
static void print_fate(const json_t *row, gt_text *text)
{
    char fate[300];
    const char *state = gt_report_text_at(row, "state");
    if (strcmp(state, "placed") == 0)
        snprintf(fate, sizeof fate, "graph %.0f partition %.0f", gt_report_number_at(row, "graph"),
                 gt_report_number_at(row, "partition"));
    else if (strcmp(state, "removed") == 0)
        snprintf(fate, sizeof fate, "removed: %.100s", gt_report_text_at(row, "reason"));
    else
        snprintf(fate, sizeof fate, "%s",
                 strcmp(state, "at_bind") == 0    ? "when a shape is bound"
                 : strcmp(state, "waiting") == 0  ? "its branch was not chosen"
                 : strcmp(state, "unplaced") == 0 ? "NO PROVIDER"
                                                  : "not placed");
    gt_print_last(text, fate, 30);
}

static void list_nodes(const json_t *nodes, gt_text *text)
{
    size_t k;
    json_t *row;
    gt_text_printf(text, "  node of the file                 operator         provider   precision\n");
    json_array_foreach(nodes, k, row)
    {
        gt_text_append(text, "  ", 2);
        gt_print_left(text, gt_report_text_at(row, "name"), 32);
        gt_print_left(text, gt_report_text_at(row, "op"), 16);
        gt_print_left(text, gt_report_text_at(row, "provider"), 10);
        gt_print_left(text, gt_report_text_at(row, "precision"), 9);
        print_fate(row, text);
    }
}

static void group_by(const json_t *nodes, const char *first, const char *second, const char *state,
                     json_t *groups)
{
    size_t k;
    json_t *row;
    json_array_foreach(nodes, k, row)
    {
        char key[600];
        if (state && strcmp(gt_report_text_at(row, "state"), state) != 0)
            continue;
        snprintf(key, sizeof key, "%.280s\n%.280s", gt_report_text_at(row, first),
                 gt_report_text_at(row, second));
        gt_print_group(groups, key, row);
    }
}

/* "Conv 53, Relu 49": operators of one provider and state. */
static void print_operators(const json_t *groups, const char *state, const char *provider, const char *title,
                            gt_text *text)
{
    char line[4000] = "";
    size_t used = 0, nodes = 0;
    const char *key;
    json_t *group;
    json_object_foreach((json_t *)groups, key, group)
    {
        const json_t *first = json_object_get(group, "first");
        if (strcmp(gt_report_text_at(first, "state"), state) != 0 ||
            strcmp(gt_report_text_at(first, "provider"), provider) != 0)
            continue;
        double count = gt_report_number_at(group, "count");
        nodes += (size_t)count;
        if (used + 150 < sizeof line)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%.100s %.0f", used ? ", " : "",
                                     gt_report_text_at(first, "op"), count);
    }
    if (!nodes)
        return;
    char head[160];
    snprintf(head, sizeof head, "  %zu %s%.60s: ", nodes, title, provider);
    gt_print_wrapped(text, head, "      ", line);
}

static void count_nodes(const json_t *document, gt_text *text)
{
    static const struct {
        const char *state, *title;
    } OTHERS[] = {{"unplaced", "on NO PROVIDER"},
                  {"waiting", "in branches that were not chosen"},
                  {"not_placed", "not placed"}};
    size_t k;
    json_t *row;
    const json_t *nodes = json_object_get(document, "nodes");
    json_t *groups = json_object(), *bind = json_object();
    json_array_foreach(nodes, k, row)
    {
        char key[700];
        snprintf(key, sizeof key, "%.20s\n%.300s\n%.300s", gt_report_text_at(row, "state"),
                 gt_report_text_at(row, "provider"), gt_report_text_at(row, "op"));
        gt_print_group(strcmp(gt_report_text_at(row, "state"), "at_bind") == 0 ? bind : groups, key, row);
    }
    json_array_foreach(json_object_get(document, "providers"), k,
                       row) if (json_is_true(json_object_get(row, "requested")))
    {
        print_operators(groups, "placed", gt_report_text_at(row, "name"), "on ", text);
        print_operators(bind, "at_bind", gt_report_text_at(row, "name"),
                        "shape arithmetic, done when a shape is bound, by ", text);
    }
    for (size_t m = 0; m < sizeof OTHERS / sizeof *OTHERS; m++)
        print_operators(groups, OTHERS[m].state, "", OTHERS[m].title, text);
    json_decref(groups);
    json_decref(bind);
    gt_text_printf(text, "  Every node by name is in the JSON (--format json), under \"nodes\".\n");
}

static void print_removed(const json_t *nodes, gt_text *text)
{
    char line[1200] = "";
    size_t used = 0;
    double removed = 0;
    const char *key;
    json_t *group, *groups = json_object();
    group_by(nodes, "reason", "state", "removed", groups);
    json_object_foreach(groups, key, group)
    {
        removed += gt_report_number_at(group, "count");
        if (used + 120 < sizeof line)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%.60s %.0f", used ? ", " : "",
                                     gt_report_text_at(json_object_get(group, "first"), "reason"),
                                     gt_report_number_at(group, "count"));
    }
    char head[60];
    snprintf(head, sizeof head, "  %.0f removed before placing: ", removed);
    if (removed > 0)
        gt_print_wrapped(text, head, "      ", line);
    json_decref(groups);
}

/* ---- why not --------------------------------------------------------------------------------- */

/* Refusals that say the same of every operator are one group; those with sizes or times are one for each. */
static void refusal_key(const json_t *verdict, char *key, size_t bytes)
{
    bool own = *gt_report_text_at(verdict, "actual") || json_object_get(verdict, "boundary_us");
    snprintf(key, bytes, "%.64s\n%.40s\n%.200s\n%.200s", gt_report_text_at(verdict, "provider"),
             gt_report_text_at(verdict, "reason"), gt_report_text_at(verdict, "required"),
             own ? gt_report_text_at(verdict, "op") : "");
}

/* A group names the first few of its nodes. */
static void add_example(json_t *group, const json_t *row)
{
    json_t *names = json_object_get(group, "names");
    if (!names) {
        json_object_set_new(group, "names", names = json_array());
        json_object_set_new(group, "ops", json_object());
    }
    if (json_array_size(names) < EXAMPLES)
        json_array_append(names, json_object_get(row, "name"));
}

static void group_refusals(json_t *row, json_t *groups)
{
    size_t k;
    json_t *verdict;
    json_array_foreach(json_object_get(row, "candidates"), k, verdict)
    {
        char key[900];
        if (!*gt_report_text_at(verdict, "reason"))
            continue;
        refusal_key(verdict, key, sizeof key);
        gt_print_group(groups, key, verdict);
        json_t *group = json_object_get(groups, key);
        add_example(group, row);
        json_t *ops = json_object_get(group, "ops");
        const char *op = gt_report_text_at(verdict, "op");
        json_object_set_new(ops, op, json_integer(1 + (json_int_t)gt_report_number_at(ops, op)));
    }
}

/* "; needs at most 8, x is 9" and the like, of the first node of the group. */
static size_t describe(const json_t *verdict, char *line, size_t bytes)
{
    gt_print_room here, there, boundary;
    size_t used = 0;
    if (json_object_get(verdict, "boundary_us"))
        return (size_t)snprintf(line, bytes, "; the first: %s there, %s here, and its boundaries %s",
                                gt_print_us(verdict, "estimate_here_us", &here),
                                gt_print_us(verdict, "estimate_there_us", &there),
                                gt_print_us(verdict, "boundary_us", &boundary));
    if (*gt_report_text_at(verdict, "required"))
        used += (size_t)snprintf(line + used, bytes - used, "; needs %.95s",
                                 gt_report_text_at(verdict, "required"));
    if (*gt_report_text_at(verdict, "actual"))
        used += (size_t)snprintf(line + used, bytes - used, ", %.95s is %.95s",
                                 gt_report_text_at(verdict, "operand"), gt_report_text_at(verdict, "actual"));
    if (*gt_report_text_at(verdict, "detail"))
        used += (size_t)snprintf(line + used, bytes - used, "; %.190s", gt_report_text_at(verdict, "detail"));
    return used;
}

/* ": Conv 100, Mul 3", or the names of the first nodes when they are all of one operator. */
static size_t list_members(const json_t *group, char *line, size_t bytes)
{
    size_t k, used = 0;
    json_t *item;
    const char *op;
    const json_t *names = json_object_get(group, "names"), *ops = json_object_get(group, "ops");
    if (json_object_size(ops) > 1) {
        json_object_foreach((json_t *)ops, op, item) if (used + 100 < bytes) used +=
            (size_t)snprintf(line + used, bytes - used, "%s%.60s %lld", used ? ", " : ": ", op,
                             (long long)json_integer_value(item));
        return used;
    }
    json_array_foreach(names, k, item) if (used + 120 < bytes) used +=
        (size_t)snprintf(line + used, bytes - used, "%s%.80s", k ? ", " : " (", json_string_value(item));
    double more = gt_report_number_at(group, "count") - (double)json_array_size(names);
    return used + (size_t)snprintf(line + used, bytes - used, more > 0 ? ", %.0f more)" : ")", more);
}

static void print_refusal(const json_t *group, gt_text *text)
{
    char line[3000], count[32];
    const json_t *first = json_object_get(group, "first");
    bool one = json_object_size(json_object_get(group, "ops")) == 1;
    size_t used = (size_t)snprintf(line, sizeof line, "%.60s%snot on %.60s: %s",
                                   one ? gt_report_text_at(first, "op") : "", one ? " " : "",
                                   gt_report_text_at(first, "provider"), gt_report_text_at(first, "reason"));
    if (one || json_object_get(first, "boundary_us"))
        used += describe(first, line + used, sizeof line - used);
    else if (*gt_report_text_at(first, "required"))
        used += (size_t)snprintf(line + used, sizeof line - used, ", needs %.95s",
                                 gt_report_text_at(first, "required"));
    if (strcmp(gt_report_text_at(first, "group"), "availability") == 0)
        snprintf(line, sizeof line, "not on %.60s: %s; %.300s", gt_report_text_at(first, "provider"),
                 gt_report_text_at(first, "reason"), gt_report_text_at(first, "detail"));
    else
        list_members(group, line + used, sizeof line - used);
    snprintf(count, sizeof count, "  %5.0f x ", gt_report_number_at(group, "count"));
    gt_print_wrapped(text, count, "          ", line);
}

static void print_refusals(const json_t *nodes, gt_text *text)
{
    size_t k;
    json_t *row, *group, *groups = json_object();
    const char *key;
    json_array_foreach(nodes, k, row) if (strcmp(gt_report_text_at(row, "state"), "at_bind") != 0)
        group_refusals(row, groups);
    if (json_object_size(groups))
        gt_print_heading(text, "Why not on a better provider");
    json_object_foreach(groups, key, group) print_refusal(group, text);
    json_decref(groups);
}

/* ---- ladders --------------------------------------------------------------------------------- */

/* "dev_int8 no_kernel > dev_fp16 float16 > cpu could": everybody's answer in order of priority, and what the
 * node computes in where it is. False: the first one has it, or there is no more than a yes and a no. */
static bool ladder_of(const json_t *row, char *line, size_t bytes)
{
    const json_t *candidates = json_object_get(row, "candidates");
    const char *chosen = gt_report_text_at(row, "provider");
    const json_t *verdict;
    size_t k, used = 0;
    bool first = strcmp(gt_report_text_at(json_array_get(candidates, 0), "provider"), chosen) == 0;
    if (!*chosen || first || json_array_size(candidates) < 3)
        return false;
    json_array_foreach(candidates, k, verdict)
    {
        const char *provider = gt_report_text_at(verdict, "provider");
        bool here = strcmp(provider, chosen) == 0,
             could = json_is_true(json_object_get(verdict, "supported"));
        if (used + 120 < bytes)
            used += (size_t)snprintf(line + used, bytes - used, "%s%.60s %.50s", k ? " > " : "", provider,
                                     here    ? gt_report_text_at(row, "precision")
                                     : could ? "could"
                                             : gt_report_text_at(verdict, "reason"));
    }
    return true;
}

static void group_ladder(json_t *row, json_t *groups)
{
    char ladder[1000], key[1100];
    if (!ladder_of(row, ladder, sizeof ladder))
        return;
    snprintf(key, sizeof key, "%.60s: %s", gt_report_text_at(row, "op"), ladder);
    gt_print_group(groups, key, row);
    add_example(json_object_get(groups, key), row);
}

static void print_ladders(const json_t *nodes, gt_text *text)
{
    size_t k;
    json_t *row, *group, *groups = json_object();
    const char *key;
    json_array_foreach(nodes, k, row) if (strcmp(gt_report_text_at(row, "state"), "placed") == 0)
        group_ladder(row, groups);
    if (json_object_size(groups))
        gt_print_heading(text, "Ladders: what each provider said, in order, and what the node computes in");
    json_object_foreach(groups, key, group)
    {
        char line[3000], count[32];
        size_t used = (size_t)snprintf(line, sizeof line, "%s", key);
        list_members(group, line + used, sizeof line - used);
        snprintf(count, sizeof count, "  %5.0f x ", gt_report_number_at(group, "count"));
        gt_print_wrapped(text, count, "          ", line);
    }
    json_decref(groups);
}

/* ---- all ------------------------------------------------------------------------------------- */

void gt_print_nodes(const json_t *document, gt_text *text)
{
    const json_t *nodes = json_object_get(document, "nodes");
    gt_print_heading(text, "Nodes");
    if (json_array_size(nodes) <= LISTED_NODES) {
        list_nodes(nodes, text);
    } else {
        count_nodes(document, text);
        print_removed(nodes, text);
    }
    print_refusals(nodes, text);
    print_ladders(nodes, text);
}
