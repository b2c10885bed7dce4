/* Limits of runs: the option memory_limit, what it counts and when, and deadlines that say where a run was.
 */
#include "../support/small_models.h"

#include <criterion/criterion.h>
#include <stdio.h>

static float data[4096 * 4];

static gantry_status run_rows(small_session *s, int64_t rows)
{
    cr_assert_eq(small_bind(s, 0, GANTRY_FLOAT32, 2, rows, 4, data), GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 1, GANTRY_FLOAT32, 2, rows, 4, data), GANTRY_OK, "%s", s->err.message);
    return gantry_run_execute(s->run, &s->err);
}

static void check_mentions(const small_session *s, const char *const *words)
{
    for (; *words; words++)
        cr_assert(strstr(s->err.message, *words), "\"%s\" is not in: %s", *words, s->err.message);
}
#define MENTIONS(s, ...) check_mentions(s, (const char *const[]){__VA_ARGS__, NULL})

Test(limits, memory_is_refused_before_it_is_taken)
{
    small_session s = small_open(small_add(-1), "memory_limit=16384");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(run_rows(&s, 3), GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(run_rows(&s, 4096), GANTRY_RESOURCE);
    MENTIONS(&s, "memory_limit is 16384", "65536 bytes", "'y' float32[4096,4]", "'relu1' (Relu)");
    char first[sizeof s.err.message];
    snprintf(first, sizeof first, "%s", s.err.message);
    uint64_t before = gantry_runtime_allocation_count(s.runtime);
    cr_assert_eq(run_rows(&s, 4096), GANTRY_RESOURCE);
    cr_assert_str_eq(s.err.message, first);
    cr_assert_eq(gantry_runtime_allocation_count(s.runtime), before,
                 "a refused plan that is known takes nothing");
    cr_assert_eq(run_rows(&s, 3), GANTRY_OK, "the run goes on after it: %s", s.err.message);
    small_close(&s);
    cr_assert_null(s.runtime);
}

Test(limits, all_runs_of_a_session_share_the_limit)
{
    small_session s = small_open(small_add(-1), "memory_limit=26000");
    gantry_run *first = s.run;
    cr_assert_eq(run_rows(&s, 600), GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(gantry_run_create(s.session, &s.run, &s.err), GANTRY_OK);
    cr_assert_eq(run_rows(&s, 600), GANTRY_RESOURCE);
    gantry_run_destroy(&first);
    cr_assert_eq(run_rows(&s, 600), GANTRY_OK, "what the other held is free: %s", s.err.message);
    small_close(&s);
}

/* y = x W, W of 64 KiB. */
static wire weighty(void)
{
    static float w[128 * 128];
    const int64_t dims[2] = {128, 128};
    wire g = small_graph("weighty");
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", SMALL_F32, 2, dims, w, sizeof w));
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", "product1", "x,w", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 128);
    small_output(&g, "y", SMALL_F32, 2, -1, 128);
    return small_model(g);
}

Test(limits, constants_count)
{
    small_session s = small_open(weighty(), "memory_limit=65535");
    cr_assert_eq(s.status, GANTRY_RESOURCE);
    MENTIONS(&s, "memory_limit is 65535", "65536 bytes", "'w' float32[128,128]", "larger memory_limit");
    small_close(&s);
}

Test(limits, what_providers_keep_counts)
{
    small_session s = small_open(weighty(), "memory_limit=100000");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(small_bind(&s, 0, GANTRY_FLOAT32, 2, 8, 128, data), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_RESOURCE, "packing the weights takes them again");
    MENTIONS(&s, "memory_limit is 100000", "65536 of constants", "providers keep");
    small_close(&s);
    s = small_open(weighty(), "memory_limit=10000000");
    cr_assert_eq(small_bind(&s, 0, GANTRY_FLOAT32, 2, 8, 128, data), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    small_close(&s);
}

Test(limits, a_buffer_of_the_caller_does_not_count)
{
    static float y[4096 * 4];
    small_session s = small_open(small_add(-1), "memory_limit=16384");
    gantry_tensor out = small_tensor(GANTRY_FLOAT32, 0, NULL, y, sizeof y);
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &out, &s.err), GANTRY_OK);
    cr_assert_eq(run_rows(&s, 4096), GANTRY_OK, "%s", s.err.message);
    small_close(&s);
}

/* rows = x once for each trip, as long as `go` says: how much that is, nobody knows before. */
static wire piling_loop(void)
{
    wire body = small_graph("body"), g = small_graph("loop");
    wire_message(&body, GRAPH_NODE, onnx_node("Identity", "keep", "go", "go_on"));
    wire_message(&body, GRAPH_NODE, onnx_node("Identity", "row", "x", "again"));
    small_input(&body, "i", SMALL_I64, 0, 0, 0);
    small_input(&body, "cond", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "go_on", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "again", SMALL_F32, 1, 256, 0);
    wire loop = onnx_node("Loop", "loop1", "trips,go", "rows");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "go", SMALL_BOOL, 0, 0, 0);
    small_input(&g, "x", SMALL_F32, 1, 256, 0);
    small_output(&g, "rows", SMALL_F32, 2, -1, 256);
    return small_model(g);
}

