/* Shape inference: graphs built by hand, their shapes as texts, and extents against plain arithmetic. */
#include "infer_fixture.h"

/* ---- the operator table */

Test(infer, every_row_is_found_and_complete)
{
    uint32_t count;
    const gt_op *table = gt_op_table(&count);
    for (uint32_t k = 0; k < count; k++) {
        cr_assert_eq(gt_op_find(table[k].domain, table[k].name), &table[k], "%s is not where it is sought",
                     table[k].name);
        cr_assert(table[k].infer && table[k].since[0] > 0);
        cr_assert(table[k].implemented_from >= 1 &&
                  gt_op_version(&table[k], 28) >= table[k].implemented_from);
        for (int v = 1; v < GT_OP_MAX_VERSIONS && table[k].since[v]; v++)
            cr_assert_gt(table[k].since[v], table[k].since[v - 1]);
    }
    cr_assert_geq(count, 200u);
    cr_assert_eq(gt_op_find("ai.onnx", "Conv"), gt_op_find("", "Conv"));
    cr_assert_null(gt_op_find("", "NoSuchOperator"));
    cr_assert_eq(gt_op_version(gt_op_find("", "Squeeze"), 12), 11);
    cr_assert_eq(gt_op_version(gt_op_find("", "Squeeze"), 17), 13);
    cr_assert_eq(gt_op_version(gt_op_find("", "LayerNormalization"), 16), 0);
}

/* ---- elementwise, and what a bind must check */

Test(infer, broadcasting_decides_what_it_can)
{
    uint32_t a = input("a", GANTRY_FLOAT32, "n,1,k1"), b = input("b", GANTRY_FLOAT32, "4,k2"),
             c = input("c", GANTRY_FLOAT32, "64");
    uint32_t sum = NODE("Add", 14, a, b), more = NODE("Mul", 14, sum, c), less = NODE("Less", 13, a, a);
    infer();
    SHAPE(sum, "n,4,broadcast(k1,k2)");
    SHAPE(more, "n,4,64");
    SHAPE(less, "n,1,k1");
    cr_assert_eq(graph->values.data[less]->dtype, GANTRY_BOOL);
    cr_assert_eq(graph->check_count, 2u);
    values v = evaluate(2, (const char *const[]){"k1", "k2"}, (const int64_t[]){15, 64});
    uint32_t failed = gt_infer_first_failure(graph, v.known);
    cr_assert_neq(failed, GT_NONE);
    cr_assert_eq(gt_infer_explain_check(graph, failed, graph->checks[failed].expr, v.of, v.known, &error),
                 GANTRY_INPUT_SHAPE);
    for (uint32_t k = 0; k < 7; k++) {
        static const char *const words[] = {
            "Add", "'a'", "'b'", "axis -1", "k1=15", "k2=64", "axis 2 of input 'a'"};
        cr_assert(strstr(error.message, words[k]), "\"%s\" is not in: %s", words[k], error.message);
    }
    v = evaluate(2, (const char *const[]){"k1", "k2"}, (const int64_t[]){1, 64});
    cr_assert_eq(gt_infer_first_failure(graph, v.known), GT_NONE);
}

Test(infer, shapes_that_never_fit_are_errors_with_a_hint)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,64,56,56"), bias = input("bias", GANTRY_FLOAT32, "64");
    NODE("Add", 14, x, bias);
    cr_assert_eq(infer_status(), GANTRY_MODEL_SHAPE);
    cr_assert(strstr(error.message, "axis -1") && strstr(error.message, "56") &&
                  strstr(error.message, "Unsqueeze"),
              "%s", error.message);
    cr_assert(strstr(error.message, "2 axes of extent 1"), "%s", error.message);
}

Test(infer, types_must_agree)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "3"), y = input("y", GANTRY_FLOAT16, "3");
    NODE("Add", 14, x, y);
    cr_assert_eq(infer_status(), GANTRY_MODEL_TYPE);
    cr_assert(strstr(error.message, "float32") && strstr(error.message, "float16"), "%s", error.message);
}

