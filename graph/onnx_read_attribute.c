/* Reading attributes: plain ones, graphs (bodies), references to a caller's, and those of Constant. */
#include "onnx_read.h"

/* Values of AttributeProto.type that a gantry_attribute has no kind for. */
enum {
    TYPE_GRAPH = 5,
    TYPE_GRAPHS = 10,
    TYPE_SPARSE = 11,
    TYPE_SPARSES = 12,
    TYPE_TYPE = 13,
    TYPE_TYPES = 14
};

int32_t gt_attribute_type(const GtOnnx__Attribute *a)
{
    if (a->has_type && a->type)
        return a->type;
    const struct {
        bool filled;
        int32_t type;
    } kinds[] = {{a->has_f, GANTRY_ATTR_FLOAT},
                 {a->has_i, GANTRY_ATTR_INT},
                 {a->has_s, GANTRY_ATTR_STRING},
                 {a->t != NULL, GANTRY_ATTR_TENSOR},
                 {a->g != NULL, TYPE_GRAPH},
                 {a->n_floats > 0, GANTRY_ATTR_FLOATS},
                 {a->n_ints > 0, GANTRY_ATTR_INTS},
                 {a->n_strings > 0, GANTRY_ATTR_STRINGS},
                 {a->n_tensors > 0, GANTRY_ATTR_TENSORS},
                 {a->sparse_tensor != NULL, TYPE_SPARSE},
                 {a->tp != NULL, TYPE_TYPE}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (kinds[k].filled)
            return kinds[k].type;
    return 0;
}

/* ---- references ------------------------------------------------------------------------------ */

static const GtOnnx__Attribute *find_attribute(GtOnnx__Attribute *const *attributes, size_t count,
                                               gt_bytes name)
{
    for (size_t k = 0; k < count; k++)
        if (gt_bytes_equal(attributes[k]->name, name))
            return attributes[k];
    return NULL;
}

gantry_status gt_resolve_attribute(gt_reader *reader, gt_scope *scope, const GtOnnx__Attribute *attribute,
                                   const GtOnnx__Attribute **out_attribute, gt_scope **out_scope)
{
    while (attribute && attribute->ref_attr_name.len) {
        const gt_call *call = scope->call;
        if (!call)
            return GT_READ_FAIL(
                reader, GANTRY_MODEL_GRAPH, NULL,
                "attribute '%s' refers to attribute '%s' of a caller, but is not in a function",
                gt_read_show(reader, attribute->name), gt_read_show(reader, attribute->ref_attr_name));
        gt_bytes name = attribute->ref_attr_name;
        attribute = find_attribute(call->caller->attribute, call->caller->n_attribute, name);
        scope = call->caller_scope;
        if (!attribute) {
            attribute =
                find_attribute(call->function->attribute_proto, call->function->n_attribute_proto, name);
            break;
        }
    }
    *out_attribute = attribute;
    *out_scope = scope;
    return GANTRY_OK;
}

/* ---- plain attributes ------------------------------------------------------------------------ */

static const char *const *read_strings(gt_reader *reader, const gt_bytes *strings, size_t count)
{
    gt_arena *arena = &reader->model->arena;
    const char **copy = GT_ARENA_ARRAY(arena, const char *, count);
    for (size_t k = 0; copy && k < count; k++)
        if (!(copy[k] = gt_arena_text(arena, (const char *)strings[k].data, strings[k].len)))
            return NULL;
    return copy;
}

static gantry_status read_tensors(gt_reader *reader, GtOnnx__Tensor *const *tensors, size_t count,
                                  const char *name, const gantry_tensor **out_tensors)
{
    gantry_tensor *copy = GT_ARENA_ARRAY(&reader->model->arena, gantry_tensor, count);
    if (!copy)
        return gt_read_no_memory(reader);
    for (size_t k = 0; k < count; k++)
        GT_TRY(gt_read_tensor(reader, tensors[k], name, &copy[k]));
    *out_tensors = copy;
    return GANTRY_OK;
}

/* `a` is where the value is; out->name is set. */
static gantry_status read_value(gt_reader *reader, const GtOnnx__Attribute *a, const gt_node *node,
                                gantry_attribute *out)
{
    gt_arena *arena = &reader->model->arena;
    out->count = 1;
    switch (gt_attribute_type(a)) {
    case GANTRY_ATTR_FLOAT:
        out->f = a->f;
        return GANTRY_OK;
    case GANTRY_ATTR_INT:
        out->i = a->i;
        return GANTRY_OK;
    case GANTRY_ATTR_STRING:
        out->s = gt_arena_text(arena, (const char *)a->s.data, a->s.len);
        out->length = a->s.len;
        return out->s ? GANTRY_OK : gt_read_no_memory(reader);
    case GANTRY_ATTR_TENSOR:
        if (a->t)
            return read_tensors(reader, &a->t, 1, out->name, &out->tensors);
        break;
    case GANTRY_ATTR_TENSORS:
        out->count = (uint32_t)a->n_tensors;
        return read_tensors(reader, a->tensors, a->n_tensors, out->name, &out->tensors);
    case GANTRY_ATTR_FLOATS:
        out->count = (uint32_t)a->n_floats;
        out->floats = gt_arena_copy(arena, a->floats, a->n_floats * sizeof *a->floats);
        return out->floats ? GANTRY_OK : gt_read_no_memory(reader);
    case GANTRY_ATTR_INTS:
        out->count = (uint32_t)a->n_ints;
        out->ints = gt_arena_copy(arena, a->ints, a->n_ints * sizeof *a->ints);
        return out->ints ? GANTRY_OK : gt_read_no_memory(reader);
    case GANTRY_ATTR_STRINGS:
        out->count = (uint32_t)a->n_strings;
        out->strings = read_strings(reader, a->strings, a->n_strings);
        return out->strings ? GANTRY_OK : gt_read_no_memory(reader);
    default:
        break;
    }
    return GT_READ_FAIL(
        reader, GANTRY_UNSUPPORTED, node->name,
        "attribute '%.200s' of node '%.300s' (%s) has type %d and no value that Gantry can read", out->name,
        node->name, node->op_type, gt_attribute_type(a));
}

/* ---- all attributes of a node ---------------------------------------------------------------- */

typedef struct filler {
    gt_scope *scope;
    uint32_t node;
    uint32_t attributes, bodies, kept; /* how many of each are filled */
    gantry_attribute *attribute_array;
    gt_body *body_array;
    gt_kept_attribute *kept_array;
} filler;

/* TypeProto attributes (Optional, SequenceEmpty) say what an output's type is. Nothing computes such values
 * yet: a note, and the bytes for a file that is written. */
static gantry_status keep_type(gt_reader *reader, filler *f, const gt_node *node, const char *name,
                               const GtOnnx__Attribute *attribute, const GtOnnx__Attribute *value)
{
    GtOnnx__Attribute renamed = *value;
    renamed.name = attribute->name;
    size_t size = gt_onnx__attribute__get_packed_size(&renamed);
    uint8_t *bytes = gt_arena_alloc(&reader->model->arena, size);
    if (!bytes)
        return gt_read_no_memory(reader);
    gt_onnx__attribute__pack(&renamed, bytes);
    f->kept_array[f->kept++] = (gt_kept_attribute){name, bytes, size};
    return gt_model_note(reader->model, "attribute_not_read", node->name, reader->err,
                         "attribute '%.200s' holds a type, which no kernel reads", name);
}

static gantry_status read_attribute(gt_reader *reader, filler *f, const GtOnnx__Attribute *attribute)
{
    const gt_node *node = f->scope->graph->nodes.data[f->node];
    const GtOnnx__Attribute *value;
    gt_scope *home;
    GT_TRY(gt_resolve_attribute(reader, f->scope, attribute, &value, &home));
    if (!value)
        return GANTRY_OK;
    const char *name = gt_read_text(reader, &reader->model->arena, attribute->name);
    if (!name)
        return gt_read_no_memory(reader);
    int32_t type = gt_attribute_type(value);
    if (type == TYPE_TYPE || type == TYPE_TYPES)
        return keep_type(reader, f, node, name, attribute, value);
    if (type == TYPE_GRAPH && value->g) {
        gt_body *body = &f->body_array[f->bodies++];
        body->name = name;
        return gt_read_body(reader, home, f->scope, f->node, name, value->g, &body->graph);
    }
    gantry_attribute *out = &f->attribute_array[f->attributes++];
    *out = (gantry_attribute){.struct_bytes = sizeof *out, .name = name, .kind = (gantry_attribute_kind)type};
    return read_value(reader, value, node, out);
}

/* A map only where a node has many: nearly all have a few. */
static gantry_status check_unique(gt_reader *reader, const GtOnnx__Node *proto, const char *node)
{
    gt_map names;
    gt_map_init(&names, reader->allocator);
    gantry_status status = GANTRY_OK;
    for (size_t k = 0; status == GANTRY_OK && k < proto->n_attribute; k++) {
        gt_bytes name = proto->attribute[k]->name;
        bool again = name.len &&
                     (proto->n_attribute <= 16 ? find_attribute(proto->attribute, k, name) != NULL
                                               : gt_map_get(&names, name.data, name.len, GT_NONE) != GT_NONE);
        if (name.len == 0)
            status = GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, node,
                                  "an attribute of node '%.300s' has no name", node);
        else if (again)
            status = GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, node,
                                  "attribute '%s' of node '%.300s' (%s) is there twice",
                                  gt_read_show(reader, name), node, gt_read_show(reader, proto->op_type));
        else if (proto->n_attribute > 16 && !gt_map_set(&names, name.data, name.len, 1))
            status = gt_read_no_memory(reader);
    }
    gt_map_free(&names);
    return status;
}

