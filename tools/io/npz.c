/* numpy's .npz: a ZIP archive with one .npy file for each array.
 *
 *     [local header, NAME.npy, bytes] ...  [central directory: one entry a member]  [end record]
 *
 * Reading goes by the central directory, as ZIP demands: local headers may lack sizes. zip64 replaces sizes
 * of 0xffffffff by 64-bit ones in an extra field; numpy writes such a field for every member. */
#include "io.h"

#include <stdlib.h>
#include <zlib.h>

#define LOCAL_MAGIC 0x04034b50u
#define ENTRY_MAGIC 0x02014b50u
#define END_MAGIC 0x06054b50u
#define END64_MAGIC 0x06064b50u
#define LOCATOR64_MAGIC 0x07064b50u
#define LOCAL_BYTES 30u
#define ENTRY_BYTES 46u
#define END_BYTES 22u
#define END64_BYTES 56u
#define LOCATOR64_BYTES 20u
#define ZIP64_FIELD 1u
#define STORED 0u
#define DEFLATED 8u
/* zlib cannot shrink below about 1/1032: a member that claims more is a bomb or broken. */
#define MAX_DEFLATE_RATIO 1100u
#define MAX_NAME_BYTES 1024u
/* 1980-01-01, so that equal tensors give equal files. */
#define DOS_DATE 0x21u

/* One entry of the central directory. */
typedef struct member {
    char name[MAX_NAME_BYTES + 1];
    uint32_t method, crc, flags;
    uint64_t packed, size, local_offset;
} member;

/* The archive and where its central directory lies. */
typedef struct archive {
    const char *path;
    io_bytes file;
    uint64_t directory_offset, directory_end, count;
    gantry_error *err;
} archive;

static gantry_status broken(const archive *a, const char *what)
{
    return io_fail(a->err, GANTRY_DATA, a->path, "is a broken .npz: %s", what);
}

/* The end record stands before a comment of at most 65535 bytes: searched from the back. */
static const unsigned char *find_end(io_bytes file)
{
    for (size_t back = END_BYTES; back <= file.size && back <= END_BYTES + 0xffffu; back++) {
        const unsigned char *at = file.data + file.size - back;
        if (io_le(at, 4) == END_MAGIC && io_le(at + 20, 2) == back - END_BYTES)
            return at;
    }
    return NULL;
}

/* zip64: the locator right before the end record says where the 64-bit end record is. */
static gantry_status read_end64(archive *a, const unsigned char *end, uint64_t *inout_bytes)
{
    if ((size_t)(end - a->file.data) < LOCATOR64_BYTES || io_le(end - LOCATOR64_BYTES, 4) != LOCATOR64_MAGIC)
        return GANTRY_OK;
    uint64_t at = io_le(end - LOCATOR64_BYTES + 8, 8);
    if (a->file.size < END64_BYTES || at > a->file.size - END64_BYTES ||
        io_le(a->file.data + at, 4) != END64_MAGIC)
        return broken(a, "the zip64 end record is not where the locator says");
    a->count = io_le(a->file.data + at + 32, 8);
    *inout_bytes = io_le(a->file.data + at + 40, 8);
    a->directory_offset = io_le(a->file.data + at + 48, 8);
    return GANTRY_OK;
}

static gantry_status read_end(archive *a)
{
    const unsigned char *end = find_end(a->file);
    if (!end)
        return broken(a, "no end record (not a ZIP file, or cut short)");
    if (io_le(end + 4, 2) != 0 || io_le(end + 6, 2) != 0)
        return broken(a, "it is one part of several");
    uint64_t bytes = io_le(end + 12, 4);
    a->count = io_le(end + 10, 2);
    a->directory_offset = io_le(end + 16, 4);
    GT_TRY(read_end64(a, end, &bytes));
    if (a->directory_offset > a->file.size || bytes > a->file.size - a->directory_offset)
        return broken(a, "the central directory lies past the end of the file");
    a->directory_end = a->directory_offset + bytes;
    if (a->count > bytes / ENTRY_BYTES)
        return broken(a, "it declares more members than its central directory can hold");
    return GANTRY_OK;
}

/* Sizes and offset that did not fit 32 bits stand in this extra field, in this order, only those. */
static gantry_status read_zip64_field(const archive *a, const unsigned char *extra, size_t length, member *m)
{
    while (length >= 4) {
        size_t id = io_le(extra, 2), bytes = io_le(extra + 2, 2);
        if (bytes > length - 4)
            return broken(a, "an extra field is longer than the entry");
        if (id == ZIP64_FIELD) {
            uint64_t *wanted[] = {&m->size, &m->packed, &m->local_offset};
            const unsigned char *at = extra + 4;
            for (int i = 0; i < 3; i++)
                if (*wanted[i] == 0xffffffffu) {
                    if ((size_t)(at + 8 - extra) > bytes + 4)
                        return broken(a, "a zip64 field is too short");
                    *wanted[i] = io_le(at, 8);
                    at += 8;
                }
            return GANTRY_OK;
        }
        extra += 4 + bytes;
        length -= 4 + bytes;
    }
    return GANTRY_OK;
}

