/* Reading a model: opens and maps it, has it scanned, unpacks the skeleton, and makes a gt_model of it. */
#include "onnx_read.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

/* What the public standard defines today. A newer file may mean something else by what looks the same. */
#define NEWEST_IR 14
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw_data is little-endian and used as it is");

/* ---- texts ----------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at text, 0 when it is none. */
static size_t utf8_length(const uint8_t *text, size_t left)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t lead = text[0];
    size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (length <= 1)
        return lead ? length : 0;
    if (length > left)
        return 0;
    uint32_t code = lead & (0xffu >> (length + 1));
    for (size_t k = 1; k < length; k++) {
        if (text[k] >> 6 != 2)
            return 0;
        code = code << 6 | (text[k] & 63);
    }
    bool valid = code >= smallest[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return valid ? length : 0;
}

static size_t escaped_size(gt_bytes bytes)
{
    size_t size = 0;
    for (size_t k = 0; k < bytes.len;) {
        size_t length = utf8_length(bytes.data + k, bytes.len - k);
        size += length ? length : 4;
        k += length ? length : 1;
    }
    return size;
}

const char *gt_read_text(gt_reader *reader, gt_arena *arena, gt_bytes bytes)
{
    size_t size = escaped_size(bytes);
    if (size == bytes.len)
        return gt_arena_text(arena, (const char *)bytes.data, bytes.len);
    char *text = gt_arena_alloc(arena, size + 1), *to = text;
    for (size_t k = 0; text && k < bytes.len;) {
        size_t length = utf8_length(bytes.data + k, bytes.len - k);
        if (length)
            memcpy(to, bytes.data + k, length);
        else
            snprintf(to, 5, "\\x%02x", bytes.data[k]);
        to += length ? length : 4;
        k += length ? length : 1;
    }
    return text;
}

/* Long names are cut: an error has room for several. */
const char *gt_read_show(gt_reader *reader, gt_bytes bytes)
{
    if (bytes.len > 200)
        bytes.len = 200;
    const char *text = gt_read_text(reader, &reader->temp, bytes);
    return text ? text : "(out of memory)";
}

const char *gt_read_join(gt_reader *reader, const char *a, const char *b, const char *c)
{
    size_t la = strlen(a), lb = strlen(b), lc = strlen(c);
    reader->name_bytes += la + lb + lc;
    if (reader->name_bytes > GT_READ_MAX_NAME_BYTES)
        return NULL;
    char *text = gt_arena_alloc(&reader->temp, la + lb + lc + 1);
    if (!text)
        return NULL;
    snprintf(text, la + lb + lc + 1, "%s%s%s", a, b, c);
    return text;
}

bool gt_bytes_equal(gt_bytes a, gt_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool gt_bytes_are(gt_bytes bytes, const char *text)
{
    return gt_bytes_equal(bytes, (gt_bytes){strlen(text), (uint8_t *)(uintptr_t)text});
}

/* ---- opsets and metadata --------------------------------------------------------------------- */

static gantry_status read_opset(gt_reader *reader, const GtOnnx__OperatorSetId *proto, const char *where,
                                gt_opset *out_opset)
{
    bool standard = proto->domain.len == 0 || gt_bytes_are(proto->domain, "ai.onnx");
    out_opset->domain = standard ? "" : gt_read_text(reader, &reader->model->arena, proto->domain);
    out_opset->version = proto->version;
    if (!out_opset->domain)
        return gt_read_no_memory(reader);
    int64_t newest = standard ? GT_NEWEST_OPSET : INT32_MAX;
    if (proto->version >= 1 && proto->version <= newest)
        return GANTRY_OK;
    return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, NULL,
                        "%s imports opset version %lld of domain '%.200s'; versions 1 to %lld are known",
                        where, (long long)proto->version, standard ? "ai.onnx" : out_opset->domain,
                        (long long)newest);
}

