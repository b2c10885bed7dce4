/* Each operator of the OpenCL provider on a small model: it has to run there, and give what the CPU gives. */
#include "../support/opencl_rows.h"

TestSuite(opencl_ops, .init = rows_setup, .fini = rows_teardown, .timeout = 240);

/* ---- the rows -------------------------------------------------------------------------------- */

Test(opencl_ops, two_operands)
{
    static const row rows[] = {
        {"Add", "f32[2,3,4] f32[3,1]", "", "f32"},
        {"Add", "i64[5] i64[1]", "", "i64"},
        {"Sub", "f32[2,1,4] f32[3,1]", "", "f32"},
        {"Mul", "f16[6] f16[6]", "", "f16"},
        {"Div", "f32[7] f32[7]", "", "f32"},
        {"Div", "i32[40] i32[40]", "", "i32"},
        {"Mod", "i64[40] i64[40]", "", "i64"},
        {"Mod", "f32[9] f32[9]+", "fmod=1", "f32"},
        {"Pow", "f32[9]+ f32[9]", "", "f32", .tolerance = 1e-5},
        {"Pow", "i32[9] i32[9]%4", "", "i32"},
        {"PRelu", "f32[2,3,4] f32[3,1]", "", "f32"},
        {"Equal", "i32[30]%3 i32[30]%3", "", "b"},
        {"Greater", "f32[2,3] f32[3]", "", "b"},
        {"GreaterOrEqual", "i64[20] i64[20]", "", "b"},
        {"Less", "f64[20] f64[20]", "", "b"},
        {"LessOrEqual", "f16[20] f16[1]", "", "b"},
        {"And", "b[20] b[20]", "", "b"},
        {"Or", "b[4,5] b[5]", "", "b"},
        {"Xor", "b[20] b[20]", "", "b"},
        {"BitwiseAnd", "u8[20] u8[20]", "", "u8"},
        {"BitwiseOr", "i32[20] i32[20]", "", "i32"},
        {"BitwiseXor", "u64[20] u64[20]", "", "u64"},
        {"BitShift", "u32[20] u32[20]%5", "direction=LEFT", "u32"},
        {"Mod", "i64[40] i64[40]", "fmod=1", "i64"},
    };
    CHECK(rows);
}

Test(opencl_ops, one_operand)
{
    static const row rows[] = {
        {"Abs", "f32[20]", "", "f32"},
        {"Abs", "i8[20]", "", "i8"},
        {"Neg", "i32[20]", "", "i32"},
        {"Sign", "f32[20]", "", "f32"},
        {"Sqrt", "f32[20]+", "", "f32"},
        {"Reciprocal", "f32[20]", "", "f32"},
        {"Floor", "f32[20]", "", "f32"},
        {"Ceil", "f16[20]", "", "f16"},
        {"Round", "f32[20]", "", "f32"},
        {"Exp", "f32[20]", "", "f32"},
        {"Log", "f32[20]+", "", "f32"},
        {"Erf", "f32[20]", "", "f32"},
        {"Tanh", "f32[20]", "", "f32"},
        {"Sigmoid", "f32[20]", "", "f32"},
        {"Relu", "f32[20]", "", "f32"},
        {"LeakyRelu", "f32[20]", "alpha=.3", "f32"},
        {"Elu", "f32[20]", "alpha=.7", "f32"},
        {"Celu", "f32[20]", "alpha=.7", "f32"},
        {"Selu", "f32[20]", "", "f32"},
        {"HardSigmoid", "f32[20]", "alpha=.4", "f32"},
        {"HardSwish", "f32[20]", "", "f32"},
        {"ThresholdedRelu", "f32[20]", "alpha=.5", "f32"},
        {"Shrink", "f32[20]", "bias=.2 lambd=.4", "f32"},
        {"Softplus", "f32[20]", "", "f32"},
        {"Softsign", "f32[20]", "", "f32"},
        {"Mish", "f32[20]", "", "f32"},
        {"Gelu", "f32[20]", "", "f32"},
        {"Gelu", "f32[20]", "approximate=tanh", "f32"},
        {"Sin", "f32[20]", "", "f32"},
        {"Cos", "f64[20]", "", "f64"},
        {"Atan", "f32[20]", "", "f32"},
        {"IsNaN", "f32[20]", "", "b"},
        {"IsInf", "f32[20]", "detect_negative=0", "b"},
        {"Not", "b[20]", "", "b"},
        {"BitwiseNot", "u8[20]", "", "u8"},
    };
    CHECK(rows);
}

