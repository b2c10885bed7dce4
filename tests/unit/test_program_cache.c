/* Compiled programs that outlive the process: what is loaded is what was compiled, what changed is named, and
 * nothing that goes wrong with the cache fails a session. */
#include "../support/report_reader.h"
#include "../support/test_folder.h"
#include "core/host_parts.h"
#include "core/session.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define DEVICE(more)                                                                                         \
    "{\"devices\": [{\"name\": \"dev\", \"blobs\": true, \"ops\": {\"MatMul\": [\"float32\"], "              \
    "\"Add\": [\"float32\"], \"Relu\": [\"float32\"], \"Softmax\": [\"float32\"], "                          \
    "\"LeakyRelu\": [\"float32\"]}, \"fused\": {\"MatMul+Add\": [\"float32\"], "                             \
    "\"Relu+LeakyRelu\": [\"float16\"]}" more "}]}"
#define ON_DEVICE "providers=dev,cpu;plan=priority;threads=1"

static void begin(void)
{
    test_folder_open();
    setenv("GANTRY_CACHE", folder, 1);
}

static void end(void)
{
    unsetenv("GANTRY_CACHE");
    test_folder_close();
}

TestSuite(program_cache, .init = begin, .fini = end);

/* ---- a model with everything that a key depends on ------------------------------------------- */

typedef struct net {
    float weight; /* of w[0] */
    float alpha;
    int64_t rows;
    const char *name; /* of the product */
    int type;         /* of the output of Relu: only float32 is taken */
} net;

static const net PLAIN = {.weight = 1, .alpha = 0.25f, .rows = 2, .name = "product"};

/* y = LeakyRelu(Relu(x W + b)) */
static wire net_model(net n)
{
    static float w[16], b[4] = {1, -2, 3, -4};
    const int64_t dims[2] = {4, 4};
    for (int k = 0; k < 16; k++)
        w[k] = (float)(k % 5) / 3;
    w[0] = n.weight;
    wire g = small_graph("net");
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", SMALL_F32, 2, dims, w, sizeof w));
    small_floats(&g, "b", 4, b);
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", n.name, "x,w", "p"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "bias", "p,b", "s"));
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", "relu", "s", "r"));
    wire leaky = onnx_node("LeakyRelu", "leaky", "r", "y");
    onnx_set_float(&leaky, "alpha", n.alpha);
    wire_message(&g, GRAPH_NODE, leaky);
    small_input(&g, "x", SMALL_F32, 2, n.rows, 4);
    small_output(&g, "y", SMALL_F32, 2, n.rows, 4);
    return small_model(g);
}

