/* Loops cut into fixed chunks, so that results do not depend on how many threads run them; fresh memory that
 * all threads fill, since the kernel clears each page for the one that touches it first. */
#include "cpu.h"

#include <omp.h>

void cpu_parallel(const cpu_call *call, int64_t count, int64_t chunk,
                  void (*body)(void *arg, int64_t begin, int64_t end), void *arg)
{
    if (count <= 0)
        return;
    if (chunk <= 0)
        chunk = 1;
    int64_t chunk_count = (count - 1) / chunk + 1;
    int threads = call->threads < chunk_count ? call->threads : (int)chunk_count;
    if (threads <= 1) {
        for (int64_t begin = 0; begin < count; begin += chunk)
            body(arg, begin, count - begin < chunk ? count : begin + chunk);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t k = 0; k < chunk_count; k++) {
        int64_t begin = k * chunk;
        body(arg, begin, count - begin < chunk ? count : begin + chunk);
    }
}

/* A loop of one chunk runs on the calling thread, whose number may be one of the application's own region. */
void *cpu_thread_scratch(const cpu_call *call, size_t bytes)
{
    int thread = omp_get_thread_num();
    return (char *)call->scratch + (thread < call->threads ? (size_t)thread : 0) * bytes;
}

#define HUGE_PAGE_BYTES ((int64_t)2 << 20) /* two threads in one page wait for each other */

typedef struct copy_job {
    char *to;
    const char *from;
} copy_job;

static void copy_part(void *arg, int64_t begin, int64_t end)
{
    const copy_job *job = arg;
    memcpy(job->to + begin, job->from + begin, (size_t)(end - begin));
}

void cpu_copy_fresh(int threads, void *to, const void *from, size_t bytes)
{
    cpu_call call = {.threads = threads};
    copy_job job = {to, from};
    cpu_parallel(&call, (int64_t)bytes, HUGE_PAGE_BYTES, copy_part, &job);
}

static void touch_part(void *arg, int64_t begin, int64_t end)
{
    volatile char *memory = arg;
    for (int64_t at = begin; at < end; at += 4096)
        memory[at] = 0;
}

void cpu_touch_fresh(int threads, void *memory, size_t bytes)
{
    cpu_call call = {.threads = threads};
    if (threads > 1)
        cpu_parallel(&call, (int64_t)bytes, HUGE_PAGE_BYTES, touch_part, memory);
}
