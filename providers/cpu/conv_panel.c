/* Convolutions by own panels: 64 output pixels are gathered for every weight of one output channel, then
 * multiplied with all output channels.
 *
 *     panel [channels * window][64]   gathered once    y [out channels][64] = W [out channels][k] * panel
 *
 * Works in plain layouts, for every window, stride, dilation and group, and with weights that are no
 * constants. Bias and activation are applied while the results are in cache. */
#include "conv.h"
#include "product.h"

typedef struct panel_state {
    cpu_conv conv;
    int64_t k; /* channels of a group times window */
    uint32_t post_count;
    const cpu_post *posts;
} panel_state;

typedef struct panel_job {
    const panel_state *state;
    const cpu_call *call;
} panel_job;

/* A stretch of output pixels in one row. */
typedef struct row_run {
    int64_t at[CPU_MAX_SPATIAL]; /* of its first pixel */
    int64_t first, count;        /* columns of the panel */
} row_run;

static void locate(const cpu_window *w, int64_t pixel, int64_t *out_at)
{
    for (uint32_t k = w->rank; k-- > 0;) {
        out_at[k] = pixel % w->out[k];
        pixel /= w->out[k];
    }
}

/* Where window element `tap` of the run's first pixel lies in the input plane. False when a dim other than
 * the last is outside: all zeros then. */
static bool source_of(const cpu_window *w, const row_run *run, int64_t tap, int64_t *out_row,
                      int64_t *out_column)
{
    int64_t row = 0, last = 0;
    int64_t taps[CPU_MAX_SPATIAL];
    for (uint32_t k = w->rank; k-- > 0;) {
        taps[k] = tap % w->kernel[k];
        tap /= w->kernel[k];
    }
    for (uint32_t k = 0; k < w->rank; k++) {
        int64_t at = run->at[k] * w->stride[k] - w->pad[k] + taps[k] * w->dilation[k];
        if (k == w->rank - 1) {
            last = at;
            row *= w->in[k];
        } else {
            if (at < 0 || at >= w->in[k])
                return false;
            row = row * w->in[k] + at;
        }
    }
    *out_row = row;
    *out_column = last;
    return true;
}

void cpu_conv_copy_row(float *target, const float *row, int64_t column, int64_t step, int64_t count,
                       int64_t width)
{
    int64_t begin = column < 0 ? (-column + step - 1) / step : 0;
    int64_t end = column >= width ? 0 : (width - column + step - 1) / step;
    begin = begin > count ? count : begin;
    end = end > count ? count : end < begin ? begin : end;
    memset(target, 0, (size_t)begin * sizeof *target);
    if (step == 1 && end > begin)
        memcpy(target + begin, row + column + begin, (size_t)(end - begin) * sizeof *target);
    for (int64_t k = begin; step != 1 && k < end; k++)
        target[k] = row[column + k * step];
    memset(target + end, 0, (size_t)(count - end) * sizeof *target);
}

static void gather_run(const panel_state *s, const float *x, const row_run *run, float *panel)
{
    const cpu_window *w = &s->conv.window;
    int64_t taps = cpu_window_product(w->kernel, w->rank), plane = cpu_window_product(w->in, w->rank);
    int64_t channels = s->k / taps, width = w->in[w->rank - 1], step = w->stride[w->rank - 1];
    for (int64_t t = 0; t < taps; t++) {
        int64_t row = 0, column = 0;
        bool inside = source_of(w, run, t, &row, &column);
        for (int64_t c = 0; c < channels; c++) {
            float *target = panel + (c * taps + t) * CPU_PANEL + run->first;
            if (inside)
                cpu_conv_copy_row(target, x + c * plane + row, column, step, run->count, width);
            else
                memset(target, 0, (size_t)run->count * sizeof *target);
        }
    }
}

