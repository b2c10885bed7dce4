/* What the host offers providers beyond memory and threads: bytes of constants, packed constants that
 * sessions share, files of a cache folder. */
#include "../support/small_models.h"
#include "../support/test_folder.h"
#include "core/session.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>

static const float weights[4] = {1, 2, 3, 4}, others[4] = {4, 3, 2, 1};
static gantry_error error = GANTRY_ERROR_INIT;

/* y = ((x + same) + again) + other: two constants with the same bytes, and a third. */
static wire three_constants(void)
{
    wire g = small_graph("three");
    small_floats(&g, "same", 4, weights);
    small_floats(&g, "again", 4, weights);
    small_floats(&g, "other", 4, others);
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "x,same", "a"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add2", "a,again", "b"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add3", "b,other", "y"));
    small_input(&g, "x", SMALL_F32, 1, 4, 0);
    small_output(&g, "y", SMALL_F32, 1, 4, 0);
    return small_model(g);
}

static small_session open_three(void)
{
    small_session s = small_open(three_constants(), "rewrites=off");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    return s;
}

static uint32_t constant_named(const gantry_session *session, const char *name)
{
    for (uint32_t k = 0; k < session->model->constants.count; k++)
        if (strcmp(session->model->constants.data[k].name, name) == 0)
            return k;
    cr_assert(false, "no constant %s", name);
    return 0;
}

/* ---- bytes of constants ---------------------------------------------------------------------- */

