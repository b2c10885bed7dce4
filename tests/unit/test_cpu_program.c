/* Programs of the CPU provider: verdicts, odd partitions, refusals, cancelling, timing, what a run allocates.
 */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define SIZE 24

/* x [SIZE,SIZE] times a constant, `count` times in a row; returns the value ids 0..count. */
static void add_chain(test_net *net, uint32_t count, uint32_t *out_values, float *weights)
{
    static const int64_t dims[2] = {SIZE, SIZE};
    test_fill(weights, SIZE * SIZE, 1);
    uint32_t w = test_constant_add(net, GANTRY_FLOAT32, 2, dims, weights);
    out_values[0] = test_value_add(net, GANTRY_FLOAT32, 2, dims);
    for (uint32_t k = 0; k < count; k++) {
        out_values[k + 1] = test_value_add(net, GANTRY_FLOAT32, 2, dims);
        test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){out_values[k], w}, 1, &out_values[k + 1]);
    }
}

static gantry_verdict judge(test_net *net, uint32_t node)
{
    gantry_verdict verdict = {.struct_bytes = sizeof verdict};
    net->provider->judge(net->provider->self, &net->graph, &node, 1, &verdict);
    return verdict;
}

Test(cpu_program, verdicts_name_operand_and_types)
{
    static const int64_t dims[2] = {2, 2};
    test_net *net = test_net_open();
    uint32_t a = test_value_add(net, GANTRY_FLOAT32, 2, dims), b = test_value_add(net, GANTRY_UINT8, 2, dims);
    uint32_t y = test_value_add(net, GANTRY_FLOAT32, 2, dims),
             z = test_value_add(net, GANTRY_FLOAT32, 2, dims);
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){a, a}, 1, &y);
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){a, b}, 1, &y);
    test_node_add(net, "", "NoSuchOp", 1, 2, (uint32_t[]){b, a}, 1, &z);
    gantry_verdict good = judge(net, 0), type = judge(net, 1), absent = judge(net, 2);
    cr_assert_eq(good.supported, 1);
    cr_assert_gt(good.estimate_ns, 0);
    cr_assert_eq(good.estimate_source, 'a');
    cr_assert_eq(type.supported, 0);
    cr_assert_eq(type.refusal.code, GANTRY_REFUSE_dtype);
    cr_assert_str_eq(type.refusal.operand, "v1");
    cr_assert_str_eq(type.refusal.actual, "uint8");
    cr_assert_eq(absent.refusal.code, GANTRY_REFUSE_no_kernel);
    cr_assert_str_eq(absent.refusal.operand, "NoSuchOp");
    cr_assert_str_eq(absent.refusal.actual, "uint8, float32");
    net->disable_types = "int8,float32";
    gantry_verdict disabled = judge(net, 0);
    cr_assert_eq(disabled.refusal.code, GANTRY_REFUSE_dtype);
    cr_assert_str_eq(disabled.refusal.required, "a type not in cpu.disable_types");
    cr_assert_eq(test_net_close(net), 0);
}

Test(cpu_program, inputs_and_constants_as_outputs)
{
    static const int64_t dims[2] = {2, 3};
    float fixed[6] = {1, 2, 3, 4, 5, 6}, x[6], a[6], b[6], c[6];
    test_fill(x, 6, 4);
    test_net *net = test_net_open();
    uint32_t vx = test_value_add(net, GANTRY_FLOAT32, 2, dims);
    uint32_t vc = test_constant_add(net, GANTRY_FLOAT32, 2, dims, fixed);
    test_input(net, vx);
    test_output(net, vx);
    test_output(net, vc);
    test_output(net, vx);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(net->info.output_plans[0].view_of_input, 0);
    cr_assert_eq(net->info.output_plans[1].view_of_input, -1);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){a, b, c}), GANTRY_OK);
    cr_assert_arr_eq(a, x, sizeof x);
    cr_assert_arr_eq(b, fixed, sizeof fixed);
    cr_assert_arr_eq(c, x, sizeof x);
    cr_assert_eq(test_net_close(net), 0);
}

Test(cpu_program, one_value_is_two_outputs_and_read_inside)
{
    float w[SIZE * SIZE], x[SIZE * SIZE], first[SIZE * SIZE], again[SIZE * SIZE], last[SIZE * SIZE];
    uint32_t v[3];
    test_net *net = test_net_open();
    add_chain(net, 2, v, w);
    test_input(net, v[0]);
    test_output(net, v[1]);
    test_output(net, v[1]);
    test_output(net, v[2]);
    test_fill(x, SIZE * SIZE, 9);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){first, again, last}), GANTRY_OK);
    cr_assert_arr_eq(first, again, sizeof first);
    double sum = 0;
    for (int k = 0; k < SIZE; k++)
        sum += (double)first[k] * w[k * SIZE];
    cr_assert_float_eq(last[0], sum, 1e-4);
    cr_assert_eq(test_net_close(net), 0);
}

