/* What the format files of tools/io share: whole files in memory, errors that name the file, size arithmetic.
 */
#ifndef GT_TOOLS_IO_H
#define GT_TOOLS_IO_H

#include "base/status.h"
#include "tensor_io.h"

#include <gantry/gantry.h>

/* Bytes of a file or of a part of one. */
typedef struct io_bytes {
    unsigned char *data;
    size_t size;
} io_bytes;

/* Fills *err for stage run; the message starts with the path. */
void io_fail_fill(gantry_error *err, gantry_status code, const char *path, const char *format, ...)
    GANTRY_PRINTF(4, 5);
#define io_fail(err, code, path, ...) (io_fail_fill((err), (code), (path), __VA_ARGS__), gt_failed(code))

/* The whole of a regular file; freed with free(out_bytes->data). */
gantry_status io_file_read(const char *path, io_bytes *out_bytes, gantry_error *err);
/* Writes beside path and renames, so that a reader never sees half a file. */
gantry_status io_file_write(const char *path, const io_bytes *parts, uint32_t count, gantry_error *err);

/* Appends and takes over *tensor. */
gantry_status io_tensors_push(io_tensors *tensors, io_tensor *tensor, gantry_error *err);
/* Frees the last tensors until count are left. */
void io_tensors_cut(io_tensors *tensors, uint32_t count);

/* The tensor that the bytes of a .npy file hold; label (a path, or a path and a member) begins every message.
 */
gantry_status io_npy_parse(const char *label, const char *name, io_bytes npy, io_tensor *out_tensor,
                           gantry_error *err);
#define IO_NPY_HEADER_BYTES 1024
/* The header of a .npy file for this tensor; its data follows as it is. *inout_size: capacity in, length out.
 */
gantry_status io_npy_header(const char *label, const io_tensor *tensor, unsigned char *out_header,
                            size_t *inout_size, gantry_error *err);

static inline bool io_ends_with(const char *text, const char *ending)
{
    size_t text_length = strlen(text), length = strlen(ending);
    return text_length > length && strcmp(text + text_length - length, ending) == 0;
}

/* Little-endian numbers of 2, 4 or 8 bytes at any address. */
static inline uint64_t io_le(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static inline void io_put_le(unsigned char *bytes, uint64_t value, int count)
{
    for (int i = 0; i < count; i++, value >>= 8)
        bytes[i] = (unsigned char)value;
}

#endif
