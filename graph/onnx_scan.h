/* A bounded look over the bytes of an ONNX file before anything is allocated for it: what may be unpacked,
 * and where the tensors' data lie. */
#ifndef GT_GRAPH_ONNX_SCAN_H
#define GT_GRAPH_ONNX_SCAN_H

#include "graph.h"

/* Where one TensorProto lies in the file. Its values stay there: raw_data as it is, the typed fields to be
 * decoded by gt_onnx_next_field over begin..end. */
typedef struct gt_onnx_record {
    uint64_t begin, end; /* the message's bytes */
    uint64_t raw_offset, raw_bytes;
    bool has_raw;
    uint32_t
        typed; /* bit n: field n holds values (4 float, 5 int32, 6 string, 7 int64, 10 double, 11 uint64) */
} gt_onnx_record;

/* skeleton is the model without tensor data and without fields we do not read; every Tensor in it names its
 * record. */
typedef struct gt_onnx_scan {
    gt_allocator *allocator;
    uint8_t *skeleton;
    size_t skeleton_bytes, skeleton_capacity;
    GT_VEC(gt_onnx_record) records;
    uint64_t node_count;
    uint64_t unpacked_bytes; /* an estimate of what unpacking will allocate */
} gt_onnx_scan;

/* what names the model in errors: a path. limits has no zeros. On failure *out_scan is empty. */
gantry_status gt_onnx_scan_run(gt_allocator *allocator, const char *what, const uint8_t *bytes, uint64_t size,
                               const gt_read_limits *limits, gt_onnx_scan *out_scan, gantry_error *err);
void gt_onnx_scan_free(gt_onnx_scan *scan);

/* One field of a message on the wire. value is the number of a varint or fixed field, payload_begin.._end its
 * bytes. */
typedef struct gt_onnx_field {
    uint64_t at;
    uint32_t number;
    uint32_t wire; /* 0 varint, 1 eight bytes, 2 bytes with a length, 5 four bytes */
    uint64_t value;
    uint64_t payload_begin, payload_end;
} gt_onnx_field;

/* Reads the field at *inout_at (before end); NULL when it is good, else what is wrong with it, and *inout_at
 * is where. */
const char *gt_onnx_next_field(const uint8_t *bytes, uint64_t end, uint64_t *inout_at,
                               gt_onnx_field *out_field);
/* The same for one varint. */
const char *gt_onnx_next_varint(const uint8_t *bytes, uint64_t end, uint64_t *inout_at, uint64_t *out_value);

#endif
