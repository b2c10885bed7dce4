/* Reports: a snapshot of a session's records as one JSON document, rendered on demand. */
#include "report.h"

#include "base/clock.h"

/* ---- which graphs ---------------------------------------------------------------------------- */

typedef struct part_list {
    gt_allocator *allocator;
    GT_VEC(gt_report_part) parts;
} part_list;

static bool add_part(part_list *list, const gt_variant *variant, const gt_frame *frame)
{
    gt_report_part part = {variant, frame, list->parts.count + 1};
    return gt_vec_push(list->allocator, &list->parts, part);
}

static bool add_variants(part_list *list, const gt_variant *variant)
{
    if (!variant)
        return true;
    /* Without sizes to wait for, every run takes the placement that its providers did not refuse. */
    if (variant->compiled && variant->refused.count && !variant->segments[0].symbol_count)
        return add_variants(list, variant->refused.data[0].alternate);
    if (variant->placement && !add_part(list, variant, NULL))
        return false;
    for (uint32_t k = 0; k < variant->refused.count; k++)
        if (!add_variants(list, variant->refused.data[k].alternate))
            return false;
    for (uint32_t k = 0; k < variant->children.count; k++)
        if (!add_variants(list, variant->children.data[k].variant))
            return false;
    if (!variant->placement || !variant->programs)
        return true;
    for (uint32_t p = 0; p < variant->placement->partition_count; p++)
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
    if (!add_part(list, leaf, frame))
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

/* ---- the document ---------------------------------------------------------------------------- */

static json_t *status_of(const gantry_session *session)
{
    const gantry_error *e = &session->failure;
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "code", gantry_status_text(e->code), "stage",
                     gantry_stage_text(e->stage), "node", gt_report_string(e->node), "provider",
                     gt_report_string(e->provider), "message", gt_report_string(e->message));
}

static json_t *model_of(const gantry_session *session)
{
    json_t *model = json_object();
    json_object_set_new(model, "path", gt_report_string(session->path));
    if (!session->model)
        return model;
    json_object_set_new(model, "ir_version", json_integer(session->model->ir_version));
    json_object_set_new(model, "nodes", json_integer(session->model->sources.count));
    json_object_set_new(model, "constants", json_integer(session->model->constants.count));
    json_t *opsets = json_object();
    for (uint32_t k = 0; k < session->model->opsets.count; k++) {
        const char *domain = session->model->opsets.data[k].domain;
        gt_report_set_named(opsets, domain[0] ? domain : "ai.onnx",
                            json_integer(session->model->opsets.data[k].version));
    }
    json_object_set_new(model, "opsets", opsets);
    return model;
}

/* Members stand in the order in which the schema has them. */
static json_t *make_document(const gt_report_scope *scope)
{
    const gantry_session *session = scope->session;
    json_t *document =
        json_pack("{s:s, s:i, s:s}", "schema", "gantry-report", "version", 1, "gantry", gantry_version());
    json_t *nodes = gt_report_nodes(scope), *fusions = json_array();
    json_t *kernels = gt_report_kernels(scope, fusions);
    gt_report_time_nodes(nodes, kernels);
    json_object_set_new(document, "status", status_of(session));
    json_object_set_new(document, "model", model_of(session));
    json_object_set_new(document, "summary", json_array());
    json_object_set_new(document, "providers", gt_report_providers(scope, nodes));
    json_object_set_new(document, "domains", gt_report_domains(session));
    json_object_set_new(document, "totals", json_object());
    json_object_set_new(document, "nodes", nodes);
    json_object_set_new(document, "partitions", gt_report_partitions(scope));
    json_object_set_new(document, "boundaries", gt_report_boundaries(scope));
    json_object_set_new(document, "ledger", gt_report_ledger(scope));
    json_object_set_new(document, "capture", gt_report_capture(scope));
    json_object_set_new(document, "kernels", kernels);
    json_object_set_new(document, "fusions", fusions);
    json_object_set_new(document, "creation", gt_report_creation(session));
    json_object_set_new(document, "memory", gt_report_memory(session));
    json_object_set_new(document, "run", gt_report_run(scope));
    json_object_set_new(document, "numeric_check", gt_report_numeric(scope));
    json_object_set_new(document, "plans", gt_report_plans(scope));
    json_object_set_new(document, "rewrites", gt_report_rewrites(session));
    json_object_set_new(document, "notes", gt_report_notes(session));
    json_object_set_new(document, "options", gt_report_options(session));
    json_object_set_new(document, "totals", gt_report_totals(scope, document));
    json_object_set_new(document, "summary", gt_report_summary(scope, document));
    return document;
}

gantry_status gt_report_wrap(gt_allocator *allocator, json_t *document, gantry_report **out_report)
{
    gantry_report *report = document ? GT_NEW(allocator, gantry_report) : NULL;
    *out_report = report;
    if (!report) {
        json_decref(document);
        return GANTRY_RESOURCE;
    }
    report->allocator = allocator;
    report->root = document;
    pthread_mutex_init(&report->lock, NULL);
    return GANTRY_OK;
}

gantry_status gt_report_create(const gantry_session *session, const gantry_run *run,
                               gantry_report **out_report, gantry_error *err)
{
    *out_report = NULL;
    uint64_t begin = gt_now_ns();
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&session->lock;
    pthread_mutex_lock(lock);
    part_list list = {.allocator = session->allocator};
    bool fits = run && run->root->leaf ? add_frames(&list, run->root) : add_variants(&list, session->root);
    gt_report_scope scope = {session, run, list.parts.count, list.parts.data};
    json_t *document = fits ? make_document(&scope) : NULL;
    pthread_mutex_unlock(lock);
    gt_vec_free(session->allocator, &list.parts);
    json_object_set_new(json_object_get(document, "creation"), "report_ms",
                        json_real((double)(gt_now_ns() - begin) / 1e6));
    if (gt_report_wrap(session->allocator, document, out_report) != GANTRY_OK)
        return gt_out_of_memory(err, GANTRY_STAGE_NONE);
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
    bool optimization = strcmp(gt_report_text_at(report->root, "schema"), GT_OPTIMIZATION_SCHEMA) == 0;
    bool printed =
        optimization ? gt_optimization_print(report->root, &text) : gt_report_print(report->root, &text);
    if (!printed || text.failed) {
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
