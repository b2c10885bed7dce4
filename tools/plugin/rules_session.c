/* The rule about sessions: what the provider takes also works through the runtime, placed on it, and is
 * right. */
#include "kit.h"

#include <jansson.h>
#include <stdlib.h>

typedef struct hosted {
    kit *k;
    gantry_runtime *runtime;
    gantry_options *options;
    uint32_t placed, elsewhere;
} hosted;

static bool good(kit *k, gantry_status status, const gantry_error *err, const char *call, const char *op)
{
    char words[2200];
    if (status != GANTRY_OK)
        kit_fail(k, "%s of %s failed: %s", call, op, kit_error_text(status, err, words, sizeof words));
    return status == GANTRY_OK;
}

/* A second plugin of one provider cannot be loaded by a runtime: its own is opened beside the kit's instance.
 */
static bool open_runtime(kit *k, hosted *out)
{
    char names[160];
    gantry_error err = GANTRY_ERROR_INIT;
    *out = (hosted){.k = k};
    snprintf(names, sizeof names, "%s,cpu", k->subject.provider_info.name);
    kit_doing(k, "gantry_runtime_load_provider");
    return good(k, gantry_runtime_create(NULL, &out->runtime, &err), &err, "gantry_runtime_create",
                "a runtime") &&
           good(k, gantry_runtime_load_provider(out->runtime, k->path, k->config, &err), &err,
                "gantry_runtime_load_provider", "the plugin") &&
           good(k, gantry_options_create(&out->options, &err), &err, "gantry_options_create", "options") &&
           good(k, gantry_options_set(out->options, "providers", names, &err), &err, "providers", names) &&
           good(k, gantry_options_set(out->options, "plan", "priority", &err), &err, "plan", names) &&
           good(k, gantry_options_set(out->options, "rewrites", "off", &err), &err, "rewrites", names);
}

static void close_runtime(hosted *h)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_options_destroy(&h->options);
    kit_doing(h->k, "gantry_runtime_unload_provider");
    if (h->runtime &&
        gantry_runtime_unload_provider(h->runtime, h->k->subject.provider_info.name, &err) != GANTRY_OK)
        kit_fail(h->k, "it can't be unloaded: %s", err.message);
    kit_doing(h->k, "gantry_runtime_destroy");
    if (h->runtime && gantry_runtime_destroy(&h->runtime, &err) != GANTRY_OK)
        kit_fail(h->k, "the runtime can't be destroyed: %s", err.message);
}

/* Which provider the report says the node ran on. */
static bool ran_on(const gantry_session *session, const char *provider)
{
    gantry_report *report = NULL;
    const char *text;
    size_t bytes;
    bool found = false;
    if (gantry_session_report(session, NULL, &report, NULL) != GANTRY_OK)
        return false;
    if (gantry_report_render(report, GANTRY_REPORT_JSON, &text, &bytes, NULL) == GANTRY_OK) {
        json_t *root = json_loadb(text, bytes, 0, NULL);
        size_t index;
        json_t *node;
        json_array_foreach(json_object_get(root, "nodes"), index, node)
        {
            const char *name = json_string_value(json_object_get(node, "provider"));
            found |= name && strcmp(name, provider) == 0;
        }
        json_decref(root);
    }
    gantry_report_destroy(&report);
    return found;
}

static void run_one(hosted *h, const kit_model *m, gantry_session *session, int64_t n)
{
    kit *k = h->k;
    gantry_error err = GANTRY_ERROR_INIT;
    kit_array inputs[KIT_MAX_OPERANDS], got[KIT_MAX_OPERANDS] = {{0}};
    uint32_t count = 0;
    kit_data data;
    kit_call none = {0};
    double largest = 0;
    if (!kit_data_make(m, n, (uint32_t)n, k->cpu, &data, &err))
        return;
    for (uint32_t o = 0; o < m->operand_count; o++)
        if (m->operands[o].present && !m->operands[o].constant)
            inputs[count++] = data.inputs[o];
    kit_doing(k, "a run of a session with %s, n=%lld", m->row->op, (long long)n);
    if (good(k, kit_session_run(session, inputs, count, got, &err), &err, "a run in a session", m->row->op))
        kit_check_results(k, m, &data, &none, got, &largest);
    for (uint32_t o = 0; o < KIT_MAX_OPERANDS; o++)
        kit_array_free(&got[o]);
    kit_data_free(&data);
}

/* Shapes of a model's inputs, with the data of those that are constants. */
static void declare_inputs(const kit_model *m, kit_array *out_arrays)
{
    for (uint32_t o = 0; o < m->operand_count; o++) {
        out_arrays[o] = m->constants[o];
        out_arrays[o].dtype = m->operands[o].dtype;
        out_arrays[o].rank = m->operands[o].rank;
        for (uint32_t d = 0; d < m->operands[o].rank; d++)
            out_arrays[o].dims[d] = m->operands[o].dims[d] < 0 ? m->n : m->operands[o].dims[d];
    }
}

static void run_session(hosted *h, const kit_model *m)
{
    kit *k = h->k;
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_session *session = NULL;
    kit_array declared[KIT_MAX_OPERANDS] = {{0}};
    kit_bytes bytes;
    declare_inputs(m, declared);
    kit_onnx_write(&m->view, 0, declared, &bytes);
    kit_doing(k, "a session with %s", m->row->op);
    if (good(k,
             gantry_session_create_from_memory(h->runtime, bytes.data, bytes.count, h->options, &session,
                                               NULL, &err),
             &err, "a session", m->row->op)) {
        run_one(h, m, session, m->n < 0 ? 3 : m->n);
        if (m->n < 0)
            run_one(h, m, session, 6);
        if (ran_on(session, k->subject.provider_info.name))
            h->placed++;
        else
            h->elsewhere++;
    }
    if (session && gantry_session_destroy(&session, &err) != GANTRY_OK)
        kit_fail(k, "the session can't be destroyed: %s", err.message);
    free(bytes.data);
}

