/* Rules about the file itself, read from its ELF tables: manifest, exported symbols, constructors. Nothing of
 * the library is loaded here, and no number of the file is trusted. */
#include "kit.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct elf_image {
    const unsigned char *data;
    size_t bytes;
    Elf64_Ehdr header;
} elf_image;

static void add(kit_results *results, const char *rule, kit_state state, const char *format, ...)
    GANTRY_PRINTF(4, 5);
static void add(kit_results *results, const char *rule, kit_state state, const char *format, ...)
{
    kit_result row = {.state = state};
    va_list args;
    snprintf(row.rule, sizeof row.rule, "%s", rule);
    va_start(args, format);
    vsnprintf(row.text, sizeof row.text, format, args);
    va_end(args);
    kit_results_add(results, &row);
}

static bool read_at(const elf_image *image, uint64_t offset, void *out, size_t bytes)
{
    if (offset > image->bytes || bytes > image->bytes - offset)
        return false;
    memcpy(out, image->data + offset, bytes);
    return true;
}

static bool section_at(const elf_image *image, uint32_t index, Elf64_Shdr *out_section)
{
    return index < image->header.e_shnum && image->header.e_shoff < image->bytes &&
           read_at(image, image->header.e_shoff + (uint64_t)index * sizeof *out_section, out_section,
                   sizeof *out_section);
}

/* The text at an offset of a string section, or "". */
static const char *text_at(const elf_image *image, const Elf64_Shdr *strings, uint64_t offset)
{
    if (strings->sh_offset >= image->bytes || offset >= strings->sh_size ||
        strings->sh_size > image->bytes - strings->sh_offset)
        return "";
    const char *text = (const char *)image->data + strings->sh_offset + offset;
    return memchr(text, 0, strings->sh_size - offset) ? text : "";
}

/* By name, or, with a name of NULL, by type. */
static bool find_section(const elf_image *image, const char *name, uint32_t type, Elf64_Shdr *out_section)
{
    Elf64_Shdr names;
    if (!section_at(image, image->header.e_shstrndx, &names))
        return false;
    for (uint32_t k = 0; section_at(image, k, out_section); k++)
        if (name ? strcmp(text_at(image, &names, out_section->sh_name), name) == 0
                 : out_section->sh_type == type)
            return true;
    return false;
}

static bool ends(const char *text, size_t capacity)
{
    return memchr(text, 0, capacity) != NULL;
}

/* Whether the kernel lists that word among the CPU's features. */
static bool has_feature(const char *word, size_t length)
{
    char line[8192];
    bool found = false, listed = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !listed && fgets(line, sizeof line, file))
        listed = strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0;
    if (file)
        fclose(file);
    for (const char *at = line; listed && !found && (at = strchr(at, ' ')); at++)
        found = strncmp(at + 1, word, length) == 0 && strchr(" \n", at[1 + length]);
    return found || !listed;
}

/* The library may not even be loaded on a machine that lacks what its manifest asks for. */
static bool runs_here(kit_results *results, const elf_image *image)
{
    Elf64_Shdr section;
    gantry_manifest m;
    if (!find_section(image, GANTRY_MANIFEST_SECTION, 0, &section) || section.sh_size < sizeof m ||
        !read_at(image, section.sh_offset, &m, sizeof m) || !ends(m.cpu_features, sizeof m.cpu_features))
        return true;
    for (const char *word = m.cpu_features; *word; word += strspn(word, ",")) {
        size_t length = strcspn(word, ",");
        if (!has_feature(word, length)) {
            add(results, "loads", KIT_SKIP,
                "this machine does not have the CPU feature %.*s that the manifest asks for", (int)length,
                word);
            return false;
        }
        word += length;
    }
    return true;
}

static void check_manifest(kit_results *results, const elf_image *image)
{
    static const char *const RULE = "manifest";
    Elf64_Shdr section;
    gantry_manifest m;
    if (!find_section(image, GANTRY_MANIFEST_SECTION, 0, &section))
        add(results, RULE, KIT_FAIL, "there is no section %s: put GANTRY_MANIFEST(...) into one source file",
            GANTRY_MANIFEST_SECTION);
    else if (section.sh_size < sizeof m || !read_at(image, section.sh_offset, &m, sizeof m))
        add(results, RULE, KIT_FAIL, "the section has %llu bytes, a gantry_manifest has %zu",
            (unsigned long long)section.sh_size, sizeof m);
    else if (memcmp(m.magic, GANTRY_MANIFEST_MAGIC, sizeof m.magic) != 0 || m.struct_bytes < sizeof m)
        add(results, RULE, KIT_FAIL,
            "magic or struct_bytes (%u, at least %zu) are wrong: use GANTRY_MANIFEST", m.struct_bytes,
            sizeof m);
    else if (m.abi_min < 1 || m.abi_min > m.abi_max)
        add(results, RULE, KIT_FAIL, "ABI levels %u to %u are no range from 1 on", m.abi_min, m.abi_max);
    else if (m.abi_min > GANTRY_PROVIDER_ABI)
        add(results, RULE, KIT_FAIL, "it needs ABI level %u; this host has 1 to %u", m.abi_min,
            GANTRY_PROVIDER_ABI);
    else if (!ends(m.name, sizeof m.name) || !ends(m.version, sizeof m.version) ||
             !ends(m.cpu_features, sizeof m.cpu_features) || !ends(m.dependencies, sizeof m.dependencies))
        add(results, RULE, KIT_FAIL, "a text is not NUL-terminated: it is too long for its field");
    else if (!*m.name || !*m.version)
        add(results, RULE, KIT_FAIL,
            "name or version are empty: users see them when the library can't be loaded");
    else
        add(results, RULE, KIT_PASS, "\"%s\" %s, ABI %u to %u%s%s%s%s", m.name, m.version, m.abi_min,
            m.abi_max, *m.cpu_features ? ", needs the CPU features " : "", m.cpu_features,
            *m.dependencies ? ", needs " : "", m.dependencies);
}

