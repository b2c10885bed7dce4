/* random_placements COUNT SEED [NODES]: places random graphs over random providers with random verdicts,
 * pins, late refusals, segments and domains, and has each placement checked by brute force. Prints one line
 * that reproduces each failure; the exit status is 0 when there is none. */
#include "random_graph.h"
#include "verify_placement.h"

#include "graph/op.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DOMAINS 3
#define MAX_LATE 4
#define MAX_PINS 3

/* Judges from a hash of seed, node and provider: the same answer whenever asked. */
typedef struct random_judge {
    uint64_t seed;
    uint32_t index;
    uint32_t yes_percent;
    double scale_ns;
    gantry_dtype precision;
} random_judge;

typedef struct random_case {
    gt_model *model;
    gt_graph *graph;
    uint32_t provider_count, domain_count;
    random_judge judges[GT_MAX_PROVIDERS];
    gt_place_provider providers[GT_MAX_PROVIDERS];
    gt_place_domain domains[MAX_DOMAINS];
    gt_place_options options;
    gt_late_refusal late[MAX_LATE];
    gt_pin pins[MAX_PINS];
    uint32_t *source_domain, *output_domain;
} random_case;

static gantry_status judge(void *self, const gt_graph *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    const random_judge *j = (const random_judge *)self;
    uint64_t hash = random_hash(j->seed, nodes[0], j->index);
    if (hash % 100 >= j->yes_percent) {
        gantry_refuse(out_verdict, hash & 1u << 20 ? GANTRY_REFUSE_no_kernel : GANTRY_REFUSE_dtype, "x", "",
                      "", "");
        return GANTRY_OK;
    }
    out_verdict->supported = 1;
    out_verdict->estimate_ns = j->scale_ns * (double)(1 + (hash >> 32) % 100);
    out_verdict->executes_in = hash & 1u << 21 ? j->precision : GANTRY_UNDEFINED;
    return GANTRY_OK;
}

/* ---- making a case --------------------------------------------------------------------------- */

static void make_providers(random_case *c, random_source *random)
{
    static const char *const names[] = {"dev0", "dev1", "dev2", "cpu"};
    static const gantry_dtype precisions[] = {GANTRY_UNDEFINED, GANTRY_FLOAT16, GANTRY_INT8, GANTRY_FLOAT32};
    c->domain_count = 1 + random_below(random, MAX_DOMAINS);
    c->provider_count = 1 + random_below(random, 4);
    for (uint32_t d = 1; d < c->domain_count; d++)
        c->domains[d] = (gt_place_domain){.to_device_ns = random_below(random, 2000),
                                          .to_host_ns = random_below(random, 2000),
                                          .to_device_bytes_per_ns = random_below(random, 3) * 0.5,
                                          .to_host_bytes_per_ns = random_below(random, 3) * 0.5};
    for (uint32_t p = 0; p < c->provider_count; p++) {
        bool last = p + 1 == c->provider_count;
        c->judges[p] = (random_judge){.seed = random->state,
                                      .index = p,
                                      .yes_percent = last ? 100 : 20 + random_below(random, 80),
                                      .scale_ns = last ? 20 : 1 + random_below(random, 20),
                                      .precision = precisions[random_below(random, 4)]};
        if (last && random_chance(random, 5))
            c->judges[p].yes_percent = 90;
        c->providers[p] = (gt_place_provider){.name = last ? "cpu" : names[p],
                                              .domain = last ? 0 : random_below(random, c->domain_count),
                                              .available = last || random_chance(random, 95),
                                              .detail = "libdevice.so: cannot open",
                                              .judge = judge,
                                              .self = &c->judges[p]};
    }
}

/* Segments, nodes known at bind, and operands read as host values: marked by hand, at random. */
static void decorate(random_case *c, random_source *random)
{
    static const gt_op shaped = {.name = "Shaped", .domain = "", .shape_operands = 2};
    bool segments = random_chance(random, 20), binds = random_chance(random, 20);
    for (uint32_t k = 0; k < c->graph->nodes.count; k++) {
        gt_node *node = c->graph->nodes.data[k];
        if (segments && random_chance(random, 20))
            node->segment = random_below(random, 3);
        if (binds && random_chance(random, 15))
            node->at_bind = true;
        if (binds && random_chance(random, 30))
            node->op = &shaped;
    }
}

static void make_options(random_case *c, random_source *random)
{
    uint32_t nodes = c->graph->nodes.count;
    c->options.by_cost = random_chance(random, 60);
    c->options.model_precision = random_chance(random, 10);
    c->options.late = c->late;
    for (uint32_t k = random_chance(random, 20) ? 1 + random_below(random, MAX_LATE) : 0; k > 0; k--) {
        gt_late_refusal *late = &c->late[c->options.late_count++];
        late->node = random_below(random, nodes);
        late->provider = random_below(random, c->provider_count);
        late->refusal.code = GANTRY_REFUSE_compile_failed;
    }
    c->options.pins = c->pins;
    for (uint32_t k = random_chance(random, 15) ? 1 + random_below(random, MAX_PINS) : 0; k > 0; k--)
        c->pins[c->options.pin_count++] =
            (gt_pin){c->graph->nodes.data[random_below(random, nodes)]->name, "cpu"};
}

