/* A second, dumber program that checks placements: quadratic loops over the graph and the rules of the
 * design, no code shared with the planner. */
#include "verify_placement.h"

#include "graph/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct verifier {
    const placement_question *q;
    const gt_placement *p;
    const gt_graph *graph;
    char *text;
} verifier;

#define TEXT_BYTES 400
#define REQUIRE(condition, ...)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            snprintf(v->text, TEXT_BYTES, __VA_ARGS__);                                                      \
            return false;                                                                                    \
        }                                                                                                    \
    } while (0)

static bool runs(const gt_node *node)
{
    return !node->removed && !node->at_bind;
}

static bool is_constant(const gt_value *value)
{
    return value->constant != GT_NONE && value->input_index < 0;
}

static bool known_at_bind(const verifier *v, uint32_t value)
{
    uint32_t producer = v->graph->values.data[value]->producer;
    return producer != GT_NONE && v->graph->nodes.data[producer]->at_bind;
}

static bool is_shape_operand(const verifier *v, const gt_node *node, uint32_t index)
{
    const gt_value *value = v->graph->values.data[node->inputs[index]];
    if (!node->op || !(node->op->shape_operands >> index & 1))
        return false;
    if (known_at_bind(v, node->inputs[index]))
        return true;
    for (uint32_t k = 0; k < value->element_count; k++)
        if (!value->elements || value->elements[k] == GT_EXPR_UNKNOWN)
            return false;
    return value->elements != NULL;
}

/* True when the node needs the value as a tensor. */
static bool reads(const verifier *v, uint32_t node_id, uint32_t value)
{
    const gt_node *node = v->graph->nodes.data[node_id];
    if (is_constant(v->graph->values.data[value]))
        return false;
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] == value && !is_shape_operand(v, node, k))
            return true;
    return false;
}

/* True when the node needs the value at all. */
static bool depends(const verifier *v, uint32_t node_id, uint32_t value)
{
    const gt_node *node = v->graph->nodes.data[node_id];
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] == value)
            return true;
    return false;
}

static bool contains(const uint32_t *list, uint32_t count, uint32_t id)
{
    for (uint32_t k = 0; k < count; k++)
        if (list[k] == id)
            return true;
    return false;
}

static uint32_t domain_of(const verifier *v, uint32_t node)
{
    return v->q->providers[v->p->partitions[v->p->partition_of_node[node]].provider].domain;
}

/* ---- units and verdicts ---------------------------------------------------------------------- */

static bool is_worth_code(gantry_refusal_code code)
{
    return code == GANTRY_REFUSE_island_not_worth || code == GANTRY_REFUSE_not_faster;
}

static bool check_overruled(const verifier *v, const gt_unit *unit, uint32_t provider)
{
    const gt_kept_verdict *kept = &unit->verdicts[provider];
    const char *name = v->graph->nodes.data[unit->nodes[0]]->name;
    if (is_worth_code(kept->refusal->code)) {
        REQUIRE(v->q->options->by_cost, "%s: a worth refusal without plan=cost", name);
        REQUIRE(unit->provider == GT_NONE || provider < unit->provider, "%s: moved up", name);
        REQUIRE(isnan(kept->boundary_ns) ||
                    kept->estimate_here_ns + kept->boundary_ns >= kept->estimate_there_ns * (1 - 1e-12),
                "%s: moved for nothing: %g + %g against %g", name, kept->estimate_here_ns, kept->boundary_ns,
                kept->estimate_there_ns);
        return true;
    }
    if (kept->refusal->code == GANTRY_REFUSE_precision_policy) {
        REQUIRE(v->q->options->model_precision, "%s: precision_policy without precision=model", name);
        return true;
    }
    if (kept->refusal->code == GANTRY_REFUSE_user_pinned) {
        for (uint32_t k = 0; k < v->q->options->pin_count; k++)
            if (strcmp(v->q->options->pins[k].node, name) == 0 &&
                strcmp(v->q->options->pins[k].provider, v->q->providers[provider].name) != 0)
                return true;
        REQUIRE(false, "%s: user_pinned without a pin", name);
    }
    for (uint32_t k = 0; k < v->q->options->late_count; k++)
        if (v->q->options->late[k].node == unit->nodes[0] && v->q->options->late[k].provider == provider &&
            v->q->options->late[k].refusal.code == kept->refusal->code)
            return true;
    REQUIRE(kept->refusal->code == GANTRY_REFUSE_host_policy, "%s: refused by %s although it said yes: %s",
            name, v->q->providers[provider].name, gantry_refusal_text(kept->refusal->code));
    return true;
}

