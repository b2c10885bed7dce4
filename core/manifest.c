/* Reads a provider's manifest out of the ELF file, before the loader runs any of its code. */
#include "runtime.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct elf_file {
    int fd;
    uint64_t bytes;
    Elf64_Ehdr header;
} elf_file;

static gantry_status no_manifest(const char *path, const char *why, gantry_error *err)
{
    return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_PLUGIN, NULL,
                   "%s: %s; a provider library has a section " GANTRY_MANIFEST_SECTION
                   " (see GANTRY_MANIFEST)",
                   path, why);
}

/* All of [offset, offset + bytes) or false. */
static bool read_at(const elf_file *file, uint64_t offset, void *out_data, size_t bytes)
{
    if (offset > file->bytes || bytes > file->bytes - offset)
        return false;
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file->fd, (char *)out_data + done, bytes - done, (off_t)(offset + done));
        if (got <= 0) {
            if (got < 0 && errno == EINTR)
                continue;
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

static bool read_section(const elf_file *file, uint32_t index, Elf64_Shdr *out_section)
{
    uint64_t position = (uint64_t)index * sizeof *out_section;
    return index < file->header.e_shnum && file->header.e_shoff <= UINT64_MAX - position &&
           read_at(file, file->header.e_shoff + position, out_section, sizeof *out_section);
}

static bool is_elf_library(elf_file *file)
{
    const Elf64_Ehdr *h = &file->header;
    return read_at(file, 0, &file->header, sizeof file->header) && memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 &&
           h->e_ident[EI_CLASS] == ELFCLASS64 && h->e_type == ET_DYN && h->e_shentsize == sizeof(Elf64_Shdr);
}

/* Finds the section by name; false when there is none or the tables lead outside the file. */
static bool find_manifest(const elf_file *file, Elf64_Shdr *out_section)
{
    static const char wanted[] = GANTRY_MANIFEST_SECTION;
    Elf64_Shdr names;
    if (!read_section(file, file->header.e_shstrndx, &names))
        return false;
    for (uint32_t k = 0; k < file->header.e_shnum; k++) {
        char name[sizeof wanted];
        if (!read_section(file, k, out_section))
            return false;
        if (names.sh_offset <= file->bytes &&
            read_at(file, names.sh_offset + out_section->sh_name, name, sizeof name) &&
            memcmp(name, wanted, sizeof wanted) == 0 && out_section->sh_type != SHT_NOBITS)
            return true;
    }
    return false;
}

static void end_texts(gantry_manifest *manifest)
{
    manifest->name[sizeof manifest->name - 1] = 0;
    manifest->version[sizeof manifest->version - 1] = 0;
    manifest->cpu_features[sizeof manifest->cpu_features - 1] = 0;
    manifest->dependencies[sizeof manifest->dependencies - 1] = 0;
}

/* What the manifest of the first release has; later members of an older plugin are zero. */
#define FIRST_BYTES (offsetof(gantry_manifest, dependencies) + sizeof((gantry_manifest *)NULL)->dependencies)

static gantry_status read_manifest(elf_file *file, const char *path, gantry_manifest *out_manifest,
                                   gantry_error *err)
{
    Elf64_Shdr section;
    if (!is_elf_library(file))
        return no_manifest(path, "no 64-bit ELF library", err);
    if (!find_manifest(file, &section))
        return no_manifest(path, "the library has no manifest", err);
    size_t bytes = section.sh_size < sizeof *out_manifest ? (size_t)section.sh_size : sizeof *out_manifest;
    if (bytes < FIRST_BYTES || !read_at(file, section.sh_offset, out_manifest, bytes))
        return no_manifest(path, "the manifest is too short", err);
    if (memcmp(out_manifest->magic, GANTRY_MANIFEST_MAGIC, sizeof out_manifest->magic) != 0 ||
        out_manifest->struct_bytes < FIRST_BYTES)
        return no_manifest(path, "the manifest does not begin as it should", err);
    if (out_manifest->struct_bytes < bytes)
        memset((char *)out_manifest + out_manifest->struct_bytes, 0, bytes - out_manifest->struct_bytes);
    end_texts(out_manifest);
    return GANTRY_OK;
}

gantry_status gt_manifest_read(const char *path, gantry_manifest *out_manifest, gantry_error *err)
{
    struct stat info;
    elf_file file = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    memset(out_manifest, 0, sizeof *out_manifest);
    if (file.fd < 0)
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_PLUGIN, NULL, "%s: %s", path, strerror(errno));
    gantry_status status;
    if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = no_manifest(path, "no regular file", err);
    } else {
        file.bytes = (uint64_t)info.st_size;
        status = read_manifest(&file, path, out_manifest, err);
    }
    close(file.fd);
    if (status != GANTRY_OK)
        memset(out_manifest, 0, sizeof *out_manifest);
    return status;
}
