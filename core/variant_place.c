/* From a graph to programs: judging, placing, compiling, and placing again when a provider fails. */
#include "answer.h"
#include "session.h"
#include "variant_parts.h"

#include "base/clock.h"
#include "graph/infer.h"

void gt_variant_destroy_program(gantry_session *session, const gt_placement *placement, gt_program *programs,
                                uint32_t index)
{
    gt_program *slot = &programs[index];
    if (slot->program) {
        const gantry_provider *table = session->providers[placement->partitions[index].provider].entry->table;
        table->program_destroy(table->self, slot->program);
        slot->program = NULL;
        gt_session_charge_program(session, table, slot);
    }
    gt_variant_destroy(&slot->bodies[0]);
    gt_variant_destroy(&slot->bodies[1]);
    gt_recorder_free(&slot->records);
    gt_arena_clear(&slot->arena);
    *slot = (gt_program){0};
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The graph that providers are asked about, as they see it. */
typedef struct shown_graph {
    gt_arena *arena;
    gt_view view;
    uint32_t *indexes; /* room for the nodes of one unit */
    uint32_t capacity;
} shown_graph;

typedef struct judge_self {
    const gantry_provider *table;
    const shown_graph *shown;
    const gt_options *options;
    double ns; /* spent in the provider */
} judge_self;

/* Placement asks about another graph now: the body of a composite, or the graph after one was expanded. */
static gantry_status show_graph(void *self, const gt_graph *graph, gantry_error *err)
{
    shown_graph *shown = self;
    shown->capacity = graph->nodes.count + 1;
    shown->indexes = GT_ARENA_ARRAY(shown->arena, uint32_t, shown->capacity);
    if (!shown->indexes)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    return gt_view_graph(shown->arena, graph, &shown->view, err);
}

/* Our node ids become indexes of the view that the providers see. */
static gantry_status judge(void *self, const gt_graph *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    judge_self *judge = self;
    const shown_graph *shown = judge->shown;
    for (uint32_t k = 0; k < count && k < shown->capacity; k++)
        shown->indexes[k] = shown->view.node_index[nodes[k]];
    GT_ROOMY(gantry_verdict) filled = {.value = *out_verdict};
    filled.value.session_options = judge->options;
    uint64_t begin = gt_now_ns();
    gantry_status status =
        judge->table->judge(judge->table->self, &shown->view.view, shown->indexes, count, &filled.value);
    judge->ns += (double)(gt_now_ns() - begin);
    *out_verdict = filled.value;
    return status;
}

static void describe_domains(const gantry_session *session, gt_place_domain *domains)
{
    for (uint32_t k = 0; k < session->domain_count; k++) {
        const gantry_domain_info *info = &session->domains[k].info;
        domains[k] =
            (gt_place_domain){session->domains[k].name,   info->to_device_ns,
                              info->to_host_ns,           info->to_device_bytes_per_ns,
                              info->to_host_bytes_per_ns, info->cost_source ? info->cost_source : 'a',
                              session->domains[k].peers};
    }
}

/* What one gt_place is told, in an arena of its own. */
typedef struct question {
    gt_arena arena;
    shown_graph shown;
    gt_place_provider *providers;
    judge_self *selves;
    gt_place_domain *domains;
    uint32_t *source_domain;
    double *outside_share;
    const uint32_t *output_domain;
    GT_VEC(gt_control_read) control_reads;
} question;

/* Programs of the placement before: their control nodes say what their bodies read and leave where. */
typedef struct known_programs {
    const gt_placement *placement; /* NULL: there are none yet */
    const gt_program *programs;
} known_programs;

static void describe_providers(const gantry_session *session, question *q)
{
    for (uint32_t k = 0; k < session->provider_count; k++) {
        const gt_session_provider *p = &session->providers[k];
        bool available = p->entry != NULL;
        q->selves[k] = (judge_self){available ? p->entry->table : NULL, &q->shown, &session->options, 0};
        q->providers[k] =
            (gt_place_provider){.name = p->name,
                                .domain = p->domain,
                                .precision = available ? p->entry->info.precision : GANTRY_UNDEFINED,
                                .available = available,
                                .detail = p->reason,
                                .judge = judge,
                                .self = &q->selves[k]};
    }
}

/* ---- what lies where, for one gt_place ------------------------------------------------------- */

static bool is_loop(const gt_node *node)
{
    return strcmp(node->op_type, "Loop") == 0;
}

/* Inputs where they are chosen to lie; captures where the graph around has them, which brings them. */
static void describe_sources(const gt_variant *variant, question *q)
{
    const gt_graph *graph = variant->graph;
    for (uint32_t k = 0; k < graph->inputs.count; k++)
        q->source_domain[graph->inputs.data[k]] = variant->input_domains[k];
    for (uint32_t v = 0; q->outside_share && v < graph->values.count; v++) {
        const gt_value *value = graph->values.data[v];
        q->outside_share[v] = -1;
        if (value->captured == GT_NONE || value->constant != GT_NONE)
            continue;
        q->source_domain[v] = gt_variant_value_domain(variant, v);
        q->outside_share[v] = 1 / variant->iterations;
    }
}

/* Carried values of a loop whose homes are not chosen yet, and outputs that may stay where they are made. */
static gantry_status describe_open(const gt_variant *variant, question *q, const gt_node *node,
                                   gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    const gt_variant *outer = gt_variant_outer(variant);
    uint32_t *wanted = GT_ARENA_ARRAY(&q->arena, uint32_t, graph->outputs.count + 1);
    if (!wanted)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        wanted[k] = is_loop(node) && k == 0 ? 0 : GT_PLACE_ANYWHERE;
    for (uint32_t k = 2; is_loop(node) && k < graph->inputs.count && k < node->input_count; k++) {
        if (node->inputs[k] == GT_NONE)
            continue;
        q->source_domain[graph->inputs.data[k]] = gt_variant_value_domain(outer, node->inputs[k]);
        q->outside_share[graph->inputs.data[k]] = 1 / variant->iterations;
    }
    q->output_domain = wanted;
    return GANTRY_OK;
}

/* What nobody knows yet costs nothing: the graph is placed again when the bodies are compiled. */
static void describe_unknown_controls(const gt_variant *variant, question *q)
{
    const gt_graph *graph = variant->graph;
    for (uint32_t n = 0; q->outside_share && n < graph->order.count; n++) {
        const gt_node *node = graph->nodes.data[graph->order.data[n]];
        for (uint32_t k = 0; node->body_count && k < node->output_count; k++)
            if (node->outputs[k] != GT_NONE)
                q->outside_share[node->outputs[k]] = 0;
    }
}

static bool add_read(const gt_variant *variant, question *q, uint32_t node, uint32_t value, uint32_t domain)
{
    const gt_value *v = variant->graph->values.data[value];
    if (v->constant != GT_NONE && v->input_index < 0)
        return true;
    return gt_vec_push(variant->session->allocator, &q->control_reads,
                       ((gt_control_read){node, value, domain}));
}

static gantry_status describe_control(const gt_variant *variant, question *q, uint32_t id,
                                      gt_variant *const bodies[2], gantry_error *err)
{
    const gt_node *node = variant->graph->nodes.data[id];
    uint32_t first = is_loop(node) ? 1 : 0;
    bool fits = true;
    for (uint32_t k = 0; bodies[0] && k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE && first + k < bodies[0]->graph->outputs.count) {
            q->source_domain[node->outputs[k]] = bodies[0]->output_domains[first + k];
            q->outside_share[node->outputs[k]] = -1;
        }
    for (uint32_t k = 2; is_loop(node) && bodies[0] && k < node->input_count; k++)
        if (node->inputs[k] != GT_NONE && k < bodies[0]->graph->inputs.count)
            fits = fits && add_read(variant, q, id, node->inputs[k], bodies[0]->input_domains[k]);
    for (int b = 0; b < 2; b++)
        for (uint32_t k = 0; bodies[b] && k < bodies[b]->capture_count; k++) {
            uint32_t outer = bodies[b]->graph->values.data[bodies[b]->captures[k]]->captured;
            fits = fits && add_read(variant, q, id, outer, bodies[b]->capture_domains[k]);
        }
    return fits ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_PLACE);
}

