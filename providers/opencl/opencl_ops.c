/* The operators: the families' tables as one, nodes with their operands, and the limits that all share. */
#include "opencl_ops.h"

#include <math.h>

static const opencl_op_table *const tables[] = {
    &opencl_elementwise_ops, &opencl_gemm_ops,     &opencl_conv_ops,   &opencl_pool_ops,
    &opencl_norm_ops,        &opencl_movement_ops, &opencl_gather_ops, &opencl_resize_ops,
    &opencl_reduce_ops,      &opencl_quantize_ops, &opencl_scan_ops};

const opencl_op *opencl_op_find(const gantry_node_view *node)
{
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (uint32_t k = 0; k < tables[t]->count; k++)
            if (strcmp(tables[t]->ops[k].name, node->op) == 0 &&
                strcmp(tables[t]->ops[k].domain, node->domain) == 0)
                return &tables[t]->ops[k];
    return NULL;
}

/* ---- element types --------------------------------------------------------------------------- */

typedef struct dtype_row {
    uint32_t bytes;
    const char *kernel_name; /* NULL: kernels do not compute with it */
    const char *name;
} dtype_row;

static const dtype_row dtypes[GANTRY_DTYPE_COUNT] = {[GANTRY_FLOAT32] = {4, "float", "float32"},
                                                     [GANTRY_UINT8] = {1, "uchar", "uint8"},
                                                     [GANTRY_INT8] = {1, "char", "int8"},
                                                     [GANTRY_UINT16] = {2, "ushort", "uint16"},
                                                     [GANTRY_INT16] = {2, "short", "int16"},
                                                     [GANTRY_INT32] = {4, "int", "int32"},
                                                     [GANTRY_INT64] = {8, "long", "int64"},
                                                     [GANTRY_STRING] = {0, NULL, "string"},
                                                     [GANTRY_BOOL] = {1, "uchar", "bool"},
                                                     [GANTRY_FLOAT16] = {2, "half", "float16"},
                                                     [GANTRY_FLOAT64] = {8, "double", "float64"},
                                                     [GANTRY_UINT32] = {4, "uint", "uint32"},
                                                     [GANTRY_UINT64] = {8, "ulong", "uint64"},
                                                     [GANTRY_COMPLEX64] = {8, NULL, "complex64"},
                                                     [GANTRY_COMPLEX128] = {16, NULL, "complex128"},
                                                     [GANTRY_BFLOAT16] = {2, "ushort", "bfloat16"},
                                                     [GANTRY_FLOAT8E4M3FN] = {1, NULL, "float8e4m3fn"},
                                                     [GANTRY_FLOAT8E4M3FNUZ] = {1, NULL, "float8e4m3fnuz"},
                                                     [GANTRY_FLOAT8E5M2] = {1, NULL, "float8e5m2"},
                                                     [GANTRY_FLOAT8E5M2FNUZ] = {1, NULL, "float8e5m2fnuz"},
                                                     [GANTRY_UINT4] = {0, NULL, "uint4"},
                                                     [GANTRY_INT4] = {0, NULL, "int4"},
                                                     [GANTRY_FLOAT4E2M1] = {0, NULL, "float4e2m1"},
                                                     [GANTRY_FLOAT8E8M0] = {1, NULL, "float8e8m0"},
                                                     [GANTRY_UINT2] = {0, NULL, "uint2"},
                                                     [GANTRY_INT2] = {0, NULL, "int2"}};