/* Reads the entry at *inout_offset and moves on to the next. */
static gantry_status read_entry(const archive *a, uint64_t *inout_offset, member *out_member)
{
    const unsigned char *entry = a->file.data + *inout_offset;
    uint64_t left = a->directory_end - *inout_offset;
    if (left < ENTRY_BYTES || io_le(entry, 4) != ENTRY_MAGIC)
        return broken(a, "a directory entry is missing or cut short");
    size_t name = io_le(entry + 28, 2), extra = io_le(entry + 30, 2), comment = io_le(entry + 32, 2);
    if (left - ENTRY_BYTES < name + extra + comment)
        return broken(a, "a directory entry is longer than the directory");
    if (name > MAX_NAME_BYTES || memchr(entry + ENTRY_BYTES, 0, name))
        return broken(a, "a member's name is longer than 1024 bytes or holds a NUL");
    *out_member = (member){.flags = (uint32_t)io_le(entry + 8, 2),
                           .method = (uint32_t)io_le(entry + 10, 2),
                           .crc = (uint32_t)io_le(entry + 16, 4),
                           .packed = io_le(entry + 20, 4),
                           .size = io_le(entry + 24, 4),
                           .local_offset = io_le(entry + 42, 4)};
    memcpy(out_member->name, entry + ENTRY_BYTES, name);
    out_member->name[name] = 0;
    *inout_offset += ENTRY_BYTES + name + extra + comment;
    return read_zip64_field(a, entry + ENTRY_BYTES + name, extra, out_member);
}

/* The packed bytes of a member: behind its local header, whose name and extra field have lengths of their
 * own. */
static gantry_status find_packed(const archive *a, const member *m, io_bytes *out_packed)
{
    if (a->file.size < LOCAL_BYTES || m->local_offset > a->file.size - LOCAL_BYTES)
        return broken(a, "a member lies past the end of the file");
    const unsigned char *local = a->file.data + m->local_offset;
    if (io_le(local, 4) != LOCAL_MAGIC)
        return broken(a, "a member does not begin with its header");
    uint64_t start = m->local_offset + LOCAL_BYTES + io_le(local + 26, 2) + io_le(local + 28, 2);
    if (start > a->file.size || m->packed > a->file.size - start)
        return broken(a, "a member reaches past the end of the file");
    *out_packed = (io_bytes){a->file.data + start, m->packed};
    return GANTRY_OK;
}

/* Inflates exactly out.size bytes; false when the data are broken, longer or shorter. zlib counts in 32 bits.
 */
static bool inflate_all(io_bytes packed, io_bytes out)
{
    z_stream z = {0};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return false;
    size_t fed = 0, filled = 0;
    int state = Z_OK;
    while (state == Z_OK) {
        size_t feed = packed.size - fed < UINT32_MAX ? packed.size - fed : UINT32_MAX;
        size_t room = out.size - filled < UINT32_MAX ? out.size - filled : UINT32_MAX;
        z.next_in = packed.data + fed;
        z.avail_in = (uInt)feed;
        z.next_out = out.data + filled;
        z.avail_out = (uInt)room;
        state = inflate(&z, Z_NO_FLUSH);
        fed += feed - z.avail_in;
        filled += room - z.avail_out;
        if (state == Z_OK && feed == z.avail_in && room == z.avail_out)
            break;
    }
    inflateEnd(&z);
    return state == Z_STREAM_END && filled == out.size;
}

static uint32_t checksum(io_bytes bytes)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes.data, bytes.size);
}

/* The tensor of a member whose unpacked bytes are checked against the CRC. */
static gantry_status parse_member(const archive *a, const member *m, io_bytes npy, io_tensor *out_tensor)
{
    char label[MAX_NAME_BYTES + 512], name[MAX_NAME_BYTES + 1];
    snprintf(label, sizeof label, "%.500s(%s)", a->path, m->name);
    if (checksum(npy) != m->crc)
        return io_fail(a->err, GANTRY_DATA, label, "its bytes do not match their CRC-32");
    snprintf(name, sizeof name, "%s", m->name);
    if (io_ends_with(name, ".npy"))
        name[strlen(name) - 4] = 0;
    return io_npy_parse(label, name, npy, out_tensor, a->err);
}

