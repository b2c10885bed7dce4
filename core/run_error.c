/* Errors of a run's inputs, worded for users: what the model declares, what was given, and what would make it
 * fit. */
#include "run.h"
#include "session.h"

#define DIM_TEXT 24
#define MAX_ROWS 4

/* One line: some words, a type, and extents, which are aligned on the right. */
typedef struct row {
    const char *words;
    gantry_dtype dtype;
    int32_t rank; /* -1: unknown */
    char dims[GANTRY_MAX_RANK][DIM_TEXT];
} row;

static void declared_row(const gantry_run *run, uint32_t index, const char *words, row *out)
{
    const gt_graph *graph = gt_session_graph(run->session);
    const gt_value *value = graph->values.data[graph->inputs.data[index]];
    *out = (row){.words = words, .dtype = value->dtype, .rank = value->rank};
    for (int32_t k = 0; k < value->rank; k++) {
        gt_text text;
        gt_text_init(&text, run->session->allocator);
        if (value->dims[k] != GT_EXPR_UNKNOWN)
            gt_expr_print(&graph->model->exprs, value->dims[k], &text);
        snprintf(out->dims[k], DIM_TEXT, "%s", text.data ? text.data : "?");
        gt_text_free(&text);
    }
}

static void given_row(const char *words, gantry_dtype dtype, uint32_t rank, const int64_t *dims, row *out)
{
    *out = (row){.words = words, .dtype = dtype, .rank = (int32_t)rank};
    for (uint32_t k = 0; k < rank; k++)
        snprintf(out->dims[k], DIM_TEXT, "%lld", (long long)dims[k]);
}

static void show_rows(const row *rows, uint32_t count, gt_text *text)
{
    int width[GANTRY_MAX_RANK] = {0}, words = 0, type = 0, axes = 0;
    for (uint32_t k = 0; k < count; k++) {
        int length = (int)strlen(rows[k].words), of_type = (int)strlen(gantry_dtype_text(rows[k].dtype));
        words = length > words ? length : words;
        type = of_type > type ? of_type : type;
        axes = rows[k].rank > axes ? rows[k].rank : axes;
        for (int32_t d = 0; d < rows[k].rank; d++) {
            int dim = (int)strlen(rows[k].dims[d]), *room = &width[rows[k].rank - 1 - d];
            *room = dim > *room ? dim : *room;
        }
    }
    for (uint32_t k = 0; k < count; k++) {
        const row *r = &rows[k];
        gt_text_printf(text, "\n  %-*s  %-*s ", words, r->words, type, gantry_dtype_text(r->dtype));
        if (r->rank < 0)
            gt_text_printf(text, "of unknown rank");
        for (int d = axes - 1; d >= 0; d--)
            gt_text_printf(text, "%s%*s",
                           d >= r->rank       ? " "
                           : d == r->rank - 1 ? "["
                                              : ",",
                           width[d], d < r->rank ? r->dims[r->rank - 1 - d] : "");
        gt_text_printf(text, r->rank > 0 ? "]" : r->rank == 0 ? "[]" : "");
    }
}