/* open: the control node of which this is a body whose edges are not chosen yet; NULL: they are. */
static gantry_status describe_places(const gt_variant *variant, question *q, const known_programs *known,
                                     const gt_node *open, gantry_error *err)
{
    uint32_t count = variant->graph->values.count;
    q->source_domain = GT_ARENA_ARRAY(&q->arena, uint32_t, count + 1);
    if (variant->session->domain_count > 1)
        q->outside_share = GT_ARENA_ARRAY(&q->arena, double, count + 1);
    if (!q->source_domain || (variant->session->domain_count > 1 && !q->outside_share))
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    memset(q->source_domain, 0xff, count * sizeof *q->source_domain);
    q->output_domain = variant->output_domains;
    describe_sources(variant, q);
    describe_unknown_controls(variant, q);
    for (uint32_t p = 0; q->outside_share && known->placement && p < known->placement->partition_count; p++)
        if (known->placement->partitions[p].control && known->programs[p].bodies[0])
            GT_TRY(describe_control(variant, q, known->placement->partitions[p].nodes[0],
                                    known->programs[p].bodies, err));
    return open ? describe_open(variant, q, open, err) : GANTRY_OK;
}

static gantry_status prepare_question(const gt_variant *variant, question *q, const known_programs *known,
                                      const gt_node *open, gantry_error *err)
{
    const gantry_session *session = variant->session;
    q->shown.arena = &q->arena;
    GT_TRY(show_graph(&q->shown, variant->graph, err));
    q->providers = GT_ARENA_ARRAY(&q->arena, gt_place_provider, session->provider_count);
    q->selves = GT_ARENA_ARRAY(&q->arena, judge_self, session->provider_count);
    q->domains = GT_ARENA_ARRAY(&q->arena, gt_place_domain, session->domain_count);
    if (!q->providers || !q->selves || !q->domains)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    describe_providers(session, q);
    describe_domains(session, q->domains);
    return describe_places(variant, q, known, open, err);
}

