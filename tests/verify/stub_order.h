/* Who may touch which bytes when, seen from the devices: the host and every queue have a clock of what they
 * know to be done, as events and waits told them. Nobody may write what another one may still be at, nor read
 * what another one may still write. It sees all that a run really does, between the plans too: copies of
 * control nodes, memory that grows, the caller's. One thread at a time. */
#ifndef GT_TESTS_VERIFY_STUB_ORDER_H
#define GT_TESTS_VERIFY_STUB_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STUB_ACTORS 16u /* the host is 0 */

typedef struct stub_clock {
    uint64_t known[STUB_ACTORS];
} stub_clock;

/* Work that somebody may not know to be done touches these bytes. */
typedef struct stub_touch {
    uintptr_t begin, end;
    uint32_t actor;
    uint64_t work;
    bool writes;
} stub_touch;

typedef struct stub_order {
    stub_clock clocks[STUB_ACTORS];
    bool used[STUB_ACTORS];
    stub_touch *touches;
    uint32_t count, capacity;
    uint64_t waits, deaf; /* the wait of that number is not believed; 0: all are */
    char wrong[200];      /* the first mistake; "" for none */
} stub_order;

void stub_order_free(stub_order *order);
uint32_t stub_order_open(stub_order *order); /* an actor for a queue */
void stub_order_close(stub_order *order, uint32_t actor);
/* Work of an actor begins: it knows what the host knows. */
void stub_order_begin(stub_order *order, uint32_t actor);
void stub_order_touch(stub_order *order, uint32_t actor, const void *at, size_t bytes, bool writes,
                      const char *what);
stub_clock stub_order_mark(const stub_order *order, uint32_t actor); /* for an event */
void stub_order_learn(stub_order *order, uint32_t actor, const stub_clock *mark);
void stub_order_sync(stub_order *order, uint32_t actor); /* the host waited for the queue */
/* Memory is given back: nobody may be at it. */
void stub_order_release(stub_order *order, const void *at, size_t bytes);

#endif
