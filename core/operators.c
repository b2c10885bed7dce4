/* The operators that plugins brought: who may bring which, and the sessions that use them. */
#include "graph/own_ops.h"
#include "runtime.h"

static bool same_operator(const gt_op *a, const gt_op *b)
{
    return strcmp(a->domain, b->domain) == 0 && strcmp(a->name, b->name) == 0;
}

gantry_status gt_operators_check(const gantry_runtime *runtime, const gt_operator_entry *entries,
                                 uint32_t count, gantry_error *err)
{
    for (uint32_t k = 0; k < count; k++) {
        const gt_op *row = &entries[k].op->row;
        bool taken = false;
        for (uint32_t j = 0; j < runtime->operators.count; j++)
            taken |= same_operator(row, &runtime->operators.data[j].op->row);
        for (uint32_t j = 0; j < k; j++)
            taken |= same_operator(row, &entries[j].op->row) && row->since[0] == entries[j].op->row.since[0];
        if (taken)
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "the runtime has an operator \"%s.%s\" of version %d already", row->domain,
                           row->name, row->since[0]);
    }
    return GANTRY_OK;
}

void gt_operators_add(gantry_runtime *runtime, const gt_operator_entry *entries, uint32_t count,
                      uint32_t plugin)
{
    for (uint32_t k = 0; k < count; k++)
        runtime->operators.data[runtime->operators.count++] = (gt_operator_entry){entries[k].op, plugin};
}

void gt_operators_remove(gantry_runtime *runtime, uint32_t plugin)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < runtime->operators.count; k++) {
        if (runtime->operators.data[k].plugin == plugin)
            gt_free(&runtime->allocator, runtime->operators.data[k].op);
        else
            runtime->operators.data[kept++] = runtime->operators.data[k];
    }
    runtime->operators.count = kept;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void count_use(gantry_runtime *runtime, const gt_own_op *op, bool begins)
{
    for (uint32_t k = 0; k < runtime->operators.count; k++) {
        const gt_operator_entry *entry = &runtime->operators.data[k];
        if (entry->op != op || entry->plugin == GT_NO_PLUGIN)
            continue;
        uint32_t *uses = &runtime->plugins.data[entry->plugin]->session_count;
        *uses = begins ? *uses + 1 : *uses - 1;
    }
}

gantry_status gt_operators_acquire(gantry_runtime *runtime, gt_own_ops *out_ops, gantry_error *err)
{
    gantry_status status = GANTRY_OK;
    *out_ops = (gt_own_ops){0};
    pthread_mutex_lock(&runtime->lock);
    uint32_t count = runtime->operators.count;
    const gt_own_op **ops = count ? GT_NEW_ARRAY(&runtime->allocator, const gt_own_op *, count) : NULL;
    for (uint32_t k = 0; ops && k < count; k++) {
        ops[k] = runtime->operators.data[k].op;
        count_use(runtime, ops[k], true);
    }
    if (ops)
        *out_ops = (gt_own_ops){count, ops};
    else if (count)
        status = gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    pthread_mutex_unlock(&runtime->lock);
    return status;
}

void gt_operators_release(gantry_runtime *runtime, gt_own_ops *ops)
{
    pthread_mutex_lock(&runtime->lock);
    for (uint32_t k = 0; k < ops->count; k++)
        count_use(runtime, ops->data[k], false);
    pthread_mutex_unlock(&runtime->lock);
    gt_free(&runtime->allocator, (void *)(uintptr_t)ops->data);
    *ops = (gt_own_ops){0};
}
