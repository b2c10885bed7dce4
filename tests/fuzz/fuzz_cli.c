/* Texts from outside: session options, arguments of the command line, lines of gantry run --batch, picture
 * specs, and the JSON that configures the fake device. The first byte says which; files that they name lie in
 * a folder of their own. */
#include "fuzz_tape.h"

#include "../fake/fake.h"
#include "../support/small_models.h"
#include "tools/cli.h"
#include "tools/io/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ARGUMENTS 24
#define LARGEST_EXTENT 4096

static char folder[] = "/tmp/gantry-fuzz-XXXXXX";

static void put_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void remove_folder(void)
{
    static const char *const names[] = {"m.onnx", "i/input_0.pb", "i/input_1.pb", "o/output_0.pb"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        unlink(names[k]);
    rmdir("i");
    rmdir("o");
    rmdir(folder);
}

static void put_input(const char *path)
{
    static float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    io_tensor tensor = {.name = (char *)(uintptr_t) "x",
                        .dtype = GANTRY_FLOAT32,
                        .rank = 2,
                        .dims = {2, 4},
                        .data = ones,
                        .size_bytes = sizeof ones};
    if (io_pb_write(path, &tensor, NULL) != GANTRY_OK)
        abort();
}

/* A folder with one good model and its inputs, which is the current one from then on; output goes nowhere. */
static void enter_folder(void)
{
    static bool entered;
    if (entered)
        return;
    entered = true;
    if (!mkdtemp(folder) || chdir(folder) != 0 || mkdir("i", 0700) != 0 || mkdir("o", 0700) != 0)
        abort();
    atexit(remove_folder);
    wire model = small_add(-1);
    put_file("m.onnx", model.data, model.size);
    wire_free(&model);
    put_input("i/input_0.pb");
    put_input("i/input_1.pb");
    if (!freopen("/dev/null", "w", stdout))
        abort();
}

/* A copy that names no file of another folder, and ends with NUL. */
static char *copy_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    for (size_t k = 0; k < size; k++)
        text[k] = data[k] == '/' ? '_' : (char)data[k];
    text[size] = 0;
    return text;
}

/* ---- KEY=VALUE, one a line -------------------------------------------------------------------- */

static void set_options(char *text)
{
    gantry_options *options = NULL;
    gantry_runtime *runtime = NULL;
    gantry_session *session = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    if (gantry_options_create(&options, NULL) != GANTRY_OK ||
        gantry_runtime_create(NULL, &runtime, NULL) != GANTRY_OK)
        abort();
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *equals = strchr(line, '=');
        if (equals)
            *equals = 0;
        gantry_status status = gantry_options_set(options, line, equals ? equals + 1 : "", &err);
        if (status != GANTRY_OK && !err.message[0])
            __builtin_trap();
    }
    wire model = small_add(-1);
    err = (gantry_error)GANTRY_ERROR_INIT;
    gantry_report *report = NULL;
    gantry_status status =
        gantry_session_create_from_memory(runtime, model.data, model.size, options, &session, &report, &err);
    if ((status == GANTRY_OK) != (session != NULL) || (status != GANTRY_OK && !err.message[0]))
        __builtin_trap();
    const char *json = NULL;
    size_t bytes = 0;
    if (report)
        gantry_report_render(report, GANTRY_REPORT_JSON, &json, &bytes, NULL);
    gantry_report_destroy(&report);
    gantry_session_destroy(&session, NULL);
    gantry_options_destroy(&options);
    gantry_runtime_destroy(&runtime, NULL);
    wire_free(&model);
}

/* ---- arguments, one a line -------------------------------------------------------------------- */

/* Random inputs of any size can be asked for, and are made: only small ones are tried. */
static bool is_small(const cli_args *args)
{
    for (int k = 0; k < args->dim_count; k++)
        if (strtoll(strrchr(args->dims[k], '=') + 1, NULL, 10) > LARGEST_EXTENT)
            return false;
    return true;
}

static void run_arguments(char *text)
{
    static const char allowed[] =
        "|MODEL|providers|threads|option|inputs|image|random|dim|check|atol|rtol|repeat|"
        "report|format|json|";
    char *argv[MAX_ARGUMENTS + 1] = {(char *)(uintptr_t) "run"}, *rest = NULL;
    int argc = 1;
    for (char *line = strtok_r(text, "\n", &rest); line && argc < MAX_ARGUMENTS;
         line = strtok_r(NULL, "\n", &rest))
        argv[argc++] = line;
    cli_args args;
    cli_session session = {0};
    if (!cli_parse(argc, argv, allowed, &args) || !is_small(&args))
        return;
    args.model = "m.onnx";
    gantry_error err = GANTRY_ERROR_INIT;
    int code = cli_open(&args, &session);
    if (code == CLI_OK)
        code = cli_bind_inputs(&args, &session);
    if (code == CLI_OK && gantry_run_execute(session.run, &err) == GANTRY_OK && args.check)
        cli_check_outputs(&args, &session);
    if (session.report)
        cli_print_report(session.report, args.format);
    cli_close(&session);
}

/* ---- lines of gantry run --batch -------------------------------------------------------------- */

static void run_batch(char *text, size_t size)
{
    static const char good[] = "m.onnx\ti\to\n";
    cli_args args = {0};
    FILE *before = stdin;
    size_t length = sizeof good - 1;
    char *lines = malloc(size + length + 1);
    if (!lines)
        abort();
    memcpy(lines, good, length);
    memcpy(lines + length, text, size);
    FILE *file = fmemopen(lines, size + length, "r");
    if (!file)
        abort();
    stdin = file;
    cli_batch(&args);
    stdin = before;
    fclose(file);
    free(lines);
}

/* ---- others ------------------------------------------------------------------------------------ */

static void read_spec(const char *text)
{
    io_tensor tensor;
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_status status = io_image_read(text, &tensor, &err);
    if (status == GANTRY_OK)
        io_tensor_free(&tensor);
    else if (!err.message[0])
        __builtin_trap();
}

static void read_config(const char *text)
{
    fake_configs *configs = malloc(sizeof *configs);
    gantry_error err = GANTRY_ERROR_INIT;
    if (!configs)
        abort();
    if (fake_configs_parse(text, configs, &err) != GANTRY_OK && !err.message[0])
        __builtin_trap();
    free(configs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enter_folder();
    if (size == 0)
        return 0;
    char *text = copy_text(data + 1, size - 1);
    switch (data[0] % 5) {
    case 0:
        set_options(text);
        break;
    case 1:
        run_arguments(text);
        break;
    case 2:
        run_batch(text, size - 1);
        break;
    case 3:
        read_spec(text);
        break;
    default:
        read_config(text);
    }
    free(text);
    return 0;
}
