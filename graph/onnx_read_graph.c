/* Reading a graph or a body: which names it defines, which it sees outside, and what the file says of them.
 */
#include "onnx_read.h"

/* An input its caller left out has value GT_NONE in a scope; this is a name that is not there. */
#define NOT_THERE (UINT32_MAX - 1)

/* ---- scopes ---------------------------------------------------------------------------------- */

static uint32_t scope_get(const gt_scope *scope, gt_bytes name)
{
    return gt_map_get(&scope->names, name.data, name.len, NOT_THERE);
}

bool gt_scope_set(gt_scope *scope, gt_bytes name, uint32_t value)
{
    return gt_map_set(&scope->names, name.data, name.len, value);
}

static bool is_visible_outside(const gt_scope *scope, gt_bytes name)
{
    for (const gt_scope *s = scope->outer; s; s = s->outer)
        if (scope_get(s, name) != NOT_THERE)
            return true;
    return false;
}

/* The name of the file under the scope's prefix; where that is taken (two names that differ only in bytes we
 * escape) a fresh one. */
static gantry_status add_named_value(gt_reader *reader, gt_scope *scope, gt_bytes name, uint32_t *out_value)
{
    const char *text = gt_read_text(reader, &reader->temp, name);
    if (text && *scope->value_prefix)
        text = gt_read_join(reader, scope->value_prefix, text, "");
    if (!text)
        return gt_read_no_memory(reader);
    if (gt_graph_find_value(scope->graph, text) != GT_NONE)
        text = NULL;
    return gt_graph_add_value(scope->graph, text, out_value, reader->err);
}

gantry_status gt_scope_declare(gt_reader *reader, gt_scope *scope, gt_bytes name, const char *what,
                               const char *who, uint32_t *out_value)
{
    *out_value = GT_NONE;
    if (scope_get(scope, name) != NOT_THERE)
        return GT_READ_FAIL(
            reader, GANTRY_MODEL_GRAPH, who,
            "%s '%s'%s%.200s%s is defined twice in graph '%.100s': each name can be written only once", what,
            gt_read_show(reader, name), who ? " of node '" : "", who ? who : "", who ? "'" : "",
            scope->graph->name);
    if (is_visible_outside(scope, name))
        return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, who,
                            "%s '%s'%s%.200s%s in body '%.200s' has the name of a value outside of the body",
                            what, gt_read_show(reader, name), who ? " of node '" : "", who ? who : "",
                            who ? "'" : "", scope->prefix);
    GT_TRY(add_named_value(reader, scope, name, out_value));
    return gt_scope_set(scope, name, *out_value) ? GANTRY_OK : gt_read_no_memory(reader);
}

/* ---- captures -------------------------------------------------------------------------------- */

typedef struct capture_key {
    const gt_graph *graph;
    uint64_t outer;
} capture_key;

static gantry_status make_capture(gt_reader *reader, gt_graph *graph, uint32_t outer, uint32_t *out_value)
{
    const gt_value *from = graph->parent->values.data[outer];
    const char *name = gt_graph_find_value(graph, from->name) == GT_NONE ? from->name : NULL;
    GT_TRY(gt_graph_add_value(graph, name, out_value, reader->err));
    gt_value *value = graph->values.data[*out_value];
    value->kind = from->kind;
    value->declared_dtype = from->declared_dtype;
    value->declared_rank = from->declared_rank;
    value->declared_dims = from->declared_dims;
    value->declared_dim_names = from->declared_dim_names;
    value->declared_type = from->declared_type;
    value->declared_type_bytes = from->declared_type_bytes;
    if (gt_value_is_constant(from))
        return gt_value_set_constant(graph, *out_value, from->constant, reader->err);
    value->captured = outer;
    return GANTRY_OK;
}

/* The value of `graph` that stands for value id of `home`, an ancestor of it: captures in every graph
 * between. */
static gantry_status import_value(gt_reader *reader, gt_graph *graph, const gt_graph *home, uint32_t id,
                                  uint32_t *out_value)
{
    *out_value = id;
    if (graph == home)
        return GANTRY_OK;
    if (!graph->parent)
        return GT_READ_FAIL(reader, GANTRY_INTERNAL, NULL,
                            "a captured value is not in a graph around the body");
    uint32_t outer;
    GT_TRY(import_value(reader, graph->parent, home, id, &outer));
    capture_key key = {graph, outer};
    *out_value = gt_map_get(&reader->captures, &key, sizeof key, GT_NONE);
    if (*out_value != GT_NONE)
        return GANTRY_OK;
    GT_TRY(make_capture(reader, graph, outer, out_value));
    capture_key *kept = gt_arena_copy(&reader->temp, &key, sizeof key);
    if (!kept || !gt_map_set(&reader->captures, kept, sizeof key, *out_value))
        return gt_read_no_memory(reader);
    return GANTRY_OK;
}

