/* The pre-scan: walks the wire format once without recursion, checks depth, counts and lengths, and writes
 * the skeleton.
 *
 * protobuf-c recurses without a limit, copies every weight, and keeps every unknown field; so it gets a copy
 * from which those are gone. Messages in the skeleton have their length in five bytes, which is written when
 * their end is known:
 *
 *     file      | 0a 90 4e  op_type ... | raw_data (10,000 bytes) | name |
 *     skeleton  | 0a 8c 80 80 80 00  op_type ... | name | record = 17 |
 */
#include "onnx_scan.h"

#include "onnx.pb-c.h"

/* What the skeleton may cost: with it a model of some million nodes can be read, and a hostile file of a few
 * megabytes cannot take a machine's memory. */
#define MAX_UNPACKED_BYTES ((uint64_t)2 << 30)
#define MAX_SKELETON_BYTES ((uint64_t)1 << 30)
#define LENGTH_BYTES 5u /* as many as protobuf-c reads */

typedef enum message_kind {
    MODEL,
    GRAPH,
    NODE,
    ATTRIBUTE,
    TENSOR,
    SPARSE,
    VALUE,
    TYPE,
    TENSOR_TYPE,
    SHAPE,
    DIMENSION,
    SEQUENCE_TYPE,
    MAP_TYPE,
    OPTIONAL_TYPE,
    OPAQUE_TYPE,
    ENTRY,
    OPSET,
    FUNCTION,
    MESSAGE_COUNT
} message_kind;

typedef enum field_kind {
    DROPPED, /* not in the skeleton */
    VARINT,
    FIXED32,
    BYTES,
    VARINTS, /* repeated, packed or not */
    FLOATS,
    ONE, /* one message */
    MANY,
    NOTE, /* BYTES, and MANY, that are dropped unless notes are asked for */
    NOTES,
    RAW,  /* a tensor's raw_data: noted, not in the skeleton */
    TYPED /* a tensor's typed values: noted, not in the skeleton */
} field_kind;

typedef struct field_rule {
    uint8_t kind;    /* field_kind */
    uint8_t message; /* message_kind of ONE and MANY */
} field_rule;

#define FIELD_COUNT 32u

typedef struct message_rule {
    const char *name;
    size_t unpacked_bytes;
    field_rule fields[FIELD_COUNT];
} message_rule;

