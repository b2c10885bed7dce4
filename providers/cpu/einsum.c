/* Einsum: every label is an axis that each operand walks with a stride (0 where it lacks the label). Output
 * labels are the outer loops, the others are summed over. The innermost loop is a dot product where both
 * operands are contiguous along the last summed label, else it runs along the last output label.
 *
 *     labels: | output labels, ellipsis axes first | summed labels | */
#include "reduce.h"

#include "rows.h"

#define LABELS 32
#define OPERANDS 4

typedef struct einsum_state {
    uint32_t operand_count, label_count, out_count;
    int64_t dims[LABELS];
    int64_t strides[OPERANDS][LABELS];
    int64_t rows, columns; /* of the output: all but the last label, the last label */
    int64_t sums, inner;   /* of the summed labels: all but the last, the last */
    gantry_dtype dtype;
} einsum_state;

typedef struct einsum_work {
    const einsum_state *state;
    const cpu_call *call;
} einsum_work;

/* Offsets of all operands for position `index` of labels begin..end-1. */
static void offsets_at(const einsum_state *s, uint32_t begin, uint32_t end, int64_t index,
                       int64_t *inout_offsets)
{
    for (uint32_t label = end; label-- > begin;) {
        int64_t at = index % s->dims[label];
        index /= s->dims[label];
        for (uint32_t k = 0; k < s->operand_count; k++)
            inout_offsets[k] += at * s->strides[k][label];
    }
}

static int64_t inner_stride(const einsum_state *s, uint32_t operand)
{
    return s->label_count > s->out_count ? s->strides[operand][s->label_count - 1] : 0;
}

static int64_t column_stride(const einsum_state *s, uint32_t operand)
{
    return s->out_count ? s->strides[operand][s->out_count - 1] : 0;
}

/* wide: what products are summed in. */
#define EINSUM(suffix, type, wide)                                                                           \
    static wide sum_##suffix(const einsum_state *s, const type *const *at, const int64_t *step)              \
    {                                                                                                        \
        wide total = 0;                                                                                      \
        for (int64_t j = 0; j < s->inner; j++) {                                                             \
            wide product = (wide)at[0][j * step[0]];                                                         \
            for (uint32_t k = 1; k < s->operand_count; k++)                                                  \
                product *= (wide)at[k][j * step[k]];                                                         \
            total += product;                                                                                \
        }                                                                                                    \
        return total;                                                                                        \
    }                                                                                                        \
    static void einsum_##suffix(void *arg, int64_t begin, int64_t end)                                       \
    {                                                                                                        \
        const einsum_work *work = arg;                                                                       \
        const einsum_state *s = work->state;                                                                 \
        int64_t step[OPERANDS] = {inner_stride(s, 0)};                                                       \
        for (uint32_t k = 1; k < s->operand_count; k++)                                                      \
            step[k] = inner_stride(s, k);                                                                    \
        for (int64_t out = begin * s->columns; out < end * s->columns; out++) {                              \
            wide total = 0;                                                                                  \
            int64_t base[OPERANDS] = {0};                                                                    \
            offsets_at(s, 0, s->out_count, out, base);                                                       \
            for (int64_t sum = 0; sum < s->sums; sum++) {                                                    \
                int64_t offset[OPERANDS];                                                                    \
                memcpy(offset, base, sizeof offset);                                                         \
                if (s->sums > 1)                                                                             \
                    offsets_at(s, s->out_count, s->label_count - 1, sum, offset);                            \
                const type *at[OPERANDS] = {(const type *)work->call->inputs[0] + offset[0]};                \
                for (uint32_t k = 1; k < s->operand_count; k++)                                              \
                    at[k] = (const type *)work->call->inputs[k] + offset[k];                                 \
                total += sum_##suffix(s, at, step);                                                          \
            }                                                                                                \
            ((type *)work->call->outputs[0])[out] = (type)total;                                             \
        }                                                                                                    \
    }
EINSUM(f32, float, double)
EINSUM(f64, double, double)
EINSUM(i32, int32_t, uint32_t)
EINSUM(i64, int64_t, uint64_t)

/* Two float32 operands, contiguous along the summed label: dot products. */
static void einsum_dot(void *arg, int64_t begin, int64_t end)
{
    const einsum_work *work = arg;
    const einsum_state *s = work->state;
    const float *a = work->call->inputs[0], *b = work->call->inputs[1];
    for (int64_t out = begin * s->columns; out < end * s->columns; out++) {
        int64_t base[OPERANDS] = {0};
        float total = 0;
        offsets_at(s, 0, s->out_count, out, base);
        for (int64_t sum = 0; sum < s->sums; sum++) {
            int64_t offset[OPERANDS] = {base[0], base[1]};
            if (s->sums > 1)
                offsets_at(s, s->out_count, s->label_count - 1, sum, offset);
            total += cpu_rows_best()->dot_f32(a + offset[0], b + offset[1], s->inner);
        }
        ((float *)work->call->outputs[0])[out] = total;
    }
}

