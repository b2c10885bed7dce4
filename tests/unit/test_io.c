/* The file formats of the command line against files that numpy, onnx and Pillow wrote
 * (tests/data/io/make.py). */
#include "../support/test_folder.h"
#include "providers/cpu/half.h"
#include "tools/io/tensor_io.h"

#include <criterion/criterion.h>
#include <gantry/gantry.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA GANTRY_TEST_DATA "/io/"

TestSuite(io, .init = test_folder_open, .fini = test_folder_close, .timeout = 60);

static void assert_ok(gantry_status status, const gantry_error *err)
{
    cr_assert_eq(status, GANTRY_OK, "%s: %s", gantry_status_text(status), err->message);
}

/* The element as a number; the real part of a complex one. */
static double element(const io_tensor *t, uint64_t k)
{
    switch (t->dtype) {
    case GANTRY_FLOAT16:
        return (double)cpu_f16_to_f32(((const uint16_t *)t->data)[k]);
    case GANTRY_FLOAT32:
        return ((const float *)t->data)[k];
    case GANTRY_COMPLEX64:
        return ((const float *)t->data)[2 * k];
    case GANTRY_FLOAT64:
        return ((const double *)t->data)[k];
    case GANTRY_COMPLEX128:
        return ((const double *)t->data)[2 * k];
    case GANTRY_INT8:
        return ((const int8_t *)t->data)[k];
    case GANTRY_INT16:
        return ((const int16_t *)t->data)[k];
    case GANTRY_INT32:
        return ((const int32_t *)t->data)[k];
    case GANTRY_INT64:
        return (double)((const int64_t *)t->data)[k];
    case GANTRY_UINT8:
    case GANTRY_BOOL:
        return ((const uint8_t *)t->data)[k];
    case GANTRY_UINT16:
        return ((const uint16_t *)t->data)[k];
    case GANTRY_UINT32:
        return ((const uint32_t *)t->data)[k];
    case GANTRY_UINT64:
        return (double)((const uint64_t *)t->data)[k];
    default:
        return NAN;
    }
}

/* Element k as make.py wrote it. */
static double written(gantry_dtype dtype, uint64_t k)
{
    bool is_unsigned =
        dtype == GANTRY_UINT8 || dtype == GANTRY_UINT16 || dtype == GANTRY_UINT32 || dtype == GANTRY_UINT64;
    return dtype == GANTRY_BOOL ? (double)(k % 2) : is_unsigned ? 3.0 * (double)k : 3.0 * (double)k - 4;
}

static void assert_numbers(const io_tensor *t, uint32_t rank, const int64_t *dims)
{
    cr_assert_eq(t->rank, rank, "%s: rank %u", t->name, t->rank);
    uint64_t count = 1;
    for (uint32_t k = 0; k < rank; k++) {
        cr_assert_eq(t->dims[k], dims[k], "%s: axis %u has %lld", t->name, k, (long long)t->dims[k]);
        count *= (uint64_t)dims[k];
    }
    cr_assert_eq(t->size_bytes, gantry_dtype_bytes(t->dtype, count));
    cr_assert_eq((uintptr_t)t->data % 64, 0u);
    for (uint64_t k = 0; k < count; k++)
        cr_assert_eq(element(t, k), written(t->dtype, k), "%s: element %llu is %g", t->name,
                     (unsigned long long)k, element(t, k));
}

