/* ONNX TensorProto files: one message in protobuf's wire format, read and written field by field.
 *
 * A hand reader because it is one flat message: no schema, no copy of the data, and broken input is a status.
 */
#include "io.h"

#include <stdlib.h>

/* Field numbers of TensorProto. */
enum {
    FIELD_DIMS = 1,
    FIELD_DATA_TYPE = 2,
    FIELD_SEGMENT = 3,
    FIELD_FLOAT_DATA = 4,
    FIELD_INT32_DATA = 5,
    FIELD_STRING_DATA = 6,
    FIELD_INT64_DATA = 7,
    FIELD_NAME = 8,
    FIELD_RAW_DATA = 9,
    FIELD_DOUBLE_DATA = 10,
    FIELD_UINT64_DATA = 11,
    FIELD_EXTERNAL_DATA = 13,
    FIELD_DATA_LOCATION = 14
};
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* Which typed field holds an element type's values, how many of them make one element, and how many bytes of
 * the tensor one value fills. Types below 8 bits stand a packed byte a value. */
static const struct {
    uint8_t field, bytes;
} typed[GANTRY_DTYPE_COUNT] = {
    [GANTRY_FLOAT32] = {FIELD_FLOAT_DATA, 4},        [GANTRY_COMPLEX64] = {FIELD_FLOAT_DATA, 4},
    [GANTRY_FLOAT64] = {FIELD_DOUBLE_DATA, 8},       [GANTRY_COMPLEX128] = {FIELD_DOUBLE_DATA, 8},
    [GANTRY_INT64] = {FIELD_INT64_DATA, 8},          [GANTRY_UINT64] = {FIELD_UINT64_DATA, 8},
    [GANTRY_UINT32] = {FIELD_UINT64_DATA, 4},        [GANTRY_INT32] = {FIELD_INT32_DATA, 4},
    [GANTRY_INT16] = {FIELD_INT32_DATA, 2},          [GANTRY_UINT16] = {FIELD_INT32_DATA, 2},
    [GANTRY_FLOAT16] = {FIELD_INT32_DATA, 2},        [GANTRY_BFLOAT16] = {FIELD_INT32_DATA, 2},
    [GANTRY_INT8] = {FIELD_INT32_DATA, 1},           [GANTRY_UINT8] = {FIELD_INT32_DATA, 1},
    [GANTRY_BOOL] = {FIELD_INT32_DATA, 1},           [GANTRY_FLOAT8E4M3FN] = {FIELD_INT32_DATA, 1},
    [GANTRY_FLOAT8E4M3FNUZ] = {FIELD_INT32_DATA, 1}, [GANTRY_FLOAT8E5M2] = {FIELD_INT32_DATA, 1},
    [GANTRY_FLOAT8E5M2FNUZ] = {FIELD_INT32_DATA, 1}, [GANTRY_FLOAT8E8M0] = {FIELD_INT32_DATA, 1},
    [GANTRY_UINT4] = {FIELD_INT32_DATA, 1},          [GANTRY_INT4] = {FIELD_INT32_DATA, 1},
    [GANTRY_FLOAT4E2M1] = {FIELD_INT32_DATA, 1},     [GANTRY_UINT2] = {FIELD_INT32_DATA, 1},
    [GANTRY_INT2] = {FIELD_INT32_DATA, 1},
};

/* A message that is read, and what it held. Values of typed fields are counted first and stored in a second
 * pass, when element type and shape are known. */
typedef struct pb_reader {
    const char *path;
    const unsigned char *at, *end;
    gantry_error *err;

    int64_t dims[GANTRY_MAX_RANK];
    uint32_t rank;
    uint64_t data_type;
    io_bytes name, raw;
    bool has_raw;
    unsigned typed_fields; /* bit of each typed field that holds values */

    unsigned char *out; /* second pass: where the next value goes; NULL in the first */
    size_t left;        /* bytes behind out */
    uint64_t extra;     /* values that found no room */
} pb_reader;