/* Two float32 operands of which `rows_of` is contiguous along the last output label and the other lacks it:
 * rows are added, scaled by single elements. */
static void einsum_axpy(const einsum_work *work, uint32_t rows_of, int64_t begin, int64_t end)
{
    const einsum_state *s = work->state;
    const float *in[2] = {work->call->inputs[0], work->call->inputs[1]};
    for (int64_t row = begin; row < end; row++) {
        float *out = (float *)work->call->outputs[0] + row * s->columns;
        int64_t base[OPERANDS] = {0};
        offsets_at(s, 0, s->out_count - 1, row, base);
        memset(out, 0, (size_t)s->columns * sizeof *out);
        for (int64_t sum = 0; sum < s->sums * s->inner; sum++) {
            int64_t offset[OPERANDS] = {base[0], base[1]};
            offsets_at(s, s->out_count, s->label_count, sum, offset);
            cpu_rows_best()->add_scaled_f32(in[rows_of] + offset[rows_of], out, s->columns,
                                            in[1 - rows_of][offset[1 - rows_of]]);
        }
    }
}

static void einsum_axpy_first(void *arg, int64_t begin, int64_t end)
{
    einsum_axpy(arg, 0, begin, end);
}

static void einsum_axpy_second(void *arg, int64_t begin, int64_t end)
{
    einsum_axpy(arg, 1, begin, end);
}

typedef void (*einsum_body)(void *arg, int64_t begin, int64_t end);

static einsum_body pick_body(const einsum_state *s)
{
    if (s->dtype == GANTRY_FLOAT64)
        return einsum_f64;
    if (s->dtype == GANTRY_INT32)
        return einsum_i32;
    if (s->dtype == GANTRY_INT64)
        return einsum_i64;
    if (s->operand_count == 2 && inner_stride(s, 0) == 1 && inner_stride(s, 1) == 1)
        return einsum_dot;
    if (s->operand_count == 2 && s->out_count && column_stride(s, 0) == 1 && column_stride(s, 1) == 0)
        return einsum_axpy_first;
    if (s->operand_count == 2 && s->out_count && column_stride(s, 1) == 1 && column_stride(s, 0) == 0)
        return einsum_axpy_second;
    return einsum_f32;
}

static gantry_status einsum_run(const void *opaque, const cpu_call *call)
{
    const einsum_state *s = opaque;
    einsum_work work = {s, call};
    int64_t row = cpu_max64(1, s->columns * s->sums * s->inner);
    cpu_parallel(call, s->rows, cpu_max64(1, CPU_CHUNK_ELEMENTS * 4 / row), pick_body(s), &work);
    return GANTRY_OK;
}

/* ---- the equation ---------------------------------------------------------------------------- */

/* Labels in the order of the loops. '.' followed by a number stands for an axis of the ellipsis. */
typedef struct equation {
    const char *terms[OPERANDS], *term_ends[OPERANDS], *output, *output_end; /* output NULL: implicit */
    uint32_t term_count;
    int ellipsis_rank;
    int labels[LABELS]; /* a letter, or 256 + number for an axis of the ellipsis, counted from the right */
    uint32_t label_count, out_count;
} equation;

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static uint32_t count_letters(const char *begin, const char *end)
{
    uint32_t count = 0;
    for (; begin < end; begin++)
        count += is_letter(*begin);
    return count;
}

static bool split_equation(const char *text, equation *eq)
{
    const char *arrow = strstr(text, "->"), *end = arrow ? arrow : text + strlen(text);
    *eq = (equation){.output = arrow ? arrow + 2 : NULL};
    eq->output_end = eq->output ? eq->output + strlen(eq->output) : NULL;
    for (const char *at = text;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (eq->term_count == OPERANDS)
            return false;
        eq->terms[eq->term_count] = at;
        eq->term_ends[eq->term_count++] = comma ? comma : end;
        if (!comma)
            return true;
        at = comma + 1;
    }
}

static bool add_label(equation *eq, int label)
{
    for (uint32_t k = 0; k < eq->label_count; k++)
        if (eq->labels[k] == label)
            return true;
    if (eq->label_count == LABELS)
        return false;
    eq->labels[eq->label_count++] = label;
    return true;
}

static uint32_t occurrences(const equation *eq, char letter)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < eq->term_count; k++)
        for (const char *c = eq->terms[k]; c < eq->term_ends[k]; c++)
            count += *c == letter;
    return count;
}

static bool add_term(equation *eq, const char *begin, const char *end)
{
    for (const char *c = begin; c < end; c++) {
        if (is_letter(*c) && !add_label(eq, *c))
            return false;
        if (*c == '.') {
            for (int k = eq->ellipsis_rank; k-- > 0;)
                if (!add_label(eq, 256 + k))
                    return false;
            c += 2;
        }
    }
    return true;
}