gantry_status gt_scope_find(gt_reader *reader, gt_scope *scope, gt_bytes name, uint32_t *out_value,
                            bool *out_found)
{
    *out_value = GT_NONE;
    *out_found = false;
    for (gt_scope *s = scope; s; s = s->outer) {
        uint32_t id = scope_get(s, name);
        if (id == NOT_THERE)
            continue;
        *out_found = true;
        return id == GT_NONE ? GANTRY_OK : import_value(reader, scope->graph, s->graph, id, out_value);
    }
    return GANTRY_OK;
}

/* ---- types ----------------------------------------------------------------------------------- */

static gantry_value_kind kind_of(const GtOnnx__Type *type)
{
    return type->sequence_type   ? GANTRY_KIND_SEQUENCE
           : type->optional_type ? GANTRY_KIND_OPTIONAL
           : type->map_type      ? GANTRY_KIND_MAP
                                 : GANTRY_KIND_TENSOR;
}

/* Negative and unset extents are symbolic, and so is one without a name. */
static gantry_status declare_shape(gt_reader *reader, gt_value *value, const GtOnnx__TensorShape *shape)
{
    gt_arena *arena = &reader->model->arena;
    int64_t *dims = GT_ARENA_ARRAY(arena, int64_t, shape->n_dim);
    const char **names = GT_ARENA_ARRAY(arena, const char *, shape->n_dim);
    if (!dims || !names)
        return gt_read_no_memory(reader);
    for (size_t k = 0; k < shape->n_dim; k++) {
        const GtOnnx__Dimension *dim = shape->dim[k];
        dims[k] = dim->has_dim_value && dim->dim_value >= 0 ? dim->dim_value : -1;
        if (dim->dim_param.len && dims[k] < 0 && !(names[k] = gt_read_text(reader, arena, dim->dim_param)))
            return gt_read_no_memory(reader);
    }
    value->declared_rank = (int32_t)shape->n_dim;
    value->declared_dims = dims;
    value->declared_dim_names = names;
    return GANTRY_OK;
}

static gantry_status keep_type(gt_reader *reader, gt_value *value, const GtOnnx__Type *type)
{
    size_t size = gt_onnx__type__get_packed_size(type);
    uint8_t *bytes = gt_arena_alloc(&reader->model->arena, size);
    if (!bytes)
        return gt_read_no_memory(reader);
    gt_onnx__type__pack(type, bytes);
    value->declared_type = bytes;
    value->declared_type_bytes = (uint32_t)size;
    return GANTRY_OK;
}

static gantry_status declare_type(gt_reader *reader, gt_value *value, const GtOnnx__Type *type)
{
    value->kind = kind_of(type);
    const GtOnnx__TensorType *tensor = type->tensor_type;
    if (!tensor)
        return keep_type(reader, value, type);
    if (tensor->elem_type > 0 && tensor->elem_type < GANTRY_DTYPE_COUNT)
        value->declared_dtype = (gantry_dtype)tensor->elem_type;
    if (!tensor->shape || tensor->shape->n_dim > GANTRY_MAX_RANK)
        return GANTRY_OK;
    return declare_shape(reader, value, tensor->shape);
}

/* What a session input must say: without a type nobody could bind it. */
static gantry_status check_input_type(gt_reader *reader, const char *name, const GtOnnx__Type *type)
{
    if (!type || (!type->tensor_type && kind_of(type) == GANTRY_KIND_TENSOR))
        return GT_READ_FAIL(
            reader, GANTRY_MODEL_GRAPH, NULL,
            "graph input '%.500s' has no type, or one that Gantry does not know (sparse, opaque)", name);
    const GtOnnx__TensorType *tensor = type->tensor_type;
    if (!tensor)
        return GANTRY_OK;
    if (tensor->elem_type <= 0 || tensor->elem_type >= GANTRY_DTYPE_COUNT)
        return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, NULL,
                            "graph input '%.500s' has element type %d, which is undefined or unknown", name,
                            tensor->elem_type);
    if (tensor->shape && tensor->shape->n_dim > GANTRY_MAX_RANK)
        return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, NULL,
                            "graph input '%.500s' has rank %zu; at most %d dimensions are supported", name,
                            tensor->shape->n_dim, GANTRY_MAX_RANK);
    return GANTRY_OK;
}

