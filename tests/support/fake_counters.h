/* What fake devices counted themselves, from the file that their config names (tests/fake/README.md). */
#ifndef GT_TESTS_FAKE_COUNTERS_H
#define GT_TESTS_FAKE_COUNTERS_H

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>

typedef struct counters {
    char name[64];
    uint64_t copies, copied_bytes, inside_copies, inside_bytes, runs, kernels, syncs, allocations, live_bytes,
        uploaded_bytes, compiles, reshapes, peer_copies, peer_bytes, pinned_copies, pinned_bytes;
} counters;

static char counters_path[64];

/* Of one device, by its place in the config. */
static inline counters counted_by(int device)
{
    counters c = {{0}};
    FILE *file = fopen(counters_path, "rb");
    cr_assert_not_null(file);
    fseek(file, 16 + device * (long)sizeof c, SEEK_SET);
    cr_assert_eq(fread(&c, sizeof c, 1, file), 1);
    fclose(file);
    return c;
}

#endif
