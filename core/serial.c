/* One call at a time into a provider that asks for it, and how long callers waited for their turn. */
#include "runtime.h"

#include "base/clock.h"

uint64_t gt_provider_lock(gt_provider_entry *entry)
{
    if (pthread_mutex_trylock(&entry->serial) == 0)
        return 0;
    uint64_t begin = gt_now_ns();
    pthread_mutex_lock(&entry->serial);
    uint64_t ns = gt_now_ns() - begin;
    ns = ns ? ns : 1;
    atomic_fetch_add_explicit(&entry->lock_waits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&entry->lock_wait_ns, ns, memory_order_relaxed);
    return ns;
}

void gt_provider_unlock(gt_provider_entry *entry)
{
    pthread_mutex_unlock(&entry->serial);
}