static small_session open_net(net n, const char *config, const char *options)
{
    small_session s = small_open_with(net_model(n), FAKE, config, options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    return s;
}

static small_session open_plain(void)
{
    return open_net(PLAIN, DEVICE(""), ON_DEVICE);
}

/* One more session in the runtime of the first, which keeps its own. */
static small_session open_beside(const small_session *first, net n, const char *options)
{
    small_session s = {.runtime = first->runtime, .err = GANTRY_ERROR_INIT};
    small_create(&s, net_model(n), options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    return s;
}

static void close_beside(small_session *s)
{
    gantry_run_destroy(&s->run);
    gantry_report_destroy(&s->report);
    cr_assert_eq(gantry_session_destroy(&s->session, &s->err), GANTRY_OK, "%s", s->err.message);
}

static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static void run_net(small_session *s, float *out_y)
{
    static float x[8] = {0.1f, -0.7f, 1.3f, 2, -0.9f, 0.3f, 1e-3f, -5};
    cr_assert_eq(small_bind(s, 0, SMALL_F32, 2, 2, 4, x), GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
    gantry_tensor y = small_result(s, 0);
    cr_assert_eq(y.size_bytes, 32);
    memcpy(out_y, small_floats_of(&y), 32);
}

/* ---- what the report says -------------------------------------------------------------------- */

/* The cache of the partition on the device, as "state: detail". */
static const char *cache_of(small_session *s)
{
    static char text[2000];
    json_t *document = report_of(s), *cache = at(row_of(document, "partitions", "provider", "dev"), "cache");
    snprintf(text, sizeof text, "%s: %s", string(cache, "state"), string(cache, "detail"));
    json_decref(document);
    return text;
}

/* Opens the model, runs it, and compares what the report says of the cache. */
static void expect_cache(net n, const char *config, const char *options, const char *expected)
{
    small_session s = open_net(n, config, options);
    cr_assert_str_eq(cache_of(&s), expected);
    small_close(&s);
}

static bool has_note(json_t *document, const char *words)
{
    size_t k;
    json_t *row;
    bool found = false;
    json_array_foreach(at(document, "notes"), k, row) if (strcmp(string(row, "code"), "program_cache") == 0)
        found |= strstr(string(row, "text"), words) != NULL;
    return found;
}

/* ---- hits ------------------------------------------------------------------------------------ */

static json_t *sorted_records(small_session *s, const char *table)
{
    json_t *document = report_of(s), *rows = json_incref(at(document, table));
    json_decref(document);
    return rows;
}

Test(program_cache, a_loaded_program_computes_the_same_bits_and_tells_the_same)
{
    float compiled[8], loaded[8];
    small_session s = open_plain();
    cr_assert_str_eq(cache_of(&s), "miss: nothing is kept for these nodes");
    json_t *kernels = sorted_records(&s, "kernels"), *fusions = sorted_records(&s, "fusions");
    cr_assert_eq(json_array_size(kernels), 3, "a chain of two, and two");
    cr_assert_eq(json_array_size(fusions), 2, "one is applied, and one is not");
    run_net(&s, compiled);
    small_close(&s);

    s = open_plain();
    cr_assert_str_eq(cache_of(&s), "hit: ");
    json_t *kernels2 = sorted_records(&s, "kernels"), *fusions2 = sorted_records(&s, "fusions");
    cr_assert(json_equal(kernels, kernels2), "%s\n%s", json_dumps(kernels, 0), json_dumps(kernels2, 0));
    cr_assert(json_equal(fusions, fusions2), "%s\n%s", json_dumps(fusions, 0), json_dumps(fusions2, 0));
    run_net(&s, loaded);
    cr_assert(same_bits(compiled, loaded, sizeof loaded));
    json_decref(kernels);
    json_decref(kernels2);
    json_decref(fusions);
    json_decref(fusions2);
    small_close(&s);
}

static bool has_line(json_t *key, const char *begin)
{
    size_t k;
    json_t *line;
    json_array_foreach(key, k,
                       line) if (strncmp(json_string_value(line), begin, strlen(begin)) == 0) return true;
    return false;
}

Test(program_cache, a_hit_lists_its_key_and_its_file)
{
    static const char *const LINES[] = {"provider=dev",
                                        "partition=#",
                                        "plugin=fake 1.0",
                                        "ABI level=1",
                                        "Gantry version=",
                                        "provider version=",
                                        "fingerprint=fake device",
                                        "config of the plugin=#",
                                        "option fuse=on",
                                        "option share=off",
                                        "threads=1",
                                        "exact=off",
                                        "attributes=#",
                                        "types=#",
                                        "sizes=#",
                                        "edge formats=#",
                                        "constant 0 (w)=#",
                                        "constant 1 (b)=#",
                                        "option exclude=",
                                        "option cache=off"};
    small_session s = open_plain();
    small_close(&s);
    s = open_plain();
    json_t *document = report_of(&s), *cache = at(document, "partitions.0.cache");
    for (size_t k = 0; k < sizeof LINES / sizeof *LINES; k++)
        cr_assert(has_line(at(cache, "key"), LINES[k]), "no line %s", LINES[k]);
    cr_assert(is_there(string(cache, "file")), "%s", string(cache, "file"));
    cr_assert_gt(number(cache, "bytes"), 16 * 4);
    cr_assert_gt(number(cache, "lookup_us"), 0);
    gantry_report *report = NULL;
    cr_assert_eq(gantry_session_report(s.session, NULL, &report, &s.err), GANTRY_OK);
    cr_assert(strstr(text_of(report), "cache: hit, "), "%s", text_of(report));
    cr_assert(strstr(text_of(report), "cache of programs: 1 loaded, 0 compiled"), "%s", text_of(report));
    gantry_report_destroy(&report);
    json_decref(document);
    small_close(&s);
}

Test(program_cache, a_program_serves_every_size_of_a_symbolic_dim)
{
    net symbolic = PLAIN;
    float first[8], second[8];
    symbolic.rows = -1;
    small_session s = open_net(symbolic, DEVICE(""), ON_DEVICE);
    run_net(&s, first);
    small_close(&s);
    s = open_net(symbolic, DEVICE(""), ON_DEVICE);
    static float x[4] = {1, 2, 3, 4};
    cr_assert_eq(small_bind(&s, 0, SMALL_F32, 2, 1, 4, x), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    run_net(&s, second);
    cr_assert(same_bits(first, second, sizeof first));
    cr_assert_str_eq(cache_of(&s), "hit: ");
    small_close(&s);
}

Test(program_cache, nothing_is_done_without_a_folder_or_without_the_entries)
{
    small_session s =
        small_open_with(net_model(PLAIN), FAKE, DEVICE(", \"late\": true"), "providers=cpu;threads=1");
    json_t *document = report_of(&s);
    cr_assert(json_is_null(at(document, "partitions.0.cache")), "the CPU provider keeps nothing");
    json_decref(document);
    small_close(&s);
    unsetenv("GANTRY_CACHE");
    s = open_plain();
    document = report_of(&s);
    cr_assert(json_is_null(at(document, "partitions.0.cache")));
    for (uint32_t k = 0; k < s.session->model->constants.count; k++)
        cr_assert_not(s.session->model->constants.data[k].hashed, "constants are read for a key alone");
    json_decref(document);
    small_close(&s);
    test_folder_expect_only(0, NULL);
}

Test(program_cache, a_provider_that_takes_one_call_at_a_time)
{
    for (int turn = 0; turn < 2; turn++)
        expect_cache(PLAIN, DEVICE(", \"concurrency\": \"serial\""), ON_DEVICE,
                     turn ? "hit: " : "miss: nothing is kept for these nodes");
}

Test(program_cache, constants_that_sessions_share)
{
    float compiled[8], loaded[8];
    small_session s = open_net(PLAIN, DEVICE(""), ON_DEVICE ";dev.share=on");
    run_net(&s, compiled);
    small_session more = open_beside(&s, PLAIN, ON_DEVICE ";dev.share=on");
    cr_assert_str_eq(cache_of(&more), "hit: ");
    run_net(&more, loaded);
    cr_assert(same_bits(compiled, loaded, sizeof loaded));
    json_t *document = report_of(&more);
    cr_assert_eq(number(document, "memory.packed.0.users"), 4, "the loaded ones are shared as well");
    json_decref(document);
    close_beside(&more);
    small_close(&s);
}

/* Bodies and what they read are part of the partition when the device takes the loop whole. */
Test(program_cache, a_loop_that_is_taken_whole)
{
    static float start[4] = {1, 2, 3, 4};
    static int64_t trips = 3;
    static const char config[] =
        "{\"devices\": [{\"name\": \"dev\", \"blobs\": true, \"ops\": {\"Loop\": [], "
        "\"Add\": [\"float32\"], \"Identity\": [\"bool\"]}}]}";
    for (int turn = 0; turn < 2; turn++) {
        small_session s = small_open_with(small_loop(), FAKE, config, ON_DEVICE);
        cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
        cr_assert_eq(small_bind(&s, 0, SMALL_I64, 0, 0, 0, &trips), GANTRY_OK);
        cr_assert_eq(small_bind(&s, 1, SMALL_F32, 1, 4, 0, start), GANTRY_OK);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        for (int k = 0; k < 4; k++)
            cr_assert_eq(small_floats_of(&y)[k], start[k] + 3);
        json_t *document = report_of(&s), *row = row_of(document, "partitions", "provider", "dev");
        cr_assert(json_is_false(at(row, "control")), "the loop was to be taken whole");
        cr_assert_str_eq(string(row, "cache.state"), turn ? "hit" : "miss");
        cr_assert(has_line(at(row, "cache.key"), "constant 0 (one)=#"), "the body's constant");
        json_decref(document);
        small_close(&s);
    }
}

/* x + c0 + c1 + ...: more constants than a key has lines for. */
static wire many_constants(float last)
{
    wire g = small_graph("many");
    char before[16] = "x";
    for (int k = 0; k < 300; k++) {
        const float value = k == 299 ? last : (float)k;
        char constant[16], next[16], node[16], inputs[40];
        snprintf(constant, sizeof constant, "c%d", k);
        snprintf(node, sizeof node, "add%d", k);
        snprintf(inputs, sizeof inputs, "%.15s,%.15s", before, constant);
        snprintf(next, sizeof next, k == 299 ? "y" : "t%d", k);
        small_floats(&g, constant, 1, &value);
        wire_message(&g, GRAPH_NODE, onnx_node("Add", node, inputs, next));
        memcpy(before, next, sizeof before);
    }
    small_input(&g, "x", SMALL_F32, 1, 4, 0);
    small_output(&g, "y", SMALL_F32, 1, 4, 0);
    return small_model(g);
}

Test(program_cache, more_constants_than_lines)
{
    static const char *const EXPECTED[] = {"miss: nothing is kept for these nodes",
                                           "miss: constants has changed", "hit: "};
    for (int turn = 0; turn < 3; turn++) {
        small_session s = small_open_with(many_constants(turn ? 7 : 5), FAKE, DEVICE(""),
                                          ON_DEVICE ";rewrites=off;fold=off");
        cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
        cr_assert_str_eq(cache_of(&s), EXPECTED[turn]);
        small_close(&s);
    }
}

/* ---- misses, with what changed --------------------------------------------------------------- */

Test(program_cache, every_change_of_the_model_is_named)
{
    net heavier = PLAIN, flatter = PLAIN, longer = PLAIN, renamed = PLAIN;
    heavier.weight = 1.5f;
    flatter.alpha = 0.5f;
    longer.rows = 3;
    renamed.name = "another";
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "miss: nothing is kept for these nodes");
    expect_cache(heavier, DEVICE(""), ON_DEVICE, "miss: constant 0 (w) has changed");
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "hit: ");
    expect_cache(flatter, DEVICE(""), ON_DEVICE, "miss: attributes has changed");
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "hit: ");
    expect_cache(longer, DEVICE(""), ON_DEVICE, "miss: sizes has changed");
    expect_cache(longer, DEVICE(""), ON_DEVICE, "hit: ");
    expect_cache(heavier, DEVICE(""), ON_DEVICE, "hit: ");
    expect_cache(renamed, DEVICE(""), ON_DEVICE, "miss: nothing is kept for these nodes");
}

Test(program_cache, every_change_of_the_options_is_named)
{
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "miss: nothing is kept for these nodes");
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE ";dev.fuse=off",
                 "miss: option fuse was \"on\", and is \"off\"");
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "hit: ");
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE ";exact=on", "miss: exact was \"off\", and is \"on\"");
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "hit: ");
    expect_cache(PLAIN, DEVICE(""), "providers=dev,cpu;plan=priority;threads=2",
                 "miss: threads was \"1\", and is \"2\"");
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE ";timing=events", "hit: ");
    expect_cache(PLAIN, DEVICE(", \"reshape_us\": 0"), ON_DEVICE, "miss: config of the plugin has changed");
}

