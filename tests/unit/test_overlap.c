/* What runs beside what: copies beside kernels, and hand-overs beside whatever a queue was given later. The
 * devices' own log says in which order things began and ended. */
#include "../support/counting_allocator.h"
#include "transfers_fixture.h"

#include <fcntl.h>

TestSuite(overlap, .init = begin, .fini = end);
TestSuite(overlap_opencl, .init = begin_opencl, .fini = end);

/* ---- the log --------------------------------------------------------------------------------- */

/* The place of the nth line that ends so in the devices' log, from 0; -1: there is none. */
static int logged(const char *line, int nth)
{
    char text[300];
    FILE *file = fopen(log_path, "rb");
    cr_assert_not_null(file);
    int found = -1;
    for (int k = 0; found < 0 && fgets(text, sizeof text, file); k++) {
        text[strcspn(text, "\n")] = 0;
        if (strcmp(text, line) == 0 && nth-- == 0)
            found = k;
    }
    fclose(file);
    return found;
}

/* Only the fake device keeps a log, and only its times are made up. */
static void check_order(const char *first, int nth_first, const char *second, int nth_second)
{
    if (!both_is_fake())
        return;
    int a = logged(first, nth_first), b = logged(second, nth_second);
    cr_assert_geq(a, 0, "never: %s (%d)", first, nth_first);
    cr_assert_geq(b, 0, "never: %s (%d)", second, nth_second);
    cr_assert_lt(a, b, "%s (%d) comes behind %s (%d)", first, nth_first, second, nth_second);
}

/* ---- models ---------------------------------------------------------------------------------- */

