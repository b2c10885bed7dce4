/* Which nodes become one kernel: each node alone, or a convolution or product with the bias, residual and
 * activations that follow it, as long as nobody else reads what lies between.
 *
 * A group runs at the place of its last node: by then all its operands are computed, and nothing before needs
 * its output. */
#include "fusion.h"

static bool can_lead(const cpu_program *program, const gantry_node_view *node)
{
    static const char *const leaders[] = {"Conv", "ConvTranspose", "MatMul", "Gemm"};
    const gantry_value_view *output = gantry_node_output(program->graph, node, 0);
    if (node->domain[0] != 0 || !output || output->dtype != GANTRY_FLOAT32)
        return false;
    for (size_t k = 0; k < sizeof leaders / sizeof *leaders; k++)
        if (strcmp(node->op, leaders[k]) == 0)
            return true;
    return false;
}

static gantry_status count_uses(cpu_fuser *f)
{
    const gantry_graph_view *graph = f->program->graph;
    gt_arena *arena = &f->program->arena;
    f->uses = (cpu_uses){GT_ARENA_ARRAY(arena, uint32_t, graph->value_count),
                         GT_ARENA_ARRAY(arena, uint32_t, graph->value_count),
                         GT_ARENA_ARRAY(arena, uint32_t, graph->value_count),
                         GT_ARENA_ARRAY(arena, uint8_t, graph->value_count)};
    if (!f->uses.count || !f->uses.consumer || !f->uses.producer || !f->uses.is_output)
        return gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE);
    memset(f->uses.producer, 0xFF, graph->value_count * sizeof *f->uses.producer);
    for (uint32_t k = 0; k < graph->node_count; k++)
        for (uint32_t j = 0; j < graph->nodes[k]->input_count; j++) {
            uint32_t value = graph->nodes[k]->inputs[j];
            if (value == GANTRY_NO_ID)
                continue;
            f->uses.count[value]++;
            f->uses.consumer[value] = k;
        }
    for (uint32_t k = 0; k < graph->node_count; k++)
        for (uint32_t j = 0; j < graph->nodes[k]->output_count; j++)
            if (graph->nodes[k]->outputs[j] != GANTRY_NO_ID)
                f->uses.producer[graph->nodes[k]->outputs[j]] = k;
    for (uint32_t k = 0; k < graph->output_count; k++)
        f->uses.is_output[graph->outputs[k]] = 1;
    return GANTRY_OK;
}

/* The group of a product whose second operand is a Transpose reads what that transposes. */
static gantry_status read_through(cpu_fuser *f, uint32_t index, uint32_t weight)
{
    gt_arena *arena = &f->program->arena;
    cpu_group *group = &f->led[index];
    uint32_t *inputs = gt_arena_copy(arena, group->inputs, group->input_count * sizeof *inputs);
    uint32_t *ids = GT_ARENA_ARRAY(arena, uint32_t, 2);
    if (!inputs || !ids)
        return gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE);
    inputs[1] = f->transposed[weight];
    ids[0] = f->program->graph->nodes[f->uses.producer[weight]]->id;
    ids[1] = group->node->id;
    group->inputs = inputs;
    group->node_ids = ids;
    group->node_count = 2;
    group->b_transposed = true;
    group->label = strcmp(group->node->op, "Gemm") == 0 ? "Transpose+Gemm" : "Transpose+MatMul";
    return GANTRY_OK;
}

static gantry_status lead_alone(cpu_fuser *f, uint32_t index)
{
    const gantry_node_view *node = f->program->graph->nodes[index];
    const cpu_op_row *row = cpu_find_op(node->domain, node->op);
    if (!row)
        return gt_fail(f->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_COMPILE, node->name,
                       "the CPU has no kernel for %s (node '%s')", node->op, node->name);
    f->led[index] = (cpu_group){.node = node,
                                .row = row,
                                .input_count = node->input_count,
                                .inputs = node->inputs,
                                .output_count = node->output_count,
                                .outputs = node->outputs,
                                .node_count = 1,
                                .node_ids = &node->id,
                                .label = node->op};
    uint32_t weight = node->input_count > 1 ? node->inputs[1] : GANTRY_NO_ID;
    return weight != GANTRY_NO_ID && f->transposed[weight] != GANTRY_NO_ID ? read_through(f, index, weight)
                                                                           : GANTRY_OK;
}

static void record(const cpu_fuser *f, const cpu_group *group, const gantry_node_view *next,
                   const char *guard)
{
    if (!f->args->recorder)
        return;
    char rule[160];
    snprintf(rule, sizeof rule, "%s%s%s", group->label, next ? "+" : "", next ? next->op : "");
    uint32_t pair[2] = {group->node->id, next ? next->id : 0};
    gantry_fusion_record fusion = {.struct_bytes = sizeof fusion,
                                   .rule = rule,
                                   .node_count = next ? 2 : group->node_count,
                                   .node_ids = next ? pair : group->node_ids,
                                   .applied = next == NULL,
                                   .guard = guard};
    const gantry_host *host = f->program->provider->host;
    host->record_fusion(f->args->recorder, &fusion);
}

/* A factor and the addend behind it are one post-op. */
static bool joins_factor(const cpu_group *group, const cpu_post *next)
{
    const cpu_post *last = group->post_count ? &group->posts[group->post_count - 1] : NULL;
    return last && last->kind == CPU_POST_LINEAR && last->beta == 0 && next->kind == CPU_POST_LINEAR &&
           next->alpha == 1;
}