/* As a newer release of the plugin, or another device, would say. */
Test(program_cache, another_version_or_device_is_named)
{
    small_session s = open_plain();
    gantry_provider_info *info = &s.session->providers[0].entry->info;
    gantry_provider_info before = *info;
    snprintf(info->version, sizeof info->version, "2.0");
    small_session more = open_beside(&s, PLAIN, ON_DEVICE);
    cr_assert_str_eq(cache_of(&more), "miss: provider version was \"1.0\", and is \"2.0\"");
    close_beside(&more);
    *info = before;
    snprintf(info->fingerprint, sizeof info->fingerprint, "driver 7");
    more = open_beside(&s, PLAIN, ON_DEVICE ";exact=on");
    cr_assert(strstr(cache_of(&more), "fingerprint was \"fake device 1.0\", and is \"driver 7\""), "%s",
              cache_of(&more));
    cr_assert(strstr(cache_of(&more), "exact was \"off\", and is \"on\""), "%s", cache_of(&more));
    close_beside(&more);
    *info = before;
    snprintf(s.runtime->plugins.data[0]->version, 32, "1.1");
    more = open_beside(&s, PLAIN, ON_DEVICE);
    cr_assert(strstr(cache_of(&more), "plugin was \"fake 1.0\", and is \"fake 1.1\""), "%s", cache_of(&more));
    close_beside(&more);
    small_close(&s);
}

