/* Tensors in a written file, and how their data gets there.
 *
 * A message holds no data of constants: its raw_data points at a stand-in, one byte of writer->stand_ins,
 * with the length of the data. protobuf-c hands that pointer on when it packs, and the constant is mapped,
 * written and given back in its place:
 *
 *     message   | dims | type | raw_data: &stand_ins[17], 4096 bytes |      packed: | .. | 4096 bytes of 17 |
 */
#include "onnx_write_internal.h"

/* Where data of the external file begins: for SIMD, and for those who map it page by page. */
#define SMALL_ALIGNMENT 64u
#define LARGE_ALIGNMENT 4096u
#define LARGE_BYTES ((uint64_t)65536)

/* ---- messages -------------------------------------------------------------------------------- */

static gantry_status new_tensor(gt_writer *writer, gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                                GtOnnx__Tensor **out_tensor)
{
    GtOnnx__Tensor *tensor = *out_tensor = GT_WRITE_NEW(writer, GtOnnx__Tensor, GT_ONNX__TENSOR__INIT);
    if (!tensor)
        return gt_write_no_memory(writer);
    tensor->n_dims = rank;
    tensor->dims = (int64_t *)(uintptr_t)dims;
    tensor->has_data_type = true;
    tensor->data_type = (int32_t)dtype;
    return GANTRY_OK;
}

static gantry_status set_strings(gt_writer *writer, GtOnnx__Tensor *tensor, const char *const *texts,
                                 uint64_t count)
{
    tensor->n_string_data = count;
    tensor->string_data = GT_ARENA_ARRAY(&writer->arena, ProtobufCBinaryData, count);
    if (!tensor->string_data)
        return gt_write_no_memory(writer);
    for (uint64_t k = 0; k < count; k++)
        tensor->string_data[k] = gt_write_text(texts[k]);
    return GANTRY_OK;
}

static void set_raw(GtOnnx__Tensor *tensor, const void *bytes, size_t count)
{
    tensor->has_raw_data = true;
    tensor->raw_data = (ProtobufCBinaryData){count, (uint8_t *)(uintptr_t)bytes};
}

static uint64_t element_count(uint32_t rank, const int64_t *dims)
{
    uint64_t count = 1;
    for (uint32_t k = 0; k < rank; k++)
        count *= (uint64_t)dims[k];
    return count;
}

gantry_status gt_write_tensor(gt_writer *writer, const gantry_tensor *from, GtOnnx__Tensor **out_tensor)
{
    uint64_t count = element_count(from->rank, from->dims);
    const char *bytes = (const char *)from->buffer.handle + from->buffer.offset_bytes;
    GT_TRY(new_tensor(writer, from->dtype, from->rank, from->dims, out_tensor));
    if (from->dtype == GANTRY_STRING)
        return set_strings(writer, *out_tensor, (const char *const *)(const void *)bytes, count);
    set_raw(*out_tensor, bytes, gantry_dtype_bytes(from->dtype, count));
    return GANTRY_OK;
}

/* ---- external data --------------------------------------------------------------------------- */

static bool goes_outside(const gt_writer *writer, const gt_constant *constant)
{
    uint64_t least = writer->options->external_min_bytes ? writer->options->external_min_bytes
                                                         : GT_WRITE_EXTERNAL_MIN_BYTES;
    return writer->options->external_name && constant->dtype != GANTRY_STRING && constant->bytes >= least;
}

static const char *number_text(gt_writer *writer, uint64_t number)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return gt_arena_text(&writer->arena, text, (size_t)length);
}

static gantry_status set_external(gt_writer *writer, GtOnnx__Tensor *tensor, uint32_t constant)
{
    uint64_t bytes = writer->model->constants.data[constant].bytes;
    uint64_t alignment = bytes >= LARGE_BYTES ? LARGE_ALIGNMENT : SMALL_ALIGNMENT;
    uint64_t offset = (writer->result->external_bytes + alignment - 1) / alignment * alignment;
    gt_external_place place = {constant, offset};
    GtOnnx__StringStringEntry *entries[3];
    GT_TRY(gt_write_entry(writer, "location", writer->options->external_name, &entries[0]));
    GT_TRY(gt_write_entry(writer, "offset", number_text(writer, offset), &entries[1]));
    GT_TRY(gt_write_entry(writer, "length", number_text(writer, bytes), &entries[2]));
    tensor->external_data = gt_arena_copy(&writer->arena, entries, sizeof entries);
    if (!tensor->external_data || !gt_vec_push(writer->allocator, &writer->external, place))
        return gt_write_no_memory(writer);
    tensor->n_external_data = 3;
    tensor->has_data_location = true;
    tensor->data_location = 1;
    writer->result->external_bytes = offset + bytes;
    return GANTRY_OK;
}