gantry_status gt_read_opsets(gt_reader *reader, GtOnnx__OperatorSetId *const *imports, size_t count,
                             const char *where, gt_opset **out_opsets, uint32_t *out_count)
{
    gt_opset *opsets = GT_ARENA_ARRAY(&reader->model->arena, gt_opset, count);
    if (!opsets)
        return gt_read_no_memory(reader);
    uint32_t filled = 0;
    for (size_t k = 0; k < count; k++) {
        GT_TRY(read_opset(reader, imports[k], where, &opsets[filled]));
        uint32_t same = 0;
        while (strcmp(opsets[same].domain, opsets[filled].domain) != 0)
            same++;
        if (same < filled && opsets[same].version != opsets[filled].version)
            return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, NULL,
                                "%s imports two opset versions of domain '%.200s': %lld and %lld", where,
                                opsets[same].domain, (long long)opsets[same].version,
                                (long long)opsets[filled].version);
        filled += same == filled;
    }
    *out_opsets = opsets;
    *out_count = filled;
    return GANTRY_OK;
}

static gantry_status add_metadata(gt_reader *reader, const char *key, const char *value)
{
    gt_metadata entry = {key, value};
    if (!key || !value || !gt_vec_push(reader->allocator, &reader->model->metadata, entry))
        return gt_read_no_memory(reader);
    return GANTRY_OK;
}

static const char *opset_text(gt_reader *reader)
{
    const char *text = "";
    for (uint32_t k = 0; text && k < reader->model->opsets.count; k++) {
        const gt_opset *opset = &reader->model->opsets.data[k];
        char version[32];
        snprintf(version, sizeof version, " %lld", (long long)opset->version);
        text = gt_read_join(reader, text, k ? ", " : "", *opset->domain ? opset->domain : "ai.onnx");
        text = text ? gt_read_join(reader, text, version, "") : NULL;
    }
    return text ? gt_arena_text(&reader->model->arena, text, strlen(text)) : NULL;
}

static const char *number_text(gt_reader *reader, int64_t number)
{
    char text[32];
    return gt_arena_text(&reader->model->arena, text,
                         (size_t)snprintf(text, sizeof text, "%lld", (long long)number));
}

static gantry_status read_metadata(gt_reader *reader)
{
    const GtOnnx__Model *proto = reader->proto;
    gt_arena *arena = &reader->model->arena;
    for (size_t k = 0; k < proto->n_metadata_props; k++)
        GT_TRY(add_metadata(reader, gt_read_text(reader, arena, proto->metadata_props[k]->key),
                            gt_read_text(reader, arena, proto->metadata_props[k]->value)));
    reader->model->custom_metadata_count = reader->model->metadata.count;
    const struct {
        const char *key;
        gt_bytes value;
    } texts[] = {{"producer_name", proto->producer_name},
                 {"producer_version", proto->producer_version},
                 {"domain", proto->domain},
                 {"doc_string", proto->doc_string},
                 {"graph_name", proto->graph->name}};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        GT_TRY(add_metadata(reader, texts[k].key, gt_read_text(reader, arena, texts[k].value)));
    GT_TRY(add_metadata(reader, "model_version", number_text(reader, proto->model_version)));
    GT_TRY(add_metadata(reader, "ir_version", number_text(reader, proto->ir_version)));
    return add_metadata(reader, "opset", opset_text(reader));
}

static gantry_status read_model_opsets(gt_reader *reader)
{
    gt_opset *opsets;
    uint32_t count = 0;
    GT_TRY(gt_read_opsets(reader, reader->proto->opset_import, reader->proto->n_opset_import, "the model",
                          &opsets, &count));
    for (uint32_t k = 0; k < count; k++)
        if (!gt_vec_push(reader->allocator, &reader->model->opsets, opsets[k]))
            return gt_read_no_memory(reader);
    return GANTRY_OK;
}

/* ---- the skeleton ---------------------------------------------------------------------------- */

typedef struct unpack_memory {
    gt_arena *arena;
    bool exhausted;
} unpack_memory;

static void *unpack_alloc(void *self, size_t bytes)
{
    unpack_memory *memory = self;
    void *block = gt_arena_take(memory->arena, bytes);
    memory->exhausted |= !block;
    return block;
}

static void unpack_free(void *self, void *block)
{
    (void)self;
    (void)block;
}

