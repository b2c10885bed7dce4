/* Rules about operators: each of the table is offered; what is taken is computed and compared with the CPU,
 * what is refused has a reason. */
#include "kit.h"

#include <stdlib.h>

gantry_status kit_judge(const kit_subject *s, const kit_model *model, gantry_verdict *out_verdict)
{
    const uint32_t nodes[1] = {0};
    *out_verdict = (gantry_verdict){.struct_bytes = sizeof *out_verdict};
    return s->provider.judge(s->provider.self, &model->view, nodes, 1, out_verdict);
}

void kit_models_free(uint32_t count, kit_model **models)
{
    for (uint32_t k = 0; k < count; k++) {
        kit_model_free(models[k]);
        free(models[k]);
    }
}

/* The row with sizes that come with the run, or else fixed ones, as the provider takes it; NULL: it does not.
 */
static kit_model *supported_model(kit *k, const kit_row *row)
{
    static const int64_t SIZES[] = {-1, KIT_TYPICAL_N};
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        gantry_error err = GANTRY_ERROR_INIT;
        gantry_verdict verdict = {0};
        kit_model *model = malloc(sizeof *model);
        if (!model)
            return NULL;
        if (kit_model_make(row, SIZES[s], k->cpu, model, &err) &&
            kit_judge(&k->subject, model, &verdict) == GANTRY_OK && verdict.supported)
            return model;
        kit_model_free(model);
        free(model);
    }
    return NULL;
}

uint32_t kit_supported(kit *k, bool prefer_constants, uint32_t capacity, kit_model **out_models)
{
    uint32_t count = 0;
    for (int pass = prefer_constants ? 0 : 1; pass < 2; pass++)
        for (uint32_t r = 0; r < KIT_ROW_COUNT && count < capacity; r++) {
            bool has_constants = strchr(KIT_ROWS[r].inputs, '*') != NULL;
            if (prefer_constants && has_constants != (pass == 0))
                continue;
            kit_model *model = supported_model(k, &KIT_ROWS[r]);
            if (model)
                out_models[count++] = model;
        }
    return count;
}

static void name_rule(const kit_row *row, char *out_name, size_t capacity)
{
    snprintf(out_name, capacity, "%s %s", row->op, row->inputs);
    if (strlen(row->inputs) > 22)
        snprintf(out_name + strlen(row->op) + 20, capacity - strlen(row->op) - 20, "...");
}

/* A refusal that a user can do something with. */
static void check_refusal(kit *k, const gantry_verdict *v)
{
    const gantry_refusal *r = &v->refusal;
    if (r->code <= GANTRY_REFUSE_NONE || r->code >= GANTRY_REFUSE_COUNT)
        kit_fail(k, "refused without a code: call gantry_refuse with one of refusals.def, the operand, what "
                    "it is and "
                    "what is needed");
    else if (!*r->operand && !*r->actual && !*r->required && !*r->detail)
        kit_fail(k, "refused with %s and no words: name the operand, what it is and what is needed",
                 gantry_refusal_text(r->code));
    else
        kit_refused(k, "refused: %s, %s is %s, needs %s%s%s", gantry_refusal_text(r->code), r->operand,
                    r->actual, r->required, *r->detail ? "; " : "", r->detail);
}

static void run_sizes(kit *k, const kit_model *model)
{
    static const int64_t SIZES[] = {3, 1, 17, 0};
    char sizes[64] = "";
    double largest = 0;
    uint32_t refused = 0;
    size_t count = model->has_n && model->n < 0 ? sizeof SIZES / sizeof *SIZES : 1;
    for (size_t s = 0; s < count && !kit_failed(k); s++) {
        gantry_error err = GANTRY_ERROR_INIT;
        kit_data data;
        if (!kit_data_make(model, SIZES[s], (uint32_t)s + 1, k->cpu, &data, &err))
            continue; /* the CPU does not take this size either */
        if (kit_try(k, model, &data, &largest))
            snprintf(sizes + strlen(sizes), sizeof sizes - strlen(sizes), "%s%lld", *sizes ? ", " : "",
                     (long long)SIZES[s]);
        else
            refused++;
        kit_data_free(&data);
    }
    kit_pass(k, "n = %s%s; largest difference from the CPU %.2g%s", sizes,
             model->n < 0 ? "" : " (fixed sizes only)", largest, refused ? "; other sizes refused" : "");
}

static void check_row(kit *k, const kit_row *row)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_verdict verdict;
    kit_model *model = malloc(sizeof *model), *taken = NULL;
    if (!model || !kit_model_make(row, -1, k->cpu, model, &err)) {
        kit_skip(k, "the CPU provider does not run it: %s", err.message);
        free(model);
        return;
    }
    kit_doing(k, "judge of %s", row->op);
    gantry_status status = kit_judge(&k->subject, model, &verdict);
    if (status != GANTRY_OK)
        kit_fail(k, "judge gave status %d: a refusal is GANTRY_OK with supported = 0", (int)status);
    else if (!verdict.supported && !(taken = supported_model(k, row)))
        check_refusal(k, &verdict);
    else if (verdict.supported && verdict.estimate_ns < 0)
        kit_fail(k, "the estimate is %g ns: use NAN when it is not known", verdict.estimate_ns);
    else
        run_sizes(k, taken ? taken : model);
    kit_model_free(model);
    free(model);
    if (taken)
        kit_models_free(1, &taken);
}

void kit_group_operators(kit *k)
{
    for (uint32_t r = 0; r < KIT_ROW_COUNT; r++) {
        char name[64];
        name_rule(&KIT_ROWS[r], name, sizeof name);
        if (!kit_rule_begin(k, name))
            continue;
        if (kit_subject_is_foreign(&k->subject))
            kit_skip(k, "its domain %s is brought by another plugin", k->subject.provider_info.domain);
        else
            check_row(k, &KIT_ROWS[r]);
        kit_rule_end(k, "");
    }
}
