/* One random model, its random providers, and everything that is checked about their placement, plans and
 * runs. */
#include "plan_case.h"
#include "stub.h"
#include "verify_ledger.h"
#include "verify_placement.h"
#include "verify_plan.h"

#include "core/run.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_DOMAINS 3
#define MAX_STUBS 4
#define MAX_FEEDS 16
#define MAX_RESULTS 8

typedef struct test_case {
    random_source random;
    gt_allocator allocator;
    gantry_runtime runtime;
    gantry_session session;
    gt_session_provider providers[MAX_STUBS];
    gt_session_domain domains[MAX_DOMAINS];
    gt_domain_entry host;
    stub_domain devices[MAX_DOMAINS];
    stub_order order;
    stub_provider stubs[MAX_STUBS];
    uint32_t input_domains[MAX_FEEDS], output_domains[MAX_RESULTS];
    gt_env env;
    int64_t extents[MODEL_OPENS];
    plan_tally *counts;
    char *text;
    bool print;
} test_case;

static bool failed(test_case *c, const char *what, const gantry_error *err)
{
    snprintf(c->text, 400, "%s: %.300s", what, err->message);
    return false;
}

/* A branch is placed when it is first chosen. */
static bool is_unsupported(test_case *c, gantry_status status)
{
    c->counts->unsupported += status == GANTRY_UNSUPPORTED;
    return status == GANTRY_UNSUPPORTED;
}

/* ---- a session without files ----------------------------------------------------------------- */

static void make_domains(test_case *c)
{
    c->session.domain_count =
        random_chance(&c->random, 40) ? MAX_DOMAINS : 1 + random_below(&c->random, MAX_DOMAINS);
    c->session.domains = c->domains;
    snprintf(c->host.info.name, sizeof c->host.info.name, "host");
    c->domains[0] = (gt_session_domain){.name = c->host.info.name, .entry = &c->host};
    for (uint32_t d = 1; d < c->session.domain_count; d++) {
        stub_domain_init(&c->devices[d], d, &c->order, &c->random);
        c->domains[d] =
            (gt_session_domain){.name = c->devices[d].entry.info.name, .entry = &c->devices[d].entry};
    }
    gt_session_link_domains(&c->session);
}

static void make_providers(test_case *c)
{
    static const gantry_dtype precisions[] = {GANTRY_UNDEFINED, GANTRY_FLOAT16, GANTRY_INT8, GANTRY_FLOAT32};
    c->session.provider_count = 1 + random_below(&c->random, MAX_STUBS);
    c->session.providers = c->providers;
    for (uint32_t p = 0; p < c->session.provider_count; p++) {
        bool last = p + 1 == c->session.provider_count;
        stub_provider *stub = &c->stubs[p];
        uint32_t domain = last ? 0 : random_below(&c->random, c->session.domain_count);
        stub_provider_init(stub, p, domain ? &c->devices[domain] : NULL, &c->order, &c->random);
        pthread_mutex_init(&stub->entry.serial, NULL);
        stub->model = c->session.model;
        stub->entry.info.precision = precisions[random_below(&c->random, 4)];
        stub->entry.info.concurrency = (gantry_concurrency)random_below(&c->random, 3);
        stub->entry.available = last || random_chance(&c->random, 95);
        if (last) {
            stub->yes_percent = random_chance(&c->random, 3) ? 95 : 100;
            stub->compile_fails_percent = stub->refuse_percent = 0;
            stub->scale_ns = 20;
        }
        c->providers[p] = (gt_session_provider){.name = stub->entry.info.name,
                                                .entry = stub->entry.available ? &stub->entry : NULL,
                                                .reason = "",
                                                .domain = domain};
    }
}

/* On a device only what has a size before the run. */
static bool may_lie_on_device(const gt_graph *graph, uint32_t id)
{
    const gt_value *value = graph->values.data[id];
    bool may = value->dtype == GANTRY_BFLOAT16 && value->rank >= 0;
    for (int32_t d = 0; may && d < value->rank; d++)
        may = value->dims[d] != GT_EXPR_UNKNOWN && gt_expr_segment(&graph->model->exprs, value->dims[d]) == 0;
    return may;
}

