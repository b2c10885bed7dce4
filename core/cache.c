/* Files in the runtime's cache folder that providers keep bytes in: one file a key, published by a rename.
 *
 *     header | key | payload        named PLUGIN-XXH3(plugin, key).cache
 *
 * A file is used only when everything its header says is what this process would write; else the reason names
 * what differs, and the next put replaces the file. Writers of one key may race: each writes a file of its
 * own, and the last rename stays. A file that a crash cut short fails its checks, so nothing is flushed. */
#include "host_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CACHE_MAGIC "GANTRYC1"
#define MAX_KEY_BYTES 65536u /* keys with a kernel's source fit; what is longer is better hashed */
#define PATH_BYTES (GT_SETTING_BYTES + 256) /* a folder and the name of a file in it */

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
} cache_entry;

/* ---- where ----------------------------------------------------------------------------------- */

static void name_plugin(const gantry_host *host, cache_header *header)
{
    const gantry_runtime *runtime = gt_host_runtime(host);
    const gt_plugin_entry *entry =
        (const gt_plugin_entry *)((const char *)host - offsetof(gt_plugin_entry, host));
    bool linked_in = host == &runtime->host;
    snprintf(header->plugin, sizeof header->plugin, "%s", linked_in ? "cpu" : entry->name);
    snprintf(header->version, sizeof header->version, "%s", linked_in ? gantry_version() : entry->version);
}

/* The plugin's name for people who look into the folder, without characters that mean something to a path. */
static void name_file(const cache_entry *entry, char *out_name, size_t capacity)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, entry->expected.plugin, sizeof entry->expected.plugin);
    XXH3_128bits_update(&state, entry->key, entry->expected.key_bytes);
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    char plugin[sizeof entry->expected.plugin];
    memcpy(plugin, entry->expected.plugin, sizeof plugin);
    for (char *at = plugin; *at; at++)
        if (!(*at >= '0' && *at <= '9') && !(*at >= 'a' && *at <= 'z') && !(*at >= 'A' && *at <= 'Z'))
            *at = '_';
    snprintf(out_name, capacity, "%s-%016llx%016llx.cache", plugin, (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

static gantry_status find_entry(const gantry_host *host, const char *key, cache_entry *out_entry,
                                gantry_error *err)
{
    char folder[GT_SETTING_BYTES], name[160];
    size_t key_bytes = key ? strlen(key) : 0;
    if (key_bytes == 0 || key_bytes > MAX_KEY_BYTES)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                       "the key of a cache entry has %zu bytes; it has 1 to %u", key_bytes, MAX_KEY_BYTES);
    gt_runtime_setting(gt_host_runtime(host), GT_SETTING_CACHE, folder);
    if (!*folder)
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_COMPILE, NULL, "no cache folder is set");
    out_entry->key = key;
    memset(&out_entry->expected, 0, sizeof out_entry->expected);
    memcpy(out_entry->expected.magic, CACHE_MAGIC, sizeof out_entry->expected.magic);
    out_entry->expected.abi = host->abi;
    out_entry->expected.key_bytes = (uint32_t)key_bytes;
    name_plugin(host, &out_entry->expected);
    name_file(out_entry, name, sizeof name);
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

gantry_status gt_host_cache_get(const gantry_host *host, const char *key, void **out_data, size_t *out_bytes,
                                gantry_error *err)
{
    cache_entry entry;
    *out_data = NULL;
    *out_bytes = 0;
    GT_TRY(find_entry(host, key, &entry, err));
    int fd = open(entry.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return gt_fail(err, GANTRY_DATA, GANTRY_STAGE_COMPILE, NULL,
                       errno == ENOENT ? "there is no cache file %s" : "the cache file %s: %m", entry.path);
    gantry_status status = read_file(host, &entry, fd, out_data, out_bytes, err);
    close(fd);
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

void gt_host_cache_put(const gantry_host *host, const char *key, const void *data, size_t bytes)
{
    cache_entry entry;
    if ((!data && bytes) || find_entry(host, key, &entry, NULL) != GANTRY_OK)
        return;
    bool written = publish(&entry, data, bytes);
    if (!written && errno == ENOENT)
        written = make_folder(&entry) && publish(&entry, data, bytes);
    if (written)
        return;
    char text[PATH_BYTES + 160];
    snprintf(text, sizeof text, "the cache file %s was not written: %m", entry.path);
    host->log(host, 1, text);
}
