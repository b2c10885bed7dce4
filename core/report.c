/* Reports: a snapshot of a session's records as one JSON document, rendered on demand. */
#include "report.h"

json_t *gt_report_us(double ns)
{
    return ns == ns ? json_real(ns / 1000.0) : json_null();
}

json_t *gt_report_number(double value)
{
    return value == value ? json_real(value) : json_null();
}

/* ---- which graphs ---------------------------------------------------------------------------- */

typedef struct part_list {
    gt_allocator *allocator;
    GT_VEC(gt_report_part) parts;
} part_list;

static bool add_variants(part_list *list, const gt_variant *variant)
{
    if (!variant)
        return true;
    if (variant->placement &&
        !gt_vec_push(list->allocator, &list->parts, ((gt_report_part){variant, NULL, list->parts.count + 1})))
        return false;
    for (uint32_t k = 0; k < variant->refused.count; k++)
        if (!add_variants(list, variant->refused.data[k].alternate))
            return false;
    for (uint32_t k = 0; k < variant->children.count; k++)
        if (!add_variants(list, variant->children.data[k].variant))
            return false;
    for (uint32_t p = 0; variant->programs && p < variant->placement->partition_count; p++)
        for (int b = 0; b < 2; b++)
            if (variant->programs[p].bodies[b] && !add_variants(list, variant->programs[p].bodies[b]))
                return false;
    return true;
}

/* The graphs a run went through; bodies it did not enter have no frame. */
static bool add_frames(part_list *list, const gt_frame *frame)
{
    const gt_variant *leaf = frame->leaf;
    if (!leaf)
        return true;
    if (!gt_vec_push(list->allocator, &list->parts, ((gt_report_part){leaf, frame, list->parts.count + 1})))
        return false;
    for (uint32_t p = 0; p < frame->control_count; p++) {
        const gt_frame *bodies[2];
        uint32_t count = gt_control_frames(frame->controls[p], bodies);
        for (uint32_t b = 0; b < count; b++)
            if (!(bodies[b]->leaf ? add_frames(list, bodies[b]) : add_variants(list, bodies[b]->entry)))
                return false;
        for (int b = 0; b < 2 && !count; b++)
            if (leaf->programs[p].bodies[b] && !add_variants(list, leaf->programs[p].bodies[b]))
                return false;
    }
    return true;
}

/* ---- parts of the document ------------------------------------------------------------------- */

static json_t *status_of(const gantry_session *session)
{
    const gantry_error *e = &session->failure;
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "code", gantry_status_text(e->code), "stage",
                     gantry_stage_text(e->stage), "node", e->node, "provider", e->provider, "message",
                     e->message);
}

static json_t *model_of(const gantry_session *session)
{
    json_t *model = json_object();
    json_object_set_new(model, "path", session->path ? json_string(session->path) : json_null());
    if (!session->model)
        return model;
    json_object_set_new(model, "ir_version", json_integer(session->model->ir_version));
    json_object_set_new(model, "nodes", json_integer(session->model->sources.count));
    json_object_set_new(model, "constants", json_integer(session->model->constants.count));
    json_t *opsets = json_object();
    for (uint32_t k = 0; k < session->model->opsets.count; k++) {
        const char *domain = session->model->opsets.data[k].domain;
        json_object_set_new(opsets, domain[0] ? domain : "ai.onnx",
                            json_integer(session->model->opsets.data[k].version));
    }
    json_object_set_new(model, "opsets", opsets);
    return model;
}

/* How many nodes each provider could take, and got. */
static void count_nodes(const gt_report_scope *scope, uint32_t provider, uint32_t *out_claimed,
                        uint32_t *out_assigned)
{
    *out_claimed = *out_assigned = 0;
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_placement *placement = scope->parts[p].variant->placement;
        for (uint32_t u = 0; u < placement->unit_count; u++) {
            *out_claimed +=
                placement->units[u].verdicts[provider].supported ? placement->units[u].node_count : 0;
            *out_assigned += placement->units[u].provider == provider ? placement->units[u].node_count : 0;
        }
    }
}

