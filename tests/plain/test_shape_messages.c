/* What users read when shapes do not fit: the whole message of each case must be that of
 * tests/data/messages/shapes.txt, and no line may be wider than 100 columns. With GANTRY_UPDATE=1 in the
 * environment the program writes the file instead.
 *
 * Every message names the node and its operator, each tensor with its whole shape and where it comes from,
 * the axis, what bound the symbols, and, where something simple would make the model legal, a hint. */
#include "../support/small_models.h"

#include "base/text.h"

#define GOLDEN GANTRY_TEST_DATA "/messages/shapes.txt"
#define MOST_COLUMNS 100
#define N (-1) /* a symbolic extent named "n" */

typedef struct message_case {
    const char *name;
    wire (*model)(void);
    void (*run)(small_session *s); /* NULL: creation fails */
    const char *options;
} message_case;

/* ---- models ---------------------------------------------------------------------------------- */

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define RANK(...) ((int)(sizeof DIMS(__VA_ARGS__) / sizeof(int64_t)))
#define INPUT(g, name, ...)                                                                                  \
    wire_message(g, GRAPH_INPUT, onnx_value(name, SMALL_F32, RANK(__VA_ARGS__), DIMS(__VA_ARGS__)))
#define WEIGHTS(g, name, ...) put_weights(g, name, RANK(__VA_ARGS__), DIMS(__VA_ARGS__))
#define SHAPE(g, name, ...) put_integers(g, name, RANK(__VA_ARGS__), DIMS(__VA_ARGS__))

static void put_weights(wire *g, const char *name, int rank, const int64_t *dims)
{
    static const float zeros[4096];
    size_t count = 1;
    for (int k = 0; k < rank; k++)
        count *= (size_t)dims[k];
    wire_message(g, GRAPH_INITIALIZER, onnx_raw_tensor(name, SMALL_F32, rank, dims, zeros, 4 * count));
}

static void put_integers(wire *g, const char *name, int count, const int64_t *values)
{
    const int64_t dims[1] = {count};
    wire_message(g, GRAPH_INITIALIZER, onnx_raw_tensor(name, SMALL_I64, 1, dims, values, 8 * (size_t)count));
}

static void put_node(wire *g, const char *op, const char *name, const char *inputs, const char *outputs)
{
    wire_message(g, GRAPH_NODE, onnx_node(op, name, inputs, outputs));
}

/* An output whose shape is not declared. */
static wire finish(wire g, const char *output)
{
    wire_message(&g, GRAPH_OUTPUT, onnx_value(output, SMALL_F32, -1, NULL));
    return small_model(g);
}

static wire matmul(void)
{
    wire g = small_graph("g");
    INPUT(&g, "tokens", N, 48);
    WEIGHTS(&g, "encoder.proj.weight", 64, 48);
    put_node(&g, "Relu", "encoder/relu", "tokens", "hidden");
    put_node(&g, "MatMul", "encoder/proj", "hidden,encoder.proj.weight", "y");
    return finish(g, "y");
}

static wire gemm(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", 4, 8);
    WEIGHTS(&g, "fc.weight", 16, 8);
    WEIGHTS(&g, "fc.bias", 16);
    put_node(&g, "Gemm", "fc", "x,fc.weight,fc.bias", "y");
    return finish(g, "y");
}

static wire gemm_bias(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", 4, 8);
    WEIGHTS(&g, "fc.weight", 8, 16);
    WEIGHTS(&g, "fc.bias", 8);
    put_node(&g, "Gemm", "fc", "x,fc.weight,fc.bias", "y");
    return finish(g, "y");
}

static wire conv_channels(void)
{
    wire g = small_graph("g");
    INPUT(&g, "image", N, 32, 32, 3);
    WEIGHTS(&g, "stem.weight", 8, 3, 3, 3);
    put_node(&g, "Conv", "stem", "image,stem.weight", "y");
    return finish(g, "y");
}