static void assert_all_arrays(const char *path)
{
    static const struct {
        const char *name;
        gantry_dtype dtype;
    } arrays[] = {
        {"all/f2", GANTRY_FLOAT16}, {"all/f4", GANTRY_FLOAT32},    {"all/f8", GANTRY_FLOAT64},
        {"all/i1", GANTRY_INT8},    {"all/i2", GANTRY_INT16},      {"all/i4", GANTRY_INT32},
        {"all/i8", GANTRY_INT64},   {"all/u1", GANTRY_UINT8},      {"all/u2", GANTRY_UINT16},
        {"all/u4", GANTRY_UINT32},  {"all/u8", GANTRY_UINT64},     {"all/c8", GANTRY_COMPLEX64},
        {"all/b1", GANTRY_BOOL},    {"fortran:0", GANTRY_FLOAT32}, {"all/c16", GANTRY_COMPLEX128},
    };
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensors tensors = {0};
    assert_ok(io_read(path, &tensors, &err), &err);
    cr_assert_eq(tensors.count, 17u);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        const io_tensor *t = io_tensors_find(&tensors, arrays[i].name);
        cr_assert_not_null(t, "%s is missing", arrays[i].name);
        cr_assert_eq(t->dtype, arrays[i].dtype, "%s has type %d", t->name, (int)t->dtype);
        bool is_fortran = strcmp(t->name, "fortran:0") == 0;
        assert_numbers(t, is_fortran ? 3 : 2, is_fortran ? (int64_t[]){2, 3, 4} : (int64_t[]){2, 3});
    }
    assert_numbers(io_tensors_find(&tensors, "scalar"), 0, NULL);
    const io_tensor *empty = io_tensors_find(&tensors, "empty");
    assert_numbers(empty, 2, (int64_t[]){0, 3});
    cr_assert_not_null(empty->data);
    io_tensors_free(&tensors);
    cr_assert_null(tensors.items);
}

Test(io, npz_of_numpy)
{
    assert_all_arrays(DATA "stored.npz");
    assert_all_arrays(DATA "deflated.npz");
}

Test(io, npz_written_is_read_again)
{
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensors tensors = {0};
    assert_ok(io_npz_read(DATA "stored.npz", &tensors, &err), &err);
    assert_ok(io_npz_write(inside("stored.npz"), tensors.items, tensors.count, false, &err), &err);
    assert_all_arrays(inside("stored.npz"));
    assert_ok(io_npz_write(inside("deflated.npz"), tensors.items, tensors.count, true, &err), &err);
    assert_all_arrays(inside("deflated.npz"));
    assert_ok(io_npz_write(inside("none.npz"), NULL, 0, false, &err), &err);
    io_tensors none = {0};
    assert_ok(io_npz_read(inside("none.npz"), &none, &err), &err);
    cr_assert_eq(none.count, 0u);
    io_tensors_free(&tensors);
}

Test(io, numpy_reads_what_is_written)
{
    if (system("python3 -c 'import numpy' 2>/dev/null") != 0)
        cr_skip_test("no numpy");
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensors tensors = {0};
    assert_ok(io_npz_read(DATA "stored.npz", &tensors, &err), &err);
    assert_ok(io_npz_write(inside("out.npz"), tensors.items, tensors.count, true, &err), &err);
    char command[512];
    snprintf(command, sizeof command,
             "python3 -c \"import numpy as n; a=n.load('%s'); b=n.load('%s'); assert a.files == b.files and "
             "all(a[k].dtype == b[k].dtype and n.array_equal(a[k], b[k]) for k in b.files)\"",
             inside("out.npz"), DATA "stored.npz");
    cr_assert_eq(system(command), 0);
    io_tensors_free(&tensors);
}

Test(io, npy_versions_and_round_trip)
{
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensor t;
    const char *files[] = {DATA "v1.npy", DATA "v2.npy", DATA "v3.npy"};
    for (int i = 0; i < 3; i++) {
        assert_ok(io_npy_read(files[i], &t, &err), &err);
        assert_numbers(&t, 2, (int64_t[]){2, 3});
        assert_ok(io_npy_write(inside("again.npy"), &t, &err), &err);
        io_tensor_free(&t);
        assert_ok(io_npy_read(inside("again.npy"), &t, &err), &err);
        assert_numbers(&t, 2, (int64_t[]){2, 3});
        io_tensor_free(&t);
    }
}