Test(infer, types_outside_of_the_schema_are_refused)
{
    NODE("Sqrt", 13, input("x", GANTRY_INT64, "3"));
    cr_assert_eq(infer_status(), GANTRY_MODEL_TYPE);
    cr_assert(strstr(error.message, "int64") && strstr(error.message, "Sqrt"), "%s", error.message);
}

/* ---- shape arithmetic */

Test(infer, a_shape_chain_becomes_the_dims)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "batch,seq,768");
    uint32_t shape = NODE("Shape", 15, x), batch = NODE("Gather", 13, shape, scalar(0));
    uint32_t gather = last_node, seq = NODE("Gather", 13, shape, scalar(1));
    uint32_t b1 = NODE("Unsqueeze", 13, batch, INTS(0)), s1 = NODE("Unsqueeze", 13, seq, INTS(0));
    uint32_t target = NODE("Concat", 13, b1, s1, INTS(12), INTS(-1));
    set_int("axis", 0);
    uint32_t y = NODE("Reshape", 14, x, target);
    uint32_t reshape = last_node, twice = NODE("Reshape", 14, y, INTS(0, 0, -1));
    infer();
    SHAPE(y, "batch,seq,12,64");
    SHAPE(twice, "batch,seq,768");
    cr_assert(graph->nodes.data[gather]->at_bind);
    cr_assert_not(graph->nodes.data[reshape]->at_bind);
    cr_assert_eq(graph->values.data[target]->element_count, 4u);
    cr_assert_eq(graph->check_count, 0u);
    uint32_t exprs = model->exprs.nodes.count;
    OK(gt_infer_graph(graph, &error));
    cr_assert_eq(model->exprs.nodes.count, exprs, "inferring again must find everything again");
    SHAPE(y, "batch,seq,12,64");
}

Test(infer, a_target_of_unknown_sign_is_decided_at_bind)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,6"), target = input("target", GANTRY_INT64, "2");
    uint32_t y = NODE("Reshape", 14, x, target);
    infer();
    const char *const names[] = {"n", "target[0]", "target[1]"};
    static const int64_t cases[][5] = {
        {4, 0, -1, 4, 6}, {4, -1, 8, 3, 8}, {4, 2, 12, 2, 12}, {4, -1, 0, 4, 6}};
    for (uint32_t k = 0; k < 4; k++) {
        cr_assert_eq(extent_at(y, 0, 3, names, cases[k]), cases[k][3], "case %u", k);
        cr_assert_eq(extent_at(y, 1, 3, names, cases[k]), cases[k][4], "case %u", k);
    }
    values v = evaluate(3, names, (const int64_t[]){4, 5, 5});
    cr_assert_neq(gt_infer_first_failure(graph, v.known), GT_NONE);
    uint8_t used[8] = {0};
    gt_infer_key_symbols(graph, used);
    uint32_t keyed = 0;
    for (uint32_t s = 0; s < model->exprs.symbols.count; s++)
        keyed += used[s];
    cr_assert_eq(keyed, 2u);
}

/* How many elements numpy's x[start:end:step] has, by counting. */
static int64_t count_slice(int64_t extent, int64_t start, int64_t end, int64_t step)
{
    int64_t count = 0, low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
    start += start < 0 ? extent : 0;
    end += end < 0 ? extent : 0;
    start = start < low ? low : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    for (int64_t at = start; step > 0 ? at < end : at > end; at += step)
        count++;
    return count;
}