static bool check_verdict(const verifier *v, const gt_unit *unit, uint32_t provider)
{
    const gt_kept_verdict *kept = &unit->verdicts[provider];
    const gt_place_provider *p = &v->q->providers[provider];
    const char *name = v->graph->nodes.data[unit->nodes[0]]->name;
    gantry_verdict truth = {.struct_bytes = sizeof truth};
    if (p->available)
        p->judge(p->self, v->graph, unit->nodes, unit->node_count, &truth);
    REQUIRE(kept->asked == p->available, "%s: %s asked %d", name, p->name, kept->asked);
    REQUIRE(kept->supported == !kept->refusal, "%s: %s says yes and has a refusal, or neither", name,
            p->name);
    if (kept->supported) {
        REQUIRE(truth.supported, "%s: %s said no and counts as yes", name, p->name);
        return true;
    }
    if (!p->available) {
        REQUIRE(kept->refusal->code == GANTRY_REFUSE_provider_absent, "%s: %s is absent: %s", name, p->name,
                gantry_refusal_text(kept->refusal->code));
        return true;
    }
    if (truth.supported)
        return check_overruled(v, unit, provider);
    REQUIRE(kept->refusal->code == truth.refusal.code, "%s: %s refused with another code", name, p->name);
    return true;
}

static bool check_unit(const verifier *v, const gt_unit *unit)
{
    const char *name = v->graph->nodes.data[unit->nodes[0]]->name;
    for (uint32_t p = 0; p < v->q->provider_count; p++)
        if (!check_verdict(v, unit, p))
            return false;
    for (uint32_t p = 0; p < v->q->provider_count; p++)
        if (unit->verdicts[p].supported) {
            REQUIRE(unit->provider == p, "%s: %s takes it, chosen is %d", name, v->q->providers[p].name,
                    (int)unit->provider);
            return true;
        }
    REQUIRE(unit->provider == GT_NONE, "%s: on %u, which refuses it", name, unit->provider);
    return true;
}

static bool check_units(const verifier *v)
{
    uint32_t running = 0, placed = 0;
    for (uint32_t k = 0; k < v->graph->nodes.count; k++) {
        const gt_node *node = v->graph->nodes.data[k];
        uint32_t unit = v->p->unit_of_node[k];
        REQUIRE(runs(node) == (unit != GT_NONE), "%s: unit %d", node->name, (int)unit);
        uint32_t host = v->p->host_unit_of_node[k];
        REQUIRE((host != GT_NONE) == (node->at_bind && !node->removed), "%s: host unit %d", node->name,
                (int)host);
        for (uint32_t p = 0; host != GT_NONE && p < v->q->provider_count; p++)
            REQUIRE(v->q->providers[p].domain == 0 || !v->p->host_units[host].verdicts[p].supported,
                    "%s: known at bind, and %s may have it", node->name, v->q->providers[p].name);
        if (unit == GT_NONE)
            continue;
        running++;
        REQUIRE(unit < v->p->unit_count && contains(v->p->units[unit].nodes, v->p->units[unit].node_count, k),
                "%s: not in its unit %u", node->name, unit);
    }
    for (uint32_t k = 0; k < v->p->unit_count; k++) {
        placed += v->p->units[k].node_count;
        if (!check_unit(v, &v->p->units[k]))
            return false;
    }
    REQUIRE(running == placed, "%u nodes run, %u are in units", running, placed);
    return true;
}