/* Names that some linkers export on their own. */
static bool is_toolchain_symbol(const char *name)
{
    static const char *const NAMES[] = {"_init",       "_fini",         "_edata",    "_end",
                                        "__bss_start", "__bss_start__", "_bss_end__"};
    for (size_t k = 0; k < sizeof NAMES / sizeof *NAMES; k++)
        if (strcmp(name, NAMES[k]) == 0)
            return true;
    return false;
}

static bool is_export(const Elf64_Sym *symbol)
{
    unsigned binding = ELF64_ST_BIND(symbol->st_info), visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    return symbol->st_shndx != SHN_UNDEF && binding != STB_LOCAL && visibility != STV_HIDDEN &&
           visibility != STV_INTERNAL;
}

static void check_exports(kit_results *results, const elf_image *image)
{
    static const char *const RULE = "exports";
    Elf64_Shdr symbols, strings;
    char others[512] = "";
    uint32_t other_count = 0;
    bool found = false;
    if (!find_section(image, NULL, SHT_DYNSYM, &symbols) || !section_at(image, symbols.sh_link, &strings)) {
        add(results, RULE, KIT_FAIL, "the library has no dynamic symbols; it has to export %s",
            GANTRY_PLUGIN_ENTRY);
        return;
    }
    for (uint64_t k = 0; k < symbols.sh_size / sizeof(Elf64_Sym); k++) {
        Elf64_Sym symbol;
        if (!read_at(image, symbols.sh_offset + k * sizeof symbol, &symbol, sizeof symbol))
            break;
        const char *name = text_at(image, &strings, symbol.st_name);
        if (!is_export(&symbol) || !*name || is_toolchain_symbol(name))
            continue;
        if (strcmp(name, GANTRY_PLUGIN_ENTRY) == 0)
            found = true;
        else if (other_count++ < 5)
            snprintf(others + strlen(others), sizeof others - strlen(others), "%s%.80s", *others ? ", " : "",
                     name);
    }
    if (!found)
        add(results, RULE, KIT_FAIL, "%s is not exported: mark it GANTRY_PLUGIN_EXPORT", GANTRY_PLUGIN_ENTRY);
    else if (other_count)
        add(results, RULE, KIT_FAIL,
            "%u more symbols than %s are exported (%s%s): hide them with a version script (gantry_add_plugin "
            "does it)",
            other_count, GANTRY_PLUGIN_ENTRY, others, other_count > 5 ? " ..." : "");
    else
        add(results, RULE, KIT_PASS, "%s and nothing else", GANTRY_PLUGIN_ENTRY);
}

/* The compiler's own start code brings one entry to each of both arrays. */
static void check_constructors(kit_results *results, const elf_image *image)
{
    static const char *const RULE = "constructors";
    Elf64_Shdr section;
    uint64_t begin = 0, end = 0;
    if (find_section(image, NULL, SHT_INIT_ARRAY, &section))
        begin = section.sh_size / sizeof(uint64_t);
    if (find_section(image, NULL, SHT_FINI_ARRAY, &section))
        end = section.sh_size / sizeof(uint64_t);
    if (begin > 1 || end > 1)
        add(results, RULE, KIT_FAIL,
            "%llu constructors and %llu destructors run when the library is loaded and the process ends, "
            "beside the "
            "compiler's: do that work in %s and close",
            (unsigned long long)(begin ? begin - 1 : 0), (unsigned long long)(end ? end - 1 : 0),
            GANTRY_PLUGIN_ENTRY);
    else
        add(results, RULE, KIT_PASS, "none of its own");
}

static bool open_image(const char *path, elf_image *out_image, char *out_why, size_t capacity)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    void *data = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0)
        data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (data == MAP_FAILED) {
        snprintf(out_why, capacity, "it can't be read");
        return false;
    }
    *out_image = (elf_image){.data = data, .bytes = (size_t)about.st_size};
    if (read_at(out_image, 0, &out_image->header, sizeof out_image->header) &&
        memcmp(out_image->header.e_ident, ELFMAG, SELFMAG) == 0 && out_image->header.e_type == ET_DYN &&
        out_image->header.e_ident[EI_CLASS] == ELFCLASS64 &&
        out_image->header.e_shentsize == sizeof(Elf64_Shdr))
        return true;
    snprintf(out_why, capacity, "it is no 64-bit ELF library");
    munmap(data, out_image->bytes);
    return false;
}

/* whole: every rule that a file can be held to, not only what it says of itself. */
static bool look(kit_results *results, const char *path, bool whole)
{
    elf_image image;
    char why[64];
    if (!open_image(path, &image, why, sizeof why)) {
        add(results, "library", KIT_FAIL, "%s: %s", path, why);
        return false;
    }
    check_manifest(results, &image);
    if (whole) {
        check_exports(results, &image);
        check_constructors(results, &image);
    }
    bool runs = runs_here(results, &image);
    munmap((void *)(uintptr_t)image.data, image.bytes);
    return runs;
}

bool kit_check_file(kit_results *results, const char *path)
{
    return look(results, path, true);
}

bool kit_show_file(kit_results *results, const char *path)
{
    return look(results, path, false);
}
