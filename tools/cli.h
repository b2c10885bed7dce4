/* What the subcommands of the command line share: arguments, models, inputs, exit codes. */
#ifndef GT_TOOLS_CLI_H
#define GT_TOOLS_CLI_H

#include "io/tensor_io.h"

#include <gantry/gantry.h>

/* Exit codes; main.c prints them in the help. */
enum {
    CLI_OK = 0,
    CLI_CHECK_FAILED = 1, /* --check found a difference */
    CLI_USAGE = 2,        /* unknown option, missing argument, bad value */
    CLI_MODEL = 3,        /* the model or its data is wrong */
    CLI_UNSUPPORTED = 4,  /* legal ONNX that no provider asked for can run */
    CLI_RUN = 5,          /* a run failed, or an input does not fit */
    CLI_FILE = 6,         /* a file could not be read or written */
    CLI_PLUGIN = 7        /* a library named with --plugin, or with strict=on a provider, cannot be used */
};

#define CLI_MAX_REPEATS 64

/* Arguments of the commands that load a model. Texts point into argv. */
typedef struct cli_args {
    const char *model;
    const char *providers, *cache, *outputs, *check, *format, *threads, *seconds, *seed;
    const char *output, *external_data, *growth_limit;
    const char *plugins[CLI_MAX_REPEATS], *options[CLI_MAX_REPEATS], *inputs[CLI_MAX_REPEATS],
        *images[CLI_MAX_REPEATS], *dims[CLI_MAX_REPEATS], *shapes[CLI_MAX_REPEATS],
        *disabled[CLI_MAX_REPEATS];
    int plugin_count, option_count, input_count, image_count, dim_count, shape_count, disable_count;
    const char *atol, *rtol, *repeat, *config, *only;
    bool json, batch, help, report, no_rewrites;
    bool lists_providers; /* set by commands that print what is wrong with a provider themselves */
} cli_args;

/* Fills *out_args; false (and a text on stderr) when they are wrong. allowed names the options of this
 * command, "|name|name|". */
bool cli_parse(int argc, char **argv, const char *allowed, cli_args *out_args);

/* A subcommand: argv[0] is its name. */
typedef struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what; /* one line */
    const char *help; /* usage, options, examples */
} cli_command;

int cli_run(int argc, char **argv);
int cli_batch(const cli_args *args);
int cli_explain(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_optimize(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_providers(int argc, char **argv);
int cli_plugin(int argc, char **argv);
int cli_doctor(int argc, char **argv);

/* A model that is loaded, and what it stands on. Zero is an empty one. */
typedef struct cli_session {
    gantry_runtime *runtime;
    gantry_session *session;
    gantry_report *report; /* of creation; there for a failed one too */
    gantry_run *run;
    io_tensors inputs;
} cli_session;

/* Creates the runtime and loads the plugins that --plugin and --providers name. CLI_PLUGIN: one of --plugin
 * failed, which is printed; the runtime is there and has a row for it. */
int cli_open_runtime(const cli_args *args, gantry_runtime **out_runtime);
/* The session, on out_session->runtime. Prints what failed; out_session->report may be set even then. */
int cli_open_session(const cli_args *args, cli_session *out_session);
/* Both. */
int cli_open(const cli_args *args, cli_session *out_session);
void cli_close(cli_session *session);
/* What --providers, --threads and --option say. */
int cli_set_options(const cli_args *args, gantry_options *options);
/* Prints an error of a call that read the model, and gives the exit code for it. */
int cli_model_error(const char *model, const gantry_error *err);

/* Reads --inputs and --image, makes random ones for what is missing when there is a seed, and binds all to a
 * new run. */
int cli_bind_inputs(const cli_args *args, cli_session *session);
/* Writes all outputs of the last execute to an .npz (or single .npy or .pb) file. */
int cli_write_outputs(const char *path, const cli_session *session);
/* Compares outputs with a file of references; prints one line each. */
int cli_check_outputs(const cli_args *args, const cli_session *session);
/* Prints a rendered report. */
int cli_print_report(gantry_report *report, const char *format);

/* Prints an error and gives the exit code for it. */
int cli_fail(const char *what, const gantry_error *err);
double cli_now_ms(void);

#endif