static const char *library_version(const gantry_session *session, const gt_provider_entry *entry)
{
    return entry->info.version[0]          ? entry->info.version
           : entry->plugin != GT_NO_PLUGIN ? session->runtime->plugins.data[entry->plugin]->version
                                           : gantry_version();
}

static json_t *providers_of(const gt_report_scope *scope)
{
    const gantry_session *session = scope->session;
    json_t *rows = json_array();
    for (uint32_t k = 0; session->providers && k < session->provider_count; k++) {
        const gt_session_provider *provider = &session->providers[k];
        bool created = provider->entry && provider->entry->available;
        uint32_t claimed, assigned;
        count_nodes(scope, k, &claimed, &assigned);
        json_t *row =
            json_pack("{s:s, s:i, s:b, s:b, s:s, s:i, s:i, s:i}", "name", provider->name, "rank", (int)k + 1,
                      "requested", 1, "created", created, "detail",
                      provider->entry ? provider->entry->detail : "no provider of that name is loaded",
                      "nodes_supported", (int)claimed, "nodes_assigned", (int)assigned, "nodes_executed",
                      scope->run && scope->run->executed ? (int)assigned : 0);
        if (created) {
            const gantry_provider_info *info = &provider->entry->info;
            json_object_set_new(row, "version", json_string(library_version(session, provider->entry)));
            json_object_set_new(row, "domain", json_string(session->domains[provider->domain].name));
            json_object_set_new(row, "precision",
                                info->precision ? json_string(gantry_dtype_text(info->precision))
                                                : json_string("model"));
            json_object_set_new(row, "libraries", json_string(info->libraries));
            json_object_set_new(row, "fingerprint", json_string(info->fingerprint));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

/* Providers that are loaded or failed to load but that the session did not ask for belong to the picture too.
 */
static void add_other_providers(const gantry_session *session, json_t *rows)
{
    for (uint32_t k = 0; k < session->runtime->providers.count; k++) {
        const gt_provider_entry *entry = session->runtime->providers.data[k];
        bool listed = false;
        for (uint32_t m = 0; session->providers && m < session->provider_count; m++)
            listed |= session->providers[m].entry == entry;
        if (!listed)
            json_array_append_new(rows, json_pack("{s:s, s:n, s:b, s:b, s:s}", "name", entry->info.name,
                                                  "rank", "requested", 0, "created", entry->available,
                                                  "detail", entry->detail));
    }
}

static json_t *phases_of(const gantry_session *session)
{
    json_t *rows = json_array();
    double sum = 0;
    for (uint32_t k = 0; k < session->phases.count; k++) {
        json_array_append_new(rows, json_pack("{s:s, s:f}", "name", session->phases.data[k].name, "ms",
                                              session->phases.data[k].ns / 1e6));
        sum += session->phases.data[k].ns;
    }
    json_t *account = json_pack("{s:f, s:o}", "total_ms", session->create_ns / 1e6, "phases", rows);
    json_object_set_new(account, "remainder_ms", json_real((session->create_ns - sum) / 1e6));
    return account;
}

static json_t *runs_of(const gantry_run *run)
{
    if (!run)
        return json_null();
    json_t *row = json_object();
    json_object_set_new(row, "count", json_integer((json_int_t)run->number));
    json_object_set_new(row, "first_us", run->first_ns > 0 ? gt_report_us(run->first_ns) : json_null());
    json_object_set_new(row, "last_us",
                        run->last_end_ns ? gt_report_us((double)(run->last_end_ns - run->last_begin_ns))
                                         : json_null());
    json_object_set_new(row, "threads", json_integer(run->threads));
    return row;
}

static json_t *options_of(const gantry_session *session)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; k < session->options.rows.count; k++) {
        const gt_option_row *row = &session->options.rows.data[k];
        json_array_append_new(rows, json_pack("{s:s, s:s?, s:s?, s:s?}", "key", row->key, "asked", row->asked,
                                              "effective", row->effective, "origin", row->origin));
    }
    return rows;
}

static json_t *rewrites_of(const gantry_session *session)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; session->model && k < session->model->rewrites.count; k++) {
        const gt_rewrite_record *record = &session->model->rewrites.data[k];
        json_t *removed = json_array();
        for (uint32_t m = 0; m < record->removed_count; m++)
            json_array_append_new(removed, json_string(record->removed[m]));
        json_array_append_new(rows, json_pack("{s:s, s:s?, s:s, s:s?, s:o, s:s?}", "rule", record->rule,
                                              "node", record->node, "state", record->state, "guard",
                                              record->guard, "removed", removed, "added", record->added));
    }
    return rows;
}

