/* Worth: islands whose boundaries cost more than they gain move to a lower provider.
 *
 * An island is a connected group of units of one provider; then, because neighbours on one device hold each
 * other there, a connected group of units of one domain. What a move changes is computed exactly, from how
 * many readers each value has in each domain, so each move lowers the estimated total; a unit moves at most
 * once at each level. At the end everything goes to the host when that is estimated to be faster still. */
#include "place_parts.h"

/* Moves can make neighbours not worth their boundaries, one after the other: passes alternate their direction
 * so that such chains fall in one pass. What is left after this many passes is not worth the time. */
#define MAX_PASSES 16
#define MAX_ROUNDS 4

/* Levels: what holds an island together. */
enum { BY_PROVIDER = 1, BY_DOMAIN = 2 };

typedef struct cost_state {
    gt_placer *placer;
    uint32_t *readers; /* by value and domain: who needs it there as a tensor */
    uint8_t *moved;    /* by unit: the levels at which it moved */
    uint32_t *parent;  /* by unit: union-find */
    uint32_t *members; /* units, grouped by island */
    uint32_t *first;   /* by island, one more at the end */
    uint32_t island_count;
    /* The island at hand: values it makes or reads, and how often it reads them. */
    uint32_t *touched;
    uint32_t touched_count;
    uint32_t *stamp; /* by value */
    uint32_t *own_reads;
    uint8_t *own_made;
    uint32_t round;
} cost_state;

/* What is compared. */
typedef struct comparison {
    double here_ns, there_ns, boundary_ns;
} comparison;

static double leg_ns(double latency_ns, double bytes_per_ns, double bytes)
{
    return latency_ns + (bytes_per_ns > 0 ? bytes / bytes_per_ns : 0);
}

static double to_host_ns(const gt_placer *placer, uint32_t domain, double bytes)
{
    const gt_place_domain *d = &placer->domains[domain];
    return domain == 0 ? 0 : leg_ns(d->to_host_ns, d->to_host_bytes_per_ns, bytes);
}

static double to_device_ns(const gt_placer *placer, uint32_t domain, double bytes)
{
    const gt_place_domain *d = &placer->domains[domain];
    return domain == 0 ? 0 : leg_ns(d->to_device_ns, d->to_device_bytes_per_ns, bytes);
}

static double peer_ns(const gt_placer *placer, uint32_t source, uint32_t target, double bytes)
{
    const gt_place_domain *from = &placer->domains[source], *to = &placer->domains[target];
    double latency = from->to_host_ns > to->to_device_ns ? from->to_host_ns : to->to_device_ns;
    double a = from->to_host_bytes_per_ns, b = to->to_device_bytes_per_ns;
    return leg_ns(latency, a > 0 && (b <= 0 || a < b) ? a : b, bytes);
}

bool gt_cost_are_peers(const gt_placer *placer, uint32_t source, uint32_t target)
{
    return source && target && placer->domains[target].peers >> source & 1;
}

double gt_cost_move_ns(const gt_placer *placer, uint32_t source, uint32_t target, double bytes)
{
    if (source == target)
        return 0;
    return gt_cost_are_peers(placer, source, target)
               ? peer_ns(placer, source, target, bytes)
               : to_host_ns(placer, source, bytes) + to_device_ns(placer, target, bytes);
}

/* Moving one value from source to every domain with readers; between devices that are no peers it passes the
 * host once. */
static double value_moves_ns(const gt_placer *placer, uint32_t source, const uint32_t *readers, double bytes)
{
    double ns = 0;
    bool leaves = false;
    for (uint32_t d = 0; d < placer->domain_count; d++) {
        if (d == source || !readers[d])
            continue;
        bool peer = gt_cost_are_peers(placer, source, d);
        leaves |= !peer;
        ns += peer ? peer_ns(placer, source, d, bytes) : to_device_ns(placer, d, bytes);
    }
    return leaves ? ns + to_host_ns(placer, source, bytes) : ns;
}

/* The part of it that one execution of this graph bears. */
static double borne_moves_ns(const gt_placer *placer, uint32_t value, uint32_t source,
                             const uint32_t *readers)
{
    double share = gt_edges_outside_share(placer, value);
    double ns = value_moves_ns(placer, source, readers, placer->bytes[value]);
    return share < 0 ? ns : share * ns;
}

/* ---- who reads what where -------------------------------------------------------------------- */

