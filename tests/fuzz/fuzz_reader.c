/* Bytes as an ONNX file: the pre-scan, the reader, and inference on what comes of it. */
#include "fuzz_tape.h"

#include "graph/infer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gt_allocator allocator;
    gt_model *model = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    gt_allocator_init(&allocator, NULL);
    gantry_status status = gt_onnx_read_memory(&allocator, data, size, NULL, NULL, &model, &err);
    if (status == GANTRY_OK)
        status = gt_infer_inputs(model, NULL, &err);
    if (status == GANTRY_OK)
        status = gt_infer_graph(model->root, &err);
    if ((status == GANTRY_OK) == (err.message[0] != 0))
        __builtin_trap(); /* a status without words, or words without one */
    gt_model_destroy(&model);
    return 0;
}
