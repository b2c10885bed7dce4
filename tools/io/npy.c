/* numpy's .npy: a magic, a version, a Python dictionary {descr, fortran_order, shape} as text, then the
 * elements. */
#include "io.h"

#include <ctype.h>
#include <stdlib.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6u
/* numpy itself pads the header so that the data start at a multiple of this. */
#define HEADER_ALIGNMENT 64u

/* Element types that numpy has, by its code behind the byte-order sign. */
static const struct {
    const char *code;
    gantry_dtype dtype;
} types[] = {
    {"f2", GANTRY_FLOAT16},     {"f4", GANTRY_FLOAT32}, {"f8", GANTRY_FLOAT64}, {"i1", GANTRY_INT8},
    {"i2", GANTRY_INT16},       {"i4", GANTRY_INT32},   {"i8", GANTRY_INT64},   {"u1", GANTRY_UINT8},
    {"u2", GANTRY_UINT16},      {"u4", GANTRY_UINT32},  {"u8", GANTRY_UINT64},  {"c8", GANTRY_COMPLEX64},
    {"c16", GANTRY_COMPLEX128}, {"b1", GANTRY_BOOL},
};

/* What the dictionary says. */
typedef struct npy_header {
    gantry_dtype dtype;
    bool fortran, has_descr, has_order, has_shape;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
} npy_header;

/* The dictionary as it is read: the next character, and whose file it is. */
typedef struct npy_reader {
    const char *label, *at, *end;
    gantry_error *err;
} npy_reader;

static gantry_status bad_header(const npy_reader *r, const char *what)
{
    return io_fail(r->err, GANTRY_DATA, r->label, "the .npy header is broken: %s", what);
}

static void skip_space(npy_reader *r)
{
    while (r->at < r->end && isspace((unsigned char)*r->at))
        r->at++;
}