static uint32_t *readers_of(const cost_state *state, uint32_t value)
{
    return &state->readers[(size_t)value * state->placer->domain_count];
}

static uint32_t unit_domain(const gt_placer *placer, uint32_t unit)
{
    return placer->executor[unit] ? 0 : gt_placer_domain(placer, placer->placement->units[unit].provider);
}

/* Where units are: as placed, or all on the host. */
static void count_readers(cost_state *state, bool all_host)
{
    gt_placer *placer = state->placer;
    const gt_graph *graph = placer->graph;
    memset(state->readers, 0, (size_t)graph->values.count * placer->domain_count * sizeof *state->readers);
    for (uint32_t v = 0; v < graph->values.count; v++)
        for (uint32_t k = placer->edges.user_first[v]; k < placer->edges.user_first[v + 1]; k++)
            if (placer->edges.user_kinds[k] == GT_READ_TENSOR) {
                uint32_t unit = placer->placement->unit_of_node[placer->edges.users[k]];
                readers_of(state, v)[all_host ? 0 : unit_domain(placer, unit)]++;
            }
    for (uint32_t k = 0; k < placer->options->control_read_count; k++) {
        const gt_control_read *read = &placer->options->control_reads[k];
        readers_of(state, read->value)[read->domain]++;
    }
    for (uint32_t k = 0; k < graph->outputs.count; k++) {
        uint32_t wanted = gt_edges_output_domain(placer, k);
        if (wanted != GT_PLACE_ANYWHERE && !gt_edges_is_known(graph, graph->outputs.data[k]))
            readers_of(state, graph->outputs.data[k])[wanted]++;
    }
}

static double moves_ns(const cost_state *state, bool all_host)
{
    const gt_placer *placer = state->placer;
    double ns = 0;
    for (uint32_t v = 0; v < placer->graph->values.count; v++) {
        const gt_value *value = placer->graph->values.data[v];
        if (gt_edges_is_known(placer->graph, v))
            continue;
        bool made = value->producer != GT_NONE &&
                    placer->placement->unit_of_node[value->producer] != GT_NONE &&
                    !placer->executor[placer->placement->unit_of_node[value->producer]];
        uint32_t source = all_host && made ? 0 : gt_edges_source_domain(placer, v);
        ns += borne_moves_ns(placer, v, source, readers_of(state, v));
    }
    return ns;
}

/* Units of the executor are left out: their bodies are placed and priced apart. */
static double units_ns(const gt_placer *placer, bool all_host)
{
    double ns = 0;
    for (uint32_t k = 0; k < placer->placement->unit_count; k++) {
        const gt_unit *unit = &placer->placement->units[k];
        uint32_t provider = all_host ? placer->host : unit->provider;
        if (placer->executor[k])
            continue;
        if (provider == GT_NONE || !(placer->able[k] & 1u << provider))
            return NAN;
        ns += unit->verdicts[provider].estimate_ns;
    }
    return ns;
}

/* ---- islands --------------------------------------------------------------------------------- */

static uint32_t find_root(uint32_t *parent, uint32_t unit)
{
    while (parent[unit] != unit) {
        parent[unit] = parent[parent[unit]];
        unit = parent[unit];
    }
    return unit;
}

/* Units are joined towards the lower index, so that an island is named by its first unit. */
static void join(uint32_t *parent, uint32_t a, uint32_t b)
{
    a = find_root(parent, a);
    b = find_root(parent, b);
    if (a < b)
        parent[b] = a;
    else
        parent[a] = b;
}

static bool in_one_island(const gt_placer *placer, uint32_t a, uint32_t b, bool by_domain)
{
    const gt_unit *units = placer->placement->units;
    if (placer->executor[a] || placer->executor[b])
        return false;
    return by_domain ? unit_domain(placer, a) == unit_domain(placer, b)
                     : units[a].provider == units[b].provider;
}

static void join_neighbours(cost_state *state, bool by_domain)
{
    const gt_placer *placer = state->placer;
    const uint32_t *unit_of_node = placer->placement->unit_of_node;
    for (uint32_t k = 0; k < placer->placement->unit_count; k++)
        state->parent[k] = k;
    for (uint32_t v = 0; v < placer->graph->values.count; v++) {
        uint32_t producer = placer->graph->values.data[v]->producer;
        if (producer == GT_NONE || unit_of_node[producer] == GT_NONE)
            continue;
        for (uint32_t k = placer->edges.user_first[v]; k < placer->edges.user_first[v + 1]; k++)
            if (placer->edges.user_kinds[k] == GT_READ_TENSOR &&
                in_one_island(placer, unit_of_node[producer], unit_of_node[placer->edges.users[k]],
                              by_domain))
                join(state->parent, unit_of_node[producer], unit_of_node[placer->edges.users[k]]);
    }
}

