/* Small models of one node: what operators the kit offers to a provider, their data, and what counts as
 * equal.
 *
 * A row's inputs are texts, one each: TYPE[*][+][DIMS][=VALUES]. TYPE: f float32, h float16, d float64, i
 * int64, j int32, b bool, u uint8, s int8; * is a constant, + only positive numbers, n in DIMS a size that
 * comes with the run,
 * "-" an input left out. Values of
 * an input that is no constant decide sizes: the host knows them when shapes are bound. Attributes are
 * NAME=KIND:VALUE with kind i, f, s, or I and F for lists. */
#include "kit.h"

#include "base/half.h"

#include <math.h>
#include <stdlib.h>

const kit_row KIT_ROWS[] = {
    {"Relu", 14, "f[n,5]", "f", ""},
    {"Add", 14, "f[n,3,4] f[n,3,4]", "f", ""},
    {"Add", 14, "f[n,3,4] f*[4]", "f", ""},
    {"Add", 14, "i[n,4] i[n,4]", "i", ""},
    {"Add", 14, "h[n,4] h[n,4]", "h", ""},
    {"Sub", 14, "f[n,1,4] f[3,1]", "f", ""},
    {"Mul", 14, "f[n,3,4] f*[3,1]", "f", ""},
    {"Div", 14, "f[n,4] f+[n,4]", "f", ""},
    {"Pow", 15, "f+[n,4] f*[]=2", "f", ""},
    {"Min", 13, "f[n,4] f[n,4]", "f", ""},
    {"Max", 13, "f[n,4] f[4]", "f", ""},
    {"PRelu", 16, "f[n,3,4] f*[3,1]", "f", ""},
    {"Abs", 13, "f[n,4]", "f", ""},
    {"Neg", 13, "f[n,4]", "f", ""},
    {"Exp", 13, "f[n,4]", "f", ""},
    {"Log", 13, "f+[n,4]", "f", ""},
    {"Sqrt", 13, "f+[n,4]", "f", ""},
    {"Reciprocal", 13, "f+[n,4]", "f", ""},
    {"Erf", 13, "f[n,4]", "f", ""},
    {"Tanh", 13, "f[n,4]", "f", ""},
    {"Sigmoid", 13, "f[n,4]", "f", ""},
    {"LeakyRelu", 16, "f[n,70]", "f", "alpha=f:0.25"},
    {"LeakyRelu", 16, "f[n,5]", "f", ""},
    {"Elu", 6, "f[n,4]", "f", "alpha=f:0.5"},
    {"HardSigmoid", 6, "f[n,4]", "f", ""},
    {"HardSwish", 14, "f[n,4]", "f", ""},
    {"Softplus", 1, "f[n,4]", "f", ""},
    {"Gelu", 20, "f[n,4]", "f", ""},
    {"Clip", 13, "f[n,4] f*[]=-0.5 f*[]=0.5", "f", ""},
    {"Floor", 13, "f[n,4]", "f", ""},
    {"Cast", 19, "f[n,4]", "h", "to=i:10"},
    {"Cast", 19, "i[n,4]", "f", "to=i:1"},
    {"Where", 16, "b[n,4] f[n,4] f[4]", "f", ""},
    {"Greater", 13, "f[n,4] f[n,4]", "b", ""},
    {"Equal", 19, "i[n,4] i[4]", "b", ""},
    {"And", 7, "b[n,4] b[n,4]", "b", ""},
    {"Not", 1, "b[n,4]", "b", ""},
    {"MatMul", 13, "f[n,5] f*[5,7]", "f", ""},
    {"MatMul", 13, "f[n,2,5] f[n,5,3]", "f", ""},
    {"MatMul", 13, "f[2,n,16] f[16,33]", "f", ""},
    {"Gemm", 13, "f[n,6] f*[5,6] f*[5]", "f", "transB=i:1 alpha=f:0.5"},
    {"Conv", 11, "f[n,3,9,8] f*[4,3,3,3] f*[4]", "f", "pads=I:1,1,1,1 kernel_shape=I:3,3"},
    {"Conv", 11, "f[n,4,6,6] f*[8,4,1,1]", "f", "strides=I:2,2 kernel_shape=I:1,1"},
    {"Conv", 11, "f[n,4,7,7] f*[4,1,3,3] f*[4]", "f", "group=i:4 kernel_shape=I:3,3 dilations=I:2,2"},
    {"ConvTranspose", 11, "f[n,3,4,4] f*[3,2,3,3]", "f", "strides=I:2,2 kernel_shape=I:3,3"},
    {"MaxPool", 12, "f[n,2,7,7]", "f", "kernel_shape=I:3,3 strides=I:2,2 pads=I:1,1,1,1"},
    {"AveragePool", 19, "f[n,2,6,6]", "f", "kernel_shape=I:2,2 strides=I:2,2"},
    {"GlobalAveragePool", 1, "f[n,3,5,5]", "f", ""},
    {"BatchNormalization", 15, "f[n,3,4] f*[3] f*[3] f*[3] f*+[3]", "f", ""},
    {"InstanceNormalization", 6, "f[n,3,8] f*[3] f*[3]", "f", ""},
    {"LayerNormalization", 17, "f[n,6] f*[6] f*[6]", "f", ""},
    {"Softmax", 13, "f[n,7]", "f", "axis=i:-1"},
    {"LogSoftmax", 13, "f[n,7]", "f", "axis=i:-1"},
    {"ReduceSum", 13, "f[n,3,4] i*[1]=1", "f", "keepdims=i:0"},
    {"ReduceMean", 18, "f[n,3,4] i*[2]=1,2", "f", ""},
    {"ReduceMax", 20, "f[n,3,4] i*[1]=-1", "f", ""},
    {"ArgMax", 13, "f[n,7]", "i", "axis=i:1 keepdims=i:0"},
    {"Transpose", 13, "f[n,3,4]", "f", "perm=I:2,0,1"},
    {"Reshape", 19, "f[n,3,4] i*[2]=-1,12", "f", ""},
    {"Reshape", 19, "f[n,3,4] i[2]=-1,6", "f", ""},
    {"Concat", 13, "f[n,3] f[n,2]", "f", "axis=i:1"},
    {"Slice", 13, "f[n,6] i*[1]=1 i*[1]=5 i*[1]=1 i*[1]=2", "f", ""},
    {"Split", 18, "f[n,6]", "f f", "axis=i:1 num_outputs=i:2"},
    {"Gather", 13, "f*[9,4] i[n]", "f", ""},
    {"Expand", 13, "f[n,1] i*[2]=1,4", "f", ""},
    {"Expand", 13, "f[n,1] i[3]=2,1,4", "f", ""},
    {"Squeeze", 13, "f[n,1,4] i*[1]=1", "f", ""},
    {"Unsqueeze", 13, "f[n,4] i*[1]=1", "f", ""},
    {"Flatten", 13, "f[n,3,4]", "f", ""},
    {"Identity", 19, "f[n,4]", "f", ""},
    {"Pad", 19, "f[n,4] i*[4]=0,1,0,2 f*[]=0.5", "f", ""},
    {"Tile", 13, "f[n,4] i*[2]=1,3", "f", ""},
    {"Resize", 19, "f[n,1,3,3] - f*[4]=1,1,2,2", "f", "mode=s:nearest"},
    {"CumSum", 14, "f[n,6] i*[]=1", "f", ""},
    {"TopK", 11, "f[n,8] i*[1]=3", "f i", ""},
    {"QuantizeLinear", 19, "f[n,4] f*[]=0.05 u*[]=128", "u", ""},
    {"DequantizeLinear", 19, "s[n,4] f*[]=0.05 s*[]=3", "f", ""},
    {"MatMulInteger", 10, "u[n,5] s*[5,4] u*[]=7", "j", ""},
};
const uint32_t KIT_ROW_COUNT = sizeof KIT_ROWS / sizeof *KIT_ROWS;