static gantry_status unpack(gt_reader *reader)
{
    unpack_memory memory = {&reader->temp, false};
    ProtobufCAllocator allocator = {unpack_alloc, unpack_free, &memory};
    reader->proto = gt_onnx__model__unpack(&allocator, reader->scan.skeleton_bytes, reader->scan.skeleton);
    if (reader->proto)
        return GANTRY_OK;
    if (memory.exhausted)
        return gt_read_no_memory(reader);
    return GT_READ_FAIL(reader, GANTRY_MODEL_PARSE, NULL,
                        "parsing '%.500s' failed: a list of numbers is malformed", reader->what);
}

static gantry_status check_model(gt_reader *reader)
{
    const GtOnnx__Model *proto = reader->proto;
    if (!proto->graph)
        return GT_READ_FAIL(reader, GANTRY_MODEL_PARSE, NULL, "'%.500s' has no graph: not an ONNX model?",
                            reader->what);
    if (proto->ir_version < 1 || proto->ir_version > NEWEST_IR)
        return GT_READ_FAIL(reader, GANTRY_MODEL_PARSE, NULL,
                            "'%.500s' has IR version %lld; versions 1 to %d are known", reader->what,
                            (long long)proto->ir_version, NEWEST_IR);
    reader->model->ir_version = proto->ir_version;
    return GANTRY_OK;
}

static gantry_status settle_captures(gt_reader *reader)
{
    for (uint32_t k = 0; k < reader->model->graphs.count; k++) {
        gt_graph *graph = reader->model->graphs.data[k];
        for (uint32_t v = 0; v < graph->values.count; v++)
            if (graph->values.data[v]->captured != GT_NONE)
                GT_TRY(gt_graph_settle_capture(graph, v, reader->err));
    }
    return GANTRY_OK;
}

static gantry_status read_root(gt_reader *reader)
{
    gt_model *model = reader->model;
    const char *name = gt_read_text(reader, &reader->temp, reader->proto->graph->name);
    gt_scope scope = {
        .prefix = "", .value_prefix = "", .opsets = model->opsets.data, .opset_count = model->opsets.count};
    gt_map_init(&scope.names, reader->allocator);
    if (!name)
        return gt_read_no_memory(reader);
    GT_TRY(gt_graph_create(model, NULL, GT_NONE, name, "", &model->root, reader->err));
    scope.graph = model->root;
    gantry_status status = gt_read_graph(reader, &scope, reader->proto->graph);
    gt_map_free(&scope.names);
    return status;
}

static gantry_status read_skeleton(gt_reader *reader)
{
    GT_TRY(unpack(reader));
    GT_TRY(check_model(reader));
    GT_TRY(read_model_opsets(reader));
    GT_TRY(read_metadata(reader));
    GT_TRY(gt_read_functions(reader));
    GT_TRY(read_root(reader));
    return settle_captures(reader);
}

/* ---- entry ----------------------------------------------------------------------------------- */

static gantry_status reader_begin(gt_reader *reader, gt_allocator *allocator, const gt_read_limits *limits,
                                  const char *what, gantry_error *err)
{
    *reader = (gt_reader){.allocator = allocator, .what = what, .base_fd = -1, .err = err};
    if (limits)
        reader->limits = *limits;
    gt_read_limits *l = &reader->limits;
    l->max_depth = l->max_depth == 0    ? 64
                   : l->max_depth > 500 ? 500
                                        : l->max_depth; /* 500: what a stack bears */
    l->max_nodes = l->max_nodes ? l->max_nodes : 4000000;
    l->max_bytes = l->max_bytes ? l->max_bytes : (uint64_t)1 << 40;
    gt_arena_init(&reader->temp, allocator);
    gt_map_init(&reader->functions, allocator);
    gt_map_init(&reader->external_files, allocator);
    gt_map_init(&reader->captures, allocator);
    gt_map_init(&reader->constants, allocator);
    GT_TRY(gt_model_create(allocator, &reader->model, err));
    reader->model->own_ops = l->own_ops;
    return GANTRY_OK;
}

