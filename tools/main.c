/* The command line: one table of subcommands. */
#include "cli.h"
#include "plugin/kit.h"

#include <stdio.h>
#include <string.h>

#define SESSION_OPTIONS                                                                                      \
    "  --providers A,B     providers in priority order (default cpu)\n"                                      \
    "  --plugin LIB[=CFG]  load a provider library, a file or a name; may be given several times\n"          \
    "  --cache DIR         folder for programs and kernels that outlive the process; made when it is new\n"  \
    "  --threads N         worker threads (default: the CPUs this process may use)\n"                        \
    "  --option KEY=VALUE  any session option of gantry.h; may be given several times\n"
#define INPUT_OPTIONS                                                                                        \
    "  --inputs FILE       .npz with arrays under the input names; or NAME=FILE.npy, NAME=FILE.pb\n"         \
    "  --image SPEC        x=FILE,size=WxH,mean=M:M:M,std=S:S:S,order=NCHW-RGB (nothing is guessed)\n"       \
    "  --random SEED       random values for inputs that no file gives\n"                                    \
    "  --dim NAME=N        extent of a symbolic dim, or of INPUT[axis], for --random (default 1)\n"

static const cli_command COMMANDS[] = {
    {"run", cli_run, "run a model once",
     "usage: gantry run MODEL [options]\n       gantry run --batch\n\n" SESSION_OPTIONS INPUT_OPTIONS
     "  --outputs FILE      write the outputs (.npz)\n"
     "  --check FILE        compare with references (.npz); exit code 1 when one differs\n"
     "  --atol X --rtol X   tolerance of --check (default 1e-5 and 1e-3)\n"
     "  --repeat N          run N times\n"
     "  --report            print the placement report of the last run\n"
     "  --batch             answer lines MODEL<TAB>INPUTS_DIR<TAB>OUTPUTS_DIR from standard input\n\n"
     "examples:\n"
     "  gantry run model.onnx --inputs x.npz --outputs y.npz --threads 2\n"
     "  gantry run model.onnx --image x=cat.png,size=224x224,mean=0.5,std=0.5,order=NCHW-RGB --report\n"
     "  gantry run model.onnx --random 1 --dim batch=4 --check y.npz\n"},
    {"explain", cli_explain, "say where every node runs, why, and at what cost",
     "usage: gantry explain MODEL [options]\n\n" SESSION_OPTIONS INPUT_OPTIONS
     "  --format F          text (default) or json\n\n"
     "With inputs the model is run once, and counts of that run are shown. A model that can't be "
     "loaded\nhas a report too.\n\n"
     "examples:\n"
     "  gantry explain model.onnx\n"
     "  gantry explain model.onnx --providers opencl,cpu --inputs x.npz --format json\n"},
    {"bench", cli_bench, "time a model with bound buffers",
     "usage: gantry bench MODEL [options]\n\n" SESSION_OPTIONS INPUT_OPTIONS
     "  --seconds S         how long to run (default 3)\n"
     "  --outputs FILE      write the outputs of the first run (.npz)\n"
     "  --json              one JSON object as the last line\n\n"
     "examples:\n"
     "  gantry bench model.onnx --inputs x.npz --seconds 5 --threads 1 --json\n"},
    {"optimize", cli_optimize, "write the rewritten model as ONNX in standard operators",
     "usage: gantry optimize MODEL -o OUT.onnx [options]\n\n"
     "  -o, --output FILE     where the model goes; a file that is there is replaced when all is written\n"
     "  --external-data NAME  constants of 1024 bytes and more go into this file beside it (no folder in "
     "NAME);\n"
     "                        needed when the model would have 2 GiB or more\n"
     "  --shape INPUT=1,3,?,8 the shape of an input (? leaves an extent as it is); may be given several "
     "times\n"
     "  --dim NAME=N          the symbolic dim NAME, or INPUT[axis], is N; may be given several times\n"
     "  --disable RULE        a rewrite by name (docs/rewrites.md lists them); may be given several times\n"
     "  --no-rewrites         write what was read; only shapes are inferred\n"
     "  --growth-limit BYTES  how much larger than its constants a folded result may be (default 65536)\n"
     "  --format F            what was changed, as text (default) or json, or none\n"
     "  --option KEY=VALUE    any session option of gantry.h that concerns reading and rewriting\n\n"
     "The same model and options give the same bytes. Exit codes: 0 written, 2 bad use, 3 bad model,\n"
     "4 an operator version or a mix of opsets that cannot be written, 6 a file could not be read or "
     "written.\n\n"
     "examples:\n"
     "  gantry optimize model.onnx -o model.opt.onnx\n"
     "  gantry optimize model.onnx -o fixed.onnx --shape x=1,3,224,224 --disable gelu\n"
     "  gantry optimize big.onnx -o out/big.onnx --external-data big.bin --format json\n"},
    {"inspect", cli_inspect, "list a model's inputs, outputs and metadata",
     "usage: gantry inspect MODEL\n\nexamples:\n  gantry inspect model.onnx\n"},
    {"providers", cli_providers, "list the providers that can be used",
     "usage: gantry providers [--plugin LIB[=CFG]] [--providers A,B]\n\nexamples:\n  gantry providers "
     "--providers opencl,cpu\n"},
    {"plugin", cli_plugin, "check a provider library, or say what it brings",
     "usage: gantry plugin check FILE.so [options]\n       gantry plugin show FILE.so [options]\n\n"
     "  --config TEXT       the text the plugin is opened with\n"
     "  --seconds S         how long one rule may take (default 300)\n"
     "  --only GROUPS       some of "
     "open,cycles,domain,judge,shapes,operators,programs,faults,session,versions\n"
     "  --json              all results as one JSON object\n\n"
     "A line for each rule of docs/plugin-guide.md: passed, failed with what to do, or skipped with the\n"
     "reason. Rules run in processes of their own, so that a crash is a failed rule. Exit codes: 0 nothing\n"
     "failed, 1 a rule failed, 2 bad use, 6 the file can't be read. show prints the manifest, and each "
     "domain,\n"
     "provider, option and operator of its own; exit code 7 when it can't be opened.\n\n"
     "examples:\n"
     "  gantry plugin check build/libgantry_example.so\n"},
    {"doctor", cli_doctor, "check what this machine offers",
     "usage: gantry doctor\n\nPrints versions, CPU features, threads, memory, and each provider with its "
     "state.\n\nexamples:\n  gantry doctor\n"},
};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof *COMMANDS)