static const message_rule rules[MESSAGE_COUNT] = {
    [MODEL] = {"ModelProto",
               sizeof(GtOnnx__Model),
               {[1] = {VARINT, 0},
                [2] = {BYTES, 0},
                [3] = {BYTES, 0},
                [4] = {BYTES, 0},
                [5] = {VARINT, 0},
                [6] = {BYTES, 0},
                [7] = {ONE, GRAPH},
                [8] = {MANY, OPSET},
                [14] = {MANY, ENTRY},
                [25] = {MANY, FUNCTION}}},
    [GRAPH] = {"GraphProto",
               sizeof(GtOnnx__Graph),
               {[1] = {MANY, NODE},
                [2] = {BYTES, 0},
                [5] = {MANY, TENSOR},
                [11] = {MANY, VALUE},
                [12] = {MANY, VALUE},
                [13] = {MANY, VALUE},
                [15] = {MANY, SPARSE}}},
    [NODE] = {"NodeProto",
              sizeof(GtOnnx__Node),
              {[1] = {BYTES, 0},
               [2] = {BYTES, 0},
               [3] = {BYTES, 0},
               [4] = {BYTES, 0},
               [5] = {MANY, ATTRIBUTE},
               [6] = {NOTE, 0},
               [7] = {BYTES, 0},
               [8] = {BYTES, 0},
               [9] = {NOTES, ENTRY}}},
    [ATTRIBUTE] = {"AttributeProto",
                   sizeof(GtOnnx__Attribute),
                   {[1] = {BYTES, 0},
                    [2] = {FIXED32, 0},
                    [3] = {VARINT, 0},
                    [4] = {BYTES, 0},
                    [5] = {ONE, TENSOR},
                    [6] = {ONE, GRAPH},
                    [7] = {FLOATS, 0},
                    [8] = {VARINTS, 0},
                    [9] = {BYTES, 0},
                    [10] = {MANY, TENSOR},
                    [11] = {MANY, GRAPH},
                    [14] = {ONE, TYPE},
                    [15] = {MANY, TYPE},
                    [20] = {VARINT, 0},
                    [21] = {BYTES, 0},
                    [22] = {ONE, SPARSE},
                    [23] = {MANY, SPARSE}}},
    [TENSOR] = {"TensorProto",
                sizeof(GtOnnx__Tensor),
                {[1] = {VARINTS, 0},
                 [2] = {VARINT, 0},
                 [4] = {TYPED, 0},
                 [5] = {TYPED, 0},
                 [6] = {TYPED, 0},
                 [7] = {TYPED, 0},
                 [8] = {BYTES, 0},
                 [9] = {RAW, 0},
                 [10] = {TYPED, 0},
                 [11] = {TYPED, 0},
                 [13] = {MANY, ENTRY},
                 [14] = {VARINT, 0}}},
    [SPARSE] = {"SparseTensorProto",
                sizeof(GtOnnx__SparseTensor),
                {[1] = {ONE, TENSOR}, [2] = {ONE, TENSOR}, [3] = {VARINTS, 0}}},
    [VALUE] = {"ValueInfoProto", sizeof(GtOnnx__ValueInfo), {[1] = {BYTES, 0}, [2] = {ONE, TYPE}}},
    [TYPE] = {"TypeProto",
              sizeof(GtOnnx__Type),
              {[1] = {ONE, TENSOR_TYPE},
               [4] = {ONE, SEQUENCE_TYPE},
               [5] = {ONE, MAP_TYPE},
               [7] = {ONE, OPAQUE_TYPE},
               [8] = {ONE, TENSOR_TYPE},
               [9] = {ONE, OPTIONAL_TYPE}}},
    [TENSOR_TYPE] = {"TypeProto.Tensor", sizeof(GtOnnx__TensorType), {[1] = {VARINT, 0}, [2] = {ONE, SHAPE}}},
    [SHAPE] = {"TensorShapeProto", sizeof(GtOnnx__TensorShape), {[1] = {MANY, DIMENSION}}},
    [DIMENSION] = {"TensorShapeProto.Dimension",
                   sizeof(GtOnnx__Dimension),
                   {[1] = {VARINT, 0}, [2] = {BYTES, 0}}},
    [SEQUENCE_TYPE] = {"TypeProto.Sequence", sizeof(GtOnnx__SequenceType), {[1] = {ONE, TYPE}}},
    [MAP_TYPE] = {"TypeProto.Map", sizeof(GtOnnx__MapType), {[1] = {VARINT, 0}, [2] = {ONE, TYPE}}},
    [OPTIONAL_TYPE] = {"TypeProto.Optional", sizeof(GtOnnx__OptionalType), {[1] = {ONE, TYPE}}},
    [OPAQUE_TYPE] = {"TypeProto.Opaque", sizeof(GtOnnx__OpaqueType), {[1] = {BYTES, 0}, [2] = {BYTES, 0}}},
    [ENTRY] = {"StringStringEntryProto",
               sizeof(GtOnnx__StringStringEntry),
               {[1] = {BYTES, 0}, [2] = {BYTES, 0}}},
    [OPSET] = {"OperatorSetIdProto", sizeof(GtOnnx__OperatorSetId), {[1] = {BYTES, 0}, [2] = {VARINT, 0}}},
    [FUNCTION] = {"FunctionProto",
                  sizeof(GtOnnx__Function),
                  {[1] = {BYTES, 0},
                   [4] = {BYTES, 0},
                   [5] = {BYTES, 0},
                   [6] = {BYTES, 0},
                   [7] = {MANY, NODE},
                   [9] = {MANY, OPSET},
                   [10] = {BYTES, 0},
                   [11] = {MANY, ATTRIBUTE},
                   [12] = {MANY, VALUE},
                   [13] = {BYTES, 0}}},
};

