/* Applying row functions over broadcast operands, in chunks of the output. */
#ifndef CPU_BROADCAST_H
#define CPU_BROADCAST_H

#include "kernels.h"
#include "rows.h"

/* out = row(a, b): one binary function over two operands that broadcast to the output. */
typedef struct cpu_pairing {
    cpu_nest nest;
    int repeated; /* the operand whose short rows are the same along the axis before them, or -1 */
    cpu_binary_row row;
    size_t in_bytes, out_bytes; /* of one element */
} cpu_pairing;

/* Operands and output of blocked layouts are walked as they lie when they have one shape. False when an
 * operand does not broadcast. */
bool cpu_pairing_make(cpu_pairing *pairing, const cpu_tensor *out, const cpu_tensor *a, const cpu_tensor *b);
/* Output elements begin..end-1. */
void cpu_pairing_run(const cpu_pairing *pairing, const void *a, const void *b, void *out, int64_t begin,
                     int64_t end);

/* out = choose ? yes : no, for elements of 1, 2, 4, 8 or 16 bytes; a step is 0 or 1. */
typedef void (*cpu_choose_fn)(const uint8_t *choose, int64_t choose_step, const void *yes, int64_t yes_step,
                              const void *no, int64_t no_step, void *out, int64_t n);
cpu_choose_fn cpu_choose_find(size_t element_bytes);
/* Output elements begin..end-1 of a nest of three operands. */
void cpu_choose_run(const cpu_nest *nest, cpu_choose_fn choose, size_t element_bytes,
                    const void *const *operands, void *out, int64_t begin, int64_t end);

#endif
