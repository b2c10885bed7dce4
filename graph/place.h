/* Placement: units, every provider's verdict on every unit, the choice, and the partitions that come of it.
 */
#ifndef GT_GRAPH_PLACE_H
#define GT_GRAPH_PLACE_H

#include "graph.h"

#define GT_MAX_PROVIDERS 32u

/* One provider in the session's priority order. domain is an index that equal domains share; 0 is the host.
 * The last provider is usually the CPU. */
typedef struct gt_place_provider {
    const char *name;
    uint32_t domain;
    gantry_dtype precision;
    bool available; /* false: every unit gets `provider_absent` with `detail` */
    const char *detail;
    /* Judges the nodes of `graph` as one unit; fills a zeroed verdict whose struct_bytes is set. Always
     * GANTRY_OK but for lack of memory. */
    gantry_status (*judge)(void *self, const gt_graph *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict);
    void *self;
} gt_place_provider;

/* Cost of moving bytes between the host and a domain: latency + bytes / bandwidth (0: not known, no time).
 * Between two devices bytes pass the host, which costs both ways; from a peer they come at once, at the
 * larger latency and the smaller bandwidth of the two. */
typedef struct gt_place_domain {
    const char *name;
    double to_device_ns, to_host_ns, to_device_bytes_per_ns, to_host_bytes_per_ns;
    char cost_source; /* 'm', 'a', 'e' */
    uint64_t peers;   /* a bit for each domain from which bytes come without the host */
} gt_place_domain;

typedef struct gt_pin {
    const char *node; /* a node name, or a body ("loop1.body"): all inside */
    const char *provider;
} gt_pin;

/* An output that nobody wants anywhere: it stays where it is made. */
#define GT_PLACE_ANYWHERE (UINT32_MAX - 1)

/* A control node that the executor runs needs a value in this domain: its bodies read it there. */
typedef struct gt_control_read {
    uint32_t node, value, domain;
} gt_control_read;

typedef struct gt_place_options {
    bool by_cost;         /* false: plan=priority */
    bool model_precision; /* precision=model */
    const gt_pin *pins;
    uint32_t pin_count;
    /* Late verdicts, of compile failures and refused shapes: (node, provider) may no longer be chosen, with
     * the reason to show. */
    const struct gt_late_refusal *late;
    uint32_t late_count;
    /* Where values lie that no partition makes (inputs, captures) or that a control node leaves behind: a
     * domain by value id, GT_NONE for the host. NULL: all on the host. */
    const uint32_t *source_domain;
    /* By value id: 0 and more when moving the value is not this graph's doing: the graph around moves what a
     * body captures, at most once when it enters it. That share of the price is counted (one entry is many
     * executions), and there is no boundary. Below 0: this graph moves it, each time it runs. NULL: all. Only
     * of values that source_domain speaks of. */
    const double *outside_share;
    /* Where the graph's outputs are wanted, by output index; GT_NONE or NULL: on the host. */
    const uint32_t *output_domain;
    /* What the bodies of control nodes read, as far as it is known. */
    const gt_control_read *control_reads;
    uint32_t control_read_count;
    /* The estimated totals are without the nodes that the executor runs: the caller adds what their bodies
     * take. False: they are not known. */
    bool without_bodies;
    /* Called before the judges see a graph that is new to them: the body of a composite, or the graph itself
     * after a composite was put back into its nodes (judges that answer from views of the graph need new
     * ones). NULL: composites are only judged whole. */
    gantry_status (*show_graph)(void *self, const gt_graph *graph, gantry_error *err);
    void *show_self;
} gt_place_options;

typedef struct gt_late_refusal {
    uint32_t node;
    uint32_t provider;
    gantry_refusal refusal;
} gt_late_refusal;

/* A verdict as it is kept. A provider that could take the unit and may not (pins, policies, worth, late
 * refusals) has a refusal and keeps its estimate. */
typedef struct gt_kept_verdict {
    bool asked; /* false: never judged, because the provider is not there */
    bool supported;
    char estimate_source;
    double estimate_ns; /* NAN: not known */
    gantry_dtype executes_in;
    const gantry_refusal *refusal; /* NULL when supported */
    /* Decisions about worth, NAN when there was none: the time of the whole island here and where it went,
     * and the time of the boundaries that moving it saves. here + boundary > there. */
    double estimate_here_ns, estimate_there_ns, boundary_ns;
} gt_kept_verdict;