/* ---- reading a row --------------------------------------------------------------------------- */

static gantry_dtype dtype_of(char letter)
{
    switch (letter) {
    case 'f':
        return GANTRY_FLOAT32;
    case 'h':
        return GANTRY_FLOAT16;
    case 'd':
        return GANTRY_FLOAT64;
    case 'i':
        return GANTRY_INT64;
    case 'j':
        return GANTRY_INT32;
    case 'b':
        return GANTRY_BOOL;
    case 'u':
        return GANTRY_UINT8;
    case 's':
        return GANTRY_INT8;
    default:
        return GANTRY_UNDEFINED;
    }
}

static const char *next_word(const char *text)
{
    text += strcspn(text, " ");
    return text + strspn(text, " ");
}

static void read_operand(const char *word, uint32_t index, kit_value *out_value)
{
    *out_value = (kit_value){.present = *word != '-', .dtype = dtype_of(*word)};
    snprintf(out_value->name, sizeof out_value->name, "x%u", index);
    const char *c = word + 1;
    for (; *c == '*' || *c == '+'; c++) {
        out_value->constant |= *c == '*';
        out_value->positive |= *c == '+';
    }
    if (*c != '[')
        return;
    for (c++; *c != ']'; c += *c == ',') {
        char *end = (char *)(uintptr_t)c + 1;
        int64_t extent = *c == 'n' ? -1 : strtoll(c, &end, 10);
        out_value->dims[out_value->rank++] = extent;
        c = end;
    }
    out_value->values = c[1] == '=' ? c + 2 : NULL;
}