/* Where the caller has its buffers. */
static void choose_places(test_case *c)
{
    const gt_graph *graph = c->session.model->root;
    bool any = random_chance(&c->random, 25);
    c->session.input_domains = c->input_domains;
    c->session.output_domains = c->output_domains;
    for (uint32_t k = 0; any && k < graph->inputs.count; k++)
        if (may_lie_on_device(graph, graph->inputs.data[k]))
            c->input_domains[k] = random_below(&c->random, c->session.domain_count);
    for (uint32_t k = 0; any && k < graph->outputs.count; k++)
        if (may_lie_on_device(graph, graph->outputs.data[k]))
            c->output_domains[k] = random_below(&c->random, c->session.domain_count);
}

static bool make_session(test_case *c, uint32_t max_nodes)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gt_allocator_init(&c->allocator, NULL);
    c->runtime.allocator = c->allocator;
    pthread_mutex_init(&c->runtime.lock, NULL);
    pthread_mutex_init(&c->session.lock, NULL);
    c->session.runtime = &c->runtime;
    c->session.allocator = &c->allocator;
    c->session.created = true;
    c->session.options.threads = 1;
    c->session.options.plan_cache = 1 + random_below(&c->random, 4);
    c->session.options.plan_by_cost = random_chance(&c->random, 50);
    static const uint64_t limits[] = {0, 100, 10000, 1 << 20};
    c->session.options.staging_limit = limits[random_below(&c->random, 4)];
    random_model_shape shape = random_model_choose(&c->random, max_nodes);
    if (random_model_make(&c->allocator, &c->random, &shape, &c->session.model, &err) != GANTRY_OK)
        return failed(c, "no model", &err);
    if (c->session.model->root->inputs.count > MAX_FEEDS ||
        c->session.model->root->outputs.count > MAX_RESULTS)
        abort();
    make_domains(c);
    make_providers(c);
    choose_places(c);
    gantry_status status =
        gt_variant_create(&c->session, NULL, c->session.model->root, &c->session.root, &err);
    return status == GANTRY_OK || failed(c, "no variant", &err);
}

static bool destroy_session(test_case *c)
{
    bool right = true;
    gt_env_free(&c->allocator, &c->env);
    gt_variant_destroy(&c->session.root);
    gt_model_destroy(&c->session.model);
    gt_free(&c->allocator, c->session.scratch_values);
    gt_free(&c->allocator, c->session.scratch_known);
    for (uint32_t p = 0; p < c->session.provider_count; p++) {
        right = right && !c->stubs[p].alive;
        pthread_mutex_destroy(&c->stubs[p].entry.serial);
    }
    for (uint32_t d = 1; d < c->session.domain_count; d++)
        right = right && !c->devices[d].alive;
    pthread_mutex_destroy(&c->session.lock);
    pthread_mutex_destroy(&c->runtime.lock);
    if (!right && !c->text[0])
        snprintf(c->text, 400, "objects of providers or memory of devices are left over");
    return right;
}

/* ---- placement ------------------------------------------------------------------------------- */

static gantry_status judge_again(void *self, const gt_graph *graph, const uint32_t *nodes, uint32_t count,
                                 gantry_verdict *out_verdict)
{
    gantry_body_view no_body = {0};
    const gantry_body_view *bodies[1] = {&no_body};
    gantry_node_view node = {
        .id = nodes[0], .body_count = graph->nodes.data[nodes[0]]->body_count, .bodies = bodies};
    const gantry_node_view *list[1] = {&node};
    gantry_graph_view view = {.node_count = 1, .nodes = list};
    const uint32_t first = 0;
    stub_provider *stub = self;
    return stub->table.judge(stub, &view, &first, 1, out_verdict);
}

static bool has_control(const gt_graph *graph)
{
    for (uint32_t k = 0; k < graph->order.count; k++)
        if (graph->nodes.data[graph->order.data[k]]->body_count)
            return true;
    return false;
}

