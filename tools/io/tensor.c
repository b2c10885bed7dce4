/* Tensors in memory and whole files: what every format of tools/io stands on. */
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Vector loads of the kernels then never cross a cache line at the start of a row. */
#define DATA_ALIGNMENT 64u

void io_fail_fill(gantry_error *err, gantry_status code, const char *path, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gt_fail_fill(err, code, GANTRY_STAGE_RUN, NULL, "%s: %s", path, text);
}

/* Bytes of a dense tensor; false when it does not fit the address space. */
static bool dense_bytes(gantry_dtype dtype, uint32_t rank, const int64_t *dims, size_t *out_bytes)
{
    uint64_t count = 1;
    bool empty = false;
    for (uint32_t k = 0; k < rank; k++)
        empty |= dims[k] == 0;
    for (uint32_t k = 0; k < rank && !empty; k++)
        if (__builtin_mul_overflow(count, (uint64_t)dims[k], &count))
            return false;
    /* Half the address space leaves room for the arithmetic of callers; 128 bits is the widest element. */
    if (count > SIZE_MAX / 2 / 16)
        return false;
    *out_bytes = empty ? 0 : gantry_dtype_bytes(dtype, count);
    return true;
}

gantry_status io_tensor_create(const char *name, gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                               io_tensor *out_tensor, gantry_error *err)
{
    const char *label = name && *name ? name : "tensor";
    *out_tensor = (io_tensor){0};
    if (rank > GANTRY_MAX_RANK)
        return io_fail(err, GANTRY_DATA, label, "rank %u is above the limit %d", rank, GANTRY_MAX_RANK);
    for (uint32_t k = 0; k < rank; k++)
        if (dims[k] < 0)
            return io_fail(err, GANTRY_DATA, label, "extent %lld of axis %u is negative", (long long)dims[k],
                           k);
    if (!gantry_dtype_bits(dtype))
        return io_fail(err, GANTRY_UNSUPPORTED, label, "element type %d (%s) has no fixed size", (int)dtype,
                       gantry_dtype_text(dtype));
    io_tensor tensor = {.dtype = dtype, .rank = rank};
    if (!dense_bytes(dtype, rank, dims, &tensor.size_bytes))
        return io_fail(err, GANTRY_DATA, label, "the product of its extents does not fit in memory");
    if (rank)
        memcpy(tensor.dims, dims, rank * sizeof *dims);
    tensor.name = strdup(name ? name : "");
    size_t padded = (tensor.size_bytes + DATA_ALIGNMENT) & ~(size_t)(DATA_ALIGNMENT - 1);
    tensor.data = aligned_alloc(DATA_ALIGNMENT, padded);
    if (!tensor.name || !tensor.data) {
        io_tensor_free(&tensor);
        return io_fail(err, GANTRY_RESOURCE, label, "out of memory (%zu bytes)", padded);
    }
    memset(tensor.data, 0, padded);
    *out_tensor = tensor;
    return GANTRY_OK;
}

void io_tensor_free(io_tensor *tensor)
{
    if (!tensor)
        return;
    free(tensor->name);
    free(tensor->data);
    *tensor = (io_tensor){0};
}

void io_tensors_cut(io_tensors *tensors, uint32_t count)
{
    while (tensors->count > count)
        io_tensor_free(&tensors->items[--tensors->count]);
}

void io_tensors_free(io_tensors *tensors)
{
    if (!tensors)
        return;
    io_tensors_cut(tensors, 0);
    free(tensors->items);
    *tensors = (io_tensors){0};
}

gantry_status io_tensors_push(io_tensors *tensors, io_tensor *tensor, gantry_error *err)
{
    if (tensors->count == tensors->capacity) {
        uint32_t capacity = tensors->capacity ? tensors->capacity * 2 : 8;
        io_tensor *items = realloc(tensors->items, capacity * sizeof *items);
        if (!items)
            return gt_out_of_memory(err, GANTRY_STAGE_RUN);
        tensors->items = items;
        tensors->capacity = capacity;
    }
    tensors->items[tensors->count++] = *tensor;
    *tensor = (io_tensor){0};
    return GANTRY_OK;
}

const io_tensor *io_tensors_find(const io_tensors *tensors, const char *name)
{
    for (uint32_t i = 0; i < tensors->count; i++)
        if (strcmp(tensors->items[i].name, name) == 0)
            return &tensors->items[i];
    return NULL;
}