static void assert_refused(gantry_status expected, const char *path, const char *mention)
{
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensors tensors = {0};
    gantry_status status = io_read(path, &tensors, &err);
    cr_assert_eq(status, expected, "%s: %s", gantry_status_text(status), err.message);
    cr_assert_eq(tensors.count, 0u);
    cr_assert_not_null(strstr(err.message, mention), "\"%s\" does not mention \"%s\"", err.message, mention);
    cr_assert_not_null(strstr(err.message, path), "\"%s\" does not name the file", err.message);
    io_tensors_free(&tensors);
}

Test(io, what_is_refused_and_why)
{
    assert_refused(GANTRY_UNSUPPORTED, DATA "big_endian.npy", "big-endian");
    assert_refused(GANTRY_UNSUPPORTED, DATA "record.npy", "records");
    assert_refused(GANTRY_DATA, DATA "rank17.npy", "limit 16");
    assert_refused(GANTRY_DATA, DATA "overflow.npy", "too short");
    assert_refused(GANTRY_UNSUPPORTED, DATA "text.pb", "text");
    assert_refused(GANTRY_UNSUPPORTED, DATA "outside.pb", "another file");
    assert_refused(GANTRY_DATA, DATA "both.pb", "at once");
    assert_refused(GANTRY_DATA, DATA "absent.npz", "cannot be opened");
    assert_refused(GANTRY_INVALID_ARGUMENT, DATA "make.py", ".npz");
    cr_assert_eq(mkfifo(inside("pipe.npy"), 0600), 0);
    assert_refused(GANTRY_DATA, inside("pipe.npy"), "no regular file");
}

Test(io, types_that_a_format_lacks)
{
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensor t;
    assert_ok(io_tensor_create("b", GANTRY_BFLOAT16, 1, (int64_t[]){3}, &t, &err), &err);
    cr_assert_eq(io_npy_write(inside("b.npy"), &t, &err), GANTRY_UNSUPPORTED);
    cr_assert_eq(io_npz_write(inside("b.npz"), &t, 1, true, &err), GANTRY_UNSUPPORTED);
    cr_assert_not_null(strstr(err.message, "bfloat16"));
    cr_assert_neq(access(inside("b.npz"), F_OK), 0);
    io_tensor_free(&t);
    cr_assert_eq(io_tensor_create("s", GANTRY_STRING, 0, NULL, &t, &err), GANTRY_UNSUPPORTED);
    cr_assert_eq(io_tensor_create("n", GANTRY_FLOAT32, 1, (int64_t[]){-1}, &t, &err), GANTRY_DATA);
    cr_assert_eq(io_tensor_create("h", GANTRY_FLOAT32, 2, (int64_t[]){1ll << 40, 1ll << 40}, &t, &err),
                 GANTRY_DATA);
    cr_assert_eq(io_npy_write("/no/such/folder/a.npy", &(io_tensor){.name = "", .dtype = GANTRY_INT8}, &err),
                 GANTRY_DATA);
}

static const struct {
    const char *name;
    gantry_dtype dtype;
} protos[] = {
    {"float", GANTRY_FLOAT32},
    {"double", GANTRY_FLOAT64},
    {"int8", GANTRY_INT8},
    {"int16", GANTRY_INT16},
    {"int32", GANTRY_INT32},
    {"int64", GANTRY_INT64},
    {"uint8", GANTRY_UINT8},
    {"uint16", GANTRY_UINT16},
    {"uint32", GANTRY_UINT32},
    {"uint64", GANTRY_UINT64},
    {"bool", GANTRY_BOOL},
    {"float16", GANTRY_FLOAT16},
    {"bfloat16", GANTRY_BFLOAT16},
    {"float8e4m3fn", GANTRY_FLOAT8E4M3FN},
    {"float8e5m2", GANTRY_FLOAT8E5M2},
    {"int4", GANTRY_INT4},
    {"uint4", GANTRY_UINT4},
    {"complex64", GANTRY_COMPLEX64},
    {"complex128", GANTRY_COMPLEX128},
};