static bool check_placement(test_case *c, const gt_variant *variant, gantry_status status)
{
    gt_place_provider providers[MAX_STUBS];
    gt_place_domain domains[MAX_DOMAINS] = {{0}};
    uint32_t *source_domain = calloc(variant->graph->values.count + 1, sizeof *source_domain);
    if (!source_domain)
        abort();
    for (uint32_t k = 0; k < variant->graph->inputs.count; k++)
        source_domain[variant->graph->inputs.data[k]] = c->input_domains[k];
    gt_place_options options = {.source_domain = source_domain,
                                .output_domain = c->output_domains,
                                .by_cost = c->session.options.plan_by_cost,
                                .late = variant->late.data,
                                .late_count = variant->late.count};
    for (uint32_t p = 0; p < c->session.provider_count; p++)
        providers[p] = (gt_place_provider){.name = c->providers[p].name,
                                           .domain = c->providers[p].domain,
                                           .precision = c->stubs[p].entry.info.precision,
                                           .available = c->stubs[p].entry.available,
                                           .detail = "",
                                           .judge = judge_again,
                                           .self = &c->stubs[p]};
    for (uint32_t d = 1; d < c->session.domain_count; d++) {
        const gantry_domain_info *info = &c->devices[d].entry.info;
        domains[d] = (gt_place_domain){info->name,
                                       info->to_device_ns,
                                       info->to_host_ns,
                                       info->to_device_bytes_per_ns,
                                       info->to_host_bytes_per_ns,
                                       'a',
                                       c->session.domains[d].peers};
    }
    placement_question question = {variant->graph,          providers, c->session.provider_count, domains,
                                   c->session.domain_count, &options};
    char text[400];
    bool right = verify_placement(&question, status, variant->placement, text);
    if (!right)
        snprintf(c->text, 400, "placement: %.380s", text);
    free(source_domain);
    return right;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void count_step(plan_tally *counts, const gt_step *step)
{
    counts->steps[step->kind]++;
    counts->peers += step->kind == GT_STEP_TRANSFER && step->path == GT_PATH_PEER;
    counts->copied_beside += step->kind == GT_STEP_TRANSFER && step->queue == GT_QUEUE_COPY;
    counts->event_waits += step->kind == GT_STEP_WAIT && step->event != GT_NONE;
}

static void count_plan(plan_tally *counts, const gt_plan *plan)
{
    counts->plans++;
    for (uint32_t k = 0; k < plan->step_count; k++)
        count_step(counts, &plan->steps[k]);
    for (uint32_t k = 0; k < plan->shaped_count; k++)
        for (uint32_t o = 0; plan->shaped[k].info.output_plans &&
                             o < plan->variant->placement->partitions[plan->shaped[k].partition].output_count;
             o++)
            counts->views += plan->shaped[k].info.output_plans[o].view_of_input >= 0;
    for (uint32_t k = 0; k < plan->value_count; k++)
        counts->bounded += plan->shapes[k].bounded;
}

static void choose_extents(test_case *c)
{
    static const int64_t extents[] = {1, 2, 3, 4, 6, 8, 16, 16, 0};
    for (uint32_t k = 0; k < MODEL_OPENS; k++)
        c->extents[k] = extents[random_below(&c->random, random_chance(&c->random, 10) ? 9 : 8)];
}

/* Symbols of inputs; those of data are set as segments go by. */
static bool choose_symbols(test_case *c)
{
    const gt_exprs *exprs = &c->session.model->exprs;
    if (gt_env_reserve(&c->allocator, &c->env, exprs->symbols.count, NULL) != GANTRY_OK)
        return false;
    for (uint32_t k = 0; k < exprs->symbols.count; k++) {
        const gt_symbol *symbol = &exprs->symbols.data[k];
        if (symbol->kind == GT_SYMBOL_INPUT_DIM)
            c->env.values[k].i = c->extents[symbol->name[1] - '0'];
        if (symbol->kind == GT_SYMBOL_INPUT_ELEMENT)
            c->env.values[k].i = random_below(&c->random, 2);
        c->env.known[k] = symbol->kind == GT_SYMBOL_INPUT_DIM || symbol->kind == GT_SYMBOL_INPUT_ELEMENT;
    }
    return true;
}

/* What a run of this plan might find. */
static void choose_results(test_case *c, const gt_segment *segment, const gt_plan *plan)
{
    for (uint32_t k = 0; k < segment->result_count; k++) {
        const gt_result_symbol *result = &segment->results[k];
        const gt_plan_shape *shape = &plan->shapes[result->value];
        int64_t most = result->element || !shape->dims ? 3 : shape->dims[result->axis];
        c->env.values[result->symbol].i = random_below(&c->random, (uint32_t)most + 1);
        c->env.known[result->symbol] = 1;
    }
}

static void print_slots(const gt_plan *plan, const char *what, uint32_t count, const uint32_t *slots)
{
    static const char *const kinds[] = {"arena", "input", "output", "constant", "bind", "carry", "none"};
    printf("%s", what);
    for (uint32_t k = 0; k < count; k++) {
        const gt_slot *s = slots[k] == GT_NO_SLOT ? NULL : &plan->slots[slots[k]];
        if (s)
            printf(" %s=%s%u:%u[%zu+%zu]",
                   s->value == GT_NONE ? "scratch" : plan->variant->graph->values.data[s->value]->name,
                   kinds[s->kind], s->domain, s->index, s->offset_bytes, s->bytes);
    }
}

/* For whoever looks into a failure. */
static void print_plan(const gt_plan *plan)
{
    static const char *const kinds[] = {"transfer", "convert", "run", "wait", "control", "record", "order"};
    printf("plan of segment %u\n", plan->segment);
    for (uint32_t k = 0; k < plan->step_count; k++) {
        const gt_step *step = &plan->steps[k];
        printf("  %u %s, domain %u queue %u:", k, kinds[step->kind], step->domain, step->queue);
        if (step->kind == GT_STEP_TRANSFER || step->kind == GT_STEP_CONVERT) {
            print_slots(plan, "", 1, &step->source);
            print_slots(plan, " ->", 1, &step->target);
        } else if (step->kind >= GT_STEP_RECORD || step->kind == GT_STEP_WAIT) {
            if (step->event != GT_NONE)
                printf(" event %u", step->event);
        } else {
            const gt_partition *partition = &plan->variant->placement->partitions[step->partition];
            for (uint32_t n = 0; n < partition->node_count; n++)
                printf(" %s", plan->variant->graph->nodes.data[partition->nodes[n]]->name);
            print_slots(plan, "\n     ", step->input_count, step->inputs);
            print_slots(plan, " ->", step->output_count, step->outputs);
            print_slots(plan, " with", 1, &step->workspace);
        }
        printf("\n");
    }
}

static bool check_plans(test_case *c, gt_variant *variant);

/* The graph was placed anew, without what was refused. */
static bool check_alternate(test_case *c, gt_variant *variant)
{
    gt_variant *alternate = gt_bind_refused(variant, &c->env);
    c->counts->refused++;
    if (alternate == variant) {
        snprintf(c->text, 400, "a refused shape has no other placement");
        return false;
    }
    if (gt_env_reserve(&c->allocator, &c->env, c->session.model->exprs.symbols.count, NULL) != GANTRY_OK)
        abort();
    return (has_control(alternate->graph) || check_placement(c, alternate, GANTRY_OK)) &&
           check_plans(c, alternate);
}

static bool check_plans(test_case *c, gt_variant *variant)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gt_plan **plans = calloc(variant->segment_count + 1, sizeof(gt_plan *));
    gantry_status status = GANTRY_OK;
    if (!plans)
        abort();
    bool refused = false, made;
    for (uint32_t s = 0; status == GANTRY_OK && !refused && s < variant->segment_count; s++) {
        status = gt_bind_segment(variant, s, &c->env, &plans[s], &refused, &made, &err);
        if (status == GANTRY_OK && !refused) {
            choose_results(c, &variant->segments[s], plans[s]);
            if (c->print)
                print_plan(plans[s]);
            count_plan(c->counts, plans[s]);
        }
    }
    /* Sizes that were only made up need not fit each other; later segments have no other placement. */
    bool impossible = status == GANTRY_INPUT_SHAPE && plans[0];
    bool right;
    if (impossible || is_unsupported(c, status))
        right = true;
    else if (status != GANTRY_OK)
        right = failed(c, "bind", &err);
    else if (refused)
        right = check_alternate(c, variant);
    else
        right = verify_plans(variant, (const gt_plan *const *)plans, c->text);
    if (right && c->counts->breaks && !refused && status == GANTRY_OK)
        plan_breaks_make(c->counts->breaks, &c->random, variant, (const gt_plan *const *)plans);
    c->counts->impossible += impossible;
    c->counts->segments += variant->segment_count;
    for (uint32_t s = 0; s < variant->segment_count; s++)
        gt_plan_release(&c->session, &plans[s]);
    free(plans);
    return right;
}