/* y = Abs(Sign(Neg(x)) + z): a, the host, a; z is wanted late. */
static wire two_inputs(void)
{
    wire g = small_graph("two");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "n"));
    wire_message(&g, GRAPH_NODE, onnx_node("Sign", "sign1", "n", "s"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "s,z", "t"));
    wire_message(&g, GRAPH_NODE, onnx_node("Abs", "abs1", "t", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_input(&g, "z", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

/* w = Abs(x) is there early, y = Sign(Neg(x)) + z late. */
static wire early_output(void)
{
    wire g = small_graph("early");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "n"));
    wire_message(&g, GRAPH_NODE, onnx_node("Abs", "abs1", "x", "w"));
    wire_message(&g, GRAPH_NODE, onnx_node("Sign", "sign1", "n", "s"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "s,z", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_input(&g, "z", SMALL_F32, 2, -1, 4);
    small_output(&g, "w", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

/* y = Neg(x) * Abs(x): a makes two values for b. */
static wire two_values(void)
{
    wire g = small_graph("values");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "n"));
    wire_message(&g, GRAPH_NODE, onnx_node("Abs", "abs1", "x", "w"));
    wire_message(&g, GRAPH_NODE, onnx_node("Mul", "mul1", "n,w", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

static void check_two_inputs(small_session *s)
{
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; k < COUNT; k++)
        cr_assert_eq(small_floats_of(&y)[k], z[k] + (x[k] < 0 ? 1 : x[k] > 0 ? -1 : 0), "element %d", k);
}

/* ---- tests ----------------------------------------------------------------------------------- */

ON_BOTH(overlap, a_second_queue_brings_what_the_next_partition_reads)
{
    small_session s = open_on(two_inputs(), ", \"queues\": 2", BOTH);
    small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, ROWS, 4, z);
    for (int k = 0; k < 20; k++) {
        z[k] += (float)k;
        json_t *ledger = checked_ledger(&s);
        cr_assert_str_eq(json_string_value(json_object_get(row_of(ledger, "z", "a"), "queue")), "copy");
        json_decref(ledger);
        check_two_inputs(&s);
    }
    small_close(&s);
}

/* Times are such that whoever could run beside another does. */
#define SLOW_KERNELS ", \"late\": false, \"copy_us\": 20000, \"work_us\": {\"Add\": 300000, \"Neg\": 300000}"

Test(overlap, copies_to_a_device_run_beside_its_kernels)
{
    small_session s = open_on(two_inputs(), ", \"queues\": 2" SLOW_KERNELS, BOTH);
    small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, ROWS, 4, z);
    run(&s);
    check_two_inputs(&s);
    check_order("a queue 1 begin to_device 128", 1, "a queue 0 end kernel neg1", 0);
    small_close(&s);
}

ON_BOTH(overlap, copies_to_the_host_run_beside_kernels)
{
    for (int queues = 1; queues <= 2; queues++) {
        close(open(log_path, O_WRONLY | O_TRUNC));
        small_session s =
            open_on(early_output(), queues == 2 ? ", \"queues\": 2" SLOW_KERNELS : SLOW_KERNELS, BOTH);
        small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
        small_bind(&s, 1, GANTRY_FLOAT32, 2, ROWS, 4, z);
        json_decref(checked_ledger(&s));
        gantry_tensor w = small_result(&s, 0), y = small_result(&s, 1);
        for (int k = 0; k < COUNT; k++) {
            cr_assert_eq(small_floats_of(&w)[k], x[k] < 0 ? -x[k] : x[k], "element %d", k);
            cr_assert_eq(small_floats_of(&y)[k], z[k] + (x[k] < 0 ? 1 : x[k] > 0 ? -1 : 0), "element %d", k);
        }
        if (queues == 2) {
            check_order("a queue 0 end kernel abs1", 0, "a queue 1 begin to_host 128", 0);
            check_order("a queue 1 end to_host 128", 1, "a queue 0 end kernel add1", 0);
            check_order("a queue 0 end kernel add1", 0, "a queue 1 begin to_host 128", 2);
        } else {
            check_order("a queue 0 end kernel add1", 0, "a queue 0 begin to_host 128", 1);
        }
        small_close(&s);
    }
}

/* The first value is handed over while the second leaves: nobody waits for all that the queue was given. */
ON_BOTH(overlap, what_is_handed_over_waits_for_nothing_that_came_later)
{
    static const char *const keys[] = {", \"late\": false, \"copy_us\": 100000",
                                       ", \"late\": false, \"copy_us\": 100000, \"queues\": 2"};
    for (int k = 0; k < 2; k++) {
        close(open(log_path, O_WRONLY | O_TRUNC));
        small_session s = open_on(two_values(), keys[k], BOTH);
        small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
        json_decref(checked_ledger(&s));
        gantry_tensor y = small_result(&s, 0);
        for (int m = 0; m < COUNT; m++)
            cr_assert_eq(small_floats_of(&y)[m], x[m] < 0 ? x[m] * x[m] : -x[m] * x[m], "element %d", m);
        check_order(k ? "b queue 1 begin to_device 128" : "b queue 0 begin to_device 128", 0,
                    k ? "a queue 1 end to_host 128" : "a queue 0 end to_host 128", 1);
        small_close(&s);
    }
}

Test(overlap, two_queues_and_two_peers)
{
    small_session s = open_on(there_and_back(), ", \"queues\": 2, \"peers\": true", BOTH);
    small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
    for (int k = 0; k < 20; k++) {
        x[k] -= (float)k;
        json_decref(checked_ledger(&s));
        check_there_and_back(&s);
    }
    small_close(&s);
}

ON_BOTH(overlap, steady_runs_allocate_nothing)
{
    const char *const keys[] = {"", ", \"queues\": 2", ", \"peers\": true",
                                ", \"queues\": 2, \"peers\": true"};
    small_allocator = &counting_allocator;
    for (int k = 0; k < 2 * PEERS; k++) {
        small_session s = open_on(there_and_back(), keys[k], BOTH);
        small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
        run(&s);
        run(&s);
        uint64_t before = asked, own = counted_by(0).allocations;
        cr_assert_gt(before, 0);
        for (int n = 0; n < 10; n++)
            run(&s);
        cr_assert_eq(asked, before, "%llu with%s", (unsigned long long)(asked - before), keys[k]);
        cr_assert_eq(counted_by(0).allocations, own);
        check_there_and_back(&s);
        small_close(&s);
    }
}