static bool check_unsupported(const verifier *v)
{
    if (!check_units(v))
        return false;
    for (uint32_t k = 0; k < v->p->unit_count; k++)
        if (v->p->units[k].provider == GT_NONE)
            return true;
    REQUIRE(false, "unsupported, but every node has a provider");
    return true;
}

/* ---- partitions ------------------------------------------------------------------------------ */

/* Every value a node needs is made by an earlier node: of an earlier partition, or before it in its own. */
static bool check_order(const verifier *v)
{
    uint8_t done[4096] = {0};
    REQUIRE(v->graph->nodes.count <= sizeof done, "the verifier takes %zu nodes", sizeof done);
    for (uint32_t k = 0; k < v->p->partition_count; k++) {
        const gt_partition *partition = &v->p->partitions[k];
        REQUIRE(partition->node_count > 0, "partition %u is empty", k);
        for (uint32_t n = 0; n < partition->node_count; n++) {
            uint32_t id = partition->nodes[n];
            const gt_node *node = v->graph->nodes.data[id];
            REQUIRE(runs(node) && !done[id], "%s: in two partitions, or does not run", node->name);
            REQUIRE(v->p->partition_of_node[id] == k, "%s: partition_of_node is wrong", node->name);
            REQUIRE(v->p->units[v->p->unit_of_node[id]].provider == partition->provider,
                    "%s: on another provider", node->name);
            for (uint32_t i = 0; i < node->input_count; i++) {
                uint32_t producer =
                    node->inputs[i] == GT_NONE ? GT_NONE : v->graph->values.data[node->inputs[i]]->producer;
                REQUIRE(producer == GT_NONE || !runs(v->graph->nodes.data[producer]) || done[producer],
                        "%s: runs before %s", node->name, v->graph->nodes.data[producer]->name);
            }
            done[id] = 1;
        }
    }
    for (uint32_t k = 0; k < v->graph->nodes.count; k++)
        REQUIRE(done[k] == runs(v->graph->nodes.data[k]), "%s: in no partition",
                v->graph->nodes.data[k]->name);
    return true;
}

static bool check_segments(const verifier *v)
{
    for (uint32_t k = 0; k < v->p->partition_count; k++) {
        const gt_partition *partition = &v->p->partitions[k];
        const gt_partition *before = k ? &v->p->partitions[k - 1] : NULL;
        REQUIRE(!before || before->segment <= partition->segment, "partition %u: segment %u after %u", k,
                partition->segment, before->segment);
        REQUIRE(!before || before->segment != partition->segment || before->provider != partition->provider ||
                    before->control || partition->control,
                "partitions %u and %u are one", k - 1, k);
        for (uint32_t n = 0; n < partition->node_count; n++) {
            const gt_node *node = v->graph->nodes.data[partition->nodes[n]];
            REQUIRE(node->segment <= partition->segment, "%s: its segment %u runs in %u", node->name,
                    node->segment, partition->segment);
        }
    }
    return true;
}

/* The executor reads sizes and elements that only running tells. */
static bool executor_reads(const verifier *v, uint32_t value)
{
    const gt_exprs *exprs = &v->graph->model->exprs;
    for (uint32_t k = 0; k < exprs->symbols.count; k++) {
        const gt_symbol *symbol = &exprs->symbols.data[k];
        if ((symbol->kind == GT_SYMBOL_DATA_DIM || symbol->kind == GT_SYMBOL_DATA_ELEMENT) &&
            symbol->graph == v->graph && symbol->value == value)
            return true;
    }
    return false;
}

