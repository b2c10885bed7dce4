/* What nodes make of their inputs: shapes and copies as ONNX says, all else a hash. */
#include "stub.h"

#include <stdlib.h>

static uint64_t element_count(const stub_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        count *= (uint64_t)tensor->dims[d];
    return count;
}

size_t stub_tensor_bytes(const stub_tensor *tensor)
{
    return gantry_dtype_bytes(tensor->dtype, element_count(tensor));
}

void stub_tensor_free(stub_tensor *tensor)
{
    if (tensor->owned)
        free(tensor->data);
    *tensor = (stub_tensor){0};
}

stub_tensor stub_feed(const gt_value *value, const int64_t *extents)
{
    stub_tensor feed = {.dtype = value->dtype, .rank = (uint32_t)value->rank, .owned = true};
    for (uint32_t d = 0; d < feed.rank; d++)
        feed.dims[d] = value->declared_dims[d] < 0 ? extents[value->declared_dim_names[d][1] - '0']
                                                   : value->declared_dims[d];
    return feed;
}

void stub_feed_fill(stub_tensor *feed, random_source *random)
{
    size_t bytes = stub_tensor_bytes(feed);
    feed->data = malloc(bytes + 1);
    for (size_t b = 0; feed->data && b < bytes; b++)
        feed->data[b] = (uint8_t)random_next(random) & (feed->dtype == GANTRY_BOOL ? 1 : 0xff);
}

static bool is_true(const stub_tensor *tensor)
{
    return tensor->data && tensor->data[0];
}

static void make_room(stub_tensor *tensor)
{
    tensor->data = calloc(1, stub_tensor_bytes(tensor) + 1);
    tensor->owned = true;
    if (!tensor->data)
        abort();
}

static void set_dims(stub_tensor *tensor, uint32_t rank, const int64_t *dims)
{
    tensor->rank = rank;
    if (rank)
        memcpy(tensor->dims, dims, rank * sizeof *dims);
}

/* ---- hashes ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (; bytes > 0; bytes--, at++)
        hash = (hash ^ *at) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static uint64_t hash_inputs(const char *op, uint32_t count, const stub_tensor *inputs)
{
    uint64_t hash = mix(1, op, strlen(op));
    for (uint32_t k = 0; k < count; k++) {
        hash = mix(hash, inputs[k].dims, inputs[k].rank * sizeof inputs[k].dims[0]);
        hash = mix(hash, inputs[k].data, inputs[k].data ? stub_tensor_bytes(&inputs[k]) : 0);
    }
    return hash;
}

static void fill(stub_tensor *tensor, uint64_t hash)
{
    random_source random = {.state = hash};
    size_t bytes = stub_tensor_bytes(tensor);
    make_room(tensor);
    for (size_t k = 0; k < bytes; k += 8) {
        uint64_t word = random_next(&random);
        memcpy(tensor->data + k, &word, bytes - k < 8 ? bytes - k : 8);
    }
    if (tensor->dtype == GANTRY_BOOL)
        for (size_t k = 0; k < bytes; k++)
            tensor->data[k] &= 1;
}

/* ---- operators ------------------------------------------------------------------------------- */

/* What is empty may have no memory. */
static void put_bytes(uint8_t *target, const uint8_t *source, size_t count)
{
    if (target && source && count)
        memcpy(target, source, count);
}

typedef struct operands {
    const char *op;
    uint32_t input_count, output_count;
    const stub_tensor *in;
    stub_tensor *out;
} operands;

static bool copy(operands *o)
{
    size_t bytes = stub_tensor_bytes(&o->in[0]);
    make_room(&o->out[0]);
    put_bytes(o->out[0].data, o->in[0].data, bytes);
    return stub_tensor_bytes(&o->in[0]) == stub_tensor_bytes(&o->out[0]);
}

static bool run_identity(operands *o)
{
    set_dims(&o->out[0], o->in[0].rank, o->in[0].dims);
    return copy(o);
}