gantry_status gt_read_hints(gt_reader *reader, gt_scope *scope, GtOnnx__ValueInfo *const *infos, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        uint32_t id = scope_get(scope, infos[k]->name);
        if (id == NOT_THERE || id == GT_NONE || !infos[k]->type)
            continue;
        gt_value *value = scope->graph->values.data[id];
        if (value->declared_dtype == GANTRY_UNDEFINED)
            GT_TRY(declare_type(reader, value, infos[k]->type));
    }
    return GANTRY_OK;
}

/* ---- inputs and initializers ----------------------------------------------------------------- */

/* Before IR 4 every initializer had to be an input too, so being one says nothing: such a value is a
 * constant. Later it means a default that the caller may replace. */
static bool initializers_are_constants(const gt_reader *reader)
{
    return reader->model->ir_version < 4;
}

static gt_bytes sparse_name(const GtOnnx__SparseTensor *sparse)
{
    return sparse->values ? sparse->values->name : (gt_bytes){0};
}

static gantry_status note_initializer(gt_reader *reader, gt_map *names, gt_bytes name)
{
    if (name.len == 0)
        return GT_READ_FAIL(
            reader, GANTRY_MODEL_GRAPH, NULL,
            "an initializer of '%.500s' has no name: no exporter writes that; its messages may be nested "
            "wrongly",
            reader->what);
    if (gt_map_get(names, name.data, name.len, GT_NONE) != GT_NONE)
        return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, NULL, "initializer '%s' is there twice",
                            gt_read_show(reader, name));
    return gt_map_set(names, name.data, name.len, 1) ? GANTRY_OK : gt_read_no_memory(reader);
}

static gantry_status note_initializers(gt_reader *reader, const GtOnnx__Graph *proto, gt_map *names)
{
    for (size_t k = 0; k < proto->n_initializer; k++)
        GT_TRY(gt_read_say_where(reader, proto->initializer[k],
                                 note_initializer(reader, names, proto->initializer[k]->name)));
    for (size_t k = 0; k < proto->n_sparse_initializer; k++)
        GT_TRY(note_initializer(reader, names, sparse_name(proto->sparse_initializer[k])));
    return GANTRY_OK;
}

static gantry_status read_input(gt_reader *reader, gt_scope *scope, const GtOnnx__ValueInfo *info,
                                bool has_initializer)
{
    gt_graph *graph = scope->graph;
    uint32_t id;
    if (info->name.len == 0)
        return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, NULL, "an input of graph '%.500s' has no name",
                            graph->name);
    GT_TRY(gt_scope_declare(reader, scope, info->name, "graph input", NULL, &id));
    gt_value *value = graph->values.data[id];
    if (!graph->parent)
        GT_TRY(check_input_type(reader, value->name, info->type));
    if (info->type)
        GT_TRY(declare_type(reader, value, info->type));
    if (has_initializer && initializers_are_constants(reader))
        return GANTRY_OK;
    value->input_index = (int32_t)graph->inputs.count;
    return gt_vec_push(reader->allocator, &graph->inputs, id) ? GANTRY_OK : gt_read_no_memory(reader);
}

static gantry_status read_inputs(gt_reader *reader, gt_scope *scope, const GtOnnx__Graph *proto,
                                 const gt_map *initializers)
{
    for (size_t k = 0; k < proto->n_input; k++) {
        gt_bytes name = proto->input[k]->name;
        bool has_initializer = gt_map_get(initializers, name.data, name.len, GT_NONE) != GT_NONE;
        GT_TRY(read_input(reader, scope, proto->input[k], has_initializer));
    }
    return GANTRY_OK;
}

static gantry_status set_initializer(gt_reader *reader, gt_scope *scope, gt_bytes name, uint32_t constant)
{
    gt_graph *graph = scope->graph;
    uint32_t id = scope_get(scope, name);
    if (id == NOT_THERE)
        GT_TRY(gt_scope_declare(reader, scope, name, "initializer", NULL, &id));
    gt_value *value = graph->values.data[id];
    gantry_dtype dtype = reader->model->constants.data[constant].dtype;
    reader->model->constants.data[constant].name = value->name;
    if (value->declared_dtype != GANTRY_UNDEFINED && value->declared_dtype != dtype)
        return GT_READ_FAIL(reader, GANTRY_MODEL_TYPE, NULL,
                            "graph input '%.500s' is declared as %s, but its initializer is %s", value->name,
                            gantry_dtype_text(value->declared_dtype), gantry_dtype_text(dtype));
    if (value->input_index < 0)
        return gt_value_set_constant(graph, id, constant, reader->err);
    value->constant = constant;
    return GANTRY_OK;
}

