/* What tests of copies share: two devices that count and log what they do, models that need both, and the
 * ledger, which must agree with what the devices counted. */
#ifndef GT_TEST_TRANSFERS_FIXTURE_H
#define GT_TEST_TRANSFERS_FIXTURE_H

#include "../support/both_devices.h"
#include "../support/fake_counters.h"
#include "../support/small_models.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#define BOTH "providers=a,b,cpu;plan=priority"
/* Without peers, and with them where the devices know it. */
#define PEERS (both_is_fake() ? 2 : 1)
#define ROWS 8
#define COUNT (ROWS * 4)
#define BYTES (COUNT * sizeof(float))

/* ---- devices --------------------------------------------------------------------------------- */

static char log_path[64];
static float x[COUNT], z[COUNT];

static inline void begin(void)
{
    snprintf(counters_path, sizeof counters_path, "/tmp/gantry_transfersXXXXXX");
    snprintf(log_path, sizeof log_path, "/tmp/gantry_logXXXXXX");
    close(mkstemp(counters_path));
    close(mkstemp(log_path));
    for (int k = 0; k < COUNT; k++) {
        x[k] = (float)(k - 5);
        z[k] = (float)(3 * k + 1);
    }
}

static inline void begin_opencl(void)
{
    both_use_opencl();
    begin();
}

static inline void end(void)
{
    unlink(counters_path);
    unlink(log_path);
}

/* a has Neg, Abs and Add, b has Relu and Mul; `keys` are further ones of both. */
static inline const char *devices(const char *keys)
{
    static char config[1200];
    snprintf(config, sizeof config,
             "{\"counters_file\": \"%s\", \"log_file\": \"%s\", \"devices\": ["
             "{\"name\": \"a\", \"ops\": {\"Neg\": [\"float32\"], \"Abs\": [\"float32\"], \"Add\": "
             "[\"float32\"]}%s},"
             "{\"name\": \"b\", \"ops\": {\"Relu\": [\"float32\"], \"Mul\": [\"float32\"]}%s}]}",
             counters_path, log_path, keys, keys);
    return config;
}

/* ---- models ---------------------------------------------------------------------------------- */

/* y = Abs(Relu(Neg(x))): a, b, a. */
static inline wire there_and_back(void)
{
    wire g = small_graph("there");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "n"));
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", "relu1", "n", "r"));
    wire_message(&g, GRAPH_NODE, onnx_node("Abs", "abs1", "r", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

/* ---- running --------------------------------------------------------------------------------- */

static inline small_session open_on(wire model, const char *keys, const char *options)
{
    small_session s = small_open_with(model, both_plugin, devices(keys), options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    return s;
}

static inline void run(small_session *s)
{
    cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
}

static inline void check_there_and_back(small_session *s)
{
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; k < COUNT; k++)
        cr_assert_eq(small_floats_of(&y)[k], x[k] < 0 ? -x[k] : 0, "element %d", k);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static inline json_t *ledger_of(small_session *s)
{
    gantry_report *report = NULL;
    const char *text = NULL;
    size_t bytes = 0;
    cr_assert_eq(gantry_session_report(s->session, s->run, &report, &s->err), GANTRY_OK);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_TEXT, &text, &bytes, NULL), GANTRY_OK);
    cr_assert_not_null(strstr(text, "Ledger: every byte"));
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &text, &bytes, NULL), GANTRY_OK);
    json_t *document = json_loadb(text, bytes, 0, NULL);
    json_t *ledger = json_incref(json_object_get(document, "ledger"));
    json_decref(document);
    gantry_report_destroy(&report);
    return ledger;
}

static inline uint64_t number(const json_t *row, const char *key)
{
    cr_assert(json_is_integer(json_object_get(row, key)), "%s is no count", key);
    return (uint64_t)json_integer_value(json_object_get(row, key));
}

/* What the device counted since `before` is what the ledger's sums say. */
static inline void check_device(const json_t *ledger, int device, const counters *before)
{
    const json_t *row = json_array_get(json_object_get(ledger, "devices"), (size_t)device);
    counters now = counted_by(device);
    cr_assert_str_eq(json_string_value(json_object_get(row, "domain")), now.name);
    cr_assert_eq(number(row, "bytes"), now.copied_bytes - before->copied_bytes, "%s copied %zu bytes",
                 now.name, (size_t)(now.copied_bytes - before->copied_bytes));
    cr_assert_eq(number(row, "copies"), now.copies - before->copies, "%s made %zu copies", now.name,
                 (size_t)(now.copies - before->copies));
    cr_assert_eq(number(row, "peer_bytes"), now.peer_bytes - before->peer_bytes);
    cr_assert_eq(number(row, "peer_copies"), now.peer_copies - before->peer_copies);
    cr_assert_eq(number(row, "inside_bytes"), now.inside_bytes - before->inside_bytes);
    cr_assert_eq(number(row, "inside_copies"), now.inside_copies - before->inside_copies);
}

/* The row of a tensor that goes to a domain, or NULL. */
static inline const json_t *row_of(const json_t *ledger, const char *tensor, const char *target)
{
    size_t k;
    json_t *row;
    json_array_foreach(json_object_get(ledger, "rows"), k,
                       row) if (strcmp(json_string_value(json_object_get(row, "tensor")), tensor) == 0 &&
                                strcmp(json_string_value(json_object_get(row, "target")), target) ==
                                    0) return row;
    return NULL;
}

static inline void check_row(const json_t *ledger, const char *tensor, const char *target, const char *cause,
                             const char *path)
{
    const json_t *row = row_of(ledger, tensor, target);
    cr_assert_not_null(row, "%s does not go to %s", tensor, target);
    cr_assert_str_eq(json_string_value(json_object_get(row, "cause")), cause, "of %s", tensor);
    cr_assert_str_eq(json_string_value(json_object_get(row, "path")), path, "of %s", tensor);
    cr_assert_eq(number(row, "bytes"), BYTES, "of %s", tensor);
}

/* Runs once more and compares. */
static inline json_t *checked_ledger(small_session *s)
{
    counters before[2] = {counted_by(0), counted_by(1)};
    run(s);
    json_t *ledger = ledger_of(s);
    check_device(ledger, 0, &before[0]);
    check_device(ledger, 1, &before[1]);
    return ledger;
}

#endif