Test(program_cache, entries_of_one_partition_are_bounded)
{
    net n = PLAIN;
    for (int k = 0; k < 20; k++) {
        n.weight = (float)k;
        small_session s = open_net(n, DEVICE(""), ON_DEVICE);
        small_close(&s);
    }
    int count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; (entry = readdir(entries));)
        count += entry->d_name[0] != '.';
    closedir(entries);
    cr_assert_eq(count, 16);
    expect_cache(n, DEVICE(""), ON_DEVICE, "hit: ");
    n.weight = 0;
    expect_cache(n, DEVICE(""), ON_DEVICE, "miss: constant 0 (w) has changed");
}

/* ---- files that are damaged ------------------------------------------------------------------ */

/* The one file in the folder. */
static const char *program_file(void)
{
    static char path[512];
    int count = 0;
    DIR *entries = opendir(folder);
    cr_assert_not_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.' && ++count)
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    closedir(entries);
    cr_assert_eq(count, 1, "%d files", count);
    return path;
}

static void expect_rebuilt(const char *words)
{
    float y[8];
    static float expected[8];
    static bool known;
    small_session s = open_plain();
    run_net(&s, y);
    cr_assert(strncmp(cache_of(&s), "damaged: ", 9) == 0 && strstr(cache_of(&s), words), "%s", cache_of(&s));
    json_t *document = report_of(&s);
    cr_assert(has_note(document, words), "no note of it");
    json_decref(document);
    if (!known)
        memcpy(expected, y, sizeof y);
    known = true;
    cr_assert(same_bits(expected, y, sizeof y));
    small_close(&s);
}