/* Wire types a kind may have, as bits. */
static const uint8_t wire_types[] = {
    [DROPPED] = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5,
    [VARINT] = 1 << 0,
    [FIXED32] = 1 << 5,
    [BYTES] = 1 << 2,
    [VARINTS] = 1 << 0 | 1 << 2,
    [FLOATS] = 1 << 5 | 1 << 2,
    [ONE] = 1 << 2,
    [MANY] = 1 << 2,
    [RAW] = 1 << 2,
    [TYPED] = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5,
};

/* ---- the wire -------------------------------------------------------------------------------- */

const char *gt_onnx_next_varint(const uint8_t *bytes, uint64_t end, uint64_t *inout_at, uint64_t *out_value)
{
    uint64_t value = 0, at = *inout_at;
    for (uint32_t shift = 0; shift < 70; shift += 7) {
        if (at >= end)
            return "the file is truncated: a number (varint) goes past the end of its message";
        uint8_t byte = bytes[at++];
        value |= shift < 64 ? (uint64_t)(byte & 127) << shift : 0;
        if (!(byte & 128)) {
            *out_value = value;
            *inout_at = at;
            return NULL;
        }
    }
    return "a number (varint) has more than 10 bytes";
}

const char *gt_onnx_next_field(const uint8_t *bytes, uint64_t end, uint64_t *inout_at,
                               gt_onnx_field *out_field)
{
    uint64_t tag, size = 0, at = *inout_at;
    const char *wrong = gt_onnx_next_varint(bytes, end, &at, &tag);
    if (wrong)
        return wrong;
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return "a field number is out of range (not an ONNX model?)";
    *out_field = (gt_onnx_field){.at = *inout_at, .number = (uint32_t)(tag >> 3), .wire = tag & 7};
    switch (out_field->wire) {
    case 0:
        out_field->payload_begin = at;
        wrong = gt_onnx_next_varint(bytes, end, &at, &out_field->value);
        out_field->payload_end = *inout_at = at;
        return wrong;
    case 1:
        size = 8;
        break;
    case 2:
        wrong = gt_onnx_next_varint(bytes, end, &at, &size);
        break;
    case 5:
        size = 4;
        break;
    default:
        return "a field has a wire type that ONNX does not use, a group perhaps (not an ONNX model?)";
    }
    if (wrong)
        return wrong;
    if (size > end - at)
        return "the length of a field goes past the end of its message or of the file (truncated?)";
    if (out_field->wire != 2)
        memcpy(&out_field->value, bytes + at, size);
    out_field->payload_begin = at;
    out_field->payload_end = *inout_at = at + size;
    return NULL;
}

/* ---- the skeleton ---------------------------------------------------------------------------- */

typedef struct frame {
    uint8_t message;
    uint32_t seen; /* bit n: field n was there */
    uint32_t record;
    uint64_t begin, end;
    size_t length_at; /* where in the skeleton its length will be */
} frame;

typedef struct scanner {
    gt_onnx_scan *out;
    const char *what;
    const uint8_t *bytes;
    const gt_read_limits *limits;
    frame *frames;
    uint32_t depth, max_depth;
    gantry_error *err;
} scanner;

static gantry_status fail_at(const scanner *s, uint64_t at, const char *wrong)
{
    const char *message = s->depth ? rules[s->frames[s->depth - 1].message].name : "ModelProto";
    return gt_fail(s->err, GANTRY_MODEL_PARSE, GANTRY_STAGE_LOAD, NULL,
                   "parsing '%.500s' failed at byte %llu, in a %s: %s", s->what, (unsigned long long)at,
                   message, wrong);
}

static gantry_status append(scanner *s, const uint8_t *bytes, size_t count)
{
    gt_onnx_scan *out = s->out;
    if (count > MAX_SKELETON_BYTES - out->skeleton_bytes)
        return gt_fail(s->err, GANTRY_RESOURCE, GANTRY_STAGE_LOAD, NULL,
                       "the structure of '%.500s' (without tensor data) has more than %llu bytes", s->what,
                       (unsigned long long)MAX_SKELETON_BYTES);
    if (out->skeleton_bytes + count > out->skeleton_capacity) {
        size_t capacity = 2 * (out->skeleton_bytes + count) + 4096;
        uint8_t *bigger = gt_resize(out->allocator, out->skeleton, out->skeleton_capacity, capacity);
        if (!bigger)
            return gt_out_of_memory(s->err, GANTRY_STAGE_LOAD);
        out->skeleton = bigger;
        out->skeleton_capacity = capacity;
    }
    if (count)
        memcpy(out->skeleton + out->skeleton_bytes, bytes, count);
    out->skeleton_bytes += count;
    return GANTRY_OK;
}

