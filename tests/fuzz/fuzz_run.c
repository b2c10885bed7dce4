/* Execution on the CPU provider: small models of any operators, options and data from the fuzzer's bytes,
 * through the public API. Everything must end in a status or in a result whose bytes can all be read. */
#include "fuzz_model.h"

#include <gantry/gantry.h>
#include <stdio.h>

#define LARGEST_INPUT 65536u

static gantry_runtime *shared_runtime(void)
{
    static gantry_runtime *runtime; /* one for all inputs: making one takes longer than a run */
    if (!runtime && gantry_runtime_create(NULL, &runtime, NULL) != GANTRY_OK)
        __builtin_trap();
    return runtime;
}

static void expect(gantry_status status, const gantry_error *err)
{
    if (status != GANTRY_OK && (err->code != status || !err->message[0]))
        __builtin_trap(); /* a failure says what failed */
    if (status == GANTRY_INTERNAL)
        __builtin_trap();
}

static gantry_options *choose_options(fuzz_tape *tape)
{
    static const char *const odd[][2] = {{"exact", "on"},      {"rewrites", "off"},
                                         {"fold", "off"},      {"plan", "priority"},
                                         {"timing", "events"}, {"cpu.disable_types", "float16,bfloat16"},
                                         {"strict", "on"},     {"precision", "model"}};
    gantry_options *options = NULL;
    if (gantry_options_create(&options, NULL) != GANTRY_OK)
        __builtin_trap();
    gantry_options_set(options, "threads", "1", NULL);
    gantry_options_set(options, "memory_limit", "33554432", NULL);
    gantry_options_set(options, "deadline_ms", "1000", NULL);
    uint8_t bits = fuzz_byte(tape);
    for (uint32_t k = 0; k < 8; k++)
        if (bits >> k & 1 && gantry_options_set(options, odd[k][0], odd[k][1], NULL) != GANTRY_OK)
            __builtin_trap();
    return options;
}

/* Returns the input's memory, or NULL: it stays unbound. */
static uint8_t *bind_input(gantry_run *run, uint32_t index, const fuzz_input *input, fuzz_tape *tape)
{
    gantry_error err = GANTRY_ERROR_INIT;
    int64_t dims[FUZZ_MAX_RANK];
    uint64_t count = 1;
    for (uint32_t d = 0; d < input->rank; d++) {
        dims[d] = input->dims[d] < 0 ? fuzz_byte(tape) % 9 : input->dims[d];
        if (fuzz_chance(tape, 4))
            dims[d] = fuzz_byte(tape) % 9;
        count *= (uint64_t)dims[d];
    }
    size_t bytes = gantry_dtype_bytes(input->dtype, count);
    if (bytes > LARGEST_INPUT)
        return NULL;
    uint8_t *data = malloc(bytes ? bytes : 1); /* of exactly this size: a read past its end is found */
    if (!data)
        __builtin_trap();
    fuzz_fill(tape, input->dtype, data, bytes);
    gantry_tensor tensor = {sizeof tensor, input->dtype, input->rank, dims, NULL, NULL, {data, 0}, bytes};
    gantry_status status = gantry_run_bind_input(run, index, &tensor, &err);
    expect(status, &err);
    return data;
}

static void read_outputs(gantry_session *session, gantry_run *run)
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < gantry_session_output_count(session); k++) {
        gantry_tensor out = {.struct_bytes = sizeof out};
        gantry_error err = GANTRY_ERROR_INIT;
        gantry_status status = gantry_run_output(run, k, &out, &err);
        expect(status, &err);
        if (status != GANTRY_OK)
            continue;
        uint64_t count = 1;
        for (uint32_t d = 0; d < out.rank; d++)
            count *= (uint64_t)out.dims[d];
        if (out.size_bytes != gantry_dtype_bytes(out.dtype, count))
            __builtin_trap();
        const uint8_t *data = (const uint8_t *)out.buffer.handle + out.buffer.offset_bytes;
        for (size_t b = 0; b < out.size_bytes; b++)
            sum += data[b];
        if (out.dtype == GANTRY_BOOL)
            for (size_t b = 0; b < out.size_bytes; b++)
                if (data[b] > 1)
                    __builtin_trap();
    }
    volatile uint32_t kept = sum;
    (void)kept;
}

static void run_twice(gantry_session *session, const fuzz_model *model, fuzz_tape *tape)
{
    gantry_run *run = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    uint8_t *data[FUZZ_MAX_INPUTS] = {0};
    gantry_status status = gantry_run_create(session, &run, &err);
    expect(status, &err);
    for (int again = 0; again < 2 && status == GANTRY_OK; again++) {
        for (uint32_t k = 0; k < model->input_count; k++) {
            gantry_run_bind_input(run, k, NULL, NULL);
            free(data[k]);
            data[k] = bind_input(run, k, &model->inputs[k], tape);
        }
        err = (gantry_error)GANTRY_ERROR_INIT;
        gantry_status run_status = gantry_run_execute(run, &err);
        expect(run_status, &err);
        if (run_status == GANTRY_OK)
            read_outputs(session, run);
    }
    gantry_run_destroy(&run);
    for (uint32_t k = 0; k < FUZZ_MAX_INPUTS; k++)
        free(data[k]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_tape tape = {data, size, 0};
    fuzz_model model;
    gantry_session *session = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_options *options = choose_options(&tape);
    fuzz_model_make(&tape, &model);
    gantry_status status = gantry_session_create_from_memory(shared_runtime(), model.bytes.data,
                                                             model.bytes.size, options, &session, NULL, &err);
    expect(status, &err);
    gantry_options_destroy(&options);
    wire_free(&model.bytes); /* a session keeps nothing of it */
    if (session)
        run_twice(session, &model, &tape);
    gantry_session_destroy(&session, NULL);
    return 0;
}