static uint32_t read_numbers(const char *text, int64_t *out_ints, float *out_floats)
{
    uint32_t count = 0;
    for (char *end; count < 8; text = end + 1) {
        out_floats[count] = strtof(text, NULL);
        out_ints[count] = strtoll(text, &end, 10);
        strtof(text, &end);
        count++;
        if (*end != ',')
            break;
    }
    return count;
}

static void read_attribute(const char *word, kit_model *m)
{
    static const struct {
        char letter;
        gantry_attribute_kind kind;
    } KINDS[] = {{'i', GANTRY_ATTR_INT},
                 {'f', GANTRY_ATTR_FLOAT},
                 {'s', GANTRY_ATTR_STRING},
                 {'I', GANTRY_ATTR_INTS},
                 {'F', GANTRY_ATTR_FLOATS}};
    uint32_t index = m->node.attribute_count++;
    gantry_attribute *a = &m->attributes[index];
    int name = (int)strcspn(word, "="), text = (int)strcspn(word + name + 3, " ");
    snprintf(m->texts[index][0], sizeof m->texts[0][0], "%.*s", name, word);
    snprintf(m->texts[index][1], sizeof m->texts[0][1], "%.*s", text, word + name + 3);
    uint32_t count = read_numbers(m->texts[index][1], m->ints[index], m->floats[index]);
    *a = (gantry_attribute){.struct_bytes = sizeof *a, .name = m->texts[index][0], .count = 1};
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
        if (KINDS[k].letter == word[name + 1])
            a->kind = KINDS[k].kind;
    a->i = m->ints[index][0];
    a->f = m->floats[index][0];
    if (a->kind == GANTRY_ATTR_INTS || a->kind == GANTRY_ATTR_FLOATS) {
        a->count = count;
        a->ints = m->ints[index];
        a->floats = m->floats[index];
    }
    if (a->kind == GANTRY_ATTR_STRING) {
        a->s = m->texts[index][1];
        a->length = strlen(a->s);
    }
}