gantry_status gt_read_attributes(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *proto, uint32_t id)
{
    gt_node *node = scope->graph->nodes.data[id];
    if (proto->n_attribute == 0)
        return GANTRY_OK;
    GT_TRY(check_unique(reader, proto, node->name));
    gt_arena *arena = &reader->model->arena;
    filler f = {.scope = scope,
                .node = id,
                .attribute_array = GT_ARENA_ARRAY(arena, gantry_attribute, proto->n_attribute),
                .body_array = GT_ARENA_ARRAY(&reader->temp, gt_body, proto->n_attribute),
                .kept_array = GT_ARENA_ARRAY(&reader->temp, gt_kept_attribute, proto->n_attribute)};
    if (!f.attribute_array || !f.body_array || !f.kept_array)
        return gt_read_no_memory(reader);
    for (size_t k = 0; k < proto->n_attribute; k++)
        GT_TRY(read_attribute(reader, &f, proto->attribute[k]));
    node->attributes = f.attribute_array;
    node->attribute_count = f.attributes;
    node->bodies = gt_arena_copy(arena, f.body_array, f.bodies * sizeof *f.body_array);
    node->body_count = f.bodies;
    node->kept = gt_arena_copy(arena, f.kept_array, f.kept * sizeof *f.kept_array);
    node->kept_count = f.kept;
    gt_graph_changed(scope->graph);
    return node->bodies && node->kept ? GANTRY_OK : gt_read_no_memory(reader);
}