static json_t *notes_of(const gantry_session *session)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; session->model && k < session->model->notes.count; k++) {
        const gt_note *note = &session->model->notes.data[k];
        json_array_append_new(
            rows, json_pack("{s:s, s:s?, s:s?}", "code", note->code, "node", note->node, "text", note->text));
    }
    return rows;
}

static json_t *totals_of(const gt_report_scope *scope)
{
    double chosen = scope->part_count ? scope->parts[0].variant->placement->chosen_ns : __builtin_nan("");
    double all_cpu = scope->part_count ? scope->parts[0].variant->placement->all_cpu_ns : __builtin_nan("");
    uint32_t below = 0;
    for (uint32_t k = 0; k < scope->part_count; k++)
        below += scope->parts[k].variant->placement->below_precision_count;
    json_t *totals = json_object();
    json_object_set_new(totals, "chosen_us", gt_report_us(chosen));
    json_object_set_new(totals, "all_cpu_us", gt_report_us(all_cpu));
    json_object_set_new(totals, "source", json_string("estimated"));
    json_object_set_new(totals, "nodes_below_model_precision", json_integer(below));
    return totals;
}

static json_t *domains_of(const gantry_session *session)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; session->domains && k < session->domain_count; k++) {
        const gantry_domain_info *info = &session->domains[k].entry->info;
        const char source[2] = {info->cost_source ? info->cost_source : 'a', 0};
        json_array_append_new(rows, json_pack("{s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:s}", "name",
                                              session->domains[k].name, "device", info->device,
                                              "separate_memory", info->separate_memory, "to_device_us",
                                              info->to_device_ns / 1e3, "to_host_us", info->to_host_ns / 1e3,
                                              "to_device_gbps", info->to_device_bytes_per_ns, "to_host_gbps",
                                              info->to_host_bytes_per_ns, "cost_source",
                                              source[0] == 'm'   ? "measured"
                                              : source[0] == 'e' ? "estimated"
                                                                 : "assumed"));
    }
    return rows;
}

/* ---- the document ---------------------------------------------------------------------------- */

static json_t *make_document(const gt_report_scope *scope)
{
    const gantry_session *session = scope->session;
    json_t *document =
        json_pack("{s:s, s:i, s:s}", "schema", "gantry-report", "version", 1, "gantry", gantry_version());
    json_object_set_new(document, "status", status_of(session));
    json_object_set_new(document, "model", model_of(session));
    json_object_set_new(document, "summary", json_array());
    json_t *providers = providers_of(scope);
    add_other_providers(session, providers);
    json_object_set_new(document, "providers", providers);
    json_object_set_new(document, "domains", domains_of(session));
    json_object_set_new(document, "totals", totals_of(scope));
    json_object_set_new(document, "nodes", gt_report_nodes(scope));
    json_object_set_new(document, "partitions", gt_report_partitions(scope));
    json_object_set_new(document, "boundaries", gt_report_boundaries(scope));
    json_t *fusions = json_array();
    json_object_set_new(document, "kernels", gt_report_kernels(scope, fusions));
    json_object_set_new(document, "fusions", fusions);
    json_object_set_new(document, "creation", phases_of(session));
    json_object_set_new(document, "run", runs_of(scope->run));
    json_object_set_new(document, "plans", gt_report_plans(scope));
    json_object_set_new(document, "rewrites", rewrites_of(session));
    json_object_set_new(document, "notes", notes_of(session));
    json_object_set_new(document, "options", options_of(session));
    json_object_set_new(document, "summary", gt_report_summary(scope, document));
    return document;
}

