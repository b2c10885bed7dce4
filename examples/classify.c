/* Names the best classes of a picture: classify MODEL.onnx PICTURE WIDTHxHEIGHT. The session API in 40 lines.
 */
#include "tools/io/tensor_io.h"

#include <gantry/gantry.h>
#include <stdio.h>

static void print_best(const gantry_tensor *scores)
{
    const float *values = (const float *)((const char *)scores->buffer.handle + scores->buffer.offset_bytes);
    int64_t count = scores->dims[scores->rank - 1], best = 0;
    for (int64_t k = 1; k < count; k++)
        best = values[k] > values[best] ? k : best;
    printf("class %lld of %lld, score %.4f\n", (long long)best, (long long)count, values[best]);
}

int main(int argc, char **argv)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_runtime *runtime = NULL;
    gantry_session *session = NULL;
    gantry_run *run = NULL;
    gantry_tensor input, scores = {.struct_bytes = sizeof scores};
    io_tensor picture = {0};
    char spec[2048];
    if (argc != 4) {
        fprintf(stderr, "usage: classify MODEL.onnx PICTURE WIDTHxHEIGHT\n");
        return 2;
    }
    snprintf(spec, sizeof spec, "x=%s,size=%s,mean=0.485:0.456:0.406,std=0.229:0.224:0.225,order=NCHW-RGB",
             argv[2], argv[3]);
    bool good = io_image_read(spec, &picture, &err) == GANTRY_OK &&
                gantry_runtime_create(NULL, &runtime, &err) == GANTRY_OK &&
                gantry_session_create_from_file(runtime, argv[1], NULL, &session, NULL, &err) == GANTRY_OK &&
                gantry_run_create(session, &run, &err) == GANTRY_OK;
    if (good) {
        io_tensor_view(&picture, &input);
        good = gantry_run_bind_input(run, 0, &input, &err) == GANTRY_OK &&
               gantry_run_execute(run, &err) == GANTRY_OK &&
               gantry_run_output(run, 0, &scores, &err) == GANTRY_OK;
    }
    if (good && scores.dtype == GANTRY_FLOAT32 && scores.rank > 0)
        print_best(&scores);
    else
        fprintf(stderr, "classify: %s\n", good ? "the output is no row of float scores" : err.message);
    gantry_run_destroy(&run);
    gantry_session_destroy(&session, NULL);
    gantry_runtime_destroy(&runtime, NULL);
    io_tensor_free(&picture);
    return good ? 0 : 1;
}