static gantry_status finish(gt_text *text, gantry_error *err)
{
    gt_text wrapped;
    gt_text_init(&wrapped, text->allocator);
    if (text->data)
        gt_text_wrap(&wrapped, text->data, GT_ERROR_COLUMNS);
    gt_fail(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, NULL, "%s",
            wrapped.data ? wrapped.data : "an input does not fit the model");
    gt_text_free(&wrapped);
    gt_text_free(text);
    return GANTRY_INPUT_SHAPE;
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Whether an extent may stand on axis `axis` of the input. */
static bool extent_fits(const gantry_run *run, const gt_value *value, uint32_t axis, int64_t extent)
{
    int64_t own;
    gt_expr e = value->dims[axis];
    return extent >= 0 &&
           (e == GT_EXPR_UNKNOWN || !gt_expr_is_const(&run->session->model->exprs, e, &own) || own == extent);
}

/* perm[k]: the axis of the tensor that comes to axis k. */
static bool fits_permuted(const gantry_run *run, const gt_value *value, const gantry_tensor *tensor,
                          const uint32_t *perm)
{
    bool fits = true;
    for (uint32_t k = 0; k < tensor->rank; k++)
        fits = fits && extent_fits(run, value, k, tensor->dims[perm[k]]);
    return fits;
}

static void print_perm(const uint32_t *perm, uint32_t rank, gt_text *text)
{
    for (uint32_t k = 0; k < rank; k++)
        gt_text_printf(text, k ? ",%u" : "%u", perm[k]);
}

/* Channels that come last where they should come second, or the other way round. */
static bool hint_channels(const gantry_run *run, const gt_value *value, const gantry_tensor *tensor,
                          gt_text *text)
{
    uint32_t to_second[GANTRY_MAX_RANK], to_last[GANTRY_MAX_RANK], rank = tensor->rank;
    if (rank < 3 || (int32_t)rank != value->rank)
        return false;
    for (uint32_t k = 0; k < rank; k++) {
        to_second[k] = k == 0 ? 0 : k == 1 ? rank - 1 : k - 1;
        to_last[k] = k == 0 ? 0 : k == rank - 1 ? 1 : k + 1;
    }
    bool second = fits_permuted(run, value, tensor, to_second);
    if (!second && !fits_permuted(run, value, tensor, to_last))
        return false;
    gt_text_printf(text, "\n  hint: the channels seem to come %s and belong %s: transpose it with perm=",
                   second ? "last" : "second", second ? "second" : "last");
    print_perm(second ? to_second : to_last, rank, text);
    return true;
}

/* A first axis too few, or one of extent 1 too many. */
static bool hint_rank(const gantry_run *run, const gt_value *value, const gantry_tensor *tensor,
                      gt_text *text)
{
    int32_t more = value->rank - (int32_t)tensor->rank;
    bool fits =
        more == 1 ? extent_fits(run, value, 0, 1) : more == -1 && value->rank >= 0 && tensor->dims[0] == 1;
    for (int32_t k = more == 1; fits && k < value->rank; k++)
        fits = extent_fits(run, value, (uint32_t)k, tensor->dims[k - more]);
    if (fits)
        gt_text_printf(text, more == 1 ? "\n  hint: a first axis of extent 1 (the batch) is missing"
                                       : "\n  hint: its first axis, of extent 1, is one too many");
    return fits;
}

static void say_extents(const gantry_run *run, const gt_value *value, const gantry_tensor *tensor,
                        gt_text *text)
{
    const char *lead = ":";
    for (uint32_t k = 0; k < tensor->rank; k++) {
        int64_t own = 0;
        if (tensor->dims[k] < 0)
            gt_text_printf(text, "%s axis %u is %lld, which is negative", lead, k,
                           (long long)tensor->dims[k]);
        else if (value->rank >= 0 && !extent_fits(run, value, k, tensor->dims[k]) &&
                 gt_expr_is_const(&run->session->model->exprs, value->dims[k], &own))
            gt_text_printf(text, "%s axis %u is %lld, not %lld", lead, k, (long long)tensor->dims[k],
                           (long long)own);
        else
            continue;
        lead = ",";
    }
    if (*lead == ':')
        gt_text_printf(text, ": it has more elements than 64 bits can count");
}

gantry_status gt_run_explain_input(const gantry_run *run, uint32_t index, const gantry_tensor *tensor,
                                   gantry_error *err)
{
    const gt_graph *graph = gt_session_graph(run->session);
    const gt_value *value = graph->values.data[graph->inputs.data[index]];
    row rows[2];
    gt_text text;
    gt_text_init(&text, run->session->allocator);
    gt_text_printf(&text, "input '%s' does not fit the model", value->name);
    declared_row(run, index, "the model takes", &rows[0]);
    /* A rank above the limit is more likely wrong than the dims are that many: they are not read. */
    if (tensor->rank > GANTRY_MAX_RANK) {
        gt_text_printf(&text, ": the tensor given has rank %u; the limit is %u", tensor->rank,
                       GANTRY_MAX_RANK);
        show_rows(rows, 1, &text);
        return finish(&text, err);
    }
    given_row("the tensor given is", tensor->dtype, tensor->rank, tensor->dims, &rows[1]);
    if (tensor->dtype != value->dtype)
        gt_text_printf(&text, ": its elements are %s, not %s", gantry_dtype_text(tensor->dtype),
                       gantry_dtype_text(value->dtype));
    else if (value->rank >= 0 && tensor->rank != (uint32_t)value->rank)
        gt_text_printf(&text, ": it has %u axes, not %d", tensor->rank, value->rank);
    else
        say_extents(run, value, tensor, &text);
    show_rows(rows, 2, &text);
    if (tensor->dtype == value->dtype && !hint_channels(run, value, tensor, &text))
        hint_rank(run, value, tensor, &text);
    return finish(&text, err);
}

/* ---- two inputs ------------------------------------------------------------------------------ */

gantry_status gt_run_explain_names(const gantry_run *run, const gt_run_symbol *a, const gt_run_symbol *b,
                                   gantry_error *err)
{
    const gt_graph *graph = gt_session_graph(run->session);
    const gt_run_symbol *both[2] = {a, b};
    row rows[MAX_ROWS];
    gt_text text;
    gt_text_init(&text, run->session->allocator);
    gt_text_printf(&text, "the dim %s is", graph->model->exprs.symbols.data[a->symbol].name);
    for (int k = 0; k < 2; k++) {
        const gt_run_input *input = &run->inputs[both[k]->input];
        const char *name = graph->values.data[graph->inputs.data[both[k]->input]]->name;
        gt_text_printf(&text, "%s %lld on axis %u of input '%s'", k ? " and" : "",
                       (long long)run->env.values[both[k]->symbol].i, both[k]->axis, name);
        declared_row(run, both[k]->input, name, &rows[2 * k]);
        given_row("  was given", input->dtype, input->rank, input->dims, &rows[2 * k + 1]);
    }
    gt_text_printf(&text, "; strict=on refuses that");
    show_rows(rows, MAX_ROWS, &text);
    gt_text_printf(
        &text, "\n  hint: give both inputs one extent there, or leave strict off if the model only uses one "
               "name for two sizes");
    return finish(&text, err);
}
