/* The element types that C computes in itself, as a list to make code of: X(suffix, dtype, type). */
#ifndef CPU_NATIVE_TYPES_H
#define CPU_NATIVE_TYPES_H

#define CPU_NATIVE_TYPES(X)                                                                                  \
    X(f32, FLOAT32, float)                                                                                   \
    X(f64, FLOAT64, double)                                                                                  \
    X(i8, INT8, int8_t)                                                                                      \
    X(i16, INT16, int16_t)                                                                                   \
    X(i32, INT32, int32_t)                                                                                   \
    X(i64, INT64, int64_t)                                                                                   \
    X(u8, UINT8, uint8_t) X(u16, UINT16, uint16_t) X(u32, UINT32, uint32_t) X(u64, UINT64, uint64_t)

#endif