static void read_row(const kit_row *row, kit_model *m)
{
    for (const char *word = row->inputs; *word; word = next_word(word))
        read_operand(word, m->operand_count, &m->operands[m->operand_count]), m->operand_count++;
    for (const char *word = row->outputs; *word; word = next_word(word)) {
        kit_value *result = &m->results[m->result_count];
        *result = (kit_value){.present = true, .dtype = dtype_of(*word)};
        snprintf(result->name, sizeof result->name, "y%u", m->result_count++);
    }
    for (const char *word = row->attributes; *word; word = next_word(word))
        read_attribute(word, m);
}

/* ---- data ------------------------------------------------------------------------------------ */

static uint32_t next_random(uint32_t *inout_state)
{
    *inout_state = *inout_state * 1664525u + 1013904223u;
    return *inout_state >> 8;
}

static void store(gantry_dtype dtype, void *data, uint64_t k, double value)
{
    switch (dtype) {
    case GANTRY_FLOAT32:
        ((float *)data)[k] = (float)value;
        break;
    case GANTRY_FLOAT64:
        ((double *)data)[k] = value;
        break;
    case GANTRY_FLOAT16:
        ((uint16_t *)data)[k] = gt_half_bits(value);
        break;
    case GANTRY_INT64:
        ((int64_t *)data)[k] = (int64_t)value;
        break;
    case GANTRY_INT32:
        ((int32_t *)data)[k] = (int32_t)value;
        break;
    default:
        ((uint8_t *)data)[k] = (uint8_t)(int)value;
        break;
    }
}

static double load(gantry_dtype dtype, const void *data, uint64_t k)
{
    switch (dtype) {
    case GANTRY_FLOAT32:
        return ((const float *)data)[k];
    case GANTRY_FLOAT64:
        return ((const double *)data)[k];
    case GANTRY_FLOAT16:
        return gt_half_value(((const uint16_t *)data)[k]);
    case GANTRY_INT64:
        return (double)((const int64_t *)data)[k];
    case GANTRY_INT32:
        return ((const int32_t *)data)[k];
    case GANTRY_INT8:
        return ((const int8_t *)data)[k];
    default:
        return ((const uint8_t *)data)[k];
    }
}

static bool is_float(gantry_dtype dtype)
{
    return dtype == GANTRY_FLOAT32 || dtype == GANTRY_FLOAT64 || dtype == GANTRY_FLOAT16;
}

static double made_up(const kit_value *value, uint32_t *inout_state)
{
    double unit = next_random(inout_state) / (double)(1u << 24);
    if (is_float(value->dtype))
        return value->positive ? 0.25 + 2 * unit : 2 * unit - 1;
    double range = value->dtype == GANTRY_BOOL                                   ? 2
                   : value->dtype == GANTRY_UINT8 || value->dtype == GANTRY_INT8 ? 256
                                                                                 : 3;
    return floor(unit * range) - (value->dtype == GANTRY_INT8 ? 128 : 0);
}

static bool fill(const kit_value *value, int64_t n, uint32_t seed, kit_array *out_array)
{
    uint64_t count = 1;
    *out_array = (kit_array){.dtype = value->dtype, .rank = value->rank};
    for (uint32_t k = 0; k < value->rank; k++)
        count *= (uint64_t)(out_array->dims[k] = value->dims[k] < 0 ? n : value->dims[k]);
    out_array->bytes = gantry_dtype_bytes(value->dtype, count);
    out_array->data = calloc(1, out_array->bytes + 64);
    if (!out_array->data)
        return false;
    const char *text = value->values;
    for (uint64_t k = 0; k < count; k++) {
        store(value->dtype, out_array->data, k, text ? strtod(text, NULL) : made_up(value, &seed));
        if (text && text[strcspn(text, ", ")] == ',')
            text += strcspn(text, ",") + 1;
    }
    return true;
}

