/* The bytes of constants: in memory, in a mapped file, or scaled on demand; who needs a copy of them when the
 * files go. */
#include "graph_internal.h"

#include "base/clones.h"

#include <float.h>
#include <math.h>
#include <sys/mman.h>

#define PAGE_BYTES ((uintptr_t)4096)

/* ---- scaled and widened constants ------------------------------------------------------------ */

/* The largest magnitude among elements that need not be aligned, as its bits: those of NaN and infinity are
 * above those of every number. */
static GT_CLONES uint32_t largest_bits(const char *from, uint64_t count)
{
    uint32_t largest = 0;
    for (uint64_t k = 0; k < count; k++) {
        uint32_t bits;
        memcpy(&bits, from + 4 * k, 4);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static GT_CLONES void scale_run(const char *from, char *to, uint64_t count, double factor)
{
    for (uint64_t k = 0; k < count; k++) {
        float element;
        memcpy(&element, from + 4 * k, 4);
        element = (float)(element * factor);
        memcpy(to + 4 * k, &element, 4);
    }
}

static double factor_of(const gt_scaling *s, uint64_t row, uint64_t channel)
{
    return s->factor[row / s->rows_of_group * s->channels_of_row + channel];
}

static void scale_all(const gt_scaling *s, const char *from, char *to)
{
    for (uint64_t row = 0; row < s->rows; row++)
        for (uint64_t c = 0; c < s->channels_of_row; c++) {
            uint64_t first = (row * s->channels_of_row + c) * s->inner;
            scale_run(from + 4 * first, to + 4 * first, s->inner, factor_of(s, row, c));
        }
}

static bool all_finite(const gt_scaling *s, const char *from)
{
    bool finite = true;
    for (uint64_t row = 0; row < s->rows; row++)
        for (uint64_t c = 0; c < s->channels_of_row; c++) {
            uint32_t bits = largest_bits(from + 4 * (row * s->channels_of_row + c) * s->inner, s->inner);
            float largest;
            memcpy(&largest, &bits, 4);
            finite &= isfinite((float)(largest * factor_of(s, row, c))) != 0;
        }
    return finite;
}

/* Like its base, with its bytes yet to be computed. */
static gt_constant made_from(const gt_model *model, const char *name, const gt_scaling *scaling)
{
    gt_constant constant = model->constants.data[scaling->base];
    constant.name = name;
    constant.origin = GT_CONSTANT_SCALED;
    constant.scaling = scaling;
    constant.sparse = NULL;
    constant.data = NULL;
    constant.maps = 0;
    return constant;
}

gantry_status gt_model_add_scaled(gt_model *model, const char *name, const gt_scaling *scaling,
                                  uint32_t *out_constant, bool *out_finite, gantry_error *err)
{
    uint64_t channels = scaling->rows / scaling->rows_of_group * scaling->channels_of_row;
    gt_scaling *kept = gt_arena_copy(&model->arena, scaling, sizeof *scaling);
    const double *factor = gt_arena_copy(&model->arena, scaling->factor, channels * sizeof *factor);
    const void *from;
    if (!kept || !factor)
        return gt_graph_no_memory(err);
    kept->factor = factor;
    GT_TRY(gt_constant_map(model, scaling->base, &from, err));
    *out_finite = all_finite(kept, from);
    gt_constant_unmap(model, scaling->base);
    gt_constant constant = made_from(model, name, kept);
    return gt_model_add_constant(model, &constant, out_constant, err);
}

/* float16 has 5 bits of exponent with a bias of 15 and 10 of fraction; float32 8, 127 and 23. Multiplying by
 * 2^(127-15) moves the bias, of subnormal numbers too. */
static GT_CLONES void widen_half(const char *from, char *to, uint64_t count)
{
    for (uint64_t k = 0; k < count; k++) {
        uint16_t half;
        memcpy(&half, from + 2 * k, 2);
        uint32_t bits = (uint32_t)(half & 0x7fff) << 13, moved;
        float element;
        memcpy(&element, &bits, 4);
        element *= 0x1p112f;
        memcpy(&moved, &element, 4);
        moved = bits >= 0x7c00u << 13 ? bits | 0x7f800000u : moved;
        moved |= (uint32_t)(half & 0x8000) << 16;
        memcpy(to + 4 * k, &moved, 4);
    }
}

static GT_CLONES void widen_brain(const char *from, char *to, uint64_t count)
{
    for (uint64_t k = 0; k < count; k++) {
        uint16_t brain;
        memcpy(&brain, from + 2 * k, 2);
        uint32_t bits = (uint32_t)brain << 16;
        memcpy(to + 4 * k, &bits, 4);
    }
}

gantry_status gt_model_add_widened(gt_model *model, const char *name, uint32_t base, uint32_t *out_constant,
                                   gantry_error *err)
{
    gt_scaling *kept = GT_ARENA_NEW(&model->arena, gt_scaling);
    if (!kept)
        return gt_graph_no_memory(err);
    kept->base = base;
    gt_constant constant = made_from(model, name, kept);
    constant.dtype = GANTRY_FLOAT32;
    constant.bytes *= 2;
    return gt_model_add_constant(model, &constant, out_constant, err);
}

static void make_from(const gt_model *model, const gt_constant *constant, const char *from, char *to)
{
    const gt_scaling *scaling = constant->scaling;
    if (scaling->factor)
        scale_all(scaling, from, to);
    else if (model->constants.data[scaling->base].dtype == GANTRY_FLOAT16)
        widen_half(from, to, constant->bytes / 4);
    else
        widen_brain(from, to, constant->bytes / 4);
}

static gantry_status make_scaled(gt_model *model, uint32_t index, gantry_error *err)
{
    const gt_scaling *scaling = model->constants.data[index].scaling;
    const void *from;
    char *to = gt_alloc(model->allocator, model->constants.data[index].bytes);
    if (!to)
        return gt_graph_no_memory(err);
    gantry_status status = gt_constant_map(model, scaling->base, &from, err);
    if (status == GANTRY_OK) {
        make_from(model, &model->constants.data[index], from, to);
        gt_constant_unmap(model, scaling->base);
        model->constants.data[index].data = to;
    } else {
        gt_free(model->allocator, to);
    }
    return status;
}

static void drop_scaled(gt_model *model, gt_constant *constant)
{
    if (constant->origin != GT_CONSTANT_SCALED)
        return;
    gt_free(model->allocator, (void *)(uintptr_t)constant->data);
    constant->data = NULL;
}

void gt_model_drop_scaled(gt_model *model)
{
    for (uint32_t k = 0; k < model->constants.count; k++)
        drop_scaled(model, &model->constants.data[k]);
}

/* ---- reading --------------------------------------------------------------------------------- */

static gantry_status find_in_file(gt_model *model, gt_constant *constant, gantry_error *err)
{
    GT_TRY(gt_model_map_file(model, constant->file, err));
    const gt_file *file = &model->files.data[constant->file];
    if (constant->offset > file->bytes || constant->bytes > file->bytes - constant->offset)
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_LOAD, NULL,
                       "constant '%s' wants %zu bytes at offset %llu of '%s', which has %llu bytes",
                       constant->name, constant->bytes, (unsigned long long)constant->offset, file->path,
                       (unsigned long long)file->bytes);
    constant->data = file->map ? file->map + constant->offset : NULL;
    return GANTRY_OK;
}

gantry_status gt_constant_data(gt_model *model, uint32_t index, const void **out_data, gantry_error *err)
{
    *out_data = NULL;
    gt_constant *constant = &model->constants.data[index];
    if (!constant->data && constant->origin == GT_CONSTANT_FILE)
        GT_TRY(find_in_file(model, constant, err));
    if (!constant->data && constant->origin == GT_CONSTANT_SCALED)
        GT_TRY(make_scaled(model, index, err));
    *out_data = model->constants.data[index].data;
    return GANTRY_OK;
}

static bool lies_in_map(const gt_model *model, const gt_constant *constant)
{
    if (constant->origin != GT_CONSTANT_FILE || !constant->data)
        return false;
    const gt_file *file = &model->files.data[constant->file];
    const uint8_t *data = constant->data;
    return file->map && data >= file->map && data <= file->map + file->bytes;
}

gantry_status gt_constant_map(gt_model *model, uint32_t index, const void **out_data, gantry_error *err)
{
    GT_TRY(gt_constant_data(model, index, out_data, err));
    model->constants.data[index].maps++;
    return GANTRY_OK;
}

/* Pages of a file count as the process's memory until they are given back; a neighbour's page that goes too
 * is only read again. */
static void give_back_pages(const gt_model *model, const gt_constant *constant)
{
    if (!lies_in_map(model, constant) || !model->files.data[constant->file].mapped ||
        constant->bytes <= GT_CONSTANT_COPY_BYTES)
        return;
    uintptr_t begin = (uintptr_t)constant->data & ~(PAGE_BYTES - 1);
    (void)madvise((void *)begin, (uintptr_t)constant->data + constant->bytes - begin, MADV_DONTNEED);
}

void gt_constant_unmap(gt_model *model, uint32_t index)
{
    gt_constant *constant = &model->constants.data[index];
    if (constant->maps == 0 || --constant->maps > 0)
        return;
    give_back_pages(model, constant);
    drop_scaled(model, constant);
}

/* ---- owning what is needed ------------------------------------------------------------------- */

static gantry_status mark_used(gt_graph *graph, uint8_t *used, gantry_error *err)
{
    for (uint32_t k = 0; k < graph->values.count; k++) {
        const gt_value *value = graph->values.data[k];
        if (value->constant == GT_NONE || used[value->constant])
            continue;
        const gt_use *uses;
        uint32_t count;
        GT_TRY(gt_graph_uses(graph, k, &uses, &count, err));
        used[value->constant] = count > 0;
    }
    for (uint32_t k = 0; k < graph->nodes.count; k++) {
        const gt_node *node = graph->nodes.data[k];
        if (node->removed)
            continue;
        for (uint32_t j = 0; j < node->body_count; j++)
            GT_TRY(mark_used(node->bodies[j].graph, used, err));
        if (node->composite)
            GT_TRY(mark_used(node->composite, used, err));
    }
    return GANTRY_OK;
}

/* What a scaled constant is made of comes before it in the list. */
static void mark_bases(const gt_model *model, uint8_t *used)
{
    for (uint32_t k = model->constants.count; k-- > 0;)
        if (used[k] && model->constants.data[k].origin == GT_CONSTANT_SCALED)
            used[model->constants.data[k].scaling->base] = 1;
}

gantry_status gt_model_count_constants(gt_model *model, uint64_t *out_bytes, uint32_t *out_largest,
                                       gantry_error *err)
{
    *out_bytes = 0;
    *out_largest = GT_NONE;
    uint8_t *used = gt_alloc_array(model->allocator, model->constants.count + 1, 1);
    gantry_status status = used ? GANTRY_OK : gt_graph_no_memory(err);
    if (status == GANTRY_OK && model->root)
        status = mark_used(model->root, used, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < model->constants.count; k++) {
        const gt_constant *constant = &model->constants.data[k];
        if (!used[k])
            continue;
        *out_bytes += constant->bytes;
        if (*out_largest == GT_NONE || constant->bytes > model->constants.data[*out_largest].bytes)
            *out_largest = k;
    }
    gt_free(model->allocator, used);
    return status;
}

uint64_t gt_model_held_bytes(const gt_model *model)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < model->constants.count; k++) {
        const gt_constant *constant = &model->constants.data[k];
        if (constant->data && !lies_in_map(model, constant))
            bytes += constant->bytes;
    }
    return bytes;
}