Test(infer, slices_of_any_bounds_have_the_right_extent)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n"), outs[1024], chosen, count = 0;
    int64_t bounds[1024][3];
    for (int64_t start = -5; start <= 5; start += 2)
        for (int64_t end = -5; end <= 6; end++)
            for (int64_t step = -3; step <= 3; step++) {
                if (step == 0)
                    continue;
                int64_t *b = bounds[count];
                b[0] = start, b[1] = end == 6 ? INT64_MAX : end == -5 ? INT64_MIN + 1 : end, b[2] = step;
                outs[count++] = NODE("Slice", 13, x, INTS(b[0]), INTS(b[1]), INTS(0), INTS(b[2]));
            }
    chosen = NODE("Slice", 13, x, input("s", GANTRY_INT64, "1"), input("e", GANTRY_INT64, "1"), INTS(0),
                  input("t", GANTRY_INT64, "1"));
    infer();
    for (int64_t n = 0; n <= 6; n++) {
        values v = evaluate(1, (const char *const[]){"n"}, &n);
        for (uint32_t k = 0; k < count; k++) {
            gt_expr e = graph->values.data[outs[k]]->dims[0];
            int64_t end = bounds[k][1] < -100 ? -100 : bounds[k][1];
            cr_assert(v.known[e]);
            cr_assert_eq(v.of[e].i, count_slice(n, bounds[k][0], end, bounds[k][2]), "%lld: [%lld:%lld:%lld]",
                         (long long)n, (long long)bounds[k][0], (long long)bounds[k][1],
                         (long long)bounds[k][2]);
        }
        for (uint32_t k = 0; k < count; k += 7) {
            const char *const names[] = {"n", "s[0]", "e[0]", "t[0]"};
            int64_t end = bounds[k][1] > 100 ? 100 : bounds[k][1] < -100 ? -100 : bounds[k][1];
            const int64_t numbers[] = {n, bounds[k][0], end, bounds[k][2]};
            cr_assert_eq(extent_at(chosen, 0, 4, names, numbers),
                         count_slice(n, bounds[k][0], end, bounds[k][2]));
        }
    }
}

Test(infer, slices_print_simply)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,1024"), past = input("past", GANTRY_FLOAT32, "p,n");
    uint32_t all = NODE("Slice", 13, x, INTS(0), INTS(INT64_MAX), INTS(0));
    uint32_t last = NODE("Slice", 13, x, INTS(-1), INTS(INT64_MAX), INTS(0));
    uint32_t head = NODE("Slice", 13, x, INTS(0), INTS(-1), INTS(0));
    uint32_t from = NODE("Shape", 15, past);
    set_int("end", 1);
    uint32_t length = NODE("Shape", 15, past);
    set_int("start", 1);
    uint32_t to = NODE("Add", 14, from, length), window = NODE("Slice", 13, x, from, to, INTS(1));
    infer();
    SHAPE(all, "n,1024");
    SHAPE(last, "min(1,n),1024");
    SHAPE(head, "max(0,n-1),1024");
    SHAPE(window, "n,min(n,max(0,1024-p))");
}

Test(infer, ranges_splits_and_tiles)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,10"), ids[3];
    uint32_t size = NODE("Size", 13, x), range = NODE("Range", 11, scalar(0), size, scalar(3));
    for (uint32_t k = 0; k < 3; k++)
        OK(gt_graph_add_value(graph, NULL, &ids[k], &error));
    OK(gt_graph_add_node(graph, NULL, "", "Split", 18, 1, &x, 3, ids, &last_node, &error));
    set_int("axis", 1);
    set_int("num_outputs", 3);
    uint32_t tile = NODE("Tile", 13, x, INTS(2, 3)), zeros = NODE("ConstantOfShape", 20, INTS(2, 5));
    uint32_t empty = NODE("Range", 11, scalar(5), scalar(2), scalar(1)),
             down = NODE("Range", 11, scalar(5), scalar(0), scalar(-2));
    infer();
    SHAPE(range, "3*n+(n+2)/3");
    SHAPE(ids[0], "n,4");
    SHAPE(ids[2], "n,2");
    SHAPE(tile, "2*n,30");
    SHAPE(zeros, "2,5");
    SHAPE(empty, "0");
    SHAPE(down, "3");
    int64_t second;
    cr_assert(gt_expr_is_const(&model->exprs, graph->values.data[down]->elements[1], &second) && second == 3);
}

