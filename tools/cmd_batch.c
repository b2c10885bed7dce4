/* gantry run --batch: one process that runs many models, a line of standard input each, for conformance runs.
 *
 * A line is MODEL<TAB>INPUTS_DIR<TAB>OUTPUTS_DIR; the answer is one line: "ok", "unsupported TEXT" or "error
 * TEXT". The J-th graph input that has no default is read from INPUTS_DIR/input_J.pb, the J-th output written
 * to OUTPUTS_DIR/output_J.pb. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An answer is one line, whatever the message holds. */
static void answer(const gantry_error *err)
{
    char text[2300];
    snprintf(text, sizeof text, "%s %s", err->code == GANTRY_UNSUPPORTED ? "unsupported" : "error",
             err->message);
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < 32 ? ' ' : *c;
    puts(text);
    fflush(stdout);
}

static gantry_status bind_inputs(const char *folder, cli_session *session, gantry_error *err)
{
    uint32_t file = 0;
    for (uint32_t k = 0; k < gantry_session_input_count(session->session); k++) {
        gantry_value_info info = {.struct_bytes = sizeof info};
        gantry_status status = gantry_session_input(session->session, k, &info, err);
        if (status != GANTRY_OK)
            return status;
        if (info.has_default)
            continue;
        char path[4200];
        snprintf(path, sizeof path, "%s/input_%u.pb", folder, file++);
        uint32_t index = session->inputs.count;
        status = io_read(path, &session->inputs, err);
        if (status != GANTRY_OK)
            return status;
        gantry_tensor view;
        io_tensor_view(&session->inputs.items[index], &view);
        status = gantry_run_bind_input(session->run, k, &view, err);
        if (status != GANTRY_OK)
            return status;
    }
    return GANTRY_OK;
}

static gantry_status write_outputs(const char *folder, const cli_session *session, gantry_error *err)
{
    for (uint32_t k = 0; k < gantry_session_output_count(session->session); k++) {
        gantry_value_info info = {.struct_bytes = sizeof info};
        gantry_tensor view = {.struct_bytes = sizeof view};
        gantry_status status = gantry_session_output(session->session, k, &info, err);
        if (status == GANTRY_OK)
            status = gantry_run_output(session->run, k, &view, err);
        if (status != GANTRY_OK)
            return status;
        io_tensor tensor;
        char path[4200];
        io_tensor_borrow(info.name, &view, &tensor);
        snprintf(path, sizeof path, "%s/output_%u.pb", folder, k);
        status = io_pb_write(path, &tensor, err);
        if (status != GANTRY_OK)
            return status;
    }
    return GANTRY_OK;
}

static gantry_status run_case(const gantry_options *options, const char *model, const char *inputs,
                              const char *outputs, cli_session *session, gantry_error *err)
{
    gantry_status status =
        gantry_session_create_from_file(session->runtime, model, options, &session->session, NULL, err);
    if (status == GANTRY_OK)
        status = gantry_run_create(session->session, &session->run, err);
    if (status == GANTRY_OK)
        status = bind_inputs(inputs, session, err);
    if (status == GANTRY_OK)
        status = gantry_run_execute(session->run, err);
    if (status == GANTRY_OK)
        status = write_outputs(outputs, session, err);
    return status;
}

static void end_case(cli_session *session)
{
    gantry_run_destroy(&session->run);
    io_tensors_free(&session->inputs);
    session->inputs = (io_tensors){0};
    gantry_session_destroy(&session->session, NULL);
}

int cli_batch(const cli_args *args)
{
    cli_session session = {0};
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_options *options = NULL;
    int code = cli_open_runtime(args, &session.runtime);
    if (code == CLI_OK && gantry_options_create(&options, &err) != GANTRY_OK)
        code = cli_fail("options", &err);
    if (code == CLI_OK)
        code = cli_set_options(args, options);
    char *line = NULL;
    size_t room = 0;
    while (code == CLI_OK && getline(&line, &room, stdin) > 0) {
        line[strcspn(line, "\r\n")] = 0;
        char *inputs = strchr(line, '\t'), *outputs = inputs ? strchr(inputs + 1, '\t') : NULL;
        err = (gantry_error)GANTRY_ERROR_INIT;
        if (!outputs) {
            snprintf(err.message, sizeof err.message, "the line has no MODEL<TAB>INPUTS_DIR<TAB>OUTPUTS_DIR");
            answer(&err);
            continue;
        }
        *inputs++ = 0;
        *outputs++ = 0;
        if (run_case(options, line, inputs, outputs, &session, &err) == GANTRY_OK) {
            puts("ok");
            fflush(stdout);
        } else {
            answer(&err);
        }
        end_case(&session);
    }
    free(line);
    gantry_options_destroy(&options);
    cli_close(&session);
    return code;
}