size_t opencl_dtype_bytes(gantry_dtype dtype)
{
    return (unsigned)dtype < GANTRY_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *opencl_dtype_name(gantry_dtype dtype)
{
    return dtypes[dtype].kernel_name ? dtypes[dtype].kernel_name : "uchar";
}

const char *opencl_size_name(size_t bytes)
{
    return bytes == 1 ? "uchar" : bytes == 2 ? "ushort" : bytes == 4 ? "uint" : "ulong";
}

void opencl_define_type(char *inout_defines, size_t capacity, const char *name, gantry_dtype dtype)
{
    size_t used = strlen(inout_defines);
    bool half = dtype == GANTRY_FLOAT16, brain = dtype == GANTRY_BFLOAT16;
    const char *type = opencl_dtype_name(dtype);
    const char *load = half ? "vload_half((i), (p))" : brain ? "as_float((uint)(p)[i] << 16)" : "(p)[i]";
    const char *store = half    ? "vstore_half_rte((v), (i), (p))"
                        : brain ? "(p)[i] = (ushort)((v) != (v) ? as_uint((float)(v)) >> 16 | 64 : "
                                  "(as_uint((float)(v)) + 0x7fff + (as_uint((float)(v)) >> 16 & 1)) >> 16)"
                                : "(p)[i] = (v)";
    snprintf(inout_defines + used, capacity - used,
             "#define %s %s\n#define %s_C %s\n#define LOAD_%s(p, i) %s\n#define STORE_%s(v, p, i) %s\n", name,
             type, name, half || brain ? "float" : type, name, load, name, store);
}

static const char *dtype_text(gantry_dtype dtype)
{
    return (unsigned)dtype < GANTRY_DTYPE_COUNT && dtypes[dtype].name ? dtypes[dtype].name : "another type";
}

/* ---- refusing -------------------------------------------------------------------------------- */

bool opencl_refuse_type(gantry_verdict *verdict, const opencl_operand *operand, uint32_t wanted)
{
    char required[96] = "";
    size_t used = 0;
    for (uint32_t k = 0; k < GANTRY_DTYPE_COUNT && used < sizeof required; k++)
        if (wanted & OPENCL_TYPE(k))
            used += (size_t)snprintf(required + used, sizeof required - used, "%s%s", used ? ", " : "",
                                     dtype_text((gantry_dtype)k));
    gantry_refuse(verdict, GANTRY_REFUSE_dtype, operand->view ? operand->view->name : "",
                  dtype_text(operand->dtype), required, wanted & OPENCL_F32 ? "insert_cast" : "");
    return false;
}

bool opencl_refuse_rank(gantry_verdict *verdict, const opencl_operand *operand, const char *required)
{
    char actual[32];
    snprintf(actual, sizeof actual, "%u", operand->rank);
    gantry_refuse(verdict, GANTRY_REFUSE_rank, operand->view ? operand->view->name : "", actual, required,
                  "");
    verdict->refusal.actual_number = operand->rank;
    return false;
}

bool opencl_refuse_attribute(gantry_verdict *verdict, const char *name, const char *actual,
                             const char *required)
{
    gantry_refuse(verdict, GANTRY_REFUSE_op_attr, name, actual, required, "");
    return false;
}

bool opencl_refuse_limit(gantry_verdict *verdict, const char *operand, double actual, double limit,
                         const char *required)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", actual);
    gantry_refuse(verdict, GANTRY_REFUSE_shape_limit, operand, text, required, "");
    verdict->refusal.actual_number = actual;
    verdict->refusal.limit_number = limit;
    return false;
}

bool opencl_takes_type(const opencl_operand *operand, uint32_t types, gantry_verdict *verdict)
{
    if (!opencl_is_there(operand) || types & OPENCL_TYPE(operand->dtype))
        return true;
    return opencl_refuse_type(verdict, operand, types);
}

/* ---- looking at operands --------------------------------------------------------------------- */

static const opencl_operand absent = {.dtype = GANTRY_UNDEFINED};

const opencl_operand *opencl_input(const opencl_node *node, uint32_t k)
{
    return k < node->input_count ? &node->inputs[k] : &absent;
}

const opencl_operand *opencl_output(const opencl_node *node, uint32_t k)
{
    return k < node->output_count ? &node->outputs[k] : &absent;
}