/* Groups the units by island, islands in the order of their first units. */
static void list_islands(cost_state *state, bool by_domain)
{
    uint32_t count = state->placer->placement->unit_count;
    join_neighbours(state, by_domain);
    uint32_t *size = state->first;
    memset(size, 0, (count + 1) * sizeof *size);
    for (uint32_t k = 0; k < count; k++)
        size[find_root(state->parent, k)]++;
    /* A root's number of members becomes its place; roots have the lowest index of their islands. */
    uint32_t at = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t members = size[k];
        size[k] = at;
        at += members;
    }
    for (uint32_t k = 0; k < count; k++)
        state->members[size[find_root(state->parent, k)]++] = k;
    state->island_count = 0;
    for (uint32_t k = 0; k < count; k++)
        if (k == 0 ||
            find_root(state->parent, state->members[k]) != find_root(state->parent, state->members[k - 1]))
            state->first[state->island_count++] = k;
    state->first[state->island_count] = count;
}

/* ---- one island ------------------------------------------------------------------------------ */

static void touch(cost_state *state, uint32_t value)
{
    if (state->stamp[value] == state->round || gt_edges_is_known(state->placer->graph, value))
        return;
    state->stamp[value] = state->round;
    state->own_reads[value] = 0;
    state->own_made[value] = 0;
    state->touched[state->touched_count++] = value;
}

static void touch_values(cost_state *state, const uint32_t *units, uint32_t count)
{
    const gt_placer *placer = state->placer;
    state->round++;
    state->touched_count = 0;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t n = 0; n < placer->placement->units[units[k]].node_count; n++) {
            uint32_t id = placer->placement->units[units[k]].nodes[n];
            const gt_node *node = placer->graph->nodes.data[id];
            for (uint32_t o = 0; o < node->output_count; o++)
                if (node->outputs[o] != GT_NONE) {
                    touch(state, node->outputs[o]);
                    state->own_made[node->outputs[o]] = 1;
                }
            for (uint32_t r = placer->edges.read_first[id]; r < placer->edges.read_first[id + 1]; r++) {
                const gt_read *read = &placer->edges.reads[r];
                if (read->kind != GT_READ_TENSOR)
                    continue;
                touch(state, read->value);
                state->own_reads[read->value]++;
            }
        }
}

/* The boundaries of all touched values if the island, which is in domain `now`, were in domain `then`. */
static double touched_moves_ns(cost_state *state, uint32_t now, uint32_t then)
{
    const gt_placer *placer = state->placer;
    double ns = 0;
    for (uint32_t k = 0; k < state->touched_count; k++) {
        uint32_t value = state->touched[k];
        uint32_t *readers = readers_of(state, value), own = state->own_reads[value];
        uint32_t source = state->own_made[value] ? then : gt_edges_source_domain(placer, value);
        readers[now] -= own;
        readers[then] += own;
        ns += borne_moves_ns(placer, value, source, readers);
        readers[then] -= own;
        readers[now] += own;
    }
    return ns;
}

/* The providers below all the island's own that take every unit. */
static uint32_t common_targets(const gt_placer *placer, const uint32_t *units, uint32_t count)
{
    uint32_t targets = UINT32_MAX;
    for (uint32_t k = 0; k < count; k++) {
        const gt_unit *unit = &placer->placement->units[units[k]];
        uint32_t mine = 0;
        for (uint32_t p = unit->provider + 1; p < placer->provider_count; p++)
            if (unit->verdicts[p].supported && !isnan(unit->verdicts[p].estimate_ns))
                mine |= 1u << p;
        if (isnan(unit->verdicts[unit->provider].estimate_ns))
            return 0;
        targets &= mine;
    }
    return targets;
}

static double estimates_ns(const gt_placer *placer, const uint32_t *units, uint32_t count, uint32_t provider)
{
    double ns = 0;
    for (uint32_t k = 0; k < count; k++) {
        const gt_unit *unit = &placer->placement->units[units[k]];
        ns += unit->verdicts[provider == GT_NONE ? unit->provider : provider].estimate_ns;
    }
    return ns;
}

