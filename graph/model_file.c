/* The files that constants lie in: opened once, mapped while a session is created, and left alone afterwards.
 */
#include "graph_internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t mtime_ns(const struct stat *s)
{
    return (uint64_t)s->st_mtim.tv_sec * 1000000000u + (uint64_t)s->st_mtim.tv_nsec;
}

gantry_status gt_model_add_file(gt_model *model, int fd, const char *path, uint32_t *out_file,
                                gantry_error *err)
{
    *out_file = GT_NONE;
    gantry_status status = GANTRY_OK;
    struct stat s;
    const char *copy = gt_arena_text(&model->arena, path, strlen(path));
    if (fstat(fd, &s) != 0)
        status = gt_fail(err, GANTRY_DATA, GANTRY_STAGE_LOAD, NULL, "cannot examine file '%s': %s", path,
                         strerror(errno));
    else if (!S_ISREG(s.st_mode))
        status =
            gt_fail(err, GANTRY_DATA, GANTRY_STAGE_LOAD, NULL,
                    "'%s' is not a regular file (a folder, pipe or device cannot hold a model's data)", path);
    else if (!copy)
        status = gt_graph_no_memory(err);
    if (status == GANTRY_OK) {
        gt_file file = {.path = copy,
                        .fd = fd,
                        .bytes = (uint64_t)s.st_size,
                        .device = (uint64_t)s.st_dev,
                        .inode = (uint64_t)s.st_ino,
                        .mtime_ns = mtime_ns(&s)};
        *out_file = model->files.count;
        if (gt_vec_push(model->allocator, &model->files, file))
            return GANTRY_OK;
        status = gt_graph_no_memory(err);
    }
    close(fd);
    return status;
}

static bool is_unchanged(const gt_file *file)
{
    struct stat s;
    return fstat(file->fd, &s) == 0 && (uint64_t)s.st_size == file->bytes && mtime_ns(&s) == file->mtime_ns;
}

gantry_status gt_model_map_file(gt_model *model, uint32_t index, gantry_error *err)
{
    gt_file *file = &model->files.data[index];
    if (file->map || file->bytes == 0)
        return GANTRY_OK;
    if (file->fd < 0)
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_LOAD, NULL,
                       "the model was read from memory that may be gone by now: its constants cannot be read "
                       "again");
    if (!is_unchanged(file))
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_LOAD, NULL,
                       "file '%s' was changed after the model was read: load the model again", file->path);
    void *map = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (map == MAP_FAILED)
        return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_LOAD, NULL, "cannot map %llu bytes of '%s': %s",
                       (unsigned long long)file->bytes, file->path, strerror(errno));
    file->map = map;
    file->mapped = true;
    return GANTRY_OK;
}

static void unmap_file(gt_file *file)
{
    if (file->mapped)
        munmap((void *)(uintptr_t)file->map, file->bytes);
    file->map = NULL;
    file->mapped = false;
}

void gt_model_close_files(gt_model *model)
{
    for (uint32_t k = 0; k < model->files.count; k++) {
        unmap_file(&model->files.data[k]);
        if (model->files.data[k].fd >= 0)
            close(model->files.data[k].fd);
    }
    model->files.count = 0;
}

gantry_status gt_constant_data(gt_model *model, uint32_t index, const void **out_data, gantry_error *err)
{
    *out_data = NULL;
    gt_constant *constant = &model->constants.data[index];
    if (!constant->data && constant->origin == GT_CONSTANT_FILE) {
        GT_TRY(gt_model_map_file(model, constant->file, err));
        const gt_file *file = &model->files.data[constant->file];
        if (constant->offset > file->bytes || constant->bytes > file->bytes - constant->offset)
            return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_LOAD, NULL,
                           "constant '%s' wants %zu bytes at offset %llu of '%s', which has %llu bytes",
                           constant->name, constant->bytes, (unsigned long long)constant->offset, file->path,
                           (unsigned long long)file->bytes);
        constant->data = file->map ? file->map + constant->offset : NULL;
    }
    *out_data = constant->data;
    return GANTRY_OK;
}

/* ---- owning what is needed ----------------------------------------------------------------------------- */

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

static gantry_status own_constant(gt_model *model, uint32_t index, bool wanted, gantry_error *err)
{
    gt_constant *constant = &model->constants.data[index];
    if (constant->origin != GT_CONSTANT_FILE)
        return GANTRY_OK;
    const gt_file *file = &model->files.data[constant->file];
    const uint8_t *data = constant->data;
    bool lies_in_map = !data || (file->map && data >= file->map && data <= file->map + file->bytes);
    if (!lies_in_map)
        return GANTRY_OK;
    if (wanted) {
        const void *bytes;
        GT_TRY(gt_constant_data(model, index, &bytes, err));
        constant->data = gt_arena_copy(&model->arena, bytes, constant->bytes);
        return constant->data ? GANTRY_OK : gt_graph_no_memory(err);
    }
    constant->data = NULL;
    return GANTRY_OK;
}

gantry_status gt_model_own_constants(gt_model *model, const uint8_t *packed, gantry_error *err)
{
    uint8_t *used = gt_alloc_array(model->allocator, model->constants.count, 1);
    gantry_status status = used ? GANTRY_OK : gt_graph_no_memory(err);
    if (status == GANTRY_OK && model->root)
        status = mark_used(model->root, used, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < model->constants.count; k++)
        status = own_constant(model, k, used[k] && !(packed && packed[k]), err);
    for (uint32_t k = 0; status == GANTRY_OK && k < model->files.count; k++)
        unmap_file(&model->files.data[k]);
    gt_free(model->allocator, used);
    return status;
}
