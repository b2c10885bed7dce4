/* Reading tensors: raw data and external data stay where they are, typed fields are decoded, sparse ones made
 * dense. */
#include "onnx_read.h"

#define MAX_SPARSE_BYTES ((uint64_t)256 << 20) /* a sparse tensor of a few bytes may claim any dense size */

/* The typed field that holds the values of a type, and how. */
typedef struct typed_rule {
    uint8_t field;       /* number in TensorProto */
    uint8_t wire;        /* of one value: 0 varint, 1 eight bytes, 5 four bytes, 2 text */
    uint8_t width;       /* bytes one value becomes */
    uint8_t per_entry;   /* elements in one value: 2 for 4-bit types, 4 for 2-bit types */
    uint8_t per_element; /* values in one element: 2 for complex */
} typed_rule;

static const typed_rule typed_rules[GANTRY_DTYPE_COUNT] = {
    [GANTRY_FLOAT32] = {4, 5, 4, 1, 1},      [GANTRY_UINT8] = {5, 0, 1, 1, 1},
    [GANTRY_INT8] = {5, 0, 1, 1, 1},         [GANTRY_UINT16] = {5, 0, 2, 1, 1},
    [GANTRY_INT16] = {5, 0, 2, 1, 1},        [GANTRY_INT32] = {5, 0, 4, 1, 1},
    [GANTRY_INT64] = {7, 0, 8, 1, 1},        [GANTRY_STRING] = {6, 2, sizeof(char *), 1, 1},
    [GANTRY_BOOL] = {5, 0, 1, 1, 1},         [GANTRY_FLOAT16] = {5, 0, 2, 1, 1},
    [GANTRY_FLOAT64] = {10, 1, 8, 1, 1},     [GANTRY_UINT32] = {11, 0, 4, 1, 1},
    [GANTRY_UINT64] = {11, 0, 8, 1, 1},      [GANTRY_COMPLEX64] = {4, 5, 4, 1, 2},
    [GANTRY_COMPLEX128] = {10, 1, 8, 1, 2},  [GANTRY_BFLOAT16] = {5, 0, 2, 1, 1},
    [GANTRY_FLOAT8E4M3FN] = {5, 0, 1, 1, 1}, [GANTRY_FLOAT8E4M3FNUZ] = {5, 0, 1, 1, 1},
    [GANTRY_FLOAT8E5M2] = {5, 0, 1, 1, 1},   [GANTRY_FLOAT8E5M2FNUZ] = {5, 0, 1, 1, 1},
    [GANTRY_UINT4] = {5, 0, 1, 2, 1},        [GANTRY_INT4] = {5, 0, 1, 2, 1},
    [GANTRY_FLOAT4E2M1] = {5, 0, 1, 2, 1},   [GANTRY_FLOAT8E8M0] = {5, 0, 1, 1, 1},
    [GANTRY_UINT2] = {5, 0, 1, 4, 1},        [GANTRY_INT2] = {5, 0, 1, 4, 1},
};

static const char *field_name(uint32_t number)
{
    static const char *const names[] = {[4] = "float_data", [5] = "int32_data",   [6] = "string_data",
                                        [7] = "int64_data", [10] = "double_data", [11] = "uint64_data"};
    return number < sizeof names / sizeof *names && names[number] ? names[number] : "no field";
}

/* ---- type and shape -------------------------------------------------------------------------- */

/* "float32[2,3]", for errors; in temp. */
static const char *show_shape(gt_reader *reader, gantry_dtype dtype, const int64_t *dims, size_t rank)
{
    size_t room = 64 + 24 * (rank < 32 ? rank : 32);
    char *text = gt_arena_alloc(&reader->temp, room);
    if (!text)
        return "(out of memory)";
    size_t used = (size_t)snprintf(text, room, "%s[", gantry_dtype_text(dtype));
    for (size_t k = 0; k < rank && k < 32; k++)
        used += (size_t)snprintf(text + used, room - used, "%s%lld", k ? "," : "", (long long)dims[k]);
    snprintf(text + used, room - used, "%s]", rank > 32 ? ",..." : "");
    return text;
}