/* Runs each model that the provider takes in one runtime; false when there is none, which is then told. */
static bool run_models(kit *k, hosted *h, void (*run)(hosted *h, const kit_model *m), uint32_t *out_count)
{
    kit_model **models = calloc(KIT_ROW_COUNT, sizeof(kit_model *));
    bool open = false;
    *out_count = 0;
    if (kit_subject_is_foreign(&k->subject))
        kit_skip(k, "its domain %s is brought by another plugin", k->subject.provider_info.domain);
    else
        open = models && open_runtime(k, h);
    if (open) {
        *out_count = kit_supported(k, false, KIT_ROW_COUNT, models);
        for (uint32_t m = 0; m < *out_count && !kit_failed(k); m++)
            run(h, models[m]);
        close_runtime(h);
    }
    kit_models_free(*out_count, models);
    free(models);
    return open;
}

static void check_sessions(kit *k)
{
    hosted h;
    uint32_t count;
    if (!run_models(k, &h, run_session, &count))
        return;
    if (h.placed == 0 && count > 0)
        kit_fail(k,
                 "it takes %u of the kit's operators, and the runtime placed none on it: see gantry explain",
                 count);
    else if (count == 0)
        kit_pass(k, "loaded by the runtime; it takes none of the kit's operators");
    else
        kit_pass(k, "%u models of a node in sessions of %s,cpu: %u ran on it, %u elsewhere; all right", count,
                 k->subject.provider_info.name, h.placed, h.elsewhere);
}

/* ---- chains ---------------------------------------------------------------------------------- */

#define CHAIN 4u

/* Whether its result can be its first operand again. */
static bool can_follow_itself(const kit_model *m)
{
    const kit_value *x = &m->operands[0], *y = &m->results[0];
    bool same =
        m->result_count == 1 && x->present && !x->constant && x->dtype == y->dtype && x->rank == y->rank;
    for (uint32_t d = 0; same && d < x->rank; d++)
        same = x->dims[d] == y->dims[d];
    for (uint32_t o = 1; same && o < m->operand_count; o++)
        same = !m->operands[o].present || m->operands[o].constant;
    return same;
}

/* What the CPU makes of the chain, node by node: the last result and the first. */
static bool expect_chain(kit *k, const kit_model *m, kit_data *out_data)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_array inputs[KIT_MAX_OPERANDS], last = {0}, next = {0};
    if (!kit_data_make(m, m->n < 0 ? 5 : m->n, 8, k->cpu, out_data, &err))
        return false;
    memcpy(inputs, out_data->inputs, sizeof inputs);
    out_data->expected[1] = out_data->expected[0];
    out_data->expected[0] = (kit_array){0};
    inputs[0] = out_data->expected[1];
    for (uint32_t c = 1; c < CHAIN; c++) {
        if (kit_cpu_run(k->cpu, &m->view, 0, inputs, &next, &err) != GANTRY_OK) {
            kit_array_free(&last);
            return false;
        }
        kit_array_free(&last);
        last = inputs[0] = next;
    }
    out_data->expected[0] = last;
    return true;
}

static void run_chain(hosted *h, const kit_model *m)
{
    kit *k = h->k;
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_session *session = NULL;
    kit_array declared[KIT_MAX_OPERANDS] = {{0}}, got[KIT_MAX_OPERANDS] = {{0}};
    kit_bytes bytes;
    kit_data data;
    kit_call none = {0};
    double largest = 0;
    if (!can_follow_itself(m) || !expect_chain(k, m, &data))
        return;
    declare_inputs(m, declared);
    kit_onnx_write_chain(&m->view, CHAIN, declared, &bytes);
    kit_doing(k, "a session with %u times %s", CHAIN, m->row->op);
    if (good(k,
             gantry_session_create_from_memory(h->runtime, bytes.data, bytes.count, h->options, &session,
                                               NULL, &err),
             &err, "a session", m->row->op) &&
        good(k, kit_session_run(session, data.inputs, 1, got, &err), &err, "a run of a chain", m->row->op)) {
        kit_check_results(k, m, &data, &none, got, &largest);
        kit_model first = *m; /* the second result, with the same rules */
        first.result_count = 1;
        data.expected[2] = data.expected[0];
        data.expected[0] = data.expected[1];
        kit_check_results(k, &first, &data, &none, &got[1], &largest);
        data.expected[0] = data.expected[2];
        data.expected[2] = (kit_array){0};
        h->placed++;
    }
    gantry_session_destroy(&session, NULL);
    for (uint32_t o = 0; o < KIT_MAX_OPERANDS; o++)
        kit_array_free(&got[o]);
    kit_data_free(&data);
    free(bytes.data);
}

static void check_chains(kit *k)
{
    hosted h;
    uint32_t count;
    if (!run_models(k, &h, run_chain, &count))
        return;
    if (h.placed == 0)
        kit_skip(k, "none of the operators that it takes can follow itself");
    else
        kit_pass(k, "%u models of %u nodes, one behind the other, are right", h.placed, CHAIN);
}

void kit_group_session(kit *k)
{
    static const kit_rule RULES[] = {{"sessions", check_sessions, NULL}, {"chains", check_chains, NULL}};
    kit_run_rules(k, RULES, sizeof RULES / sizeof *RULES);
}
