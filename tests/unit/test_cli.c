/* The command line: what a slip in its arguments is told, and the exit codes that scripts rely on. */
#include "../support/small_models.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char model_path[] = "/tmp/gantry-cli-XXXXXX";

static void write_bytes(wire bytes)
{
    int file = mkstemp(model_path);
    cr_assert(file >= 0 && write(file, bytes.data, bytes.size) == (ssize_t)bytes.size);
    close(file);
    wire_free(&bytes);
}

static void write_model(void)
{
    write_bytes(small_add(-1));
}

static void remove_model(void)
{
    unlink(model_path);
}

/* Runs "gantry ARGUMENTS" and compares its exit status and a part of what it says. */
static void check(const char *arguments, int status, const char *part)
{
    char command[1024], said[4096];
    snprintf(command, sizeof command, "'%s/gantry' %s 2>&1", GANTRY_BUILD_FOLDER, arguments);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    said[fread(said, 1, sizeof said - 1, pipe)] = 0;
    int ended = pclose(pipe);
    cr_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == status, "%s: status %d, not %d: %s", arguments,
              WEXITSTATUS(ended), status, said);
    cr_assert(strstr(said, part), "%s says: %s", arguments, said);
}

static void check_run(const char *options, int status, const char *part)
{
    char arguments[768];
    snprintf(arguments, sizeof arguments, "run %s %s", model_path, options);
    check(arguments, status, part);
}

Test(cli, exit_codes, .init = write_model, .fini = remove_model)
{
    check("run /nowhere/model.onnx", 6, "No such file");
    check("run /tmp --random 1", 6, "not a regular file");
    check("run", 2, "a model is needed");
    check("walk", 2, "unknown command");
    check_run("", 5, "input a is given no value");
    check_run("--inputs /nowhere/x.npz", 6, "gantry: /nowhere/x.npz: cannot be opened");
    check_run("--random 1 --option threads=x", 2, "threads");
}

/* A library that cannot be used ends a run; what looks goes on, and says so in its exit code. */
Test(cli, plugins_that_fail, .init = write_model, .fini = remove_model)
{
    static const char *const WORDS = "--plugin /nowhere/x.so can't be used: ";
    check_run("--random 1 --plugin /nowhere/x.so", 7, WORDS);
    char arguments[256];
    snprintf(arguments, sizeof arguments, "bench %s --random 1 --seconds 0.01 --plugin /nowhere/x.so",
             model_path);
    check(arguments, 7, WORDS);
    snprintf(arguments, sizeof arguments, "explain %s --plugin /nowhere/x.so", model_path);
    check(arguments, 7, "not asked for, not there");
    check("providers --plugin /nowhere/x.so", 7, "unavailable");
    snprintf(arguments, sizeof arguments, "providers --plugin %s/tests/libgantry_fake.so",
             GANTRY_BUILD_FOLDER);
    check(arguments, 0, "available");
}

Test(cli, dims_by_symbol_and_by_place, .init = write_model, .fini = remove_model)
{
    check_run("--random 1 --dim 'a[0]=3' --dim 'b[0]=3'", 0, "[3,4]");
    check_run("--random 1 --dim rows=3", 2, "no input has a symbolic dim of that name");
    check_run("--random 1 --dim 'a[1]=4'", 2, "no input has a symbolic dim");
    check_run("--random 1 --dim 'a[0]=-3'", 2, "--dim takes NAME=N");
    check_run("--random 1 --repeat 0", 2, "--repeat takes a number of at least 1");
}

/* Half floats are compared within the tolerance, not byte by byte. */
Test(cli, checks_half_floats)
{
    wire g = small_graph("half");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "y"));
    small_input(&g, "x", GANTRY_FLOAT16, 1, 8, 0);
    small_output(&g, "y", GANTRY_FLOAT16, 1, 8, 0);
    write_bytes(small_model(g));
    char options[128];
    snprintf(options, sizeof options, "--random 1 --outputs %s.npz", model_path);
    check_run(options, 0, "");
    snprintf(options, sizeof options, "--random 1 --check %s.npz", model_path);
    check_run(options, 0, "y: ok: largest difference 0");
    snprintf(options, sizeof options, "--random 2 --check %s.npz", model_path);
    check_run(options, 1, "y: FAILED: largest difference ");
    snprintf(options, sizeof options, "%s.npz", model_path);
    unlink(options);
    remove_model();
}

static void check_optimize(const char *options, int status, const char *part)
{
    char arguments[768];
    snprintf(arguments, sizeof arguments, "optimize %s %s", model_path, options);
    check(arguments, status, part);
}

Test(cli, optimize, .init = write_model, .fini = remove_model)
{
    char out[64], options[256];
    snprintf(out, sizeof out, "%s.onnx", model_path);
    check_optimize("", 2, "-o OUT.onnx");
    snprintf(options, sizeof options, "-o %s", model_path);
    check_optimize(options, 2, "is read from");
    check_optimize("-o /nowhere/x.onnx", 6, "/nowhere/x.onnx");
    snprintf(options, sizeof options, "-o %s --shape 'a=1,2,3'", out);
    check_optimize(options, 2, "the input has 2");
    snprintf(options, sizeof options, "-o %s --shape a", out);
    check_optimize(options, 2, "NAME=VALUE");
    snprintf(options, sizeof options, "-o %s --external-data x/y", out);
    check_optimize(options, 2, "without a folder");
    snprintf(options, sizeof options, "-o %s --disable walk", out);
    check_optimize(options, 2, "walk");
    cr_assert_neq(access(out, F_OK), 0, "%s is there", out);
    snprintf(options, sizeof options, "-o %s --shape 'a=3,?' --shape b=3,4 --disable cse", out);
    check_optimize(options, 0, "before");
    snprintf(options, sizeof options, "-o %s --no-rewrites --format json", out);
    check_optimize(options, 0, "\"gantry-optimization\"");
    cr_assert_eq(unlink(out), 0);
    check("optimize /nowhere/model.onnx -o /tmp/x.onnx", 6, "No such file");
    check("optimize --help", 0, "gantry optimize model.onnx -o model.opt.onnx");
}
