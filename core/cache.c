/* Files in the runtime's cache folder: one a key, published by a rename. What a provider keeps there itself,
 * and programs (program_cache.c).
 *
 *     header | key | payload        named PLUGIN-XXH3(plugin, key).cache
 *                                   or PLUGIN-XXH3(identity)-XXH3(plugin, key).program
 *
 * A file is used only when everything its header says is what this process would write; else the reason names
 * what differs, and the next put replaces the file. Writers of one key may race: each writes a file of its
 * own, and the last rename stays. A file that a crash cut short fails its checks, so nothing is flushed. */
#include "host_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CACHE_MAGIC "GANTRYC1"
#define MAX_KEY_BYTES 65536u /* keys with a kernel's source fit; what is longer is better hashed */
#define PATH_BYTES GT_CACHE_PATH_BYTES
#define MOST_RELATIVES 16u /* kept: as many sizes, options and weights of one partition are used in turn */

/* Of this machine: a cache folder is no format to hand around. Unused bytes are zero. */
typedef struct cache_header {
    char magic[8];
    uint32_t abi;
    uint32_t key_bytes;
    char plugin[64];
    char version[32];
    uint64_t payload_bytes;
    uint64_t payload_hash;
} cache_header;

/* What a call of get or put is about. */
typedef struct cache_entry {
    const char *key;
    cache_header expected; /* but for the payload */
    char path[PATH_BYTES];
    char relatives[96]; /* how the names of files with the same identity begin; "" when it has none */
} cache_entry;

/* ---- where ----------------------------------------------------------------------------------- */

void gt_host_plugin_name(const gantry_host *host, char out_name[64], char out_version[32])
{
    const gantry_runtime *runtime = gt_host_runtime(host);
    const gt_plugin_entry *entry =
        (const gt_plugin_entry *)((const char *)host - offsetof(gt_plugin_entry, host));
    bool linked_in = host == &runtime->host;
    snprintf(out_name, 64, "%s", linked_in ? "cpu" : entry->name);
    snprintf(out_version, 32, "%s", linked_in ? gantry_version() : entry->version);
}

/* The plugin's name for people who look into the folder, without characters that mean something to a path. */
static void name_for_file(const cache_entry *entry, char out_name[64])
{
    memcpy(out_name, entry->expected.plugin, sizeof entry->expected.plugin);
    for (char *at = out_name; *at; at++)
        if (!(*at >= '0' && *at <= '9') && !(*at >= 'a' && *at <= 'z') && !(*at >= 'A' && *at <= 'Z'))
            *at = '_';
}

static void name_file(cache_entry *entry, size_t identity_bytes, char *out_name, size_t capacity)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, entry->expected.plugin, sizeof entry->expected.plugin);
    XXH3_128bits_update(&state, entry->key, entry->expected.key_bytes);
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    char plugin[64];
    name_for_file(entry, plugin);
    if (identity_bytes)
        snprintf(entry->relatives, sizeof entry->relatives, "%s-%016llx-", plugin,
                 (unsigned long long)XXH3_64bits(entry->key, identity_bytes));
    snprintf(out_name, capacity, "%s%s%016llx%016llx.%s", identity_bytes ? entry->relatives : plugin,
             identity_bytes ? "" : "-", (unsigned long long)hash.high64, (unsigned long long)hash.low64,
             identity_bytes ? "program" : "cache");
}

static gantry_status find_entry(const gantry_host *host, const gt_cache_key *key, cache_entry *out_entry,
                                gantry_error *err)
{
    char folder[GT_SETTING_BYTES], name[160];
    size_t key_bytes = key->text ? strlen(key->text) : 0;
    if (key_bytes == 0 || key_bytes > MAX_KEY_BYTES)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                       "the key of a cache entry has %zu bytes; it has 1 to %u", key_bytes, MAX_KEY_BYTES);
    gt_runtime_setting(gt_host_runtime(host), GT_SETTING_CACHE, folder);
    if (!*folder)
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_COMPILE, NULL, "no cache folder is set");
    out_entry->key = key->text;
    out_entry->relatives[0] = 0;
    memset(&out_entry->expected, 0, sizeof out_entry->expected);
    memcpy(out_entry->expected.magic, CACHE_MAGIC, sizeof out_entry->expected.magic);
    out_entry->expected.abi = host->abi;
    out_entry->expected.key_bytes = (uint32_t)key_bytes;
    gt_host_plugin_name(host, out_entry->expected.plugin, out_entry->expected.version);
    name_file(out_entry, key->identity_bytes, name, sizeof name);
    snprintf(out_entry->path, sizeof out_entry->path, "%s/%s", folder, name);
    return GANTRY_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_all(int fd, void *target, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t count = pread(fd, (char *)target + done, bytes - done, (off_t)(offset + done));
        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* A reason why the file is not used; it names what differs. */
GANTRY_PRINTF(3, 4)
static gantry_status ignore(const cache_entry *entry, gantry_error *err, const char *format, ...)
{
    char reason[512];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_COMPILE, NULL,
                   "the cache file %.1000s is ignored, and will be written anew: %s", entry->path, reason);
}