int64_t opencl_count_dims(const opencl_operand *operand, uint32_t first, uint32_t last)
{
    int64_t count = 1;
    for (uint32_t k = first; k < last && k < operand->rank; k++)
        count *= operand->dims[k] == GANTRY_DIM_UNKNOWN ? 1 : operand->dims[k];
    return count;
}

int64_t opencl_count(const opencl_operand *operand)
{
    return opencl_is_there(operand) ? opencl_count_dims(operand, 0, operand->rank) : 0;
}

size_t opencl_bytes(const opencl_operand *operand)
{
    return (size_t)opencl_count(operand) * opencl_dtype_bytes(operand->dtype);
}

uint32_t opencl_axis(int64_t axis, uint32_t rank)
{
    return (uint32_t)(axis < 0 ? axis + rank : axis);
}

int64_t opencl_host_int(const opencl_operand *operand, int64_t k)
{
    if (operand->dtype == GANTRY_INT32) {
        int32_t value;
        memcpy(&value, (const char *)operand->host + k * 4, sizeof value);
        return value;
    }
    int64_t value;
    memcpy(&value, (const char *)operand->host + k * 8, sizeof value);
    return value;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool fill_operand(const opencl_node *node, uint32_t value, const gantry_shape *shapes, bool typical,
                         opencl_operand *out, gantry_verdict *verdict)
{
    *out = absent;
    out->value = value;
    if (value == GANTRY_NO_ID)
        return true;
    const gantry_value_view *view = node->graph->values[value];
    out->view = view;
    out->dtype = view->dtype;
    if (!shapes && view->rank < 0) {
        gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, view->name, "unknown rank", "a known rank", "");
        return false;
    }
    out->rank = shapes ? shapes[value].rank : (uint32_t)view->rank;
    out->dims = shapes ? shapes[value].dims : typical ? view->typical_dims : view->dims;
    return out->rank <= OPENCL_MAX_RANK || opencl_refuse_rank(verdict, out, "at most 8");
}

static void list_input_types(const gantry_graph_view *graph, const gantry_node_view *view, char *out_text,
                             size_t capacity)
{
    *out_text = 0;
    for (uint32_t k = 0; k < view->input_count; k++) {
        const gantry_value_view *input = gantry_node_input(graph, view, k);
        size_t used = strlen(out_text);
        if (input)
            snprintf(out_text + used, capacity - used, "%s%s", used ? ", " : "", dtype_text(input->dtype));
    }
}

static void refuse_operator(const gantry_graph_view *graph, const gantry_node_view *view,
                            gantry_verdict *verdict)
{
    char types[96], required[64];
    uint32_t count = 0;
    list_input_types(graph, view, types, sizeof types);
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        count += tables[t]->count;
    snprintf(required, sizeof required, "one of %u operators", count);
    gantry_refuse(verdict, view->body_count ? GANTRY_REFUSE_control_flow : GANTRY_REFUSE_no_kernel, view->op,
                  types, required, "");
}

bool opencl_node_fill(const opencl_device *device, const gantry_graph_view *graph,
                      const gantry_node_view *view, const gantry_shape *shapes, bool typical,
                      opencl_node *out_node, gantry_verdict *verdict)
{
    uint32_t most = view->input_count > view->output_count ? view->input_count : view->output_count;
    out_node->device = device;
    out_node->graph = graph;
    out_node->view = view;
    out_node->op = opencl_op_find(view);
    out_node->final = shapes != NULL;
    out_node->input_count = view->input_count;
    out_node->output_count = view->output_count;
    if (!out_node->op) {
        refuse_operator(graph, view, verdict);
        return false;
    }
    if (most > OPENCL_MAX_OPERANDS)
        return opencl_refuse_limit(verdict, view->op, most, OPENCL_MAX_OPERANDS, "at most 64 operands");
    for (uint32_t k = 0; k < view->input_count; k++)
        if (!fill_operand(out_node, view->inputs[k], shapes, typical, &out_node->inputs[k], verdict))
            return false;
    for (uint32_t k = 0; k < view->output_count; k++)
        if (!fill_operand(out_node, view->outputs[k], shapes, typical, &out_node->outputs[k], verdict))
            return false;
    return true;
}

