/* The ledger: every byte that the last run moved, with its edge, its cause and its way; and what each device
 * should have counted itself. */
#include "report.h"

static const char *const CAUSES[] = {"boundary",     "input",      "output", "host_known",
                                     "control_flow", "conversion", "staging"};
static const char *const PATHS[] = {"direct", "peer", "staged"};

/* Copies of one kind: equal in all but the numbers at the end. */
typedef struct entry {
    const gt_report_part *part;
    uint32_t value, reader; /* reader: the partition that asked for it, GT_NONE: none */
    uint32_t source, target;
    gt_cause cause;
    const char *path;
    bool pinned, pageable; /* pageable: it had better been pinned */
    uint32_t queue;        /* GT_QUEUE_* of the device that copies */
    uint64_t executions, copies, bytes, total_executions;
    double ns;
} entry;

typedef struct ledger {
    const gt_report_scope *scope;
    GT_VEC(entry) entries;
    bool failed;
} ledger;

/* ---- collecting ------------------------------------------------------------------------------ */

static bool moves(const gt_step *step)
{
    return step->kind == GT_STEP_TRANSFER || step->kind == GT_STEP_CONVERT;
}

static bool same_kind(const entry *a, const entry *b)
{
    return a->part == b->part && a->value == b->value && a->reader == b->reader && a->source == b->source &&
           a->target == b->target && a->cause == b->cause && a->path == b->path && a->pinned == b->pinned &&
           a->queue == b->queue;
}

static void add_entry(ledger *l, const entry *fresh)
{
    for (uint32_t k = l->entries.count; k-- > 0 && l->entries.data[k].part == fresh->part;) {
        entry *e = &l->entries.data[k];
        if (!same_kind(e, fresh))
            continue;
        e->executions += fresh->executions;
        e->copies += fresh->copies;
        e->bytes += fresh->bytes;
        e->total_executions += fresh->total_executions;
        e->ns += fresh->ns;
        return;
    }
    l->failed |= !gt_vec_push(l->scope->session->allocator, &l->entries, *fresh);
}

static entry entry_of(const gt_report_part *part, const gt_plan_state *state, uint32_t index)
{
    const gt_step *step = &state->plan->steps[index];
    const gt_slot *source = &state->plan->slots[step->source], *target = &state->plan->slots[step->target];
    bool inside = source->domain == target->domain, ran = gt_report_ran(state, part->frame);
    entry e = {.part = part,
               .value = step->value,
               .reader = step->partition,
               .source = source->domain,
               .target = target->domain,
               .cause = step->cause,
               .queue = step->queue,
               .path = inside ? "inside" : PATHS[step->path],
               .total_executions = state->executions};
    if (!ran)
        return e;
    uint64_t one = step->kind == GT_STEP_CONVERT ? target->bytes : step->bytes;
    e.executions = state->run_executions;
    e.bytes = step->true_size ? state->true_bytes[index] : state->run_executions * one;
    e.copies = e.bytes ? state->run_executions : 0;
    e.ns = gt_report_step_ns(part->frame, state, index);
    return e;
}

/* Copies in which a device has a part: one row for each way they went in the last run. What all took together
 * is not told apart. */
static void add_ways(ledger *l, const entry *all, const gt_plan_state *state, uint32_t index)
{
    const gt_step_copies *copies = &state->copies[index];
    const gt_step *step = &state->plan->steps[index];
    uint64_t total = all->total_executions;
    for (int way = 0; way < GT_WAY_COUNT; way++) {
        entry e = *all;
        if (!copies->executions[way])
            continue;
        e.executions = copies->executions[way];
        e.copies = copies->calls[way];
        e.bytes = copies->bytes[way];
        e.pinned = way != GT_WAY_PAGEABLE;
        e.pageable = !e.pinned && (!e.source || !e.target) && l->scope->session->domains[step->domain].pins;
        if (way == GT_WAY_STAGED)
            e.path = PATHS[GT_PATH_STAGED];
        if (e.executions != all->executions)
            e.ns = __builtin_nan("");
        e.total_executions = total; /* they are counted together: in the first row */
        total = 0;
        add_entry(l, &e);
    }
}