static gantry_status read_member(const archive *a, const member *m, io_tensor *out_tensor)
{
    io_bytes packed;
    GT_TRY(find_packed(a, m, &packed));
    if (m->flags & 1)
        return io_fail(a->err, GANTRY_UNSUPPORTED, a->path, "member %s is encrypted", m->name);
    if (m->method == STORED && m->packed == m->size)
        return parse_member(a, m, packed, out_tensor);
    if (m->method != DEFLATED)
        return io_fail(a->err, GANTRY_UNSUPPORTED, a->path,
                       "member %s is packed by method %u; only 0 (stored) and 8 (deflate) are read", m->name,
                       m->method);
    if (m->size / MAX_DEFLATE_RATIO > m->packed)
        return io_fail(a->err, GANTRY_DATA, a->path, "member %s claims %llu bytes from %llu packed ones",
                       m->name, (unsigned long long)m->size, (unsigned long long)m->packed);
    io_bytes npy = {malloc(m->size + 1), m->size};
    if (!npy.data)
        return io_fail(a->err, GANTRY_RESOURCE, a->path, "out of memory (%llu bytes for member %s)",
                       (unsigned long long)m->size, m->name);
    gantry_status status = inflate_all(packed, npy) ? parse_member(a, m, npy, out_tensor)
                                                    : io_fail(a->err, GANTRY_DATA, a->path,
                                                              "member %s does not inflate to its %llu bytes",
                                                              m->name, (unsigned long long)m->size);
    free(npy.data);
    return status;
}

static gantry_status read_members(const archive *a, io_tensors *inout_tensors)
{
    uint64_t offset = a->directory_offset;
    for (uint64_t i = 0; i < a->count; i++) {
        member m;
        io_tensor tensor = {0};
        GT_TRY(read_entry(a, &offset, &m));
        GT_TRY(read_member(a, &m, &tensor));
        gantry_status status = io_tensors_push(inout_tensors, &tensor, a->err);
        io_tensor_free(&tensor);
        if (status != GANTRY_OK)
            return status;
    }
    return GANTRY_OK;
}

gantry_status io_npz_read(const char *path, io_tensors *inout_tensors, gantry_error *err)
{
    archive a = {.path = path, .err = err};
    uint32_t count = inout_tensors->count;
    GT_TRY(io_file_read(path, &a.file, err));
    gantry_status status = read_end(&a);
    if (status == GANTRY_OK)
        status = read_members(&a, inout_tensors);
    if (status != GANTRY_OK)
        io_tensors_cut(inout_tensors, count);
    free(a.file.data);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* One member as it goes to the file. */
typedef struct packed_member {
    unsigned char header[LOCAL_BYTES + MAX_NAME_BYTES], npy[IO_NPY_HEADER_BYTES];
    size_t header_bytes, npy_bytes, name_bytes;
    io_bytes data; /* stored: the tensor's own; deflated: npy header and tensor, owned */
    bool owned;
    uint64_t packed, size, offset;
    uint32_t crc;
} packed_member;

/* Deflates the .npy header and the tensor as one stream. */
static gantry_status deflate_member(packed_member *p, io_bytes tensor, gantry_error *err)
{
    z_stream z = {0};
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    size_t bound = deflateBound(&z, p->size);
    p->data.data = malloc(bound);
    p->owned = true;
    if (!p->data.data) {
        deflateEnd(&z);
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    }
    z.next_out = p->data.data;
    z.avail_out = (uInt)bound;
    z.next_in = p->npy;
    z.avail_in = (uInt)p->npy_bytes;
    int state = deflate(&z, Z_NO_FLUSH);
    z.next_in = tensor.data;
    z.avail_in = (uInt)tensor.size;
    if (state == Z_OK)
        state = deflate(&z, Z_FINISH);
    p->data.size = bound - z.avail_out;
    deflateEnd(&z);
    p->npy_bytes = 0;
    p->packed = p->data.size;
    return state == Z_STREAM_END
               ? GANTRY_OK
               : gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL, "deflate ended with %d", state);
}

/* The fields that a local header and a directory entry share, from "version needed" to the length of the
 * name. */
static void put_common(unsigned char *at, const packed_member *p, bool deflated)
{
    io_put_le(at, 20, 2);
    io_put_le(at + 2, 0, 2);
    io_put_le(at + 4, deflated ? DEFLATED : STORED, 2);
    io_put_le(at + 6, DOS_DATE << 16, 4);
    io_put_le(at + 10, p->crc, 4);
    io_put_le(at + 14, p->packed, 4);
    io_put_le(at + 18, p->size, 4);
    io_put_le(at + 22, p->name_bytes, 2);
}

