/* random_written COUNT SEED [NODES]: random models are written as ONNX and read again. What is read computes
 * the same from the same bytes, and writing it again gives the same file; so does rewriting, writing, reading
 * and rewriting. Prints one line that reproduces each failure; the exit status is 0 when there is none. */
#include "random_model.h"
#include "stub.h"

#include "graph/onnx_write.h"
#include "graph/rewrite.h"

#include <inttypes.h>
#include <stdio.h>

#define ENOUGH 100 /* of so many graphs some have results */
#define MAX_VALUES 64

typedef struct test_case {
    gt_allocator allocator;
    random_source random;
    gt_model *model;
    gantry_error err;
    bool computed;  /* results were compared: the shapes were possible */
    char text[400]; /* what is wrong, "" for nothing */
} test_case;

static bool failed(test_case *c, const char *what)
{
    snprintf(c->text, sizeof c->text, "%s: %.300s", what, c->err.message);
    return false;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static gantry_status put(void *self, const void *bytes, size_t count, gantry_error *err)
{
    gt_text *file = self;
    gt_text_append(file, bytes, count);
    return file->failed ? gt_out_of_memory(err, GANTRY_STAGE_LOAD) : GANTRY_OK;
}

static bool write_model(test_case *c, gt_model *model, gt_text *file)
{
    gt_write_sink sink = {file, put};
    gt_write_options options = {.version = "test"};
    gt_write_result result;
    gt_text_init(file, &c->allocator);
    return gt_onnx_write(model, &options, &sink, NULL, &result, &c->err) == GANTRY_OK || failed(c, "writing");
}

/* The model keeps the bytes as long as it lives. */
static bool read_model(test_case *c, const gt_text *file, gt_model **out_model)
{
    return gt_onnx_read_memory(&c->allocator, file->data, file->length, NULL, NULL, out_model, &c->err) ==
                       GANTRY_OK &&
                   gt_infer_inputs(*out_model, NULL, &c->err) == GANTRY_OK
               ? true
               : failed(c, "reading again");
}

static bool same_bytes(test_case *c, const gt_text *a, const gt_text *b, const char *what)
{
    if (a->length == b->length && memcmp(a->data, b->data, a->length) == 0)
        return true;
    snprintf(c->text, sizeof c->text, "%s: %zu bytes, then %zu, and not the same", what, a->length,
             b->length);
    return false;
}

/* ---- the same results ------------------------------------------------------------------------ */

static void make_feeds(test_case *c, stub_tensor *feeds)
{
    const gt_graph *graph = c->model->root;
    int64_t extents[MODEL_OPENS];
    for (uint32_t k = 0; k < MODEL_OPENS; k++)
        extents[k] = 1 + random_below(&c->random, 5);
    for (uint32_t k = 0; k < graph->inputs.count; k++) {
        const gt_value *value = graph->values.data[graph->inputs.data[k]];
        feeds[k] = stub_feed(value, extents);
        stub_feed_fill(&feeds[k], &c->random);
    }
}

static bool same_tensor(const stub_tensor *a, const stub_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0 &&
           memcmp(a->data, b->data, stub_tensor_bytes(a)) == 0;
}

static bool same_results(test_case *c, const gt_model *again)
{
    stub_tensor feeds[MAX_VALUES] = {{0}}, wanted[MAX_VALUES] = {{0}}, got[MAX_VALUES] = {{0}};
    uint32_t inputs = c->model->root->inputs.count, outputs = c->model->root->outputs.count;
    if (again->root->inputs.count != inputs || again->root->outputs.count != outputs || inputs > MAX_VALUES ||
        outputs > MAX_VALUES) {
        snprintf(c->text, sizeof c->text, "another number of inputs or outputs");
        return false;
    }
    make_feeds(c, feeds);
    bool possible = stub_evaluate(c->model->root, feeds, NULL, wanted);
    bool same = stub_evaluate(again->root, feeds, NULL, got) == possible;
    c->computed = possible;
    for (uint32_t k = 0; same && possible && k < outputs; k++)
        same = same_tensor(&wanted[k], &got[k]);
    if (!same)
        snprintf(c->text, sizeof c->text, "results differ");
    for (uint32_t k = 0; k < MAX_VALUES; k++) {
        stub_tensor_free(&feeds[k]);
        stub_tensor_free(&wanted[k]);
        stub_tensor_free(&got[k]);
    }
    return same;
}

/* ---- a case ---------------------------------------------------------------------------------- */

static bool check_plain(test_case *c)
{
    gt_text first = {0}, second = {0};
    gt_model *again = NULL;
    bool right = write_model(c, c->model, &first) && read_model(c, &first, &again) &&
                 (gt_infer_graph(again->root, &c->err) == GANTRY_OK || failed(c, "inferring again")) &&
                 same_results(c, again) && write_model(c, again, &second) &&
                 same_bytes(c, &first, &second, "as it is");
    gt_model_destroy(&again);
    gt_text_free(&first);
    if (second.allocator)
        gt_text_free(&second);
    return right;
}

static bool rewrite(test_case *c, gt_model *model)
{
    gt_rewrite_options options = {.enabled = true, .for_file = true};
    return (gt_simplify(model->root, &options, &c->err) == GANTRY_OK &&
            gt_graph_make_standard(model->root, &c->err) == GANTRY_OK) ||
           failed(c, "rewriting");
}

/* Changes the case's model: the last check. */
static bool check_rewritten(test_case *c)
{
    gt_text first = {0}, second = {0};
    gt_model *again = NULL;
    bool right = rewrite(c, c->model) && write_model(c, c->model, &first) && read_model(c, &first, &again) &&
                 rewrite(c, again) && write_model(c, again, &second) &&
                 same_bytes(c, &first, &second, "rewritten");
    gt_model_destroy(&again);
    if (first.allocator)
        gt_text_free(&first);
    if (second.allocator)
        gt_text_free(&second);
    return right;
}

static bool check(uint64_t seed, uint32_t max_nodes, uint64_t *inout_computed, char *out_text)
{
    test_case c = {.random = {.state = seed}, .err = GANTRY_ERROR_INIT};
    gt_allocator_init(&c.allocator, NULL);
    random_model_shape shape = random_model_choose(&c.random, max_nodes);
    bool right = random_model_make(&c.allocator, &c.random, &shape, &c.model, &c.err) == GANTRY_OK ||
                 failed(&c, "making");
    right = right && check_plain(&c) && check_rewritten(&c);
    gt_model_destroy(&c.model);
    *inout_computed += c.computed;
    memcpy(out_text, c.text, sizeof c.text);
    return right;
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint32_t max_nodes = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 24;
    uint64_t failures = 0, computed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint64_t k = 0; k < count; k++) {
        char text[400];
        if (check(seed + k, max_nodes, &computed, text))
            continue;
        failures++;
        printf("FAILED random_written 1 %" PRIu64 " %u: %s\n", seed + k, max_nodes, text);
    }
    printf("%" PRIu64 " graphs, %" PRIu64 " with results, %" PRIu64 " failed\n", count, computed, failures);
    bool checked_nothing = count >= ENOUGH && computed == 0;
    return failures != 0 || checked_nothing;
}