static uint32_t device_types(const opencl_device *device, uint32_t types)
{
    if (!device->has_float64)
        types &= ~OPENCL_F64;
    return types;
}

/* The first operand has a type of the row, the others at least one that the device computes with. */
static bool takes_types(const opencl_node *node, gantry_verdict *verdict)
{
    uint32_t first = device_types(node->device, node->op->types);
    uint32_t others = device_types(node->device, OPENCL_MOVABLE);
    for (uint32_t k = 0; k < node->input_count; k++)
        if (!(node->op->host_inputs >> k & 1) &&
            !opencl_takes_type(&node->inputs[k], k == 0 ? first : others, verdict))
            return false;
    for (uint32_t k = 0; k < node->output_count; k++)
        if (!opencl_takes_type(&node->outputs[k], others, verdict))
            return false;
    return true;
}

static bool knows_host_inputs(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 0; k < node->input_count && k < 32; k++) {
        const opencl_operand *operand = &node->inputs[k];
        if (!(node->op->host_inputs >> k & 1) || !opencl_is_there(operand) ||
            (node->final ? operand->host != NULL || opencl_count(operand) == 0
                         : (operand->view->flags & (GANTRY_VALUE_CONSTANT | GANTRY_VALUE_HOST_KNOWN)) != 0))
            continue;
        gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, operand->view->name, "computed by the run",
                      "known before the run", "");
        return false;
    }
    return true;
}

static bool takes_sizes(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 0; k < node->input_count + node->output_count; k++) {
        const opencl_operand *operand =
            k < node->input_count ? &node->inputs[k] : &node->outputs[k - node->input_count];
        if (!opencl_is_there(operand))
            continue;
        double count = 1;
        for (uint32_t d = 0; d < operand->rank; d++)
            count *= operand->dims[d] == GANTRY_DIM_UNKNOWN ? 1 : (double)operand->dims[d];
        if (count > INT32_MAX)
            return opencl_refuse_limit(verdict, operand->view->name, count, INT32_MAX,
                                       "fewer than 2^31 elements");
        if (k >= node->input_count && !node->final && operand->view->flags & GANTRY_VALUE_BOUNDED) {
            gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, operand->view->name,
                          "a size that depends on data", "a size known before the run", "");
            return false;
        }
    }
    return true;
}

bool opencl_node_takes(const opencl_node *node, gantry_verdict *verdict)
{
    return takes_types(node, verdict) && knows_host_inputs(node, verdict) && takes_sizes(node, verdict) &&
           (!node->op->limits || node->op->limits(node, verdict));
}

/* ---- work ------------------------------------------------------------------------------------ */

void opencl_node_work(const opencl_node *node, opencl_work *out_work)
{
    *out_work = (opencl_work){.efficiency = 1, .launches = 1};
    for (uint32_t k = 0; k < node->input_count; k++)
        if (k >= 32 || !(node->op->host_inputs >> k & 1))
            out_work->bytes += (double)opencl_bytes(&node->inputs[k]);
    for (uint32_t k = 0; k < node->output_count; k++) {
        out_work->bytes += (double)opencl_bytes(&node->outputs[k]);
        out_work->flops += (double)opencl_count(&node->outputs[k]);
    }
    if (node->op->work)
        node->op->work(node, out_work);
}

double opencl_work_ns(const opencl_device *device, const opencl_work *work)
{
    const opencl_speed *speed = &device->speed;
    double moving = work->bytes / speed->bytes_per_ns;
    double computing = work->flops / (speed->flops_per_ns * work->efficiency);
    return work->launches * speed->launch_ns + fmax(moving, computing);
}