/* Adds one node to a group; arrays are copied, groups are short. */
static gantry_status absorb(cpu_fuser *f, cpu_group *group, const gantry_node_view *node,
                            const cpu_post_match *match)
{
    gt_arena *arena = &f->program->arena;
    bool operand = match->operand != GANTRY_NO_ID;
    uint32_t *inputs = GT_ARENA_ARRAY(arena, uint32_t, group->input_count + 1);
    cpu_post *posts = GT_ARENA_ARRAY(arena, cpu_post, group->post_count + 1);
    uint32_t *ids = GT_ARENA_ARRAY(arena, uint32_t, group->node_count + 1);
    size_t length = strlen(group->label);
    char *label = gt_arena_alloc(arena, length + strlen(node->op) + 2);
    if (!inputs || !posts || !ids || !label)
        return gt_out_of_memory(f->err, GANTRY_STAGE_COMPILE);
    memcpy(inputs, group->inputs, group->input_count * sizeof *inputs);
    if (group->post_count)
        memcpy(posts, group->posts, group->post_count * sizeof *posts);
    memcpy(ids, group->node_ids, group->node_count * sizeof *ids);
    sprintf(label, "%s+%s", group->label, node->op);
    if (joins_factor(group, &match->post)) {
        posts[group->post_count - 1].beta = match->post.beta;
    } else {
        posts[group->post_count] = match->post;
        posts[group->post_count++].input = group->input_count;
    }
    if (operand)
        inputs[group->input_count++] = match->operand;
    ids[group->node_count++] = node->id;
    group->inputs = inputs;
    group->posts = posts;
    group->node_ids = ids;
    group->label = label;
    group->outputs = node->outputs;
    return GANTRY_OK;
}

/* Why the value between two nodes cannot disappear, or NULL. */
static const char *value_guard(const cpu_fuser *f, uint32_t value, uint32_t next)
{
    if (f->uses.is_output[value])
        return "the value between is an output";
    if (f->uses.count[value] != 1)
        return "the value between is read elsewhere";
    if (f->taken_by[next] != GANTRY_NO_ID)
        return "the next node belongs to another kernel";
    return NULL;
}

static gantry_status grow(cpu_fuser *f, uint32_t index)
{
    const gantry_graph_view *graph = f->program->graph;
    cpu_group *group = &f->led[index];
    for (;;) {
        uint32_t value = group->outputs[0];
        if (value == GANTRY_NO_ID || f->uses.count[value] == 0)
            break;
        uint32_t next = f->uses.consumer[value];
        const gantry_node_view *node = graph->nodes[next];
        cpu_post_match match = cpu_post_of_node(f->program, f->args, group, node, value);
        const char *guard = match.guard ? match.guard : value_guard(f, value, next);
        if (match.matched && guard)
            record(f, group, node, guard);
        if (!match.matched || guard)
            break;
        GT_TRY(absorb(f, group, node, &match));
        f->taken_by[next] = index;
        f->last[index] = next;
    }
    if (group->node_count > 1)
        record(f, group, NULL, "");
    return GANTRY_OK;
}

/* A Transpose that every reader looks through computes nothing. */
static bool is_read_through(const cpu_fuser *f, const gantry_node_view *node)
{
    return node->output_count == 1 && node->outputs[0] != GANTRY_NO_ID &&
           f->transposed[node->outputs[0]] != GANTRY_NO_ID;
}

/* Constants that stay in memory as they are: their readers do not pack them. */
static void find_kept(cpu_program *program)
{
    for (uint32_t k = 0; k < program->group_count; k++) {
        const cpu_group *group = &program->groups[k];
        for (uint32_t j = 0; j < group->input_count && !(group->row->flags & CPU_ROW_PACKS); j++)
            if (group->inputs[j] != GANTRY_NO_ID)
                program->kept[group->inputs[j]] = 1;
    }
}

static gantry_status form_groups(cpu_fuser *f)
{
    const gantry_graph_view *graph = f->program->graph;
    for (uint32_t k = 0; k < graph->node_count; k++) {
        if (f->taken_by[k] != GANTRY_NO_ID)
            continue;
        f->taken_by[k] = k;
        f->last[k] = is_read_through(f, graph->nodes[k]) ? GANTRY_NO_ID : k;
        if (f->last[k] == GANTRY_NO_ID)
            continue;
        GT_TRY(lead_alone(f, k));
        if (can_lead(f->program, graph->nodes[k]))
            GT_TRY(grow(f, k));
    }
    return GANTRY_OK;
}

gantry_status cpu_program_group(cpu_program *program, const gantry_compile_args *args, gantry_error *err)
{
    const gantry_graph_view *graph = program->graph;
    gt_arena *arena = &program->arena;
    cpu_fuser f = {.program = program,
                   .args = args,
                   .err = err,
                   .taken_by = GT_ARENA_ARRAY(arena, uint32_t, graph->node_count),
                   .last = GT_ARENA_ARRAY(arena, uint32_t, graph->node_count),
                   .led = GT_ARENA_ARRAY(arena, cpu_group, graph->node_count)};
    program->groups = GT_ARENA_ARRAY(arena, cpu_group, graph->node_count);
    program->kept = GT_ARENA_ARRAY(arena, uint8_t, graph->value_count);
    if (!f.taken_by || !f.last || !f.led || !program->groups || !program->kept)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    memset(f.taken_by, 0xFF, graph->node_count * sizeof *f.taken_by);
    GT_TRY(count_uses(&f));
    f.transposed = cpu_find_transposed_weights(program, &f.uses);
    if (!f.transposed)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    GT_TRY(cpu_fuse_qdq(&f));
    GT_TRY(form_groups(&f));
    for (uint32_t k = 0; k < graph->node_count; k++)
        if (f.last[f.taken_by[k]] == k)
            program->groups[program->group_count++] = f.led[f.taken_by[k]];
    find_kept(program);
    return GANTRY_OK;
}
