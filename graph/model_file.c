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

void gt_model_unmap_file(gt_model *model, uint32_t index)
{
    gt_file *file = &model->files.data[index];
    if (file->mapped)
        munmap((void *)(uintptr_t)file->map, file->bytes);
    file->map = NULL;
    file->mapped = false;
}

void gt_model_close_files(gt_model *model)
{
    for (uint32_t k = 0; k < model->files.count; k++) {
        gt_model_unmap_file(model, k);
        if (model->files.data[k].fd >= 0)
            close(model->files.data[k].fd);
    }
    model->files.count = 0;
}
