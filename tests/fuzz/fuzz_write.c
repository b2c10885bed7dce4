/* Writing what was read: bytes are an ONNX file, or else a small model of any operators is made of them. As
 * it is and rewritten, the model goes into a file that can be read again and gives the same file. */
#include "fuzz_model.h"

#include "graph/onnx_write.h"
#include "graph/rewrite.h"

#include <gantry/gantry.h>
#include <stdio.h>

typedef struct write_case {
    gt_allocator allocator;
    gantry_error err;
    bool rewrite;
} write_case;

static gantry_status put(void *self, const void *bytes, size_t count, gantry_error *err)
{
    wire_put(self, bytes, count);
    return GANTRY_OK;
}

/* Reads, infers, perhaps rewrites, and writes. */
static gantry_status turn(write_case *c, const uint8_t *bytes, size_t size, wire *out_file)
{
    gt_model *model = NULL;
    gt_read_limits limits = {.keep_notes = true};
    gt_write_sink sink = {out_file, put};
    gt_write_options options = {.version = "fuzz"};
    gt_rewrite_options rewrites = {.enabled = c->rewrite, .for_file = true};
    gt_write_result result;
    gantry_status status = gt_onnx_read_memory(&c->allocator, bytes, size, NULL, &limits, &model, &c->err);
    if (status == GANTRY_OK)
        status = gt_infer_inputs(model, NULL, &c->err);
    if (status == GANTRY_OK)
        status = gt_simplify(model->root, &rewrites, &c->err);
    if (status == GANTRY_OK)
        status = gt_graph_make_standard(model->root, &c->err);
    if (status == GANTRY_OK)
        status = gt_onnx_write(model, &options, &sink, NULL, &result, &c->err);
    gt_model_destroy(&model);
    if ((status == GANTRY_OK) == (c->err.message[0] != 0))
        __builtin_trap(); /* a status without words, or words without one */
    return status;
}

static void check(const uint8_t *bytes, size_t size, bool rewrite)
{
    write_case c = {.err = GANTRY_ERROR_INIT, .rewrite = rewrite};
    wire first = {0}, second = {0};
    gt_allocator_init(&c.allocator, NULL);
    if (turn(&c, bytes, size, &first) == GANTRY_OK) {
        if (turn(&c, first.data, first.size, &second) != GANTRY_OK) {
            fprintf(stderr, "what was written is refused: %s\n", c.err.message);
            __builtin_trap();
        }
        if (first.size != second.size || memcmp(first.data, second.data, first.size) != 0)
            __builtin_trap(); /* another file from the same model */
    }
    wire_free(&first);
    wire_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_tape tape = {data, size, 0};
    fuzz_model made;
    fuzz_model_make(&tape, &made);
    for (int rewrite = 0; rewrite < 2; rewrite++) {
        check(data, size, rewrite);
        check(made.bytes.data, made.bytes.size, rewrite);
    }
    wire_free(&made.bytes);
    return 0;
}