/* The plans a frame used last, and those of the bodies below it. */
static bool check_frame(test_case *c, const gt_frame *frame)
{
    const gt_variant *leaf = frame->leaf;
    bool complete = leaf != NULL, right = true;
    for (uint32_t s = 0; complete && s < leaf->segment_count; s++)
        complete = frame->current[s] != NULL;
    if (!complete)
        return true;
    const gt_plan **plans = calloc(leaf->segment_count + 1, sizeof(gt_plan *));
    if (!plans)
        abort();
    for (uint32_t s = 0; s < leaf->segment_count; s++) {
        plans[s] = frame->current[s]->plan;
        if (c->print)
            print_plan(plans[s]);
        count_plan(c->counts, plans[s]);
    }
    right = verify_plans(leaf, plans, c->text);
    if (right && c->counts->breaks)
        plan_breaks_make(c->counts->breaks, &c->random, leaf, plans);
    free(plans);
    for (uint32_t p = 0; right && p < leaf->placement->partition_count; p++) {
        const gt_frame *below[2];
        uint32_t count = gt_control_frames(frame->controls[p], below);
        for (uint32_t k = 0; right && k < count; k++)
            right = check_frame(c, below[k]);
    }
    return right;
}

/* ---- runs ------------------------------------------------------------------------------------ */

