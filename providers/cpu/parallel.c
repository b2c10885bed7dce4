/* Loops cut into fixed chunks, so that results do not depend on how many threads run them. */
#include "cpu.h"

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
