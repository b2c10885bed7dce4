/* gantry optimize: rewrites a model and writes it as ONNX in standard operators. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "NAME=VALUE" as the option PREFIXNAME=VALUE. */
static int set_prefixed(gantry_options *options, const char *prefix, const char *pair)
{
    char key[512];
    gantry_error err = GANTRY_ERROR_INIT;
    const char *equals = strrchr(pair, '=');
    if (!equals || equals == pair || (size_t)(equals - pair) + strlen(prefix) >= sizeof key) {
        fprintf(stderr, "gantry optimize: NAME=VALUE is wanted, not %s\n", pair);
        return CLI_USAGE;
    }
    snprintf(key, sizeof key, "%s%.*s", prefix, (int)(equals - pair), pair);
    if (gantry_options_set(options, key, equals + 1, &err) == GANTRY_OK)
        return CLI_OK;
    fprintf(stderr, "gantry optimize: %s\n", err.message);
    return CLI_USAGE;
}

static int set_disabled(gantry_options *options, const char *rule)
{
    char pair[256];
    snprintf(pair, sizeof pair, "%s=off", rule);
    return set_prefixed(options, "rewrites.", pair);
}

static int make_options(const cli_args *args, gantry_options *options)
{
    int code = cli_set_options(args, options);
    for (int k = 0; k < args->dim_count && code == CLI_OK; k++)
        code = set_prefixed(options, "dim.", args->dims[k]);
    for (int k = 0; k < args->shape_count && code == CLI_OK; k++)
        code = set_prefixed(options, "shape.", args->shapes[k]);
    for (int k = 0; k < args->disable_count && code == CLI_OK; k++)
        code = set_disabled(options, args->disabled[k]);
    if (code == CLI_OK && args->no_rewrites)
        code = set_prefixed(options, "", "rewrites=off");
    return code;
}

/* A target that is read from, or a file that cannot be made, is a matter of files. */
static int optimize_error(const cli_args *args, const gantry_error *err)
{
    int code = cli_model_error(args->model, err);
    return err->code == GANTRY_RESOURCE ? CLI_FILE : code;
}

static int optimize(const cli_args *args, gantry_runtime *runtime, const gantry_options *options)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_report *report = NULL;
    gantry_optimize_target target = GANTRY_OPTIMIZE_TARGET_INIT;
    target.path = args->output;
    target.external_data = args->external_data;
    if (args->growth_limit)
        target.growth_limit_bytes = (uint64_t)strtod(args->growth_limit, NULL);
    if (gantry_model_optimize(runtime, args->model, options, &target, &report, &err) != GANTRY_OK)
        return optimize_error(args, &err);
    bool silent = args->format && strcmp(args->format, "none") == 0;
    int code = report && !silent ? cli_print_report(report, args->format) : CLI_OK;
    gantry_report_destroy(&report);
    return code;
}

int cli_optimize(int argc, char **argv)
{
    cli_args args;
    if (!cli_parse(argc, argv,
                   "|MODEL|output|option|dim|shape|disable|no-rewrites|external-data|growth-limit|format|",
                   &args))
        return CLI_USAGE;
    if (!args.output) {
        fprintf(stderr, "gantry optimize: say where the model goes (-o OUT.onnx)\n");
        return CLI_USAGE;
    }
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_runtime *runtime = NULL;
    gantry_options *options = NULL;
    int code = cli_open_runtime(&args, &runtime);
    if (code == CLI_OK && gantry_options_create(&options, &err) != GANTRY_OK)
        code = cli_fail("options", &err);
    if (code == CLI_OK)
        code = make_options(&args, options);
    if (code == CLI_OK)
        code = optimize(&args, runtime, options);
    gantry_options_destroy(&options);
    gantry_runtime_destroy(&runtime, NULL);
    return code;
}