static bool make_domains(random_case *c, random_source *random)
{
    if (random_chance(random, 80))
        return true;
    c->source_domain = calloc(c->graph->values.count, sizeof *c->source_domain);
    c->output_domain = calloc(c->graph->outputs.count, sizeof *c->output_domain);
    if (!c->source_domain || !c->output_domain)
        return false;
    for (uint32_t k = 0; k < c->graph->values.count; k++)
        c->source_domain[k] = random_chance(random, 50) ? random_below(random, c->domain_count) : GT_NONE;
    for (uint32_t k = 0; k < c->graph->outputs.count; k++)
        c->output_domain[k] = random_chance(random, 50) ? random_below(random, c->domain_count) : GT_NONE;
    c->options.source_domain = c->source_domain;
    c->options.output_domain = c->output_domain;
    return true;
}

/* ---- running --------------------------------------------------------------------------------- */

/* What the cases were, so that a run that checks nothing shows. */
typedef struct tally {
    uint64_t placed, unsupported, pins_refused, partitions, boundaries, precision_boundaries, worth_refusals;
} tally;

static void count_placement(tally *counts, const gt_placement *placement, uint32_t provider_count)
{
    counts->placed++;
    counts->partitions += placement->partition_count;
    counts->boundaries += placement->boundary_count;
    for (uint32_t k = 0; k < placement->boundary_count; k++)
        counts->precision_boundaries += placement->boundaries[k].precision;
    for (uint32_t k = 0; k < placement->unit_count; k++)
        for (uint32_t p = 0; p < provider_count; p++)
            counts->worth_refusals += !isnan(placement->units[k].verdicts[p].estimate_here_ns);
}

static bool check(random_case *c, tally *counts, char *out_text)
{
    gt_placement *placement;
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_status status = gt_place(c->graph, c->providers, c->provider_count, c->domains, c->domain_count,
                                    &c->options, &placement, &err);
    placement_question question = {c->graph,   c->providers,    c->provider_count,
                                   c->domains, c->domain_count, &c->options};
    bool pin_refused = status == GANTRY_UNSUPPORTED && strstr(err.message, "pinned");
    bool right = pin_refused || verify_placement(&question, status, placement, out_text);
    if (right && status == GANTRY_UNSUPPORTED && !err.node[0]) {
        snprintf(out_text, 400, "the error names no node: %.300s", err.message);
        right = false;
    }
    counts->pins_refused += pin_refused;
    counts->unsupported += status == GANTRY_UNSUPPORTED && !pin_refused;
    if (status == GANTRY_OK)
        count_placement(counts, placement, c->provider_count);
    gt_placement_destroy(c->model->allocator, &placement);
    return right;
}

static bool run_case(uint64_t seed, uint32_t max_nodes, tally *counts, char *out_text)
{
    random_source random = {.state = seed};
    gt_allocator allocator;
    gantry_error err = GANTRY_ERROR_INIT;
    random_case c = {0};
    gt_allocator_init(&allocator, NULL);
    random_graph_shape shape = random_graph_choose(&random, max_nodes);
    if (random_graph_make(&allocator, &random, &shape, &c.model, &err) != GANTRY_OK) {
        snprintf(out_text, 400, "no graph: %.300s", err.message);
        return false;
    }
    c.graph = c.model->root;
    make_providers(&c, &random);
    decorate(&c, &random);
    make_options(&c, &random);
    bool right = make_domains(&c, &random) && check(&c, counts, out_text);
    free(c.source_domain);
    free(c.output_domain);
    gt_model_destroy(&c.model);
    return right;
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint32_t max_nodes = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 24;
    uint64_t failed = 0;
    tally counts = {0};
    for (uint64_t k = 0; k < count; k++) {
        char text[400] = "";
        if (run_case(seed + k, max_nodes, &counts, text))
            continue;
        failed++;
        printf("FAILED random_placements 1 %" PRIu64 " %u: %s\n", seed + k, max_nodes, text);
    }
    printf("%" PRIu64 " graphs: %" PRIu64 " placed in %" PRIu64 " partitions with %" PRIu64
           " boundaries (%" PRIu64 " of precision), %" PRIu64 " refusals for worth, %" PRIu64
           " unsupported, %" PRIu64 " pins refused; %" PRIu64 " failed\n",
           count, counts.placed, counts.partitions, counts.boundaries, counts.precision_boundaries,
           counts.worth_refusals, counts.unsupported, counts.pins_refused, failed);
    return failed != 0;
}