static gantry_status append_number(scanner *s, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;
    for (; value > 127; value >>= 7)
        bytes[count++] = (uint8_t)(value | 128);
    bytes[count++] = (uint8_t)value;
    return append(s, bytes, count);
}

static gantry_status charge(scanner *s, uint64_t bytes)
{
    s->out->unpacked_bytes += bytes;
    if (s->out->unpacked_bytes <= MAX_UNPACKED_BYTES)
        return GANTRY_OK;
    return gt_fail(s->err, GANTRY_RESOURCE, GANTRY_STAGE_LOAD, NULL,
                   "the structure of '%.500s' would take more than the limit of %llu bytes of memory",
                   s->what, (unsigned long long)MAX_UNPACKED_BYTES);
}

/* ---- messages -------------------------------------------------------------------------------- */

static gantry_status open_message(scanner *s, message_kind message, uint64_t begin, uint64_t end)
{
    static const uint8_t no_length[LENGTH_BYTES];
    if (s->depth == s->max_depth) {
        char text[160];
        snprintf(text, sizeof text, "messages are nested more than %u deep (the limit is %u nested graphs)",
                 s->max_depth, s->limits->max_depth);
        return fail_at(s, begin, text);
    }
    frame *f = &s->frames[s->depth++];
    *f =
        (frame){.message = (uint8_t)message, .begin = begin, .end = end, .length_at = s->out->skeleton_bytes};
    if (message != MODEL)
        GT_TRY(append(s, no_length, LENGTH_BYTES));
    if (message == NODE && ++s->out->node_count > s->limits->max_nodes)
        return gt_fail(s->err, GANTRY_RESOURCE, GANTRY_STAGE_LOAD, NULL,
                       "'%.500s' has more nodes than the limit of %u", s->what, s->limits->max_nodes);
    if (message == TENSOR) {
        f->record = s->out->records.count;
        gt_onnx_record record = {.begin = begin, .end = end};
        if (!gt_vec_push(s->out->allocator, &s->out->records, record))
            return gt_out_of_memory(s->err, GANTRY_STAGE_LOAD);
    }
    /* The struct, its pointer in the parent's array, and rounding by the arena. */
    return charge(s, rules[message].unpacked_bytes + 32);
}

