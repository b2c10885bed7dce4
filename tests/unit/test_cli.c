/* The command line: what a slip in its arguments is told, and the exit codes that scripts rely on. */
#include "../support/small_models.h"

#include <criterion/criterion.h>
#include <stdarg.h>
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
__attribute__((format(printf, 3, 4))) static void check(int status, const char *part, const char *arguments,
                                                        ...)
{
    char asked[768], command[1024], said[4096];
    va_list values;
    va_start(values, arguments);
    vsnprintf(asked, sizeof asked, arguments, values);
    va_end(values);
    snprintf(command, sizeof command, "'%s/gantry' %s 2>&1", GANTRY_BUILD_FOLDER, asked);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    said[fread(said, 1, sizeof said - 1, pipe)] = 0;
    int ended = pclose(pipe);
    cr_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == status, "%s: status %d, not %d: %s", asked,
              WEXITSTATUS(ended), status, said);
    cr_assert(strstr(said, part), "%s says: %s", asked, said);
}

/* A subcommand of the model; options: a format of the further arguments. */
#define CHECK_RUN(status, part, options, ...)                                                                \
    check(status, part, "run %s " options, model_path, ##__VA_ARGS__)
#define CHECK_OPTIMIZE(status, part, options, ...)                                                           \
    check(status, part, "optimize %s " options, model_path, ##__VA_ARGS__)

Test(cli, exit_codes, .init = write_model, .fini = remove_model)
{
    check(6, "No such file", "run /nowhere/model.onnx");
    check(6, "not a regular file", "run /tmp --random 1");
    check(2, "a model is needed", "run");
    check(2, "unknown command", "walk");
    CHECK_RUN(5, "input a is given no value", "");
    CHECK_RUN(6, "gantry: /nowhere/x.npz: cannot be opened", "--inputs /nowhere/x.npz");
    CHECK_RUN(2, "threads", "--random 1 --option threads=x");
}

/* By name: in the environment's folders; what is found nowhere says where it was looked for. */
Test(cli, plugins_by_name, .init = write_model, .fini = remove_model)
{
    setenv("GANTRY_PROVIDER_PATH", GANTRY_BUILD_FOLDER "/tests", 1);
    CHECK_RUN(0, "", "--random 1 --dim 'a[0]=3' --dim 'b[0]=3' --plugin fake --providers fake,cpu");
    check(0, "fake           available", "providers --providers fake");
    check(0, "fake           available", "providers --plugin 'fake={\"devices\": [{\"name\": \"fake\"}]}'");
    check(7, "--plugin absent can't be used: no library of the provider", "providers --plugin absent");
    CHECK_RUN(0, GANTRY_BUILD_FOLDER "/tests/libgantry_absent.so",
              "--random 1 --dim 'a[0]=3' --dim 'b[0]=3' --providers absent,cpu");
}

/* The second process loads what the first one compiled. */
Test(cli, programs_from_a_cache, .init = write_model, .fini = remove_model)
{
    char folder[] = "/tmp/gantry-cli-cache-XXXXXX", command[80];
    cr_assert_not_null(mkdtemp(folder));
    setenv("GANTRY_PROVIDER_PATH", GANTRY_BUILD_FOLDER "/tests", 1);
    for (int k = 0; k < 2; k++)
        check(0, k ? "cache: hit, " : "cache: miss, nothing is kept for these nodes",
              "explain %s --providers dev,cpu --option plan=priority --cache %s --plugin 'fake={\"devices\": "
              "[{\"name\": \"dev\", \"blobs\": true, \"ops\": {\"Add\": [\"float32\"]}}]}' "
              "| grep -A 99 Partitions",
              model_path, folder);
    CHECK_RUN(2, "--cache=/nowhere/at/all: the folder cannot be made", "--cache /nowhere/at/all --random 1");
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

/* A library that cannot be used ends a run; what looks goes on, and says so in its exit code. */
Test(cli, plugins_that_fail, .init = write_model, .fini = remove_model)
{
    static const char *const WORDS = "--plugin /nowhere/x.so can't be used: ";
    CHECK_RUN(7, WORDS, "--random 1 --plugin /nowhere/x.so");
    check(7, WORDS, "bench %s --random 1 --seconds 0.01 --plugin /nowhere/x.so", model_path);
    check(7, "not asked for, not there", "explain %s --plugin /nowhere/x.so", model_path);
    check(7, "unavailable", "providers --plugin /nowhere/x.so");
    CHECK_RUN(0, "", "--random 1 --dim 'a[0]=3' --dim 'b[0]=3' --providers absent,cpu");
    CHECK_RUN(7, "provider absent can't be used: no library of the provider",
              "--random 1 --providers absent,cpu --option strict=on");
    check(0, "available", "providers --plugin %s/tests/libgantry_fake.so", GANTRY_BUILD_FOLDER);
}

Test(cli, dims_by_symbol_and_by_place, .init = write_model, .fini = remove_model)
{
    CHECK_RUN(0, "[3,4]", "--random 1 --dim 'a[0]=3' --dim 'b[0]=3'");
    CHECK_RUN(2, "no input has a symbolic dim of that name", "--random 1 --dim rows=3");
    CHECK_RUN(2, "no input has a symbolic dim", "--random 1 --dim 'a[1]=4'");
    CHECK_RUN(2, "--dim takes NAME=N", "--random 1 --dim 'a[0]=-3'");
    CHECK_RUN(2, "--repeat takes a number of at least 1", "--random 1 --repeat 0");
}

/* Half floats are compared within the tolerance, not byte by byte. */
Test(cli, checks_half_floats)
{
    wire g = small_graph("half");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "y"));
    small_input(&g, "x", GANTRY_FLOAT16, 1, 8, 0);
    small_output(&g, "y", GANTRY_FLOAT16, 1, 8, 0);
    write_bytes(small_model(g));
    CHECK_RUN(0, "", "--random 1 --outputs %s.npz", model_path);
    CHECK_RUN(0, "y: ok: largest difference 0", "--random 1 --check %s.npz", model_path);
    CHECK_RUN(1, "y: FAILED: largest difference ", "--random 2 --check %s.npz", model_path);
    char outputs[64];
    snprintf(outputs, sizeof outputs, "%s.npz", model_path);
    unlink(outputs);
    remove_model();
}

Test(cli, optimize, .init = write_model, .fini = remove_model)
{
    char out[64];
    snprintf(out, sizeof out, "%s.onnx", model_path);
    CHECK_OPTIMIZE(2, "-o OUT.onnx", "");
    CHECK_OPTIMIZE(2, "is read from", "-o %s", model_path);
    CHECK_OPTIMIZE(6, "/nowhere/x.onnx", "-o /nowhere/x.onnx");
    CHECK_OPTIMIZE(2, "the input has 2", "-o %s --shape 'a=1,2,3'", out);
    CHECK_OPTIMIZE(2, "NAME=VALUE", "-o %s --shape a", out);
    CHECK_OPTIMIZE(2, "without a folder", "-o %s --external-data x/y", out);
    CHECK_OPTIMIZE(2, "walk", "-o %s --disable walk", out);
    cr_assert_neq(access(out, F_OK), 0, "%s is there", out);
    CHECK_OPTIMIZE(0, "before", "-o %s --shape 'a=3,?' --shape b=3,4 --disable cse", out);
    CHECK_OPTIMIZE(0, "\"gantry-optimization\"", "-o %s --no-rewrites --format json", out);
    cr_assert_eq(unlink(out), 0);
    check(6, "No such file", "optimize /nowhere/model.onnx -o /tmp/x.onnx");
    check(0, "gantry optimize model.onnx -o model.opt.onnx", "optimize --help");
}