Test(cpu_program, workspace_is_reused_along_a_chain)
{
    float w[SIZE * SIZE], x[SIZE * SIZE], y[SIZE * SIZE];
    uint32_t v[9];
    test_net *net = test_net_open();
    add_chain(net, 8, v, w);
    test_input(net, v[0]);
    test_output(net, v[8]);
    test_fill(x, SIZE * SIZE, 9);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK);
    cr_assert_leq(net->info.workspace_bytes, 2 * (sizeof x + 63));
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y}), GANTRY_OK);
    cr_assert_eq(test_net_close(net), 0);
}

Test(cpu_program, a_second_run_allocates_nothing_and_weights_are_packed_once)
{
    float w[SIZE * SIZE], x[SIZE * SIZE], y[SIZE * SIZE];
    uint32_t v[4];
    test_net *net = test_net_open();
    add_chain(net, 3, v, w);
    test_input(net, v[0]);
    test_output(net, v[3]);
    test_fill(x, SIZE * SIZE, 9);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK);
    uint64_t held = net->provider->memory(net->provider->self, net->program);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y}), GANTRY_OK);
    long before = net->allocations;
    for (int k = 0; k < 5; k++)
        cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y}), GANTRY_OK);
    cr_assert_eq(net->allocations, before);
    for (int k = 0; k < 4; k++)
        net->values[v[k]].dims[0] = 7; /* fewer rows: the same packed weight */
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK);
    cr_assert_eq(net->provider->memory(net->provider->self, net->program), held);
    cr_assert_eq(test_net_close(net), 0);
}

Test(cpu_program, a_stopped_run_says_so)
{
    float w[SIZE * SIZE], x[SIZE * SIZE], y[SIZE * SIZE];
    uint32_t v[2];
    test_net *net = test_net_open();
    add_chain(net, 1, v, w);
    test_input(net, v[0]);
    test_output(net, v[1]);
    test_fill(x, SIZE * SIZE, 9);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK);
    volatile int stop = 1;
    gantry_buffer in = {x, 0}, out = {y, 0};
    gantry_run_args args = {.struct_bytes = sizeof args,
                            .inputs = &in,
                            .outputs = &out,
                            .workspace = {net->workspace, 0},
                            .bindings = 1,
                            .threads = 1,
                            .stop = &stop};
    cr_assert_eq(net->provider->run(net->provider->self, net->context, &args, &net->error), GANTRY_CANCELLED);
    gantry_timing_event events[4];
    uint32_t count = 0;
    stop = 0;
    args.timing = events;
    args.timing_capacity = 4;
    args.out_timing_count = &count;
    cr_assert_eq(net->provider->run(net->provider->self, net->context, &args, &net->error), GANTRY_OK);
    cr_assert_eq(count, net->recorder.kernel_count);
    cr_assert_eq(events[0].kernel_index, 0);
    cr_assert_eq(test_net_close(net), 0);
}

Test(cpu_program, a_shape_without_kernel_is_refused_by_node)
{
    static const int64_t x_dims[6] = {1, 2, 3, 3, 3, 3}, w_dims[6] = {2, 2, 1, 1, 1, 1};
    float w[4] = {1, 2, 3, 4};
    test_net *net = test_net_open();
    uint32_t x = test_value_add(net, GANTRY_FLOAT32, 6, x_dims),
             y = test_value_add(net, GANTRY_FLOAT32, 6, x_dims);
    uint32_t c = test_constant_add(net, GANTRY_FLOAT32, 6, w_dims, w);
    test_input(net, x);
    test_output(net, y);
    test_node_add(net, "", "Conv", 11, 2, (uint32_t[]){x, c}, 1, &y);
    cr_assert_eq(test_net_build(net, 1), GANTRY_UNSUPPORTED);
    cr_assert_eq(net->info.refused_count, 1);
    cr_assert_eq(net->info.refused_nodes[0], 0);
    cr_assert_neq(net->info.refusal.code, GANTRY_REFUSE_NONE);
    cr_assert_str_not_empty(net->info.refusal.detail);
    cr_assert_eq(test_net_close(net), 0);
}

Test(cpu_program, nothing_to_compute)
{
    static const int64_t a_dims[2] = {0, 3}, b_dims[2] = {3, 4}, y_dims[2] = {0, 4};
    static const int64_t e_dims[2] = {2, 0}, f_dims[2] = {0, 4}, z_dims[2] = {2, 4};
    float b[12] = {0}, z[8], nothing;
    test_net *net = test_net_open();
    uint32_t va = test_value_add(net, GANTRY_FLOAT32, 2, a_dims),
             vb = test_value_add(net, GANTRY_FLOAT32, 2, b_dims);
    uint32_t vy = test_value_add(net, GANTRY_FLOAT32, 2, y_dims),
             ve = test_value_add(net, GANTRY_FLOAT32, 2, e_dims);
    uint32_t vf = test_value_add(net, GANTRY_FLOAT32, 2, f_dims),
             vz = test_value_add(net, GANTRY_FLOAT32, 2, z_dims);
    test_input(net, va);
    test_input(net, vb);
    test_input(net, ve);
    test_input(net, vf);
    test_output(net, vy);
    test_output(net, vz);
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){va, vb}, 1, &vy);
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){ve, vf}, 1, &vz);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    memset(z, 1, sizeof z);
    cr_assert_eq(test_net_run(net, 1, (void *[]){NULL, b, NULL, NULL}, (void *[]){&nothing, z}), GANTRY_OK);
    for (int k = 0; k < 8; k++)
        cr_assert_eq(z[k], 0); /* an empty sum */
    cr_assert_eq(test_net_close(net), 0);
}