Test(infer, axes_that_come_as_inputs_are_choices)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "2,3,n"), axes = input("axes", GANTRY_INT64, "1");
    uint32_t kept = NODE("ReduceSum", 13, x, axes), dropped = NODE("ReduceSum", 13, x, axes);
    set_int("keepdims", 0);
    uint32_t wider = NODE("Unsqueeze", 13, x, axes);
    infer();
    const char *const names[] = {"n", "axes[0]"};
    for (int64_t axis = -3; axis < 3; axis++) {
        const int64_t numbers[] = {5, axis}, dims[] = {2, 3, 5};
        for (int32_t d = 0, at = 0; d < 3; d++) {
            bool reduced = d == (axis + 3) % 3;
            cr_assert_eq(extent_at(kept, d, 2, names, numbers), reduced ? 1 : dims[d]);
            if (!reduced)
                cr_assert_eq(extent_at(dropped, at++, 2, names, numbers), dims[d]);
        }
    }
    for (int64_t axis = 0; axis < 4; axis++) {
        const int64_t numbers[] = {5, axis}, dims[] = {2, 3, 5};
        for (int32_t d = 0; d < 4; d++)
            cr_assert_eq(extent_at(wider, d, 2, names, numbers), d == axis ? 1 : dims[d > axis ? d - 1 : d]);
    }
}

/* One that is named twice leaves more than the rank says: memory would be too small for it. */
Test(infer, axes_that_come_as_inputs_are_checked_when_they_are_bound)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "2,3,4"), axes = input("axes", GANTRY_INT64, "2");
    NODE("ReduceLogSumExp", 22, x, axes);
    set_int("keepdims", 0);
    infer();
    cr_assert_eq(graph->check_count, 1);
    static const struct {
        int64_t axes[2];
        bool good;
    } cases[] = {{{0, 1}, true}, {{-1, 0}, true}, {{1, 1}, false}, {{2, -1}, false}, {{0, 3}, false}};
    const char *const names[] = {"axes[0]", "axes[1]"};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        values v = evaluate(2, names, cases[k].axes);
        cr_assert_eq(gt_infer_first_failure(graph, v.known) == GT_NONE, cases[k].good, "case %d", (int)k);
    }
}

/* The tensor that fills has one element; one of none was read past its end. */
Test(infer, constant_of_shape_takes_one_value)
{
    static const float numbers[2] = {1, 2};
    for (int64_t count = 0; count < 3; count++) {
        NODE("ConstantOfShape", 20, INTS(2, 5));
        gantry_tensor value = {.struct_bytes = sizeof value,
                               .dtype = GANTRY_FLOAT32,
                               .rank = 1,
                               .dims = &count,
                               .buffer = {(void *)(uintptr_t)numbers, 0},
                               .size_bytes = (size_t)count * sizeof *numbers};
        gantry_attribute attribute = {.struct_bytes = sizeof attribute,
                                      .name = "value",
                                      .kind = GANTRY_ATTR_TENSOR,
                                      .count = 1,
                                      .tensors = &value};
        OK(gt_node_set_attribute(graph, last_node, &attribute, &error));
        cr_assert_eq(infer_status(), count == 1 ? GANTRY_OK : GANTRY_MODEL_GRAPH, "%s", error.message);
        gt_graph_remove_node(graph, last_node, "tested", "test");
    }
}

/* ---- windows */

/* Places of a window by trying them, as the operator's definition does. */
static int64_t count_places(int64_t extent, int64_t kernel, int64_t stride, int64_t dilation, int64_t begin,
                            int64_t end, bool ceil_mode)
{
    int64_t reach = (kernel - 1) * dilation + 1, room = extent + begin + end - reach;
    if (room < 0)
        return -1;
    int64_t count = room / stride + 1;
    if (ceil_mode && room % stride && count * stride < extent + begin)
        count++;
    return count;
}