/* ---- Constant -------------------------------------------------------------------------------- */

/* The plain forms, as bytes of a constant of rank 0 or 1. */
static gantry_status plain_constant(gt_reader *reader, const GtOnnx__Attribute *a, gt_constant *out)
{
    gt_arena *arena = &reader->model->arena;
    int32_t type = gt_attribute_type(a);
    bool list = type >= GANTRY_ATTR_FLOATS;
    const char *const *strings = NULL;
    if (type == GANTRY_ATTR_STRING || type == GANTRY_ATTR_STRINGS) {
        strings = read_strings(reader, list ? a->strings : &a->s, list ? a->n_strings : 1);
        if (!strings)
            return gt_read_no_memory(reader);
    }
    bool real = type == GANTRY_ATTR_FLOAT || type == GANTRY_ATTR_FLOATS;
    size_t count = !list ? 1 : real ? a->n_floats : strings ? a->n_strings : a->n_ints;
    size_t width = real ? sizeof(float) : strings ? sizeof *strings : sizeof(int64_t);
    const void *data = strings ? (const void *)strings
                       : real  ? (list ? a->floats : &a->f)
                               : (const void *)(list ? a->ints : &a->i);
    int64_t extent = (int64_t)count;
    out->dtype = real ? GANTRY_FLOAT32 : strings ? GANTRY_STRING : GANTRY_INT64;
    out->rank = list;
    out->dims = gt_arena_copy(arena, &extent, sizeof extent);
    out->bytes = count * width;
    out->data = gt_arena_copy(arena, data, out->bytes);
    return out->dims && out->data ? GANTRY_OK : gt_read_no_memory(reader);
}

