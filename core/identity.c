/* What tells constants of several sessions apart: the file they lie in and where, without reading them; what
 * a rewrite made of such a one, by the rewrite's numbers; any other by its bytes.
 *
 * A file is known by device, inode, size, times and the constant's place in it. One that was written a moment
 * ago could be written again without a new time, so its constants are known by their bytes, too. */
#include "host_parts.h"

#include "graph/graph.h"

#include <sys/stat.h>
#include <time.h>

/* Times of files are as coarse as a second or two on some file systems. */
#define SURE_AFTER_NS 2000000000u

static uint64_t time_ns(struct timespec time)
{
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* ---- by place -------------------------------------------------------------------------------- */

/* What names a constant of a file; every byte is set. */
typedef struct file_place {
    uint64_t device, inode, bytes, modified_ns, changed_ns;
    uint64_t offset, length;
} file_place;

/* *out_sure: the file is old enough for that. Fails when it is another one by now. */
static gantry_status place_in_file(const gt_model *model, const gt_constant *constant,
                                   XXH128_hash_t *out_hash, bool *out_sure, gantry_error *err)
{
    const gt_file *file = &model->files.data[constant->file];
    struct stat s;
    struct timespec now;
    *out_sure = false;
    if (file->fd < 0)
        return GANTRY_OK;
    if (fstat(file->fd, &s) != 0 || (uint64_t)s.st_size != file->bytes ||
        time_ns(s.st_mtim) != file->mtime_ns)
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_COMPILE, NULL,
                       "file '%s' was changed after the model was read: load the model again", file->path);
    file_place place = {file->device,       file->inode,      file->bytes,    file->mtime_ns,
                        time_ns(s.st_ctim), constant->offset, constant->bytes};
    uint64_t last = place.modified_ns > place.changed_ns ? place.modified_ns : place.changed_ns;
    clock_gettime(CLOCK_REALTIME, &now);
    *out_sure = time_ns(now) > last && time_ns(now) - last > SURE_AFTER_NS;
    *out_hash = XXH3_128bits(&place, sizeof place);
    return GANTRY_OK;
}

static gantry_status place_of(const gt_model *model, const gt_constant *constant, XXH128_hash_t *out_hash,
                              bool *out_sure, gantry_error *err);

static gantry_status place_of_scaled(const gt_model *model, const gt_constant *constant,
                                     XXH128_hash_t *out_hash, bool *out_sure, gantry_error *err)
{
    const gt_scaling *scaling = constant->scaling;
    const gt_constant *base = &model->constants.data[scaling->base];
    XXH128_hash_t base_hash;
    GT_TRY(place_of(model, base, &base_hash, out_sure, err));
    if (!*out_sure)
        return GANTRY_OK;
    XXH3_state_t state;
    uint64_t numbers[] = {base_hash.low64,        base_hash.high64,         (uint64_t)base->dtype,
                          constant->bytes,        scaling->factor != NULL,  scaling->rows,
                          scaling->rows_of_group, scaling->channels_of_row, scaling->inner};
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, numbers, sizeof numbers);
    if (scaling->factor)
        XXH3_128bits_update(&state, scaling->factor,
                            scaling->rows / scaling->rows_of_group * scaling->channels_of_row *
                                sizeof *scaling->factor);
    *out_hash = XXH3_128bits_digest(&state);
    return GANTRY_OK;
}

/* *out_sure: *out_hash names the constant. */
static gantry_status place_of(const gt_model *model, const gt_constant *constant, XXH128_hash_t *out_hash,
                              bool *out_sure, gantry_error *err)
{
    *out_sure = false;
    if (constant->origin == GT_CONSTANT_FILE)
        return place_in_file(model, constant, out_hash, out_sure, err);
    if (constant->origin == GT_CONSTANT_SCALED)
        return place_of_scaled(model, constant, out_hash, out_sure, err);
    return GANTRY_OK;
}

/* ---- by content ------------------------------------------------------------------------------ */

/* Texts with their ends: an array of pointers says nothing about what it holds. */
static XXH128_hash_t hash_texts(const char *const *texts, size_t count)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t k = 0; k < count; k++)
        XXH3_128bits_update(&state, texts[k], strlen(texts[k]) + 1);
    return XXH3_128bits_digest(&state);
}

static void keep_hash(gantry_runtime *runtime, gt_constant *constant, XXH128_hash_t hash)
{
    pthread_mutex_lock(&runtime->constants_lock);
    constant->hash[0] = hash.low64;
    constant->hash[1] = hash.high64;
    constant->hashed = true;
    pthread_mutex_unlock(&runtime->constants_lock);
}

static bool take_kept(gantry_runtime *runtime, const gt_constant *constant, gt_identity *identity)
{
    pthread_mutex_lock(&runtime->constants_lock);
    identity->has_content = constant->hashed;
    identity->content[0] = constant->hash[0];
    identity->content[1] = constant->hash[1];
    pthread_mutex_unlock(&runtime->constants_lock);
    return identity->has_content;
}

gantry_status gt_identity_add_content(const gantry_host *host, gantry_constants *constants,
                                      uint32_t constant_id, gt_identity *inout_identity, gantry_error *err)
{
    gantry_runtime *runtime = gt_host_runtime(host);
    const void *data;
    size_t bytes;
    gt_constant *constant = &((gt_model *)constants)->constants.data[constant_id];
    if (take_kept(runtime, constant, inout_identity))
        return GANTRY_OK;
    GT_TRY(gt_host_constant_map(host, constants, constant_id, &data, &bytes, err));
    keep_hash(runtime, constant,
              constant->dtype == GANTRY_STRING ? hash_texts(data, bytes / sizeof(char *))
                                               : XXH3_128bits(data, bytes));
    gt_host_constant_unmap(host, constants, constant_id);
    (void)take_kept(runtime, constant, inout_identity);
    return GANTRY_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

gantry_status gt_identity_make(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                               gt_identity *out_identity, gantry_error *err)
{
    const gt_model *model = (const gt_model *)constants;
    XXH128_hash_t hash = {0};
    *out_identity = (gt_identity){0};
    if (!model || constant_id >= model->constants.count)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                       "constant %u was asked for; the session has %u", constant_id,
                       model ? model->constants.count : 0);
    const gt_constant *constant = &model->constants.data[constant_id];
    GT_TRY(place_of(model, constant, &hash, &out_identity->has_place, err));
    out_identity->place[0] = hash.low64;
    out_identity->place[1] = hash.high64;
    if (!out_identity->has_place)
        return gt_identity_add_content(host, constants, constant_id, out_identity, err);
    (void)take_kept(gt_host_runtime(host), constant, out_identity);
    return GANTRY_OK;
}

bool gt_identity_equal(const gt_identity *a, const gt_identity *b)
{
    bool placed = a->has_place && b->has_place && memcmp(a->place, b->place, sizeof a->place) == 0;
    bool same = a->has_content && b->has_content && memcmp(a->content, b->content, sizeof a->content) == 0;
    return placed || same;
}
