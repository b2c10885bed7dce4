/* Command line arguments: one table of options for all commands. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind { FLAG, TEXT, NUMBER, LIST } option_kind;

/* where: offset of the field; count: offset of the counter of a LIST. */
typedef struct option_row {
    const char *name;
    option_kind kind;
    size_t where, count;
} option_row;

#define AT(field) offsetof(cli_args, field)
static const option_row OPTIONS[] = {
    {"providers", TEXT, AT(providers), 0},
    {"cache", TEXT, AT(cache), 0},
    {"outputs", TEXT, AT(outputs), 0},
    {"check", TEXT, AT(check), 0},
    {"format", TEXT, AT(format), 0},
    {"threads", NUMBER, AT(threads), 0},
    {"seconds", NUMBER, AT(seconds), 0},
    {"random", NUMBER, AT(seed), 0},
    {"atol", NUMBER, AT(atol), 0},
    {"rtol", NUMBER, AT(rtol), 0},
    {"repeat", NUMBER, AT(repeat), 0},
    {"plugin", LIST, AT(plugins), AT(plugin_count)},
    {"option", LIST, AT(options), AT(option_count)},
    {"inputs", LIST, AT(inputs), AT(input_count)},
    {"image", LIST, AT(images), AT(image_count)},
    {"dim", LIST, AT(dims), AT(dim_count)},
    {"shape", LIST, AT(shapes), AT(shape_count)},
    {"disable", LIST, AT(disabled), AT(disable_count)},
    {"output", TEXT, AT(output), 0},
    {"config", TEXT, AT(config), 0},
    {"only", TEXT, AT(only), 0},
    {"external-data", TEXT, AT(external_data), 0},
    {"growth-limit", NUMBER, AT(growth_limit), 0},
    {"no-rewrites", FLAG, AT(no_rewrites), 0},
    {"json", FLAG, AT(json), 0},
    {"batch", FLAG, AT(batch), 0},
    {"report", FLAG, AT(report), 0},
};

static const option_row *find_option(const char *name, size_t length, const char *allowed)
{
    char marked[64];
    snprintf(marked, sizeof marked, "|%.*s|", (int)length, name);
    if (!strstr(allowed, marked))
        return NULL;
    for (size_t k = 0; k < sizeof OPTIONS / sizeof *OPTIONS; k++)
        if (strlen(OPTIONS[k].name) == length && strncmp(OPTIONS[k].name, name, length) == 0)
            return &OPTIONS[k];
    return NULL;
}

static bool is_number(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    return end != text && *end == 0 && value >= 0 && value < 1e15;
}

/* NAME=N */
static bool is_extent(const char *text)
{
    const char *equals = strrchr(text, '=');
    return equals && equals > text && equals[1] && strspn(equals + 1, "0123456789") == strlen(equals + 1) &&
           strlen(equals + 1) < 19;
}

static bool set_option(const option_row *option, const char *value, cli_args *args)
{
    char *base = (char *)args;
    if (option->kind == NUMBER && !is_number(value)) {
        fprintf(stderr, "gantry: --%s takes a number of at least 0, not %s\n", option->name, value);
        return false;
    }
    if (strcmp(option->name, "repeat") == 0 && strtod(value, NULL) < 1) {
        fprintf(stderr, "gantry: --repeat takes a number of at least 1, not %s\n", value);
        return false;
    }
    if (strcmp(option->name, "dim") == 0 && !is_extent(value)) {
        fprintf(stderr, "gantry: --dim takes NAME=N with N a whole number of at least 0, not %s\n", value);
        return false;
    }
    if (option->kind != LIST) {
        *(const char **)(void *)(base + option->where) = value;
        return true;
    }
    int *count = (int *)(void *)(base + option->count);
    if (*count == CLI_MAX_REPEATS) {
        fprintf(stderr, "gantry: --%s can be given %d times\n", option->name, CLI_MAX_REPEATS);
        return false;
    }
    ((const char **)(void *)(base + option->where))[(*count)++] = value;
    return true;
}

bool cli_parse(int argc, char **argv, const char *allowed, cli_args *out_args)
{
    *out_args = (cli_args){0};
    for (int k = 1; k < argc; k++) {
        const char *argument = strcmp(argv[k], "-o") == 0 ? "--output" : argv[k];
        if (strncmp(argument, "--", 2) != 0) {
            if (out_args->model || !strstr(allowed, "|MODEL|")) {
                fprintf(stderr, "gantry %s: unexpected argument %s\n", argv[0], argv[k]);
                return false;
            }
            out_args->model = argv[k];
            continue;
        }
        const char *name = argument + 2, *equals = strchr(name, '=');
        size_t length = equals ? (size_t)(equals - name) : strlen(name);
        const option_row *option = find_option(name, length, allowed);
        if (!option) {
            fprintf(stderr, "gantry %s: unknown option %s (gantry %s --help lists them)\n", argv[0], argv[k],
                    argv[0]);
            return false;
        }
        if (option->kind == FLAG) {
            *(bool *)((char *)out_args + option->where) = true;
            continue;
        }
        const char *value = equals ? equals + 1 : k + 1 < argc ? argv[++k] : NULL;
        if (!value) {
            fprintf(stderr, "gantry %s: --%s needs a value\n", argv[0], option->name);
            return false;
        }
        if (!set_option(option, value, out_args))
            return false;
    }
    if (!out_args->model && strstr(allowed, "|MODEL|") && !out_args->batch) {
        fprintf(stderr, "gantry %s: a model is needed (gantry %s --help)\n", argv[0], argv[0]);
        return false;
    }
    return true;
}