static gantry_status pack(const char *path, const io_tensor *tensor, bool deflated, packed_member *out_packed,
                          gantry_error *err)
{
    packed_member *p = out_packed;
    io_bytes data = {tensor->data, tensor->size_bytes};
    p->npy_bytes = sizeof p->npy;
    GT_TRY(io_npy_header(path, tensor, p->npy, &p->npy_bytes, err));
    p->name_bytes = strlen(tensor->name) + 4;
    if (p->name_bytes > MAX_NAME_BYTES)
        return io_fail(err, GANTRY_UNSUPPORTED, path, "the tensor name %.60s... is longer than %u bytes",
                       tensor->name, MAX_NAME_BYTES - 4);
    p->size = p->packed = p->npy_bytes + data.size;
    if (p->size > UINT32_MAX - 65536u)
        return io_fail(err, GANTRY_UNSUPPORTED, path,
                       "tensor %s has %zu bytes; an .npz member of 4 GiB or more is not written, use .npy",
                       tensor->name, data.size);
    p->crc = (uint32_t)crc32_z(crc32_z(0, p->npy, p->npy_bytes), data.data, data.size);
    p->data = data;
    if (deflated)
        GT_TRY(deflate_member(p, data, err));
    io_put_le(p->header, LOCAL_MAGIC, 4);
    put_common(p->header + 4, p, deflated);
    io_put_le(p->header + 28, 0, 2);
    memcpy(p->header + LOCAL_BYTES, tensor->name, p->name_bytes - 4);
    memcpy(p->header + LOCAL_BYTES + p->name_bytes - 4, ".npy", 4);
    p->header_bytes = LOCAL_BYTES + p->name_bytes;
    return GANTRY_OK;
}

/* The central directory and the end record, into one block that the caller frees. */
static gantry_status make_directory(packed_member *members, uint32_t count, uint64_t offset, bool deflated,
                                    io_bytes *out_directory, gantry_error *err)
{
    size_t bytes = END_BYTES;
    for (uint32_t i = 0; i < count; i++)
        bytes += ENTRY_BYTES + members[i].name_bytes;
    unsigned char *at = calloc(1, bytes);
    if (!at)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    *out_directory = (io_bytes){at, bytes};
    for (uint32_t i = 0; i < count; i++) {
        const packed_member *p = &members[i];
        io_put_le(at, ENTRY_MAGIC, 4);
        io_put_le(at + 4, 20, 2);
        put_common(at + 6, p, deflated);
        io_put_le(at + 42, p->offset, 4);
        memcpy(at + ENTRY_BYTES, p->header + LOCAL_BYTES, p->name_bytes);
        at += ENTRY_BYTES + p->name_bytes;
    }
    io_put_le(at, END_MAGIC, 4);
    io_put_le(at + 8, count, 2);
    io_put_le(at + 10, count, 2);
    io_put_le(at + 12, bytes - END_BYTES, 4);
    io_put_le(at + 16, offset, 4);
    return GANTRY_OK;
}

static gantry_status write_members(const char *path, packed_member *members, io_bytes *parts, uint32_t count,
                                   bool deflated, gantry_error *err)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        packed_member *p = &members[i];
        p->offset = offset;
        offset += p->header_bytes + p->packed;
        parts[3 * i] = (io_bytes){p->header, p->header_bytes};
        parts[3 * i + 1] = (io_bytes){p->npy, p->npy_bytes};
        parts[3 * i + 2] = p->data;
    }
    if (offset > UINT32_MAX - 65536u)
        return io_fail(err, GANTRY_UNSUPPORTED, path,
                       "its tensors have %llu bytes; an .npz of 4 GiB or more is not written",
                       (unsigned long long)offset);
    io_bytes *directory = &parts[3 * (size_t)count];
    gantry_status status = make_directory(members, count, offset, deflated, directory, err);
    if (status == GANTRY_OK)
        status = io_file_write(path, parts, 3 * count + 1, err);
    free(directory->data);
    return status;
}

gantry_status io_npz_write(const char *path, const io_tensor *tensors, uint32_t count, bool deflated,
                           gantry_error *err)
{
    if (count > 0xfffe)
        return io_fail(err, GANTRY_UNSUPPORTED, path, "%u tensors; an .npz of more than 65534 is not written",
                       count);
    packed_member *members = calloc(count + 1, sizeof *members);
    io_bytes *parts = calloc(3 * (size_t)count + 1, sizeof *parts);
    gantry_status status = members && parts ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t i = 0; i < count && status == GANTRY_OK; i++)
        status = pack(path, &tensors[i], deflated, &members[i], err);
    if (status == GANTRY_OK)
        status = write_members(path, members, parts, count, deflated, err);
    for (uint32_t i = 0; members && i < count; i++)
        if (members[i].owned)
            free(members[i].data.data);
    free(members);
    free(parts);
    return status;
}