/* Fills the panel for pixels first .. first+count-1 of one image's group. */
static void gather(const panel_state *s, const float *x, int64_t first, int64_t count, float *panel)
{
    const cpu_window *w = &s->conv.window;
    int64_t width = w->out[w->rank - 1];
    for (int64_t done = 0; done < count;) {
        row_run run = {.first = done};
        locate(w, first + done, run.at);
        int64_t left = width - run.at[w->rank - 1];
        run.count = count - done < left ? count - done : left;
        gather_run(s, x, &run, panel);
        done += run.count;
    }
}

static void multiply(const panel_state *s, const cpu_call *call, int64_t n, int64_t group, int64_t first,
                     int64_t count, const float *panel)
{
    const cpu_conv *c = &s->conv;
    int64_t plane = cpu_window_product(c->window.out, c->window.rank), per = c->out_channels / c->groups;
    const float *weights = (const float *)call->inputs[1] + group * per * s->k;
    float *output = call->outputs[0], buffer[4 * CPU_PANEL];
    for (int64_t m = 0; m < per; m += 4) {
        int64_t rows = per - m < 4 ? per - m : 4, channel = group * per + m;
        int64_t at = (n * c->out_channels + channel) * plane + first;
        bool whole = count == CPU_PANEL;
        cpu_panel_rows(weights + m * s->k, s->k, rows, panel, CPU_PANEL, s->k, whole ? output + at : buffer,
                       whole ? plane : CPU_PANEL);
        for (int64_t r = 0; r < rows; r++) {
            float *y = output + at + r * plane;
            if (!whole)
                memcpy(y, buffer + r * CPU_PANEL, (size_t)count * sizeof *y);
            cpu_posts_apply(s->posts, s->post_count, call, y, count, at + r * plane, channel + r, 0);
        }
    }
}

static size_t panel_bytes(const panel_state *s)
{
    return (size_t)s->k * CPU_PANEL * sizeof(float);
}

static void compute_panels(void *arg, int64_t begin, int64_t end)
{
    const panel_job *job = arg;
    const panel_state *s = job->state;
    const cpu_conv *c = &s->conv;
    int64_t pixels = cpu_window_product(c->window.out, c->window.rank);
    int64_t plane = cpu_window_product(c->window.in, c->window.rank);
    int64_t panels = (pixels + CPU_PANEL - 1) / CPU_PANEL;
    float *panel = cpu_thread_scratch(job->call, panel_bytes(s));
    for (int64_t at = begin; at < end; at++) {
        int64_t first = at % panels * CPU_PANEL, group = at / panels % c->groups, n = at / panels / c->groups;
        int64_t count = pixels - first < CPU_PANEL ? pixels - first : CPU_PANEL;
        const float *x = (const float *)job->call->inputs[0] +
                         (n * c->in_channels + group * (c->in_channels / c->groups)) * plane;
        gather(s, x, first, count, panel);
        multiply(s, job->call, n, group, first, count, panel);
    }
}

static gantry_status panel_run(const void *self, const cpu_call *call)
{
    const panel_state *s = self;
    panel_job job = {s, call};
    int64_t pixels = cpu_window_product(s->conv.window.out, s->conv.window.rank);
    int64_t panels = (pixels + CPU_PANEL - 1) / CPU_PANEL;
    cpu_parallel(call, s->conv.batch * s->conv.groups * panels, 1, compute_panels, &job);
    return GANTRY_OK;
}

gantry_status cpu_conv_panel(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    panel_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    s->conv = *conv;
    s->k = conv->in_channels / conv->groups * cpu_window_product(conv->window.kernel, conv->window.rank);
    s->posts = cpu_conv_posts(build, conv, &s->post_count);
    if (!s->posts)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    for (uint32_t k = 0; k < build->input_count; k++)
        build->inputs[k].layout = CPU_PLAIN;
    build->outputs[0].layout = CPU_PLAIN;
    *out_kernel = cpu_kernel_of(panel_run, s);
    out_kernel->name = "panel64:gather";
    out_kernel->isa = "vector";
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->flops = cpu_conv_flops(conv);
    out_kernel->threads = cpu_conv_threads(build, conv);
    out_kernel->scratch_bytes = (size_t)out_kernel->threads * panel_bytes(s);
    return GANTRY_OK;
}
