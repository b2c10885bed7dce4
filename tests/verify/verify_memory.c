/* The memory of the plan verifier: for every byte, which value lies there in which format, and which queues
 * may still touch it. */
#include "verify_plan_parts.h"

#include <stdarg.h>

bool verify_wrong(verifier *v, const char *format, ...)
{
    int used = snprintf(v->text, 400, "segment %u, step %u: ", v->number, v->step);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(v->text + used, 400 - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

void *verify_room(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        abort();
    return memory;
}

const char *verify_name(const verifier *v, uint32_t value)
{
    return value < v->graph->values.count ? v->graph->values.data[value]->name : "(no value)";
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A value whose size nobody knows before the run stands as one byte. */
size_t verify_bytes(const verifier *v, uint32_t value)
{
    const gt_plan_shape *shape = &v->plan->shapes[value];
    if (!shape->dims)
        return 1;
    uint64_t count = 1;
    for (uint32_t d = 0; d < shape->rank; d++)
        count *= (uint64_t)shape->dims[d];
    return gantry_dtype_bytes(v->graph->values.data[value]->dtype, count);
}

size_t verify_format_bytes(const verifier *v, uint32_t value, const gantry_format *format, uint32_t provider)
{
    if (!format->tag)
        return verify_bytes(v, value);
    const gantry_provider *table = v->session->providers[provider].entry->table;
    gantry_shape shape = {v->plan->shapes[value].rank, v->plan->shapes[value].dims};
    return table->format_bytes(table->self, format, v->graph->values.data[value]->dtype, &shape);
}

void verify_resolve_alias(const verifier *v, uint32_t *inout_value, uint32_t tag, size_t *out_at)
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

uint32_t verify_space(verifier *v, const gt_slot *slot)
{
    bool by_value = slot->kind == GT_SLOT_CONSTANT || slot->kind == GT_SLOT_BIND;
    uint32_t index = slot->kind == GT_SLOT_ARENA ? slot->pinned : by_value ? slot->value : slot->index;
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

bool verify_overlaps(const range *a, const range *b)
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
uint32_t verify_outside_domain(const verifier *v, const gt_slot *slot)
{
    uint32_t inputs = v->graph->inputs.count;
    if (slot->kind == GT_SLOT_OUTPUT)
        return v->variant->output_domains[slot->index];
    if (slot->kind != GT_SLOT_INPUT)
        return 0;
    return slot->index < inputs ? v->variant->input_domains[slot->index]
                                : v->variant->capture_domains[slot->index - inputs];
}

/* A slot that a step names must make sense by itself; the bytes it touches are *out_range. */
bool verify_slot(verifier *v, uint32_t index, uint32_t value, uint32_t domain, size_t bytes, range *out_range)
{
    CHECK(index < v->plan->slot_count, "slot %u of %u", index, v->plan->slot_count);
    const gt_slot *slot = &v->plan->slots[index];
    uint32_t place = slot->pinned ? v->session->domain_count + slot->pinned : slot->domain;
    CHECK(slot->domain == domain, "%s is expected in domain %u; slot %u lies in %u", verify_name(v, value),
          domain, index, slot->domain);
    CHECK(slot->value == value, "slot %u is of %s, not of %s", index, verify_name(v, slot->value),
          verify_name(v, value));
    CHECK(slot->kind < GT_SLOT_NONE, "slot %u of %s is no memory", index, verify_name(v, value));
    CHECK(slot->kind != GT_SLOT_OUTPUT || slot->index < v->graph->outputs.count, "output %u", slot->index);
    CHECK(slot->kind != GT_SLOT_INPUT || first_content(v, slot) != GT_NONE, "input %u", slot->index);
    CHECK(!slot->pinned ||
              (slot->domain == 0 && v->session->domains[slot->pinned].pins &&
               (slot->kind == GT_SLOT_ARENA || slot->kind == GT_SLOT_CARRY || slot->kind == GT_SLOT_OUTPUT)),
          "slot %u of %s is to be pinned by domain %u", index, verify_name(v, value), slot->pinned);
    CHECK(slot->kind == GT_SLOT_ARENA || slot->kind == GT_SLOT_CARRY ||
              slot->domain == verify_outside_domain(v, slot),
          "slot %u of %s lies in domain %u, not in %u", index, verify_name(v, value), slot->domain,
          verify_outside_domain(v, slot));
    CHECK(bytes <= slot->bytes || (value != GT_NONE && !v->plan->shapes[value].dims),
          "%s has %zu bytes, its slot %u only %zu", verify_name(v, value), bytes, index, slot->bytes);
    CHECK(slot->kind != GT_SLOT_ARENA || (slot->offset_bytes <= v->plan->arena_bytes[place] &&
                                          slot->bytes <= v->plan->arena_bytes[place] - slot->offset_bytes),
          "slot %u ends at byte %zu of an arena of %zu", index, slot->offset_bytes + slot->bytes,
          v->plan->arena_bytes[place]);
    CHECK(slot->kind != GT_SLOT_ARENA || v->is_view[index] || slot->offset_bytes % 64 == 0,
          "slot %u begins at byte %zu: not a multiple of 64", index, slot->offset_bytes);
    if (slot->kind == GT_SLOT_CARRY) {
        CHECK(slot->index < v->graph->values.count, "carry %u", slot->index);
        CHECK(!v->home[slot->index] || v->home[slot->index] == 1 + domain,
              "the carry of %s lies in domain %u and in %u", verify_name(v, slot->index), domain,
              v->home[slot->index] - 1);
        v->home[slot->index] = 1 + domain;
    }
    *out_range = (range){verify_space(v, slot), slot->offset_bytes, slot->offset_bytes + bytes, domain};
    return true;
}

bool verify_read(verifier *v, const range *r, uint32_t value, uint32_t tag, uint32_t actor)
{
    uint32_t root = value, other = GT_NONE;
    size_t at;
    const space *s = &v->spaces.data[r->space];
    CHECK(s->kind != GT_SLOT_CARRY || !s->capacity || r->end <= s->capacity,
          "the carry of %s was made for %zu bytes and would grow to %zu, which loses what it holds",
          verify_name(v, value), s->capacity, r->end);
    verify_resolve_alias(v, &root, tag, &at);
    size_t there = held(v, r, root, tag, at, &other);
    CHECK(there == r->end - r->begin, "%s (format %u) is read; of its %zu bytes, byte %zu holds %s",
          verify_name(v, value), tag, r->end - r->begin, there,
          other == GT_NONE ? "nothing"
          : other == root  ? "another part or format of it"
                           : verify_name(v, other));
    return verify_settled(v, r, actor, false, verify_name(v, value));
}

/* Value GT_NONE: scratch. */
bool verify_write(verifier *v, const range *r, uint32_t value, uint32_t tag, uint32_t actor)
{
    space *s = &v->spaces.data[r->space];
    CHECK(s->kind == GT_SLOT_ARENA || s->kind == GT_SLOT_OUTPUT || s->kind == GT_SLOT_CARRY,
          "%s is written over %s", verify_name(v, value),
          s->kind == GT_SLOT_INPUT ? "an input" : "what is known at bind");
    if (!verify_settled(v, r, actor, true, verify_name(v, value)))
        return false;
    if (s->kind == GT_SLOT_OUTPUT && r->begin == 0 && value != GT_NONE)
        v->delivered[s->index]++;
    cut(v, r->space, r->begin, r->end);
    extent e = {r->begin, r->end, value, tag, 0};
    if (value == GT_NONE || r->begin == r->end)
        return true;
    verify_resolve_alias(v, &e.value, tag, &e.at);
    if (!gt_vec_push(&v->allocator, &v->spaces.data[r->space].extents, e))
        abort();
    return true;
}