/* Output labels first: as written, or the ellipsis and the letters that occur once in alphabetical order. */
static bool order_labels(equation *eq)
{
    if (eq->output) {
        if (!add_term(eq, eq->output, eq->output_end))
            return false;
    } else {
        for (int k = eq->ellipsis_rank; k-- > 0;)
            if (!add_label(eq, 256 + k))
                return false;
        for (int c = 'A'; c <= 'z'; c++)
            if (is_letter((char)c) && occurrences(eq, (char)c) == 1 && !add_label(eq, c))
                return false;
    }
    eq->out_count = eq->label_count;
    for (uint32_t k = 0; k < eq->term_count; k++)
        if (!add_term(eq, eq->terms[k], eq->term_ends[k]))
            return false;
    return true;
}

static bool set_axis(einsum_state *s, const equation *eq, uint32_t operand, int label, int64_t extent,
                     int64_t stride)
{
    for (uint32_t k = 0; k < eq->label_count; k++) {
        if (eq->labels[k] != label)
            continue;
        if (extent != 1 && s->dims[k] != 1 && s->dims[k] != extent)
            return false;
        if (extent != 1)
            s->dims[k] = extent;
        s->strides[operand][k] += extent == 1 ? 0 : stride; /* a label twice in one term walks the diagonal */
        return true;
    }
    return false;
}

static bool set_operand(einsum_state *s, const equation *eq, uint32_t operand, const cpu_tensor *tensor)
{
    int64_t strides[GANTRY_MAX_RANK];
    uint32_t axis = 0, letters = count_letters(eq->terms[operand], eq->term_ends[operand]);
    cpu_strides(tensor->rank, tensor->dims, strides);
    for (const char *c = eq->terms[operand]; c < eq->term_ends[operand]; c++) {
        if (is_letter(*c)) {
            if (axis >= tensor->rank || !set_axis(s, eq, operand, *c, tensor->dims[axis], strides[axis]))
                return false;
            axis++;
        } else if (*c == '.') {
            for (uint32_t k = tensor->rank - letters; k-- > 0; axis++)
                if (axis >= tensor->rank ||
                    !set_axis(s, eq, operand, 256 + (int)k, tensor->dims[axis], strides[axis]))
                    return false;
            c += 2;
        }
    }
    return axis == tensor->rank;
}

static gantry_status make_einsum(cpu_build *build, cpu_kernel *out_kernel)
{
    const char *text = gantry_node_string(build->node, "equation", "");
    equation eq;
    einsum_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    bool good = split_equation(text, &eq) && eq.term_count == build->input_count;
    for (uint32_t k = 0; good && k < eq.term_count; k++) {
        uint32_t letters = count_letters(eq.terms[k], eq.term_ends[k]), rank = build->inputs[k].rank;
        bool dots = memchr(eq.terms[k], '.', (size_t)(eq.term_ends[k] - eq.terms[k])) != NULL;
        good = dots ? rank >= letters : rank == letters;
        if (dots && (int)(rank - letters) > eq.ellipsis_rank)
            eq.ellipsis_rank = (int)(rank - letters);
    }
    good = good && order_labels(&eq);
    *s = (einsum_state){.operand_count = eq.term_count,
                        .label_count = eq.label_count,
                        .out_count = eq.out_count,
                        .dtype = build->inputs[0].dtype};
    for (uint32_t k = 0; k < LABELS; k++)
        s->dims[k] = 1;
    for (uint32_t k = 0; good && k < eq.term_count; k++)
        good = set_operand(s, &eq, k, &build->inputs[k]);
    if (!good)
        return cpu_unsupported(build,
                               "the equation \"%s\" does not fit the inputs, or has more than %d of them",
                               text, OPERANDS);
    s->columns = s->out_count ? s->dims[s->out_count - 1] : 1;
    s->rows = s->out_count ? cpu_product(s->dims, 0, s->out_count - 1) : 1;
    s->inner = s->label_count > s->out_count ? s->dims[s->label_count - 1] : 1;
    s->sums = s->label_count > s->out_count ? cpu_product(s->dims, s->out_count, s->label_count - 1) : 1;
    if (s->rows * s->columns != build->outputs[0].count)
        return cpu_unsupported(build, "the equation gives %lld elements, the output has %lld",
                               (long long)(s->rows * s->columns), (long long)build->outputs[0].count);
    *out_kernel = cpu_kernel_of(einsum_run, s);
    out_kernel->flops = 2.0 * (double)(s->rows * s->columns) * (double)(s->sums * s->inner);
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 4);
    return GANTRY_OK;
}

/* Half floats in float32, small integers in 64 bits. */
gantry_status cpu_make_einsum(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype from = build->inputs[0].dtype, to = from, in_types[OPERANDS], out_types[1];
    if (cpu_dtype_in(from, CPU_HALVES))
        to = GANTRY_FLOAT32;
    else if (cpu_dtype_in(from, CPU_INTEGERS) && from != GANTRY_INT32)
        to = GANTRY_INT64;
    if (build->input_count > OPERANDS)
        return cpu_unsupported(build, "more than %d inputs", OPERANDS);
    for (uint32_t k = 0; k < OPERANDS; k++)
        in_types[k] = to;
    out_types[0] = to;
    return cpu_make_converted(build, make_einsum, in_types, out_types, out_kernel);
}