static gantry_status ask(gt_variant *variant, question *q, gantry_error *err)
{
    gantry_session *session = variant->session;
    gt_place_options options = {.source_domain = q->source_domain,
                                .outside_share = q->outside_share,
                                .output_domain = q->output_domain,
                                .control_reads = q->control_reads.data,
                                .control_read_count = q->control_reads.count,
                                .without_bodies = true,
                                .by_cost = session->options.plan_by_cost,
                                .model_precision = session->options.model_precision,
                                .pins = session->options.pins.data,
                                .pin_count = session->options.pins.count,
                                .late = variant->late.data,
                                .late_count = variant->late.count,
                                .show_graph = show_graph,
                                .show_self = &q->shown};
    gt_placement_destroy(session->allocator, &variant->placement);
    gantry_status status = gt_place(variant->graph, q->providers, session->provider_count, q->domains,
                                    session->domain_count, &options, &variant->placement, err);
    for (uint32_t k = 0; k < session->provider_count && !session->created; k++)
        session->providers[k].judge_ns += q->selves[k].ns;
    return status;
}

/* float32 in place of a type that nobody computes in gives other bits than the definition: not when they have
 * to be exact. */
static bool may_promote(const gt_options *options)
{
    bool may = options->rewrites && !options->exact;
    for (uint32_t k = 0; k < options->disabled_rewrites.count; k++)
        may = may && strcmp(options->disabled_rewrites.data[k], "promote") != 0;
    return may;
}

/* Patterns are recognised again in the new type; shapes flow into a body from the root. The placement knows
 * nothing of the nodes that came: it goes, also when memory ran out halfway. */
