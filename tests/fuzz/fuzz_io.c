/* Bytes as a tensor file of the command line: .npy, .npz, .pb or a picture, by the first byte. What was read
 * is written and read again, and must be the same. */
#include "fuzz_tape.h"

#include "tools/io/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATH_BYTES 64

/* A file in memory with these bytes; its path goes to out_path. */
static int make_file(const uint8_t *data, size_t size, char *out_path)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(out_path, PATH_BYTES, "/proc/self/fd/%d", fd);
    return fd;
}

static void expect(gantry_status status, const gantry_error *err)
{
    if (status != GANTRY_OK && (err->code != status || !err->message[0]))
        __builtin_trap();
}

static bool same(const io_tensor *a, const io_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->size_bytes == b->size_bytes &&
           memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0 &&
           memcmp(a->data, b->data, a->size_bytes) == 0;
}

/* The header that is written for a tensor is one that is read as the same. */
static void round_trip(const io_tensor *tensor)
{
    unsigned char header[IO_NPY_HEADER_BYTES];
    size_t size = sizeof header;
    gantry_error err = GANTRY_ERROR_INIT;
    if (io_npy_header("again", tensor, header, &size, &err) != GANTRY_OK)
        return;
    unsigned char *bytes = malloc(size + tensor->size_bytes);
    io_tensor again;
    if (!bytes)
        abort();
    memcpy(bytes, header, size);
    memcpy(bytes + size, tensor->data, tensor->size_bytes);
    if (io_npy_parse("again", tensor->name, (io_bytes){bytes, size + tensor->size_bytes}, &again, &err) !=
            GANTRY_OK ||
        !same(tensor, &again))
        __builtin_trap();
    io_tensor_free(&again);
    free(bytes);
}

static void read_one(gantry_status (*read)(const char *, io_tensor *, gantry_error *), const char *path)
{
    io_tensor tensor;
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_status status = read(path, &tensor, &err);
    expect(status, &err);
    if (status != GANTRY_OK)
        return;
    round_trip(&tensor);
    io_tensor_free(&tensor);
}

static void read_many(const char *path)
{
    io_tensors tensors = {0};
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_status status = io_npz_read(path, &tensors, &err);
    expect(status, &err);
    if (status != GANTRY_OK && tensors.count)
        __builtin_trap(); /* the list is as it was */
    for (uint32_t k = 0; k < tensors.count; k++)
        round_trip(&tensors.items[k]);
    io_tensors_free(&tensors);
}

static void read_image(const char *path, uint8_t how)
{
    static const char *const rests[] = {
        "size=4x4,mean=0.5,std=0.5,order=NCHW-RGB", "size=3x5,mean=0:0:0,std=1:1:1,order=NHWC-BGR",
        "size=1x1,mean=0,std=1,order=NCHW-GRAY", "size=64x2,mean=0,std=0,order=NHWC-RGB"};
    char spec[256];
    io_tensor tensor;
    gantry_error err = GANTRY_ERROR_INIT;
    snprintf(spec, sizeof spec, "x=%s,%s", path, rests[how % 4]);
    gantry_status status = io_image_read(spec, &tensor, &err);
    expect(status, &err);
    if (status == GANTRY_OK)
        io_tensor_free(&tensor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH_BYTES];
    if (size == 0)
        return 0;
    int fd = make_file(data + 1, size - 1, path);
    switch (data[0] % 4) {
    case 0:
        read_one(io_npy_read, path);
        break;
    case 1:
        read_many(path);
        break;
    case 2:
        read_one(io_pb_read, path);
        break;
    default:
        read_image(path, data[0] / 4);
    }
    close(fd);
    return 0;
}