static void assert_same(const io_tensor *a, const io_tensor *b)
{
    cr_assert_str_eq(a->name, b->name);
    cr_assert_eq(a->dtype, b->dtype);
    cr_assert_eq(a->rank, b->rank);
    cr_assert_eq(memcmp(a->dims, b->dims, sizeof a->dims), 0);
    cr_assert_eq(a->size_bytes, b->size_bytes);
    cr_assert_eq(memcmp(a->data, b->data, a->size_bytes), 0, "%s: bytes differ", a->name);
}

Test(io, tensor_proto_typed_equals_raw)
{
    for (size_t i = 0; i < sizeof protos / sizeof *protos; i++) {
        gantry_error err = GANTRY_ERROR_INIT;
        io_tensor values, raw, again;
        char path[256];
        snprintf(path, sizeof path, DATA "%s_typed.pb", protos[i].name);
        assert_ok(io_pb_read(path, &values, &err), &err);
        snprintf(path, sizeof path, DATA "%s_raw.pb", protos[i].name);
        assert_ok(io_pb_read(path, &raw, &err), &err);
        cr_assert_eq(raw.dtype, protos[i].dtype);
        cr_assert_str_eq(raw.name, protos[i].name);
        assert_same(&values, &raw);
        if (!isnan(element(&raw, 0)))
            assert_numbers(&raw, 1, (int64_t[]){5});
        assert_ok(io_pb_write(inside("again.pb"), &raw, &err), &err);
        assert_ok(io_pb_read(inside("again.pb"), &again, &err), &err);
        assert_same(&raw, &again);
        io_tensor_free(&values);
        io_tensor_free(&raw);
        io_tensor_free(&again);
    }
}

Test(io, borrowed_tensors_share_memory)
{
    float data[6] = {0, 1, 2, 3, 4, 5};
    int64_t dims[] = {2, 2};
    gantry_tensor view = {.struct_bytes = sizeof view,
                          .dtype = GANTRY_FLOAT32,
                          .rank = 2,
                          .dims = dims,
                          .buffer = {data, 2 * sizeof(float)},
                          .size_bytes = sizeof data};
    io_tensor borrowed;
    io_tensor_borrow("y", &view, &borrowed);
    cr_assert_eq(borrowed.data, (void *)(data + 2));
    cr_assert_eq(borrowed.size_bytes, 16u); /* the shape's bytes, not the capacity */
    gantry_tensor back;
    io_tensor_view(&borrowed, &back);
    cr_assert_eq(back.buffer.handle, (void *)(data + 2));
    cr_assert_eq(back.dims[1], 2);
    cr_assert_eq(back.struct_bytes, sizeof back);
}

/* Reads SPEC and compares with an array of pictures.npz. */
static void assert_picture(const char *spec, const char *expected, float tolerance)
{
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensors references = {0};
    io_tensor t;
    assert_ok(io_npz_read(DATA "pictures.npz", &references, &err), &err);
    const io_tensor *reference = io_tensors_find(&references, expected);
    cr_assert_not_null(reference);
    assert_ok(io_image_read(spec, &t, &err), &err);
    cr_assert_str_eq(t.name, "x");
    cr_assert_eq(t.dtype, GANTRY_FLOAT32);
    cr_assert_eq(t.rank, 4u);
    cr_assert_eq(memcmp(t.dims, reference->dims, sizeof t.dims), 0, "%s: another shape", spec);
    for (uint64_t k = 0; k < t.size_bytes / sizeof(float); k++)
        cr_assert(fabs(element(&t, k) - element(reference, k)) <= tolerance,
                  "%s: element %llu is %g, expected %g", spec, (unsigned long long)k, element(&t, k),
                  element(reference, k));
    io_tensor_free(&t);
    io_tensors_free(&references);
}