static gantry_status read_initializers(gt_reader *reader, gt_scope *scope, const GtOnnx__Graph *proto)
{
    uint32_t constant;
    for (size_t k = 0; k < proto->n_initializer; k++) {
        const GtOnnx__Tensor *tensor = proto->initializer[k];
        GT_TRY(gt_read_constant(reader, tensor, gt_read_show(reader, tensor->name), &constant));
        GT_TRY(set_initializer(reader, scope, tensor->name, constant));
    }
    for (size_t k = 0; k < proto->n_sparse_initializer; k++) {
        const GtOnnx__SparseTensor *sparse = proto->sparse_initializer[k];
        GT_TRY(gt_read_sparse(reader, sparse, gt_read_show(reader, sparse_name(sparse)), &constant));
        GT_TRY(set_initializer(reader, scope, sparse_name(sparse), constant));
    }
    return GANTRY_OK;
}

static gantry_status read_values(gt_reader *reader, gt_scope *scope, const GtOnnx__Graph *proto)
{
    gt_map initializers;
    gt_map_init(&initializers, reader->allocator);
    gantry_status status = note_initializers(reader, proto, &initializers);
    if (status == GANTRY_OK)
        status = read_inputs(reader, scope, proto, &initializers);
    gt_map_free(&initializers);
    return status == GANTRY_OK ? read_initializers(reader, scope, proto) : status;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static gantry_status read_outputs(gt_reader *reader, gt_scope *scope, const GtOnnx__Graph *proto)
{
    gt_graph *graph = scope->graph;
    for (size_t k = 0; k < proto->n_output; k++) {
        uint32_t id;
        bool found;
        GT_TRY(gt_scope_find(reader, scope, proto->output[k]->name, &id, &found));
        if (!found || id == GT_NONE)
            return GT_READ_FAIL(
                reader, GANTRY_MODEL_GRAPH, NULL,
                "output '%s' of graph '%.200s' is made by no node and is no input or initializer",
                gt_read_show(reader, proto->output[k]->name), graph->name);
        graph->values.data[id]->is_output = true;
        if (!gt_vec_push(reader->allocator, &graph->outputs, id))
            return gt_read_no_memory(reader);
    }
    if (graph->outputs.count == 0 && !graph->parent)
        return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, NULL,
                            "graph '%.500s' has no output: nothing would be computed", graph->name);
    return gt_read_hints(reader, scope, proto->output, proto->n_output);
}

gantry_status gt_read_graph(gt_reader *reader, gt_scope *scope, const GtOnnx__Graph *proto)
{
    GT_TRY(read_values(reader, scope, proto));
    GT_TRY(gt_read_nodes(reader, scope, proto->node, proto->n_node));
    GT_TRY(read_outputs(reader, scope, proto));
    GT_TRY(gt_read_hints(reader, scope, proto->value_info, proto->n_value_info));
    return gt_graph_sort(scope->graph, reader->err);
}

gantry_status gt_read_body(gt_reader *reader, gt_scope *outer, const gt_scope *at, uint32_t node,
                           const char *role, const GtOnnx__Graph *proto, gt_graph **out_graph)
{
    *out_graph = NULL;
    const gt_node *owner = at->graph->nodes.data[node];
    gt_scope scope = {.outer = outer,
                      .value_prefix = outer->value_prefix,
                      .opsets = outer->opsets,
                      .opset_count = outer->opset_count,
                      .call = outer->call,
                      .depth = at->depth + 1};
    if (scope.depth > 2 * reader->limits.max_depth)
        return GT_READ_FAIL(reader, GANTRY_RESOURCE, owner->name,
                            "node '%.500s' is nested too deep in bodies and functions (limit %u)",
                            owner->name, 2 * reader->limits.max_depth);
    const char *with_role = gt_read_join(reader, owner->name, ".", role);
    scope.prefix = with_role ? gt_read_join(reader, with_role, ".", "") : NULL;
    const char *name = gt_read_text(reader, &reader->temp, proto->name);
    if (!scope.prefix || !name)
        return gt_read_no_memory(reader);
    GT_TRY(gt_graph_create(reader->model, at->graph, node, name, scope.prefix, out_graph, reader->err));
    scope.graph = *out_graph;
    gt_map_init(&scope.names, reader->allocator);
    gantry_status status = gt_read_graph(reader, &scope, proto);
    gt_map_free(&scope.names);
    return status;
}