Test(opencl_ops, several_operands_and_conversions)
{
    static const row rows[] = {
        {"Where", "b[3,1] f32[4] f32[2,1,1]", "", "f32"},
        {"Where", "b[8] i64[8] i64[8]", "", "i64"},
        {"Clip", "f32[20] f32[] f32[]+", "", "f32"},
        {"Clip", "i32[20] _ i32[]%4", "", "i32"},
        {"Clip", "f32[20]", "min=-.5 max=.5", "f32", .opset = 6},
        {"Sum", "f32[2,3] f32[3] f32[1]", "", "f32"},
        {"Mean", "f32[6] f32[6] f32[6]", "", "f32"},
        {"Max", "f32[6] f32[6] f32[6] f32[1]", "", "f32"},
        {"Min", "i64[6] i64[6]", "", "i64"},
        {"Cast", "f32[20]", "to=7", "i64"},
        {"Cast", "f32[20]", "to=10", "f16"},
        {"Cast", "i64[20]", "to=1", "f32"},
        {"Cast", "i32[20]", "to=9", "b"},
        {"Cast", "f16[20]", "to=1", "f32"},
        {"Cast", "b[20]", "to=3", "i8"},
        {"CastLike", "i32[20] f32[1]", "", "f32"},
    };
    CHECK(rows);
}

Test(opencl_ops, movement)
{
    static const row rows[] = {
        {"Identity", "f32[3,4]", "", "f32"},
        {"Reshape", "f32[2,3,4] i64{4,-1}", "", "f32"},
        {"Flatten", "i8[2,3,4]", "axis=2", "i8"},
        {"Squeeze", "f32[2,1,4] i64{1}", "", "f32"},
        {"Unsqueeze", "f32[2,4] i64{0,2}", "", "f32"},
        {"Transpose", "f32[2,3,4,5]", "perm=0,2,1,3", "f32"},
        {"Transpose", "i64[3,4]", "", "i64"},
        {"Transpose", "b[3,1,4]", "perm=2,0,1", "b"},
        {"Expand", "f16[3,1] i64{2,1,4}", "", "f16"},
        {"Tile", "f32[2,3] i64{2,3}", "", "f32"},
        {"Concat", "f32[2,3] f32[2,1] f32[2,4]", "axis=-1", "f32"},
        {"Concat", "u8[2,3] u8[1,3]", "axis=0", "u8"},
        {"Split", "f32[5,4] i64{2,3}", "axis=0", "f32", .outputs = 2},
        {"Split", "f32[4,6] i64{1,2,3}", "axis=1", "f32", .outputs = 3},
        {"Slice", "f32[6,5] i64{1,4} i64{5,-6} i64{0,1} i64{2,-2}", "", "f32"},
        {"Slice", "f32[6,5] i64{2} i64{4}", "", "f32"},
        {"Pad", "f32[3,4] i64{1,2,0,3} f32{0.5}", "", "f32", .opset = 13},
        {"Pad", "i32[3,4] i64{1,2,0,3}", "mode=edge", "i32"},
        {"Pad", "f32[3,4] i64{1,2,2,3}", "mode=reflect", "f32"},
        {"Pad", "f16[3,4] i64{-1,2,0,-1}", "", "f16"},
        {"DepthToSpace", "f32[2,8,3,2]", "blocksize=2", "f32"},
        {"DepthToSpace", "f32[2,8,3,2]", "blocksize=2 mode=CRD", "f32"},
        {"SpaceToDepth", "f32[2,2,4,6]", "blocksize=2", "f32"},
    };
    CHECK(rows);
}