static bool run_reshape(operands *o)
{
    const int64_t *wanted = (const int64_t *)(const void *)o->in[1].data;
    int64_t known = 1, open = -1;
    o->out[0].rank = (uint32_t)o->in[1].dims[0];
    for (uint32_t d = 0; d < o->out[0].rank; d++) {
        o->out[0].dims[d] = wanted[d] ? wanted[d] : o->in[0].dims[d];
        if (wanted[d] < 0)
            open = d;
        else
            known *= o->out[0].dims[d];
    }
    if (open >= 0)
        o->out[0].dims[open] = known ? (int64_t)element_count(&o->in[0]) / known : 0;
    return element_count(&o->in[0]) == element_count(&o->out[0]) && copy(o);
}

static bool run_split(operands *o)
{
    int64_t rows = o->in[0].dims[0], first = (rows + 1) / 2;
    size_t row_bytes = rows ? stub_tensor_bytes(&o->in[0]) / (size_t)rows : 0, at = 0;
    for (uint32_t k = 0; k < 2; k++) {
        set_dims(&o->out[k], o->in[0].rank, o->in[0].dims);
        o->out[k].dims[0] = k ? rows - first : first;
        make_room(&o->out[k]);
        put_bytes(o->out[k].data, o->in[0].data + at, row_bytes * (size_t)o->out[k].dims[0]);
        at += row_bytes * (size_t)first;
    }
    return true;
}

static bool run_shape(operands *o)
{
    set_dims(&o->out[0], 1, &(int64_t){o->in[0].rank});
    make_room(&o->out[0]);
    memcpy(o->out[0].data, o->in[0].dims, o->in[0].rank * sizeof o->in[0].dims[0]);
    return true;
}

static bool run_gather(operands *o)
{
    set_dims(&o->out[0], 1, o->in[1].dims);
    make_room(&o->out[0]);
    for (int64_t k = 0; k < o->in[1].dims[0]; k++) {
        int64_t at;
        memcpy(&at, o->in[1].data + 8 * k, 8);
        if (at < 0 || at >= o->in[0].dims[0])
            return false;
        memcpy(o->out[0].data + 8 * k, o->in[0].data + 8 * at, 8);
    }
    return true;
}

/* Along the first axis, the only one that random graphs join. */
static bool run_concat(operands *o)
{
    size_t first = stub_tensor_bytes(&o->in[0]), second = stub_tensor_bytes(&o->in[1]);
    set_dims(&o->out[0], o->in[0].rank, o->in[0].dims);
    o->out[0].dims[0] += o->in[1].dims[0];
    make_room(&o->out[0]);
    put_bytes(o->out[0].data, o->in[0].data, first);
    put_bytes(o->out[0].data + first, o->in[1].data, second);
    return true;
}

static bool run_expand(operands *o)
{
    memcpy(o->out[0].dims, o->in[1].data, 8 * (size_t)o->in[1].dims[0]);
    o->out[0].rank = (uint32_t)o->in[1].dims[0];
    for (uint32_t d = 0; d < o->out[0].rank; d++)
        if (o->in[0].dims[d] != 1 && o->out[0].dims[d] != o->in[0].dims[d])
            return false;
    fill(&o->out[0], hash_inputs(o->op, 1, o->in));
    return true;
}

static bool run_reduce(operands *o)
{
    fill(&o->out[0], hash_inputs(o->op, 1, o->in));
    return true;
}

static bool run_arg(operands *o)
{
    set_dims(&o->out[0], o->in[0].rank - 1, o->in[0].dims + 1);
    fill(&o->out[0], hash_inputs(o->op, 1, o->in));
    for (uint64_t k = 0; k < element_count(&o->out[0]); k++) {
        int64_t most = o->out[0].data[8 * k] % 3 + 1;
        memcpy(o->out[0].data + 8 * k, &most, 8);
    }
    return true;
}

static bool run_non_zero(operands *o)
{
    uint64_t hash = hash_inputs(o->op, 1, o->in), most = element_count(&o->in[0]);
    o->out[0].rank = 2;
    o->out[0].dims[0] = o->in[0].rank;
    o->out[0].dims[1] = (int64_t)(hash % 8 == 0 ? most : hash % (most + 1));
    fill(&o->out[0], hash);
    return true;
}

