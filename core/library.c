/* From what the caller named to an opened library: finding the file, its manifest, the CPU, the loader. */
#include "runtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- which file ------------------------------------------------------------------------------ */

/* "/x/libgantry_fake.so" -> "fake". */
static void name_after_file(const char *path, char *out_name, size_t capacity)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (strncmp(base, "lib", 3) == 0 && base[3] && base[3] != '.')
        base += 3;
    if (strncmp(base, "gantry_", 7) == 0 && base[7] && base[7] != '.')
        base += 7;
    const char *end = strstr(base, ".so");
    size_t length = end && end != base ? (size_t)(end - base) : strlen(base);
    if (length == 0) {
        base = "unnamed";
        length = strlen(base);
    }
    snprintf(out_name, capacity, "%.*s", (int)(length < capacity ? length : capacity - 1), base);
}

/* The loader searches its own folders for a name without '/': it always gets an absolute path. */
static gantry_status absolute_path(const char *path, gt_library *library, gantry_error *err)
{
    char folder[sizeof library->path] = "";
    char *resolved = realpath(path, NULL);
    if (!resolved && *path != '/' && !getcwd(folder, sizeof folder))
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s: the working directory: %s", path,
                       strerror(errno));
    int length = resolved       ? snprintf(library->path, sizeof library->path, "%s", resolved)
                 : *path == '/' ? snprintf(library->path, sizeof library->path, "%s", path)
                                : snprintf(library->path, sizeof library->path, "%s/%s", folder, path);
    free(resolved);
    if (length < 0 || (size_t)length >= sizeof library->path)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                       "the path has %d bytes; at most %zu are taken", length, sizeof library->path - 1);
    return GANTRY_OK;
}

/* The folder that `make install` gives plugins: gantry/ beside libgantry, or beside the program that it is
 * linked into (which the loader knows without a name). False when it is not known. */
static bool installed_folder(char *out_folder, size_t capacity)
{
    static const char here;
    Dl_info about;
    struct link_map *map = NULL;
    if (!dladdr1(&here, &about, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    char *self = realpath(*map->l_name ? map->l_name : "/proc/self/exe", NULL);
    char *slash = self ? strrchr(self, '/') : NULL;
    int length = slash ? snprintf(out_folder, capacity, "%.*s/gantry", (int)(slash - self), self) : -1;
    free(self);
    return length > 0 && (size_t)length < capacity;
}

typedef struct search {
    char file[128];
    char tried[1600]; /* for the error */
    char found[GT_SETTING_BYTES + 128];
} search;

static bool try_folder(search *s, const char *folder, size_t length)
{
    size_t used = strlen(s->tried);
    snprintf(s->found, sizeof s->found, "%.*s/%s", (int)length, folder, s->file);
    if (access(s->found, F_OK) == 0)
        return true;
    snprintf(s->tried + used, sizeof s->tried - used, "%s%s", used ? ", " : "", s->found);
    return false;
}

/* Looks in the folders that were set, else in the environment's, then where plugins are installed. */
static bool find_file(gantry_runtime *runtime, search *s)
{
    char folders[GT_SETTING_BYTES];
    gt_runtime_setting(runtime, GT_SETTING_PROVIDER_PATH, folders);
    for (const char *folder = folders; *folder;) {
        size_t length = strcspn(folder, ":");
        if (length && try_folder(s, folder, length))
            return true;
        folder += length + (folder[length] == ':');
    }
    return installed_folder(folders, sizeof folders) && try_folder(s, folders, strlen(folders));
}

static gantry_status find_by_name(gantry_runtime *runtime, const char *name, gt_library *library,
                                  gantry_error *err)
{
    search s = {.tried = ""};
    int length = snprintf(s.file, sizeof s.file, "libgantry_%s.so", name);
    snprintf(library->name, sizeof library->name, "%s", name);
    if (length < 0 || (size_t)length >= sizeof s.file)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                       "the name of the provider has %zu bytes; at most %zu are taken", strlen(name),
                       sizeof s.file - sizeof "libgantry_.so");
    for (char *c = s.file; *c; c++)
        *c = *c == '-' ? '_' : *c;
    if (find_file(runtime, &s))
        return absolute_path(s.found, library, err);
    return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                   "no library of the provider \"%s\" was found; tried %s; GANTRY_PROVIDER_PATH or "
                   "provider_path of gantry_runtime_set names more folders, and a text with a '/' is a path",
                   name, s.tried);
}