Test(opencl_ops, gathering)
{
    static const row rows[] = {
        {"Gather", "f32[5,4] i64[2,3]%5", "axis=0", "f32"},
        {"Gather", "i64[2,5,3] i32[4]%5", "axis=1", "i64"},
        {"GatherElements", "f32[4,5] i64[4,3]%5", "axis=1", "f32"},
        {"GatherND", "f32[3,4,5] i64[6,2]%3", "", "f32"},
        {"GatherND", "f32[3,4,5] i64[3,2,1]%4", "batch_dims=1", "f32"},
        {"ScatterElements", "f32[4,5] i64[4,1]%5 f32[4,1]", "axis=1", "f32"},
        {"ScatterND", "f32[5,3] i64[1,1]%5 f32[1,3]", "", "f32"},
        {"ScatterElements", "f32[4,5] i64[4,9]%5 f32[4,9]", "axis=1 reduction=add", "f32", .opset = 18},
        {"ScatterElements", "f32[4,3,5] i64[7,2,4]%4 f32[7,2,4]", "axis=0 reduction=mul", "f32", .opset = 18},
        {"ScatterElements", "i32[6,4] i32[9,3]%6 i32[9,3]", "axis=0 reduction=max", "i32", .opset = 18},
        {"ScatterElements", "f16[4,5] i64[4,6]%5 f16[4,6]", "axis=-1 reduction=min", "f16", .opset = 18},
        {"ScatterND", "f32[5,3] i64[9,1]%5 f32[9,3]", "reduction=add", "f32", .opset = 18},
        {"ScatterND", "f32[3,4,5] i64[3,6,2]%3 f32[3,6,5]", "reduction=mul", "f32", .opset = 18},
        {"ScatterND", "i64[4,4] i64[20,2]%4 i64[20]", "reduction=min", "i64", .opset = 18},
        {"ScatterND", "f32[4,4] i64[20,2]%4 f32[20]", "reduction=max", "f32", .opset = 18},
        {"OneHot", "i64[3,4]%5 i64{5} f32{0,1}", "axis=1", "f32"},
        {"Trilu", "f32[2,4,5] i64[]%3", "upper=0", "f32"},
        {"Trilu", "i64[4,5]", "", "i64"},
    };
    CHECK(rows);
}

Test(opencl_ops, resizing)
{
    static const row rows[] = {
        {"Resize", "f32[1,2,4,5] _ f32{1,1,2,1.5}", "mode=nearest", "f32"},
        {"Resize", "u8[1,2,4,4] _ f32{1,1,2,2}", "mode=nearest coordinate_transformation_mode=asymmetric",
         "u8"},
        {"Resize", "f32[1,2,4,5] _ _ i64{1,2,7,3}", "mode=linear", "f32"},
        {"Resize", "f32[1,2,4,5] _ _ i64{1,2,8,10}",
         "mode=linear coordinate_transformation_mode=align_corners", "f32"},
        {"Resize", "f16[1,2,4,5] _ f32{1,1,2,2}", "mode=linear", "f16"},
        {"Resize", "f32[1,1,6,6] _ f32{1,1,.5,.5}", "mode=cubic antialias=1", "f32"},
    };
    CHECK(rows);
}

Test(opencl_ops, reductions)
{
    static const row rows[] = {
        {"ReduceSum", "f32[3,4,5] i64{1}", "", "f32"},
        {"ReduceSum", "f32[3,4,5] i64{0,2}", "keepdims=0", "f32"},
        {"ReduceSum", "f32[4,3000] i64{1}", "", "f32", .tolerance = 1e-5},
        {"ReduceMean", "f32[3,4,5]", "axes=1,2", "f32", .opset = 13},
        {"ReduceMean", "i32[3,40] i64{1}", "", "i32"},
        {"ReduceMax", "f32[3,4,5] i64{-1}", "", "f32"},
        {"ReduceMax", "i8[3,4] i64{0}", "", "i8"},
        {"ReduceMax", "f32[2,700] i64{1}", "", "f32"},
        {"ReduceMin", "f16[3,4,5]", "", "f16"},
        {"ReduceProd", "f32[3,5] i64{1}", "", "f32"},
        {"ReduceL1", "f32[3,5] i64{1}", "", "f32"},
        {"ReduceL2", "f32[3,5] i64{0}", "", "f32"},
        {"ReduceSumSquare", "i64[3,5] i64{1}", "", "i64"},
        {"ReduceLogSum", "f32[3,5]+ i64{1}", "", "f32"},
        {"ReduceLogSumExp", "f32[3,5] i64{1}", "", "f32"},
        {"ArgMax", "f32[3,4,5]", "axis=1", "i64"},
        {"ArgMin", "i32[3,9]", "axis=1 keepdims=0 select_last_index=1", "i64"},
    };
    CHECK(rows);
}

