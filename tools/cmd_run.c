/* gantry run, explain: one model, one run, and what the user wants to know of it. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SESSION_ARGS "|MODEL|providers|plugin|cache|threads|option|inputs|image|random|dim|"

static int execute(const cli_args *args, cli_session *session)
{
    gantry_error err = GANTRY_ERROR_INIT;
    long repeats = args->repeat ? (long)strtod(args->repeat, NULL) : 1;
    bool show = repeats > 1 && isatty(STDERR_FILENO);
    for (long k = 0; k < repeats; k++) {
        if (show)
            fprintf(stderr, "\rrun %ld of %ld", k + 1, repeats);
        if (gantry_run_execute(session->run, &err) != GANTRY_OK)
            return cli_fail("run", &err);
    }
    if (show)
        fputc('\n', stderr);
    return CLI_OK;
}

/* Says what came out when nobody asked for a file. */
static int print_outputs(const cli_session *session)
{
    for (uint32_t k = 0; k < gantry_session_output_count(session->session); k++) {
        gantry_error err = GANTRY_ERROR_INIT;
        gantry_value_info info = {.struct_bytes = sizeof info};
        gantry_tensor view = {.struct_bytes = sizeof view};
        if (gantry_session_output(session->session, k, &info, &err) != GANTRY_OK ||
            gantry_run_output(session->run, k, &view, &err) != GANTRY_OK)
            return cli_fail("outputs", &err);
        printf("%s: %s[", info.name, gantry_dtype_text(view.dtype));
        for (uint32_t d = 0; d < view.rank; d++)
            printf(d ? ",%lld" : "%lld", (long long)view.dims[d]);
        printf("]\n");
    }
    return CLI_OK;
}

static int report_run(const cli_session *session, const char *format)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_report *report = NULL;
    if (gantry_session_report(session->session, session->run, &report, &err) != GANTRY_OK)
        return cli_fail("report", &err);
    int code = cli_print_report(report, format);
    gantry_report_destroy(&report);
    return code;
}

static int run_model(const cli_args *args, cli_session *session)
{
    int code = cli_open(args, session);
    if (code == CLI_OK)
        code = cli_bind_inputs(args, session);
    if (code == CLI_OK)
        code = execute(args, session);
    if (code == CLI_OK && !args->outputs && !args->check)
        code = print_outputs(session);
    if (code == CLI_OK && args->outputs)
        code = cli_write_outputs(args->outputs, session);
    if (code == CLI_OK && args->report)
        code = report_run(session, args->format);
    if (code == CLI_OK && args->check)
        code = cli_check_outputs(args, session);
    return code;
}

int cli_run(int argc, char **argv)
{
    cli_args args;
    if (!cli_parse(argc, argv, SESSION_ARGS "outputs|check|atol|rtol|repeat|report|batch|format|", &args))
        return CLI_USAGE;
    if (args.batch)
        return cli_batch(&args);
    cli_session session = {0};
    int code = run_model(&args, &session);
    cli_close(&session);
    return code;
}

static int explain(const cli_args *args, cli_session *session)
{
    int code = cli_open_session(args, session);
    if (code != CLI_OK && session->report)
        cli_print_report(session->report, args->format);
    if (code != CLI_OK)
        return code;
    if (!args->input_count && !args->image_count && !args->seed)
        return cli_print_report(session->report, args->format);
    code = cli_bind_inputs(args, session);
    if (code == CLI_OK)
        code = execute(args, session);
    return code == CLI_OK ? report_run(session, args->format) : code;
}

int cli_explain(int argc, char **argv)
{
    cli_args args;
    if (!cli_parse(argc, argv, SESSION_ARGS "format|", &args))
        return CLI_USAGE;
    if (args.format && strcmp(args.format, "text") != 0 && strcmp(args.format, "json") != 0) {
        fprintf(stderr, "gantry explain: --format is text or json, not %s\n", args.format);
        return CLI_USAGE;
    }
    cli_session session = {0};
    int opened = cli_open_runtime(&args, &session.runtime), code = opened;
    /* A plugin that can't be used is a row of the report. */
    if (opened == CLI_OK || opened == CLI_PLUGIN)
        code = explain(&args, &session);
    cli_close(&session);
    return code == CLI_OK ? opened : code;
}