static bool accept(npy_reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* A quoted text without escapes, cut to capacity - 1. */
static bool accept_text(npy_reader *r, char *out_text, size_t capacity)
{
    skip_space(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"'))
        return false;
    const char *start = r->at + 1, *stop = memchr(start, *r->at, (size_t)(r->end - start));
    if (!stop)
        return false;
    snprintf(out_text, capacity, "%.*s", (int)(stop - start), start);
    r->at = stop + 1;
    return true;
}

static bool accept_word(npy_reader *r, const char *word)
{
    skip_space(r);
    size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
        return false;
    r->at += length;
    return true;
}

static gantry_status read_descr(npy_reader *r, npy_header *header)
{
    char descr[64];
    if (!accept_text(r, descr, sizeof descr))
        return io_fail(r->err, GANTRY_UNSUPPORTED, r->label,
                       "its elements are records; only plain numbers are read");
    if (descr[0] == '>' && strcmp(descr + 1, "i1") && strcmp(descr + 1, "u1") && strcmp(descr + 1, "b1"))
        return io_fail(r->err, GANTRY_UNSUPPORTED, r->label,
                       "element type '%s' is big-endian; save it as '<%s'", descr, descr + 1);
    if (descr[0] && strchr("<>|=", descr[0]))
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (strcmp(descr + 1, types[i].code) == 0) {
                header->dtype = types[i].dtype;
                header->has_descr = true;
                return GANTRY_OK;
            }
    return io_fail(r->err, GANTRY_UNSUPPORTED, r->label,
                   "element type '%s' is not a number type that is read here", descr);
}

static gantry_status read_order(npy_reader *r, npy_header *header)
{
    header->fortran = accept_word(r, "True");
    if (!header->fortran && !accept_word(r, "False"))
        return bad_header(r, "fortran_order is neither True nor False");
    header->has_order = true;
    return GANTRY_OK;
}

static gantry_status read_extent(npy_reader *r, int64_t *out_extent)
{
    skip_space(r);
    int64_t value = 0;
    const char *start = r->at;
    for (; r->at < r->end && isdigit((unsigned char)*r->at); r->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *r->at - '0', &value))
            return bad_header(r, "an extent does not fit 64 bits");
    if (r->at == start)
        return bad_header(r, "the shape is not a tuple of numbers");
    accept(r, 'L'); /* numpy under Python 2 wrote longs */
    *out_extent = value;
    return GANTRY_OK;
}

static gantry_status read_shape(npy_reader *r, npy_header *header)
{
    if (!accept(r, '('))
        return bad_header(r, "the shape is not a tuple of numbers");
    while (!accept(r, ')')) {
        if (header->rank == GANTRY_MAX_RANK)
            return io_fail(r->err, GANTRY_DATA, r->label, "its rank is above the limit %d", GANTRY_MAX_RANK);
        GT_TRY(read_extent(r, &header->dims[header->rank++]));
        if (!accept(r, ',') && (r->at == r->end || *r->at != ')'))
            return bad_header(r, "the shape is not a tuple of numbers");
    }
    header->has_shape = true;
    return GANTRY_OK;
}

static gantry_status read_dictionary(npy_reader *r, npy_header *header)
{
    if (!accept(r, '{'))
        return bad_header(r, "no dictionary");
    while (!accept(r, '}')) {
        char key[32];
        if (!accept_text(r, key, sizeof key) || !accept(r, ':'))
            return bad_header(r, "no key where one must be");
        if (strcmp(key, "descr") == 0 && !header->has_descr)
            GT_TRY(read_descr(r, header));
        else if (strcmp(key, "fortran_order") == 0 && !header->has_order)
            GT_TRY(read_order(r, header));
        else if (strcmp(key, "shape") == 0 && !header->has_shape)
            GT_TRY(read_shape(r, header));
        else
            return bad_header(r, "a key twice, or one that is none of descr, fortran_order, shape");
        if (!accept(r, ',') && (r->at == r->end || *r->at != '}'))
            return bad_header(r, "the dictionary does not end");
    }
    if (!header->has_descr || !header->has_order || !header->has_shape)
        return bad_header(r, "descr, fortran_order or shape is missing");
    return GANTRY_OK;
}

/* Source elements are in Fortran order: walk them in that order and put each where row-major has it. */
static void copy_fortran(const io_tensor *tensor, const unsigned char *source)
{
    size_t size = gantry_dtype_bytes(tensor->dtype, 1), strides[GANTRY_MAX_RANK], stride = size;
    int64_t index[GANTRY_MAX_RANK] = {0};
    for (uint32_t k = tensor->rank; k-- > 0; stride *= (size_t)tensor->dims[k])
        strides[k] = stride;
    size_t offset = 0;
    for (size_t done = 0; done < tensor->size_bytes; done += size) {
        memcpy((char *)tensor->data + offset, source + done, size);
        for (uint32_t k = 0; k < tensor->rank; k++) {
            offset += strides[k];
            if (++index[k] < tensor->dims[k])
                break;
            offset -= strides[k] * (size_t)tensor->dims[k];
            index[k] = 0;
        }
    }
}

/* Where the dictionary lies, by the format version. */
static gantry_status find_dictionary(const char *label, io_bytes npy, io_bytes *out_text, gantry_error *err)
{
    if (npy.size < MAGIC_BYTES + 4 || memcmp(npy.data, MAGIC, MAGIC_BYTES) != 0)
        return io_fail(err, GANTRY_DATA, label, "is no .npy file: it does not begin with \\x93NUMPY");
    unsigned major = npy.data[6];
    if (major < 1 || major > 3)
        return io_fail(err, GANTRY_DATA, label, ".npy version %u is none of 1, 2, 3", major);
    int length_bytes = major == 1 ? 2 : 4;
    size_t start = MAGIC_BYTES + 2 + (size_t)length_bytes;
    if (npy.size < start)
        return io_fail(err, GANTRY_DATA, label, "ends inside its header");
    size_t length = io_le(npy.data + 8, length_bytes);
    if (length > npy.size - start)
        return io_fail(err, GANTRY_DATA, label, "ends inside its header: %zu bytes declared, %zu there",
                       length, npy.size - start);
    *out_text = (io_bytes){npy.data + start, length};
    return GANTRY_OK;
}

gantry_status io_npy_parse(const char *label, const char *name, io_bytes npy, io_tensor *out_tensor,
                           gantry_error *err)
{
    *out_tensor = (io_tensor){0};
    io_bytes text = {0};
    GT_TRY(find_dictionary(label, npy, &text, err));
    npy_reader reader = {label, (const char *)text.data, (const char *)text.data + text.size, err};
    npy_header header = {0};
    GT_TRY(read_dictionary(&reader, &header));

    const unsigned char *data = text.data + text.size;
    size_t there = (size_t)(npy.data + npy.size - data), bits = gantry_dtype_bits(header.dtype);
    /* Before anything is allocated: a header of 100 bytes may declare a terabyte. */
    uint64_t count = 1;
    bool overflow = false;
    for (uint32_t k = 0; k < header.rank; k++)
        overflow |= __builtin_mul_overflow(count, (uint64_t)header.dims[k], &count);
    for (uint32_t k = 0; k < header.rank; k++)
        if (header.dims[k] == 0)
            count = 0, overflow = false;
    if (overflow || count > there / (bits / 8))
        return io_fail(err, GANTRY_DATA, label, "is too short: %zu bytes of data for %llu elements of %zu",
                       there, overflow ? ~0ull : (unsigned long long)count, bits / 8);
    if (count * (bits / 8) != there)
        return io_fail(err, GANTRY_DATA, label, "has %zu bytes of data, its shape needs %llu", there,
                       (unsigned long long)(count * (bits / 8)));

    GT_TRY(io_tensor_create(name, header.dtype, header.rank, header.dims, out_tensor, err));
    if (header.fortran)
        copy_fortran(out_tensor, data);
    else if (there)
        memcpy(out_tensor->data, data, there);
    return GANTRY_OK;
}

static const char *numpy_code(gantry_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype)
            return types[i].code;
    return NULL;
}