Test(infer, pools_have_as_many_places_as_fit)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "1,2,h"), outs[256], count = 0;
    int64_t set[256][6];
    for (int64_t kernel = 1; kernel <= 3; kernel++)
        for (int64_t stride = 1; stride <= 3; stride++)
            for (int64_t dilation = 1; dilation <= 2; dilation++)
                for (int64_t pads = 0; pads < 4; pads++)
                    for (int64_t up = 0; up < 2; up++) {
                        int64_t begin = pads & 1, end = pads >> 1;
                        if (begin >= kernel || end >= kernel)
                            continue;
                        int64_t *s = set[count];
                        s[0] = kernel, s[1] = stride, s[2] = dilation, s[3] = begin, s[4] = end, s[5] = up;
                        outs[count++] = NODE("MaxPool", 12, x);
                        SET_INTS("kernel_shape", kernel);
                        SET_INTS("strides", stride);
                        SET_INTS("dilations", dilation);
                        SET_INTS("pads", begin, end);
                        set_int("ceil_mode", up);
                    }
    infer();
    for (int64_t h = 5; h < 12; h++) {
        values v = evaluate(1, (const char *const[]){"h"}, &h);
        for (uint32_t k = 0; k < count; k++) {
            const int64_t *s = set[k];
            gt_expr e = graph->values.data[outs[k]]->dims[2];
            cr_assert_eq(v.of[e].i, count_places(h, s[0], s[1], s[2], s[3], s[4], s[5] != 0),
                         "h %lld, kernel %lld, stride %lld, dilation %lld, pads %lld %lld, ceil %lld",
                         (long long)h, (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3],
                         (long long)s[4], (long long)s[5]);
        }
    }
}

Test(infer, convolutions_check_channels_and_print_simply)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,3,h,w"), w = input("w1", GANTRY_FLOAT32, "16,3,3,3"),
             w2 = input("w2", GANTRY_FLOAT32, "8,16,3,3"), bad = input("bad", GANTRY_FLOAT32, "8,4,3,3");
    uint32_t y = NODE("Conv", 11, x, w);
    SET_INTS("strides", 2, 2);
    SET_INTS("pads", 1, 1, 1, 1);
    uint32_t z = NODE("Conv", 11, y, w2);
    SET_INTS("strides", 2, 2);
    SET_INTS("pads", 1, 1, 1, 1);
    uint32_t up = NODE("ConvTranspose", 11, z, w2);
    SET_INTS("strides", 2, 2);
    infer();
    SHAPE(y, "n,16,(h+1)/2,(w+1)/2");
    SHAPE(z, "n,8,(h+3)/4,(w+3)/4");
    SHAPE(up, "n,16,2*((h+3)/4)+1,2*((w+3)/4)+1");
    NODE("Conv", 11, y, bad);
    cr_assert_eq(infer_status(), GANTRY_MODEL_SHAPE);
    cr_assert(strstr(error.message, "16") && strstr(error.message, "take 4"), "%s", error.message);
}

Test(infer, resize_rounds_as_floats_do)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,3,h,w"), scales, roi, y, z;
    const float factors[4] = {1, 1, 2, 1.1f};
    OK(gt_graph_add_constant(graph, NULL, GANTRY_FLOAT32, 1, (int64_t[]){4}, factors, &scales, &error));
    OK(gt_graph_add_constant(graph, NULL, GANTRY_FLOAT32, 1, (int64_t[]){0}, factors, &roi, &error));
    y = NODE("Resize", 13, x, roi, scales);
    z = NODE("Resize", 13, x, roi, GT_NONE, INTS(1, 3, 20, 30));
    infer();
    SHAPE(z, "1,3,20,30");
    for (int64_t w = 1; w < 3000; w += 37) {
        values v = evaluate(1, (const char *const[]){"w"}, &w);
        cr_assert_eq(v.of[graph->values.data[y]->dims[3]].i, (int64_t)floorf((float)w * 1.1f), "w %lld",
                     (long long)w);
    }
    cr_assert_eq(extent_at(y, 2, 1, (const char *const[]){"h"}, (const int64_t[]){21}), 42);
}

/* ---- bodies */

static gt_graph *body_of(uint32_t node, const char *name)
{
    gt_graph *body;
    OK(gt_graph_create(model, graph, node, name, "b.", &body, &error));
    gt_node *owner = graph->nodes.data[node];
    gt_body *bodies = gt_arena_array(&model->arena, owner->body_count + 1, sizeof *bodies);
    if (owner->body_count)
        memcpy(bodies, owner->bodies, owner->body_count * sizeof *bodies);
    bodies[owner->body_count] = (gt_body){name, body};
    owner->bodies = bodies;
    owner->body_count++;
    return body;
}

static uint32_t capture(gt_graph *body, uint32_t outer)
{
    uint32_t id;
    OK(gt_graph_add_value(body, NULL, &id, &error));
    body->values.data[id]->captured = outer;
    return id;
}

