/* What all kernels share. HALF: operands are stored in 16 bits; arithmetic is float32 always. An operand is a
 * buffer and the element it begins at: views at an edge may begin inside of one. */
#ifdef HALF
#define T half
#define LOAD(p, k) vload_half(k, p)
#define LOAD16(p, k) vload_half16(0, (p) + (k))
#define STORE(p, k, v) vstore_half_rte(v, k, p)
#define STORE16(p, k, v) vstore_half16_rte(v, 0, (p) + (k))
#else
#define T float
#define LOAD(p, k) (p)[k]
#define LOAD16(p, k) vload16(0, (p) + (k))
#define STORE(p, k, v) (p)[k] = (v)
#define STORE16(p, k, v) vstore16(v, 0, (p) + (k))
#endif
#define IN(name) __global const T *restrict name, ulong name##_begin
#define OUT(name) __global T *restrict name, ulong name##_begin