gantry_status gt_write_constant(gt_writer *writer, uint32_t index, const char *name,
                                GtOnnx__Tensor **out_tensor)
{
    const gt_constant *constant = &writer->model->constants.data[index];
    GT_TRY(new_tensor(writer, constant->dtype, constant->rank, constant->dims, out_tensor));
    (*out_tensor)->has_name = true;
    (*out_tensor)->name = gt_write_text(name);
    writer->result->initializer_count++;
    if (constant->dtype == GANTRY_STRING)
        return set_strings(writer, *out_tensor, constant->data, constant->bytes / sizeof(char *));
    writer->result->constant_bytes += constant->bytes;
    if (goes_outside(writer, constant))
        return set_external(writer, *out_tensor, index);
    set_raw(*out_tensor, &writer->stand_ins[index], constant->bytes);
    return GANTRY_OK;
}

gantry_status gt_write_sparse(gt_writer *writer, uint32_t index, const char *name,
                              GtOnnx__SparseTensor **out_tensor)
{
    const gt_constant *constant = &writer->model->constants.data[index];
    GtOnnx__SparseTensor *tensor = *out_tensor =
        GT_WRITE_NEW(writer, GtOnnx__SparseTensor, GT_ONNX__SPARSE_TENSOR__INIT);
    if (!tensor)
        return gt_write_no_memory(writer);
    tensor->n_dims = constant->rank;
    tensor->dims = (int64_t *)(uintptr_t)constant->dims;
    GT_TRY(gt_write_tensor(writer, &constant->sparse->values, &tensor->values));
    GT_TRY(gt_write_tensor(writer, &constant->sparse->indices, &tensor->indices));
    tensor->values->has_name = true;
    tensor->values->name = gt_write_text(name);
    writer->result->initializer_count++;
    writer->result->constant_bytes +=
        constant->sparse->values.size_bytes + constant->sparse->indices.size_bytes;
    return GANTRY_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What protobuf-c appends to; small pieces are gathered. After a failure nothing more is put. */
typedef struct stream {
    ProtobufCBuffer base;
    gt_writer *writer;
    const gt_write_sink *sink;
    gantry_status status;
    uint64_t put_bytes;
    size_t filled;
    uint8_t gathered[16384];
} stream;

static void put(stream *s, const void *bytes, size_t count)
{
    if (s->status == GANTRY_OK && count)
        s->status = s->sink->put(s->sink->self, bytes, count, s->writer->err);
    s->put_bytes += count;
}

static void flush(stream *s)
{
    put(s, s->gathered, s->filled);
    s->filled = 0;
}

static void put_constant(stream *s, uint32_t index)
{
    const void *data;
    gt_model *model = s->writer->model;
    if (s->status == GANTRY_OK)
        s->status = gt_constant_map(model, index, &data, s->writer->err);
    if (s->status != GANTRY_OK)
        return;
    put(s, data, model->constants.data[index].bytes);
    gt_constant_unmap(model, index);
}

static void append(ProtobufCBuffer *buffer, size_t count, const uint8_t *bytes)
{
    stream *s = (stream *)buffer;
    const gt_writer *writer = s->writer;
    if (count == 0)
        return;
    bool stands_in = bytes >= writer->stand_ins && bytes < writer->stand_ins + writer->model->constants.count;
    if (stands_in || count > sizeof s->gathered - s->filled)
        flush(s);
    if (stands_in) {
        put_constant(s, (uint32_t)(bytes - writer->stand_ins));
    } else if (count > sizeof s->gathered) {
        put(s, bytes, count);
    } else {
        memcpy(s->gathered + s->filled, bytes, count);
        s->filled += count;
    }
}

gantry_status gt_write_message(gt_writer *writer, const ProtobufCMessage *message, const gt_write_sink *sink)
{
    stream s = {.base = {append}, .writer = writer, .sink = sink, .status = GANTRY_OK};
    protobuf_c_message_pack_to_buffer(message, &s.base);
    flush(&s);
    return s.status;
}

gantry_status gt_write_external(gt_writer *writer, const gt_write_sink *sink)
{
    static const uint8_t zeros[LARGE_ALIGNMENT];
    stream s = {.base = {append}, .writer = writer, .sink = sink, .status = GANTRY_OK};
    for (uint32_t k = 0; k < writer->external.count && s.status == GANTRY_OK; k++) {
        const gt_external_place *place = &writer->external.data[k];
        put(&s, zeros, place->offset - s.put_bytes);
        put_constant(&s, place->constant);
    }
    return s.status;
}