static wire conv_group(void)
{
    wire g = small_graph("g");
    INPUT(&g, "image", 1, 6, 32, 32);
    WEIGHTS(&g, "stem.weight", 9, 2, 3, 3);
    wire conv = onnx_node("Conv", "stem", "image,stem.weight", "y");
    onnx_set_int(&conv, "group", 2);
    wire_message(&g, GRAPH_NODE, conv);
    return finish(g, "y");
}

static wire conv_rank(void)
{
    wire g = small_graph("g");
    INPUT(&g, "signal", 1, 3, 16000);
    WEIGHTS(&g, "stem.weight", 8, 3, 3, 3);
    put_node(&g, "Conv", "stem", "signal,stem.weight", "y");
    return finish(g, "y");
}

static wire add(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", 2, 15);
    INPUT(&g, "mask", 2, 64);
    put_node(&g, "Relu", "relu", "x", "a");
    put_node(&g, "Neg", "neg", "mask", "b");
    put_node(&g, "Add", "attention/add", "a,b", "y");
    return finish(g, "y");
}

static wire add_unsqueeze(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", N, 8, 14, 14);
    WEIGHTS(&g, "scale", 8);
    put_node(&g, "Mul", "affine", "x,scale", "y");
    return finish(g, "y");
}

static wire add_at_run(void)
{
    wire g = small_graph("g");
    wire_message(&g, GRAPH_INPUT, onnx_value("x", SMALL_F32, 2, DIMS(N, 15)));
    wire_message(&g, GRAPH_INPUT, onnx_value("past", SMALL_F32, 2, DIMS(N, N)));
    put_node(&g, "Relu", "relu", "x", "a");
    put_node(&g, "Add", "attention/add", "a,past", "y");
    return finish(g, "y");
}

static wire concat(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", N, 3, 8);
    INPUT(&g, "y", N, 4, 9);
    put_node(&g, "Relu", "relu", "y", "z");
    wire node = onnx_node("Concat", "skip/concat", "x,z", "out");
    onnx_set_int(&node, "axis", 1);
    wire_message(&g, GRAPH_NODE, node);
    return finish(g, "out");
}

static wire reshape(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", 2, 3, 4);
    SHAPE(&g, "target", 5, -1);
    put_node(&g, "Reshape", "view", "x,target", "y");
    return finish(g, "y");
}

static wire reshape_batch(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", N, 12, 5);
    SHAPE(&g, "target", 1, 3, 4, 5);
    put_node(&g, "Relu", "relu", "x", "h");
    put_node(&g, "Reshape", "heads/view", "h,target", "y");
    return finish(g, "y");
}

static wire gather(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", 4, 8);
    SHAPE(&g, "pick", 0, 7);
    put_node(&g, "Gather", "lookup", "x,pick", "y");
    return finish(g, "y");
}

static wire gather_at_run(void)
{
    wire g = small_graph("g");
    WEIGHTS(&g, "embedding", 30, 8);
    wire_message(&g, GRAPH_INPUT, onnx_value("ids", SMALL_I64, 1, DIMS(N)));
    put_node(&g, "Gather", "lookup", "embedding,ids", "y");
    return finish(g, "y");
}

static wire slice(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", 4, 8);
    SHAPE(&g, "from", 0);
    SHAPE(&g, "to", 2);
    SHAPE(&g, "axes", 3);
    put_node(&g, "Slice", "crop", "x,from,to,axes", "y");
    return finish(g, "y");
}

static wire expand(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", 3, 4);
    SHAPE(&g, "target", 2, 6, 4);
    put_node(&g, "Expand", "repeat", "x,target", "y");
    return finish(g, "y");
}

static wire where(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", N, 3);
    INPUT(&g, "y", N, 4);
    WEIGHTS(&g, "zero", 1);
    put_node(&g, "Greater", "positive", "x,zero", "mask");
    put_node(&g, "Where", "select", "mask,x,y", "out");
    return finish(g, "out");
}

static wire two_inputs(void)
{
    wire g = small_graph("g");
    wire_message(&g, GRAPH_INPUT, onnx_value("input_ids", SMALL_F32, 2, DIMS(N, 4)));
    wire_message(&g, GRAPH_INPUT, onnx_value("attention_mask", SMALL_F32, 2, DIMS(N, 4)));
    put_node(&g, "Add", "add", "input_ids,attention_mask", "y");
    return finish(g, "y");
}