void kit_data_free(kit_data *data)
{
    for (uint32_t k = 0; k < KIT_MAX_OPERANDS; k++) {
        kit_array_free(&data->inputs[k]);
        kit_array_free(&data->expected[k]);
    }
}

bool kit_data_make(const kit_model *m, int64_t n, uint32_t seed, kit_cpu *cpu, kit_data *out_data,
                   gantry_error *err)
{
    gantry_status status = GANTRY_OK;
    *out_data = (kit_data){.n = n};
    for (uint32_t k = 0; k < m->operand_count && status == GANTRY_OK; k++)
        if (m->operands[k].present &&
            !fill(&m->operands[k], n, m->operands[k].constant ? 77u + k : seed * 31u + k,
                  &out_data->inputs[k]))
            status = GANTRY_RESOURCE;
    if (status == GANTRY_OK)
        status = kit_cpu_run(cpu, &m->view, 0, out_data->inputs, out_data->expected, err);
    if (status != GANTRY_OK)
        kit_data_free(out_data);
    return status == GANTRY_OK;
}

/* ---- the view -------------------------------------------------------------------------------- */

static void add_value(kit_model *m, const kit_value *value, uint32_t *out_index)
{
    uint32_t index = m->view.value_count++;
    gantry_value_view *view = &m->values[index];
    for (uint32_t k = 0; k < value->rank; k++) {
        bool symbolic = value->dims[k] < 0 && m->n < 0;
        m->dims[index][k] = value->dims[k] < 0 ? m->n : value->dims[k];
        m->typical[index][k] = symbolic ? KIT_TYPICAL_N : m->dims[index][k];
        m->dim_names[index][k] = symbolic ? "n" : NULL;
        m->has_n |= value->dims[k] < 0;
    }
    *view = (gantry_value_view){.struct_bytes = sizeof *view,
                                .id = 100 + index, /* an id is no index */
                                .name = value->name,
                                .kind = GANTRY_KIND_TENSOR,
                                .dtype = value->dtype,
                                .rank = (int32_t)value->rank,
                                .dims = m->dims[index],
                                .typical_dims = m->typical[index],
                                .dim_names = m->dim_names[index],
                                .constant_id = GANTRY_NO_ID};
    m->value_list[index] = view;
    *out_index = index;
}

static void make_view(kit_model *m)
{
    uint32_t attributes = m->node.attribute_count;
    m->view = (gantry_graph_view){.struct_bytes = sizeof m->view,
                                  .node_count = 1,
                                  .nodes = m->node_list,
                                  .values = m->value_list,
                                  .inputs = m->graph_inputs,
                                  .outputs = m->graph_outputs};
    for (uint32_t k = 0; k < m->operand_count; k++) {
        uint32_t index = GANTRY_NO_ID;
        if (m->operands[k].present)
            add_value(m, &m->operands[k], &index);
        m->node_inputs[k] = index;
        if (m->operands[k].constant) {
            m->values[index].flags = GANTRY_VALUE_CONSTANT;
            m->values[index].constant_id = k;
            m->has_constants = true;
        } else if (index != GANTRY_NO_ID) {
            m->values[index].flags = m->operands[k].values ? GANTRY_VALUE_HOST_KNOWN : 0;
            m->graph_inputs[m->view.input_count++] = index;
        }
    }
    for (uint32_t k = 0; k < m->result_count; k++) {
        add_value(m, &m->results[k], &m->node_outputs[k]);
        m->graph_outputs[m->view.output_count++] = m->node_outputs[k];
    }
    m->node_list[0] = &m->node;
    m->node = (gantry_node_view){.struct_bytes = sizeof m->node,
                                 .id = 42,
                                 .name = "node",
                                 .op = m->row->op,
                                 .domain = "",
                                 .version = m->row->version,
                                 .input_count = m->operand_count,
                                 .inputs = m->node_inputs,
                                 .output_count = m->result_count,
                                 .outputs = m->node_outputs,
                                 .attribute_count = attributes,
                                 .attributes = m->attributes};
}