static void print_help(FILE *to)
{
    fprintf(to, "gantry %s: an ONNX inference runtime that explains where every node runs\n\n",
            gantry_version());
    for (size_t k = 0; k < COMMAND_COUNT; k++)
        fprintf(to, "  gantry %-10s %s\n", COMMANDS[k].name, COMMANDS[k].what);
    fprintf(to, "\n\"gantry COMMAND --help\" says more. Exit codes: 0 done, 1 a check failed, 2 bad use, 3 "
                "bad model,\n"
                "4 unsupported, 5 a run failed, 6 a file could not be read or written, 7 a library of\n"
                "--plugin cannot be used (explain, providers and doctor still say what they know).\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, KIT_CHILD) == 0)
        return kit_child_main(argc - 2, argv + 2);
    for (size_t k = 0; k < COMMAND_COUNT; k++) {
        if (strcmp(name, COMMANDS[k].name) != 0)
            continue;
        for (int a = 2; a < argc; a++)
            if (strcmp(argv[a], "--help") == 0 || strcmp(argv[a], "-h") == 0) {
                fputs(COMMANDS[k].help, stdout);
                return CLI_OK;
            }
        return COMMANDS[k].run(argc - 1, argv + 1);
    }
    if (strcmp(name, "--version") == 0) {
        printf("gantry %s\n", gantry_version());
        return CLI_OK;
    }
    bool asked = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (!asked)
        fprintf(stderr, "gantry: unknown command %s\n\n", name);
    print_help(asked ? stdout : stderr);
    return asked ? CLI_OK : CLI_USAGE;
}