static wire image_input(void)
{
    wire g = small_graph("g");
    INPUT(&g, "image", N, 3, 8, 8);
    put_node(&g, "Relu", "relu", "image", "y");
    return finish(g, "y");
}

static wire branches(void)
{
    wire yes = small_graph("yes"), no = small_graph("no"), g = small_graph("g");
    put_node(&yes, "Neg", "minus", "x", "a");
    wire_message(&yes, GRAPH_OUTPUT, onnx_value("a", SMALL_F32, -1, NULL));
    wire cast = onnx_node("Cast", "whole", "x", "b");
    onnx_set_int(&cast, "to", SMALL_I64);
    wire_message(&no, GRAPH_NODE, cast);
    wire_message(&no, GRAPH_OUTPUT, onnx_value("b", SMALL_I64, -1, NULL));
    wire_message(&g, GRAPH_INPUT, onnx_value("flag", SMALL_BOOL, 0, NULL));
    INPUT(&g, "x", 2, 3);
    wire branch = onnx_node("If", "decide", "flag", "y");
    onnx_set_graph(&branch, "then_branch", yes);
    onnx_set_graph(&branch, "else_branch", no);
    wire_message(&g, GRAPH_NODE, branch);
    return finish(g, "y");
}

static wire in_body(void)
{
    wire body = small_graph("body"), g = small_graph("g");
    put_node(&body, "Identity", "keep", "cond", "cond_out");
    put_node(&body, "MatMul", "step", "state,w", "state_out");
    small_input(&body, "i", SMALL_I64, 0, 0, 0);
    small_input(&body, "cond", SMALL_BOOL, 0, 0, 0);
    small_input(&body, "state", SMALL_F32, 2, 2, 3);
    small_output(&body, "cond_out", SMALL_BOOL, 0, 0, 0);
    wire_message(&body, GRAPH_OUTPUT, onnx_value("state_out", SMALL_F32, -1, NULL));
    wire_message(&g, GRAPH_INPUT, onnx_value("trips", SMALL_I64, 0, NULL));
    INPUT(&g, "start", 2, 3);
    WEIGHTS(&g, "w", 4, 4);
    wire loop = onnx_node("Loop", "rnn", "trips,,start", "y");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    return finish(g, "y");
}

static wire batch_norm(void)
{
    wire g = small_graph("g");
    INPUT(&g, "x", N, 8, 5, 5);
    WEIGHTS(&g, "bn.weight", 16);
    WEIGHTS(&g, "bn.bias", 16);
    WEIGHTS(&g, "bn.mean", 16);
    WEIGHTS(&g, "bn.var", 16);
    put_node(&g, "BatchNormalization", "bn", "x,bn.weight,bn.bias,bn.mean,bn.var", "y");
    return finish(g, "y");
}

/* ---- runs ------------------------------------------------------------------------------------ */

static float zeros[4096];

static void bind(small_session *s, uint32_t index, int rank, const int64_t *dims)
{
    size_t count = 1;
    for (int k = 0; k < rank; k++)
        count *= (size_t)dims[k];
    gantry_tensor t = small_tensor(GANTRY_FLOAT32, (uint32_t)rank, dims, zeros, 4 * count);
    if (s->status == GANTRY_OK)
        s->status = gantry_run_bind_input(s->run, index, &t, &s->err);
}

static void execute(small_session *s)
{
    if (s->status == GANTRY_OK)
        s->status = gantry_run_execute(s->run, &s->err);
}

static void run_add(small_session *s)
{
    bind(s, 0, 2, DIMS(3, 15));
    bind(s, 1, 2, DIMS(3, 64));
    execute(s);
}

static void run_batch(small_session *s)
{
    bind(s, 0, 3, DIMS(8, 12, 5));
    execute(s);
}

static void run_two_inputs(small_session *s)
{
    bind(s, 0, 2, DIMS(2, 4));
    bind(s, 1, 2, DIMS(3, 4));
    execute(s);
}