gantry_status io_npy_header(const char *label, const io_tensor *tensor, unsigned char *out_header,
                            size_t *inout_size, gantry_error *err)
{
    const char *code = numpy_code(tensor->dtype);
    if (!code)
        return io_fail(err, GANTRY_UNSUPPORTED, label, "numpy has no element type for %s; write a .pb file",
                       gantry_dtype_text(tensor->dtype));
    char text[IO_NPY_HEADER_BYTES - HEADER_ALIGNMENT];
    int length = snprintf(text, sizeof text, "{'descr': '%s%s', 'fortran_order': False, 'shape': (",
                          code[1] == '1' && !code[2] ? "|" : "<", code);
    for (uint32_t k = 0; k < tensor->rank; k++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%lld%s", (long long)tensor->dims[k],
                           k + 1 < tensor->rank ? ", "
                           : k                  ? ""
                                                : ",");
    length += snprintf(text + length, sizeof text - (size_t)length, "), }");

    size_t used = MAGIC_BYTES + 4 + (size_t)length + 1;
    size_t padded = (used + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    if (padded > *inout_size)
        return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL, "%s: a .npy header of %zu bytes", label,
                       padded);
    memcpy(out_header, MAGIC "\x01\x00", MAGIC_BYTES + 2);
    io_put_le(out_header + 8, padded - MAGIC_BYTES - 4, 2);
    memset(out_header + 10, ' ', padded - 10);
    memcpy(out_header + 10, text, (size_t)length);
    out_header[padded - 1] = '\n';
    *inout_size = padded;
    return GANTRY_OK;
}

gantry_status io_npy_read(const char *path, io_tensor *out_tensor, gantry_error *err)
{
    io_bytes file;
    *out_tensor = (io_tensor){0};
    GT_TRY(io_file_read(path, &file, err));
    gantry_status status = io_npy_parse(path, "", file, out_tensor, err);
    free(file.data);
    return status;
}

gantry_status io_npy_write(const char *path, const io_tensor *tensor, gantry_error *err)
{
    unsigned char header[IO_NPY_HEADER_BYTES];
    size_t size = sizeof header;
    GT_TRY(io_npy_header(path, tensor, header, &size, err));
    io_bytes parts[] = {{header, size}, {tensor->data, tensor->size_bytes}};
    return io_file_write(path, parts, 2, err);
}
