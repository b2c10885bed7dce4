/* External data: which file beside the model a tensor names, and that it lies inside the model's folder and
 * is long enough.
 *
 * The rule: a location is relative to the folder of the model, is written with '/', and every step of it,
 * links included, stays inside that folder. ".." inside it is fine. Only regular files are opened. */
#include "onnx_read.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPEN_FLAGS                                                                                           \
    (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) /* not to wait for the writer of a named pipe */

typedef struct location {
    const char *path;
    bool has_length;
    uint64_t offset, length;
} location;

/* ---- what the tensor says -------------------------------------------------------------------- */

static gantry_status read_number(gt_reader *reader, const char *name, const char *key, gt_bytes text,
                                 uint64_t *out_number)
{
    *out_number = 0;
    bool valid = text.len > 0;
    for (size_t k = 0; valid && k < text.len; k++)
        valid = text.data[k] >= '0' && text.data[k] <= '9' &&
                !__builtin_mul_overflow(*out_number, 10u, out_number) &&
                !__builtin_add_overflow(*out_number, (uint64_t)(text.data[k] - '0'), out_number);
    if (valid)
        return GANTRY_OK;
    return GT_READ_FAIL(
        reader, GANTRY_DATA, NULL,
        "the external data of tensor '%.500s' has %s '%s', which is not a number from 0 to 2^64 - 1", name,
        key, gt_read_show(reader, text));
}