static gantry_status run_loop(small_session *s, int64_t trips)
{
    uint8_t go = 1;
    cr_assert_eq(s->status, GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 0, GANTRY_INT64, 0, 0, 0, &trips), GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 1, GANTRY_BOOL, 0, 0, 0, &go), GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 2, GANTRY_FLOAT32, 1, 256, 0, data), GANTRY_OK, "%s", s->err.message);
    return gantry_run_execute(s->run, &s->err);
}

Test(limits, a_loop_has_memory_for_its_trips_not_for_those_it_might_take)
{
    for (int k = 0; k < 256; k++)
        data[k] = (float)k;
    small_session s = small_open(piling_loop(), "memory_limit=1000000");
    cr_assert_eq(run_loop(&s, 5), GANTRY_OK, "%s", s.err.message);
    gantry_tensor rows = small_result(&s, 0);
    cr_assert_eq(rows.rank, 2);
    cr_assert_eq(rows.dims[0], 5);
    cr_assert_eq(small_floats_of(&rows)[4 * 256 + 255], 255);
    cr_assert_eq(run_loop(&s, INT64_MAX), GANTRY_RESOURCE);
    MENTIONS(&s, "memory_limit is 1000000", "iteration", "'loop1' (Loop)");
    cr_assert_eq(run_loop(&s, 2), GANTRY_OK, "%s", s.err.message);
    small_close(&s);
}

Test(limits, a_deadline_says_where_the_loop_was)
{
    small_session s = small_open(small_loop(), "deadline_ms=100");
    int64_t trips = INT64_MAX;
    small_bind(&s, 0, GANTRY_INT64, 0, 0, 0, &trips);
    small_bind(&s, 1, GANTRY_FLOAT32, 1, 4, 0, data);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_DEADLINE);
    MENTIONS(&s, "deadline_ms = 100", "iteration", "'loop1' (Loop)");
    cr_assert_str_eq(s.err.node, "loop1");
    small_close(&s);
}

/* y = Tile(x, r): a size that no machine has. */
Test(limits, a_size_that_cannot_be_addressed_names_its_node)
{
    wire g = small_graph("tile");
    wire_message(&g, GRAPH_NODE, onnx_node("Tile", "tile1", "x,r", "y"));
    small_input(&g, "x", SMALL_F32, 1, 4, 0);
    small_input(&g, "r", SMALL_I64, 1, 1, 0);
    small_output(&g, "y", SMALL_F32, 1, -1, 0);
    small_session s = small_open(small_model(g), "");
    int64_t many = (int64_t)1 << 60;
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    small_bind(&s, 0, GANTRY_FLOAT32, 1, 4, 0, data);
    small_bind(&s, 1, GANTRY_INT64, 1, 1, 0, &many);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_RESOURCE);
    MENTIONS(&s, "Tile", "'tile1'", "'y'", "bytes");
    many = 2;
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    small_close(&s);
}
