/* A small graph to place, providers that answer from a table, and ways to ask what came of it. */
#ifndef GT_TESTS_UNIT_PLACE_FIXTURE_H
#define GT_TESTS_UNIT_PLACE_FIXTURE_H

#include "graph/op.h"
#include "graph/place.h"

#include <criterion/criterion.h>
#include <math.h>

#define MAX_ROWS 32
#define ANY ((const char *)NULL)

/* What one provider answers for an operator or for a node of that name; the first row that fits counts. */
typedef struct answer {
    const char *provider;
    const char *what; /* operator type or node name; ANY: all others */
    double estimate_ns;
    gantry_dtype executes_in;
    gantry_refusal_code refusal; /* 0: supported */
} answer;

typedef struct fixture {
    gt_allocator allocator;
    gt_model *model;
    gt_graph *graph;
    answer answers[MAX_ROWS];
    uint32_t answer_count;
    const gt_graph *shown; /* the graph that judges see, when show is the hook */
    gt_place_provider providers[4];
    const char *names[4];
    struct judge_self {
        struct fixture *fixture;
        const char *name;
    } selves[4];
    uint32_t provider_count;
    gt_place_domain domains[3];
    uint32_t domain_count;
    gt_place_options options;
    gt_placement *placement;
    gantry_error err;
} fixture;

static inline gantry_status judge(void *self, const gt_graph *graph, const uint32_t *nodes, uint32_t count,
                                  gantry_verdict *out_verdict)
{
    const struct judge_self *me = (const struct judge_self *)self;
    const gt_node *node = graph->nodes.data[nodes[0]];
    const fixture *f = me->fixture;
    if (f->shown)
        cr_assert_eq(f->shown, graph, "judged %s without being shown its graph", node->name);
    for (uint32_t k = 0; k < f->answer_count; k++) {
        const answer *a = &f->answers[k];
        if (strcmp(a->provider, me->name) != 0 ||
            (a->what && strcmp(a->what, node->op_type) != 0 && strcmp(a->what, node->name) != 0))
            continue;
        if (a->refusal) {
            gantry_refuse(out_verdict, a->refusal, node->op_type, "float32", "int8", "");
            return GANTRY_OK;
        }
        out_verdict->supported = 1;
        out_verdict->estimate_ns = a->estimate_ns;
        out_verdict->executes_in = a->executes_in;
        return GANTRY_OK;
    }
    return GANTRY_OK; /* no answer at all: counts as no_kernel */
}

static inline void add_provider(fixture *f, const char *name, uint32_t domain)
{
    uint32_t k = f->provider_count++;
    f->selves[k] = (struct judge_self){f, name};
    f->providers[k] = (gt_place_provider){.name = name,
                                          .domain = domain,
                                          .available = true,
                                          .detail = "",
                                          .judge = judge,
                                          .self = &f->selves[k]};
}

static inline void answers(fixture *f, const char *provider, const char *what, double estimate_ns)
{
    f->answers[f->answer_count++] =
        (answer){provider, what, estimate_ns, GANTRY_UNDEFINED, GANTRY_REFUSE_NONE};
}

static inline void computes_in(fixture *f, const char *provider, const char *what, gantry_dtype dtype)
{
    f->answers[f->answer_count++] = (answer){provider, what, 100, dtype, GANTRY_REFUSE_NONE};
}

static inline void refuses(fixture *f, const char *provider, const char *what, gantry_refusal_code code)
{
    f->answers[f->answer_count++] = (answer){provider, what, 0, GANTRY_UNDEFINED, code};
}

/* "dev" in domain 1 and "cpu" on the host, 1 us and 1 byte/ns apart. */
static inline fixture *make(void)
{
    fixture *f = calloc(1, sizeof *f);
    gt_allocator_init(&f->allocator, NULL);
    f->err.struct_bytes = sizeof f->err;
    cr_assert_eq(gt_model_create(&f->allocator, &f->model, &f->err), GANTRY_OK);
    if (!f->model->root)
        cr_assert_eq(gt_graph_create(f->model, NULL, GT_NONE, "test", "", &f->model->root, &f->err),
                     GANTRY_OK);
    f->graph = f->model->root;
    add_provider(f, "dev", 1);
    add_provider(f, "cpu", 0);
    f->domains[0].name = "host";
    f->domains[1] = (gt_place_domain){"dev:0", 1000, 1000, 1, 1, 'a'};
    f->domains[2] = (gt_place_domain){"dev:1", 1000, 1000, 1, 1, 'a'};
    f->domain_count = 3;
    return f;
}

static inline void drop(fixture *f)
{
    gt_placement_destroy(&f->allocator, &f->placement);
    gt_model_destroy(&f->model);
    free(f);
}

static inline gt_expr number(fixture *f, int64_t value)
{
    return gt_expr_const(&f->model->exprs, value);
}

static inline uint32_t value_in(fixture *f, gt_graph *graph, const char *name)
{
    uint32_t id = gt_map_get(&graph->value_names, name, strlen(name), GT_NONE);
    if (id != GT_NONE)
        return id;
    cr_assert_eq(gt_graph_add_value(graph, name, &id, &f->err), GANTRY_OK, "%s", f->err.message);
    gt_expr *dims = GT_ARENA_ARRAY(&f->model->arena, gt_expr, 2);
    dims[0] = number(f, 8);
    dims[1] = number(f, 32);
    gt_value *value = graph->values.data[id];
    value->kind = GANTRY_KIND_TENSOR;
    value->dtype = GANTRY_FLOAT32;
    value->rank = 2;
    value->dims = dims;
    return id;
}

