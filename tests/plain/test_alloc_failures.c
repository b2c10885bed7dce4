/* Every allocation of a session's life fails once: each call gives GANTRY_RESOURCE or does without, the same
 * call then succeeds, results are right, and nothing is lost. A plain program: a leak fails it under ASan. */
#include "../support/broken_allocator.h"
#include "../support/expect.h"
#include "../support/small_models.h"

#include <math.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"

/* ---- models ---------------------------------------------------------------------------------- */

#define REPEATS 3 /* the large shape holds the small one that often */

typedef struct life_model {
    const char *name;
    wire bytes;
    /* repeats: 1, or REPEATS where the model takes larger shapes. */
    void (*bind)(small_session *s, int repeats);
    bool on_device; /* the fake one, else on the CPU alone */
    uint32_t output;
    int count; /* elements of that output at the small shape; at the large one they repeat */
    float expected[8];
    bool one_shape;
    bool numeric; /* with the numeric check */
    bool twice;   /* with a second session that shares its constants */
} life_model;

static float four[4 * REPEATS] = {1, -2, 3, -4, 1, -2, 3, -4, 1, -2, 3, -4};
static float ones[4 * REPEATS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static float sparse[4 * REPEATS] = {0, 5, 0, 7, 0, 5, 0, 7, 0, 5, 0, 7};
static float yes[1] = {1};
static int64_t trips = 3;

static void bind_add(small_session *s, int repeats)
{
    small_bind(s, 0, SMALL_F32, 2, repeats, 4, four);
    small_bind(s, 1, SMALL_F32, 2, repeats, 4, ones);
}

static void bind_loop(small_session *s, int repeats)
{
    (void)repeats;
    small_bind(s, 0, SMALL_I64, 0, 0, 0, &trips);
    small_bind(s, 1, SMALL_F32, 1, 4, 0, ones);
}

static void bind_nonzero(small_session *s, int repeats)
{
    small_bind(s, 0, SMALL_F32, 1, 4 * repeats, 0, sparse);
}

static void bind_if(small_session *s, int repeats)
{
    small_bind(s, 0, SMALL_F32, 1, 1, 0, yes);
    small_bind(s, 1, SMALL_F32, 1, 4 * repeats, 0, four);
}

static void bind_net(small_session *s, int repeats)
{
    small_bind(s, 0, SMALL_F32, 2, repeats, 4, four);
}

/* A bit of everything that is rewritten, folded and fused: equal nodes, constants of constants, a chain of
 * shape arithmetic, a product with bias and activation, Q/DQ. Each of y's two rows of four sums up to 8. */
static wire net(void)
{
    wire g = small_graph("net");
    const float weight[32] = {1, 1, 1, 1, 1, 1, 1, 1}, bias[8] = {1, 1, 1, 1, 1, 1, 1, 1}, scale = 0.5f,
                four_f = 4;
    const int64_t w_dims[2] = {4, 8}, tail[2] = {2, 4}, one[1] = {1}, two[1] = {2}, zero = 0;
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", SMALL_F32, 2, w_dims, weight, sizeof weight));
    small_floats(&g, "bias", 8, bias);
    small_floats(&g, "four", 1, &four_f);
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("scale", SMALL_F32, 0, NULL, &scale, sizeof scale));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("zero", SMALL_I64, 1, one, &zero, sizeof zero));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("tail", SMALL_I64, 1, two, tail, sizeof tail));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "fold1", "four,four", "eight"));
    wire_message(&g, GRAPH_NODE, onnx_node("Identity", "same1", "x", "x1"));
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", "product1", "x1,w", "p1"));
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", "product2", "x,w", "p2"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "bias1", "p1,bias", "b1"));
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", "relu1", "b1", "r1"));
    wire_message(&g, GRAPH_NODE, onnx_node("Sub", "nothing1", "p1,p2", "n1"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "sum1", "r1,n1", "a1"));
    wire_message(&g, GRAPH_NODE, onnx_node("QuantizeLinear", "q1", "a1,scale", "i1"));
    wire_message(&g, GRAPH_NODE, onnx_node("DequantizeLinear", "dq1", "i1,scale", "d1"));
    wire_message(&g, GRAPH_NODE, onnx_node("Shape", "shape1", "x", "s1"));
    wire_message(&g, GRAPH_NODE, onnx_node("Gather", "gather1", "s1,zero", "rows"));
    wire concat = onnx_node("Concat", "concat1", "rows,tail", "target");
    onnx_set_int(&concat, "axis", 0);
    wire_message(&g, GRAPH_NODE, concat);
    wire_message(&g, GRAPH_NODE, onnx_node("Reshape", "reshape1", "d1,target", "d3"));
    wire_message(&g, GRAPH_NODE, onnx_node("Softmax", "softmax1", "d3", "shares"));
    wire_message(&g, GRAPH_NODE, onnx_node("Mul", "mul1", "shares,eight", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    wire_message(&g, GRAPH_OUTPUT, onnx_value("y", SMALL_F32, 3, (const int64_t[3]){-1, 2, 4}));
    return small_model(g);
}

/* y = the largest of x w + c, with weights of a size that sessions share: of the product, packed, and of the
 * sum, copied. */
static wire heavy(void)
{
    enum { COLUMNS = 2048 };
    static float ones_of[4 * COLUMNS], zeros[COLUMNS];
    for (int k = 0; k < 4 * COLUMNS; k++)
        ones_of[k] = 1;
    const int64_t w_dims[2] = {4, COLUMNS}, c_dims[2] = {1, COLUMNS}, one[1] = {1};
    wire g = small_graph("heavy");
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", SMALL_F32, 2, w_dims, ones_of, sizeof ones_of));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("c", SMALL_F32, 2, c_dims, zeros, sizeof zeros));
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", "product", "x,w", "p"));
    wire_message(&g, GRAPH_NODE, onnx_node("Mul", "nothing", "p,c", "n"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "sum", "p,n", "s"));
    wire largest = onnx_node("ReduceMax", "largest", "s", "y"), axes = onnx_attribute("axes", 7);
    wire_int(&axes, 8, one[0]);
    wire_message(&largest, 5, axes);
    wire_message(&g, GRAPH_NODE, largest);
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 1);
    return small_model(g);
}

