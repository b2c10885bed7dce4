/* gantry inspect, providers, doctor: looking without running. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_value(const char *role, const gantry_value_info *info)
{
    printf("%-7s %s: %s[", role, info->name, gantry_dtype_text(info->dtype));
    for (int32_t d = 0; d < info->rank; d++) {
        if (d)
            putchar(',');
        if (info->dims[d] >= 0)
            printf("%lld", (long long)info->dims[d]);
        else if (info->dim_names[d] && strcmp(info->dim_names[d], "?") != 0)
            fputs(info->dim_names[d], stdout);
        else if (strcmp(role, "input") == 0)
            printf("%s[%d]", info->name, (int)d);
        else
            putchar('?');
    }
    printf("%s]%s\n", info->rank < 0 ? "..." : "", info->has_default ? " (has a default)" : "");
}

int cli_inspect(int argc, char **argv)
{
    cli_args args;
    if (!cli_parse(argc, argv, "|MODEL|providers|plugin|option|", &args))
        return CLI_USAGE;
    cli_session session = {0};
    int code = cli_open(&args, &session);
    for (uint32_t k = 0; code == CLI_OK && k < gantry_session_input_count(session.session); k++) {
        gantry_value_info info = {.struct_bytes = sizeof info};
        if (gantry_session_input(session.session, k, &info, NULL) == GANTRY_OK)
            print_value("input", &info);
    }
    for (uint32_t k = 0; code == CLI_OK && k < gantry_session_output_count(session.session); k++) {
        gantry_value_info info = {.struct_bytes = sizeof info};
        if (gantry_session_output(session.session, k, &info, NULL) == GANTRY_OK)
            print_value("output", &info);
    }
    static const char *const KEYS[] = {"producer_name", "producer_version", "domain", "model_version",
                                       "graph_name",    "ir_version",       "opset"};
    for (size_t k = 0; code == CLI_OK && k < sizeof KEYS / sizeof *KEYS; k++) {
        const char *value = gantry_session_metadata(session.session, KEYS[k]);
        if (value && value[0])
            printf("%s: %s\n", KEYS[k], value);
    }
    for (uint32_t k = 0; code == CLI_OK && k < gantry_session_metadata_count(session.session); k++) {
        const char *key = gantry_session_metadata_key(session.session, k),
                   *value = gantry_session_metadata(session.session, key);
        size_t length = value ? strlen(value) : 0;
        printf("metadata %s: %.*s%s\n", key, (int)(length < 60 ? strcspn(value ? value : "", "\r\n") : 60),
               value ? value : "", length > 60 ? " ..." : "");
    }
    cli_close(&session);
    return code;
}

static void print_providers(const gantry_runtime *runtime)
{
    for (uint32_t k = 0; k < gantry_runtime_provider_count(runtime); k++) {
        const char *name, *detail;
        int available;
        if (gantry_runtime_provider(runtime, k, &name, &available, &detail) == GANTRY_OK)
            printf("%-14s %-12s %s\n", name, available ? "available" : "unavailable", detail);
    }
}

int cli_providers(int argc, char **argv)
{
    cli_args args;
    if (!cli_parse(argc, argv, "|providers|plugin|", &args))
        return CLI_USAGE;
    args.lists_providers = true;
    gantry_runtime *runtime = NULL;
    int code = cli_open_runtime(&args, &runtime);
    if (code == CLI_OK || code == CLI_PLUGIN)
        print_providers(runtime);
    gantry_runtime_destroy(&runtime, NULL);
    return code;
}

/* The CPU features that decide which kernels run. */
static void print_features(void)
{
    static const char *const NAMES[] = {"avx2",        "avx512f",  "avx512_vnni",
                                        "avx512_bf16", "amx_int8", "amx_bf16"};
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[8192];
    bool seen = false;
    while (file && !seen && fgets(line, sizeof line, file))
        seen = strncmp(line, "flags", 5) == 0;
    if (file)
        fclose(file);
    printf("cpu features:");
    for (size_t k = 0; seen && k < sizeof NAMES / sizeof *NAMES; k++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", NAMES[k]);
        line[strcspn(line, "\n")] = ' ';
        if (strstr(line, word))
            printf(" %s", NAMES[k]);
    }
    puts(seen ? "" : " not known");
}

int cli_doctor(int argc, char **argv)
{
    cli_args args;
    if (!cli_parse(argc, argv, "|providers|plugin|", &args))
        return CLI_USAGE;
    args.lists_providers = true;
    printf("gantry %s\ncpus online: %ld\n", gantry_version(), sysconf(_SC_NPROCESSORS_ONLN));
    printf("memory: %.1f GiB\n",
           (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 1073741824.0);
    print_features();
    gantry_runtime *runtime = NULL;
    if (!args.providers)
        args.providers = "opencl,cuda-int8,cuda-fp16";
    int code = cli_open_runtime(&args, &runtime);
    if (code == CLI_OK || code == CLI_PLUGIN)
        print_providers(runtime);
    gantry_runtime_destroy(&runtime, NULL);
    return code;
}