typedef struct feed_set {
    stub_tensor feeds[MAX_FEEDS], results[MAX_RESULTS];
    void *inputs[MAX_FEEDS];    /* on a device, or NULL */
    bool left_out[MAX_FEEDS];   /* the default is used */
    void *buffers[MAX_RESULTS]; /* of the caller, or NULL */
} feed_set;

static stub_domain *device_of(test_case *c, uint32_t domain)
{
    return domain ? &c->devices[domain] : NULL;
}

static void *take_memory(test_case *c, uint32_t domain, size_t bytes)
{
    stub_domain *device = device_of(c, domain);
    void *memory = NULL;
    if (device)
        device->table.alloc(device, bytes, GANTRY_MEMORY_DEVICE, &memory, NULL);
    else
        memory = malloc(bytes ? bytes : 1);
    return memory;
}

static void give_back(test_case *c, uint32_t domain, void *memory)
{
    stub_domain *device = device_of(c, domain);
    if (device && memory)
        device->table.free(device, memory, GANTRY_MEMORY_DEVICE);
    else if (!device)
        free(memory);
}

static void make_feeds(test_case *c, feed_set *set)
{
    const gt_graph *graph = c->session.model->root;
    for (uint32_t k = 0; k < graph->inputs.count && k < MAX_FEEDS; k++) {
        const gt_value *value = graph->values.data[graph->inputs.data[k]];
        stub_tensor *feed = &set->feeds[k];
        *feed = stub_feed(value, c->extents);
        set->left_out[k] =
            value->constant != GT_NONE && !c->input_domains[k] && random_chance(&c->random, 50);
        if (set->left_out[k]) {
            feed->data = (uint8_t *)(uintptr_t)c->session.model->constants.data[value->constant].data;
            feed->owned = false;
            continue;
        }
        stub_feed_fill(feed, &c->random);
    }
}