static gantry_status promote(gt_variant *variant, const question *q, bool *out_promoted, gantry_error *err)
{
    gt_graph *graph = variant->graph;
    gantry_session *session = variant->session;
    gantry_status status =
        gt_promote(graph, variant->placement, q->providers, session->provider_count, out_promoted, err);
    if (!*out_promoted)
        return status;
    gt_placement_destroy(session->allocator, &variant->placement);
    GT_TRY(status);
    if (!graph->parent)
        return gt_session_simplify(session, graph, err);
    while (graph->parent)
        graph = graph->parent;
    return gt_infer_graph(graph, err);
}

/* Each promotion leaves fewer nodes of a narrow type: this ends. */
static gantry_status place(gt_variant *variant, const known_programs *known, const gt_node *open,
                           gantry_error *err)
{
    gantry_error failure;
    gantry_status status;
    bool promoted;
    do {
        question q = {0};
        failure = (gantry_error)GANTRY_ERROR_INIT;
        promoted = false;
        gt_arena_init(&q.arena, variant->session->allocator);
        status = prepare_question(variant, &q, known, open, &failure);
        if (status == GANTRY_OK)
            status = ask(variant, &q, &failure);
        if (status == GANTRY_UNSUPPORTED && may_promote(&variant->session->options)) {
            gantry_status done = promote(variant, &q, &promoted, &failure);
            status = done == GANTRY_OK ? status : done;
        }
        gt_vec_free(variant->session->allocator, &q.control_reads);
        gt_arena_clear(&q.arena);
    } while (promoted && status == GANTRY_UNSUPPORTED);
    if (status != GANTRY_OK && err && err->struct_bytes >= sizeof *err)
        *err = failure;
    return status;
}

gantry_status gt_variant_place_open(gt_variant *variant, const gt_node *node, gantry_error *err)
{
    uint64_t begin = gt_now_ns();
    gantry_status status = place(variant, &(known_programs){0}, node, err);
    variant->place_ns += (double)(gt_now_ns() - begin);
    return status;
}

/* ---- compiling ------------------------------------------------------------------------------- */

static const char *const BODY_ROLES[2][2] = {{"body", NULL}, {"then_branch", "else_branch"}};

static gantry_status compile_control(gt_variant *variant, gt_program *slot, const gt_node *node,
                                     gantry_error *err)
{
    const char *const *roles = strcmp(node->op_type, "If") == 0 ? BODY_ROLES[1] : BODY_ROLES[0];
    for (int r = 0; r < 2 && roles[r]; r++)
        for (uint32_t b = 0; b < node->body_count; b++)
            if (strcmp(node->bodies[b].name, roles[r]) == 0) {
                GT_TRY(gt_variant_create(variant->session, variant, node->bodies[b].graph, &slot->bodies[r],
                                         err));
                slot->bodies[r]->body = true;
            }
    GT_TRY(gt_variant_choose_edges(variant, node, slot->bodies, err));
    for (int r = 0; r < 2; r++)
        if (slot->bodies[r])
            GT_TRY(gt_variant_compile(slot->bodies[r], err));
    return GANTRY_OK;
}

/* The view of a partition, and what its provider says of its edges. */
static gantry_status prepare_partition(gt_variant *variant, uint32_t index, gantry_error *err)
{
    gantry_session *session = variant->session;
    const gt_partition *partition = &variant->placement->partitions[index];
    gt_program *slot = &variant->programs[index];
    gt_arena_init(&slot->arena, session->allocator);
    slot->records = (struct gantry_recorder){.arena = &slot->arena};
    GT_TRY(gt_view_nodes(&slot->arena, variant->graph, partition->node_count, partition->nodes,
                         partition->input_count, partition->inputs, partition->output_count,
                         partition->outputs, &slot->view, err));
    if (partition->control)
        return compile_control(variant, slot, variant->graph->nodes.data[partition->nodes[0]], err);
    const gt_session_provider *provider = &session->providers[partition->provider];
    return gt_formats_ask(provider->entry->table, provider->name, slot, err);
}