static gantry_status check_shape(gt_reader *reader, const char *name, const gt_constant *c,
                                 uint64_t *out_count)
{
    *out_count = 1;
    bool too_large = false;
    for (uint32_t k = 0; k < c->rank; k++) {
        if (c->dims[k] < 0)
            return GT_READ_FAIL(reader, GANTRY_MODEL_SHAPE, NULL, "tensor '%.500s' has dimension %lld in %s",
                                name, (long long)c->dims[k], show_shape(reader, c->dtype, c->dims, c->rank));
        too_large |= __builtin_mul_overflow(*out_count, (uint64_t)c->dims[k], out_count);
    }
    /* Eight bits more than the widest type has bytes: sizes stay far from wrapping. */
    if (!too_large && *out_count <= (SIZE_MAX >> 8))
        return GANTRY_OK;
    return GT_READ_FAIL(reader, GANTRY_MODEL_SHAPE, NULL,
                        "tensor '%.500s' (%s) is too large: its size overflows", name,
                        show_shape(reader, c->dtype, c->dims, c->rank));
}

static uint64_t entry_count(gantry_dtype dtype, uint64_t count)
{
    const typed_rule *rule = &typed_rules[dtype];
    return (count / rule->per_entry + (count % rule->per_entry != 0)) * rule->per_element;
}

/* Fills dtype, dims and bytes. dims come from the message, or from a sparse tensor. */
static gantry_status read_shape(gt_reader *reader, const GtOnnx__Tensor *proto, const int64_t *dims,
                                size_t rank, const char *name, gt_constant *out, uint64_t *out_count)
{
    int32_t type = proto->data_type;
    if (type <= 0 || type >= GANTRY_DTYPE_COUNT)
        return GT_READ_FAIL(reader, GANTRY_MODEL_TYPE, NULL,
                            "tensor '%.500s' has element type %d, which is %s", name, type,
                            type == 0 ? "undefined" : "not a type Gantry knows");
    if (rank > GANTRY_MAX_RANK)
        return GT_READ_FAIL(reader, GANTRY_MODEL_SHAPE, NULL,
                            "tensor '%.500s' has rank %zu; at most %d dimensions are supported", name, rank,
                            GANTRY_MAX_RANK);
    out->dtype = (gantry_dtype)type;
    out->rank = (uint32_t)rank;
    out->dims = gt_arena_copy(&reader->model->arena, dims, rank * sizeof *dims);
    if (!out->dims)
        return gt_read_no_memory(reader);
    GT_TRY(check_shape(reader, name, out, out_count));
    out->bytes = (size_t)(entry_count(out->dtype, *out_count) * typed_rules[type].width);
    return GANTRY_OK;
}

/* ---- typed values ---------------------------------------------------------------------------- */

typedef struct decoder {
    gt_reader *reader;
    const typed_rule *rule;
    gantry_dtype dtype;
    const uint8_t *bytes; /* of the file */
    uint8_t *to;
    uint64_t room, count; /* values there is place for, values seen */
    uint64_t unfit;       /* a value that its type cannot hold */
    bool has_unfit, no_memory;
} decoder;

static void put_number(decoder *d, uint64_t value)
{
    if (d->count++ >= d->room)
        return;
    uint32_t bits = d->rule->width * 8u;
    uint64_t high = bits < 64 ? value >> bits : 0, all = bits < 64 ? UINT64_MAX >> bits : 0;
    bool negative = bits < 64 && (value >> (bits - 1) & 1);
    if (high && !(high == all && negative)) {
        d->unfit = value;
        d->has_unfit = true;
    }
    if (d->dtype == GANTRY_BOOL)
        value = value != 0;
    memcpy(d->to + (d->count - 1) * d->rule->width, &value, d->rule->width);
}

static void put_text(decoder *d, const gt_onnx_field *field)
{
    if (d->count++ >= d->room)
        return;
    const char *text = gt_arena_text(&d->reader->model->arena, (const char *)d->bytes + field->payload_begin,
                                     field->payload_end - field->payload_begin);
    d->no_memory |= !text;
    memcpy(d->to + (d->count - 1) * sizeof text, &text, sizeof text);
}

/* Many values in one field. */
static const char *put_packed(decoder *d, const gt_onnx_field *field)
{
    uint64_t at = field->payload_begin, bytes = field->payload_end - at, width = d->rule->width;
    if (d->rule->wire == 0) {
        while (at < field->payload_end) {
            uint64_t value;
            const char *wrong = gt_onnx_next_varint(d->bytes, field->payload_end, &at, &value);
            if (wrong)
                return wrong;
            put_number(d, value);
        }
        return NULL;
    }
    if (bytes % width)
        return "a list of numbers ends within a number";
    uint64_t fits = d->count < d->room ? d->room - d->count : 0;
    uint64_t taken = bytes / width < fits ? bytes / width : fits;
    if (taken)
        memcpy(d->to + d->count * width, d->bytes + at, taken * width);
    d->count += bytes / width;
    return NULL;
}

