/* What a plain test program expects: failures are counted, from any thread, and the first ones printed. */
#ifndef GT_TESTS_EXPECT_H
#define GT_TESTS_EXPECT_H

#include <stdatomic.h>
#include <stdio.h>

#define MOST_FAILURES_PRINTED 20

static atomic_int failures;

#define EXPECT(condition, ...)                                                                               \
    do {                                                                                                     \
        if (!(condition) && atomic_fetch_add(&failures, 1) < MOST_FAILURES_PRINTED) {                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                  \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fputc('\n', stderr);                                                                             \
        }                                                                                                    \
    } while (0)

#endif