/* The target that lowers the total most, or GT_NONE when none does. */
static uint32_t best_target(cost_state *state, const uint32_t *units, uint32_t count, comparison *out_best)
{
    const gt_placer *placer = state->placer;
    uint32_t targets = common_targets(placer, units, count), best = GT_NONE;
    if (!targets)
        return GT_NONE;
    touch_values(state, units, count);
    uint32_t now = unit_domain(placer, units[0]);
    double here = estimates_ns(placer, units, count, GT_NONE), before = touched_moves_ns(state, now, now);
    double saved_most = 0;
    for (uint32_t p = 0; p < placer->provider_count; p++) {
        if (!(targets & 1u << p))
            continue;
        double there = estimates_ns(placer, units, count, p);
        double boundary = before - touched_moves_ns(state, now, gt_placer_domain(placer, p));
        /* A saving below a part in a million is rounding, not worth. */
        if (here + boundary - there <= saved_most + 1e-6 * (here + there))
            continue;
        saved_most = here + boundary - there;
        best = p;
        *out_best = (comparison){here, there, boundary};
    }
    return best;
}

/* Every provider above the new one that could take the unit says why it does not have it: the one it leaves
 * with the numbers of the decision, those between with their own time for this unit. */
static gantry_status refuse_above(gt_placer *placer, gt_unit *unit, uint32_t target,
                                  const comparison *compared, gantry_error *err)
{
    gantry_refusal_code code =
        compared->boundary_ns > 0 ? GANTRY_REFUSE_island_not_worth : GANTRY_REFUSE_not_faster;
    for (uint32_t p = 0; p < target; p++) {
        gt_kept_verdict *verdict = &unit->verdicts[p];
        if (!verdict->supported)
            continue;
        bool leaves = p == unit->provider;
        GT_TRY(gt_verdicts_overrule(placer, verdict, code, "", placer->providers[p].name,
                                    placer->providers[target].name, "", err));
        verdict->estimate_here_ns = leaves ? compared->here_ns : verdict->estimate_ns;
        verdict->estimate_there_ns = leaves ? compared->there_ns : unit->verdicts[target].estimate_ns;
        verdict->boundary_ns = leaves ? compared->boundary_ns : NAN;
    }
    return GANTRY_OK;
}

static gantry_status move_island(cost_state *state, const uint32_t *units, uint32_t count, uint32_t target,
                                 const comparison *compared, gantry_error *err)
{
    gt_placer *placer = state->placer;
    uint32_t now = unit_domain(placer, units[0]), then = gt_placer_domain(placer, target);
    for (uint32_t k = 0; k < state->touched_count; k++) {
        uint32_t *readers = readers_of(state, state->touched[k]);
        readers[now] -= state->own_reads[state->touched[k]];
        readers[then] += state->own_reads[state->touched[k]];
    }
    for (uint32_t k = 0; k < count; k++) {
        gt_unit *unit = &placer->placement->units[units[k]];
        GT_TRY(refuse_above(placer, unit, target, compared, err));
        unit->provider = target;
    }
    return GANTRY_OK;
}

static bool may_move(const cost_state *state, const uint32_t *units, uint32_t count, uint8_t level)
{
    const gt_placer *placer = state->placer;
    if (placer->executor[units[0]] || (level == BY_DOMAIN && unit_domain(placer, units[0]) == 0))
        return false;
    for (uint32_t k = 0; k < count; k++)
        if (state->moved[units[k]] & level)
            return false;
    return true;
}

static gantry_status try_island(cost_state *state, uint32_t island, uint8_t level, bool *inout_moved,
                                gantry_error *err)
{
    const uint32_t *units = &state->members[state->first[island]];
    uint32_t count = state->first[island + 1] - state->first[island];
    comparison compared;
    if (!may_move(state, units, count, level))
        return GANTRY_OK;
    uint32_t target = best_target(state, units, count, &compared);
    if (target == GT_NONE)
        return GANTRY_OK;
    *inout_moved = true;
    for (uint32_t k = 0; k < count; k++)
        state->moved[units[k]] |= level;
    return move_island(state, units, count, target, &compared, err);
}

