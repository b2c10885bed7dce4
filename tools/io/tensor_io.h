/* Tensors in files, for the command line: .npy and .npz of numpy, .pb of ONNX (TensorProto), and PNG or JPEG
 * pictures.
 *
 * Everything is checked: a broken file gives GANTRY_DATA with the file, the value and the limit; an element
 * type that a format cannot hold gives GANTRY_UNSUPPORTED. One thread at a time for each tensor; no global
 * state. */
#ifndef GT_TOOLS_TENSOR_IO_H
#define GT_TOOLS_TENSOR_IO_H

#include <gantry/types.h>

/* A dense row-major tensor. Owns name and data unless it was made by io_tensor_borrow. data is aligned to 64
 * bytes and never NULL, also when the tensor has no elements. Zero is an empty one. */
typedef struct io_tensor {
    char *name; /* "" where the file gives none */
    gantry_dtype dtype;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    void *data;
    size_t size_bytes;
} io_tensor;

typedef struct io_tensors {
    io_tensor *items;
    uint32_t count, capacity;
} io_tensors;

/* Zeroed elements under a copy of name (NULL: ""). Fails with GANTRY_DATA for a negative extent, a rank above
 * GANTRY_MAX_RANK or a size beyond memory, GANTRY_RESOURCE when out of memory. */
gantry_status io_tensor_create(const char *name, gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                               io_tensor *out_tensor, gantry_error *err);
void io_tensor_free(io_tensor *tensor);
void io_tensors_free(io_tensors *tensors);
/* The tensor of that name, or NULL. */
const io_tensor *io_tensors_find(const io_tensors *tensors, const char *name);

/* The tensor as the session API wants it (*out_view points into *tensor), and the way back: *out_tensor
 * shares name and memory with its arguments and must not be freed. */
void io_tensor_view(const io_tensor *tensor, gantry_tensor *out_view);
void io_tensor_borrow(const char *name, const gantry_tensor *view, io_tensor *out_tensor);

/* By the end of the file's name: .npz any number of tensors, .npy and .pb one. What is read is appended to
 * *inout_tensors; on failure that list is as it was. Another ending is GANTRY_INVALID_ARGUMENT. */
gantry_status io_read(const char *path, io_tensors *inout_tensors, gantry_error *err);

/* Little endian, C or Fortran order, format versions 1 to 3; f16 f32 f64, i8-i64, u8-u64, bool, complex. */
gantry_status io_npy_read(const char *path, io_tensor *out_tensor, gantry_error *err);
gantry_status io_npy_write(const char *path, const io_tensor *tensor, gantry_error *err);

/* Stored or deflated members, zip64 when reading. Writing is refused beyond 4 GiB. */
gantry_status io_npz_read(const char *path, io_tensors *inout_tensors, gantry_error *err);
gantry_status io_npz_write(const char *path, const io_tensor *tensors, uint32_t count, bool deflate,
                           gantry_error *err);

/* TensorProto with raw_data or the typed fields; every element type but strings. */
gantry_status io_pb_read(const char *path, io_tensor *out_tensor, gantry_error *err);
gantry_status io_pb_write(const char *path, const io_tensor *tensor, gantry_error *err);

/* A picture as a float32 tensor of batch 1. spec is
 *
 *     NAME=FILE,size=WxH,mean=M[:M:M],std=S[:S:S],order=NCHW-RGB
 *
 * and every key must be there, because a guessed one gives wrong numbers silently. The layout is NCHW or
 * NHWC, the channels RGB, BGR or GRAY; one mean (std) serves all channels, several are in the order of the
 * tensor's channels. The picture is scaled to W x H (bilinear, half-pixel centres, no smoothing when it
 * shrinks; transparency over white) and each value is (byte / 255 - mean) / std. */
gantry_status io_image_read(const char *spec, io_tensor *out_tensor, gantry_error *err);

#endif
