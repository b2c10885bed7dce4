/* A second, dumber executor: it knows of every byte of memory which value lies there, in which format, and
 * which queues may still read or write it.
 *
 *     queues     a step of a device is done only when a later WAIT on its domain says so. Until then the host
 * may neither read what it writes nor write what it reads; steps of one queue stay in order writes     put a
 * value over whatever lay there: a lifetime that is too short shows when somebody reads views      the
 * provider says that output w is input v from a byte on: then the bytes of w are bytes of v
 *
 * Each of these was made in core/plan_build.c by hand, and each was caught: see the list at the end. */
#include "verify_plan.h"

#include <stdarg.h>
#include <stdlib.h>

/* What lies in some bytes: bytes of a value (in a format) from `at` on. */
typedef struct extent {
    size_t begin, end;
    uint32_t value, tag;
    size_t at;
} extent;

/* One piece of memory: an arena, a buffer of the caller, a constant ... */
typedef struct space {
    gt_slot_kind kind;
    uint32_t domain, index;
    size_t capacity; /* CARRY: what the plan that filled it asked for */
    GT_VEC(extent) extents;
} space;

/* A copy that a queue may not have made yet: it reads or writes host memory. */
typedef struct flight {
    uint32_t space;
    size_t begin, end;
    uint32_t queue;
    bool writes;
} flight;

/* The bytes of a value in this format are those of another one, from `offset` on. */
typedef struct alias {
    bool set;
    uint32_t root, tag;
    size_t offset;
} alias;

/* Bytes of a step: its slot, and how many of them it touches. */
typedef struct range {
    uint32_t space;
    size_t begin, end;
    uint32_t domain;
} range;

typedef struct verifier {
    const gt_variant *variant;
    const gantry_session *session;
    const gt_graph *graph;
    const gt_plan *plan;
    const gt_segment *segment;
    uint32_t number, step; /* of the segment, of the step at hand */
    gt_allocator allocator;
    GT_VEC(space) spaces;
    GT_VEC(flight) flights;
    alias *aliases;       /* by value */
    uint8_t *is_view;     /* by slot of the plan */
    uint8_t *done;        /* by partition */
    uint8_t *busy;        /* by domain: work since the last WAIT */
    uint32_t *unfinished; /* by value: the queue that makes its true size, 0 when it is known */
    uint32_t *delivered;  /* by graph output: how often */
    uint32_t *home;       /* by value: 1 + the domain of its carry */
    char *text;
} verifier;

