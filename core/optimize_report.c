/* What gantry_model_optimize did: counts before and after, what each rule did or left, and where every node
 * of the new file comes from. */
#include "optimize.h"
#include "report_print.h"

/* ---- the document ---------------------------------------------------------------------------- */

static void count_operator(json_t *operators, const char *domain, const char *op_type)
{
    char key[300];
    snprintf(key, sizeof key, "%.120s%s%.160s", domain, domain[0] ? "." : "", op_type);
    json_int_t count = json_integer_value(json_object_get(operators, key));
    json_object_set_new(operators, key, json_integer(count + 1));
}

/* Calls of functions are not nodes: those they stand for are. */
static bool is_call(const gt_source *source)
{
    return source->removed_pass && strcmp(source->removed_pass, "functions") == 0;
}

static json_t *source_of(const gantry_session *session)
{
    const gt_model *model = session->model;
    json_t *source = json_object(), *operators = json_object();
    uint32_t calls = 0;
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < model->sources.count; k++) {
        const gt_source *s = &model->sources.data[k];
        calls += is_call(s);
        if (!is_call(s))
            count_operator(operators, s->domain, s->op);
    }
    for (uint32_t k = 0; k < model->files.count; k++)
        bytes += model->files.data[k].bytes;
    json_object_set_new(source, "path", gt_report_string(session->path));
    json_object_set_new(source, "nodes", gt_report_count(model->sources.count - calls));
    json_object_set_new(source, "functions_inlined", gt_report_count(calls));
    json_object_set_new(source, "bytes", gt_report_count(bytes));
    json_object_set_new(source, "operators", operators);
    return source;
}

static void count_operators(const gt_graph *graph, json_t *operators)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        count_operator(operators, node->domain, node->op_type);
        for (uint32_t b = 0; b < node->body_count; b++)
            count_operators(node->bodies[b].graph, operators);
    }
}

static json_t *target_of(const gantry_session *session, const gantry_optimize_target *target,
                         const gt_write_result *written)
{
    json_t *to = json_object(), *operators = json_object();
    count_operators(session->model->root, operators);
    json_object_set_new(to, "path", gt_report_string(target->path));
    json_object_set_new(to, "external_data", gt_report_string(target->external_data));
    json_object_set_new(to, "nodes", gt_report_count(written->node_count));
    json_object_set_new(to, "initializers", gt_report_count(written->initializer_count));
    json_object_set_new(to, "initializer_bytes", gt_report_count(written->constant_bytes));
    json_object_set_new(to, "model_bytes", gt_report_count(written->model_bytes));
    json_object_set_new(to, "external_bytes", gt_report_count(written->external_bytes));
    json_object_set_new(to, "bytes", gt_report_count(written->model_bytes + written->external_bytes));
    json_object_set_new(to, "opset", json_integer(written->opset));
    json_object_set_new(to, "operators", operators);
    return to;
}

static void list_nodes(const gt_graph *graph, json_t *rows)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        json_t *row = json_object(), *sources = json_array();
        for (uint32_t s = 0; s < node->lineage.count; s++)
            json_array_append_new(
                sources, gt_report_string(graph->model->sources.data[node->lineage.sources[s]].name));
        json_object_set_new(row, "name", gt_report_string(node->name));
        json_object_set_new(row, "op", gt_report_string(node->op_type));
        json_object_set_new(row, "domain", gt_report_string(node->domain));
        json_object_set_new(row, "pass", gt_report_string(node->lineage.pass));
        json_object_set_new(row, "sources", sources);
        json_array_append_new(rows, row);
        for (uint32_t b = 0; b < node->body_count; b++)
            list_nodes(node->bodies[b].graph, rows);
    }
}

static json_t *removed_of(const gt_model *model)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; k < model->sources.count; k++) {
        const gt_source *source = &model->sources.data[k];
        if (!source->removed_by)
            continue;
        json_t *row = json_object();
        json_object_set_new(row, "name", gt_report_string(source->name));
        json_object_set_new(row, "op", gt_report_string(source->op));
        json_object_set_new(row, "by", gt_report_string(source->removed_by));
        json_object_set_new(row, "pass", gt_report_string(source->removed_pass));
        json_array_append_new(rows, row);
    }
    return rows;
}

static void add_to(json_t *object, const char *key, json_int_t more)
{
    json_object_set_new(object, key, json_integer(json_integer_value(json_object_get(object, key)) + more));
}

static json_t *rule_row(json_t *rows, const char *rule)
{
    size_t index;
    json_t *row;
    json_array_foreach(rows, index, row) if (strcmp(gt_report_text_at(row, "rule"), rule) == 0) return row;
    row = json_object();
    json_object_set_new(row, "rule", gt_report_string(rule));
    json_object_set_new(row, "applied", json_integer(0));
    json_object_set_new(row, "nodes_removed", json_integer(0));
    json_object_set_new(row, "skipped", json_object());
    json_array_append_new(rows, row);
    return row;
}