static const char *put_field(decoder *d, const gt_onnx_field *field)
{
    if (d->rule->wire == 2)
        put_text(d, field);
    else if (field->wire == 2)
        return put_packed(d, field);
    else
        put_number(d, field->value);
    return NULL;
}

static gantry_status decode(decoder *d, const gt_onnx_record *record, const char *name)
{
    uint64_t at = record->begin;
    while (at < record->end) {
        gt_onnx_field field;
        uint64_t begin = at;
        const char *wrong = gt_onnx_next_field(d->bytes, record->end, &at, &field);
        if (!wrong && field.number == d->rule->field) {
            if (field.wire != d->rule->wire && field.wire != 2)
                wrong = "its values have the wrong wire type";
            else
                wrong = put_field(d, &field);
        }
        if (wrong)
            return GT_READ_FAIL(d->reader, GANTRY_MODEL_PARSE, NULL,
                                "parsing '%.500s' failed at byte %llu, in tensor '%.500s': %s",
                                d->reader->what, (unsigned long long)begin, name, wrong);
    }
    return d->no_memory ? gt_read_no_memory(d->reader) : GANTRY_OK;
}

static gantry_status fail_values(gt_reader *reader, const char *name, const gt_constant *c,
                                 const typed_rule *rule, uint64_t wanted, uint64_t found)
{
    return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                        "tensor '%.500s' (%s) needs %llu values in %s, but has %llu", name,
                        show_shape(reader, c->dtype, c->dims, c->rank), (unsigned long long)wanted,
                        field_name(rule->field), (unsigned long long)found);
}

static gantry_status read_typed(gt_reader *reader, const gt_onnx_record *record, const char *name,
                                uint64_t count, gt_constant *out)
{
    const typed_rule *rule = &typed_rules[out->dtype];
    uint64_t wanted = entry_count(out->dtype, count), message_bytes = record->end - record->begin;
    if (record->typed & ~(1u << rule->field))
        return GT_READ_FAIL(reader, GANTRY_MODEL_TYPE, NULL,
                            "tensor '%.500s' is %s, whose values belong in %s, but it has some in %s", name,
                            gantry_dtype_text(out->dtype), field_name(rule->field),
                            field_name((uint32_t)__builtin_ctz(record->typed & ~(1u << rule->field))));
    /* A value takes at least a byte: no memory is taken for what cannot be there. */
    if (wanted > message_bytes)
        return fail_values(reader, name, out, rule, wanted, record->typed ? message_bytes : 0);
    decoder d = {.reader = reader,
                 .rule = rule,
                 .dtype = out->dtype,
                 .bytes = reader->model->files.data[0].map,
                 .to = gt_arena_alloc(&reader->model->arena, out->bytes),
                 .room = wanted};
    if (!d.to)
        return gt_read_no_memory(reader);
    GT_TRY(decode(&d, record, name));
    if (d.count != wanted)
        return fail_values(reader, name, out, rule, wanted, d.count);
    if (d.has_unfit)
        return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                            "tensor '%.500s' has the value %lld, which %s cannot hold", name,
                            (long long)d.unfit, gantry_dtype_text(out->dtype));
    out->origin = GT_CONSTANT_MEMORY;
    out->data = d.to;
    return GANTRY_OK;
}

/* ---- raw and external ------------------------------------------------------------------------ */

static gantry_status read_raw(gt_reader *reader, const gt_onnx_record *record, const char *name,
                              gt_constant *out)
{
    const char *shape = show_shape(reader, out->dtype, out->dims, out->rank);
    if (out->dtype == GANTRY_STRING)
        return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                            "tensor '%.500s' (%s) has raw data; strings belong in string_data", name, shape);
    if (record->typed)
        return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                            "tensor '%.500s' (%s) has both raw data and %s: which is meant is unknown", name,
                            shape, field_name((uint32_t)__builtin_ctz(record->typed)));
    if (record->raw_bytes != out->bytes)
        return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                            "tensor '%.500s' has %llu bytes of raw data, but %s needs %zu", name,
                            (unsigned long long)record->raw_bytes, shape, out->bytes);
    out->origin = GT_CONSTANT_FILE;
    out->file = 0;
    out->offset = record->raw_offset;
    return GANTRY_OK;
}