static void flip_byte(long offset)
{
    FILE *file = fopen(program_file(), "r+b");
    cr_assert(file && fseek(file, offset, SEEK_SET) == 0);
    int byte = fgetc(file);
    cr_assert(fseek(file, offset, SEEK_SET) == 0 && fputc(byte ^ 0x40, file) != EOF && fclose(file) == 0);
}

Test(program_cache, damaged_files_are_compiled_anew_with_a_note)
{
    struct stat info;
    small_session s = open_plain();
    small_close(&s);
    cr_assert_eq(stat(program_file(), &info), 0);
    for (long cut = 0; cut < info.st_size; cut += 97) {
        cr_assert_eq(truncate(program_file(), cut), 0);
        expect_rebuilt("is ignored, and will be written anew");
        expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "hit: ");
    }
    for (long offset = 0; offset < info.st_size; offset += 61) {
        flip_byte(offset);
        expect_rebuilt("is ignored, and will be written anew");
    }
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "hit: ");
}

Test(program_cache, a_damaged_relative_names_nothing_and_harms_nothing)
{
    net heavier = PLAIN;
    heavier.weight = 3;
    small_session s = open_plain();
    small_close(&s);
    cr_assert_eq(truncate(program_file(), 200), 0);
    expect_cache(heavier, DEVICE(""), ON_DEVICE, "miss: nothing is kept for these nodes");
    expect_cache(heavier, DEVICE(""), ON_DEVICE, "hit: ");
}

/* ---- providers that do not take it ----------------------------------------------------------- */

static void expect_refused(const char *fail, const char *words)
{
    float compiled[8], y[8];
    char config[800];
    snprintf(config, sizeof config, DEVICE(", \"fail\": {\"%s\": 1}"), fail);
    small_session s = open_net(PLAIN, config, ON_DEVICE);
    run_net(&s, compiled);
    json_t *kernels = sorted_records(&s, "kernels"), *fusions = sorted_records(&s, "fusions");
    small_session more = open_beside(&s, PLAIN, ON_DEVICE);
    cr_assert(strncmp(cache_of(&more), "refused: ", 9) == 0 && strstr(cache_of(&more), words), "%s",
              cache_of(&more));
    run_net(&more, y);
    cr_assert(same_bits(compiled, y, sizeof y));
    json_t *document = report_of(&more);
    cr_assert(has_note(document, words));
    cr_assert(json_equal(kernels, at(document, "kernels")), "the load's records stay beside the compile's");
    cr_assert(json_equal(fusions, at(document, "fusions")));
    json_decref(document);
    close_beside(&more);
    more = open_beside(&s, PLAIN, ON_DEVICE);
    cr_assert_str_eq(cache_of(&more), "hit: ");
    json_decref(kernels);
    json_decref(fusions);
    close_beside(&more);
    small_close(&s);
}