/* Everything but the model. */
static void reader_end(gt_reader *reader)
{
    gt_map_free(&reader->functions);
    gt_map_free(&reader->external_files);
    gt_map_free(&reader->captures);
    gt_map_free(&reader->constants);
    gt_onnx_scan_free(&reader->scan);
    gt_arena_clear(&reader->temp);
    if (reader->base_fd >= 0)
        close(reader->base_fd);
}

static gantry_status read_bytes(gt_reader *reader)
{
    const gt_file *file = &reader->model->files.data[0];
    if (file->bytes > reader->limits.max_bytes)
        return GT_READ_FAIL(reader, GANTRY_RESOURCE, NULL,
                            "'%.500s' has %llu bytes, more than the limit of %llu", reader->what,
                            (unsigned long long)file->bytes, (unsigned long long)reader->limits.max_bytes);
    GT_TRY(gt_onnx_scan_run(reader->allocator, reader->what, file->map, file->bytes, &reader->limits,
                            &reader->scan, reader->err));
    return read_skeleton(reader);
}

static gantry_status set_base(gt_reader *reader, const char *folder)
{
    char resolved[PATH_MAX];
    if (!realpath(folder, resolved))
        return GT_READ_FAIL(reader, GANTRY_INVALID_ARGUMENT, NULL,
                            "cannot find the folder '%.500s' of the model's external data: %s", folder,
                            strerror(errno));
    reader->base_fd = open(resolved, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (reader->base_fd < 0)
        return GT_READ_FAIL(reader, GANTRY_INVALID_ARGUMENT, NULL, "cannot open the folder '%.500s': %s",
                            resolved, strerror(errno));
    reader->base = gt_arena_text(&reader->temp, resolved, strlen(resolved));
    return reader->base ? GANTRY_OK : gt_read_no_memory(reader);
}

/* The folder of the path as given: a link to a model elsewhere has its data beside the link. */
static gantry_status set_base_of_file(gt_reader *reader, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    const char *folder = length ? gt_arena_text(&reader->temp, path, length) : ".";
    return folder ? set_base(reader, folder) : gt_read_no_memory(reader);
}

static gantry_status open_model(gt_reader *reader, const char *path)
{
    /* Not to wait for the writer of a named pipe; it is refused when it is seen to be no file. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return GT_READ_FAIL(reader, GANTRY_INVALID_ARGUMENT, NULL, "cannot open model '%.500s': %s", path,
                            strerror(errno));
    char *resolved = realpath(path, NULL);
    uint32_t file;
    gantry_status status =
        gt_model_add_file(reader->model, fd, resolved ? resolved : path, &file, reader->err);
    free(resolved);
    GT_TRY(status);
    GT_TRY(set_base_of_file(reader, path));
    return gt_model_map_file(reader->model, file, reader->err);
}

static gantry_status finish(gt_reader *reader, gantry_status status, gt_model **out_model)
{
    reader_end(reader);
    if (status != GANTRY_OK)
        gt_model_destroy(&reader->model);
    *out_model = reader->model;
    return status;
}

gantry_status gt_onnx_read_file(gt_allocator *allocator, const char *path, const gt_read_limits *limits,
                                gt_model **out_model, gantry_error *err)
{
    gt_reader reader;
    *out_model = NULL;
    gantry_status status = reader_begin(&reader, allocator, limits, path, err);
    if (status == GANTRY_OK)
        status = open_model(&reader, path);
    if (status == GANTRY_OK)
        status = read_bytes(&reader);
    return finish(&reader, status, out_model);
}

gantry_status gt_onnx_read_memory(gt_allocator *allocator, const void *bytes, size_t size, const char *base,
                                  const gt_read_limits *limits, gt_model **out_model, gantry_error *err)
{
    gt_reader reader;
    *out_model = NULL;
    gantry_status status = reader_begin(&reader, allocator, limits, "model in memory", err);
    if (status == GANTRY_OK && base)
        status = set_base(&reader, base);
    gt_file file = {.path = "model in memory", .fd = -1, .map = bytes, .bytes = size};
    if (status == GANTRY_OK && !gt_vec_push(allocator, &reader.model->files, file))
        status = gt_read_no_memory(&reader);
    if (status == GANTRY_OK)
        status = read_bytes(&reader);
    return finish(&reader, status, out_model);
}