static bool wrong(verifier *v, const char *format, ...) GANTRY_PRINTF(2, 3);
static bool wrong(verifier *v, const char *format, ...)
{
    int used = snprintf(v->text, 400, "segment %u, step %u: ", v->number, v->step);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(v->text + used, 400 - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return wrong(v, __VA_ARGS__);                                                                    \
    } while (0)

static void *room(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        abort();
    return memory;
}

static const char *name_of(const verifier *v, uint32_t value)
{
    return value < v->graph->values.count ? v->graph->values.data[value]->name : "(no value)";
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A value whose size nobody knows before the run stands as one byte. */
static size_t bytes_of(const verifier *v, uint32_t value)
{
    const gt_plan_shape *shape = &v->plan->shapes[value];
    if (!shape->dims)
        return 1;
    uint64_t count = 1;
    for (uint32_t d = 0; d < shape->rank; d++)
        count *= (uint64_t)shape->dims[d];
    return gantry_dtype_bytes(v->graph->values.data[value]->dtype, count);
}

static size_t format_bytes_of(const verifier *v, uint32_t value, const gantry_format *format,
                              uint32_t provider)
{
    if (!format->tag)
        return bytes_of(v, value);
    const gantry_provider *table = v->session->providers[provider].entry->table;
    gantry_shape shape = {v->plan->shapes[value].rank, v->plan->shapes[value].dims};
    return table->format_bytes(table->self, format, v->graph->values.data[value]->dtype, &shape);
}

static void resolve_alias(const verifier *v, uint32_t *inout_value, uint32_t tag, size_t *out_at)
{
    const alias *a = &v->aliases[*inout_value];
    *out_at = 0;
    if (!a->set || a->tag != tag)
        return;
    *out_at = a->offset;
    *inout_value = a->root;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What a space holds before anything is written to it; GT_NONE for nothing. */
static uint32_t first_content(const verifier *v, const gt_slot *slot)
{
    uint32_t inputs = v->graph->inputs.count;
    if (slot->kind == GT_SLOT_INPUT && slot->index < inputs)
        return v->graph->inputs.data[slot->index];
    if (slot->kind == GT_SLOT_INPUT && slot->index - inputs < v->variant->capture_count)
        return v->variant->captures[slot->index - inputs];
    return slot->kind == GT_SLOT_CONSTANT || slot->kind == GT_SLOT_BIND ? slot->value : GT_NONE;
}

static uint32_t space_of(verifier *v, const gt_slot *slot)
{
    bool by_value = slot->kind == GT_SLOT_CONSTANT || slot->kind == GT_SLOT_BIND;
    uint32_t index = slot->kind == GT_SLOT_ARENA ? 0 : by_value ? slot->value : slot->index;
    for (uint32_t k = 0; k < v->spaces.count; k++)
        if (v->spaces.data[k].kind == slot->kind && v->spaces.data[k].index == index &&
            (slot->kind != GT_SLOT_ARENA || v->spaces.data[k].domain == slot->domain))
            return k;
    space fresh = {.kind = slot->kind, .domain = slot->domain, .index = index};
    uint32_t content = first_content(v, slot);
    extent all = {0, SIZE_MAX, content, 0, 0};
    if (!gt_vec_push(&v->allocator, &v->spaces, fresh) ||
        (content != GT_NONE &&
         !gt_vec_push(&v->allocator, &v->spaces.data[v->spaces.count - 1].extents, all)))
        abort();
    return v->spaces.count - 1;
}

static bool overlaps(const range *a, const range *b)
{
    return a->space == b->space && a->begin < b->end && b->begin < a->end;
}

/* Takes [begin, end) out of the extents of a space. */
static void cut(verifier *v, uint32_t index, size_t begin, size_t end)
{
    space *s = &v->spaces.data[index];
    uint32_t kept = 0, count = s->extents.count;
    for (uint32_t k = 0; k < count; k++) {
        extent e = s->extents.data[k];
        if (e.end <= begin || end <= e.begin) {
            s->extents.data[kept++] = e;
            continue;
        }
        extent tail = {end, e.end, e.value, e.tag, e.at + (end - e.begin)};
        if (e.begin < begin) {
            s->extents.data[kept++] = (extent){e.begin, begin, e.value, e.tag, e.at};
            if (end < e.end && !gt_vec_push(&v->allocator, &s->extents, tail))
                abort();
        } else if (end < e.end) {
            s->extents.data[kept++] = tail;
        }
    }
    for (uint32_t k = count; k < s->extents.count; k++)
        s->extents.data[kept++] = s->extents.data[k];
    s->extents.count = kept;
}

/* How many of the bytes from `begin` on hold that value; *out_other is what lies behind them. */
static size_t held(const verifier *v, const range *r, uint32_t value, uint32_t tag, size_t at,
                   uint32_t *out_other)
{
    const space *s = &v->spaces.data[r->space];
    size_t from = r->begin;
    for (bool found = true; found && from < r->end;) {
        found = false;
        *out_other = GT_NONE;
        for (uint32_t k = 0; k < s->extents.count && !found; k++) {
            const extent *e = &s->extents.data[k];
            if (e->begin > from || e->end <= from)
                continue;
            *out_other = e->value;
            found = e->value == value && e->tag == tag && e->at + (from - e->begin) == at + (from - r->begin);
            if (found)
                from = e->end;
        }
    }
    return (from < r->end ? from : r->end) - r->begin;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Where memory lies that is not the plan's: with the caller where the session says, else on the host. */
static uint32_t outside_domain(const verifier *v, const gt_slot *slot)
{
    if (v->variant->body)
        return 0;
    if (slot->kind == GT_SLOT_OUTPUT)
        return v->session->output_domains[slot->index];
    return slot->kind == GT_SLOT_INPUT && slot->index < v->graph->inputs.count
               ? v->session->input_domains[slot->index]
               : 0;
}

/* A slot that a step names must make sense by itself; the bytes it touches are *out_range. */
static bool take_slot(verifier *v, uint32_t index, uint32_t value, uint32_t domain, size_t bytes,
                      range *out_range)
{
    CHECK(index < v->plan->slot_count, "slot %u of %u", index, v->plan->slot_count);
    const gt_slot *slot = &v->plan->slots[index];
    CHECK(slot->domain == domain, "%s is expected in domain %u; slot %u lies in %u", name_of(v, value),
          domain, index, slot->domain);
    CHECK(slot->value == value, "slot %u is of %s, not of %s", index, name_of(v, slot->value),
          name_of(v, value));
    CHECK(slot->kind < GT_SLOT_NONE, "slot %u of %s is no memory", index, name_of(v, value));
    CHECK(slot->kind != GT_SLOT_OUTPUT || slot->index < v->graph->outputs.count, "output %u", slot->index);
    CHECK(slot->kind != GT_SLOT_INPUT || first_content(v, slot) != GT_NONE, "input %u", slot->index);
    CHECK(slot->kind == GT_SLOT_ARENA || slot->kind == GT_SLOT_CARRY ||
              slot->domain == outside_domain(v, slot),
          "slot %u of %s lies in domain %u, not in %u", index, name_of(v, value), slot->domain,
          outside_domain(v, slot));
    CHECK(bytes <= slot->bytes || (value != GT_NONE && !v->plan->shapes[value].dims),
          "%s has %zu bytes, its slot %u only %zu", name_of(v, value), bytes, index, slot->bytes);
    CHECK(slot->kind != GT_SLOT_ARENA || (slot->offset_bytes <= v->plan->arena_bytes[domain] &&
                                          slot->bytes <= v->plan->arena_bytes[domain] - slot->offset_bytes),
          "slot %u ends at byte %zu of an arena of %zu", index, slot->offset_bytes + slot->bytes,
          v->plan->arena_bytes[domain]);
    CHECK(slot->kind != GT_SLOT_ARENA || v->is_view[index] || slot->offset_bytes % 64 == 0,
          "slot %u begins at byte %zu: not a multiple of 64", index, slot->offset_bytes);
    if (slot->kind == GT_SLOT_CARRY) {
        CHECK(slot->index < v->graph->values.count, "carry %u", slot->index);
        CHECK(!v->home[slot->index] || v->home[slot->index] == 1 + domain,
              "the carry of %s lies in domain %u and in %u", name_of(v, slot->index), domain,
              v->home[slot->index] - 1);
        v->home[slot->index] = 1 + domain;
    }
    *out_range = (range){space_of(v, slot), slot->offset_bytes, slot->offset_bytes + bytes, domain};
    return true;
}

/* Host memory that a queue other than `queue` (0: the host itself) may still touch. */
static bool settled(verifier *v, const range *r, uint32_t queue, bool writes, const char *what)
{
    for (uint32_t k = 0; r->domain == 0 && k < v->flights.count; k++) {
        const flight *f = &v->flights.data[k];
        range other = {f->space, f->begin, f->end, 0};
        CHECK(f->queue == queue || !overlaps(r, &other) || !(writes || f->writes),
              "%s is %s while the queue of domain %u may still %s it", what, writes ? "overwritten" : "read",
              f->queue, f->writes ? "write" : "read");
    }
    return true;
}

static void take_off(verifier *v, const range *r, uint32_t queue, bool writes)
{
    flight f = {r->space, r->begin, r->end, queue, writes};
    if (r->domain == 0 && queue && !gt_vec_push(&v->allocator, &v->flights, f))
        abort();
}

/* A step of `queue` reads a value. */
static bool read_value(verifier *v, const range *r, uint32_t value, uint32_t tag, uint32_t queue)
{
    uint32_t root = value, other = GT_NONE;
    size_t at;
    const space *s = &v->spaces.data[r->space];
    CHECK(s->kind != GT_SLOT_CARRY || !s->capacity || r->end <= s->capacity,
          "the carry of %s was made for %zu bytes and would grow to %zu, which loses what it holds",
          name_of(v, value), s->capacity, r->end);
    resolve_alias(v, &root, tag, &at);
    size_t there = held(v, r, root, tag, at, &other);
    CHECK(there == r->end - r->begin, "%s (format %u) is read; of its %zu bytes, byte %zu holds %s",
          name_of(v, value), tag, r->end - r->begin, there,
          other == GT_NONE ? "nothing"
          : other == root  ? "another part or format of it"
                           : name_of(v, other));
    return settled(v, r, queue, false, name_of(v, value));
}

/* A step of `queue` writes; value GT_NONE: scratch. */
static bool write_value(verifier *v, const range *r, uint32_t value, uint32_t tag, uint32_t queue)
{
    space *s = &v->spaces.data[r->space];
    CHECK(s->kind == GT_SLOT_ARENA || s->kind == GT_SLOT_OUTPUT || s->kind == GT_SLOT_CARRY,
          "%s is written over %s", name_of(v, value),
          s->kind == GT_SLOT_INPUT ? "an input" : "what is known at bind");
    if (!settled(v, r, queue, true, name_of(v, value)))
        return false;
    if (s->kind == GT_SLOT_OUTPUT && r->begin == 0 && value != GT_NONE)
        v->delivered[s->index]++;
    cut(v, r->space, r->begin, r->end);
    extent e = {r->begin, r->end, value, tag, 0};
    if (value == GT_NONE || r->begin == r->end)
        return true;
    resolve_alias(v, &e.value, tag, &e.at);
    if (!gt_vec_push(&v->allocator, &v->spaces.data[r->space].extents, e))
        abort();
    return true;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static bool check_wait(verifier *v, const gt_step *step)
{
    CHECK(step->domain > 0 && step->domain < v->session->domain_count, "a wait on domain %u", step->domain);
    uint32_t kept = 0;
    for (uint32_t k = 0; k < v->flights.count; k++)
        if (v->flights.data[k].queue != step->domain)
            v->flights.data[kept++] = v->flights.data[k];
    v->flights.count = kept;
    for (uint32_t k = 0; k < v->graph->values.count; k++)
        if (v->unfinished[k] == step->domain)
            v->unfinished[k] = 0;
    v->busy[step->domain] = 0;
    return true;
}

/* Only copies to the caller's buffers follow true sizes: all else has room for the bound. */
static bool check_true_size(verifier *v, const gt_step *step, const gt_slot *target)
{
    const gt_plan_shape *shape = &v->plan->shapes[step->value];
    bool open = shape->bounded || shape->dynamic;
    CHECK(open || !step->true_size, "the size of %s is known at bind", name_of(v, step->value));
    CHECK(!step->true_size || !v->unfinished[step->value],
          "%s is copied by its true size, which domain %u has not reported yet", name_of(v, step->value),
          v->unfinished[step->value]);
    CHECK(!open || step->true_size || target->kind != GT_SLOT_OUTPUT,
          "all %zu bytes that %s may have go to a buffer that has room for those it has", step->bytes,
          name_of(v, step->value));
    CHECK(!shape->dynamic || step->true_size, "the size of %s is not known at bind", name_of(v, step->value));
    return true;
}

static bool check_transfer(verifier *v, const gt_step *step)
{
    CHECK(step->value < v->graph->values.count, "a transfer of value %u", step->value);
    CHECK(step->source < v->plan->slot_count && step->target < v->plan->slot_count, "slots %u and %u",
          step->source, step->target);
    const gt_slot *source = &v->plan->slots[step->source], *target = &v->plan->slots[step->target];
    uint32_t from = source->domain, to = target->domain, queue = from ? from : to;
    size_t bytes = bytes_of(v, step->value);
    range read, written;
    CHECK(from == 0 || to == 0 || from == to, "a copy from domain %u to %u", from, to);
    CHECK(step->domain == queue, "a copy between the domains %u and %u on the queue of %u", from, to,
          step->domain);
    CHECK(step->true_size || step->bytes >= bytes, "%zu of the %zu bytes of %s are copied", step->bytes,
          bytes, name_of(v, step->value));
    if (!take_slot(v, step->source, step->value, from, bytes, &read) ||
        !take_slot(v, step->target, step->value, to, bytes, &written) || !check_true_size(v, step, target))
        return false;
    CHECK(step->true_size || (step->bytes <= source->bytes && step->bytes <= target->bytes),
          "%zu bytes are copied from a slot of %zu to one of %zu", step->bytes, source->bytes, target->bytes);
    CHECK(!overlaps(&read, &written), "%s is copied over itself", name_of(v, step->value));
    CHECK(target->kind != GT_SLOT_OUTPUT ||
              (v->graph->outputs.data[target->index] == step->value && !target->offset_bytes),
          "%s goes to output %u", name_of(v, step->value), target->index);
    if (queue)
        v->busy[queue] = 1;
    if (!read_value(v, &read, step->value, 0, queue) || !write_value(v, &written, step->value, 0, queue))
        return false;
    if (from != to) {
        take_off(v, &read, queue, false);
        take_off(v, &written, queue, true);
    }
    return true;
}

static bool check_convert(verifier *v, const gt_step *step)
{
    CHECK(step->value < v->graph->values.count, "a conversion of value %u", step->value);
    CHECK(step->provider < v->session->provider_count, "provider %u", step->provider);
    uint32_t domain = v->session->providers[step->provider].domain;
    range read, written;
    CHECK(step->domain == domain, "a conversion in domain %u by a provider of %u", step->domain, domain);
    CHECK(!step->from.tag != !step->to.tag, "%s is converted from format %u to %u", name_of(v, step->value),
          step->from.tag, step->to.tag);
    size_t from_bytes = format_bytes_of(v, step->value, &step->from, step->provider);
    size_t to_bytes = format_bytes_of(v, step->value, &step->to, step->provider);
    if (!take_slot(v, step->source, step->value, domain, from_bytes, &read) ||
        !take_slot(v, step->target, step->value, domain, to_bytes, &written))
        return false;
    CHECK(!overlaps(&read, &written), "%s is converted in place", name_of(v, step->value));
    CHECK(v->plan->slots[step->target].kind != GT_SLOT_OUTPUT || !v->plan->shapes[step->value].bounded,
          "%s of a bounded size is converted into the caller's buffer", name_of(v, step->value));
    v->busy[domain] |= domain != 0;
    return read_value(v, &read, step->value, step->from.tag, domain) &&
           write_value(v, &written, step->value, step->to.tag, domain);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* The provider gets this value's elements when the segment is bound, and needs no more of it. */
static bool needs_shapes_only(const verifier *v, const gt_partition *partition, uint32_t value)
{
    const gt_value *it = v->graph->values.data[value];
    if (!it->elements)
        return false;
    for (uint32_t n = 0; n < partition->node_count; n++) {
        const gt_node *node = v->graph->nodes.data[partition->nodes[n]];
        for (uint32_t k = 0; k < node->input_count; k++)
            if (node->inputs[k] == value && (!node->op || k >= 32 || !(node->op->shape_operands >> k & 1)))
                return false;
    }
    return true;
}

static bool check_run_inputs(verifier *v, const gt_step *step, const gt_partition *partition,
                             const gt_program *program, range *ranges)
{
    for (uint32_t k = 0; k < partition->input_count; k++) {
        uint32_t value = partition->inputs[k];
        CHECK(step->inputs[k] < v->plan->slot_count, "input %u is slot %u", k, step->inputs[k]);
        ranges[k] = (range){GT_NONE, 0, 0, 0};
        if (v->plan->slots[step->inputs[k]].kind == GT_SLOT_NONE) {
            CHECK(needs_shapes_only(v, partition, value), "%s is needed as a tensor", name_of(v, value));
            continue;
        }
        const gantry_format *format = &program->input_formats[k];
        size_t bytes = format_bytes_of(v, value, format, step->provider);
        if (!take_slot(v, step->inputs[k], value, step->domain, bytes, &ranges[k]) ||
            !read_value(v, &ranges[k], value, format->tag, step->domain))
            return false;
    }
    return true;
}

/* An output that the provider calls a view has to be just those bytes of the input's slot. */
static bool check_view(verifier *v, const gt_step *step, uint32_t output, const gantry_output_plan *plan,
                       uint32_t tag, const range *inputs)
{
    uint32_t input = (uint32_t)plan->view_of_input, value = v->plan->slots[step->outputs[output]].value;
    CHECK(input < step->input_count, "a view of input %u", input);
    const gt_slot *base = &v->plan->slots[step->inputs[input]],
                  *slot = &v->plan->slots[step->outputs[output]];
    CHECK(inputs[input].space != GT_NONE, "%s is a view of what is no tensor", name_of(v, value));
    CHECK(slot->kind == base->kind && slot->domain == base->domain && slot->index == base->index &&
              slot->data == base->data && slot->offset_bytes == base->offset_bytes + plan->view_offset_bytes,
          "%s is a view of %s from byte %zu on; its slot lies elsewhere", name_of(v, value),
          name_of(v, base->value), plan->view_offset_bytes);
    uint32_t root = base->value;
    size_t at;
    resolve_alias(v, &root, tag, &at);
    v->aliases[value] = (alias){true, root, tag, at + plan->view_offset_bytes};
    return true;
}

static bool may_share(const gantry_output_plan *plan, uint32_t input)
{
    return plan && (plan->view_of_input == (int32_t)input || plan->overwrite_input == (int32_t)input);
}

/* What is written in one step must not touch what else the step uses. */
static bool check_apart(verifier *v, const gt_step *step, const gantry_output_plan *plans,
                        const range *inputs, const range *outputs, const range *workspace)
{
    for (uint32_t o = 0; o < step->output_count; o++) {
        if (plans && plans[o].view_of_input >= 0)
            continue;
        for (uint32_t k = 0; k < step->input_count; k++)
            CHECK(may_share(plans ? &plans[o] : NULL, k) || !overlaps(&outputs[o], &inputs[k]),
                  "output %u is written over input %u", o, k);
        for (uint32_t k = 0; k < step->output_count; k++)
            CHECK(k == o || !overlaps(&outputs[o], &outputs[k]), "the outputs %u and %u overlap", o, k);
        CHECK(!workspace || !overlaps(&outputs[o], workspace), "output %u lies in the workspace", o);
    }
    for (uint32_t k = 0; workspace && k < step->input_count; k++)
        CHECK(!overlaps(&inputs[k], workspace), "input %u lies in the workspace", k);
    return true;
}

static bool take_outputs(verifier *v, const gt_step *step, const gt_partition *partition,
                         const gt_program *program, const gantry_output_plan *plans, const range *inputs,
                         range *ranges)
{
    for (uint32_t k = 0; k < partition->output_count; k++) {
        uint32_t value = partition->outputs[k], tag = program->output_formats[k].tag;
        size_t bytes = format_bytes_of(v, value, &program->output_formats[k], step->provider);
        bool view = plans && plans[k].view_of_input >= 0;
        CHECK(step->outputs[k] < v->plan->slot_count, "output %u is slot %u", k, step->outputs[k]);
        v->is_view[step->outputs[k]] |= view;
        if (!take_slot(v, step->outputs[k], value, step->domain, bytes, &ranges[k]) ||
            (view && !check_view(v, step, k, &plans[k], tag, inputs)))
            return false;
        CHECK(view || v->plan->slots[step->outputs[k]].kind != GT_SLOT_OUTPUT ||
                  !v->plan->shapes[value].bounded,
              "%s of a bounded size is written into the caller's buffer", name_of(v, value));
        CHECK(view || v->plan->slots[step->outputs[k]].kind != GT_SLOT_OUTPUT ||
                  v->graph->outputs.data[v->plan->slots[step->outputs[k]].index] == value,
              "%s is written to output %u", name_of(v, value), v->plan->slots[step->outputs[k]].index);
    }
    return true;
}

static bool write_outputs(verifier *v, const gt_step *step, const gt_partition *partition,
                          const gt_program *program, const gantry_output_plan *plans, const range *ranges)
{
    for (uint32_t k = 0; k < partition->output_count; k++) {
        uint32_t value = partition->outputs[k], tag = program->output_formats[k].tag;
        bool view = plans && plans[k].view_of_input >= 0;
        v->unfinished[value] = step->domain;
        if (view ? !read_value(v, &ranges[k], value, tag, step->domain)
                 : !write_value(v, &ranges[k], value, tag, step->domain))
            return false;
    }
    return true;
}

static bool check_partition(verifier *v, const gt_step *step, bool control)
{
    uint32_t first = v->segment->first_partition, index = step->partition;
    CHECK(index >= first && index - first < v->segment->partition_count, "partition %u is of another segment",
          index);
    const gt_partition *partition = &v->variant->placement->partitions[index];
    CHECK(partition->control == control, "partition %u as a step of the other kind", index);
    CHECK(!v->done[index], "partition %u runs twice", index);
    CHECK(step->provider == partition->provider, "partition %u by provider %u", index, step->provider);
    uint32_t domain = control ? 0 : v->session->providers[step->provider].domain;
    CHECK(step->domain == domain, "partition %u runs in domain %u", index, step->domain);
    v->done[index] = 1;
    return true;
}

static bool run_ranges(verifier *v, const gt_step *step, range *inputs, range *outputs)
{
    const gt_partition *partition = &v->variant->placement->partitions[step->partition];
    const gt_program *program = &v->variant->programs[step->partition];
    const gantry_shaped_info *info = &v->plan->shaped[step->context].info;
    range workspace = {GT_NONE, 0, 0, 0};
    bool scratch = step->workspace != GT_NO_SLOT;
    CHECK(scratch || !info->workspace_bytes, "no workspace; the program asked for %zu bytes",
          info->workspace_bytes);
    if (!check_run_inputs(v, step, partition, program, inputs) ||
        !take_outputs(v, step, partition, program, info->output_plans, inputs, outputs) ||
        (scratch &&
         !take_slot(v, step->workspace, GT_NONE, step->domain, info->workspace_bytes, &workspace)) ||
        !check_apart(v, step, info->output_plans, inputs, outputs, scratch ? &workspace : NULL))
        return false;
    if (scratch && !write_value(v, &workspace, GT_NONE, 0, step->domain))
        return false;
    v->busy[step->domain] |= step->domain != 0;
    return write_outputs(v, step, partition, program, info->output_plans, outputs);
}

static bool check_run(verifier *v, const gt_step *step)
{
    if (!check_partition(v, step, false))
        return false;
    const gt_partition *partition = &v->variant->placement->partitions[step->partition];
    CHECK(step->context < v->plan->shaped_count &&
              v->plan->shaped[step->context].partition == step->partition,
          "partition %u with the context %u", step->partition, step->context);
    CHECK(step->input_count == partition->input_count && step->output_count == partition->output_count,
          "partition %u with %u inputs and %u outputs", step->partition, step->input_count,
          step->output_count);
    range *inputs = room(step->input_count, sizeof *inputs),
          *outputs = room(step->output_count, sizeof *outputs);
    bool right = run_ranges(v, step, inputs, outputs);
    free(inputs);
    free(outputs);
    return right;
}

/* ---- If and Loop ----------------------------------------------------------------------------- */

static bool read_on_host(verifier *v, uint32_t slot, uint32_t value)
{
    range r;
    if (value == GT_NONE) {
        CHECK(slot == GT_NO_SLOT, "slot %u for an operand that is left out", slot);
        return true;
    }
    return take_slot(v, slot, value, 0, bytes_of(v, value), &r) && read_value(v, &r, value, 0, 0);
}

static bool check_control_inputs(verifier *v, const gt_step *step, const gt_node *node,
                                 const gt_program *program)
{
    uint32_t at = 0;
    for (uint32_t k = 0; k < node->input_count; k++, at++) {
        CHECK(at < step->input_count, "%s has %u inputs", node->name, step->input_count);
        if (!read_on_host(v, step->inputs[at], node->inputs[k]))
            return false;
    }
    for (int b = 0; b < 2; b++) {
        const gt_variant *body = program->bodies[b];
        for (uint32_t k = 0; body && k < body->capture_count; k++, at++) {
            CHECK(at < step->input_count, "%s has %u inputs", node->name, step->input_count);
            if (!read_on_host(v, step->inputs[at], body->graph->values.data[body->captures[k]]->captured))
                return false;
        }
    }
    CHECK(at == step->input_count, "%s has %u inputs for %u operands", node->name, step->input_count, at);
    return true;
}

static bool check_control(verifier *v, const gt_step *step)
{
    if (!check_partition(v, step, true))
        return false;
    const gt_node *node = v->graph->nodes.data[v->variant->placement->partitions[step->partition].nodes[0]];
    if (!check_control_inputs(v, step, node, &v->variant->programs[step->partition]))
        return false;
    CHECK(step->output_count == node->output_count, "%s has %u outputs", node->name, step->output_count);
    for (uint32_t k = 0; k < node->output_count; k++) {
        uint32_t value = node->outputs[k];
        range r;
        CHECK((value == GT_NONE) == (step->outputs[k] == GT_NO_SLOT), "output %u of %s", k, node->name);
        if (value == GT_NONE)
            continue;
        if (!take_slot(v, step->outputs[k], value, 0, bytes_of(v, value), &r))
            return false;
        const gt_slot *slot = &v->plan->slots[step->outputs[k]];
        CHECK(!v->plan->shapes[value].dynamic || (slot->kind == GT_SLOT_CARRY && slot->index == value),
              "%s has an unknown size, and no memory that grows", name_of(v, value));
        CHECK(slot->kind != GT_SLOT_OUTPUT || !v->plan->shapes[value].bounded,
              "%s of a bounded size is written into the caller's buffer", name_of(v, value));
        for (uint32_t m = 0; m < step->input_count; m++) {
            const gt_slot *other = step->inputs[m] == GT_NO_SLOT ? NULL : &v->plan->slots[step->inputs[m]];
            range read = other ? (range){space_of(v, other), other->offset_bytes,
                                         other->offset_bytes + bytes_of(v, other->value), 0}
                               : (range){GT_NONE, 0, 0, 0};
            CHECK(!overlaps(&r, &read), "output %u of %s is written over its input %u", k, node->name, m);
        }
        /* Its memory grows to whatever size it has. */
        r.end = v->plan->shapes[value].dynamic ? SIZE_MAX : r.end;
        if (!write_value(v, &r, value, 0, 0))
            return false;
    }
    return true;
}

/* ---- a plan ---------------------------------------------------------------------------------- */

static bool check_step(verifier *v, const gt_step *step)
{
    switch (step->kind) {
    case GT_STEP_TRANSFER:
        return check_transfer(v, step);
    case GT_STEP_CONVERT:
        return check_convert(v, step);
    case GT_STEP_RUN:
        return check_run(v, step);
    case GT_STEP_WAIT:
        return check_wait(v, step);
    case GT_STEP_CONTROL:
        return check_control(v, step);
    }
    return wrong(v, "a step of kind %d", (int)step->kind);
}

/* The segment whose plan delivers an output: the one that makes it, else the last. */
static uint32_t segment_of_output(const verifier *v, uint32_t output)
{
    uint32_t producer = v->graph->values.data[v->graph->outputs.data[output]]->producer;
    uint32_t partition = producer == GT_NONE ? GT_NONE : v->variant->placement->partition_of_node[producer];
    uint32_t segment = v->variant->segment_count - 1;
    for (uint32_t s = 0; partition != GT_NONE && s < v->variant->segment_count; s++)
        if (partition - v->variant->segments[s].first_partition < v->variant->segments[s].partition_count)
            segment = s;
    return segment;
}

static bool check_outputs(verifier *v)
{
    for (uint32_t k = 0; k < v->graph->outputs.count; k++) {
        uint32_t value = v->graph->outputs.data[k], owner = segment_of_output(v, k);
        CHECK(v->delivered[k] == (owner <= v->number), "output %u (%s) was delivered %u times by now", k,
              name_of(v, value), v->delivered[k]);
        if (owner != v->number)
            continue;
        gt_slot slot = {.kind = GT_SLOT_OUTPUT, .index = k, .value = value};
        range r = {space_of(v, &slot), 0, bytes_of(v, value), outside_domain(v, &slot)};
        if (!read_value(v, &r, value, 0, r.domain))
            return false;
    }
    return true;
}

static bool check_results(verifier *v)
{
    for (uint32_t k = 0; k < v->segment->result_count; k++) {
        const gt_result_symbol *result = &v->segment->results[k];
        if (result->element && !read_on_host(v, v->plan->result_slots[k], result->value))
            return false;
    }
    return true;
}

/* Arenas are free for anybody when the plan is over; carried values keep what they have room for. */
static void leave_plan(verifier *v)
{
    for (uint32_t k = 0; k < v->spaces.count; k++) {
        space *s = &v->spaces.data[k];
        if (s->kind == GT_SLOT_ARENA)
            s->extents.count = 0;
        if (s->kind != GT_SLOT_CARRY || v->plan->shapes[s->index].dynamic)
            continue;
        for (uint32_t m = 0; m < v->plan->slot_count; m++) {
            const gt_slot *slot = &v->plan->slots[m];
            if (slot->kind == GT_SLOT_CARRY && slot->index == s->index && slot->bytes > s->capacity)
                s->capacity = slot->bytes;
        }
    }
}

static bool check_plan(verifier *v)
{
    v->is_view = room(v->plan->slot_count, 1);
    bool right = true;
    for (v->step = 0; right && v->step < v->plan->step_count; v->step++)
        right = check_step(v, &v->plan->steps[v->step]);
    free(v->is_view);
    v->is_view = room(v->plan->slot_count, 1);
    for (uint32_t d = 1; right && d < v->session->domain_count; d++)
        right = !v->busy[d] || wrong(v, "domain %u is left without a wait", d);
    for (uint32_t p = 0; right && p < v->segment->partition_count; p++)
        right = v->done[v->segment->first_partition + p] ||
                wrong(v, "partition %u never runs", v->segment->first_partition + p);
    memset(v->is_view, 1, v->plan->slot_count);
    right = right && check_outputs(v) && check_results(v);
    leave_plan(v);
    free(v->is_view);
    return right;
}

bool verify_plans(const gt_variant *variant, const gt_plan *const *plans, char *out_text)
{
    uint32_t values = variant->graph->values.count;
    verifier it = {.variant = variant,
                   .session = variant->session,
                   .graph = variant->graph,
                   .text = out_text},
             *v = &it;
    gt_allocator_init(&v->allocator, NULL);
    v->aliases = room(values, sizeof *v->aliases);
    v->done = room(variant->placement->partition_count, 1);
    v->busy = room(v->session->domain_count, 1);
    v->unfinished = room(values, sizeof *v->unfinished);
    v->delivered = room(v->graph->outputs.count, sizeof *v->delivered);
    v->home = room(values, sizeof *v->home);
    bool right = true;
    for (uint32_t s = 0; right && s < variant->segment_count; s++) {
        v->plan = plans[s];
        v->segment = &variant->segments[s];
        v->number = s;
        right = check_plan(v);
    }
    for (uint32_t k = 0; k < v->spaces.count; k++)
        gt_vec_free(&v->allocator, &v->spaces.data[k].extents);
    gt_vec_free(&v->allocator, &v->spaces);
    gt_vec_free(&v->allocator, &v->flights);
    free(v->aliases);
    free(v->done);
    free(v->busy);
    free(v->unfinished);
    free(v->delivered);
    free(v->home);
    return right;
}