static gantry_status compile_partition(gt_variant *variant, uint32_t index, gantry_error *err)
{
    gantry_session *session = variant->session;
    gt_program *slot = &variant->programs[index];
    gt_session_provider *provider = &session->providers[variant->placement->partitions[index].provider];
    /* The provider may keep the view; slots move when a placement is made again, what is in their arena does
     * not. */
    const gantry_graph_view *view = gt_arena_copy(&slot->arena, &slot->view.view, sizeof *view);
    if (!view)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    gantry_compile_args args = {.struct_bytes = sizeof args,
                                .graph = view,
                                .constants = gt_constants_of((struct gt_model *)session->model),
                                .session_options = &session->options,
                                .threads = session->options.threads,
                                .exact = session->options.exact,
                                .input_formats = slot->input_formats,
                                .output_formats = slot->output_formats,
                                .recorder = &slot->records};
    gantry_status status = gt_program_make(session, provider, &args, slot, err);
    if (!session->created)
        provider->compile_ns += slot->compile_ns;
    status = gt_provider_answer(provider->name, "compile", GANTRY_STAGE_COMPILE, status, slot->program, err);
    if (status == GANTRY_OK)
        gt_session_charge_program(session, provider->entry->table, slot);
    else
        slot->program = NULL; /* whatever a failed call left there is not ours to destroy */
    return status;
}

/* A compile failure is a late verdict on every node of the partition: they are offered to the next provider.
 */
static gantry_status refuse_partition(gt_variant *variant, const gt_partition *partition,
                                      const gantry_error *failure, gantry_error *err)
{
    for (uint32_t k = 0; k < partition->node_count; k++) {
        gt_late_refusal late = {.node = partition->nodes[k], .provider = partition->provider};
        late.refusal.code = GANTRY_REFUSE_compile_failed;
        late.refusal.actual_number = late.refusal.limit_number = __builtin_nan("");
        snprintf(late.refusal.detail, sizeof late.refusal.detail, "%.190s", failure->message);
        if (!gt_vec_push(variant->session->allocator, &variant->late, late))
            return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    }
    return GANTRY_OK;
}

bool gt_variant_has_alternative(const gt_variant *variant, const gt_partition *partition)
{
    return partition->provider + 1 < variant->session->provider_count;
}

static bool same_partition(const gt_partition *a, const gt_partition *b)
{
    return a->provider == b->provider && a->node_count == b->node_count && a->input_count == b->input_count &&
           a->output_count == b->output_count &&
           memcmp(a->nodes, b->nodes, a->node_count * sizeof *a->nodes) == 0 &&
           memcmp(a->inputs, b->inputs, a->input_count * sizeof *a->inputs) == 0 &&
           memcmp(a->outputs, b->outputs, a->output_count * sizeof *a->outputs) == 0;
}

/* Moves programs of partitions that did not change from the placement before. */
static void keep_programs(gt_program *programs, const gt_placement *placement, gt_program *old,
                          const gt_placement *before)
{
    for (uint32_t k = 0; k < placement->partition_count; k++)
        for (uint32_t m = 0; m < before->partition_count; m++)
            if ((old[m].program || old[m].bodies[0]) &&
                same_partition(&placement->partitions[k], &before->partitions[m])) {
                programs[k] = old[m];
                programs[k].records.arena = &programs[k].arena;
                old[m] = (gt_program){0};
            }
}

/* Bodies of control nodes first: what they read and leave where is part of this graph's placement. */
static gantry_status compile_controls(gt_variant *variant, bool *out_new, gantry_error *err)
{
    *out_new = false;
    for (uint32_t k = 0; k < variant->placement->partition_count; k++) {
        if (!variant->placement->partitions[k].control || variant->programs[k].bodies[0])
            continue;
        *out_new = true;
        GT_TRY(prepare_partition(variant, k, err));
    }
    return GANTRY_OK;
}

static bool is_new(const gt_variant *variant, uint32_t index)
{
    return !variant->placement->partitions[index].control && !variant->programs[index].program;
}