void io_tensor_view(const io_tensor *tensor, gantry_tensor *out_view)
{
    *out_view = (gantry_tensor){.struct_bytes = sizeof *out_view,
                                .dtype = tensor->dtype,
                                .rank = tensor->rank,
                                .dims = tensor->dims,
                                .buffer = {tensor->data, 0},
                                .size_bytes = tensor->size_bytes};
}

void io_tensor_borrow(const char *name, const gantry_tensor *view, io_tensor *out_tensor)
{
    *out_tensor = (io_tensor){.name = (char *)(uintptr_t)name,
                              .dtype = view->dtype,
                              .rank = view->rank,
                              .data = (char *)view->buffer.handle + view->buffer.offset_bytes};
    uint64_t count = 1;
    for (uint32_t k = 0; k < view->rank && k < GANTRY_MAX_RANK; k++) {
        out_tensor->dims[k] = view->dims[k];
        count *= (uint64_t)view->dims[k];
    }
    out_tensor->size_bytes = gantry_dtype_bytes(view->dtype, count);
}

gantry_status io_file_read(const char *path, io_bytes *out_bytes, gantry_error *err)
{
    *out_bytes = (io_bytes){0};
    io_bytes bytes = {0};
    struct stat info;
    gantry_status status = GANTRY_OK;
    /* Without O_NONBLOCK, opening a named pipe that nobody writes to waits for ever. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return io_fail(err, GANTRY_DATA, path, "cannot be opened: %s", strerror(errno));
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = io_fail(err, GANTRY_DATA, path, "is no regular file");
        goto fail;
    }
    bytes.data = malloc((size_t)info.st_size + 1);
    if (!bytes.data) {
        status = io_fail(err, GANTRY_RESOURCE, path, "out of memory (%lld bytes)", (long long)info.st_size);
        goto fail;
    }
    while (bytes.size < (size_t)info.st_size) {
        ssize_t got = read(file, bytes.data + bytes.size, (size_t)info.st_size - bytes.size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            status = io_fail(err, GANTRY_DATA, path, "ends after %zu of %lld bytes: %s", bytes.size,
                             (long long)info.st_size, got ? strerror(errno) : "it became shorter");
            goto fail;
        }
        bytes.size += (size_t)got;
    }
    close(file);
    *out_bytes = bytes;
    return GANTRY_OK;
fail:
    free(bytes.data);
    close(file);
    return status;
}

static bool write_all(int file, io_bytes bytes)
{
    for (size_t done = 0; done < bytes.size;) {
        ssize_t put = write(file, bytes.data + done, bytes.size - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

gantry_status io_file_write(const char *path, const io_bytes *parts, uint32_t count, gantry_error *err)
{
    char scratch[4096];
    int length = snprintf(scratch, sizeof scratch, "%s.%ld.part", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof scratch)
        return io_fail(err, GANTRY_INVALID_ARGUMENT, path, "the path is longer than %zu bytes",
                       sizeof scratch - 32);
    int file = open(scratch, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return io_fail(err, GANTRY_DATA, path, "cannot be written: %s", strerror(errno));
    bool good = true;
    for (uint32_t i = 0; i < count && good; i++)
        good = write_all(file, parts[i]);
    int problem = good ? 0 : errno;
    if (close(file) != 0 && good) {
        good = false;
        problem = errno;
    }
    if (good && rename(scratch, path) == 0)
        return GANTRY_OK;
    if (good)
        problem = errno;
    unlink(scratch);
    return io_fail(err, GANTRY_DATA, path, "cannot be written: %s", strerror(problem));
}

static gantry_status read_one(gantry_status (*read)(const char *, io_tensor *, gantry_error *),
                              const char *path, io_tensors *inout_tensors, gantry_error *err)
{
    io_tensor tensor;
    GT_TRY(read(path, &tensor, err));
    gantry_status status = io_tensors_push(inout_tensors, &tensor, err);
    io_tensor_free(&tensor);
    return status;
}

gantry_status io_read(const char *path, io_tensors *inout_tensors, gantry_error *err)
{
    if (io_ends_with(path, ".npz"))
        return io_npz_read(path, inout_tensors, err);
    if (io_ends_with(path, ".npy"))
        return read_one(io_npy_read, path, inout_tensors, err);
    if (io_ends_with(path, ".pb"))
        return read_one(io_pb_read, path, inout_tensors, err);
    return io_fail(err, GANTRY_INVALID_ARGUMENT, path, "ends in none of .npz, .npy, .pb (pictures: --image)");
}
