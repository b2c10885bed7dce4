/* Reads the text of a picture of one line with PP-OCRv4's recogniser: the session API from loading to output.
 *
 *     read_line MODEL.onnx PICTURE.png WIDTH
 *
 * The model takes x [1, 3, 48, WIDTH] in BGR and gives, for each of its time steps, one score a class: class
 * 0 is "no letter", class k the k-th letter of the text that the model carries as metadata, the last one a
 * space. */
#include "tools/io/tensor_io.h"

#include <gantry/gantry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The letter of a class, as a pointer and a length in bytes (UTF-8). */
static const char *find_letter(const char *letters, int64_t class_index, int64_t class_count, int *out_bytes)
{
    *out_bytes = 1;
    if (class_index == class_count - 1)
        return " ";
    for (; class_index > 1 && letters; class_index--) {
        letters = strchr(letters, '\n');
        letters = letters ? letters + 1 : NULL;
    }
    *out_bytes = letters ? (int)strcspn(letters, "\n") : 0;
    return letters ? letters : "";
}

static int64_t best_class(const float *scores, int64_t count)
{
    int64_t best = 0;
    for (int64_t k = 1; k < count; k++)
        if (scores[k] > scores[best])
            best = k;
    return best;
}

/* A letter counts once for as long as it stays the best. */
static void print_text(const gantry_tensor *output, const char *letters)
{
    const float *scores = (const float *)((const char *)output->buffer.handle + output->buffer.offset_bytes);
    int64_t steps = output->dims[1], classes = output->dims[2], before = 0;
    for (int64_t t = 0; t < steps; t++) {
        int64_t best = best_class(scores + t * classes, classes);
        int bytes;
        const char *letter = find_letter(letters, best, classes, &bytes);
        if (best && best != before)
            printf("%.*s", bytes, letter);
        before = best;
    }
    printf("\n");
}

static gantry_status read_line(gantry_session *session, gantry_run *run, const io_tensor *picture,
                               gantry_error *err)
{
    gantry_tensor input, output = {.struct_bytes = sizeof output};
    io_tensor_view(picture, &input);
    gantry_status status = gantry_run_bind_input(run, 0, &input, err);
    if (status == GANTRY_OK)
        status = gantry_run_execute(run, err);
    if (status == GANTRY_OK)
        status = gantry_run_output(run, 0, &output, err);
    const char *letters = gantry_session_metadata(session, "character");
    if (status == GANTRY_OK && output.rank == 3 && output.dtype == GANTRY_FLOAT32 && letters)
        print_text(&output, letters);
    else if (status == GANTRY_OK)
        fprintf(stderr,
                "read_line: not a recogniser of this kind (scores [1, steps, classes] and \"character\")\n");
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: read_line MODEL.onnx PICTURE WIDTH\n");
        return 2;
    }
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_runtime *runtime = NULL;
    gantry_session *session = NULL;
    gantry_run *run = NULL;
    io_tensor picture = {0};
    char spec[4096];
    snprintf(spec, sizeof spec, "x=%s,size=%sx48,mean=0.5,std=0.5,order=NCHW-BGR", argv[2], argv[3]);

    gantry_status status = io_image_read(spec, &picture, &err);
    if (status == GANTRY_OK)
        status = gantry_runtime_create(NULL, &runtime, &err);
    if (status == GANTRY_OK)
        status = gantry_session_create_from_file(runtime, argv[1], NULL, &session, NULL, &err);
    if (status == GANTRY_OK)
        status = gantry_run_create(session, &run, &err);
    if (status == GANTRY_OK)
        status = read_line(session, run, &picture, &err);
    if (status != GANTRY_OK)
        fprintf(stderr, "read_line: %s: %s\n", gantry_status_text(status), err.message);

    gantry_run_destroy(&run);
    gantry_session_destroy(&session, NULL);
    gantry_runtime_destroy(&runtime, NULL);
    io_tensor_free(&picture);
    return status == GANTRY_OK ? 0 : 1;
}