static gantry_status check_header(const cache_entry *entry, const cache_header *found, uint64_t file_bytes,
                                  gantry_error *err)
{
    const cache_header *expected = &entry->expected;
    uint64_t payload = file_bytes - sizeof *found;
    if (memcmp(found->magic, expected->magic, sizeof found->magic) != 0)
        return ignore(entry, err, "it does not begin as a cache file of this release");
    if (found->abi != expected->abi)
        return ignore(entry, err, "the ABI level was %u, and is %u", found->abi, expected->abi);
    if (memcmp(found->plugin, expected->plugin, sizeof found->plugin) != 0)
        return ignore(entry, err, "the plugin was %.63s, and is %s", found->plugin, expected->plugin);
    if (memcmp(found->version, expected->version, sizeof found->version) != 0)
        return ignore(entry, err, "the version of plugin %s was %.31s, and is %s", expected->plugin,
                      found->version, expected->version);
    if (found->key_bytes != expected->key_bytes)
        return ignore(entry, err, "it is for another key, of %u bytes", found->key_bytes);
    if (found->key_bytes > payload || found->payload_bytes != payload - found->key_bytes)
        return ignore(entry, err, "it has %llu bytes, not those its header says: it was cut or grew",
                      (unsigned long long)file_bytes);
    return GANTRY_OK;
}

static gantry_status read_key(const gantry_host *host, const cache_entry *entry, int fd, gantry_error *err)
{
    char *key = gt_host_alloc(host, entry->expected.key_bytes, 1);
    if (!key)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    bool same = read_all(fd, key, entry->expected.key_bytes, sizeof entry->expected) &&
                memcmp(key, entry->key, entry->expected.key_bytes) == 0;
    gt_host_free(host, key);
    return same ? GANTRY_OK : ignore(entry, err, "it is for another key of the same hash, or damaged");
}

static gantry_status read_payload(const gantry_host *host, const cache_entry *entry,
                                  const cache_header *found, int fd, void **out_data, gantry_error *err)
{
    void *data = gt_host_alloc(host, found->payload_bytes, 64);
    if (!data)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    if (read_all(fd, data, found->payload_bytes, sizeof *found + found->key_bytes) &&
        XXH3_64bits(data, found->payload_bytes) == found->payload_hash) {
        *out_data = data;
        return GANTRY_OK;
    }
    gt_host_free(host, data);
    return ignore(entry, err, "its contents are damaged: their checksum is another");
}

static gantry_status read_file(const gantry_host *host, const cache_entry *entry, int fd, void **out_data,
                               size_t *out_bytes, gantry_error *err)
{
    struct stat info;
    cache_header found;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return ignore(entry, err, "it is no regular file");
    if ((uint64_t)info.st_size < sizeof found || !read_all(fd, &found, sizeof found, 0))
        return ignore(entry, err, "it has %lld bytes, fewer than a header", (long long)info.st_size);
    GT_TRY(check_header(entry, &found, (uint64_t)info.st_size, err));
    GT_TRY(read_key(host, entry, fd, err));
    GT_TRY(read_payload(host, entry, &found, fd, out_data, err));
    *out_bytes = found.payload_bytes;
    return GANTRY_OK;
}

/* What was used last is given up last. The clock of files is coarse; somebody else's file stays as it is. */
static void note_use(int fd)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[1] = times[0];
    (void)futimens(fd, times);
}

gantry_status gt_cache_read(const gantry_host *host, const gt_cache_key *key, gt_cache_file *out_file,
                            gantry_error *err)
{
    cache_entry entry;
    *out_file = (gt_cache_file){.data = NULL};
    GT_TRY(find_entry(host, key, &entry, err));
    memcpy(out_file->path, entry.path, sizeof entry.path);
    int fd = open(entry.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    out_file->exists = fd >= 0 || errno != ENOENT;
    if (fd < 0)
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_COMPILE, NULL,
                       errno == ENOENT ? "there is no cache file %s" : "the cache file %s: %m", entry.path);
    gantry_status status = read_file(host, &entry, fd, &out_file->data, &out_file->bytes, err);
    if (status == GANTRY_OK && key->identity_bytes)
        note_use(fd);
    close(fd);
    return status;
}