Test(host_table, parts_of_a_constant_are_read)
{
    small_session s = open_three();
    const gantry_host *host = &s.runtime->host;
    gantry_constants *constants = gt_constants_of(s.session->model);
    uint32_t id = constant_named(s.session, "other");
    float read[2] = {0};
    cr_assert_eq(host->constant_read(host, constants, id, 8, 8, read, &error), GANTRY_OK);
    cr_assert_eq(read[0], 2);
    cr_assert_eq(read[1], 1);
    cr_assert_eq(host->constant_read(host, constants, id, 16, 0, NULL, &error), GANTRY_OK);
    cr_assert_eq(host->constant_read(host, constants, id, 12, 8, read, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "8 bytes from offset 12"), "%s", error.message);
    cr_assert_eq(host->constant_read(host, constants, id, SIZE_MAX, 2, read, &error),
                 GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(host->constant_read(host, constants, 99, 0, 1, read, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(s.session->model->constants.data[id].maps, 0, "what was mapped is unmapped");
    small_close(&s);
}

/* ---- packed constants ------------------------------------------------------------------------ */

static int released[8];

static void release(void *self, void *data)
{
    cr_assert_eq(self, (void *)released);
    released[*(int *)data]++;
}

static int datas[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static gantry_packed packed_of(int number)
{
    return (gantry_packed){sizeof(gantry_packed), &datas[number], 100u * (unsigned)number, release, released};
}

Test(host_table, packed_constants_are_shared_by_content)
{
    small_session s = open_three();
    const gantry_host *host = &s.runtime->host;
    gantry_constants *constants = gt_constants_of(s.session->model);
    uint32_t same = constant_named(s.session, "same"), again = constant_named(s.session, "again");
    uint32_t other = constant_named(s.session, "other");
    gantry_packed given = packed_of(1), got = {.struct_bytes = sizeof got};
    cr_assert_eq(host->packed_get(host, constants, same, 7, &got), GANTRY_DATA);
    cr_assert_eq(host->packed_put(host, constants, same, 7, &given, &got, &error), GANTRY_OK);
    cr_assert_eq(got.data, &datas[1]);
    got.data = NULL;
    cr_assert_eq(host->packed_get(host, constants, again, 7, &got), GANTRY_OK, "the same bytes");
    cr_assert_eq(got.data, &datas[1]);
    cr_assert_eq(got.bytes, 100);
    cr_assert_eq(host->packed_get(host, constants, same, 8, &got), GANTRY_DATA, "another form");
    cr_assert_eq(host->packed_get(host, constants, other, 7, &got), GANTRY_DATA, "other bytes");

    gantry_host second = *host; /* another instance of the plugin */
    cr_assert_eq(host->packed_get(&second, constants, same, 7, &got), GANTRY_DATA);

    gantry_packed late = packed_of(2);
    cr_assert_eq(host->packed_put(host, constants, again, 7, &late, &got, &error), GANTRY_OK);
    cr_assert_eq(got.data, &datas[1], "the first one is used");
    cr_assert_eq(released[2], 1, "the second is released at once");
    gt_packed_total total = gt_packed_count(s.runtime, host);
    cr_assert_eq(total.forms, 1);
    cr_assert_eq(total.users, 3);
    cr_assert_eq(total.bytes, 100);
    for (int k = 0; k < 3; k++) {
        cr_assert_eq(released[1], 0);
        host->packed_release(host, &got);
    }
    cr_assert_eq(released[1], 1, "when the last user is gone");
    host->packed_release(host, &got);
    cr_assert_eq(released[1], 1);
    cr_assert_eq(gt_packed_count(s.runtime, host).forms, 0);
    small_close(&s);
}

Test(host_table, sessions_of_a_runtime_share_packed_constants)
{
    small_session s = open_three();
    gantry_session *second = NULL;
    wire model = three_constants();
    cr_assert_eq(
        gantry_session_create_from_memory(s.runtime, model.data, model.size, NULL, &second, NULL, &error),
        GANTRY_OK, "%s", error.message);
    wire_free(&model);
    const gantry_host *host = &s.runtime->host;
    gantry_packed given = packed_of(3), got = {.struct_bytes = sizeof got};
    cr_assert_eq(host->packed_put(host, gt_constants_of(s.session->model), constant_named(s.session, "other"),
                                  1, &given, &got, &error),
                 GANTRY_OK);
    cr_assert_eq(
        host->packed_get(host, gt_constants_of(second->model), constant_named(second, "other"), 1, &got),
        GANTRY_OK);
    cr_assert_eq(got.data, &datas[3]);
    gantry_session_destroy(&second, NULL);
    cr_assert_eq(released[3], 0);
    small_close(&s);
    cr_assert_eq(released[3], 1, "what users forgot is released before the plugin's close");
}

Test(host_table, packed_constants_that_are_refused)
{
    small_session s = open_three();
    const gantry_host *host = &s.runtime->host;
    gantry_constants *constants = gt_constants_of(s.session->model);
    uint32_t same = constant_named(s.session, "same"), other = constant_named(s.session, "other");
    gantry_packed given = packed_of(4), got = {.struct_bytes = sizeof got};
    gantry_packed no_data = given, no_release = given, no_size = given;
    no_data.data = NULL;
    no_release.release = NULL;
    no_size.struct_bytes = 0;
    cr_assert_eq(host->packed_put(host, constants, same, 1, &no_data, &got, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(host->packed_put(host, constants, same, 1, &no_release, &got, &error),
                 GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(host->packed_put(host, constants, same, 1, &no_size, &got, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(host->packed_put(host, constants, same, 1, &given, &no_size, &error),
                 GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(host->packed_get(host, constants, same, 1, &no_size), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(host->packed_put(host, constants, 99, 1, &given, &got, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(host->packed_put(host, constants, same, 1, &given, &got, &error), GANTRY_OK);
    cr_assert_eq(host->packed_put(host, constants, other, 1, &given, &got, &error), GANTRY_INVALID_ARGUMENT,
                 "one data cannot be two constants");
    cr_assert_eq(released[4], 0, "what is refused stays the caller's");
    cr_assert_eq(host->packed_put(host, constants, same, 1, &given, &given, &error), GANTRY_OK,
                 "the same once more is one user more");
    cr_assert_eq(gt_packed_count(s.runtime, host).users, 2);
    small_close(&s);
    cr_assert_eq(released[4], 1);
}

Test(host_table, many_packed_constants)
{
    static int many[1000];
    small_session s = open_three();
    const gantry_host *host = &s.runtime->host;
    gantry_constants *constants = gt_constants_of(s.session->model);
    gantry_packed got = {.struct_bytes = sizeof got};
    for (uint64_t form = 0; form < 1000; form++) {
        gantry_packed given = {sizeof given, &many[form], 1, release, released};
        cr_assert_eq(host->packed_put(host, constants, 0, form, &given, &got, &error), GANTRY_OK);
    }
    for (uint64_t form = 0; form < 1000; form++) {
        cr_assert_eq(host->packed_get(host, constants, 0, form, &got), GANTRY_OK);
        cr_assert_eq(got.data, &many[form]);
        host->packed_release(host, &got);
        if (form % 2)
            host->packed_release(host, &got);
    }
    cr_assert_eq(released[0], 500);
    cr_assert_eq(gt_packed_count(s.runtime, host).bytes, 500);
    small_close(&s);
    cr_assert_eq(released[0], 1000);
}

/* ---- cache files ----------------------------------------------------------------------------- */

static gantry_runtime *runtime;

static void use_folder(void)
{
    cr_assert_eq(gantry_runtime_set(runtime, "cache", inside("cache"), &error), GANTRY_OK, "%s",
                 error.message);
}

static void begin(void)
{
    test_folder_open();
    unsetenv("GANTRY_CACHE");
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &error), GANTRY_OK);
    cr_assert_eq(mkdir(inside("cache"), 0700), 0);
    use_folder();
}

static void end(void)
{
    cr_assert_eq(gantry_runtime_destroy(&runtime, &error), GANTRY_OK);
    test_folder_close();
}

TestSuite(cache, .init = begin, .fini = end);

static gantry_status get(const char *key, const char *expected)
{
    void *data;
    size_t bytes;
    gantry_status status = runtime->host.cache_get(&runtime->host, key, &data, &bytes, &error);
    if (status == GANTRY_OK) {
        cr_assert_eq(bytes, strlen(expected));
        cr_assert_eq(memcmp(data, expected, bytes), 0);
        runtime->host.free(&runtime->host, data);
    } else {
        cr_assert_null(data);
        cr_assert_eq(bytes, 0);
    }
    return status;
}

static void put(const char *key, const char *text)
{
    runtime->host.cache_put(&runtime->host, key, text, strlen(text));
}

/* The one file in the cache folder. */
static const char *cache_file(void)
{
    static char path[512];
    DIR *entries = opendir(inside("cache"));
    int count = 0;
    cr_assert_not_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.' && ++count)
            snprintf(path, sizeof path, "%s/%s", inside("cache"), entry->d_name);
    closedir(entries);
    cr_assert_eq(count, 1, "%d files", count);
    return path;
}

static void write_at(long offset, const void *bytes, size_t count)
{
    FILE *file = fopen(cache_file(), "r+b");
    cr_assert_eq(fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

Test(cache, what_was_put_is_there_in_another_runtime_too)
{
    cr_assert_eq(get("kernels of gfx1", ""), GANTRY_DATA);
    cr_assert(strstr(error.message, "there is no cache file"), "%s", error.message);
    put("kernels of gfx1", "binary one");
    put("kernels of gfx2", "");
    cr_assert_eq(get("kernels of gfx1", "binary one"), GANTRY_OK, "%s", error.message);
    cr_assert_eq(get("kernels of gfx2", ""), GANTRY_OK, "%s", error.message);
    cr_assert_eq(gantry_runtime_destroy(&runtime, &error), GANTRY_OK);
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &error), GANTRY_OK);
    cr_assert_eq(get("kernels of gfx1", ""), GANTRY_DATA);
    cr_assert_str_eq(error.message, "no cache folder is set");
    put("kernels of gfx1", "nowhere");
    use_folder();
    cr_assert_eq(get("kernels of gfx1", "binary one"), GANTRY_OK, "%s", error.message);
}

Test(cache, keys_that_are_none)
{
    cr_assert_eq(get("", ""), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(get(NULL, ""), GANTRY_INVALID_ARGUMENT);
    static char endless[70000];
    memset(endless, 'k', sizeof endless - 1);
    cr_assert_eq(get(endless, ""), GANTRY_INVALID_ARGUMENT);
    endless[60000] = 0;
    put(endless, "long");
    cr_assert_eq(get(endless, "long"), GANTRY_OK);
}

static void log_line(void *user, int level, const char *text)
{
    snprintf(user, 1000, "%s", text);
}

Test(cache, a_folder_that_cannot_be_written)
{
    static char logged[1000];
    cr_assert_eq(gt_runtime_log_add(runtime, 3, log_line, logged, &error), GANTRY_OK);
    cr_assert_eq(rmdir(inside("cache")), 0);
    put_file(inside("cache"), "a file", 6);
    put("key", "text");
    cr_assert(strstr(logged, "was not written: Not a directory"), "%s", logged);
    cr_assert_eq(get("key", ""), GANTRY_DATA);
    gt_runtime_log_remove(runtime, log_line, logged);
}

/* The entry is ignored with a reason that holds `text`; writing it anew heals it. */
static void expect_ignored(const char *text)
{
    cr_assert_eq(get("key", ""), GANTRY_DATA, "%s", text);
    cr_assert(strstr(error.message, text), "\"%s\" is not in: %s", text, error.message);
    cr_assert(strstr(error.message, cache_file()), "%s", error.message);
    put("key", "payload");
    cr_assert_eq(get("key", "payload"), GANTRY_OK, "%s", error.message);
}

/* Offsets of core/cache.c: magic 0, abi 8, key bytes 12, plugin 16, version 80, sizes 112. */
Test(cache, another_component_is_named)
{
    const uint32_t number = 9;
    put("key", "payload");
    write_at(0, "GANTRYC0", 8);
    expect_ignored("cache file of this release");
    write_at(8, &number, 4);
    expect_ignored("the ABI level was 9, and is 1");
    write_at(12, &number, 4);
    expect_ignored("another key, of 9 bytes");
    write_at(16, "gpu", 4);
    expect_ignored("the plugin was gpu, and is cpu");
    write_at(80, "0.0.9", 6);
    expect_ignored("the version of plugin cpu was 0.0.9, and is ");
    write_at(112, &number, 4);
    expect_ignored("it was cut or grew");
    write_at(128, "KEY", 3);
    expect_ignored("another key of the same hash, or damaged");
    write_at(-1, "?", 1);
    expect_ignored("damaged");
    write_at(120, &number, 4);
    expect_ignored("damaged");
}

Test(cache, every_cut_and_every_flipped_byte_is_noticed)
{
    put("key", "payload");
    struct stat info;
    cr_assert_eq(stat(cache_file(), &info), 0);
    for (off_t k = 0; k < info.st_size; k++) {
        cr_assert_eq(truncate(cache_file(), k), 0);
        cr_assert_eq(get("key", ""), GANTRY_DATA, "cut at %lld", (long long)k);
        put("key", "payload");
        FILE *file = fopen(cache_file(), "r+b");
        fseek(file, k, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, k, SEEK_SET);
        fputc(byte ^ 0x20, file);
        fclose(file);
        cr_assert_eq(get("key", ""), GANTRY_DATA, "flipped at %lld", (long long)k);
        put("key", "payload");
    }
    cr_assert_eq(get("key", "payload"), GANTRY_OK);
}

Test(cache, what_is_no_regular_file)
{
    put("key", "payload");
    char path[512];
    snprintf(path, sizeof path, "%s", cache_file());
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(get("key", ""), GANTRY_DATA);
    cr_assert(strstr(error.message, "no regular file"), "%s", error.message);
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(get("key", ""), GANTRY_DATA);
    put("key", "payload");
    cr_assert_eq(get("key", ""), GANTRY_DATA);
    cache_file(); /* nothing half-written is left beside it */
}