static bool check_edges(const verifier *v, uint32_t index)
{
    const gt_partition *partition = &v->p->partitions[index];
    uint32_t inputs = 0, outputs = 0;
    for (uint32_t value = 0; value < v->graph->values.count; value++) {
        uint32_t producer = v->graph->values.data[value]->producer;
        bool inside = producer != GT_NONE && v->p->partition_of_node[producer] == index;
        bool read = false, outside = contains(v->graph->outputs.data, v->graph->outputs.count, value) ||
                                     executor_reads(v, value);
        for (uint32_t n = 0; n < v->graph->nodes.count; n++) {
            if (!runs(v->graph->nodes.data[n]))
                continue;
            if (v->p->partition_of_node[n] == index)
                read |= reads(v, n, value);
            else
                outside |= depends(v, n, value);
        }
        bool input = !inside && read, output = inside && outside;
        REQUIRE(input == contains(partition->inputs, partition->input_count, value),
                "partition %u: input %s is %s", index, v->graph->values.data[value]->name,
                input ? "missing" : "too many");
        REQUIRE(output == contains(partition->outputs, partition->output_count, value),
                "partition %u: output %s is %s", index, v->graph->values.data[value]->name,
                output ? "missing" : "too many");
        inputs += input;
        outputs += output;
    }
    REQUIRE(inputs == partition->input_count && outputs == partition->output_count,
            "partition %u: an edge twice", index);
    return true;
}

static bool check_partitions(const verifier *v)
{
    if (!check_order(v) || !check_segments(v))
        return false;
    for (uint32_t k = 0; k < v->p->partition_count; k++)
        if (!check_edges(v, k))
            return false;
    return true;
}

/* ---- boundaries ------------------------------------------------------------------------------ */

static uint32_t source_domain(const verifier *v, uint32_t value)
{
    uint32_t producer = v->graph->values.data[value]->producer;
    if (producer != GT_NONE)
        return domain_of(v, producer);
    const uint32_t *given = v->q->options->source_domain;
    return given && given[value] != GT_NONE ? given[value] : 0;
}

static uint32_t output_domain(const verifier *v, uint32_t output)
{
    const uint32_t *given = v->q->options->output_domain;
    return given && given[output] != GT_NONE ? given[output] : 0;
}

static bool is_float(gantry_dtype dtype)
{
    return dtype == GANTRY_FLOAT32 || dtype == GANTRY_FLOAT16 || dtype == GANTRY_FLOAT64;
}

static gantry_dtype executed(const verifier *v, uint32_t node, uint32_t value)
{
    gantry_dtype own = v->graph->values.data[value]->dtype;
    own = is_float(own) ? own : GANTRY_UNDEFINED;
    if (node == GT_NONE)
        return own;
    const gt_unit *unit = &v->p->units[v->p->unit_of_node[node]];
    gantry_dtype executes_in = unit->verdicts[unit->provider].executes_in;
    return executes_in ? executes_in : own;
}

static bool precision_differs(const verifier *v, uint32_t value, uint32_t reader)
{
    gantry_dtype a = executed(v, v->graph->values.data[value]->producer, value),
                 b = executed(v, reader, value);
    return v->graph->values.data[value]->dtype != GANTRY_INT64 && a && b && a != b;
}

/* Whether anything reads the value in this domain, outside the partition that makes it. */
static bool wanted_in(const verifier *v, uint32_t value, uint32_t domain, bool *out_precision)
{
    bool wanted = false;
    uint32_t producer = v->graph->values.data[value]->producer;
    uint32_t home = producer == GT_NONE ? GT_NONE : v->p->partition_of_node[producer];
    *out_precision = false;
    for (uint32_t n = 0; n < v->graph->nodes.count; n++) {
        if (!runs(v->graph->nodes.data[n]) || v->p->partition_of_node[n] == home ||
            domain_of(v, n) != domain || !reads(v, n, value))
            continue;
        wanted = true;
        *out_precision |= precision_differs(v, value, n);
    }
    for (uint32_t k = 0; k < v->graph->outputs.count; k++)
        if (v->graph->outputs.data[k] == value && output_domain(v, k) == domain) {
            wanted = true;
            *out_precision |= precision_differs(v, value, GT_NONE);
        }
    return wanted;
}