static void hand_out(gt_graph *body, uint32_t value)
{
    body->values.data[value]->is_output = true;
    cr_assert(gt_vec_push(&allocator, &body->outputs, value));
}

Test(infer, branches_join_by_their_condition)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,4"), flag = input("flag", GANTRY_BOOL, "");
    uint32_t y = NODE("If", 16, flag), owner = last_node;
    gt_graph *yes = body_of(owner, "then_branch"), *no = body_of(owner, "else_branch");
    uint32_t inner = capture(yes, x), same = capture(no, x);
    hand_out(yes, node_in(yes, "Concat", 13, 2, (const uint32_t[]){inner, inner}, 1));
    OK(gt_node_set_int(yes, last_node, "axis", 0, &error));
    hand_out(no, node_in(no, "Relu", 14, 1, &same, 1));
    OK(gt_graph_sort(yes, &error));
    OK(gt_graph_sort(no, &error));
    infer();
    SHAPE(y, "flag?2*n:n,4");
    cr_assert_eq(extent_at(y, 0, 2, (const char *const[]){"n", "flag"}, (const int64_t[]){5, 1}), 10);
    uint8_t used[8] = {0};
    gt_infer_key_symbols(graph, used);
    cr_assert_eq(used[0] + used[1] + used[2], 1, "the condition is part of a plan's key");
}

/* x grows by one row in each round; a row of each round is stacked. */
Test(infer, a_loop_widens_what_changes)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,4"), kept = input("kept", GANTRY_FLOAT32, "m,2"), outs[3];
    uint32_t trips = scalar(7), condition;
    OK(gt_graph_add_constant(graph, NULL, GANTRY_BOOL, 0, NULL, &(uint8_t){1}, &condition, &error));
    for (uint32_t k = 0; k < 3; k++)
        OK(gt_graph_add_value(graph, NULL, &outs[k], &error));
    OK(gt_graph_add_node(graph, NULL, "", "Loop", 16, 4, (const uint32_t[]){trips, condition, x, kept}, 3,
                         outs, &last_node, &error));
    gt_graph *body = body_of(last_node, "body");
    input_of(body, "round", GANTRY_INT64, "");
    uint32_t go = input_of(body, "go", GANTRY_BOOL, ""),
             state = input_of(body, "state", GANTRY_FLOAT32, "a,b"),
             still = input_of(body, "still", GANTRY_FLOAT32, "a,b");
    uint32_t zero = ints_of(body, 1, (const int64_t[]){0}), one = ints_of(body, 1, (const int64_t[]){1});
    hand_out(body, node_in(body, "Identity", 14, 1, &go, 1));
    uint32_t row = node_in(body, "Slice", 13, 3, (const uint32_t[]){state, zero, one}, 1);
    uint32_t longer = node_in(body, "Concat", 13, 2, (const uint32_t[]){state, row}, 1);
    OK(gt_node_set_int(body, last_node, "axis", 0, &error));
    hand_out(body, longer);
    hand_out(body, node_in(body, "Neg", 13, 1, &still, 1));
    hand_out(body, node_in(body, "Relu", 14, 1, &still, 1));
    OK(gt_graph_sort(body, &error));
    infer();
    const gt_symbol *rows = gt_expr_as_symbol(&model->exprs, graph->values.data[outs[0]]->dims[0]);
    cr_assert(rows && rows->kind == GT_SYMBOL_DATA_DIM && rows->graph == graph && rows->segment == 1);
    SHAPE(outs[1], "m,2");
    SHAPE(outs[2], "7,m,2");
    const gt_symbol *inside = gt_expr_as_symbol(&model->exprs, body->values.data[state]->dims[0]);
    cr_assert(inside && inside->graph == body && inside->value == state);
    uint32_t symbols = model->exprs.symbols.count;
    OK(gt_infer_graph(graph, &error));
    cr_assert_eq(model->exprs.symbols.count, symbols);
}