static void add_step(ledger *l, const gt_report_part *part, const gt_plan_state *state, uint32_t index)
{
    const gt_step *step = &state->plan->steps[index];
    entry e = entry_of(part, state, index);
    if (step->kind == GT_STEP_TRANSFER && (e.source || e.target) && e.executions)
        add_ways(l, &e, state, index);
    else
        add_entry(l, &e);
}

/* What control nodes copied themselves. */
static void collect_controls(ledger *l, const gt_report_part *part)
{
    const gt_frame *frame = part->frame;
    for (uint32_t p = 0; frame && p < frame->control_count; p++) {
        uint32_t count, node = part->variant->placement->partitions[p].nodes[0];
        const gt_control_copies *copies = gt_control_copies_of(frame->controls[p], &count);
        for (uint32_t k = 0; k < count; k++) {
            bool ran = copies[k].run_number == frame->run->number;
            entry e = {.part = part,
                       .value = part->variant->graph->nodes.data[node]->outputs[k],
                       .reader = p,
                       .source = copies[k].domain,
                       .target = copies[k].domain,
                       .cause = GT_CAUSE_CONTROL,
                       .path = "inside",
                       .executions = ran ? copies[k].count : 0,
                       .copies = ran ? copies[k].count : 0,
                       .bytes = ran ? copies[k].bytes : 0,
                       .total_executions = copies[k].total_count,
                       .ns = __builtin_nan("")};
            if (e.total_executions && e.value != GT_NONE)
                add_entry(l, &e);
        }
    }
}