static const gt_boundary *find_row(const verifier *v, uint32_t value, uint32_t domain, uint32_t *out_count)
{
    const gt_boundary *found = NULL;
    *out_count = 0;
    for (uint32_t k = 0; k < v->p->boundary_count; k++)
        if (v->p->boundaries[k].value == value && v->p->boundaries[k].target_domain == domain) {
            found = &v->p->boundaries[k];
            (*out_count)++;
        }
    return found;
}

static double leg(double latency, double bandwidth, double bytes)
{
    return latency + (bandwidth > 0 ? bytes / bandwidth : 0);
}

static double value_bytes(const verifier *v, uint32_t value)
{
    int64_t dims[GANTRY_MAX_RANK];
    return (double)gt_typical_shape(v->graph, value, dims) *
           gantry_dtype_bits(v->graph->values.data[value]->dtype) / 8;
}

static bool check_boundary(const verifier *v, uint32_t value, uint32_t domain, uint32_t *inout_rows)
{
    const char *name = v->graph->values.data[value]->name;
    bool precision = false;
    uint32_t count, producer = v->graph->values.data[value]->producer;
    bool alive = producer == GT_NONE || runs(v->graph->nodes.data[producer]);
    bool moves = alive && !is_constant(v->graph->values.data[value]) && !known_at_bind(v, value) &&
                 wanted_in(v, value, domain, &precision) && (precision || source_domain(v, value) != domain);
    const gt_boundary *row = find_row(v, value, domain, &count);
    REQUIRE(count == moves, "%s to domain %u: %u rows instead of %u", name, domain, count, moves);
    if (!row)
        return true;
    *inout_rows += 1;
    REQUIRE(row->source_domain == source_domain(v, value), "%s: wrong source domain", name);
    REQUIRE(row->precision == precision, "%s to domain %u: precision %d", name, domain, row->precision);
    REQUIRE(row->source_partition == (producer == GT_NONE ? GT_NONE : v->p->partition_of_node[producer]),
            "%s: wrong source partition", name);
    REQUIRE(row->target_partition == GT_NONE ||
                contains(v->p->partitions[row->target_partition].inputs,
                         v->p->partitions[row->target_partition].input_count, value),
            "%s: its target does not read it", name);
    REQUIRE(row->bytes == ceil(value_bytes(v, value)), "%s: %g bytes", name, row->bytes);
    return true;
}

static bool check_boundaries(const verifier *v)
{
    uint32_t rows = 0;
    for (uint32_t value = 0; value < v->graph->values.count; value++)
        for (uint32_t d = 0; d < v->q->domain_count; d++)
            if (!check_boundary(v, value, d, &rows))
                return false;
    REQUIRE(rows == v->p->boundary_count, "%u boundaries, %u rows", rows, v->p->boundary_count);
    return true;
}

/* ---- totals ---------------------------------------------------------------------------------- */

/* At the latency of the slower and the bandwidth of the smaller of the two legs it replaces. */
static double peer_copy(const gt_place_domain *from, const gt_place_domain *to, double bytes)
{
    double bandwidth = from->to_host_bytes_per_ns;
    if (bandwidth == 0 || (to->to_device_bytes_per_ns != 0 && to->to_device_bytes_per_ns < bandwidth))
        bandwidth = to->to_device_bytes_per_ns;
    return leg(fmax(from->to_host_ns, to->to_device_ns), bandwidth, bytes);
}