/* What becomes of a failure: nodes for the next provider, where there is one. */
static gantry_status pass_on(gt_variant *variant, uint32_t index, gantry_status status,
                             const gantry_error *failure, bool *out_again, gantry_error *err)
{
    const gt_partition *partition = &variant->placement->partitions[index];
    if (err && err->struct_bytes >= sizeof *err && failure->code)
        *err = *failure;
    if (status == GANTRY_RESOURCE || status == GANTRY_DATA || !gt_variant_has_alternative(variant, partition))
        return status;
    *out_again = true;
    return refuse_partition(variant, partition, failure, err);
}

static gantry_status compile_placed(gt_variant *variant, bool *out_again, gantry_error *err)
{
    gantry_error failure = GANTRY_ERROR_INIT;
    uint32_t count = variant->placement->partition_count;
    gantry_status status;
    *out_again = false;
    for (uint32_t k = 0; k < count; k++)
        if (is_new(variant, k) && (status = prepare_partition(variant, k, &failure)) != GANTRY_OK)
            return pass_on(variant, k, status, &failure, out_again, err);
    for (uint32_t k = 0; k < count; k++)
        if (is_new(variant, k))
            gt_formats_settle_outputs(variant, k);
    for (uint32_t k = 0; k < count; k++)
        if (is_new(variant, k))
            gt_formats_settle_inputs(variant, k);
    for (uint32_t k = 0; k < count; k++)
        if (is_new(variant, k) && (status = compile_partition(variant, k, &failure)) != GANTRY_OK)
            return pass_on(variant, k, status, &failure, out_again, err);
    return GANTRY_OK;
}

/* A loop's body as often as it is taken to run, of two branches the mean; NAN when it is not known. */
static double bodies_ns(const gt_program *program, bool all_cpu)
{
    double ns = 0, count = 0;
    for (int b = 0; b < 2; b++) {
        const gt_variant *body = program->bodies[b];
        if (!body)
            continue;
        const gt_placement *placement = body->placement;
        ns += !placement ? __builtin_nan("")
                         : body->iterations * (all_cpu ? placement->all_cpu_ns : placement->chosen_ns);
        count++;
    }
    return count > 0 ? ns / count : __builtin_nan("");
}

static void add_bodies(gt_variant *variant)
{
    for (uint32_t k = 0; k < variant->placement->partition_count; k++) {
        if (!variant->placement->partitions[k].control)
            continue;
        variant->placement->chosen_ns += bodies_ns(&variant->programs[k], false);
        variant->placement->all_cpu_ns += bodies_ns(&variant->programs[k], true);
    }
}

/* Verdicts only turn from yes to no, so this ends. */
gantry_status gt_variant_place(gt_variant *variant, gantry_error *err)
{
    gantry_session *session = variant->session;
    bool told = session->domain_count == 1; /* where the bodies' edges lie */
    for (bool again = true; again;) {
        gt_placement *before = variant->placement;
        gt_program *old = variant->programs;
        variant->placement = NULL;
        variant->programs = NULL;
        uint64_t begin = gt_now_ns();
        gantry_status status = place(variant, &(known_programs){before, old}, NULL, err);
        uint64_t placed = gt_now_ns();
        variant->place_ns += (double)(placed - begin);
        if (status == GANTRY_OK) {
            variant->programs =
                GT_NEW_ARRAY(session->allocator, gt_program, variant->placement->partition_count);
            if (!variant->programs)
                status = gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
        }
        if (old) {
            if (variant->programs)
                keep_programs(variant->programs, variant->placement, old, before);
            for (uint32_t k = 0; k < before->partition_count; k++)
                gt_variant_destroy_program(session, before, old, k);
            gt_free(session->allocator, old);
        }
        gt_placement_destroy(session->allocator, &before);
        if (status != GANTRY_OK)
            return status;
        status = compile_controls(variant, &again, err);
        again = again && !told;
        told = true;
        if (status == GANTRY_OK && !again)
            status = compile_placed(variant, &again, err);
        variant->compile_ns += (double)(gt_now_ns() - placed);
        if (status != GANTRY_OK)
            return status;
    }
    add_bodies(variant);
    return GANTRY_OK;
}
