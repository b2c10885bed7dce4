/* A small language for graphs in tests of the rewrites: values by name, shapes as texts, sources as a file
 * would have them, and questions about what is left. */
#ifndef GT_TEST_REWRITE_FIXTURE_H
#define GT_TEST_REWRITE_FIXTURE_H

#include "graph/rewrite.h"

#include <criterion/criterion.h>
#include <stdlib.h>

typedef struct fixture {
    gt_allocator allocator;
    gt_model *model;
    gt_graph *graph; /* where values and nodes are added */
    gt_rewrite_options options;
    gantry_error error;
    int evaluations; /* by the evaluator below */
} fixture;

#define CHECK(f, call)                                                                                       \
    do {                                                                                                     \
        gantry_status status_ = (call);                                                                      \
        cr_assert_eq(status_, GANTRY_OK, "%s: status %d: %s", #call, status_, (f)->error.message);           \
    } while (0)

static inline uint64_t count_of(const gantry_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t k = 0; k < tensor->rank; k++)
        count *= (uint64_t)tensor->dims[k];
    return count;
}

/* Neg, and Add of equal shapes, of floats; anything else cannot be evaluated. */
static inline gantry_status evaluate_few(void *self, const gt_graph *graph, uint32_t id,
                                         const gantry_tensor *inputs, gantry_tensor *outputs, gt_arena *arena,
                                         gantry_error *err)
{
    const gt_node *node = graph->nodes.data[id];
    bool neg = strcmp(node->op_type, "Neg") == 0, add = strcmp(node->op_type, "Add") == 0;
    ((fixture *)self)->evaluations++;
    if ((!neg && !add) || inputs[0].dtype != GANTRY_FLOAT32)
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, node->name, "not in this test");
    uint64_t count = count_of(&inputs[0]);
    cr_assert_eq(outputs[0].rank, inputs[0].rank);
    float *out = gt_arena_array(arena, count, sizeof *out);
    const float *a = inputs[0].buffer.handle, *b = add ? inputs[1].buffer.handle : NULL;
    for (uint64_t k = 0; k < count; k++)
        out[k] = neg ? -a[k] : a[k] + b[k];
    outputs[0].buffer.handle = out;
    outputs[0].size_bytes = count * sizeof *out;
    return GANTRY_OK;
}

static inline void fixture_init(fixture *f)
{
    *f = (fixture){.error = GANTRY_ERROR_INIT};
    gt_allocator_init(&f->allocator, NULL);
    CHECK(f, gt_model_create(&f->allocator, &f->model, &f->error));
    CHECK(f, gt_graph_create(f->model, NULL, GT_NONE, "main", "", &f->graph, &f->error));
    f->model->root = f->graph;
    gt_opset opset = {"", 17};
    cr_assert(gt_vec_push(&f->allocator, &f->model->opsets, opset));
    f->options = (gt_rewrite_options){.enabled = true,
                                      .fold = true,
                                      .fold_limit_bytes = 1 << 24,
                                      .evaluate = evaluate_few,
                                      .evaluate_self = f};
}

static inline void fixture_free(fixture *f)
{
    gt_model_destroy(&f->model);
}

/* A fixture for tests that need one only: Test(suite, name, .init = begin, .fini = end). */
static fixture fix;

static inline void begin(void)
{
    fixture_init(&fix);
}

static inline void end(void)
{
    fixture_free(&fix);
}

/* ---- building */

static inline uint32_t value(fixture *f, const char *name)
{
    uint32_t id = gt_map_get(&f->graph->value_names, name, strlen(name), GT_NONE);
    if (strcmp(name, "-") == 0)
        return GT_NONE;
    if (id == GT_NONE)
        CHECK(f, gt_graph_add_value(f->graph, name, &id, &f->error));
    return id;
}

/* The value of that name; asking may add it, which moves the array it stands in. */
static inline gt_value *named(fixture *f, const char *name)
{
    uint32_t id = value(f, name);
    return f->graph->values.data[id];
}

static inline uint32_t parse_shape(const char *text, int64_t *dims)
{
    uint32_t rank = 0;
    while (*text) {
        char *end;
        dims[rank++] = (*text >= '0' && *text <= '9') ? strtoll(text, &end, 10) : -1;
        text = strchr(text, ',') ? strchr(text, ',') + 1 : "";
    }
    return rank;
}

/* shape: "1,3,n"; each name is a symbol of its own. */
static inline void input(fixture *f, const char *name, gantry_dtype dtype, const char *shape)
{
    gt_value *v = named(f, name);
    int64_t dims[GANTRY_MAX_RANK];
    v->declared_dtype = dtype;
    v->declared_rank = (int32_t)parse_shape(shape, dims);
    v->declared_dims = gt_arena_copy(&f->model->arena, dims, sizeof dims);
    v->input_index = (int32_t)f->graph->inputs.count;
    cr_assert(gt_vec_push(&f->allocator, &f->graph->inputs, value(f, name)));
}

