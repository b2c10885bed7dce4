/* Small models from a fuzzer's bytes. Values are guessed to have the type and shape of what they are made
 * from: inputs, constants and shapes that agree with the guess are then right often enough to get past
 * inference. */
#include "fuzz_model.h"

#include "graph/op.h"

#include <gantry/gantry.h>
#include <stdio.h>

#define MAX_VALUES 48
#define MAX_NODES 6
#define MAX_BODY_DEPTH 2
#define MAX_BODY_NODES 3
#define MAX_OPERANDS 12
#define MAX_CONSTANT_BYTES 4096

typedef struct guess {
    char name[12];
    gantry_dtype dtype;
    uint32_t rank;
    int64_t dims[FUZZ_MAX_RANK];
} guess;

typedef struct maker {
    fuzz_tape *tape;
    fuzz_model *model;
    guess values[MAX_VALUES]; /* what nodes of this graph may read, those of outer graphs first */
    uint32_t value_count;
    uint32_t next_name;
    uint32_t depth;
} maker;

/* ---- numbers --------------------------------------------------------------------------------- */

static const int64_t small_extents[] = {1, 2, 3, 4, 1, 2, 5, 8, 0, 7, 16, 6, -1};

static const int64_t odd_ints[] = {0,
                                   1,
                                   2,
                                   3,
                                   -1,
                                   4,
                                   -2,
                                   5,
                                   8,
                                   -3,
                                   6,
                                   7,
                                   16,
                                   100,
                                   127,
                                   -128,
                                   255,
                                   256,
                                   1000,
                                   65535,
                                   65536,
                                   INT32_MAX,
                                   INT32_MIN,
                                   (int64_t)1 << 32,
                                   (int64_t)1 << 40,
                                   INT64_MAX,
                                   INT64_MIN,
                                   INT64_MAX - 1,
                                   INT64_MIN + 1,
                                   (int64_t)1 << 62};

static const float odd_floats[] = {0.0f,
                                   1.0f,
                                   -1.0f,
                                   0.5f,
                                   2.0f,
                                   1e-5f,
                                   3.0f,
                                   -0.0f,
                                   -2.5f,
                                   0.25f,
                                   1e10f,
                                   -1e10f,
                                   255.0f,
                                   1e-40f,
                                   1e38f,
                                   4.0f,
                                   1000.0f,
                                   65504.f,
                                   3.4e38f,
                                   __builtin_inff(),
                                   -__builtin_inff(),
                                   __builtin_nanf("")};

static const char *const texts[] = {"NOTSET",
                                    "SAME_UPPER",
                                    "SAME_LOWER",
                                    "VALID",
                                    "linear",
                                    "nearest",
                                    "cubic",
                                    "constant",
                                    "reflect",
                                    "edge",
                                    "wrap",
                                    "half_pixel",
                                    "align_corners",
                                    "asymmetric",
                                    "tf_crop_and_resize",
                                    "pytorch_half_pixel",
                                    "half_pixel_symmetric",
                                    "round_prefer_floor",
                                    "round_prefer_ceil",
                                    "floor",
                                    "ceil",
                                    "none",
                                    "add",
                                    "mul",
                                    "max",
                                    "min",
                                    "sum",
                                    "mean",
                                    "avg",
                                    "bilinear",
                                    "zeros",
                                    "border",
                                    "reflection",
                                    "LEFT",
                                    "RIGHT",
                                    "DCR",
                                    "CRD",
                                    "forward",
                                    "reverse",
                                    "bidirectional",
                                    "Sigmoid",
                                    "Tanh",
                                    "Relu",
                                    "HardSigmoid",
                                    "LeakyRelu",
                                    "tanh",
                                    "not_larger",
                                    "not_smaller",
                                    "stretch",
                                    "output_half_pixel",
                                    "ij,jk->ik",
                                    "ij->ji",
                                    "i,i",
                                    "...ij,...jk->...ik",
                                    "ii->i",
                                    "ij,ij->",
                                    "bhwc,hkc->bhwk",
                                    "a,b,c->abc",
                                    "",
                                    "nonsense"};

static int64_t odd_int(fuzz_tape *tape)
{
    uint8_t first = fuzz_byte(tape);
    return first < 192 ? odd_ints[first % 12] : odd_ints[first % (sizeof odd_ints / sizeof *odd_ints)];
}