static inline uint32_t value(fixture *f, const char *name)
{
    return value_in(f, f->graph, name);
}

static inline gt_value *info(fixture *f, const char *name)
{
    uint32_t id = value(f, name); /* may move the array of values */
    return f->graph->values.data[id];
}

static inline void input_of(fixture *f, gt_graph *graph, const char *name)
{
    uint32_t id = value_in(f, graph, name);
    graph->values.data[id]->input_index = (int32_t)graph->inputs.count;
    cr_assert(gt_vec_push(&f->allocator, &graph->inputs, id));
}

static inline void output_of(fixture *f, gt_graph *graph, const char *name)
{
    uint32_t id = value_in(f, graph, name);
    graph->values.data[id]->is_output = true;
    cr_assert(gt_vec_push(&f->allocator, &graph->outputs, id));
}

static inline void input(fixture *f, const char *name)
{
    input_of(f, f->graph, name);
}

static inline void output(fixture *f, const char *name)
{
    output_of(f, f->graph, name);
}

/* A node with up to two inputs (NULL: none) and one output. */
static inline uint32_t node_in(fixture *f, gt_graph *graph, const char *name, const char *op, const char *a,
                               const char *b, const char *out)
{
    uint32_t inputs[2], count = 0, id, result = value_in(f, graph, out);
    if (a)
        inputs[count++] = value_in(f, graph, a);
    if (b)
        inputs[count++] = value_in(f, graph, b);
    cr_assert_eq(gt_graph_add_node(graph, name, "", op, 21, count, inputs, 1, &result, &id, &f->err),
                 GANTRY_OK, "%s", f->err.message);
    return id;
}

static inline uint32_t node(fixture *f, const char *name, const char *op, const char *a, const char *b,
                            const char *out)
{
    return node_in(f, f->graph, name, op, a, b, out);
}

static inline gantry_status place(fixture *f)
{
    gt_placement_destroy(&f->allocator, &f->placement);
    cr_assert_eq(gt_graph_sort(f->graph, &f->err), GANTRY_OK, "%s", f->err.message);
    return gt_place(f->graph, f->providers, f->provider_count, f->domains, f->domain_count, &f->options,
                    &f->placement, &f->err);
}

static inline void must_place(fixture *f)
{
    gantry_status status = place(f);
    cr_assert_eq(status, GANTRY_OK, "status %d: %s", status, f->err.message);
}

static inline uint32_t node_id(const fixture *f, const char *name)
{
    for (uint32_t k = 0; k < f->graph->nodes.count; k++)
        if (!f->graph->nodes.data[k]->removed && strcmp(f->graph->nodes.data[k]->name, name) == 0)
            return k;
    cr_assert_fail("no node %s", name);
    return GT_NONE;
}

static inline const gt_unit *unit(const fixture *f, const char *name)
{
    uint32_t index = f->placement->unit_of_node[node_id(f, name)];
    cr_assert_neq(index, GT_NONE, "%s has no unit", name);
    return &f->placement->units[index];
}

static inline const char *provider_of(const fixture *f, const char *name)
{
    const gt_unit *u = unit(f, name);
    return u->provider == GT_NONE ? "none" : f->providers[u->provider].name;
}

#define ON(name, provider)                                                                                   \
    cr_assert_str_eq(provider_of(f, name), provider, "%s is on %s", name, provider_of(f, name))

static inline const gt_kept_verdict *verdict(const fixture *f, const char *name, const char *provider)
{
    for (uint32_t p = 0; p < f->provider_count; p++)
        if (strcmp(f->providers[p].name, provider) == 0)
            return &unit(f, name)->verdicts[p];
    cr_assert_fail("no provider %s", provider);
    return NULL;
}

static inline gantry_refusal_code refusal(const fixture *f, const char *name, const char *provider)
{
    const gt_kept_verdict *v = verdict(f, name, provider);
    return v->refusal ? v->refusal->code : GANTRY_REFUSE_NONE;
}

#define REFUSED(name, provider, code)                                                                        \
    cr_assert_eq(refusal(f, name, provider), GANTRY_REFUSE_##code, "%s on %s: %s", name, provider,           \
                 gantry_refusal_text(refusal(f, name, provider)))

static inline const gt_boundary *boundary(fixture *f, const char *name)
{
    uint32_t id = value(f, name);
    for (uint32_t k = 0; k < f->placement->boundary_count; k++)
        if (f->placement->boundaries[k].value == id)
            return &f->placement->boundaries[k];
    return NULL;
}

static inline const gt_partition *partition(const fixture *f, const char *name)
{
    return &f->placement->partitions[f->placement->partition_of_node[node_id(f, name)]];
}

static inline bool lists(const uint32_t *list, uint32_t count, uint32_t id)
{
    for (uint32_t k = 0; k < count; k++)
        if (list[k] == id)
            return true;
    return false;
}

#endif