static inline void output(fixture *f, const char *name)
{
    named(f, name)->is_output = true;
    cr_assert(gt_vec_push(&f->allocator, &f->graph->outputs, value(f, name)));
}

static inline void constant(fixture *f, const char *name, gantry_dtype dtype, const char *shape,
                            const void *data)
{
    int64_t dims[GANTRY_MAX_RANK];
    uint32_t rank = parse_shape(shape, dims), id;
    CHECK(f, gt_graph_add_constant(f->graph, name, dtype, rank, dims, data, &id, &f->error));
}

static inline void number(fixture *f, const char *name, float number)
{
    constant(f, name, GANTRY_FLOAT32, "", &number);
}

static inline uint32_t parse_values(fixture *f, const char *names, uint32_t *ids)
{
    char copy[512], *save = NULL;
    uint32_t count = 0;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save))
        ids[count++] = value(f, name);
    return count;
}

/* inputs and outputs: names parted by blanks, "-" for one left out. */
static inline uint32_t node(fixture *f, const char *name, const char *op, const char *inputs,
                            const char *outputs)
{
    uint32_t in[16], out[16], id, in_count = parse_values(f, inputs, in),
                                  out_count = parse_values(f, outputs, out);
    CHECK(f, gt_graph_add_node(f->graph, name, "", op, 17, in_count, in, out_count, out, &id, &f->error));
    gt_source source = {.name = name, .op = op, .domain = "", .holders = 1};
    cr_assert(gt_vec_push(&f->allocator, &f->model->sources, source));
    uint32_t index = f->model->sources.count - 1;
    f->graph->nodes.data[id]->lineage =
        (gt_lineage){1, gt_arena_copy(&f->model->arena, &index, sizeof index), NULL};
    return id;
}

static inline void simplify(fixture *f)
{
    if (f->graph == f->model->root)
        CHECK(f, gt_infer_inputs(f->model, NULL, &f->error));
    CHECK(f, gt_simplify(f->model->root, &f->options, &f->error));
}

/* The usual end of a graph. */
static inline void simplify_to(fixture *f, const char *name)
{
    output(f, name);
    simplify(f);
}

/* ---- asking */

static inline const gt_node *find(const fixture *f, const char *name)
{
    for (uint32_t k = 0; k < f->graph->order.count; k++) {
        const gt_node *n = f->graph->nodes.data[f->graph->order.data[k]];
        if (strcmp(n->name, name) == 0)
            return n;
    }
    return NULL;
}

static inline uint32_t count_op(const fixture *f, const char *op)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < f->graph->order.count; k++)
        count += strcmp(f->graph->nodes.data[f->graph->order.data[k]]->op_type, op) == 0;
    return count;
}

static inline const gt_rewrite_record *record(const fixture *f, const char *rule, const char *node_name)
{
    for (uint32_t k = 0; k < f->model->rewrites.count; k++) {
        const gt_rewrite_record *r = &f->model->rewrites.data[k];
        if (strcmp(r->rule, rule) == 0 && strcmp(r->node, node_name) == 0)
            return r;
    }
    return NULL;
}

/* "" when the source lives on in some node. */
static inline const char *removed_by(const fixture *f, const char *source)
{
    for (uint32_t k = 0; k < f->model->sources.count; k++)
        if (strcmp(f->model->sources.data[k].name, source) == 0)
            return f->model->sources.data[k].removed_by ? f->model->sources.data[k].removed_by : "";
    return "no such source";
}

/* The names of a node's sources in order, parted by blanks. */
static inline const char *lineage(const fixture *f, const gt_node *n)
{
    static char text[1024];
    text[0] = 0;
    for (uint32_t k = 0; k < n->lineage.count; k++) {
        if (k)
            strcat(text, " ");
        strcat(text, f->model->sources.data[n->lineage.sources[k]].name);
    }
    return text;
}

static inline const gt_value *output_value(const fixture *f, uint32_t k)
{
    return f->graph->values.data[f->graph->outputs.data[k]];
}

static inline const float *floats_of(const fixture *f, const gt_value *v)
{
    cr_assert_neq(v->constant, GT_NONE, "%s is no constant", v->name);
    return f->model->constants.data[v->constant].data;
}

#define CHECK_STATE(f, rule, node_name, wanted_state, wanted_guard)                                          \
    do {                                                                                                     \
        const gt_rewrite_record *record_ = record((f), (rule), (node_name));                                 \
        cr_assert(record_, "no record %s %s", (rule), (node_name));                                          \
        cr_assert_str_eq(record_->state, (wanted_state));                                                    \
        cr_assert_str_eq(record_->guard ? record_->guard : "", (wanted_guard));                              \
    } while (0)

#endif