static void collect(ledger *l)
{
    for (uint32_t p = 0; p < l->scope->part_count; p++) {
        const gt_report_part *part = &l->scope->parts[p];
        collect_controls(l, part);
        for (uint32_t s = 0; part->frame && s < part->frame->states.count; s++) {
            const gt_plan_state *state = part->frame->states.data[s];
            for (uint32_t k = 0; k < state->plan->step_count; k++)
                if (moves(&state->plan->steps[k]))
                    add_step(l, part, state, k);
        }
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static json_t *partition_or_null(uint32_t partition)
{
    return partition == GT_NONE ? json_null() : json_integer(partition);
}

static json_t *row_of(const ledger *l, const entry *e)
{
    const gantry_session *session = l->scope->session;
    const gt_variant *variant = e->part->variant;
    const gt_value *value = variant->graph->values.data[e->value];
    uint32_t maker =
        value->producer == GT_NONE ? GT_NONE : variant->placement->partition_of_node[value->producer];
    json_t *row = json_object();
    json_object_set_new(row, "tensor", gt_report_string(value->name));
    json_object_set_new(row, "graph", json_integer(e->part->number));
    json_object_set_new(row, "cause", json_string(CAUSES[e->cause]));
    json_object_set_new(row, "path", json_string(e->path));
    json_object_set_new(row, "source", gt_report_string(session->domains[e->source].name));
    json_object_set_new(row, "target", gt_report_string(session->domains[e->target].name));
    json_object_set_new(row, "producer_partition", partition_or_null(maker));
    json_object_set_new(row, "reader_partition", partition_or_null(e->reader));
    json_object_set_new(row, "pinned", json_boolean(e->pinned));
    bool device = e->source || e->target;
    json_object_set_new(row, "queue",
                        json_string(!device                     ? "host"
                                    : e->queue == GT_QUEUE_COPY ? "copy"
                                                                : "compute"));
    json_object_set_new(row, "executions", gt_report_count(e->executions));
    json_object_set_new(row, "copies", gt_report_count(e->copies));
    json_object_set_new(row, "bytes", gt_report_count(e->bytes));
    json_object_set_new(row, "executions_total", gt_report_count(e->total_executions));
    json_object_set_new(row, "us", gt_report_measured_us(e->executions ? e->ns : __builtin_nan("")));
    return row;
}

/* What a device counts: copies with the host, copies from peers (which are the target's), copies inside. */
static gt_forgotten sum_of(const ledger *l, uint32_t domain)
{
    const gantry_run *run = l->scope->run;
    gt_forgotten sum = {0};
    if (run->forgotten_number == run->number)
        sum = run->forgotten[domain];
    for (uint32_t k = 0; k < l->entries.count; k++) {
        const entry *e = &l->entries.data[k];
        if ((e->source != domain && e->target != domain) || e->cause == GT_CAUSE_CONVERSION)
            continue;
        bool inside = e->source == e->target, host = e->source == 0 || e->target == 0;
        if (!inside && !host && e->target != domain)
            continue;
        *(inside ? &sum.inside_copies : host ? &sum.copies : &sum.peer_copies) += e->copies;
        *(inside ? &sum.inside_bytes : host ? &sum.bytes : &sum.peer_bytes) += e->bytes;
    }
    return sum;
}

static json_t *device_of(const ledger *l, uint32_t domain)
{
    gt_forgotten sum = sum_of(l, domain);
    json_t *row = json_object();
    json_object_set_new(row, "domain", gt_report_string(l->scope->session->domains[domain].name));
    json_object_set_new(row, "copies", gt_report_count(sum.copies));
    json_object_set_new(row, "bytes", gt_report_count(sum.bytes));
    json_object_set_new(row, "peer_copies", gt_report_count(sum.peer_copies));
    json_object_set_new(row, "peer_bytes", gt_report_count(sum.peer_bytes));
    json_object_set_new(row, "inside_copies", gt_report_count(sum.inside_copies));
    json_object_set_new(row, "inside_bytes", gt_report_count(sum.inside_bytes));
    return row;
}

/* Bytes of copies whose plan the run gave up before it was over: they are in no row. */
static uint64_t forgotten_bytes(const gt_report_scope *scope)
{
    const gantry_run *run = scope->run;
    uint64_t bytes = 0;
    for (uint32_t d = 0; run && run->forgotten_number == run->number && d < scope->session->domain_count; d++)
        bytes += run->forgotten[d].bytes + run->forgotten[d].peer_bytes + run->forgotten[d].inside_bytes;
    return bytes;
}

json_t *gt_report_ledger(const gt_report_scope *scope)
{
    ledger l = {.scope = scope};
    json_t *rows = json_array(), *devices = json_array();
    uint64_t bytes = 0, crossing = 0, pageable = 0;
    if (scope->run)
        collect(&l);
    for (uint32_t k = 0; k < l.entries.count; k++) {
        const entry *e = &l.entries.data[k];
        bytes += e->bytes;
        crossing += e->source != e->target ? e->bytes : 0;
        pageable += e->pageable ? e->bytes : 0;
        json_array_append_new(rows, row_of(&l, e));
    }
    for (uint32_t d = 1; scope->run && d < scope->session->domain_count; d++)
        json_array_append_new(devices, device_of(&l, d));
    json_t *document = json_object();
    json_object_set_new(document, "bytes",
                        scope->run ? gt_report_count(bytes) : json_string(GT_NOT_MEASURED));
    json_object_set_new(document, "crossing_bytes",
                        scope->run ? gt_report_count(crossing) : json_string(GT_NOT_MEASURED));
    json_object_set_new(document, "forgotten_bytes", gt_report_count(forgotten_bytes(scope)));
    json_object_set_new(document, "pinned_memory_bytes",
                        gt_report_count(atomic_load(&scope->session->pinned_bytes)));
    json_object_set_new(document, "pageable_bytes", gt_report_count(pageable));
    json_object_set_new(document, "devices", devices);
    json_object_set_new(document, "rows", rows);
    gt_vec_free(scope->session->allocator, &l.entries);
    if (!l.failed)
        return document;
    json_decref(document);
    return NULL;
}