static gantry_status close_message(scanner *s)
{
    frame *f = &s->frames[s->depth - 1];
    if (f->message == NODE && !(f->seen & 1u << 4))
        return fail_at(s, f->begin, "a node has no op_type");
    if (f->message == TENSOR) {
        GT_TRY(append_number(s, 1000u << 3));
        GT_TRY(append_number(s, f->record));
    }
    if (f->message != MODEL) {
        size_t length = s->out->skeleton_bytes - f->length_at - LENGTH_BYTES;
        for (uint32_t k = 0; k < LENGTH_BYTES; k++, length >>= 7)
            s->out->skeleton[f->length_at + k] = (uint8_t)((length & 127) | (k + 1 < LENGTH_BYTES ? 128 : 0));
    }
    s->depth--;
    return GANTRY_OK;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static gantry_status copy_field(scanner *s, field_kind kind, const gt_onnx_field *field)
{
    uint64_t bytes = field->payload_end - field->payload_begin;
    if (kind == BYTES)
        GT_TRY(charge(s, sizeof(ProtobufCBinaryData) + bytes + 16));
    if (kind == VARINTS)
        GT_TRY(charge(s, sizeof(int64_t) * (field->wire == 2 ? bytes : 1)));
    if (kind == FLOATS)
        GT_TRY(charge(s, bytes));
    return append(s, s->bytes + field->at, field->payload_end - field->at);
}

static void note_data(scanner *s, const frame *f, field_kind kind, const gt_onnx_field *field)
{
    gt_onnx_record *record = &s->out->records.data[f->record];
    if (kind == TYPED) {
        record->typed |= 1u << field->number;
        return;
    }
    record->has_raw = true;
    record->raw_offset = field->payload_begin;
    record->raw_bytes = field->payload_end - field->payload_begin;
}

static gantry_status open_field(scanner *s, message_kind message, const gt_onnx_field *field,
                                uint64_t *out_at)
{
    GT_TRY(append_number(s, (uint64_t)field->number << 3 | 2));
    *out_at = field->payload_begin;
    return open_message(s, message, field->payload_begin, field->payload_end);
}

static field_rule rule_of(const scanner *s, uint8_t message, uint32_t number)
{
    field_rule rule = number < FIELD_COUNT ? rules[message].fields[number] : (field_rule){0};
    if (rule.kind == NOTE)
        rule.kind = s->limits->keep_notes ? BYTES : DROPPED;
    else if (rule.kind == NOTES)
        rule.kind = s->limits->keep_notes ? MANY : DROPPED;
    return rule;
}

static gantry_status scan_field(scanner *s, uint64_t *inout_at)
{
    frame *f = &s->frames[s->depth - 1];
    uint64_t at = *inout_at;
    gt_onnx_field field;
    const char *wrong = gt_onnx_next_field(s->bytes, f->end, inout_at, &field);
    if (wrong)
        return fail_at(s, at, wrong);
    field_rule rule = rule_of(s, f->message, field.number);
    if (!(wire_types[rule.kind] >> field.wire & 1)) {
        char text[100];
        snprintf(text, sizeof text, "field %u has wire type %u, which is not its type", field.number,
                 field.wire);
        return fail_at(s, at, text);
    }
    bool again = field.number < FIELD_COUNT && (f->seen & 1u << field.number);
    f->seen |= field.number < FIELD_COUNT ? 1u << field.number : 0;
    switch ((field_kind)rule.kind) {
    case DROPPED:
        return GANTRY_OK;
    case RAW:
    case TYPED:
        note_data(s, f, rule.kind, &field);
        return GANTRY_OK;
    case ONE:
        if (again)
            return fail_at(s, at, "a message that can be there only once is there twice");
        return open_field(s, rule.message, &field, inout_at);
    case MANY:
        return open_field(s, rule.message, &field, inout_at);
    default:
        return copy_field(s, rule.kind, &field);
    }
}

static gantry_status scan_model(scanner *s, uint64_t size)
{
    uint64_t at = 0;
    GT_TRY(open_message(s, MODEL, 0, size));
    while (s->depth) {
        if (at == s->frames[s->depth - 1].end)
            GT_TRY(close_message(s));
        else
            GT_TRY(scan_field(s, &at));
    }
    return GANTRY_OK;
}

gantry_status gt_onnx_scan_run(gt_allocator *allocator, const char *what, const uint8_t *bytes, uint64_t size,
                               const gt_read_limits *limits, gt_onnx_scan *out_scan, gantry_error *err)
{
    *out_scan = (gt_onnx_scan){.allocator = allocator};
    /* A nested graph is three messages deeper (node, attribute, graph); a few more for what lies in the last
     * one. */
    scanner s = {out_scan, what, bytes, limits, .max_depth = 3 * limits->max_depth + 16, .err = err};
    if (size == 0)
        return gt_fail(err, GANTRY_MODEL_PARSE, GANTRY_STAGE_LOAD, NULL,
                       "the model '%.500s' is empty (0 bytes)", what);
    s.frames = GT_NEW_ARRAY(allocator, frame, s.max_depth);
    gantry_status status = s.frames ? scan_model(&s, size) : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    gt_free(allocator, s.frames);
    if (status != GANTRY_OK)
        gt_onnx_scan_free(out_scan);
    return status;
}

void gt_onnx_scan_free(gt_onnx_scan *scan)
{
    if (!scan->allocator)
        return;
    gt_free(scan->allocator, scan->skeleton);
    gt_vec_free(scan->allocator, &scan->records);
    *scan = (gt_onnx_scan){0};
}