static bool add_integers(operands *o)
{
    bool times = strcmp(o->op, "Mul") == 0;
    run_identity(o);
    for (uint64_t k = 0; k < element_count(&o->out[0]); k++) {
        int64_t a, b;
        memcpy(&a, o->in[0].data + 8 * k, 8);
        memcpy(&b, o->in[1].data + 8 * k, 8);
        a = times ? a * b : a + b;
        memcpy(o->out[0].data + 8 * k, &a, 8);
    }
    return true;
}

/* Everything else: the extents are those of the inputs after broadcasting. */
static bool run_elementwise(operands *o)
{
    if (o->out[0].dtype == GANTRY_INT64)
        return add_integers(o);
    set_dims(&o->out[0], o->in[0].rank, o->in[0].dims);
    for (uint32_t k = 1; k < o->input_count; k++)
        for (uint32_t d = 0; d < o->out[0].rank; d++) {
            int64_t extent = o->in[k].dims[d];
            if (o->in[k].rank != o->out[0].rank ||
                (extent != 1 && o->out[0].dims[d] != 1 && extent != o->out[0].dims[d]))
                return false;
            if (o->out[0].dims[d] == 1)
                o->out[0].dims[d] = extent;
        }
    fill(&o->out[0], hash_inputs(o->op, o->input_count, o->in));
    return true;
}

bool stub_compute(const char *op, uint32_t input_count, const stub_tensor *inputs, uint32_t output_count,
                  stub_tensor *outputs)
{
    static const struct {
        const char *op;
        bool (*run)(operands *o);
    } table[] = {{"Identity", run_identity}, {"Reshape", run_reshape},  {"Split", run_split},
                 {"Shape", run_shape},       {"Gather", run_gather},    {"Concat", run_concat},
                 {"Expand", run_expand},     {"ReduceMax", run_reduce}, {"ArgMax", run_arg},
                 {"NonZero", run_non_zero}};
    operands o = {op, input_count, output_count, inputs, outputs};
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++)
        if (strcmp(table[k].op, op) == 0)
            return table[k].run(&o);
    return run_elementwise(&o);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static stub_tensor borrow(const stub_tensor *tensor)
{
    stub_tensor copy = *tensor;
    copy.owned = false;
    return copy;
}

static bool load_constant(const gt_graph *graph, uint32_t constant, stub_tensor *out_tensor)
{
    const gt_constant *c = &graph->model->constants.data[constant];
    *out_tensor = (stub_tensor){.dtype = c->dtype, .data = (uint8_t *)(uintptr_t)c->data};
    set_dims(out_tensor, c->rank, c->dims);
    return c->data != NULL || !c->bytes;
}

static const gt_graph *body_of(const gt_node *node, const char *role)
{
    for (uint32_t k = 0; k < node->body_count; k++)
        if (strcmp(node->bodies[k].name, role) == 0)
            return node->bodies[k].graph;
    return NULL;
}

static void append(stub_tensor *scan, const stub_tensor *item, int64_t round)
{
    size_t bytes = stub_tensor_bytes(item);
    uint8_t *grown = realloc(scan->owned ? scan->data : NULL, (size_t)(round + 1) * bytes + 1);
    if (!grown)
        abort();
    put_bytes(grown + (size_t)round * bytes, item->data, bytes);
    scan->data = grown;
    scan->owned = true;
    scan->rank = item->rank + 1;
    memcpy(scan->dims + 1, item->dims, item->rank * sizeof item->dims[0]);
}

/* One carried value, at most one scan output. */
#define MAX_CARRIED 2

/* A result that nobody made since it was given is copied: the caller frees it. */
static void keep(stub_tensor *out, const stub_tensor *carried)
{
    *out = *carried;
    if (carried->owned)
        return;
    make_room(out);
    put_bytes(out->data, carried->data, stub_tensor_bytes(carried));
}

