/* A state that stays on a device while a model runs again and again:
 *
 *     device_loop MODEL.onnx PROVIDER.so NAME DOMAIN INPUT OUTPUT STEPS
 *
 * for example, with the OpenCL provider and any model whose output has the shape of its input:
 *
 *     device_loop step.onnx build/release/libgantry_opencl.so opencl opencl:0 state next 100
 *
 * Two buffers of the device take turns as input and output, so nothing crosses between host and device but
 * the first state and the last. The model's input has to have a static shape. */
#include <gantry/gantry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct state {
    gantry_runtime *runtime;
    gantry_session *session;
    gantry_run *run;
    const char *domain;
    gantry_value_info info;
    size_t bytes;
    gantry_buffer buffers[2];
    gantry_error err;
} state;

/* The session, told that both tensors live in the domain. */
static gantry_status open_session(state *s, char **argv)
{
    gantry_options *options = NULL;
    char providers[128], bind[2][160];
    snprintf(providers, sizeof providers, "%s,cpu", argv[3]);
    for (int k = 0; k < 2; k++)
        snprintf(bind[k], sizeof bind[k], "bind.%s", argv[5 + k]);
    gantry_status status = gantry_runtime_create(NULL, &s->runtime, &s->err);
    if (status == GANTRY_OK)
        status = gantry_runtime_load_provider(s->runtime, argv[2], NULL, &s->err);
    if (status == GANTRY_OK)
        status = gantry_options_create(&options, &s->err);
    if (status == GANTRY_OK)
        status = gantry_options_set(options, "providers", providers, &s->err);
    for (int k = 0; k < 2 && status == GANTRY_OK; k++)
        status = gantry_options_set(options, bind[k], s->domain, &s->err);
    if (status == GANTRY_OK)
        status = gantry_session_create_from_file(s->runtime, argv[1], options, &s->session, NULL, &s->err);
    if (status == GANTRY_OK)
        status = gantry_run_create(s->session, &s->run, &s->err);
    gantry_options_destroy(&options);
    return status;
}

static gantry_status make_buffers(state *s)
{
    s->info.struct_bytes = sizeof s->info;
    gantry_status status = gantry_session_input(s->session, 0, &s->info, &s->err);
    uint64_t count = 1;
    for (int32_t d = 0; status == GANTRY_OK && d < s->info.rank; d++)
        count *= s->info.dims[d] > 0 ? (uint64_t)s->info.dims[d] : 0;
    s->bytes = gantry_dtype_bytes(s->info.dtype, count);
    void *zeros = calloc(1, s->bytes + 1);
    for (int k = 0; k < 2 && status == GANTRY_OK; k++)
        status = gantry_memory_alloc(s->runtime, s->domain, s->bytes, &s->buffers[k], &s->err);
    if (status == GANTRY_OK && zeros)
        status = gantry_memory_copy(s->runtime, s->domain, s->buffers[0], "host", (gantry_buffer){zeros, 0},
                                    s->bytes, &s->err);
    free(zeros);
    return status;
}

static gantry_status step(state *s, int turn)
{
    gantry_tensor t = {sizeof t, s->info.dtype, (uint32_t)s->info.rank, s->info.dims,
                       NULL,     s->domain,     s->buffers[turn % 2],   s->bytes};
    gantry_status status = gantry_run_bind_input(s->run, 0, &t, &s->err);
    t.buffer = s->buffers[(turn + 1) % 2];
    if (status == GANTRY_OK)
        status = gantry_run_bind_output(s->run, 0, &t, &s->err);
    return status == GANTRY_OK ? gantry_run_execute(s->run, &s->err) : status;
}

static gantry_status print_first(state *s, int steps)
{
    float *values = malloc(s->bytes + sizeof *values);
    if (!values)
        return GANTRY_RESOURCE;
    gantry_status status = gantry_memory_copy(s->runtime, "host", (gantry_buffer){values, 0}, s->domain,
                                              s->buffers[steps % 2], s->bytes, &s->err);
    if (status == GANTRY_OK && s->info.dtype == GANTRY_FLOAT32 && s->bytes)
        printf("after %d steps the first element is %g\n", steps, values[0]);
    free(values);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(stderr, "usage: device_loop MODEL.onnx PROVIDER.so NAME DOMAIN INPUT OUTPUT STEPS\n");
        return 2;
    }
    state s = {.domain = argv[4], .err = GANTRY_ERROR_INIT};
    int steps = atoi(argv[7]);
    gantry_status status = open_session(&s, argv);
    if (status == GANTRY_OK)
        status = make_buffers(&s);
    for (int turn = 0; turn < steps && status == GANTRY_OK; turn++)
        status = step(&s, turn);
    if (status == GANTRY_OK)
        status = print_first(&s, steps);
    if (status != GANTRY_OK)
        fprintf(stderr, "device_loop: %s: %s\n", gantry_status_text(status), s.err.message);
    gantry_run_destroy(&s.run);
    for (int k = 0; k < 2; k++)
        gantry_memory_free(s.runtime, s.domain, &s.buffers[k]);
    gantry_session_destroy(&s.session, NULL);
    gantry_runtime_destroy(&s.runtime, NULL);
    return status == GANTRY_OK ? 0 : 1;
}