static gantry_status own_constant(gt_model *model, uint32_t index, bool wanted, gantry_error *err)
{
    gt_constant *constant = &model->constants.data[index];
    const void *bytes;
    if (constant->origin == GT_CONSTANT_SCALED) {
        if (wanted)
            return gt_constant_data(model, index, &bytes, err);
        if (!constant->maps)
            drop_scaled(model, constant);
        return GANTRY_OK;
    }
    if (constant->origin != GT_CONSTANT_FILE || (constant->data && !lies_in_map(model, constant)))
        return GANTRY_OK;
    if (wanted) {
        GT_TRY(gt_constant_data(model, index, &bytes, err));
        constant->data = gt_arena_copy(&model->arena, bytes, constant->bytes);
        return constant->data ? GANTRY_OK : gt_graph_no_memory(err);
    }
    constant->data = NULL;
    return GANTRY_OK;
}

gantry_status gt_constant_own(gt_model *model, uint32_t constant, gantry_error *err)
{
    const void *bytes;
    if (model->constants.data[constant].origin == GT_CONSTANT_SCALED)
        return gt_constant_map(model, constant, &bytes, err);
    return own_constant(model, constant, true, err);
}

gantry_status gt_model_own_constants(gt_model *model, const uint8_t *packed, gantry_error *err)
{
    uint8_t *used = gt_alloc_array(model->allocator, model->constants.count, 1);
    gantry_status status = used ? GANTRY_OK : gt_graph_no_memory(err);
    if (status == GANTRY_OK && model->root)
        status = mark_used(model->root, used, err);
    if (status == GANTRY_OK)
        mark_bases(model, used);
    /* From the end: a scaled constant that is wanted is made while what it is made of can be read. */
    for (uint32_t k = model->constants.count; status == GANTRY_OK && k-- > 0;)
        status = own_constant(model, k, used[k] && !(packed && packed[k]), err);
    for (uint32_t k = 0; status == GANTRY_OK && k < model->files.count; k++)
        gt_model_unmap_file(model, k);
    gt_free(model->allocator, used);
    return status;
}
