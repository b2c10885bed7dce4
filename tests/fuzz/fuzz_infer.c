/* Shape inference on small models of any operators, twice as rewrites do it, and what a plan asks of the
 * result. */
#include "fuzz_model.h"

#include "graph/infer.h"

#include <gantry/gantry.h>

static void look_at_values(const gt_graph *graph, gt_text *text)
{
    for (uint32_t k = 0; k < graph->values.count; k++) {
        text->length = 0;
        gt_value_print(graph, k, text);
    }
}

/* What a bind does first: symbols get numbers, everything is evaluated, and what does not fit is explained.
 */
static void bind_shapes(gt_graph *graph, fuzz_tape *tape)
{
    const gt_exprs *exprs = &graph->model->exprs;
    uint32_t symbols = exprs->symbols.count, count = exprs->nodes.count;
    gt_scalar *symbol_values = calloc(symbols + 1, sizeof *symbol_values);
    gt_scalar *values = calloc(count + 1, sizeof *values);
    uint8_t *symbol_known = calloc(symbols + 1, 1), *known = calloc(count + 1, 1);
    gantry_error err = GANTRY_ERROR_INIT;
    gt_expr failed = GT_EXPR_UNKNOWN;
    for (uint32_t k = 0; k < symbols; k++) {
        symbol_values[k].i = fuzz_byte(tape) % 17;
        symbol_known[k] = !fuzz_chance(tape, 30);
    }
    gt_infer_key_symbols(graph, symbol_known);
    gt_exprs_evaluate(exprs, 0, count, symbol_values, symbol_known, values, known, &failed);
    uint32_t broken = gt_infer_first_failure(graph, known);
    if (broken != GT_NONE &&
        gt_infer_explain_check(graph, broken, graph->checks[broken].expr, values, known, &err) == GANTRY_OK)
        __builtin_trap();
    free(symbol_values);
    free(values);
    free(symbol_known);
    free(known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_tape tape = {data, size, 0};
    fuzz_model made;
    gt_allocator allocator;
    gt_model *model = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    gt_text text;
    fuzz_model_make(&tape, &made);
    gt_allocator_init(&allocator, NULL);
    gt_text_init(&text, &allocator);
    gantry_status status =
        gt_onnx_read_memory(&allocator, made.bytes.data, made.bytes.size, NULL, NULL, &model, &err);
    if (status == GANTRY_OK)
        status = gt_infer_inputs(model, NULL, &err);
    for (int again = 0; again < 2 && status == GANTRY_OK; again++)
        status = gt_infer_graph(model->root, &err);
    if ((status == GANTRY_OK) == (err.message[0] != 0))
        __builtin_trap();
    if (status == GANTRY_OK) {
        look_at_values(model->root, &text);
        bind_shapes(model->root, &tape);
    }
    gt_text_free(&text);
    gt_model_destroy(&model);
    wire_free(&made.bytes);
    return 0;
}