#define PLAIN ",mean=0,std=1,order=NCHW-RGB"
#define NORMAL ",mean=0.5:0.25:0.125,std=0.5:2:0.25,order="

Test(io, pictures)
{
    assert_picture("x=" DATA "rgb.png,size=10x7" PLAIN, "native", 1e-6f);
    assert_picture("x=" DATA "rgba.png,size=10x7" PLAIN, "white", 1e-6f);
    assert_picture("x=" DATA "gray.png,size=10x7" PLAIN, "gray", 1e-6f);
    assert_picture("x=" DATA "rgb.png,size=10x7,order=NCHW-GRAY,std=1,mean=0", "luma", 1e-5f);
    assert_picture("x=" DATA "rgb.png,size=23x9" NORMAL "NCHW-RGB", "larger", 1e-5f);
    assert_picture("x=" DATA "rgb.png,size=4x3" NORMAL "NHWC-RGB", "smaller", 1e-5f);
    assert_picture("x=" DATA "rgb.png,size=10x7" NORMAL "NCHW-BGR", "bgr", 1e-5f);
    /* JPEG decoders may round an inverse transform differently by one step. */
    assert_picture("x=" DATA "rgb.jpg,size=10x7" PLAIN, "jpeg", 2.1f / 255);
}

static void assert_bad_picture(gantry_status expected, const char *spec, const char *mention)
{
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensor t;
    gantry_status status = io_image_read(spec, &t, &err);
    cr_assert_eq(status, expected, "%s: %s", spec, err.message);
    cr_assert_null(t.data);
    cr_assert_not_null(strstr(err.message, mention), "\"%s\" does not mention \"%s\"", err.message, mention);
}

Test(io, nothing_about_a_picture_is_guessed)
{
#define REFUSE(spec, mention) assert_bad_picture(GANTRY_INVALID_ARGUMENT, spec, mention)
    REFUSE("", "NAME=FILE");
    REFUSE("=", "NAME=FILE");
    REFUSE("x=a.png", "missing: size mean std order");
    REFUSE("x=a.png,mean=0,std=1,order=NCHW-RGB", "missing: size");
    REFUSE("x=a.png,size=4x4,std=1,order=NCHW-RGB", "missing: mean");
    REFUSE("x=a.png,size=4x4,mean=0,order=NCHW-RGB", "missing: std");
    REFUSE("x=a.png,size=4x4,mean=0,std=1", "missing: order");
    REFUSE("x=a.png,size=4x4,size=4x4,mean=0,std=1,order=NCHW-RGB", "twice");
    REFUSE("x=a.png,scale=2,size=4x4,mean=0,std=1,order=NCHW-RGB", "unknown");
    REFUSE("x=a.png,size=0x4" PLAIN, "size=0x4");
    REFUSE("x=a.png,size=-4x4" PLAIN, "size=-4x4");
    REFUSE("x=a.png,size=4x4z" PLAIN, "size=4x4z");
    REFUSE("x=a.png,size=60000x60000" PLAIN, "size=");
    REFUSE("x=a.png,size=4x4,mean=0:0,std=1,order=NCHW-RGB", "3 channels");
    REFUSE("x=a.png,size=4x4,mean=0,std=1:1:1,order=NCHW-GRAY", "1 channels");
    REFUSE("x=a.png,size=4x4,mean=0,std=0,order=NCHW-RGB", "std is 0");
    REFUSE("x=a.png,size=4x4,mean=nan,std=1,order=NCHW-RGB", "mean=nan");
    REFUSE("x=a.png,size=4x4,mean=0:,std=1,order=NCHW-RGB", "mean=0:");
    REFUSE("x=a.png,size=4x4,mean=1:2:3:4,std=1,order=NCHW-RGB", "mean=1:2:3:4");
    REFUSE("x=a.png,size=4x4,mean=0,std=1,order=RGB", "order=RGB");
    assert_bad_picture(GANTRY_DATA, "x=" DATA "make.py,size=4x4" PLAIN, "neither a PNG nor a JPEG");
    assert_bad_picture(GANTRY_DATA, "x=" DATA "absent.png,size=4x4" PLAIN, "cannot be opened");
    assert_bad_picture(GANTRY_UNSUPPORTED, "x=" DATA "cmyk.jpg,size=4x4" PLAIN, "CMYK");
}