static gantry_status find_by_path(const char *path, gt_library *library, gantry_error *err)
{
    name_after_file(path, library->name, sizeof library->name);
    GT_TRY(absolute_path(path, library, err));
    name_after_file(library->path, library->name, sizeof library->name);
    return GANTRY_OK;
}

/* Tells versions of one file apart. */
static uint64_t stamp_of(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return 0;
    const uint64_t marks[] = {about.st_dev, about.st_ino, (uint64_t)about.st_size,
                              (uint64_t)about.st_mtim.tv_sec, (uint64_t)about.st_mtim.tv_nsec};
    return XXH3_64bits(marks, sizeof marks) | 1;
}

gantry_status gt_library_find(gantry_runtime *runtime, const char *what, gt_library *library,
                              gantry_error *err)
{
    *library = (gt_library){.path = ""};
    if (!strchr(what, '/') && !strstr(what, ".so"))
        GT_TRY(find_by_name(runtime, what, library, err));
    else
        GT_TRY(find_by_path(what, library, err));
    library->stamp = stamp_of(library->path);
    return GANTRY_OK;
}

/* ---- what it says of itself ------------------------------------------------------------------ */

static bool list_has(const char *list, const char *word, size_t length)
{
    for (const char *at = list; (at = strstr(at, word)); at += length) {
        bool begins = at == list || at[-1] == ' ' || at[-1] == '\t';
        if (begins && (at[length] == ' ' || at[length] == '\n' || at[length] == 0))
            return true;
    }
    return false;
}

/* The CPU's feature words, as the kernel lists them; false when they cannot be read. */
static bool read_cpu_features(char *out_text, size_t capacity)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool found = false;
    while (file && !found && fgets(out_text, (int)capacity, file))
        found = strncmp(out_text, "flags", 5) == 0 || strncmp(out_text, "Features", 8) == 0;
    if (file)
        fclose(file);
    return found;
}

static gantry_status check_cpu_features(const gantry_manifest *manifest, gantry_error *err)
{
    char features[8192];
    if (!manifest->cpu_features[0] || !read_cpu_features(features, sizeof features))
        return GANTRY_OK;
    for (const char *begin = manifest->cpu_features; *begin;) {
        size_t length = strcspn(begin, ",");
        char word[128];
        snprintf(word, sizeof word, "%.*s", (int)length, begin);
        if (length && !list_has(features, word, length))
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "the library needs the CPU feature %s, which this machine does not have", word);
        begin += length + (begin[length] == ',');
    }
    return GANTRY_OK;
}

/* Whether the loader says better than we what is wrong with a file that is no ELF library: one that is there
 * and no file makes it wait for somebody to write. */
static bool is_for_loader(const char *path)
{
    struct stat about;
    unsigned char magic[4] = {0};
    if (stat(path, &about) != 0 || S_ISDIR(about.st_mode))
        return true;
    if (!S_ISREG(about.st_mode))
        return false;
    FILE *file = fopen(path, "rbe");
    bool is_elf = file && fread(magic, 1, 4, file) == 4 && memcmp(magic, "\177ELF", 4) == 0;
    if (file)
        fclose(file);
    return !is_elf;
}

/* Reads and checks the manifest. */
static gantry_status check_manifest(gt_library *library, gantry_manifest *out_manifest, gantry_error *err)
{
    gantry_status status = gt_manifest_read(library->path, out_manifest, err);
    if (status != GANTRY_OK && is_for_loader(library->path) &&
        !dlopen(library->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s", dlerror());
    GT_TRY(status);
    snprintf(library->name, sizeof library->name, "%s",
             *out_manifest->name ? out_manifest->name : library->name);
    snprintf(library->version, sizeof library->version, "%s", out_manifest->version);
    if (out_manifest->abi_min > GANTRY_PROVIDER_ABI || out_manifest->abi_max < 1 ||
        out_manifest->abi_min > out_manifest->abi_max)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "%s: the library works at ABI levels %u to %u, this host at 1 to %u", library->path,
                       out_manifest->abi_min, out_manifest->abi_max, GANTRY_PROVIDER_ABI);
    return check_cpu_features(out_manifest, err);
}

gantry_status gt_library_open(gt_library *library, gantry_plugin_open_fn *out_open, gantry_error *err)
{
    gantry_manifest manifest;
    GT_TRY(check_manifest(library, &manifest, err));
    void *handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s%s%s", dlerror(),
                       *manifest.dependencies ? "; the provider needs " : "", manifest.dependencies);
    void *symbol = dlsym(handle, GANTRY_PLUGIN_ENTRY);
    if (!symbol)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s", dlerror());
    memcpy(out_open, &symbol, sizeof symbol);
    return GANTRY_OK;
}
