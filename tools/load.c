/* Opening what a command works on: the runtime with its plugins, the options, the session. */
#include "cli.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double cli_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int cli_fail(const char *what, const gantry_error *err)
{
    const char *message = err->message[0] ? err->message : gantry_status_text(err->code);
    bool lines = strchr(message, '\n') != NULL;
    fprintf(stderr, lines ? "gantry: %s" : "gantry: %s: %s", what, message);
    if (err->provider[0])
        fprintf(stderr, " (provider %s)", err->provider);
    if (err->stage)
        fprintf(stderr, " [%s, %s]", gantry_stage_text(err->stage), gantry_status_text(err->code));
    fprintf(stderr, lines ? ":\n%s\n" : "\n", message);
    if (err->code == GANTRY_UNSUPPORTED)
        return CLI_UNSUPPORTED;
    if (err->stage == GANTRY_STAGE_PLUGIN)
        return CLI_PLUGIN;
    if (err->stage == GANTRY_STAGE_RUN || err->code == GANTRY_INPUT_SHAPE)
        return CLI_RUN;
    return err->code == GANTRY_INVALID_ARGUMENT ? CLI_USAGE : CLI_MODEL;
}

/* ---- plugins --------------------------------------------------------------------------------- */

static bool is_known(gantry_runtime *runtime, const char *name)
{
    for (uint32_t k = 0; k < gantry_runtime_provider_count(runtime); k++) {
        const char *known = NULL, *detail;
        int available;
        if (gantry_runtime_provider(runtime, k, &known, &available, &detail) == GANTRY_OK &&
            strcmp(known, name) == 0)
            return true;
    }
    return false;
}

/* A provider named in --providers that nothing has brought yet: libgantry_NAME.so beside this program (as in
 * a build folder), else where the library looks for a name. */
static void find_plugin(gantry_runtime *runtime, const char *name, bool quiet)
{
    char self[1024], path[1300], file[128];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    snprintf(file, sizeof file, "%s", name);
    for (char *c = file; *c; c++)
        *c = *c == '-' ? '_' : *c;
    snprintf(path, sizeof path, "%s/libgantry_%s.so", dirname(self), file);
    gantry_error err = GANTRY_ERROR_INIT;
    bool beside = length > 0 && access(path, R_OK) == 0;
    if (gantry_runtime_load_provider(runtime, beside ? path : name, NULL, &err) != GANTRY_OK && !quiet)
        fprintf(stderr, "gantry: %s\n", err.message);
}

static int load_named(const char *spec, gantry_runtime *runtime)
{
    char path[1024];
    const char *config = strchr(spec, '=');
    snprintf(path, sizeof path, "%.*s", config ? (int)(config - spec) : (int)strlen(spec), spec);
    gantry_error err = GANTRY_ERROR_INIT;
    if (gantry_runtime_load_provider(runtime, path, config ? config + 1 : NULL, &err) == GANTRY_OK)
        return CLI_OK;
    fprintf(stderr, "gantry: --plugin %s can't be used: %s\n", path, err.message);
    return CLI_PLUGIN;
}

int cli_open_runtime(const cli_args *args, gantry_runtime **out_runtime)
{
    gantry_error err = GANTRY_ERROR_INIT;
    if (gantry_runtime_create(NULL, out_runtime, &err) != GANTRY_OK)
        return cli_fail("the runtime can't be created", &err);
    if (args->cache && gantry_runtime_set(*out_runtime, "cache", args->cache, &err) != GANTRY_OK) {
        fprintf(stderr, "gantry: --%s\n", err.message);
        return CLI_USAGE;
    }
    int code = CLI_OK;
    for (int k = 0; k < args->plugin_count; k++)
        if (load_named(args->plugins[k], *out_runtime) != CLI_OK)
            code = CLI_PLUGIN;
    char names[1024];
    snprintf(names, sizeof names, "%s", args->providers ? args->providers : "");
    char *rest = NULL;
    for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest))
        if (!is_known(*out_runtime, name))
            find_plugin(*out_runtime, name, args->lists_providers);
    return code;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static int set_option(gantry_options *options, const char *key, const char *value)
{
    gantry_error err = GANTRY_ERROR_INIT;
    if (gantry_options_set(options, key, value, &err) == GANTRY_OK)
        return CLI_OK;
    fprintf(stderr, "gantry: %s\n", err.message);
    return CLI_USAGE;
}

int cli_set_options(const cli_args *args, gantry_options *options)
{
    int code = args->providers ? set_option(options, "providers", args->providers) : CLI_OK;
    if (code == CLI_OK && args->threads)
        code = set_option(options, "threads", args->threads);
    for (int k = 0; k < args->option_count && code == CLI_OK; k++) {
        char key[256];
        const char *equals = strchr(args->options[k], '=');
        if (!equals || (size_t)(equals - args->options[k]) >= sizeof key) {
            fprintf(stderr, "gantry: --option takes KEY=VALUE, not %s\n", args->options[k]);
            return CLI_USAGE;
        }
        snprintf(key, sizeof key, "%.*s", (int)(equals - args->options[k]), args->options[k]);
        code = set_option(options, key, equals + 1);
    }
    return code;
}

/* A model that is not there is a matter of files, not of models. */
int cli_model_error(const char *model, const gantry_error *err)
{
    struct stat about;
    int code = cli_fail(model, err);
    return stat(model, &about) != 0 || !S_ISREG(about.st_mode) || access(model, R_OK) != 0 ? CLI_FILE : code;
}

int cli_open_session(const cli_args *args, cli_session *out_session)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_options *options = NULL;
    int code = CLI_OK;
    if (gantry_options_create(&options, &err) != GANTRY_OK)
        code = cli_fail("options", &err);
    if (code == CLI_OK)
        code = cli_set_options(args, options);
    if (code == CLI_OK &&
        gantry_session_create_from_file(out_session->runtime, args->model, options, &out_session->session,
                                        &out_session->report, &err) != GANTRY_OK)
        code = cli_model_error(args->model, &err);
    gantry_options_destroy(&options);
    return code;
}

int cli_open(const cli_args *args, cli_session *out_session)
{
    int code = cli_open_runtime(args, &out_session->runtime);
    return code == CLI_OK ? cli_open_session(args, out_session) : code;
}

void cli_close(cli_session *session)
{
    gantry_run_destroy(&session->run);
    gantry_report_destroy(&session->report);
    io_tensors_free(&session->inputs);
    gantry_session_destroy(&session->session, NULL);
    gantry_runtime_destroy(&session->runtime, NULL);
}

int cli_print_report(gantry_report *report, const char *format)
{
    gantry_error err = GANTRY_ERROR_INIT;
    const char *text;
    size_t bytes;
    bool json = format && strcmp(format, "json") == 0;
    if (gantry_report_render(report, json ? GANTRY_REPORT_JSON : GANTRY_REPORT_TEXT, &text, &bytes, &err) !=
        GANTRY_OK)
        return cli_fail("report", &err);
    fwrite(text, 1, bytes, stdout);
    if (bytes && text[bytes - 1] != '\n')
        fputc('\n', stdout);
    return CLI_OK;
}