/* Small ones are copied: they are then aligned, and cheap to own. */
static gantry_status copy_small(gt_reader *reader, gt_constant *c)
{
    if (c->origin != GT_CONSTANT_FILE || c->bytes > GT_CONSTANT_COPY_BYTES)
        return GANTRY_OK;
    GT_TRY(gt_model_map_file(reader->model, c->file, reader->err));
    const gt_file *file = &reader->model->files.data[c->file];
    c->data = gt_arena_copy(&reader->model->arena, c->bytes ? file->map + c->offset : NULL, c->bytes);
    return c->data ? GANTRY_OK : gt_read_no_memory(reader);
}

static gantry_status read_data(gt_reader *reader, const GtOnnx__Tensor *proto, const char *name,
                               uint64_t count, gt_constant *out)
{
    const gt_onnx_record *record = &reader->scan.records.data[proto->record];
    out->name = name;
    if (proto->data_location == 1) {
        if (record->has_raw || record->typed || out->dtype == GANTRY_STRING)
            return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                                "tensor '%.500s' is said to be in another file, but %s", name,
                                out->dtype == GANTRY_STRING ? "strings cannot be" : "has data here too");
        GT_TRY(gt_read_external(reader, proto, out));
    } else if (record->has_raw) {
        GT_TRY(read_raw(reader, record, name, out));
    } else {
        GT_TRY(read_typed(reader, record, name, count, out));
    }
    return copy_small(reader, out);
}

gantry_status gt_read_say_where(const gt_reader *reader, const GtOnnx__Tensor *proto, gantry_status status)
{
    gantry_error *err = reader->err;
    if (status == GANTRY_OK || status == GANTRY_RESOURCE || !err || err->struct_bytes < sizeof *err)
        return status;
    const gt_onnx_record *record = &reader->scan.records.data[proto->record];
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used,
             " (the tensor is at bytes %llu to %llu of '%.300s')", (unsigned long long)record->begin,
             (unsigned long long)record->end, reader->what);
    return status;
}

static gantry_status read_dense(gt_reader *reader, const GtOnnx__Tensor *proto, const char *name,
                                gt_constant *out)
{
    uint64_t count;
    *out = (gt_constant){0};
    gantry_status status = read_shape(reader, proto, proto->dims, proto->n_dims, name, out, &count);
    if (status == GANTRY_OK)
        status = read_data(reader, proto, name, count, out);
    return gt_read_say_where(reader, proto, status);
}

/* ---- entry ----------------------------------------------------------------------------------- */

gantry_status gt_read_constant(gt_reader *reader, const GtOnnx__Tensor *proto, const char *name,
                               uint32_t *out_constant)
{
    const uintptr_t address = (uintptr_t)proto;
    *out_constant = gt_map_get(&reader->constants, &address, sizeof address, GT_NONE);
    if (*out_constant != GT_NONE)
        return GANTRY_OK;
    gt_constant constant;
    GT_TRY(read_dense(reader, proto, name, &constant));
    GT_TRY(gt_model_add_constant(reader->model, &constant, out_constant, reader->err));
    const uintptr_t *key = gt_arena_copy(&reader->temp, &address, sizeof address);
    if (!key || !gt_map_set(&reader->constants, key, sizeof address, *out_constant))
        return gt_read_no_memory(reader);
    return GANTRY_OK;
}

gantry_status gt_read_tensor(gt_reader *reader, const GtOnnx__Tensor *proto, const char *name,
                             gantry_tensor *out_tensor)
{
    gt_constant constant;
    GT_TRY(read_dense(reader, proto, name, &constant));
    if (!constant.data) {
        GT_TRY(gt_model_map_file(reader->model, constant.file, reader->err));
        const uint8_t *from = reader->model->files.data[constant.file].map + constant.offset;
        constant.data = gt_arena_copy(&reader->model->arena, from, constant.bytes);
        if (!constant.data)
            return gt_read_no_memory(reader);
    }
    *out_tensor = (gantry_tensor){.struct_bytes = sizeof *out_tensor,
                                  .dtype = constant.dtype,
                                  .rank = constant.rank,
                                  .dims = constant.dims,
                                  .buffer = {(void *)(uintptr_t)constant.data, 0},
                                  .size_bytes = constant.bytes};
    return GANTRY_OK;
}

/* ---- sparse ---------------------------------------------------------------------------------- */