/* One row for each rule that did something or nearly did. */
static json_t *rules_of(const gt_model *model)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; k < model->rewrites.count; k++) {
        const gt_rewrite_record *record = &model->rewrites.data[k];
        json_t *row = rule_row(rows, record->rule);
        if (strcmp(record->state, "skipped") == 0) {
            add_to(json_object_get(row, "skipped"), record->guard ? record->guard : "", 1);
            continue;
        }
        add_to(row, "applied", 1);
        add_to(row, "nodes_removed", record->removed_count);
    }
    return rows;
}

static json_t *make_document(const gantry_session *session, const gantry_optimize_target *target,
                             const gt_write_result *written)
{
    json_t *document = json_pack("{s:s, s:i, s:s}", "schema", GT_OPTIMIZATION_SCHEMA, "version", 1, "gantry",
                                 gantry_version());
    json_t *nodes = json_array();
    list_nodes(session->model->root, nodes);
    json_object_set_new(document, "source", source_of(session));
    json_object_set_new(document, "target", target_of(session, target, written));
    json_object_set_new(document, "rules", rules_of(session->model));
    json_object_set_new(document, "nodes", nodes);
    json_object_set_new(document, "removed", removed_of(session->model));
    json_object_set_new(document, "rewrites", gt_report_rewrites(session));
    json_object_set_new(document, "notes", gt_report_notes(session));
    json_object_set_new(document, "options", gt_report_options(session));
    return document;
}

gantry_status gt_optimization_report(const gantry_session *session, const gantry_optimize_target *target,
                                     const gt_write_result *written, gantry_report **out_report)
{
    return gt_report_wrap(session->allocator, make_document(session, target, written), out_report);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_pair(gt_text *text, const char *label, const char *before, const char *after)
{
    gt_print_left(text, label, 20);
    gt_print_right(text, before, 10);
    gt_print_right(text, after, 10);
    gt_text_printf(text, "\n");
}

static void print_totals(const json_t *document, gt_text *text)
{
    const json_t *source = json_object_get(document, "source"), *target = json_object_get(document, "target");
    gt_print_room before, after;
    print_pair(text, "", "before", "after");
    print_pair(text, "nodes", gt_print_count(source, "nodes", &before),
               gt_print_count(target, "nodes", &after));
    print_pair(text, "bytes", gt_print_bytes(source, "bytes", &before),
               gt_print_bytes(target, "bytes", &after));
    if (gt_report_number_at(source, "functions_inlined") > 0)
        print_pair(text, "calls of functions", gt_print_count(source, "functions_inlined", &before), "0");
}

static void print_operators(const json_t *document, gt_text *text)
{
    json_t *before = json_object_get(json_object_get(document, "source"), "operators");
    json_t *after = json_object_get(json_object_get(document, "target"), "operators");
    gt_print_room had, has;
    const char *key;
    json_t *count;
    json_object_foreach(before, key, count) if (!json_equal(count, json_object_get(after, key)))
        print_pair(text, key, gt_print_count(before, key, &had),
                   json_object_get(after, key) ? gt_print_count(after, key, &has) : "0");
    json_object_foreach(after, key, count) if (!json_object_get(before, key))
        print_pair(text, key, "0", gt_print_count(after, key, &has));
}

static void print_rules(const json_t *document, gt_text *text)
{
    size_t index;
    json_t *row, *count;
    const char *guard;
    gt_print_room room;
    json_array_foreach(json_object_get(document, "rules"), index, row)
    {
        gt_print_left(text, gt_report_text_at(row, "rule"), 20);
        gt_print_right(text, gt_print_count(row, "applied", &room), 10);
        gt_print_right(text, gt_print_count(row, "nodes_removed", &room), 10);
        json_object_foreach(json_object_get(row, "skipped"), guard, count)
            gt_text_printf(text, " %s %lld", guard, (long long)json_integer_value(count));
        gt_text_printf(text, "\n");
    }
}

bool gt_optimization_print(const json_t *document, gt_text *text)
{
    const json_t *target = json_object_get(document, "target");
    gt_text_printf(text, "%s -> %s", gt_report_text_at(json_object_get(document, "source"), "path"),
                   gt_report_text_at(target, "path"));
    if (gt_report_text_at(target, "external_data")[0])
        gt_text_printf(text, ", constants in %s", gt_report_text_at(target, "external_data"));
    gt_text_printf(text, "\n\n");
    print_totals(document, text);
    print_operators(document, text);
    gt_text_printf(text, "\n%-20s %10s %10s  %s\n", "rewrite", "applied", "nodes gone",
                   "not applied because of");
    print_rules(document, text);
    return true;
}