static gantry_status read_location(gt_reader *reader, const GtOnnx__Tensor *proto, const char *name,
                                   location *out)
{
    gt_bytes path = {0};
    *out = (location){0};
    for (size_t k = 0; k < proto->n_external_data; k++) {
        const GtOnnx__StringStringEntry *entry = proto->external_data[k];
        if (gt_bytes_are(entry->key, "location"))
            path = entry->value;
        if (gt_bytes_are(entry->key, "offset"))
            GT_TRY(read_number(reader, name, "offset", entry->value, &out->offset));
        if (gt_bytes_are(entry->key, "length")) {
            GT_TRY(read_number(reader, name, "length", entry->value, &out->length));
            out->has_length = true;
        }
    }
    const char *wrong = path.len == 0                    ? "has no location or an empty one"
                        : memchr(path.data, 0, path.len) ? "has a location with a NUL in it"
                        : path.len >= PATH_MAX           ? "has a location that is too long"
                        : path.data[0] == '/'            ? "has an absolute location, which is not followed"
                        : memchr(path.data, '\\', path.len)
                            ? "has a location with '\\'; ONNX separates folders by '/'"
                            : NULL;
    if (wrong)
        return GT_READ_FAIL(reader, GANTRY_DATA, NULL, "the external data of tensor '%.500s' %s: '%s'", name,
                            wrong, gt_read_show(reader, path));
    out->path = gt_arena_text(&reader->temp, (const char *)path.data, path.len);
    return out->path ? GANTRY_OK : gt_read_no_memory(reader);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* For kernels before 5.6 and sandboxes that know no openat2: the same rule by name, without its certainty
 * against somebody who swaps links at this moment. */
static int open_by_name(const gt_reader *reader, const char *path)
{
    char joined[2 * PATH_MAX], resolved[PATH_MAX];
    size_t base_length = strlen(reader->base);
    snprintf(joined, sizeof joined, "%s/%s", reader->base, path);
    if (!realpath(joined, resolved))
        return -1;
    bool inside = strncmp(resolved, reader->base, base_length) == 0 &&
                  (resolved[base_length] == '/' || resolved[base_length] == 0 || base_length == 1);
    if (!inside) {
        errno = EXDEV;
        return -1;
    }
    return open(resolved, OPEN_FLAGS | O_NOFOLLOW);
}

static int open_beneath(const gt_reader *reader, const char *path)
{
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int fd;
    do
        fd = (int)syscall(SYS_openat2, reader->base_fd, path, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        return open_by_name(reader, path);
    return fd;
}

static gantry_status fail_open(gt_reader *reader, const char *name, const char *path, int error)
{
    if (error == EXDEV || error == ELOOP)
        return GT_READ_FAIL(
            reader, GANTRY_DATA, NULL,
            "the external data of tensor '%.500s' is at '%.500s', which leads outside of the model's "
            "folder '%.500s': not followed",
            name, path, reader->base);
    return GT_READ_FAIL(reader, GANTRY_DATA, NULL,
                        "cannot open '%.500s/%.500s' for the external data of tensor '%.500s': %s",
                        reader->base, path, name, strerror(error));
}

static gantry_status add_file(gt_reader *reader, int fd, const char *name, const char *path,
                              uint32_t *out_file)
{
    char resolved[2 * PATH_MAX], message[1024];
    snprintf(resolved, sizeof resolved, "%s/%s", reader->base, path);
    gantry_status status = gt_model_add_file(reader->model, fd, resolved, out_file, reader->err);
    if (status != GANTRY_DATA || !reader->err)
        return status;
    snprintf(message, sizeof message, "%.1000s", reader->err->message);
    return GT_READ_FAIL(reader, status, NULL, "external data of tensor '%.500s': %s", name, message);
}

static gantry_status find_file(gt_reader *reader, const char *name, const char *path, uint32_t *out_file)
{
    *out_file = gt_map_get(&reader->external_files, path, strlen(path), GT_NONE);
    if (*out_file != GT_NONE)
        return GANTRY_OK;
    if (!reader->base)
        return GT_READ_FAIL(
            reader, GANTRY_DATA, NULL,
            "tensor '%.500s' has its data in file '%.500s', but a model from memory has no folder to "
            "find it in: set the option 'base' to its base directory",
            name, path);
    int fd = open_beneath(reader, path);
    if (fd < 0)
        return fail_open(reader, name, path, errno);
    GT_TRY(add_file(reader, fd, name, path, out_file));
    return gt_map_set(&reader->external_files, path, strlen(path), *out_file) ? GANTRY_OK
                                                                              : gt_read_no_memory(reader);
}

/* ---- entry ----------------------------------------------------------------------------------- */

static gantry_status check_range(gt_reader *reader, const gt_constant *c, const location *where)
{
    const gt_file *file = &reader->model->files.data[c->file];
    bool begins_inside = where->offset <= file->bytes;
    uint64_t length = where->has_length ? where->length : begins_inside ? file->bytes - where->offset : 0;
    if (begins_inside && where->has_length && length > file->bytes - where->offset)
        begins_inside = false;
    if (!begins_inside)
        return GT_READ_FAIL(
            reader, GANTRY_DATA, NULL,
            "tensor '%.500s' needs %zu bytes at offset %llu (length %llu) of '%.800s', which has %llu bytes",
            c->name, c->bytes, (unsigned long long)where->offset,
            (unsigned long long)(where->has_length ? where->length : c->bytes), file->path,
            (unsigned long long)file->bytes);
    if (length == c->bytes)
        return GANTRY_OK;
    return GT_READ_FAIL(
        reader, GANTRY_DATA, NULL,
        "tensor '%.500s' needs %zu bytes for its shape, but its external data in '%.800s' (offset %llu) "
        "has %llu",
        c->name, c->bytes, file->path, (unsigned long long)where->offset, (unsigned long long)length);
}

gantry_status gt_read_external(gt_reader *reader, const GtOnnx__Tensor *proto, gt_constant *constant)
{
    location where;
    GT_TRY(read_location(reader, proto, constant->name, &where));
    GT_TRY(find_file(reader, constant->name, where.path, &constant->file));
    GT_TRY(check_range(reader, constant, &where));
    constant->origin = GT_CONSTANT_FILE;
    constant->offset = where.offset;
    return GANTRY_OK;
}