typedef struct gt_unit {
    uint32_t node_count;
    const uint32_t *nodes;     /* node ids, topological */
    const char *kind;          /* "node", "composite", "qdq", "control", "host" */
    uint32_t provider;         /* chosen, or GT_NONE */
    gt_kept_verdict *verdicts; /* one for each provider, in priority order */
} gt_unit;

/* Units that one provider compiles into one program. Partitions stand in an order in which they can run,
 * segment after segment. A shape operand whose elements are known when its segment is bound is no input: the
 * provider gets it as a host value. */
typedef struct gt_partition {
    uint32_t provider;
    uint32_t
        segment; /* the latest segment of its nodes and of all they depend on; the same for all of them */
    uint32_t node_count;
    const uint32_t *nodes; /* topological */
    uint32_t input_count;
    const uint32_t *inputs; /* value ids produced outside (graph inputs, captures, other partitions, at-bind
                               values needed as tensors), each once; no constants */
    uint32_t output_count;
    const uint32_t *outputs; /* value ids read outside or graph outputs */
    bool control;            /* one control node that the executor runs itself (provider is the last) */
} gt_partition;

/* An edge with a cost: a value that must move between domains, or whose reader computes in another precision;
 * one for each value and target domain. Constants and values known at bind are not among them. What bodies
 * read is a boundary of the graph around them: it is moved once for all executions of one entry. */
typedef struct gt_boundary {
    uint32_t value;
    uint32_t source_partition; /* GT_NONE: session input */
    uint32_t target_partition; /* GT_NONE: session output */
    uint32_t source_domain, target_domain;
    bool precision; /* the executed precisions differ */
    double bytes;   /* at typical dims */
    /* Equal domains: an assumed price of the conversion, which the providers' own estimates hold already. */
    double estimate_ns;
} gt_boundary;

typedef struct gt_placement {
    gt_arena arena;
    uint32_t unit_count;
    gt_unit *units;
    uint32_t *unit_of_node; /* by node id; GT_NONE for removed and at-bind nodes ("host_policy, at bind") */
    /* Nodes known at bind never run; they are judged only to say why: their units are of the kind "host",
     * without a provider, and providers that could run them off the host have the refusal host_policy. */
    uint32_t host_unit_count;
    gt_unit *host_units;
    uint32_t *host_unit_of_node; /* by node id; GT_NONE for all others */
    uint32_t partition_count;
    gt_partition *partitions; /* in an order in which they can run */
    uint32_t *partition_of_node;
    uint32_t boundary_count;
    gt_boundary *boundaries; /* session inputs and outputs included */
    /* Estimated totals at typical dims, units and device boundaries; NAN when not known. */
    double chosen_ns, all_cpu_ns;
    uint32_t below_precision_count; /* nodes that run below the model's precision */
} gt_placement;

/* Places the nodes of one graph (bodies are placed apart, as graphs of their own). May change the graph:
 * composites that are better placed node by node are expanded, and a DequantizeLinear read by several
 * providers is cloned; ids stay what they are, new ones are appended. GANTRY_UNSUPPORTED when some unit has
 * no provider: *out_placement is there even then, and the error names the first such node, its candidates'
 * reasons, and how many there are. */
gantry_status gt_place(gt_graph *graph, const gt_place_provider *providers, uint32_t provider_count,
                       const gt_place_domain *domains, uint32_t domain_count, const gt_place_options *options,
                       gt_placement **out_placement, gantry_error *err);
void gt_placement_destroy(gt_allocator *allocator, gt_placement **placement);

/* Makes nodes run in float32 that no provider took because it does not compute in float16 or bfloat16
 * (`placement` says so): Casts where values enter and leave a group of them, widened constants, a note
 * "promoted". Ids stay what they are; the graph is sorted and has to be inferred again. *out_changed false:
 * there was none. */
gantry_status gt_promote(gt_graph *graph, const gt_placement *placement, const gt_place_provider *providers,
                         uint32_t provider_count, bool *out_changed, gantry_error *err);

/* Puts the nodes a composite stands for in its place. They keep their lineages; the graph is neither sorted
 * nor inferred. */
gantry_status gt_graph_expand_composite(gt_graph *graph, uint32_t node, gantry_error *err);

/* The extents of a value with every symbol at its typical value; returns the element count. dims has room for
 * GANTRY_MAX_RANK. */
int64_t gt_typical_shape(const gt_graph *graph, uint32_t value, int64_t *out_dims);

#endif
