/* gantry bench: times a model as an embedding program would run it, with inputs and outputs bound once. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RUNS 400000
#define LEAST_RUNS 3

typedef struct bench_result {
    double create_ms, first_ms, median_ms, p10_ms, p90_ms, rss_load_mb, rss_run_mb;
    size_t runs;
} bench_result;

/* A line of /proc/self/status in MB, 0 when it is not there. */
static double memory_mb(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtod(line + strlen(key) + 1, NULL);
    if (file)
        fclose(file);
    return kib / 1024;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Outputs bound to memory of ours of the size that the first run had. */
static int bind_outputs(cli_session *session, void **memory)
{
    for (uint32_t k = 0; k < gantry_session_output_count(session->session); k++) {
        gantry_error err = GANTRY_ERROR_INIT;
        gantry_tensor view = {.struct_bytes = sizeof view};
        if (gantry_run_output(session->run, k, &view, &err) != GANTRY_OK)
            return cli_fail("outputs", &err);
        size_t bytes = (view.size_bytes + 63) / 64 * 64 + 64;
        memory[k] = aligned_alloc(64, bytes);
        if (!memory[k])
            return CLI_RUN;
        view.buffer = (gantry_buffer){memory[k], 0};
        view.size_bytes = bytes;
        if (gantry_run_bind_output(session->run, k, &view, &err) != GANTRY_OK)
            return cli_fail("outputs", &err);
    }
    return CLI_OK;
}

static int time_runs(cli_session *session, double seconds, bench_result *result)
{
    gantry_error err = GANTRY_ERROR_INIT;
    double *times = malloc(MAX_RUNS * sizeof *times);
    if (!times)
        return CLI_RUN;
    double end = cli_now_ms() + seconds * 1e3;
    size_t count = 0;
    while (count < MAX_RUNS) {
        double begin = cli_now_ms();
        if (count >= LEAST_RUNS && begin >= end)
            break;
        if (gantry_run_execute(session->run, &err) != GANTRY_OK) {
            free(times);
            return cli_fail("run", &err);
        }
        times[count++] = cli_now_ms() - begin;
    }
    qsort(times, count, sizeof *times, compare);
    result->runs = count;
    result->median_ms = times[count / 2];
    result->p10_ms = times[count / 10];
    result->p90_ms = times[count - 1 - count / 10];
    free(times);
    return CLI_OK;
}

static void print_result(const bench_result *r, const char *outputs, bool json)
{
    if (!json) {
        printf("create %.3f ms, first run %.3f ms\nmedian %.4f ms (p10 %.4f, p90 %.4f) over %zu "
               "runs\nmemory: %.1f MB after creation, %.1f MB in all\n",
               r->create_ms, r->first_ms, r->median_ms, r->p10_ms, r->p90_ms, r->runs, r->rss_load_mb,
               r->rss_run_mb);
        return;
    }
    printf("{\"create_ms\": %.6f, \"first_ms\": %.6f, \"median_ms\": %.6f, \"p10_ms\": %.6f, \"p90_ms\": "
           "%.6f, \"runs\": %zu, "
           "\"rss_load_mb\": %.3f, \"rss_run_mb\": %.3f",
           r->create_ms, r->first_ms, r->median_ms, r->p10_ms, r->p90_ms, r->runs, r->rss_load_mb,
           r->rss_run_mb);
    if (outputs) {
        printf(", \"outputs\": \"");
        for (const char *c = outputs; *c; c++)
            printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        putchar('"');
    }
    printf("}\n");
}

static int bench(const cli_args *args, cli_session *session, void **memory)
{
    bench_result result = {0};
    gantry_error err = GANTRY_ERROR_INIT;
    double base = memory_mb("VmRSS"), begin = cli_now_ms();
    int code = cli_open(args, session);
    result.create_ms = cli_now_ms() - begin;
    result.rss_load_mb = memory_mb("VmHWM") - base;
    if (code == CLI_OK)
        code = cli_bind_inputs(args, session);
    begin = cli_now_ms();
    if (code == CLI_OK && gantry_run_execute(session->run, &err) != GANTRY_OK)
        code = cli_fail("run", &err);
    result.first_ms = cli_now_ms() - begin;
    if (code == CLI_OK && args->outputs)
        code = cli_write_outputs(args->outputs, session);
    if (code == CLI_OK)
        code = bind_outputs(session, memory);
    if (code == CLI_OK)
        code = time_runs(session, args->seconds ? strtod(args->seconds, NULL) : 3, &result);
    result.rss_run_mb = memory_mb("VmHWM") - base;
    if (code == CLI_OK)
        print_result(&result, args->outputs, args->json);
    return code;
}

int cli_bench(int argc, char **argv)
{
    cli_args args;
    if (!cli_parse(
            argc, argv,
            "|MODEL|providers|plugin|cache|threads|option|inputs|image|random|dim|seconds|outputs|json|",
            &args))
        return CLI_USAGE;
    cli_session session = {0};
    void *memory[4096] = {0};
    int code = bench(&args, &session, memory);
    cli_close(&session);
    for (size_t k = 0; k < sizeof memory / sizeof *memory; k++)
        free(memory[k]);
    return code;
}