/* ---- broken files: every one-byte change and every cut of a good file must end in a status --- */

static size_t read_bytes(const char *path, unsigned char *out_bytes, size_t capacity)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    size_t count = fread(out_bytes, 1, capacity, f);
    cr_assert(count > 0 && count < capacity);
    fclose(f);
    return count;
}

static gantry_status read_any(const char *path, gantry_error *err)
{
    io_tensors tensors = {0};
    size_t length = strlen(path);
    gantry_status status;
    if (strcmp(path + length - 4, ".png") == 0 || strcmp(path + length - 4, ".jpg") == 0) {
        char spec[256];
        io_tensor t;
        snprintf(spec, sizeof spec, "x=%s,size=4x4" PLAIN, path);
        status = io_image_read(spec, &t, err);
        io_tensor_free(&t);
    } else {
        status = io_read(path, &tensors, err);
        cr_assert(status == GANTRY_OK || tensors.count == 0);
    }
    io_tensors_free(&tensors);
    return status;
}

/* Only these may come of a broken file; each has a text. */
static void assert_sane(gantry_status status, const gantry_error *err)
{
    cr_assert(status == GANTRY_OK || status == GANTRY_DATA || status == GANTRY_UNSUPPORTED ||
                  status == GANTRY_RESOURCE,
              "%d: %s", (int)status, err->message);
    cr_assert(status == GANTRY_OK || err->message[0]);
}

static void break_file(const char *source, const char *name)
{
    static unsigned char good[65536], bad[65536];
    size_t size = read_bytes(source, good, sizeof good);
    size_t step = size > 600 ? size / 300 : 1;
    for (size_t at = 0; at < size; at += step) {
        gantry_error err = GANTRY_ERROR_INIT;
        put_file(inside(name), good, at);
        gantry_status status = read_any(inside(name), &err);
        assert_sane(status, &err);
        /* A message without its last fields may be a message; a PNG may lack its closing chunk of 12 bytes.
         */
        bool may_be_whole = strstr(name, ".pb") || (strstr(name, ".png") && at + 12 >= size);
        cr_assert(status != GANTRY_OK || may_be_whole, "%s cut after %zu of %zu bytes was read", source, at,
                  size);
        static const unsigned char changes[] = {0xff, 0x00, 0x80, 0x01};
        for (size_t c = 0; c < sizeof changes; c++) {
            memcpy(bad, good, size);
            bad[at] = c < 2 ? changes[c] : bad[at] ^ changes[c];
            put_file(inside(name), bad, size);
            assert_sane(read_any(inside(name), &err), &err);
        }
    }
}

Test(io, broken_npz)
{
    break_file(DATA "stored.npz", "a.npz");
    break_file(DATA "deflated.npz", "a.npz");
}

Test(io, broken_npy)
{
    break_file(DATA "v1.npy", "a.npy");
    break_file(DATA "v3.npy", "a.npy");
}

Test(io, broken_tensor_proto)
{
    for (size_t i = 0; i < sizeof protos / sizeof *protos; i++) {
        char path[256];
        snprintf(path, sizeof path, DATA "%s_typed.pb", protos[i].name);
        break_file(path, "a.pb");
        snprintf(path, sizeof path, DATA "%s_raw.pb", protos[i].name);
        break_file(path, "a.pb");
    }
}

Test(io, broken_pictures)
{
    break_file(DATA "rgba.png", "a.png");
    break_file(DATA "rgb.jpg", "a.jpg");
}