/* What moving one value costs when each node n is in domain node_domain[n]. */
static double moves_of(const verifier *v, uint32_t value, const uint32_t *node_domain)
{
    uint32_t producer = v->graph->values.data[value]->producer;
    if (is_constant(v->graph->values.data[value]) || known_at_bind(v, value) ||
        (producer != GT_NONE && !runs(v->graph->nodes.data[producer])))
        return 0;
    uint32_t source = producer == GT_NONE ? source_domain(v, value) : node_domain[producer];
    double bytes = ceil(value_bytes(v, value)), ns = 0;
    bool leaves = false;
    for (uint32_t d = 0; d < v->q->domain_count; d++) {
        bool wanted = false;
        for (uint32_t n = 0; n < v->graph->nodes.count; n++)
            wanted |= runs(v->graph->nodes.data[n]) && node_domain[n] == d && reads(v, n, value);
        for (uint32_t k = 0; k < v->graph->outputs.count; k++)
            wanted |= v->graph->outputs.data[k] == value && output_domain(v, k) == d;
        if (!wanted || d == source)
            continue;
        if (source != 0 && d != 0 && v->q->domains[d].peers >> source & 1) {
            ns += peer_copy(&v->q->domains[source], &v->q->domains[d], bytes);
            continue;
        }
        leaves = true;
        if (d != 0)
            ns += leg(v->q->domains[d].to_device_ns, v->q->domains[d].to_device_bytes_per_ns, bytes);
    }
    if (leaves && source != 0)
        ns += leg(v->q->domains[source].to_host_ns, v->q->domains[source].to_host_bytes_per_ns, bytes);
    return ns;
}

static bool near(double a, double b)
{
    return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-9 * (1 + fabs(a) + fabs(b));
}

static double total(const verifier *v, bool all_host, uint32_t host)
{
    uint32_t node_domain[4096] = {0};
    double ns = 0;
    for (uint32_t k = 0; k < v->p->unit_count; k++) {
        const gt_unit *unit = &v->p->units[k];
        uint32_t provider = all_host ? host : unit->provider;
        gantry_verdict truth = {.struct_bytes = sizeof truth};
        if (provider == GT_NONE)
            return NAN;
        v->q->providers[provider].judge(v->q->providers[provider].self, v->graph, unit->nodes,
                                        unit->node_count, &truth);
        for (uint32_t n = 0; n < v->q->options->late_count; n++)
            if (v->q->options->late[n].node == unit->nodes[0] && v->q->options->late[n].provider == provider)
                truth.supported = 0;
        if (!truth.supported)
            return NAN;
        ns += truth.estimate_ns;
        for (uint32_t n = 0; n < unit->node_count; n++)
            node_domain[unit->nodes[n]] = v->q->providers[provider].domain;
    }
    for (uint32_t value = 0; value < v->graph->values.count; value++)
        ns += moves_of(v, value, node_domain);
    return ns;
}

static bool check_totals(const verifier *v)
{
    uint32_t host = GT_NONE;
    for (uint32_t p = 0; p < v->q->provider_count; p++)
        if (v->q->providers[p].domain == 0 && v->q->providers[p].available)
            host = p;
    double chosen = total(v, false, host), all_cpu = total(v, true, host);
    REQUIRE(near(chosen, v->p->chosen_ns), "chosen %.12g, should be %.12g", v->p->chosen_ns, chosen);
    REQUIRE(near(all_cpu, v->p->all_cpu_ns), "all_cpu %.12g, should be %.12g", v->p->all_cpu_ns, all_cpu);
    bool host_may = host != GT_NONE;
    for (uint32_t k = 0; host_may && k < v->p->unit_count; k++)
        host_may = v->p->units[k].verdicts[host].supported;
    REQUIRE(!v->q->options->by_cost || !host_may || !(v->p->chosen_ns > v->p->all_cpu_ns),
            "chosen %.17g above all_cpu %.17g", v->p->chosen_ns, v->p->all_cpu_ns);
    return true;
}

/* ---- worth ----------------------------------------------------------------------------------- */