static float odd_float(fuzz_tape *tape)
{
    return FUZZ_PICK(tape, odd_floats);
}

static gantry_dtype any_type(fuzz_tape *tape)
{
    static const uint8_t common[] = {GANTRY_FLOAT32, GANTRY_INT64, GANTRY_FLOAT32, GANTRY_UINT8,
                                     GANTRY_INT8,    GANTRY_INT32, GANTRY_BOOL,    GANTRY_FLOAT16};
    uint8_t byte = fuzz_byte(tape);
    return byte < 160 ? common[byte % 8] : (gantry_dtype)(1 + byte % (GANTRY_DTYPE_COUNT - 1));
}

/* One of the types of a mask, preferred when it is there; any of it when not. */
static gantry_dtype type_of(fuzz_tape *tape, uint32_t mask, gantry_dtype preferred)
{
    if (!mask || fuzz_chance(tape, 6))
        return any_type(tape);
    if (mask >> preferred & 1 && !fuzz_chance(tape, 40))
        return preferred;
    uint32_t count = (uint32_t)__builtin_popcount(mask), skip = fuzz_below(tape, count);
    for (uint32_t k = 0; k < 32; k++)
        if (mask >> k & 1 && skip-- == 0)
            return (gantry_dtype)k;
    return preferred;
}

/* ---- element data ---------------------------------------------------------------------------- */

static void put_number(gantry_dtype dtype, int64_t integer, float real, uint8_t *out_bytes, size_t size)
{
    double wide = (double)real;
    uint16_t half = (uint16_t)(integer == 1 ? 0x3c00 : integer == 2 ? 0x4000 : (uint64_t)integer * 77);
    if (dtype == GANTRY_FLOAT32)
        memcpy(out_bytes, &real, size);
    else if (dtype == GANTRY_FLOAT64)
        memcpy(out_bytes, &wide, size);
    else if (dtype == GANTRY_FLOAT16 || dtype == GANTRY_BFLOAT16)
        memcpy(out_bytes, &half, size);
    else
        memcpy(out_bytes, &integer, size < 8 ? size : 8);
}

enum { ZEROS, ONES, RISING, SMALL, ODD, NOISE, FILLS };

void fuzz_fill(fuzz_tape *tape, gantry_dtype dtype, uint8_t *bytes, size_t count)
{
    uint32_t how = fuzz_below(tape, FILLS), state = 12345u + how;
    size_t size = gantry_dtype_bits(dtype) < 8 ? 1 : gantry_dtype_bits(dtype) / 8;
    memset(bytes, 0, count);
    for (size_t k = 0; size && k + size <= count; k += size) {
        int64_t integer = (int64_t)(k / size);
        if (how == ONES)
            integer = 1;
        if (how == SMALL)
            integer = (int64_t)(fuzz_byte(tape) % 8) - 2;
        if (how == ODD)
            integer = odd_int(tape);
        if (how == NOISE) {
            state = state * 1664525u + 1013904223u;
            integer = (int64_t)(int32_t)state;
        }
        if (how != ZEROS)
            put_number(dtype, integer, how == ODD ? odd_float(tape) : (float)integer / 4, bytes + k, size);
        if (dtype == GANTRY_BOOL)
            bytes[k] &= 1;
    }
}