/* Row-major position of entry k; false when it is not inside, and *out_index is the number that is not. */
static bool sparse_position(const int64_t *indices, uint32_t width, uint64_t k, const gt_constant *dense,
                            uint64_t count, uint64_t *out_position, int64_t *out_index)
{
    *out_position = 0;
    if (width == 0) {
        *out_index = indices[k];
        *out_position = (uint64_t)indices[k];
        return *out_position < count;
    }
    for (uint32_t axis = 0; axis < width; axis++) {
        *out_index = indices[k * width + axis];
        if (*out_index < 0 || *out_index >= dense->dims[axis])
            return false;
        *out_position = *out_position * (uint64_t)dense->dims[axis] + (uint64_t)*out_index;
    }
    return true;
}

static gantry_status scatter(gt_reader *reader, const char *name, const gantry_tensor *values,
                             const gantry_tensor *indices, const gt_constant *dense, uint64_t count,
                             uint8_t *to)
{
    uint32_t element = gantry_dtype_bits(dense->dtype) / 8, width = indices->rank == 2 ? dense->rank : 0;
    uint64_t next = 0;
    for (uint64_t k = 0; k < (uint64_t)values->dims[0]; k++) {
        uint64_t position;
        int64_t index;
        if (!sparse_position(indices->buffer.handle, width, k, dense, count, &position, &index))
            return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                                "sparse tensor '%.500s' (%s) has index %lld, which is outside of it", name,
                                show_shape(reader, dense->dtype, dense->dims, dense->rank), (long long)index);
        if (position < next)
            return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                                "the indices of sparse tensor '%.500s' do not ascend at %lld", name,
                                (long long)index);
        next = position + 1;
        memcpy(to + position * element, (const uint8_t *)values->buffer.handle + k * element, element);
    }
    return GANTRY_OK;
}

static gantry_status check_sparse(gt_reader *reader, const char *name, const gantry_tensor *values,
                                  const gantry_tensor *indices, const gt_constant *dense)
{
    bool linear = indices->rank == 1, tuples = indices->rank == 2 && indices->dims[1] == (int64_t)dense->rank;
    if (values->rank != 1 || indices->dtype != GANTRY_INT64 || (!linear && !tuples) ||
        indices->dims[0] != values->dims[0] || gantry_dtype_bits(dense->dtype) < 8)
        return GT_READ_FAIL(
            reader, GANTRY_DATA, NULL,
            "sparse tensor '%.500s' (%s) has values %s and indices %s: these do not fit together", name,
            show_shape(reader, dense->dtype, dense->dims, dense->rank),
            show_shape(reader, values->dtype, values->dims, values->rank),
            show_shape(reader, indices->dtype, indices->dims, indices->rank));
    if (dense->bytes > MAX_SPARSE_BYTES)
        return GT_READ_FAIL(
            reader, GANTRY_RESOURCE, NULL,
            "sparse tensor '%.500s' (%s) would take %zu bytes when made dense; the limit is %llu", name,
            show_shape(reader, dense->dtype, dense->dims, dense->rank), dense->bytes,
            (unsigned long long)MAX_SPARSE_BYTES);
    return GANTRY_OK;
}

gantry_status gt_read_sparse(gt_reader *reader, const GtOnnx__SparseTensor *proto, const char *name,
                             uint32_t *out_constant)
{
    gantry_tensor values, indices;
    gt_constant dense = {.name = name, .origin = GT_CONSTANT_MEMORY};
    uint64_t count;
    if (!proto->values || !proto->indices)
        return GT_READ_FAIL(reader, GANTRY_MODEL_PARSE, NULL,
                            "sparse tensor '%.500s' has no values or no indices", name);
    GT_TRY(gt_read_tensor(reader, proto->values, name, &values));
    GT_TRY(gt_read_tensor(reader, proto->indices, name, &indices));
    GT_TRY(read_shape(reader, proto->values, proto->dims, proto->n_dims, name, &dense, &count));
    GT_TRY(gt_read_say_where(reader, proto->values, check_sparse(reader, name, &values, &indices, &dense)));
    uint8_t *data = gt_arena_alloc(&reader->model->arena, dense.bytes);
    if (!data)
        return gt_read_no_memory(reader);
    GT_TRY(gt_read_say_where(reader, proto->indices,
                             scatter(reader, name, &values, &indices, &dense, count, data)));
    dense.data = data;
    dense.sparse = gt_arena_copy(&reader->model->arena, &(gt_sparse){values, indices}, sizeof(gt_sparse));
    if (!dense.sparse)
        return gt_read_no_memory(reader);
    return gt_model_add_constant(reader->model, &dense, out_constant, reader->err);
}