Test(cpu_program, evaluate_one_node)
{
    static const int64_t dims[2] = {2, 2};
    float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, y[4];
    test_net *net = test_net_open();
    uint32_t va = test_value_add(net, GANTRY_FLOAT32, 2, dims),
             vb = test_value_add(net, GANTRY_FLOAT32, 2, dims);
    uint32_t vy = test_value_add(net, GANTRY_FLOAT32, 2, dims);
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){va, vb}, 1, &vy);
    gantry_tensor in[2] = {{sizeof in[0], GANTRY_FLOAT32, 2, dims, NULL, NULL, {a, 0}, sizeof a},
                           {sizeof in[0], GANTRY_FLOAT32, 2, dims, NULL, NULL, {b, 0}, sizeof b}};
    gantry_tensor out = {sizeof out, GANTRY_FLOAT32, 2, dims, NULL, NULL, {y, 0}, sizeof y};
    const gantry_provider *p = net->provider;
    cr_assert_eq(p->evaluate(p->self, &net->graph, 0, in, &out, &net->error), GANTRY_OK, "%s",
                 net->error.message);
    cr_assert_float_eq(y[0], 19, 0);
    cr_assert_float_eq(y[3], 50, 0);
    in[0].dtype = GANTRY_UINT8;
    cr_assert_eq(p->evaluate(p->self, &net->graph, 0, in, &out, &net->error), GANTRY_UNSUPPORTED);
    cr_assert_eq(test_net_close(net), 0);
}

/* conv -> relu -> max pool -> matmul chain: many kinds of kernels, and every allocation of it fails once. */
static gantry_status build_and_run(test_net *net, float *w, float *k, float *x, float *y)
{
    static const int64_t x_dims[4] = {1, 16, 8, 8}, k_dims[4] = {16, 16, 1, 1}, p_dims[4] = {1, 16, 4, 4};
    static const int64_t w_dims[2] = {4, 4}, two[2] = {2, 2};
    uint32_t vx = test_value_add(net, GANTRY_FLOAT32, 4, x_dims);
    uint32_t vk = test_constant_add(net, GANTRY_FLOAT32, 4, k_dims, k);
    uint32_t vc = test_value_add(net, GANTRY_FLOAT32, 4, x_dims);
    uint32_t vr = test_value_add(net, GANTRY_FLOAT32, 4, x_dims);
    uint32_t vp = test_value_add(net, GANTRY_FLOAT32, 4, p_dims);
    uint32_t vw = test_constant_add(net, GANTRY_FLOAT32, 2, w_dims, w);
    uint32_t vy = test_value_add(net, GANTRY_FLOAT32, 4, p_dims);
    test_input(net, vx);
    test_output(net, vy);
    test_node_add(net, "", "Conv", 11, 2, (uint32_t[]){vx, vk}, 1, &vc);
    test_node_add(net, "", "Relu", 14, 1, &vc, 1, &vr);
    test_node_add(net, "", "MaxPool", 12, 1, &vr, 1, &vp);
    test_ints(net, "kernel_shape", 2, two);
    test_ints(net, "strides", 2, two);
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){vp, vw}, 1, &vy);
    gantry_status status = test_net_build(net, 1);
    return status == GANTRY_OK ? test_net_run(net, 1, (void *[]){x}, (void *[]){y}) : status;
}

Test(cpu_program, every_failed_allocation_is_a_status)
{
    float w[16], k[256], x[1024], y[256];
    test_fill(w, 16, 1);
    test_fill(k, 256, 2);
    test_fill(x, 1024, 3);
    long count = 0;
    gantry_status status = GANTRY_RESOURCE;
    for (; status != GANTRY_OK && count < 1000; count++) {
        test_net *net = test_net_open();
        long opened = net->allocations;
        net->fail_at = opened + 1 + count;
        status = build_and_run(net, w, k, x, y);
        cr_assert(status == GANTRY_OK || status == GANTRY_RESOURCE, "allocation %ld gave status %d", count,
                  status);
        cr_assert_eq(test_net_close(net), 0, "allocation %ld", count);
    }
    cr_assert_gt(count, 10);
    cr_assert_lt(count, 1000);
}