static void free_feeds(test_case *c, feed_set *set)
{
    for (uint32_t k = 0; k < MAX_FEEDS; k++) {
        stub_tensor_free(&set->feeds[k]);
        give_back(c, c->input_domains[k], set->inputs[k]);
    }
    for (uint32_t k = 0; k < MAX_RESULTS; k++) {
        stub_tensor_free(&set->results[k]);
        give_back(c, c->output_domains[k], set->buffers[k]);
    }
}

static gantry_status bind_all(test_case *c, gantry_run *run, feed_set *set, gantry_error *err)
{
    const gt_graph *graph = c->session.model->root;
    for (uint32_t k = 0; k < graph->inputs.count; k++) {
        stub_tensor *feed = &set->feeds[k];
        size_t bytes = stub_tensor_bytes(feed);
        gantry_tensor tensor = {.struct_bytes = sizeof tensor,
                                .dtype = feed->dtype,
                                .rank = feed->rank,
                                .dims = feed->dims,
                                .domain = c->domains[c->input_domains[k]].name,
                                .buffer = {feed->data, 0},
                                .size_bytes = bytes};
        if (c->input_domains[k]) {
            tensor.buffer.handle = set->inputs[k] = take_memory(c, c->input_domains[k], bytes);
            memcpy(stub_bytes(device_of(c, c->input_domains[k]), tensor.buffer, bytes), feed->data, bytes);
        }
        GT_TRY(gantry_run_bind_input(run, k, set->left_out[k] ? NULL : &tensor, err));
    }
    for (uint32_t k = 0; k < graph->outputs.count; k++) {
        size_t bytes = stub_tensor_bytes(&set->results[k]);
        set->buffers[k] = random_chance(&c->random, 40) ? take_memory(c, c->output_domains[k], bytes) : NULL;
        gantry_tensor tensor = {.struct_bytes = sizeof tensor,
                                .dtype = set->results[k].dtype,
                                .domain = c->domains[c->output_domains[k]].name,
                                .buffer = {set->buffers[k], 0},
                                .size_bytes = bytes};
        GT_TRY(gantry_run_bind_output(run, k, set->buffers[k] ? &tensor : NULL, err));
    }
    return GANTRY_OK;
}

static bool same_result(test_case *c, gantry_run *run, const feed_set *set, uint32_t k)
{
    const gt_graph *graph = c->session.model->root;
    const char *name = graph->values.data[graph->outputs.data[k]]->name;
    const stub_tensor *wanted = &set->results[k];
    gantry_tensor got = {.struct_bytes = sizeof got};
    gantry_error err = GANTRY_ERROR_INIT;
    size_t bytes = stub_tensor_bytes(wanted);
    if (gantry_run_output(run, k, &got, &err) != GANTRY_OK)
        return failed(c, "output", &err);
    bool shape = got.dtype == wanted->dtype && got.rank == wanted->rank && got.size_bytes == bytes &&
                 (!bytes || memcmp(got.dims, wanted->dims, got.rank * sizeof *got.dims) == 0);
    stub_work_touch(&c->order, NULL, device_of(c, c->output_domains[k]), got.buffer, shape ? bytes : 0, false,
                    "the caller reads");
    uint8_t *data = shape ? stub_bytes(device_of(c, c->output_domains[k]), got.buffer, bytes) : NULL;
    bool content = data && (!bytes || (wanted->data && memcmp(data, wanted->data, bytes) == 0));
    if (!content)
        snprintf(c->text, 400, "output %u (%s) has another %s than the graph says", k, name,
                 shape ? "content" : "shape");
    return content;
}

