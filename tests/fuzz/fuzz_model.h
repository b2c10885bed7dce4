/* Small models of any operators from a fuzzer's bytes: every row of the operator table, with the attributes,
 * types and arity it names, and some that it does not. Most are nearly right, which is where checks are thin.
 */
#ifndef GT_TESTS_FUZZ_MODEL_H
#define GT_TESTS_FUZZ_MODEL_H

#include "fuzz_tape.h"

#include "../support/onnx_writer.h"

#include <gantry/types.h>

#define FUZZ_MAX_RANK 5
#define FUZZ_MAX_INPUTS 6

/* What an input of the model declares; an extent of -1 is the symbol "n". */
typedef struct fuzz_input {
    gantry_dtype dtype;
    uint32_t rank;
    int64_t dims[FUZZ_MAX_RANK];
} fuzz_input;

typedef struct fuzz_model {
    wire bytes; /* the ONNX file; freed with wire_free */
    uint32_t input_count;
    fuzz_input inputs[FUZZ_MAX_INPUTS];
} fuzz_model;

void fuzz_model_make(fuzz_tape *tape, fuzz_model *out_model);

/* count bytes of element data of that type; how comes from the tape. Padding bits are zero, booleans 0 or 1.
 */
void fuzz_fill(fuzz_tape *tape, gantry_dtype dtype, uint8_t *bytes, size_t count);

#endif
