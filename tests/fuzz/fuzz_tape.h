/* A fuzzer's bytes read as decisions: one byte for a small choice, zeros when they are used up, so that a
 * prefix of an input is an input and a changed byte changes one decision. */
#ifndef GT_TESTS_FUZZ_TAPE_H
#define GT_TESTS_FUZZ_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_tape {
    const uint8_t *bytes;
    size_t count, at;
} fuzz_tape;

static inline uint8_t fuzz_byte(fuzz_tape *tape)
{
    return tape->at < tape->count ? tape->bytes[tape->at++] : 0;
}

/* 0 .. limit - 1; limit > 0. */
static inline uint32_t fuzz_below(fuzz_tape *tape, uint32_t limit)
{
    uint32_t value = fuzz_byte(tape);
    if (limit > 256)
        value = value << 8 | fuzz_byte(tape);
    return value % limit;
}

/* True for that many of 256 bytes, and never for a byte of 0. */
static inline bool fuzz_chance(fuzz_tape *tape, uint32_t of_256)
{
    return fuzz_byte(tape) > 255 - of_256;
}

static inline bool fuzz_ended(const fuzz_tape *tape)
{
    return tape->at >= tape->count;
}

#define FUZZ_PICK(tape, table) ((table)[fuzz_below((tape), (uint32_t)(sizeof(table) / sizeof *(table)))])

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