static bool no_complaints(test_case *c)
{
    for (uint32_t p = 0; p < c->session.provider_count; p++)
        if (c->stubs[p].failure[0]) {
            snprintf(c->text, 400, "%s: %.300s", c->providers[p].name, c->stubs[p].failure);
            return false;
        }
    if (c->order.wrong[0]) {
        snprintf(c->text, 400, "%s", c->order.wrong);
        return false;
    }
    for (uint32_t d = 1; d < c->session.domain_count; d++)
        if (c->devices[d].broken) {
            snprintf(c->text, 400, "an access to %s outside of its blocks", c->domains[d].name);
            return false;
        }
    return true;
}

static void forget_counts(test_case *c)
{
    for (uint32_t d = 1; d < c->session.domain_count; d++) {
        memset(c->devices[d].copies, 0, sizeof c->devices[d].copies);
        memset(c->devices[d].bytes, 0, sizeof c->devices[d].bytes);
    }
}

static bool run_once(test_case *c, gantry_run *run)
{
    gantry_error err = GANTRY_ERROR_INIT;
    feed_set set = {0};
    const gt_graph *graph = c->session.model->root;
    choose_extents(c);
    make_feeds(c, &set);
    bool right = stub_evaluate(graph, set.feeds, NULL, set.results);
    if (!right)
        snprintf(c->text, 400, "the graph can't be evaluated");
    for (uint32_t again = 0; right && again < 2; again++) {
        if (again == 0)
            right = bind_all(c, run, &set, &err) == GANTRY_OK || failed(c, "binding", &err);
        forget_counts(c);
        gantry_status status = right ? gantry_run_execute(run, &err) : GANTRY_OK;
        if (is_unsupported(c, status))
            break;
        right = right && (status == GANTRY_OK || failed(c, "run", &err));
        right =
            right && no_complaints(c) && check_frame(c, run->root) && verify_ledger(run, c->devices, c->text);
        for (uint32_t k = 0; right && k < graph->outputs.count; k++)
            right = same_result(c, run, &set, k);
        c->counts->runs += right;
    }
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        (void)gantry_run_bind_output(run, k, NULL, &err);
    free_feeds(c, &set);
    return right;
}

static bool run_case(test_case *c)
{
    gantry_run *run = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    if (gantry_run_create(&c->session, &run, &err) != GANTRY_OK)
        return failed(c, "no run", &err);
    bool right = true;
    for (uint32_t k = random_chance(&c->random, 40) ? 3 : 1; right && k > 0; k--)
        right = run_once(c, run);
    gantry_run_destroy(&run);
    return right;
}

/* ---- a case ---------------------------------------------------------------------------------- */

static bool check_compiled(test_case *c)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gt_variant *leaf = NULL;
    c->counts->compiled++;
    choose_extents(c);
    if (!choose_symbols(c))
        abort();
    gantry_status status = gt_bind_variant(c->session.root, &c->env, &leaf, &err);
    if (status != GANTRY_OK)
        return is_unsupported(c, status) || failed(c, "no leaf", &err);
    if (gt_env_reserve(&c->allocator, &c->env, c->session.model->exprs.symbols.count, NULL) != GANTRY_OK)
        return false;
    c->counts->open += leaf->segments[0].symbol_count > 0;
    return (has_control(leaf->graph) || check_placement(c, leaf, GANTRY_OK)) && check_plans(c, leaf);
}

bool plan_case_check(random_source random, uint32_t max_nodes, bool print, plan_tally *counts, char *out_text)
{
    gantry_error err = GANTRY_ERROR_INIT;
    test_case *c = calloc(1, sizeof *c);
    if (!c)
        abort();
    c->random = random;
    c->order.deaf = counts->deaf_wait;
    c->counts = counts;
    c->print = print;
    c->text = out_text;
    bool right = make_session(c, max_nodes);
    if (right) {
        gantry_status status = gt_variant_compile(c->session.root, &err);
        if (!is_unsupported(c, status))
            right = (status == GANTRY_OK || failed(c, "compile", &err)) && check_compiled(c) && run_case(c);
    }
    right = destroy_session(c) && right;
    stub_order_free(&c->order);
    free(c);
    return right;
}