/* Input 2 of a Loop is the first carried value: unlike the trip count it can't be left out. */
Test(infer, a_loop_without_an_initial_value)
{
    uint32_t out;
    OK(gt_graph_add_value(graph, NULL, &out, &error));
    OK(gt_graph_add_node(graph, "loop1", "", "Loop", 16, 3, (const uint32_t[]){GT_NONE, GT_NONE, GT_NONE}, 1,
                         &out, &last_node, &error));
    gt_graph *body = body_of(last_node, "body");
    input_of(body, "round", GANTRY_INT64, "");
    hand_out(body, input_of(body, "go", GANTRY_BOOL, ""));
    hand_out(body, input_of(body, "state", GANTRY_FLOAT32, "2"));
    OK(gt_graph_sort(body, &error));
    OK(gt_graph_sort(graph, &error));
    OK(gt_infer_inputs(model, NULL, &error));
    cr_assert_eq(gt_infer_graph(graph, &error), GANTRY_MODEL_GRAPH);
    cr_assert(strstr(error.message, "carried value 0 (input 2) is left out"), "%s", error.message);
    cr_assert_str_eq(error.node, "loop1");
}

/* ---- what is not known, hints, versions */

Test(infer, unknown_operators_leave_hints_only)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,4"), y, ids[1];
    OK(gt_graph_add_value(graph, "y", &y, &error));
    OK(gt_graph_add_node(graph, NULL, "com.example", "Magic", 1, 1, &x, 1, &y, &last_node, &error));
    graph->values.data[y]->declared_dtype = GANTRY_FLOAT32;
    graph->values.data[y]->declared_rank = 2;
    graph->values.data[y]->declared_dims = (const int64_t[]){-1, 8};
    ids[0] = NODE("Relu", 14, y);
    infer();
    cr_assert_eq(graph->values.data[ids[0]]->dtype, GANTRY_FLOAT32);
    cr_assert_eq(graph->values.data[ids[0]]->rank, 2);
    SHAPE(ids[0], "y.shape[0],8");
    cr_assert_null(graph->nodes.data[0]->op);
}

Test(infer, versions_that_are_not_implemented_are_named)
{
    NODE("Dropout", 6, input("x", GANTRY_FLOAT32, "n"));
    cr_assert_eq(infer_status(), GANTRY_UNSUPPORTED);
    cr_assert(strstr(error.message, "Dropout version 6") && strstr(error.message, "version 7"), "%s",
              error.message);
}

Test(infer, a_wrong_declared_output_type_names_both)
{
    uint32_t y = NODE("Shape", 15, input("x", GANTRY_FLOAT32, "n"));
    hand_out(graph, y);
    graph->values.data[y]->declared_dtype = GANTRY_FLOAT32;
    cr_assert_eq(infer_status(), GANTRY_MODEL_TYPE);
    cr_assert(strstr(error.message, "int64") && strstr(error.message, "float32"), "%s", error.message);
}

Test(infer, inferring_survives_each_failed_allocation)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,4"), shape = NODE("Shape", 15, x);
    uint32_t found = NODE("NonZero", 13, x), y = NODE("Reshape", 14, x, NODE("Abs", 13, shape));
    NODE("Add", 14, y, x);
    NODE("Gather", 13, found, scalar(0));
    OK(gt_graph_sort(graph, &error));
    int failures = 0;
    for (int64_t n = 0; n < 200; n++) {
        gt_exprs_free(&model->exprs);
        gt_exprs_init(&model->exprs, &allocator);
        for (uint32_t v = 0; v < graph->values.count; v++)
            if (graph->values.data[v]->constant == GT_NONE)
                graph->values.data[v]->rank = -1;
            else /* its dims were expressions of the table that is gone */
                graph->values.data[v]->rank = -2;
        atomic_store(&allocator.fail_after, n);
        gantry_status status = gt_infer_inputs(model, NULL, &error);
        if (status == GANTRY_OK)
            status = gt_infer_graph(graph, &error);
        atomic_store(&allocator.fail_after, -1);
        cr_assert(status == GANTRY_OK || status == GANTRY_RESOURCE, "allocation %lld: %s", (long long)n,
                  error.message);
        failures += status != GANTRY_OK;
        if (status == GANTRY_OK)
            break;
    }
    cr_assert_gt(failures, 3);
}