/* One field: its number, wire type, and its value or bytes. */
typedef struct pb_field {
    uint32_t number, wire;
    uint64_t value;
    io_bytes bytes;
} pb_field;

static gantry_status broken(const pb_reader *r, const char *what)
{
    return io_fail(r->err, GANTRY_DATA, r->path, "is no well-formed TensorProto: %s", what);
}

static bool read_varint(const unsigned char **inout_at, const unsigned char *end, uint64_t *out_value)
{
    uint64_t value = 0;
    for (unsigned shift = 0; *inout_at < end && shift < 70; shift += 7) {
        unsigned char byte = *(*inout_at)++;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (byte < 0x80) {
            *out_value = value;
            return true;
        }
    }
    return false;
}

static gantry_status read_field(pb_reader *r, pb_field *out_field)
{
    uint64_t tag, length;
    if (!read_varint(&r->at, r->end, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return broken(r, "a field number is broken");
    *out_field = (pb_field){.number = (uint32_t)(tag >> 3), .wire = tag & 7};
    switch (out_field->wire) {
    case WIRE_VARINT:
        return read_varint(&r->at, r->end, &out_field->value) ? GANTRY_OK
                                                              : broken(r, "a varint does not end");
    case WIRE_32:
    case WIRE_64:
        length = out_field->wire == WIRE_32 ? 4 : 8;
        break;
    case WIRE_BYTES:
        if (!read_varint(&r->at, r->end, &length))
            return broken(r, "a length does not end");
        break;
    default:
        return broken(r, "a field has a wire type that protobuf no longer has");
    }
    if (length > (uint64_t)(r->end - r->at))
        return broken(r, "a field reaches past the end of the file");
    out_field->bytes = (io_bytes){(unsigned char *)(uintptr_t)r->at, length};
    if (out_field->wire != WIRE_BYTES)
        out_field->value = io_le(r->at, (int)length);
    r->at += length;
    return GANTRY_OK;
}

/* Values of a repeated number, packed or one a field, each handed to take. */
static gantry_status each_value(pb_reader *r, const pb_field *field, uint32_t wire,
                                gantry_status (*take)(pb_reader *r, uint64_t value))
{
    if (field->wire == wire)
        return take(r, field->value);
    if (field->wire != WIRE_BYTES)
        return broken(r, "a number has the wrong wire type");
    const unsigned char *at = field->bytes.data, *end = at + field->bytes.size;
    int width = wire == WIRE_32 ? 4 : wire == WIRE_64 ? 8 : 0;
    if (width && field->bytes.size % (size_t)width)
        return broken(r, "packed numbers do not fill their field");
    while (at < end) {
        uint64_t value;
        if (width) {
            value = io_le(at, width);
            at += width;
        } else if (!read_varint(&at, end, &value)) {
            return broken(r, "a varint does not end");
        }
        GT_TRY(take(r, value));
    }
    return GANTRY_OK;
}

static gantry_status take_dim(pb_reader *r, uint64_t value)
{
    if (r->rank == GANTRY_MAX_RANK)
        return io_fail(r->err, GANTRY_DATA, r->path, "its rank is above the limit %d", GANTRY_MAX_RANK);
    r->dims[r->rank++] = (int64_t)value;
    return GANTRY_OK;
}

static gantry_status take_value(pb_reader *r, uint64_t value)
{
    size_t bytes = typed[r->data_type].bytes;
    if (r->left < bytes) {
        r->extra++;
        return GANTRY_OK;
    }
    io_put_le(r->out, value, (int)bytes);
    r->out += bytes;
    r->left -= bytes;
    return GANTRY_OK;
}

static uint32_t wire_of(uint32_t typed_field)
{
    return typed_field == FIELD_FLOAT_DATA    ? WIRE_32
           : typed_field == FIELD_DOUBLE_DATA ? WIRE_64
                                              : WIRE_VARINT;
}

static bool is_typed(uint32_t field)
{
    return (field >= FIELD_FLOAT_DATA && field <= FIELD_INT64_DATA && field != FIELD_STRING_DATA) ||
           field == FIELD_DOUBLE_DATA || field == FIELD_UINT64_DATA;
}

/* First pass: everything but the values of typed fields. */
static gantry_status take_field(pb_reader *r, const pb_field *field)
{
    switch (field->number) {
    case FIELD_DIMS:
        return each_value(r, field, WIRE_VARINT, take_dim);
    case FIELD_DATA_TYPE:
        r->data_type = field->value;
        return GANTRY_OK;
    case FIELD_NAME:
        r->name = field->bytes;
        return GANTRY_OK;
    case FIELD_RAW_DATA:
        r->raw = field->bytes;
        r->has_raw = true;
        return GANTRY_OK;
    case FIELD_SEGMENT:
        return io_fail(r->err, GANTRY_UNSUPPORTED, r->path,
                       "is one segment of a tensor; only whole ones are read");
    case FIELD_EXTERNAL_DATA:
    case FIELD_DATA_LOCATION:
        if (field->number == FIELD_DATA_LOCATION && field->value == 0)
            return GANTRY_OK;
        return io_fail(r->err, GANTRY_UNSUPPORTED, r->path,
                       "has its data in another file; only data inside is read");
    default:
        if (is_typed(field->number) && (field->wire != WIRE_BYTES || field->bytes.size))
            r->typed_fields |= 1u << field->number;
        return GANTRY_OK;
    }
}

static gantry_status check_type(const pb_reader *r)
{
    if (r->data_type == GANTRY_STRING)
        return io_fail(r->err, GANTRY_UNSUPPORTED, r->path, "holds text; only numbers are read");
    if (r->data_type >= GANTRY_DTYPE_COUNT || !typed[r->data_type].field)
        return io_fail(r->err, GANTRY_DATA, r->path, "has no known element type (data_type %llu)",
                       (unsigned long long)r->data_type);
    unsigned right = r->has_raw ? 0 : 1u << typed[r->data_type].field;
    if (r->typed_fields & ~right)
        return broken(r, r->has_raw ? "raw_data and a typed field at once"
                                    : "its values are in the field of another element type");
    return GANTRY_OK;
}

/* Bytes that the dims ask for; UINT64_MAX when that overflows. */
static uint64_t bytes_wanted(const pb_reader *r)
{
    uint64_t count = 1, bits = gantry_dtype_bits((gantry_dtype)r->data_type);
    bool overflow = false;
    for (uint32_t k = 0; k < r->rank; k++)
        if (r->dims[k] == 0)
            return 0;
    for (uint32_t k = 0; k < r->rank; k++)
        overflow |= r->dims[k] < 0 || __builtin_mul_overflow(count, (uint64_t)r->dims[k], &count);
    return overflow || count > UINT64_MAX / 256 ? UINT64_MAX : (count * bits + 7) / 8;
}

/* A tensor never needs more bytes than eight a byte of its file: checked before anything is allocated. */
static gantry_status check_size(const pb_reader *r, size_t file_bytes)
{
    uint64_t wanted = bytes_wanted(r);
    for (uint32_t k = 0; k < r->rank; k++)
        if (r->dims[k] < 0)
            return io_fail(r->err, GANTRY_DATA, r->path, "extent %lld of axis %u is negative",
                           (long long)r->dims[k], k);
    if (r->has_raw && r->raw.size != wanted)
        return io_fail(r->err, GANTRY_DATA, r->path, "raw_data has %zu bytes, its shape and type need %llu",
                       r->raw.size, (unsigned long long)wanted);
    if (wanted / 8 > file_bytes)
        return io_fail(r->err, GANTRY_DATA, r->path, "its shape needs %llu bytes, the file has %zu",
                       (unsigned long long)wanted, file_bytes);
    return GANTRY_OK;
}

static gantry_status read_values(pb_reader *r, io_bytes file, io_tensor *tensor)
{
    uint32_t number = typed[r->data_type].field;
    r->out = tensor->data;
    r->left = tensor->size_bytes;
    r->at = file.data;
    while (r->at < r->end) {
        pb_field field;
        GT_TRY(read_field(r, &field));
        if (field.number == number)
            GT_TRY(each_value(r, &field, wire_of(number), take_value));
    }
    if (r->left || r->extra)
        return io_fail(r->err, GANTRY_DATA, r->path, "%s values than its shape needs",
                       r->left ? "fewer" : "more");
    return GANTRY_OK;
}

static gantry_status parse(pb_reader *r, io_bytes file, io_tensor *out_tensor)
{
    while (r->at < r->end) {
        pb_field field;
        GT_TRY(read_field(r, &field));
        GT_TRY(take_field(r, &field));
    }
    GT_TRY(check_type(r));
    GT_TRY(check_size(r, file.size));
    char *name = strndup(r->name.data ? (const char *)r->name.data : "", r->name.size);
    if (!name)
        return gt_out_of_memory(r->err, GANTRY_STAGE_RUN);
    gantry_status status =
        io_tensor_create(name, (gantry_dtype)r->data_type, r->rank, r->dims, out_tensor, r->err);
    free(name);
    if (status == GANTRY_OK && r->has_raw && r->raw.size)
        memcpy(out_tensor->data, r->raw.data, r->raw.size);
    else if (status == GANTRY_OK)
        status = read_values(r, file, out_tensor);
    if (status != GANTRY_OK)
        io_tensor_free(out_tensor);
    return status;
}

gantry_status io_pb_read(const char *path, io_tensor *out_tensor, gantry_error *err)
{
    io_bytes file;
    *out_tensor = (io_tensor){0};
    GT_TRY(io_file_read(path, &file, err));
    pb_reader reader = {.path = path, .at = file.data, .end = file.data + file.size, .err = err};
    gantry_status status = parse(&reader, file, out_tensor);
    free(file.data);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

#define VARINT_BYTES 10u

static unsigned char *put_varint(unsigned char *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (unsigned char)(value | 0x80);
    *at++ = (unsigned char)value;
    return at;
}

static unsigned char *put_tag(unsigned char *at, uint32_t field, uint32_t wire)
{
    return put_varint(at, (uint64_t)field << 3 | wire);
}

gantry_status io_pb_write(const char *path, const io_tensor *tensor, gantry_error *err)
{
    if (tensor->dtype >= GANTRY_DTYPE_COUNT || !typed[tensor->dtype].field)
        return io_fail(err, GANTRY_UNSUPPORTED, path, "element type %s is not written",
                       gantry_dtype_text(tensor->dtype));
    size_t name_bytes = strlen(tensor->name);
    unsigned char *head = malloc((GANTRY_MAX_RANK + 4) * 2 * VARINT_BYTES + name_bytes);
    if (!head)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    unsigned char *at = head;
    for (uint32_t k = 0; k < tensor->rank; k++)
        at = put_varint(put_tag(at, FIELD_DIMS, WIRE_VARINT), (uint64_t)tensor->dims[k]);
    at = put_varint(put_tag(at, FIELD_DATA_TYPE, WIRE_VARINT), tensor->dtype);
    if (name_bytes) {
        at = put_varint(put_tag(at, FIELD_NAME, WIRE_BYTES), name_bytes);
        memcpy(at, tensor->name, name_bytes);
        at += name_bytes;
    }
    at = put_varint(put_tag(at, FIELD_RAW_DATA, WIRE_BYTES), tensor->size_bytes);
    io_bytes parts[] = {{head, (size_t)(at - head)}, {tensor->data, tensor->size_bytes}};
    gantry_status status = io_file_write(path, parts, 2, err);
    free(head);
    return status;
}