/* form is the attribute's name: it may be a reference to one of another name. */
static gantry_status read_constant_value(gt_reader *reader, const GtOnnx__Attribute *a, gt_bytes form,
                                         const char *node, const char *name, uint32_t *out_constant)
{
    static const struct {
        const char *name;
        int32_t type;
    } forms[] = {{"value", GANTRY_ATTR_TENSOR},        {"sparse_value", TYPE_SPARSE},
                 {"value_float", GANTRY_ATTR_FLOAT},   {"value_floats", GANTRY_ATTR_FLOATS},
                 {"value_int", GANTRY_ATTR_INT},       {"value_ints", GANTRY_ATTR_INTS},
                 {"value_string", GANTRY_ATTR_STRING}, {"value_strings", GANTRY_ATTR_STRINGS}};
    int32_t type = gt_attribute_type(a);
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        if (forms[k].type != type || !gt_bytes_are(form, forms[k].name))
            continue;
        if (type == GANTRY_ATTR_TENSOR && a->t)
            return gt_read_constant(reader, a->t, name, out_constant);
        if (type == TYPE_SPARSE && a->sparse_tensor)
            return gt_read_sparse(reader, a->sparse_tensor, name, out_constant);
        if (type == GANTRY_ATTR_TENSOR || type == TYPE_SPARSE)
            break;
        gt_constant constant = {.name = name, .origin = GT_CONSTANT_MEMORY};
        GT_TRY(plain_constant(reader, a, &constant));
        return gt_model_add_constant(reader->model, &constant, out_constant, reader->err);
    }
    return GT_READ_FAIL(
        reader, GANTRY_MODEL_GRAPH, node,
        "attribute '%s' of node '%.300s' (Constant) has type %d or no value: no constant can be made",
        gt_read_show(reader, form), node, type);
}

gantry_status gt_read_constant_node(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *proto,
                                    const char *node, uint32_t value)
{
    if (value == GT_NONE)
        return GANTRY_OK;
    const GtOnnx__Attribute *attribute = NULL;
    gt_scope *home;
    for (size_t k = 0; k < proto->n_attribute && !attribute; k++)
        GT_TRY(gt_resolve_attribute(reader, scope, proto->attribute[k], &attribute, &home));
    if (!attribute || proto->n_attribute != 1 || proto->n_output != 1)
        return GT_READ_FAIL(
            reader, GANTRY_MODEL_GRAPH, node,
            "node '%.300s' (Constant) has %zu attributes and %zu outputs; it must have one value and "
            "one output",
            node, proto->n_attribute, proto->n_output);
    uint32_t constant;
    const char *name = scope->graph->values.data[value]->name;
    GT_TRY(read_constant_value(reader, attribute, proto->attribute[0]->name, node, name, &constant));
    return gt_value_set_constant(scope->graph, value, constant, reader->err);
}