/* y = Relu(x + 1), computed in float16, which the sessions here have promoted. */
static wire half_add(void)
{
    wire g = small_graph("half");
    const uint16_t one[4] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
    const int64_t dims[1] = {4};
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", GANTRY_FLOAT16, 1, dims, one, sizeof one));
    wire narrow = onnx_node("Cast", "cast1", "x", "h"), wide = onnx_node("Cast", "cast2", "r", "y");
    onnx_set_int(&narrow, "to", GANTRY_FLOAT16);
    onnx_set_int(&wide, "to", GANTRY_FLOAT32);
    wire_message(&g, GRAPH_NODE, narrow);
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "h,w", "t"));
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", "relu1", "t", "r"));
    wire_message(&g, GRAPH_NODE, wide);
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

/* y = x times a matrix of ones, in bytes. */
static wire quantized(void)
{
    wire g = small_graph("quantized");
    const int64_t w_dims[2] = {4, 4};
    const uint8_t zero = 128;
    const float scale = 0.5f;
    uint8_t weights[16];
    memset(weights, 130, sizeof weights);
    wire_message(&g, GRAPH_INITIALIZER,
                 onnx_raw_tensor("w", GANTRY_UINT8, 2, w_dims, weights, sizeof weights));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("zero", GANTRY_UINT8, 0, NULL, &zero, sizeof zero));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("scale", SMALL_F32, 0, NULL, &scale, sizeof scale));
    wire_message(&g, GRAPH_NODE, onnx_node("QuantizeLinear", "q1", "x,scale,zero", "xq"));
    wire_message(&g, GRAPH_NODE,
                 onnx_node("QLinearMatMul", "product1", "xq,scale,zero,w,scale,zero,scale,zero", "yq"));
    wire_message(&g, GRAPH_NODE, onnx_node("DequantizeLinear", "dq1", "yq,scale,zero", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

/* ---- one life -------------------------------------------------------------------------------- */

typedef struct life {
    const life_model *model;
    int repeats;
    broken_allocator allocator;
    long injected; /* the allocation that fails */
    small_session s, beside;
    gantry_options *options;
} life;

/* Calls step until it works: it may fail once, for want of memory. */
static void expect_second_success(life *l, const char *name, gantry_status (*step)(life *l))
{
    l->s.err = (gantry_error)GANTRY_ERROR_INIT;
    gantry_status status = step(l);
    if (status == GANTRY_OK)
        return;
    EXPECT(status == GANTRY_RESOURCE, "%s, allocation %ld, %s: status %d: %s", l->model->name, l->injected,
           name, status, l->s.err.message);
    EXPECT(l->s.err.message[0] && l->s.err.code == status,
           "%s, allocation %ld, %s: no words or another code (%d)", l->model->name, l->injected, name,
           l->s.err.code);
    EXPECT(atomic_load(&l->allocator.calls) >= l->injected, "%s, %s: failed before allocation %ld: %s",
           l->model->name, name, l->injected, l->s.err.message);
    atomic_store(&l->allocator.fails_at, 0);
    status = step(l);
    EXPECT(status == GANTRY_OK, "%s, %s again after allocation %ld: status %d: %s", l->model->name, name,
           l->injected, status, l->s.err.message);
}

static gantry_status create_runtime(life *l)
{
    gantry_allocator hooks = broken_hooks(&l->allocator);
    return gantry_runtime_create(&hooks, &l->s.runtime, &l->s.err);
}

static gantry_status load_plugin(life *l)
{
    if (!l->model->on_device)
        return GANTRY_OK;
    return gantry_runtime_load_provider(l->s.runtime, FAKE, NULL, &l->s.err);
}

static gantry_status render(gantry_report *report, gantry_error *err)
{
    const char *text = NULL;
    size_t bytes = 0;
    for (int format = GANTRY_REPORT_JSON; format <= GANTRY_REPORT_TEXT; format++) {
        gantry_status status = gantry_report_render(report, (gantry_report_format)format, &text, &bytes, err);
        if (status != GANTRY_OK)
            return status;
        EXPECT(bytes > 100 && strlen(text) == bytes, "format %d has %zu bytes", format, bytes);
    }
    return GANTRY_OK;
}

static gantry_status create_session(life *l)
{
    const wire *model = &l->model->bytes;
    gantry_report *report = NULL;
    gantry_status status = gantry_session_create_from_memory(l->s.runtime, model->data, model->size,
                                                             l->options, &l->s.session, &report, &l->s.err);
    EXPECT((status == GANTRY_OK) == (l->s.session != NULL), "allocation %ld: status %d", l->injected, status);
    if (report && status != GANTRY_OK && !atomic_load(&l->allocator.lasting))
        EXPECT(render(report, NULL) == GANTRY_OK, "the report of a failed creation, allocation %ld",
               l->injected);
    gantry_report_destroy(&report);
    return status;
}

static gantry_status create_beside(life *l)
{
    const wire *model = &l->model->bytes;
    if (!l->model->twice)
        return GANTRY_OK;
    return gantry_session_create_from_memory(l->s.runtime, model->data, model->size, l->options,
                                             &l->beside.session, NULL, &l->s.err);
}

/* Binds the other session, which finds what the first one packed, and lets it go. */
static gantry_status run_beside(life *l)
{
    if (!l->model->twice)
        return GANTRY_OK;
    gantry_status status =
        l->beside.run ? GANTRY_OK : gantry_run_create(l->beside.session, &l->beside.run, &l->s.err);
    if (status != GANTRY_OK)
        return status;
    l->model->bind(&l->beside, 1);
    return gantry_run_execute(l->beside.run, &l->s.err);
}

static gantry_status close_beside(life *l)
{
    gantry_run_destroy(&l->beside.run);
    return gantry_session_destroy(&l->beside.session, &l->s.err);
}

static gantry_status create_run(life *l)
{
    return gantry_run_create(l->s.session, &l->s.run, &l->s.err);
}

static gantry_status prepare(life *l)
{
    l->model->bind(&l->s, 1);
    return gantry_run_prepare(l->s.run, &l->s.err);
}

static void expect_result(life *l)
{
    const life_model *model = l->model;
    gantry_tensor y = small_result(&l->s, model->output);
    int count = model->count * l->repeats;
    EXPECT(l->s.status == GANTRY_OK && y.size_bytes == (size_t)count * 4, "%s, allocation %ld: %zu bytes, %s",
           model->name, l->injected, y.size_bytes, l->s.err.message);
    for (int k = 0; l->s.status == GANTRY_OK && k < count; k++)
        EXPECT(fabsf(small_floats_of(&y)[k] - model->expected[k % model->count]) < 1e-5f,
               "%s, allocation %ld, element %d: %f", model->name, l->injected, k, small_floats_of(&y)[k]);
}

static gantry_status execute_shape(life *l, int repeats)
{
    l->repeats = l->model->one_shape ? 1 : repeats;
    l->model->bind(&l->s, l->repeats);
    gantry_status status = gantry_run_execute(l->s.run, &l->s.err);
    if (status == GANTRY_OK)
        expect_result(l);
    return status;
}

static gantry_status execute(life *l)
{
    return execute_shape(l, 1);
}

/* A failure leaves the small shape's plan in order: it runs before the large one is tried again. */
static gantry_status execute_large(life *l)
{
    gantry_status status = execute_shape(l, REPEATS);
    if (status == GANTRY_OK)
        return status;
    gantry_error first = l->s.err;
    atomic_store(&l->allocator.fails_at, 0);
    EXPECT(execute(l) == GANTRY_OK, "%s, allocation %ld: %s", l->model->name, l->injected, l->s.err.message);
    l->s.err = first;
    return status;
}

static gantry_status start_and_wait(life *l)
{
    gantry_status status = gantry_run_start(l->s.run, NULL, NULL, &l->s.err);
    int finished = 0;
    if (status == GANTRY_OK)
        status = gantry_run_wait(l->s.run, -1, &finished, &l->s.err);
    if (status == GANTRY_OK)
        expect_result(l);
    return status;
}

static gantry_status report(life *l)
{
    gantry_report *report = NULL;
    gantry_status status = gantry_session_report(l->s.session, l->s.run, &report, &l->s.err);
    EXPECT((status == GANTRY_OK) == (report != NULL), "allocation %ld: status %d", l->injected, status);
    if (status == GANTRY_OK)
        status = render(report, &l->s.err);
    gantry_report_destroy(&report);
    return status;
}

static const struct {
    const char *name;
    gantry_status (*step)(life *l);
} steps[] = {
    {"create runtime", create_runtime},
    {"load plugin", load_plugin},
    {"create session", create_session},
    {"create run", create_run},
    {"prepare", prepare},
    {"execute", execute},
    {"create beside", create_beside},
    {"run beside", run_beside},
    {"close beside", close_beside},
    {"execute large", execute_large},
    {"execute again", execute},
    {"start", start_and_wait},
    {"report", report},
    {"execute at last", execute_large},
};

/* A life whose Nth allocation fails (0: none), or all from there to the first failure; false when it made
 * fewer. */
static bool live(const life_model *model, long injected, bool lasting)
{
    life l = {.model = model, .injected = injected};
    atomic_store(&l.allocator.fails_at, injected);
    atomic_store(&l.allocator.lasting, lasting);
    int before = failures;
    EXPECT(gantry_options_create(&l.options, NULL) == GANTRY_OK &&
               gantry_options_set(l.options, "threads", "1", NULL) == GANTRY_OK &&
               gantry_options_set(l.options, "providers", model->on_device ? "fake,cpu" : "cpu", NULL) ==
                   GANTRY_OK &&
               gantry_options_set(l.options, "plan", model->on_device ? "priority" : "cost", NULL) ==
                   GANTRY_OK &&
               gantry_options_set(l.options, "fake.share", "on", NULL) == GANTRY_OK &&
               gantry_options_set(l.options, "cpu.disable_types", "float16", NULL) == GANTRY_OK &&
               gantry_options_set(l.options, "numeric_check", model->numeric ? "on" : "off", NULL) ==
                   GANTRY_OK,
           "options");
    for (size_t k = 0; k < sizeof steps / sizeof *steps && failures == before; k++)
        expect_second_success(&l, steps[k].name, steps[k].step);
    gantry_options_destroy(&l.options);
    (void)close_beside(&l);
    gantry_run_destroy(&l.s.run);
    EXPECT(gantry_session_destroy(&l.s.session, NULL) == GANTRY_OK, "%s, allocation %ld", model->name,
           injected);
    EXPECT(gantry_runtime_destroy(&l.s.runtime, NULL) == GANTRY_OK, "%s, allocation %ld", model->name,
           injected);
    EXPECT(atomic_load(&l.allocator.blocks) == 0, "%s, allocation %ld: %ld blocks are lost", model->name,
           injected, atomic_load(&l.allocator.blocks));
    return atomic_load(&l.allocator.calls) >= injected;
}

#define TWOS                                                                                                 \
    {                                                                                                        \
        2, 2, 2, 2, 2, 2, 2, 2                                                                               \
    }
#define FOURS                                                                                                \
    {                                                                                                        \
        4, 4, 4, 4                                                                                           \
    }

int main(void)
{
    /* clang-format off */
    life_model models[] = {
        {"net", net(), bind_net, .count = 8, .expected = TWOS},
        {"add", small_add(-1), bind_add, .count = 4, .expected = {2, 0, 4, 0}},
        {"half", half_add(), bind_net, .count = 4, .expected = {2, 0, 4, 0}},
        {"quantized", quantized(), bind_net, .count = 4, .expected = {-2, -2, -2, -2}},
        {"heavy", heavy(), bind_net, .count = 1, .expected = {-2}, .twice = true},
        {"nonzero", small_nonzero(), bind_nonzero, .output = 1, .count = 2, .expected = {10, 14}},
        {"if", small_if(), bind_if, .count = 4, .expected = {2, -4, 6, -8}},
        {"loop", small_loop(), bind_loop, .count = 4, .expected = FOURS, .one_shape = true},
        {"net on a device", net(), bind_net, .count = 8, .expected = TWOS, .on_device = true},
        {"checked on a device", net(), bind_net, .count = 8, .expected = TWOS, .on_device = true, .numeric = true},
        {"loop on a device", small_loop(), bind_loop, .count = 4, .expected = FOURS, .on_device = true, .one_shape = true},
    };
    /* clang-format on */
    int count = (int)(sizeof models / sizeof *models), failed = 0;
    for (int k = 0; k < count; k++) {
        int before = failures;
        live(&models[k], 0, false);
        long n = 1;
        while (failures - before < MOST_FAILURES_PRINTED && live(&models[k], n, false) &&
               live(&models[k], n, true))
            n++;
        printf("%s: %ld allocations failed in turn\n", models[k].name, n - 1);
        failed += failures > before;
        wire_free(&models[k].bytes);
    }
    printf("%d passed, %d failed\n", count - failed, failed);
    return failed > 0;
}
