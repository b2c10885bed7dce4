/* NonMaxSuppression: boxes of one class in order of their scores; a box that overlaps a chosen one too much
 * is left out.
 *
 *     scratch: | candidates | buffer of the merge | corners of the boxes of one batch | */
#include "indexing.h"

typedef struct nms_state {
    int64_t batches, classes, boxes, limit;
    bool center;
    bool has_most, has_iou, has_score;
    gantry_dtype most_dtype;
} nms_state;

typedef struct box {
    float y0, x0, y1, x1, area;
} box;

static box read_box(const float *b, bool center)
{
    box r;
    if (center) {
        r = (box){b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2, 0};
    } else {
        r = (box){b[0] < b[2] ? b[0] : b[2], b[1] < b[3] ? b[1] : b[3], b[0] < b[2] ? b[2] : b[0],
                  b[1] < b[3] ? b[3] : b[1], 0};
    }
    r.area = (r.y1 - r.y0) * (r.x1 - r.x0);
    return r;
}

static bool overlaps(const box *a, const box *b, float threshold)
{
    float y0 = a->y0 > b->y0 ? a->y0 : b->y0, y1 = a->y1 < b->y1 ? a->y1 : b->y1;
    float x0 = a->x0 > b->x0 ? a->x0 : b->x0, x1 = a->x1 < b->x1 ? a->x1 : b->x1;
    if (y1 <= y0 || x1 <= x0 || a->area <= 0 || b->area <= 0)
        return false;
    float common = (y1 - y0) * (x1 - x0), whole = a->area + b->area - common;
    return whole > 0 && common / whole > threshold;
}

/* Stable, highest score first. */
static void sort_candidates(const float *scores, int64_t *order, int64_t *buffer, int64_t n)
{
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * width) {
            int64_t middle = cpu_min64(begin + width, n), end = cpu_min64(begin + 2 * width, n);
            int64_t a = begin, b = middle;
            for (int64_t k = begin; k < end; k++)
                buffer[k] = b >= end || (a < middle && scores[order[a]] >= scores[order[b]]) ? order[a++]
                                                                                             : order[b++];
        }
        memcpy(order, buffer, (size_t)n * sizeof *order);
    }
}

/* Chooses boxes of one class; chosen ones move to the front of order. Returns how many. */
static int64_t suppress(const box *boxes, int64_t *order, int64_t candidates, int64_t most, float iou)
{
    int64_t chosen = 0;
    for (int64_t k = 0; k < candidates && chosen < most; k++) {
        bool keep = true;
        for (int64_t j = 0; j < chosen && keep; j++)
            keep = !overlaps(&boxes[order[k]], &boxes[order[j]], iou);
        if (keep)
            order[chosen++] = order[k];
    }
    return chosen;
}

static gantry_status nms_run(const void *opaque, const cpu_call *call)
{
    const nms_state *state = opaque;
    int64_t most = state->has_most ? cpu_load_int(state->most_dtype, call->inputs[2], 0) : 0;
    float iou = state->has_iou ? *(const float *)call->inputs[3] : 0;
    float least = state->has_score ? *(const float *)call->inputs[4] : 0;
    int64_t *order = call->scratch, *buffer = order + state->boxes, *out = call->outputs[0], written = 0;
    box *corners = (box *)(buffer + state->boxes);
    for (int64_t batch = 0; batch < state->batches; batch++) {
        for (int64_t k = 0; k < state->boxes; k++)
            corners[k] =
                read_box((const float *)call->inputs[0] + (batch * state->boxes + k) * 4, state->center);
        for (int64_t class_index = 0; class_index < state->classes; class_index++) {
            const float *scores =
                (const float *)call->inputs[1] + (batch * state->classes + class_index) * state->boxes;
            int64_t candidates = 0;
            for (int64_t k = 0; k < state->boxes; k++)
                if (!state->has_score || scores[k] > least)
                    order[candidates++] = k;
            sort_candidates(scores, order, buffer, candidates);
            int64_t chosen = suppress(corners, order, candidates, most, iou);
            for (int64_t k = 0; k < chosen && written < state->limit; k++, written++) {
                out[3 * written] = batch;
                out[3 * written + 1] = class_index;
                out[3 * written + 2] = order[k];
            }
            if (gantry_stop_asked(call->stop))
                return GANTRY_CANCELLED;
        }
    }
    if (call->true_dims && call->true_dims[0]) {
        call->true_dims[0][0] = written;
        call->true_dims[0][1] = 3;
    }
    return GANTRY_OK;
}

gantry_status cpu_make_nms(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *boxes = &build->inputs[0], *scores = &build->inputs[1], *most = cpu_input(build, 2);
    nms_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 || boxes->dims[1] != scores->dims[2] ||
        boxes->dims[0] != scores->dims[0])
        return cpu_unsupported(build, "needs boxes [batches, boxes, 4] and scores [batches, classes, boxes]");
    *state = (nms_state){.batches = boxes->dims[0],
                         .classes = scores->dims[1],
                         .boxes = boxes->dims[1],
                         .limit = build->outputs[0].dims[0],
                         .center = gantry_node_int(build->node, "center_point_box", 0) != 0,
                         .has_most = most != NULL,
                         .has_iou = cpu_input(build, 3) != NULL,
                         .has_score = cpu_input(build, 4) != NULL,
                         .most_dtype = most ? most->dtype : GANTRY_UNDEFINED};
    *out_kernel = cpu_kernel_of(nms_run, state);
    out_kernel->scratch_bytes = (size_t)state->boxes * (2 * sizeof(int64_t) + sizeof(box));
    return GANTRY_OK;
}