static size_t element_count(uint32_t rank, const int64_t *dims)
{
    size_t count = 1;
    for (uint32_t d = 0; d < rank; d++)
        count *= dims[d] < 0 ? 3 : (size_t)dims[d];
    return count;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void add_value(maker *m, const guess *value)
{
    if (m->value_count < MAX_VALUES)
        m->values[m->value_count++] = *value;
}

static void fresh_name(maker *m, char *out_name)
{
    snprintf(out_name, sizeof((guess *)0)->name, "v%u", m->next_name++ % 100000);
}

static void choose_shape(maker *m, guess *value, bool may_be_open)
{
    uint8_t how = fuzz_byte(m->tape);
    if (m->value_count && how >= 128) {
        const guess *like = &m->values[how % m->value_count];
        value->rank = like->rank;
        memcpy(value->dims, like->dims, sizeof value->dims);
    } else {
        value->rank = how % 32 < 30 ? how % 5 : how % (FUZZ_MAX_RANK + 1);
        for (uint32_t d = 0; d < value->rank; d++)
            value->dims[d] = FUZZ_PICK(m->tape, small_extents);
    }
    for (uint32_t d = 0; d < value->rank; d++)
        if (value->dims[d] < 0 && !may_be_open)
            value->dims[d] = 3;
}

/* A vector of integers such as shapes, axes and pads are. */
static void choose_vector(maker *m, guess *value)
{
    value->rank = fuzz_chance(m->tape, 30) ? 0 : 1;
    value->dims[0] = fuzz_below(m->tape, 6);
}

static wire string_tensor(maker *m, const guess *value)
{
    wire tensor = onnx_tensor(value->name, value->dtype, (int)value->rank, value->dims);
    size_t count = element_count(value->rank, value->dims);
    for (size_t k = 0; k < count && k < 16; k++)
        wire_text(&tensor, 6, FUZZ_PICK(m->tape, texts));
    return tensor;
}

static wire constant_tensor(maker *m, const guess *value)
{
    uint8_t bytes[MAX_CONSTANT_BYTES];
    if (value->dtype == GANTRY_STRING)
        return string_tensor(m, value);
    size_t count = gantry_dtype_bytes(value->dtype, element_count(value->rank, value->dims));
    if (count > sizeof bytes)
        count = sizeof bytes;
    fuzz_fill(m->tape, value->dtype, bytes, count);
    return onnx_raw_tensor(value->name, value->dtype, (int)value->rank, value->dims, bytes, count);
}

static const guess *make_constant(maker *m, wire *graph, gantry_dtype dtype, bool vector)
{
    guess value = {.dtype = dtype};
    fresh_name(m, value.name);
    if (vector)
        choose_vector(m, &value);
    else
        choose_shape(m, &value, false);
    while (element_count(value.rank, value.dims) > MAX_CONSTANT_BYTES / 16)
        value.rank--;
    wire_message(graph, GRAPH_INITIALIZER, constant_tensor(m, &value));
    add_value(m, &value);
    return &m->values[m->value_count - 1];
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static wire make_body(const maker *outer, uint32_t *inout_next_name, const gt_op *op, uint32_t operands,
                      uint32_t outputs);

/* The name of an operand, or NULL: left out. */
static const guess *choose_operand(maker *m, wire *graph, uint32_t mask, gantry_dtype preferred, bool vector)
{
    uint8_t how = fuzz_byte(m->tape);
    gantry_dtype dtype = type_of(m->tape, mask, vector ? GANTRY_INT64 : preferred);
    if (how >= 246)
        return NULL;
    if (m->value_count && how < 170) {
        for (uint32_t tries = 0; tries < m->value_count; tries++) {
            const guess *value = &m->values[m->value_count - 1 - (how + tries) % m->value_count];
            if (value->dtype == dtype && (!vector || value->rank < 2))
                return value;
        }
    }
    if (m->value_count && how < 20)
        return &m->values[how % m->value_count];
    return make_constant(m, graph, dtype, vector);
}

static void set_list(maker *m, wire *node, const char *name, char kind)
{
    uint32_t count = fuzz_below(m->tape, 7);
    wire a = onnx_attribute(name, kind == 'F' ? 6 : kind == 'I' ? 7 : 8);
    for (uint32_t k = 0; k < count; k++) {
        if (kind == 'I')
            wire_int(&a, 8, odd_int(m->tape));
        else if (kind == 'S')
            wire_text(&a, 9, FUZZ_PICK(m->tape, texts));
        else
            wire_float(&a, 7, odd_float(m->tape));
    }
    wire_message(node, 5, a);
}

static void set_attribute(maker *m, wire *node, const char *name, char kind)
{
    if (kind == 'i')
        onnx_set_int(node, name,
                     strcmp(name, "to") == 0 || strcmp(name, "dtype") == 0 ? any_type(m->tape)
                                                                           : odd_int(m->tape));
    else if (kind == 'f')
        onnx_set_float(node, name, odd_float(m->tape));
    else if (kind == 's') {
        wire a = onnx_attribute(name, 3);
        wire_text(&a, 4, FUZZ_PICK(m->tape, texts));
        wire_message(node, 5, a);
    } else if (kind == 't') {
        guess value = {.name = "t", .dtype = any_type(m->tape)};
        choose_vector(m, &value);
        onnx_set_message(node, name, 4, 5, constant_tensor(m, &value));
    } else
        set_list(m, node, name, kind);
}

/* "name:kinds name:kinds": some of them. A version may want a name or be without it. */
static void set_attributes(maker *m, wire *node, const gt_op *op)
{
    for (const char *at = op->attributes; at && *at;) {
        const char *colon = strchr(at, ':');
        size_t length = colon ? (size_t)(colon - at) : 0;
        char name[64];
        if (!colon || length >= sizeof name)
            return;
        memcpy(name, at, length);
        name[length] = 0;
        size_t kinds = strcspn(colon + 1, " ");
        bool needed = strcmp(name, "to") == 0 || strcmp(name, "axis") == 0 || strcmp(name, "equation") == 0 ||
                      strcmp(name, "hidden_size") == 0 || strcmp(name, "kernel_shape") == 0;
        if (kinds && fuzz_chance(m->tape, needed ? 200 : 70))
            set_attribute(m, node, name, colon[1 + fuzz_byte(m->tape) % kinds]);
        at = colon + 1 + kinds;
        at += *at == ' ';
    }
}

static uint32_t choose_count(fuzz_tape *tape, int32_t least, int32_t most)
{
    int32_t limit = most < 0 ? (least > 2 ? least : 2) + 2 : most;
    if (limit > MAX_OPERANDS)
        limit = MAX_OPERANDS;
    if (least > limit || fuzz_chance(tape, 4))
        return fuzz_below(tape, MAX_OPERANDS);
    return (uint32_t)least + (limit > least ? fuzz_below(tape, (uint32_t)(limit - least) + 1) : 0);
}

/* Any row of the table, composites too, which no file should hold. */
static const gt_op *choose_op(fuzz_tape *tape)
{
    uint32_t count;
    const gt_op *table = gt_op_table(&count);
    return &table[fuzz_below(tape, count)];
}

static void make_outputs(maker *m, wire *node, const gt_op *op, const guess *first, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        guess value = first ? *first : (guess){.dtype = GANTRY_FLOAT32};
        fresh_name(m, value.name);
        if (op->flags & GT_OP_DATA_SIZED || strcmp(op->name, "Shape") == 0 ||
            strncmp(op->name, "Arg", 3) == 0)
            value.dtype = GANTRY_INT64;
        wire_text(node, 2, value.name);
        add_value(m, &value);
    }
}

static void make_node(maker *m, wire *graph)
{
    const gt_op *op = choose_op(m->tape);
    bool control = op->flags & GT_OP_CONTROL;
    if (control && m->depth >= MAX_BODY_DEPTH)
        return;
    wire node = {0};
    char name[16];
    uint32_t operands = choose_count(m->tape, op->min_inputs, op->max_inputs);
    uint32_t outputs = choose_count(m->tape, op->min_outputs, op->max_outputs);
    guess first = {.dtype = GANTRY_FLOAT32}, before = first;
    bool any = false;
    for (uint32_t k = 0; k < operands; k++) {
        uint32_t typed = op->typed_inputs > 0 ? (uint32_t)op->typed_inputs : 0;
        uint32_t mask = typed ? op->input_types[k < typed ? k : typed - 1] : 0;
        const guess *operand = choose_operand(m, graph, mask,
                                              any              ? before.dtype
                                              : m->value_count ? m->values[m->value_count - 1].dtype
                                                               : GANTRY_FLOAT32,
                                              op->shape_operands >> (k < 31 ? k : 31) & 1);
        wire_text(&node, 1, operand ? operand->name : "");
        if (operand && !any)
            first = before = *operand;
        any = any || operand;
    }
    fresh_name(m, name);
    wire_text(&node, 3, name);
    wire_text(&node, 4, op->name);
    if (op->domain[0])
        wire_text(&node, 7, op->domain);
    set_attributes(m, &node, op);
    if (control && strcmp(op->name, "If") == 0) {
        onnx_set_graph(&node, "then_branch", make_body(m, &m->next_name, op, operands, outputs));
        onnx_set_graph(&node, "else_branch", make_body(m, &m->next_name, op, operands, outputs));
    } else if (control) {
        if (strcmp(op->name, "Scan") == 0)
            onnx_set_int(&node, "num_scan_inputs", 1 + fuzz_below(m->tape, 2));
        onnx_set_graph(&node, "body", make_body(m, &m->next_name, op, operands, outputs));
    }
    make_outputs(m, &node, op, any ? &first : NULL, outputs);
    wire_message(graph, GRAPH_NODE, node);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void put_output(wire *graph, const char *name)
{
    wire value = {0};
    wire_text(&value, 1, name);
    wire_message(graph, GRAPH_OUTPUT, value);
}

/* Type and shape are declared, or left to whoever calls the body. */
static void put_body_input(maker *m, wire *graph, const guess *value)
{
    if (fuzz_chance(m->tape, 128))
        wire_message(graph, GRAPH_INPUT,
                     onnx_value(value->name, value->dtype, (int)value->rank, value->dims));
    else {
        wire info = {0};
        wire_text(&info, 1, value->name);
        wire_message(graph, GRAPH_INPUT, info);
    }
}

static wire make_body(const maker *outer, uint32_t *inout_next_name, const gt_op *op, uint32_t operands,
                      uint32_t outputs)
{
    maker m = *outer;
    wire graph = {0};
    m.depth++;
    m.next_name = *inout_next_name;
    wire_text(&graph, GRAPH_NAME, "body");
    bool branch = strcmp(op->name, "If") == 0, loop = strcmp(op->name, "Loop") == 0;
    uint32_t first_input = m.value_count;
    for (uint32_t k = 0; !branch && k < operands; k++) {
        guess value = {.dtype = GANTRY_INT64};
        if (loop && k < 2)
            value.dtype = k == 0 ? GANTRY_INT64 : GANTRY_BOOL;
        else if (outer->value_count)
            value = outer->values[fuzz_byte(m.tape) % outer->value_count];
        fresh_name(&m, value.name);
        put_body_input(&m, &graph, &value);
        add_value(&m, &value);
    }
    uint32_t nodes = fuzz_below(m.tape, MAX_BODY_NODES + 1);
    for (uint32_t k = 0; k < nodes && !fuzz_ended(m.tape); k++)
        make_node(&m, &graph);
    if (loop)
        put_output(&graph, first_input + 1 < m.value_count ? m.values[first_input + 1].name : "missing");
    for (uint32_t k = 0; k < outputs && m.value_count; k++)
        put_output(&graph, m.values[m.value_count - 1 - fuzz_byte(m.tape) % m.value_count].name);
    *inout_next_name = m.next_name;
    return graph;
}

static void make_inputs(maker *m, wire *graph)
{
    m->model->input_count = 1 + fuzz_below(m->tape, 4);
    for (uint32_t k = 0; k < m->model->input_count; k++) {
        fuzz_input *input = &m->model->inputs[k];
        guess value = {.dtype = any_type(m->tape)};
        fresh_name(m, value.name);
        choose_shape(m, &value, true);
        input->dtype = value.dtype;
        input->rank = value.rank;
        memcpy(input->dims, value.dims, sizeof input->dims);
        wire_message(graph, GRAPH_INPUT, onnx_value(value.name, value.dtype, (int)value.rank, value.dims));
        add_value(m, &value);
    }
}

void fuzz_model_make(fuzz_tape *tape, fuzz_model *out_model)
{
    *out_model = (fuzz_model){0};
    maker m = {.tape = tape, .model = out_model};
    wire graph = {0};
    uint8_t opset = fuzz_byte(tape);
    wire_text(&graph, GRAPH_NAME, "fuzz");
    make_inputs(&m, &graph);
    uint32_t first = m.value_count, nodes = 1 + fuzz_below(tape, MAX_NODES);
    for (uint32_t k = 0; k < nodes && (k == 0 || !fuzz_ended(tape)); k++)
        make_node(&m, &graph);
    for (uint32_t k = first; k < m.value_count; k++)
        if (k + 1 == m.value_count || !fuzz_chance(tape, 60))
            put_output(&graph, m.values[k].name);
    wire_int(&out_model->bytes, 1, 10);
    wire_message(&out_model->bytes, 7, graph);
    onnx_import(&out_model->bytes, 8, "", opset < 200 ? 13 + opset % 16 : 1 + opset % 28);
    onnx_import(&out_model->bytes, 8, "com.microsoft", 1);
}