static void run_image(small_session *s)
{
    bind(s, 0, 4, DIMS(1, 8, 8, 3));
    execute(s);
}

static void run_image_rank(small_session *s)
{
    bind(s, 0, 3, DIMS(3, 8, 8));
    execute(s);
}

static void run_gather(small_session *s)
{
    int64_t ids[3] = {0, 29, 30};
    small_bind(s, 0, GANTRY_INT64, 1, 3, 0, ids);
    execute(s);
}

static const message_case cases[] = {
    {"MatMul, K", matmul},
    {"Gemm, K", gemm},
    {"Gemm, bias", gemm_bias},
    {"Conv, channels (NHWC data)", conv_channels},
    {"Conv, group", conv_group},
    {"Conv, rank", conv_rank},
    {"Add", add},
    {"Mul, a vector per channel", add_unsqueeze},
    {"Add, found by a run", add_at_run, run_add},
    {"Concat", concat},
    {"Reshape with -1", reshape},
    {"Reshape, a batch size in the file", reshape_batch, run_batch},
    {"Gather, constant index", gather},
    {"Gather, found by a run", gather_at_run, run_gather},
    {"Slice, axis", slice},
    {"Expand", expand},
    {"Where", where},
    {"two inputs bind one symbol", two_inputs, run_two_inputs},
    {"two inputs bind one symbol, strict", two_inputs, run_two_inputs, "strict=on"},
    {"input, fixed extents", image_input, run_image},
    {"input, rank", image_input, run_image_rank},
    {"If, branches", branches},
    {"inside a Loop", in_body},
    {"BatchNormalization", batch_norm},
};
#define CASE_COUNT (sizeof cases / sizeof *cases)

/* ---- the program ----------------------------------------------------------------------------- */

static bool add_case(const message_case *c, gt_text *text)
{
    small_session s = small_open(c->model(), c->options ? c->options : "");
    if (c->run && s.status == GANTRY_OK)
        c->run(&s);
    bool failed = s.status != GANTRY_OK;
    gt_text_printf(text, "---- %s: %s, stage %s, node '%s'\n%s\n\n", c->name, gantry_status_text(s.status),
                   gantry_stage_text(s.err.stage), s.err.node, s.err.message);
    small_close(&s);
    if (!failed)
        fprintf(stderr, "%s: nothing failed\n", c->name);
    return failed;
}

static bool is_narrow(const char *text)
{
    bool narrow = true;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strcspn(line, "\n") > MOST_COLUMNS) {
            narrow = false;
            fprintf(stderr, "wider than %d columns: %.*s\n", MOST_COLUMNS, (int)strcspn(line, "\n"), line);
        }
    return narrow;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *bytes = (char *)calloc(1, 1 << 16);
    if (file && bytes)
        (void)!fread(bytes, 1, (1 << 16) - 1, file);
    if (file)
        fclose(file);
    return bytes;
}

static bool write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && written;
}

static bool is_golden(const char *text)
{
    char *golden = read_file(GOLDEN);
    bool same = golden && strcmp(golden, text) == 0;
    if (!same) {
        size_t at = 0, begin = 0;
        for (; golden && golden[at] && golden[at] == text[at]; at++)
            begin = golden[at] == '\n' ? at + 1 : begin;
        fprintf(stderr,
                "%s differs (GANTRY_UPDATE=1 writes it). It says:\n%.400s\nbut the message is:\n%.400s\n",
                GOLDEN, golden ? golden + begin : "", text + begin);
    }
    free(golden);
    return same;
}

int main(void)
{
    gt_allocator allocator;
    gt_allocator_init(&allocator, NULL);
    gt_text text;
    gt_text_init(&text, &allocator);
    uint32_t failed = 0;
    for (size_t k = 0; k < CASE_COUNT; k++)
        failed += !add_case(&cases[k], &text);
    failed += !is_narrow(text.data);
    failed += getenv("GANTRY_UPDATE") ? !write_file(GOLDEN, text.data) : !is_golden(text.data);
    gt_text_free(&text);
    printf("%zu passed, %u failed\n", CASE_COUNT + 2 - failed, failed);
    return failed > 0;
}
