/* The plans that a session keeps: finding the one for these symbol values, else having it made; the least
 * recently used ones go. Also the shapes that a provider refused, and what is placed without it. */
#include "bind_parts.h"

/* A symbol of data that is not known when the segment is bound (its bound stands in for it) has this key. */
#define KEY_UNKNOWN INT64_MIN

static int64_t key_of(const gt_env *env, uint32_t symbol)
{
    return symbol < env->count && env->known[symbol] ? env->values[symbol].i : KEY_UNKNOWN;
}

bool gt_plan_matches(const gt_plan *plan, const gt_segment *segment, const gt_env *env)
{
    for (uint32_t k = 0; k < segment->symbol_count; k++)
        if (plan->key[k] != key_of(env, segment->symbols[k]))
            return false;
    return true;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static void drop_plan(gt_variant *variant, uint32_t index)
{
    gt_plan_destroy(&variant->plans.data[index]);
    variant->plans.data[index] = variant->plans.data[--variant->plans.count];
    variant->session->plan_count--;
}

/* The least recently used plan that no run holds, in this variant and below it. */
static void find_oldest(gt_variant *variant, gt_variant **inout_owner, uint32_t *inout_index,
                        uint64_t *inout_tick)
{
    for (uint32_t k = 0; k < variant->plans.count; k++)
        if (!variant->plans.data[k]->references && variant->plans.data[k]->last_used < *inout_tick) {
            *inout_owner = variant;
            *inout_index = k;
            *inout_tick = variant->plans.data[k]->last_used;
        }
    for (uint32_t k = 0; k < variant->refused.count; k++)
        find_oldest(variant->refused.data[k].alternate, inout_owner, inout_index, inout_tick);
    for (uint32_t k = 0; k < variant->children.count; k++)
        find_oldest(variant->children.data[k].variant, inout_owner, inout_index, inout_tick);
    for (uint32_t p = 0; variant->programs && p < variant->placement->partition_count; p++)
        for (int body = 0; body < 2; body++)
            if (variant->programs[p].bodies[body])
                find_oldest(variant->programs[p].bodies[body], inout_owner, inout_index, inout_tick);
}

static void trim_plans(gantry_session *session)
{
    while (session->plan_count > session->options.plan_cache) {
        gt_variant *owner = NULL;
        uint32_t index = 0;
        uint64_t tick = UINT64_MAX;
        find_oldest(session->root, &owner, &index, &tick);
        if (!owner)
            return;
        drop_plan(owner, index);
        session->plans_evicted++;
    }
}

void gt_plan_release(gantry_session *session, gt_plan **inout_plan)
{
    if (!*inout_plan)
        return;
    pthread_mutex_lock(&session->lock);
    (*inout_plan)->references--;
    trim_plans(session);
    pthread_mutex_unlock(&session->lock);
    *inout_plan = NULL;
}

/* Why there was no plan yet: the first symbol whose value differs from the plan used last. */
static void note_trigger(const gt_variant *variant, gt_plan *plan)
{
    const gt_plan *before = NULL;
    for (uint32_t k = 0; k < variant->plans.count; k++) {
        const gt_plan *other = variant->plans.data[k];
        if (other->segment == plan->segment && (!before || other->last_used > before->last_used))
            before = other;
    }
    plan->trigger = GT_NONE;
    const gt_segment *segment = &variant->segments[plan->segment];
    for (uint32_t k = 0; before && k < segment->symbol_count && plan->trigger == GT_NONE; k++)
        if (before->key[k] != plan->key[k]) {
            plan->trigger = k;
            plan->trigger_before = before->key[k];
        }
}

static gantry_status find_or_make(gt_variant *variant, uint32_t segment, gt_env *env, gt_plan **out_plan,
                                  bool *out_refused, bool *out_made, gantry_error *err)
{
    gantry_session *session = variant->session;
    const gt_segment *seg = &variant->segments[segment];
    int64_t few[64], *key = few;
    if (seg->symbol_count > 64 && !(key = GT_NEW_ARRAY(session->allocator, int64_t, seg->symbol_count)))
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < seg->symbol_count; k++)
        key[k] = key_of(env, seg->symbols[k]);
    uint64_t hash = XXH3_64bits(key, seg->symbol_count * sizeof *key);
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; k < variant->plans.count && !*out_plan; k++) {
        gt_plan *plan = variant->plans.data[k];
        if (plan->segment == segment && plan->key_hash == hash && gt_plan_matches(plan, seg, env))
            *out_plan = plan;
    }
    *out_made = !*out_plan;
    if (*out_made) {
        status = gt_plan_make(variant, segment, env, key, hash, out_plan, out_refused, err);
        if (status == GANTRY_OK && *out_plan)
            note_trigger(variant, *out_plan);
        if (status == GANTRY_OK && *out_plan &&
            !gt_vec_push(session->allocator, &variant->plans, *out_plan)) {
            gt_plan_destroy(out_plan);
            status = gt_out_of_memory(err, GANTRY_STAGE_RUN);
        }
        session->plan_count += *out_plan != NULL;
    }
    if (key != few)
        gt_free(session->allocator, key);
    return status;
}

gantry_status gt_bind_segment(gt_variant *variant, uint32_t segment, gt_env *env, gt_plan **out_plan,
                              bool *out_refused, bool *out_made, gantry_error *err)
{
    gantry_session *session = variant->session;
    *out_plan = NULL;
    *out_refused = false;
    pthread_mutex_lock(&session->lock);
    gantry_status status = find_or_make(variant, segment, env, out_plan, out_refused, out_made, err);
    if (status == GANTRY_OK && *out_plan) {
        (*out_plan)->references++;
        (*out_plan)->last_used = ++session->tick;
        trim_plans(session);
    }
    pthread_mutex_unlock(&session->lock);
    return status;
}

/* ---- refused shapes -------------------------------------------------------------------------- */

gt_variant *gt_bind_refused(gt_variant *variant, const gt_env *env)
{
    /* An alternate may refuse the same shape again, for the next provider. */
    for (bool found = true; found;) {
        found = false;
        if (!atomic_load(&variant->refused_count))
            return variant;
        pthread_mutex_lock(&variant->session->lock);
        for (uint32_t k = 0; k < variant->refused.count && !found; k++) {
            const gt_refused_shape *shape = &variant->refused.data[k];
            found = true;
            for (uint32_t s = 0; s < variant->segments[0].symbol_count; s++)
                found = found && shape->key[s] == key_of(env, variant->segments[0].symbols[s]);
            if (found) {
                pthread_mutex_unlock(&variant->session->lock);
                variant = shape->alternate;
                break;
            }
        }
        if (!found)
            pthread_mutex_unlock(&variant->session->lock);
    }
    return variant;
}