/* Extents of the results, from what the CPU gives at two sizes. */
static bool infer_results(kit_model *m, kit_cpu *cpu, gantry_error *err)
{
    kit_data small, large;
    bool symbolic = m->n < 0;
    if (!kit_data_make(m, symbolic ? KIT_TYPICAL_N : m->n, 1, cpu, &small, err))
        return false;
    bool good = !symbolic || kit_data_make(m, 5, 1, cpu, &large, err);
    for (uint32_t k = 0; good && k < m->result_count; k++) {
        const kit_array *a = &small.expected[k], *b = symbolic ? &large.expected[k] : a;
        m->results[k].rank = a->rank <= KIT_MAX_DIMS ? a->rank : KIT_MAX_DIMS;
        for (uint32_t d = 0; d < m->results[k].rank; d++)
            m->results[k].dims[d] = a->dims[d] == b->dims[d] ? a->dims[d] : -1;
    }
    kit_data_free(&small);
    if (good && symbolic)
        kit_data_free(&large);
    return good;
}

bool kit_model_make(const kit_row *row, int64_t n, kit_cpu *cpu, kit_model *out_model, gantry_error *err)
{
    kit_model *m = out_model;
    *m = (kit_model){.row = row, .n = n};
    read_row(row, m);
    make_view(m);
    for (uint32_t k = 0; k < m->operand_count; k++)
        if (m->operands[k].constant && !fill(&m->operands[k], 0, 77u + k, &m->constants[k]))
            return false;
    if (!infer_results(m, cpu, err))
        return false;
    make_view(m); /* again, with the extents of the results */
    return true;
}

void kit_model_free(kit_model *model)
{
    for (uint32_t k = 0; k < KIT_MAX_OPERANDS; k++)
        kit_array_free(&model->constants[k]);
}

/* ---- equal ----------------------------------------------------------------------------------- */

static bool is_near(const kit_array *expected, uint64_t k, double got, gantry_dtype precision, double scale)
{
    double wanted = load(expected->dtype, expected->data, k), gap = fabs(got - wanted);
    if (!is_float(expected->dtype))
        return gap <= (expected->dtype == GANTRY_UINT8 || expected->dtype == GANTRY_INT8 ? 1 : 0);
    if (isnan(wanted) || isinf(wanted))
        return isnan(wanted) ? isnan(got) : got == wanted;
    bool half =
        precision == GANTRY_FLOAT16 || precision == GANTRY_BFLOAT16 || expected->dtype == GANTRY_FLOAT16;
    if (precision == GANTRY_INT8 || precision == GANTRY_UINT8)
        return gap <= 0.05 + 0.1 * scale;
    return half ? gap <= 0.02 + 0.02 * fabs(wanted) : gap <= 1e-4 + 1e-3 * fabs(wanted);
}

bool kit_compare(const kit_array *expected, const kit_array *got, gantry_dtype precision,
                 double *inout_largest, char *out_text, size_t capacity)
{
    double scale = 0;
    uint64_t count = 1;
    for (uint32_t k = 0; k < expected->rank; k++)
        count *= (uint64_t)expected->dims[k];
    for (uint64_t k = 0; k < count; k++)
        scale = fmax(scale, fabs(load(expected->dtype, expected->data, k)));
    for (uint64_t k = 0; k < count; k++) {
        double value = load(expected->dtype, got->data, k), wanted = load(expected->dtype, expected->data, k);
        if (!is_near(expected, k, value, precision, scale)) {
            snprintf(out_text, capacity, "element %llu of %llu is %.7g, the CPU's is %.7g",
                     (unsigned long long)k, (unsigned long long)count, value, wanted);
            return false;
        }
        if (isfinite(wanted) && fabs(value - wanted) > *inout_largest)
            *inout_largest = fabs(value - wanted);
    }
    return true;
}