/* Marks the connected group of units of one provider around node `seed`. False when a unit of it has moved
 * already: such groups may stay. */
static bool mark_island(const verifier *v, uint32_t seed, uint8_t *marked)
{
    uint32_t provider = v->p->partitions[v->p->partition_of_node[seed]].provider;
    bool unmoved = true;
    marked[seed] = 1;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t n = 0; n < v->graph->nodes.count; n++)
            for (uint32_t i = 0; runs(v->graph->nodes.data[n]) && i < v->graph->nodes.data[n]->input_count;
                 i++) {
                uint32_t value = v->graph->nodes.data[n]->inputs[i];
                uint32_t producer = v->graph->values.data[value]->producer;
                if (producer == GT_NONE || !runs(v->graph->nodes.data[producer]) ||
                    marked[n] == marked[producer] || !reads(v, n, value))
                    continue;
                uint32_t other = marked[n] ? producer : n;
                if (v->p->partitions[v->p->partition_of_node[other]].provider != provider)
                    continue;
                marked[other] = 1;
                again = true;
            }
    }
    for (uint32_t n = 0; n < v->graph->nodes.count; n++)
        for (uint32_t p = 0; marked[n] && p < provider; p++)
            unmoved &= isnan(v->p->units[v->p->unit_of_node[n]].verdicts[p].estimate_here_ns);
    return unmoved;
}

/* The total if the marked nodes were on `target`; GT_NONE: where they are. NAN when one of them can't be
 * there. */
static double total_with(const verifier *v, const uint8_t *marked, uint32_t target)
{
    uint32_t node_domain[4096] = {0};
    double ns = 0;
    for (uint32_t n = 0; n < v->graph->nodes.count; n++) {
        if (!runs(v->graph->nodes.data[n]))
            continue;
        const gt_unit *unit = &v->p->units[v->p->unit_of_node[n]];
        uint32_t provider = marked[n] && target != GT_NONE ? target : unit->provider;
        if (!unit->verdicts[provider].supported)
            return NAN;
        ns += unit->verdicts[provider].estimate_ns;
        node_domain[n] = v->q->providers[provider].domain;
    }
    for (uint32_t value = 0; value < v->graph->values.count; value++)
        ns += moves_of(v, value, node_domain);
    return ns;
}

/* No island that stayed would have been better off on a lower provider. */
static bool check_worth(const verifier *v)
{
    uint8_t seen[4096] = {0};
    for (uint32_t n = 0; v->q->options->by_cost && n < v->graph->nodes.count; n++) {
        uint8_t marked[4096] = {0};
        if (!runs(v->graph->nodes.data[n]) || seen[n])
            continue;
        bool unmoved = mark_island(v, n, marked);
        for (uint32_t k = 0; k < v->graph->nodes.count; k++)
            seen[k] |= marked[k];
        double here = total_with(v, marked, GT_NONE);
        uint32_t provider = v->p->partitions[v->p->partition_of_node[n]].provider;
        for (uint32_t p = provider + 1; unmoved && p < v->q->provider_count; p++)
            REQUIRE(!(total_with(v, marked, p) < here * (1 - 1e-5)), "%s: its island costs %g, on %s %g",
                    v->graph->nodes.data[n]->name, here, v->q->providers[p].name, total_with(v, marked, p));
    }
    return true;
}

bool verify_placement(const placement_question *question, gantry_status status, const gt_placement *placement,
                      char *out_text)
{
    verifier this = {question, placement, question->graph, out_text};
    const verifier *v = &this;
    REQUIRE(status == GANTRY_OK || status == GANTRY_UNSUPPORTED, "status %d", status);
    REQUIRE(placement, "no placement");
    if (status == GANTRY_UNSUPPORTED)
        return check_unsupported(v);
    return check_units(v) && check_partitions(v) && check_boundaries(v) && check_totals(v) && check_worth(v);
}