/* Carried values, then perhaps a scan output, of the extents of the first. */
static bool evaluate_loop(const gt_node *node, stub_tensor *values, stub_tensor *out)
{
    const gt_graph *body = body_of(node, "body");
    uint32_t count = node->input_count - 2;
    int64_t trips = 0, round;
    uint8_t condition = 1;
    bool right = true;
    stub_tensor carried[MAX_CARRIED] = {{0}}, *scan = &out[count];
    put_bytes((uint8_t *)&trips, values[node->inputs[0]].data, sizeof trips);
    for (uint32_t k = 0; k < count; k++)
        carried[k] = borrow(&values[node->inputs[2 + k]]);
    *scan = (stub_tensor){.dtype = carried[0].dtype, .rank = carried[0].rank + 1};
    memcpy(scan->dims + 1, carried[0].dims, carried[0].rank * sizeof carried[0].dims[0]);
    for (round = 0; right && round < trips && condition; round++) {
        stub_tensor feeds[2 + MAX_CARRIED] = {{.dtype = GANTRY_INT64, .data = (uint8_t *)&round},
                                              {.dtype = GANTRY_BOOL, .data = &condition}};
        stub_tensor results[2 + MAX_CARRIED] = {{0}};
        for (uint32_t k = 0; k < count; k++)
            feeds[2 + k] = borrow(&carried[k]);
        right = stub_evaluate(body, feeds, values, results);
        condition = right && is_true(&results[0]);
        stub_tensor_free(&results[0]);
        for (uint32_t k = 0; k < count; k++) {
            stub_tensor_free(&carried[k]);
            carried[k] = results[1 + k];
        }
        if (right && node->output_count > count)
            append(scan, &results[1 + count], round);
        for (uint32_t k = 1 + count; k < 2 + MAX_CARRIED; k++)
            stub_tensor_free(&results[k]);
    }
    scan->dims[0] = round;
    for (uint32_t k = 0; k < count; k++)
        keep(&out[k], &carried[k]);
    if (!scan->owned)
        make_room(scan);
    return right;
}

static bool evaluate_node(const gt_graph *graph, const gt_node *node, stub_tensor *values)
{
    stub_tensor in[8] = {{0}}, out[1 + MAX_CARRIED] = {{0}};
    bool right = true;
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] != GT_NONE)
            in[k] = borrow(&values[node->inputs[k]]);
    for (uint32_t k = 0; k < node->output_count; k++)
        out[k].dtype = graph->values.data[node->outputs[k]]->dtype;
    if (strcmp(node->op_type, "If") == 0)
        right =
            stub_evaluate(body_of(node, is_true(&in[0]) ? "then_branch" : "else_branch"), NULL, values, out);
    else if (strcmp(node->op_type, "Loop") == 0)
        right = evaluate_loop(node, values, out);
    else
        right = stub_compute(node->op_type, node->input_count, in, node->output_count, out);
    for (uint32_t k = 0; k < sizeof out / sizeof *out; k++)
        if (k < node->output_count)
            values[node->outputs[k]] = out[k];
        else
            stub_tensor_free(&out[k]);
    return right;
}

static bool begin_values(const gt_graph *graph, const stub_tensor *feeds, const stub_tensor *outer,
                         stub_tensor *values)
{
    bool right = true;
    for (uint32_t k = 0; k < graph->values.count; k++) {
        const gt_value *value = graph->values.data[k];
        if (feeds && value->input_index >= 0)
            values[k] = borrow(&feeds[value->input_index]);
        else if (value->constant != GT_NONE)
            right = load_constant(graph, value->constant, &values[k]) && right;
        else if (value->captured != GT_NONE)
            values[k] = borrow(&outer[value->captured]);
    }
    return right;
}

bool stub_evaluate(const gt_graph *graph, const stub_tensor *feeds, const stub_tensor *outer,
                   stub_tensor *results)
{
    stub_tensor *values = calloc(graph->values.count + 1, sizeof *values);
    if (!values)
        abort();
    bool right = begin_values(graph, feeds, outer, values);
    for (uint32_t k = 0; right && k < graph->order.count; k++)
        right = evaluate_node(graph, graph->nodes.data[graph->order.data[k]], values);
    for (uint32_t k = 0; k < graph->outputs.count; k++) {
        stub_tensor *value = &values[graph->outputs.data[k]];
        results[k] = *value;
        make_room(&results[k]);
        if (right)
            put_bytes(results[k].data, value->data, stub_tensor_bytes(value));
    }
    for (uint32_t k = 0; k < graph->values.count; k++)
        stub_tensor_free(&values[k]);
    free(values);
    return right;
}