static gantry_status move_until_stable(cost_state *state, uint8_t level, bool *inout_moved, gantry_error *err)
{
    bool moved = true;
    for (uint32_t pass = 0; moved && pass < MAX_PASSES; pass++) {
        moved = false;
        list_islands(state, level == BY_DOMAIN);
        for (uint32_t k = 0; k < state->island_count; k++)
            GT_TRY(try_island(state, pass % 2 ? state->island_count - 1 - k : k, level, &moved, err));
        *inout_moved |= moved;
    }
    return GANTRY_OK;
}

/* ---- all on the host ------------------------------------------------------------------------- */

static bool host_takes_all(const gt_placer *placer)
{
    for (uint32_t k = 0; placer->host != GT_NONE && k < placer->placement->unit_count; k++)
        if (!placer->executor[k] && !placer->placement->units[k].verdicts[placer->host].supported)
            return false;
    return placer->host != GT_NONE;
}

/* Local moves can end above all-host, where many islands hold each other in place. */
static gantry_status move_all_to_host(cost_state *state, gantry_error *err)
{
    gt_placer *placer = state->placer;
    if (!host_takes_all(placer))
        return GANTRY_OK;
    comparison compared = {units_ns(placer, false), units_ns(placer, true), 0};
    count_readers(state, false);
    double placed = moves_ns(state, false);
    count_readers(state, true);
    double on_host = moves_ns(state, true);
    compared.boundary_ns = placed - on_host;
    /* The sums as gt_cost_totals forms them, so that rounding can't leave the chosen total above. */
    if (!(compared.here_ns + placed > compared.there_ns + on_host))
        return GANTRY_OK;
    for (uint32_t k = 0; k < placer->placement->unit_count; k++) {
        gt_unit *unit = &placer->placement->units[k];
        if (placer->executor[k] || unit->provider == placer->host)
            continue;
        GT_TRY(refuse_above(placer, unit, placer->host, &compared, err));
        unit->provider = placer->host;
    }
    return GANTRY_OK;
}

static bool make_state(cost_state *state)
{
    gt_placer *placer = state->placer;
    gt_arena *arena = &placer->scratch;
    uint32_t units = placer->placement->unit_count, values = placer->graph->values.count;
    state->readers = GT_ARENA_ARRAY(arena, uint32_t, (size_t)values * placer->domain_count + 1);
    state->moved = (uint8_t *)gt_arena_alloc(arena, units + 1);
    state->parent = GT_ARENA_ARRAY(arena, uint32_t, units + 1);
    state->members = GT_ARENA_ARRAY(arena, uint32_t, units + 1);
    state->first = GT_ARENA_ARRAY(arena, uint32_t, units + 2);
    state->touched = GT_ARENA_ARRAY(arena, uint32_t, values + 1);
    state->stamp = GT_ARENA_ARRAY(arena, uint32_t, values + 1);
    state->own_reads = GT_ARENA_ARRAY(arena, uint32_t, values + 1);
    state->own_made = (uint8_t *)gt_arena_alloc(arena, values + 1);
    return state->readers && state->moved && state->parent && state->members && state->first &&
           state->touched && state->stamp && state->own_reads && state->own_made;
}

gantry_status gt_cost_demote(gt_placer *placer, gantry_error *err)
{
    cost_state state = {.placer = placer};
    if (!make_state(&state))
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    count_readers(&state, false);
    bool moved = true;
    for (uint32_t round = 0; moved && round < MAX_ROUNDS; round++) {
        moved = false;
        GT_TRY(move_until_stable(&state, BY_PROVIDER, &moved, err));
        if (moved || round == 0)
            GT_TRY(move_until_stable(&state, BY_DOMAIN, &moved, err));
    }
    return move_all_to_host(&state, err);
}

gantry_status gt_cost_totals(gt_placer *placer, gantry_error *err)
{
    cost_state state = {.placer = placer};
    gt_placement *placement = placer->placement;
    if (!make_state(&state))
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    placement->chosen_ns = units_ns(placer, false);
    placement->all_cpu_ns = units_ns(placer, true);
    for (uint32_t k = 0; k < placement->unit_count; k++)
        if (placer->executor[k] && !placer->options->without_bodies)
            placement->chosen_ns = placement->all_cpu_ns = NAN; /* what the bodies take is not known here */
    count_readers(&state, false);
    placement->chosen_ns += moves_ns(&state, false);
    count_readers(&state, true);
    placement->all_cpu_ns += moves_ns(&state, true);
    return GANTRY_OK;
}
