/* gantry plugin: checks a provider library, or says what it brings. */
#include "cli.h"

#include "plugin/kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_readable(const char *path)
{
    if (access(path, R_OK) == 0)
        return true;
    fprintf(stderr, "gantry plugin: %s can't be read\n", path);
    return false;
}

static int show(const cli_args *args)
{
    kit_results results = {.json = args->json, .plain = true};
    kit_job job = {.path = args->model, .config = args->config ? args->config : "", .results = &results};
    if (!is_readable(args->model))
        return CLI_FILE;
    if (kit_show_file(&results, args->model))
        kit_show_plugin(&job);
    uint32_t failed = results.counts[KIT_FAIL];
    kit_results_end(&results, args->model);
    return failed ? CLI_PLUGIN : CLI_OK;
}

static int check(const cli_args *args)
{
    kit_results results = {.json = args->json};
    if (!is_readable(args->model))
        return CLI_FILE;
    if (!kit_check_groups(args->only))
        return CLI_USAGE;
    kit_job job = {.path = args->model, .config = args->config ? args->config : "", .results = &results};
    job.only = args->only;
    job.seconds = args->seconds ? strtod(args->seconds, NULL) : 0;
    if (kit_check_file(&results, args->model))
        kit_check_plugin(&job);
    uint32_t failed = results.counts[KIT_FAIL];
    kit_results_end(&results, args->model);
    return failed ? CLI_CHECK_FAILED : CLI_OK;
}

int cli_plugin(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const cli_args *args);
    } ACTIONS[] = {{"check", check}, {"show", show}};
    cli_args args;
    for (size_t k = 0; argc > 1 && k < sizeof ACTIONS / sizeof *ACTIONS; k++)
        if (strcmp(argv[1], ACTIONS[k].name) == 0)
            return cli_parse(argc - 1, argv + 1, "|MODEL|config|json|seconds|only|", &args)
                       ? ACTIONS[k].run(&args)
                       : CLI_USAGE;
    fprintf(stderr, "gantry plugin: say what to do: gantry plugin check FILE.so, or show FILE.so\n");
    return CLI_USAGE;
}