Test(program_cache, a_load_that_says_data_is_compiled)
{
    expect_refused("stale", "the scripted failure of load call 1");
}

Test(program_cache, a_load_that_fails_otherwise_is_compiled)
{
    expect_refused("load", "the scripted failure of load call 1");
}

Test(program_cache, a_save_that_fails_costs_the_entry_only)
{
    float y[8];
    small_session s = open_net(PLAIN, DEVICE(", \"fail\": {\"save\": 1}"), ON_DEVICE);
    json_t *document = report_of(&s);
    cr_assert(strstr(string(document, "partitions.0.cache.not_kept"), "failure of save call 1"));
    cr_assert(has_note(document, "not kept for the next time"));
    json_decref(document);
    run_net(&s, y);
    test_folder_expect_only(0, NULL);
    small_session more = open_beside(&s, PLAIN, ON_DEVICE);
    cr_assert_str_eq(cache_of(&more), "miss: nothing is kept for these nodes");
    close_beside(&more);
    more = open_beside(&s, PLAIN, ON_DEVICE);
    cr_assert_str_eq(cache_of(&more), "hit: ");
    close_beside(&more);
    small_close(&s);
}

Test(program_cache, a_folder_that_cannot_be_written_costs_the_entry_only)
{
    float y[8];
    put_file(inside("no_folder"), "x", 1);
    setenv("GANTRY_CACHE", inside("no_folder"), 1);
    small_session s = open_plain();
    run_net(&s, y);
    json_t *document = report_of(&s);
    cr_assert(strstr(string(document, "partitions.0.cache.not_kept"), "was not written"), "%s",
              string(document, "partitions.0.cache.not_kept"));
    json_decref(document);
    small_close(&s);
}

Test(program_cache, a_compile_that_fails_leaves_nothing)
{
    small_session s = open_net(PLAIN, DEVICE(", \"fail\": {\"compile\": 1}"), ON_DEVICE);
    test_folder_expect_only(0, NULL);
    small_session more = open_beside(&s, PLAIN, ON_DEVICE);
    cr_assert_str_eq(cache_of(&more), "miss: nothing is kept for these nodes");
    close_beside(&more);
    small_close(&s);
}

/* ---- two processes --------------------------------------------------------------------------- */

#define PROCESSES 4
#define TURNS 12

/* Removes all whole entries, so that everybody writes again. */
static void remove_programs(void)
{
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && strcmp(dot, ".program") == 0)
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    if (entries)
        closedir(entries);
}

/* Status 0: all sessions of the process computed what its first one did. No assertions: this is no process of
 * the test's framework. */
static int write_often(int gate)
{
    static float x[8] = {0.1f, -0.7f, 1.3f, 2, -0.9f, 0.3f, 1e-3f, -5}, first[8];
    char go;
    if (read(gate, &go, 1) != 0) /* closed: all are there */
        return 2;
    for (int k = 0; k < TURNS; k++) {
        small_session s = small_open_with(net_model(PLAIN), FAKE, DEVICE(""), ON_DEVICE);
        if (s.status != GANTRY_OK || small_bind(&s, 0, SMALL_F32, 2, 2, 4, x) != GANTRY_OK ||
            gantry_run_execute(s.run, &s.err) != GANTRY_OK)
            return 3;
        gantry_tensor y = small_result(&s, 0);
        if (k == 0)
            memcpy(first, small_floats_of(&y), sizeof first);
        if (!same_bits(first, small_floats_of(&y), sizeof first))
            return 4;
        small_close(&s);
        if (k + 1 < TURNS)
            remove_programs();
    }
    return 0;
}

Test(program_cache, processes_that_write_at_once_leave_one_whole_entry)
{
    int gate[2];
    pid_t children[PROCESSES];
    cr_assert_eq(pipe(gate), 0);
    for (int k = 0; k < PROCESSES; k++) {
        children[k] = fork();
        cr_assert_geq(children[k], 0);
        if (children[k] == 0) {
            close(gate[1]);
            _exit(write_often(gate[0]));
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int k = 0; k < PROCESSES; k++) {
        int status = -1;
        cr_assert_eq(waitpid(children[k], &status, 0), children[k]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d ended with %x", k, status);
    }
    program_file(); /* one, and nothing half-written beside it */
    expect_cache(PLAIN, DEVICE(""), ON_DEVICE, "hit: ");
}