gantry_status gt_report_create(const gantry_session *session, const gantry_run *run,
                               gantry_report **out_report, gantry_error *err)
{
    *out_report = NULL;
    gantry_report *report = GT_NEW(session->allocator, gantry_report);
    if (!report)
        return gt_out_of_memory(err, GANTRY_STAGE_NONE);
    report->allocator = session->allocator;
    pthread_mutex_init(&report->lock, NULL);
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&session->lock;
    pthread_mutex_lock(lock);
    part_list list = {.allocator = session->allocator};
    bool fits = run && run->root->leaf ? add_frames(&list, run->root) : add_variants(&list, session->root);
    gt_report_scope scope = {session, run, list.parts.count, list.parts.data};
    if (fits)
        report->root = make_document(&scope);
    pthread_mutex_unlock(lock);
    gt_vec_free(session->allocator, &list.parts);
    if (!report->root) {
        gantry_report_destroy(&report);
        return gt_out_of_memory(err, GANTRY_STAGE_NONE);
    }
    *out_report = report;
    return GANTRY_OK;
}

gantry_status gantry_session_report(const gantry_session *session, const gantry_run *run,
                                    gantry_report **out_report, gantry_error *err)
{
    if (!session || !out_report || (run && run->session != session))
        return gt_fail(
            err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
            "gantry_session_report: session or out_report is NULL, or the run is of another session");
    return gt_report_create(session, run, out_report, err);
}

void gantry_report_destroy(gantry_report **inout_report)
{
    if (!inout_report || !*inout_report)
        return;
    gantry_report *report = *inout_report;
    json_decref(report->root);
    free(report->json);
    gt_free(report->allocator, report->text);
    pthread_mutex_destroy(&report->lock);
    gt_free(report->allocator, report);
    *inout_report = NULL;
}

/* ---- rendering ------------------------------------------------------------------------------- */

static gantry_status render_json(gantry_report *report, gantry_error *err)
{
    if (!report->json)
        report->json = json_dumps(report->root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    if (!report->json)
        return gt_out_of_memory(err, GANTRY_STAGE_NONE);
    report->json_bytes = strlen(report->json);
    return GANTRY_OK;
}

static gantry_status render_text(gantry_report *report, gantry_error *err)
{
    if (report->text)
        return GANTRY_OK;
    gt_text text;
    gt_text_init(&text, report->allocator);
    if (!gt_report_print(report->root, &text) || text.failed) {
        gt_text_free(&text);
        return gt_out_of_memory(err, GANTRY_STAGE_NONE);
    }
    report->text = text.data;
    report->text_bytes = text.length;
    return GANTRY_OK;
}

gantry_status gantry_report_render(gantry_report *report, gantry_report_format format, const char **out_text,
                                   size_t *out_bytes, gantry_error *err)
{
    if (!report || !out_text || (format != GANTRY_REPORT_JSON && format != GANTRY_REPORT_TEXT))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "gantry_report_render: report or out_text is NULL, or format %d", (int)format);
    pthread_mutex_lock(&report->lock);
    gantry_status status = format == GANTRY_REPORT_JSON ? render_json(report, err) : render_text(report, err);
    pthread_mutex_unlock(&report->lock);
    *out_text = status != GANTRY_OK ? NULL : format == GANTRY_REPORT_JSON ? report->json : report->text;
    if (out_bytes)
        *out_bytes = status != GANTRY_OK            ? 0
                     : format == GANTRY_REPORT_JSON ? report->json_bytes
                                                    : report->text_bytes;
    return status;
}
