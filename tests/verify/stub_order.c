/* Clocks of the host and of queues, and the bytes that work touches which somebody may not know to be done.
 */
#include "stub_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void stub_order_free(stub_order *order)
{
    free(order->touches);
    order->touches = NULL;
    order->count = order->capacity = 0;
}

static void join(stub_clock *clock, const stub_clock *from)
{
    for (uint32_t a = 0; a < STUB_ACTORS; a++)
        if (clock->known[a] < from->known[a])
            clock->known[a] = from->known[a];
}

/* What the host knows to be done is in nobody's way. */
static void forget_done(stub_order *order)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < order->count; k++) {
        const stub_touch *t = &order->touches[k];
        if (order->clocks[0].known[t->actor] < t->work)
            order->touches[kept++] = *t;
    }
    order->count = kept;
}

uint32_t stub_order_open(stub_order *order)
{
    uint32_t actor = 1;
    while (actor < STUB_ACTORS && order->used[actor])
        actor++;
    if (actor == STUB_ACTORS)
        abort();
    order->used[actor] = true;
    return actor;
}

void stub_order_close(stub_order *order, uint32_t actor)
{
    join(&order->clocks[0], &order->clocks[actor]);
    forget_done(order);
    order->used[actor] = false;
}

void stub_order_begin(stub_order *order, uint32_t actor)
{
    if (!actor)
        return;
    join(&order->clocks[actor], &order->clocks[0]);
    order->clocks[actor].known[actor]++;
}

static void complain(stub_order *order, uint32_t actor, const stub_touch *other, const char *what)
{
    if (!order->wrong[0])
        snprintf(order->wrong, sizeof order->wrong, "%s by actor %u, while actor %u may still %s there", what,
                 actor, other->actor, other->writes ? "write" : "read");
}

void stub_order_touch(stub_order *order, uint32_t actor, const void *at, size_t bytes, bool writes,
                      const char *what)
{
    stub_touch fresh = {(uintptr_t)at, (uintptr_t)at + bytes, actor, order->clocks[actor].known[actor],
                        writes};
    if (!bytes)
        return;
    for (uint32_t k = 0; k < order->count; k++) {
        const stub_touch *t = &order->touches[k];
        bool meet = t->begin < fresh.end && fresh.begin < t->end && (t->writes || writes);
        if (meet && t->actor != actor && order->clocks[actor].known[t->actor] < t->work)
            complain(order, actor, t, what);
    }
    if (!actor)
        return;
    if (order->count == order->capacity) {
        order->capacity = order->capacity * 2 + 64;
        order->touches = realloc(order->touches, order->capacity * sizeof *order->touches);
        if (!order->touches)
            abort();
    }
    order->touches[order->count++] = fresh;
}

stub_clock stub_order_mark(const stub_order *order, uint32_t actor)
{
    return order->clocks[actor];
}

void stub_order_learn(stub_order *order, uint32_t actor, const stub_clock *mark)
{
    if (++order->waits == order->deaf)
        return;
    join(&order->clocks[actor], mark);
    if (!actor)
        forget_done(order);
}

void stub_order_sync(stub_order *order, uint32_t actor)
{
    stub_order_learn(order, 0, &order->clocks[actor]);
}

void stub_order_release(stub_order *order, const void *at, size_t bytes)
{
    uintptr_t begin = (uintptr_t)at;
    uint32_t kept = 0;
    for (uint32_t k = 0; k < order->count; k++) {
        const stub_touch *t = &order->touches[k];
        bool inside = t->begin < begin + bytes && begin < t->end;
        if (inside)
            complain(order, 0, t, "memory is given back");
        else
            order->touches[kept++] = *t;
    }
    order->count = kept;
}