Test(opencl_ops, quantizing_and_scans)
{
    static const row rows[] = {
        {"QuantizeLinear", "f32[3,4] f32{.02} u8{128}", "", "u8"},
        {"QuantizeLinear", "f32[3,4,2] f32{.02,.05,.01,.5} i8{1,0,-3,5}", "axis=1", "i8"},
        {"QuantizeLinear", "f16[20] f32[]+", "output_dtype=3", "i8"},
        {"QuantizeLinear", "f32[4,6] f32[4,2]+", "axis=1 block_size=3 output_dtype=5", "i16"},
        {"DequantizeLinear", "u8[3,4] f32{.02} u8{128}", "", "f32"},
        {"DequantizeLinear", "i8[3,4] f32{.02,.05,.01} i8{1,0,-3}", "axis=0", "f32"},
        {"DequantizeLinear", "i32[5] f32{.001,.002,.003,.004,.005}", "axis=0", "f32"},
        {"DequantizeLinear", "i8[4,6] f16[2,6]+", "axis=0 block_size=2", "f16"},
        {"CumSum", "f32[3,4,5] i64{1}", "", "f32"},
        {"CumSum", "i32[3,4] i64{-1}", "exclusive=1 reverse=1", "i32"},
        {"TopK", "f32[3,40,2] i64{7}", "axis=1", "f32", .outputs = 2},
        {"TopK", "i32[3,30]%9 i64{5}", "largest=0", "i32", .outputs = 2},
    };
    CHECK(rows);
}

/* The device finds it out while it runs: who waits for the result is told, and the next run is good. */
Test(opencl_ops, an_index_outside_of_its_axis)
{
    static const row r = {"Gather", "f32[5,4] i64[3]%5", "axis=0", "f32"};
    static operand operands[MAX_INPUTS];
    uint32_t count = read_operands(r.inputs, operands);
    small_session s;
    run_row(&r, operands, count, "providers=opencl,cpu;plan=priority;threads=1", &s);
    cr_assert_eq(nodes_on(&s, "opencl"), 1);
    put(&operands[1], 1, -9);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_DATA, "%s", s.err.message);
    cr_assert(strstr(s.err.message, "'node' (Gather)") && strstr(s.err.message, "-9"), "%s", s.err.message);
    put(&operands[1], 1, 4);
    for (int round = 0; round < 2; round++)
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    gantry_tensor y = small_result(&s, 0);
    for (int k = 0; k < 4; k++) {
        float given;
        memcpy(&given, operands[0].data + 64 + 4 * k, sizeof given);
        cr_assert_eq(small_floats_of(&y)[4 + k], given, "element %d", k);
    }
    s.runtime = NULL;
    small_close(&s);
}

static int64_t nodes_with(const row *r, const char *more)
{
    static operand operands[MAX_INPUTS];
    char options[128];
    small_session s;
    uint32_t count = read_operands(r->inputs, operands);
    snprintf(options, sizeof options, "providers=opencl,cpu;plan=priority;%s", more);
    run_row(r, operands, count, options, &s);
    int64_t nodes = nodes_on(&s, "opencl");
    s.runtime = NULL;
    small_close(&s);
    return nodes;
}

Test(opencl_ops, options)
{
    static const row r = {"Tanh", "f32[20]", "", "f32"};
    cr_assert_eq(nodes_with(&r, "opencl.exclude=Add,Tanh"), 0);
    cr_assert_eq(nodes_with(&r, "opencl.exclude=Tan"), 1);
    cr_assert_eq(nodes_with(&r, "opencl.fast_math=on"), 1);
    cr_assert_eq(nodes_with(&r, "opencl.fast_math=perhaps"), 0, "its compile fails");
}