gantry_status gt_host_cache_get(const gantry_host *host, const char *key, void **out_data, size_t *out_bytes,
                                gantry_error *err)
{
    gt_cache_file file;
    gantry_status status = gt_cache_read(host, &(gt_cache_key){key, 0}, &file, err);
    *out_data = file.data;
    *out_bytes = file.bytes;
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool write_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t count = write(fd, (const char *)data + done, bytes - done);
        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

static bool write_file(const cache_entry *entry, int fd, const void *data, size_t bytes)
{
    cache_header header = entry->expected;
    header.payload_bytes = bytes;
    header.payload_hash = XXH3_64bits(data, bytes);
    return write_all(fd, &header, sizeof header) && write_all(fd, entry->key, header.key_bytes) &&
           write_all(fd, data, bytes);
}

/* False with errno set. A half-written file has another name, and goes. */
static bool publish(const cache_entry *entry, const void *data, size_t bytes)
{
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s.XXXXXX", entry->path);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return false;
    bool written = write_file(entry, fd, data, bytes);
    int reason = errno;
    note_use(fd);
    if (close(fd) != 0 && written) {
        written = false;
        reason = errno;
    }
    if (written && rename(path, entry->path) == 0)
        return true;
    reason = written ? errno : reason;
    (void)unlink(path);
    errno = reason;
    return false;
}

/* The folder itself may be new; the one it lies in is the user's affair. */
static bool make_folder(cache_entry *entry)
{
    char *slash = strrchr(entry->path, '/');
    *slash = 0;
    bool made = mkdir(entry->path, 0700) == 0 || errno == EEXIST;
    *slash = '/';
    return made;
}

/* ---- relatives ------------------------------------------------------------------------------- */

/* Of the files of the entry's identity but its own. Times are in ns, ties go by name. */
typedef struct relatives {
    uint32_t count;
    uint64_t newest_ns, oldest_ns;
    char newest[PATH_BYTES], oldest[PATH_BYTES];
} relatives;

static void add_relative(const char *path, relatives *found)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    uint64_t ns = (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec;
    if (found->count == 0 || ns > found->newest_ns ||
        (ns == found->newest_ns && strcmp(path, found->newest) > 0)) {
        found->newest_ns = ns;
        memcpy(found->newest, path, strlen(path) + 1);
    }
    if (found->count == 0 || ns < found->oldest_ns ||
        (ns == found->oldest_ns && strcmp(path, found->oldest) < 0)) {
        found->oldest_ns = ns;
        memcpy(found->oldest, path, strlen(path) + 1);
    }
    found->count++;
}

static void find_relatives(const cache_entry *entry, relatives *out_found)
{
    char path[PATH_BYTES];
    size_t length = strlen(entry->relatives), folder = (size_t)(strrchr(entry->path, '/') - entry->path) + 1;
    out_found->count = 0;
    memcpy(path, entry->path, folder);
    path[folder] = 0;
    DIR *files = opendir(path);
    for (const struct dirent *file; files && (file = readdir(files));) {
        const char *dot = strrchr(file->d_name, '.');
        if (strncmp(file->d_name, entry->relatives, length) != 0 || !dot || strcmp(dot, ".program") != 0 ||
            strcmp(file->d_name, entry->path + folder) == 0 || strlen(file->d_name) >= sizeof path - folder)
            continue;
        memcpy(path + folder, file->d_name, strlen(file->d_name) + 1);
        add_relative(path, out_found);
    }
    if (files)
        closedir(files);
}

/* The key that a file holds; NULL when it holds none. */
static char *read_key_of(const gantry_host *host, const char *path)
{
    cache_header header;
    char *key = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    if (read_all(fd, &header, sizeof header, 0) &&
        memcmp(header.magic, CACHE_MAGIC, sizeof header.magic) == 0 && header.key_bytes <= MAX_KEY_BYTES)
        key = gt_host_alloc(host, header.key_bytes + 1, 1);
    if (key && !read_all(fd, key, header.key_bytes, sizeof header)) {
        gt_host_free(host, key);
        key = NULL;
    }
    if (key)
        key[header.key_bytes] = 0;
    close(fd);
    return key;
}

char *gt_cache_relative(const gantry_host *host, const gt_cache_key *key)
{
    cache_entry entry;
    relatives found;
    if (!key->identity_bytes || find_entry(host, key, &entry, NULL) != GANTRY_OK)
        return NULL;
    find_relatives(&entry, &found);
    char *other = found.count ? read_key_of(host, found.newest) : NULL;
    if (other && strncmp(other, key->text, key->identity_bytes) != 0) {
        gt_host_free(host, other);
        other = NULL;
    }
    return other;
}

/* Each edit of a model's weights leaves a file as large as they are. */
static void give_up_oldest(const cache_entry *entry)
{
    relatives found;
    find_relatives(entry, &found);
    while (found.count >= MOST_RELATIVES && unlink(found.oldest) == 0)
        find_relatives(entry, &found);
}

/* ---- put ------------------------------------------------------------------------------------- */

gantry_status gt_cache_write(const gantry_host *host, const gt_cache_key *key, const void *data, size_t bytes,
                             gantry_error *err)
{
    cache_entry entry;
    if (!data && bytes)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                       "%zu bytes to be kept lie nowhere", bytes);
    GT_TRY(find_entry(host, key, &entry, err));
    bool written = publish(&entry, data, bytes);
    if (!written && errno == ENOENT)
        written = make_folder(&entry) && publish(&entry, data, bytes);
    if (!written)
        return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_COMPILE, NULL,
                       "the cache file %.1000s was not written: %m", entry.path);
    if (key->identity_bytes)
        give_up_oldest(&entry);
    return GANTRY_OK;
}

void gt_host_cache_put(const gantry_host *host, const char *key, const void *data, size_t bytes)
{
    gantry_error reason = GANTRY_ERROR_INIT;
    if (gt_cache_write(host, &(gt_cache_key){key, 0}, data, bytes, &reason) == GANTRY_RESOURCE)
        host->log(host, 1, reason.message);
}
