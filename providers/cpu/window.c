/* Reads the attributes of sliding windows and resolves auto_pad at known shapes. */
#include "window.h"

/* The ints of an attribute with as many entries as wanted, or `otherwise` everywhere. */
static gantry_status read_ints(cpu_build *build, const char *name, uint32_t wanted, int64_t otherwise,
                               int64_t *out_values)
{
    const gantry_attribute *attribute = gantry_node_attribute(build->node, name);
    for (uint32_t k = 0; k < wanted; k++)
        out_values[k] = otherwise;
    if (!attribute || attribute->kind != GANTRY_ATTR_INTS || attribute->count == 0)
        return GANTRY_OK;
    if (attribute->count != wanted)
        return cpu_unsupported(build, "%s has %u entries, the shape needs %u", name, attribute->count,
                               wanted);
    for (uint32_t k = 0; k < wanted; k++)
        out_values[k] = attribute->ints[k];
    return GANTRY_OK;
}

/* SAME: the output is ceil(in / stride), the padding is split, the odd one goes where the name says. */
static void pad_same(cpu_window *w, bool upper)
{
    for (uint32_t k = 0; k < w->rank; k++) {
        int64_t total = (w->out[k] - 1) * w->stride[k] + cpu_window_range(w, k) - w->in[k];
        total = total > 0 ? total : 0;
        w->pad[k] = upper ? total / 2 : total - total / 2;
        w->declared_end[k] = total - w->pad[k];
    }
}

static gantry_status read_pads(cpu_build *build, cpu_window *w)
{
    const char *mode = gantry_node_string(build->node, "auto_pad", "NOTSET");
    int64_t pads[2 * CPU_MAX_SPATIAL];
    if (strcmp(mode, "SAME_UPPER") == 0 || strcmp(mode, "SAME_LOWER") == 0) {
        pad_same(w, mode[5] == 'U');
        return GANTRY_OK;
    }
    GT_TRY(read_ints(build, "pads", 2 * w->rank, 0, pads));
    bool valid = strcmp(mode, "VALID") == 0;
    for (uint32_t k = 0; k < w->rank; k++) {
        w->pad[k] = valid ? 0 : pads[k];
        w->declared_end[k] = valid ? 0 : pads[w->rank + k];
        if (w->pad[k] < 0 || w->declared_end[k] < 0)
            return cpu_unsupported(build, "negative padding");
    }
    return GANTRY_OK;
}

/* The end padding that gives the output's extent; more than declared only in ceil_mode. */
static gantry_status fit_end(cpu_build *build, cpu_window *w, uint32_t k)
{
    int64_t room = w->in[k] + w->pad[k] + w->declared_end[k] - cpu_window_range(w, k);
    int64_t out = room >= 0 ? room / w->stride[k] + 1 : 0;
    w->pad_end[k] = w->declared_end[k];
    if (out == w->out[k])
        return GANTRY_OK;
    if (out > w->out[k])
        return cpu_unsupported(build, "window and padding give extent %lld, the output has %lld",
                               (long long)out, (long long)w->out[k]);
    w->pad_end[k] = (w->out[k] - 1) * w->stride[k] + cpu_window_range(w, k) - w->in[k] - w->pad[k];
    return GANTRY_OK;
}

gantry_status cpu_window_read(cpu_build *build, const int64_t *kernel, uint32_t kernel_rank,
                              cpu_window *out_window)
{
    const cpu_tensor *x = &build->inputs[0], *y = &build->outputs[0];
    cpu_window w = {0};
    if (x->rank < 3 || x->rank - 2 > CPU_MAX_SPATIAL)
        return cpu_unsupported(build, "%u spatial dims; 1 to %d are handled", x->rank < 2 ? 0 : x->rank - 2,
                               CPU_MAX_SPATIAL);
    w.rank = x->rank - 2;
    if (kernel_rank != w.rank || y->rank != x->rank)
        return cpu_unsupported(build, "the window has %u dims, the input %u", kernel_rank, w.rank);
    for (uint32_t k = 0; k < w.rank; k++) {
        w.in[k] = x->dims[2 + k];
        w.out[k] = y->dims[2 + k];
        w.kernel[k] = kernel[k];
    }
    GT_TRY(read_ints(build, "strides", w.rank, 1, w.stride));
    GT_TRY(read_ints(build, "dilations", w.rank, 1, w.dilation));
    for (uint32_t k = 0; k < w.rank; k++)
        if (w.stride[k] < 1 || w.dilation[k] < 1 || w.kernel[k] < 1)
            return cpu_unsupported(build, "a stride, dilation or window extent is below 1");
    GT_TRY(read_pads(build, &w));
    *out_window = w;
    return GANTRY_OK;
}

gantry_status cpu_window_fit(cpu_build *build, cpu_window *window)
{
    for (uint32_t k = 0; k < window->rank; k++)
        GT_TRY(fit_end(build, window, k));
    return GANTRY_OK;
}
