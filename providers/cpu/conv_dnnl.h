/* What the float and the 8-bit convolutions of oneDNN share. */
#ifndef CPU_CONV_DNNL_H
#define CPU_CONV_DNNL_H

#include "conv.h"
#include "dnnl_kernel.h"

/* ONNX weights as oneDNN sees them: [groups,] out, in, window. The wanted layout is oneDNN's choice. False
 * when oneDNN refuses; what was made until then is the caller's to destroy. */
bool cpu_conv_describe_weights(const cpu_conv *conv, dnnl_data_type_t type, dnnl_memory_desc_t *out_plain,
                               dnnl_memory_desc_t *out_wanted);

#endif
