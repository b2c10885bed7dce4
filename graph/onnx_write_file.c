/* The files of a written model: made under other names in the same folder, and renamed when they are whole.
 */
#include "onnx_write_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ATTEMPTS 100u

/* A file on its way: fd < 0 and part NULL when there is none. */
typedef struct new_file {
    char *path, *part; /* where it goes, what it is called until then */
    int fd;
} new_file;

static gantry_status fail_file(gantry_error *err, const char *what, const char *path)
{
    return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_LOAD, NULL, "cannot %s '%.900s': %s", what, path,
                   strerror(errno));
}

/* ---- checks ---------------------------------------------------------------------------------- */

static gantry_status check_name(const char *name, gantry_error *err)
{
    if (name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
        return GANTRY_OK;
    return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                   "external data goes into a file beside the model: '%.500s' must be a file name without a "
                   "folder",
                   name);
}

/* What is being read must stay as it is, for the reader and for the next attempt. */
static gantry_status check_target(const gt_model *model, const char *path, gantry_error *err)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return GANTRY_OK;
    if (!S_ISREG(about.st_mode))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "'%.900s' is there and is no regular file", path);
    for (uint32_t k = 0; k < model->files.count; k++) {
        const gt_file *file = &model->files.data[k];
        if (file->fd >= 0 && file->device == (uint64_t)about.st_dev && file->inode == (uint64_t)about.st_ino)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                           "'%.900s' is a file that the model is read from; give another name", path);
    }
    return GANTRY_OK;
}

/* ---- one file -------------------------------------------------------------------------------- */

static char *beside(gt_allocator *allocator, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0, bytes = folder + strlen(name) + 1;
    char *joined = gt_alloc(allocator, bytes);
    if (joined)
        snprintf(joined, bytes, "%.*s%s", (int)folder, path, name);
    return joined;
}

static gantry_status open_part(gt_allocator *allocator, new_file *file, gantry_error *err)
{
    size_t room = file->path ? strlen(file->path) + 64 : 0;
    file->part = room ? gt_alloc(allocator, room) : NULL;
    if (!file->part)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < MAX_ATTEMPTS; k++) {
        snprintf(file->part, room, "%s.part-%ld-%u", file->path, (long)getpid(), k);
        file->fd = open(file->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0)
            return GANTRY_OK;
        if (errno != EEXIST)
            break;
    }
    gantry_status status = fail_file(err, "create", file->part);
    file->part[0] = 0; /* not ours to remove */
    return status;
}

static gantry_status put_into(void *self, const void *bytes, size_t count, gantry_error *err)
{
    const new_file *file = self;
    while (count) {
        ssize_t done = write(file->fd, bytes, count);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return fail_file(err, "write", file->path);
        bytes = (const char *)bytes + done;
        count -= (size_t)done;
    }
    return GANTRY_OK;
}

static gantry_status finish_file(new_file *file, gantry_error *err)
{
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0)
        return fail_file(err, "write", file->path);
    if (rename(file->part, file->path) != 0)
        return fail_file(err, "rename the new file to", file->path);
    file->part[0] = 0;
    return GANTRY_OK;
}

static void drop_file(gt_allocator *allocator, new_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->part && file->part[0])
        unlink(file->part);
    gt_free(allocator, file->part);
    gt_free(allocator, file->path);
}

/* ---- both ------------------------------------------------------------------------------------ */

static gantry_status check_and_open(gt_model *model, new_file *file, gantry_error *err)
{
    if (!file->path)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    GT_TRY(check_target(model, file->path, err));
    return open_part(model->allocator, file, err);
}

/* The data goes into its place first: a model is never there without it. */
static gantry_status write_both(gt_model *model, const gt_write_options *options, new_file *file,
                                new_file *external, gt_write_result *out_result, gantry_error *err)
{
    gt_write_sink to_file = {file, put_into}, to_external = {external, put_into};
    if (options->external_name) {
        GT_TRY(check_name(options->external_name, err));
        if (external->path && strcmp(external->path, file->path) == 0)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                           "'%.900s' cannot be the model and its external data", file->path);
        GT_TRY(check_and_open(model, external, err));
    }
    GT_TRY(check_and_open(model, file, err));
    GT_TRY(gt_onnx_write(model, options, &to_file, options->external_name ? &to_external : NULL, out_result,
                         err));
    if (external->part && out_result->external_bytes)
        GT_TRY(finish_file(external, err));
    return finish_file(file, err);
}

gantry_status gt_onnx_write_file(gt_model *model, const char *path, const gt_write_options *options,
                                 gt_write_result *out_result, gantry_error *err)
{
    gt_allocator *allocator = model->allocator;
    new_file file = {.fd = -1}, external = {.fd = -1};
    *out_result = (gt_write_result){0};
    file.path = beside(allocator, "", path);
    if (options->external_name)
        external.path = beside(allocator, path, options->external_name);
    gantry_status status = file.path ? write_both(model, options, &file, &external, out_result, err)
                                     : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    drop_file(allocator, &external);
    drop_file(allocator, &file);
    return status;
}
