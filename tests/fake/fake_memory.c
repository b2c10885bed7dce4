/* The device's memory: one file in memory, mapped twice. The host is shown addresses of the mapping that
 * nobody may read, so that a host access faults at once; the device reads and writes through the other one.
 * Page protection holds for the whole process, which is why one mapping would not do.
 *
 *     shown   PROT_NONE    [ block ][ block ]...   <- handles
 *     own     read, write  [ block ][ block ]...   <- the same bytes */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

gantry_status fake_memory_open(fake_memory *memory, const gantry_host *host, size_t bytes, gantry_error *err)
{
    *memory =
        (fake_memory){.host = host, .fd = memfd_create("gantry-fake-device", MFD_CLOEXEC), .bytes = bytes};
    pthread_mutex_init(&memory->lock, NULL);
    if (memory->fd >= 0 && ftruncate(memory->fd, (off_t)bytes) == 0) {
        void *shown = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, memory->fd, 0);
        void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory->fd, 0);
        memory->shown = shown == MAP_FAILED ? NULL : shown;
        memory->own = own == MAP_FAILED ? NULL : own;
    }
    if (memory->shown && memory->own)
        return GANTRY_OK;
    fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_PLUGIN, "fake device: %zu bytes of memory: %s", bytes,
              strerror(errno));
    fake_memory_close(memory);
    return GANTRY_RESOURCE;
}

void fake_memory_close(fake_memory *memory)
{
    if (memory->shown)
        munmap(memory->shown, memory->bytes);
    if (memory->own)
        munmap(memory->own, memory->bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    memory->host->free(memory->host, memory->blocks);
    pthread_mutex_destroy(&memory->lock);
    *memory = (fake_memory){.fd = -1};
}

/* Whole pages, and one page between blocks: an access past the end is outside every block. */
static size_t span(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
}

static bool make_room(fake_memory *memory)
{
    if (memory->block_count < memory->block_capacity)
        return true;
    uint32_t capacity = memory->block_capacity ? memory->block_capacity * 2 : 64;
    fake_block *blocks = fake_zeroed(memory->host, capacity, sizeof *blocks);
    if (!blocks)
        return false;
    if (memory->block_count)
        memcpy(blocks, memory->blocks, memory->block_count * sizeof *blocks);
    memory->host->free(memory->host, memory->blocks);
    memory->blocks = blocks;
    memory->block_capacity = capacity;
    return true;
}

void *fake_memory_alloc(fake_memory *memory, size_t bytes)
{
    void *shown = NULL;
    if (bytes > memory->bytes)
        return NULL;
    bytes = bytes ? bytes : 1;
    pthread_mutex_lock(&memory->lock);
    size_t offset = 0;
    uint32_t at = 0;
    while (at < memory->block_count && memory->blocks[at].offset - offset < span(bytes)) {
        offset = memory->blocks[at].offset + span(memory->blocks[at].bytes);
        at++;
    }
    if (offset <= memory->bytes && span(bytes) <= memory->bytes - offset && make_room(memory)) {
        memmove(memory->blocks + at + 1, memory->blocks + at,
                (memory->block_count - at) * sizeof *memory->blocks);
        memory->blocks[at] = (fake_block){offset, bytes, 1};
        memory->block_count++;
        shown = memory->shown + offset;
    }
    pthread_mutex_unlock(&memory->lock);
    return shown;
}

/* The block that holds an offset, or block_count. */
static uint32_t find_block(const fake_memory *memory, size_t offset)
{
    uint32_t low = 0, high = memory->block_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (memory->blocks[middle].offset + memory->blocks[middle].bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < memory->block_count && memory->blocks[low].offset <= offset ? low : memory->block_count;
}

size_t fake_memory_free(fake_memory *memory, void *shown)
{
    size_t bytes = 0, offset = (size_t)((char *)shown - memory->shown);
    pthread_mutex_lock(&memory->lock);
    uint32_t at = find_block(memory, offset);
    if (at < memory->block_count && memory->blocks[at].offset == offset && --memory->blocks[at].users == 0) {
        bytes = memory->blocks[at].bytes;
        fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)(span(bytes) - PAGE));
        memmove(memory->blocks + at, memory->blocks + at + 1,
                (memory->block_count - at - 1) * sizeof *memory->blocks);
        memory->block_count--;
    }
    pthread_mutex_unlock(&memory->lock);
    return bytes;
}

bool fake_memory_share(fake_memory *memory, void *shown, size_t bytes)
{
    size_t offset = (size_t)((char *)shown - memory->shown);
    pthread_mutex_lock(&memory->lock);
    uint32_t at = find_block(memory, offset);
    bool found =
        at < memory->block_count && memory->blocks[at].offset == offset && bytes <= memory->blocks[at].bytes;
    if (found)
        memory->blocks[at].users++;
    pthread_mutex_unlock(&memory->lock);
    return found;
}

void *fake_memory_own(fake_memory *memory, gantry_buffer buffer, size_t bytes)
{
    void *own = NULL;
    uintptr_t base = (uintptr_t)memory->shown, address = (uintptr_t)buffer.handle;
    if (address < base || address - base >= memory->bytes || buffer.offset_bytes > memory->bytes)
        return NULL;
    size_t begin = address - base, offset = begin + buffer.offset_bytes;
    pthread_mutex_lock(&memory->lock);
    uint32_t at = find_block(memory, begin);
    if (at < memory->block_count) {
        const fake_block *block = &memory->blocks[at];
        if (offset - block->offset <= block->bytes && bytes <= block->bytes - (offset - block->offset))
            own = memory->own + offset;
    }
    pthread_mutex_unlock(&memory->lock);
    return own;
}

uint64_t fake_memory_live(fake_memory *memory)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&memory->lock);
    for (uint32_t k = 0; k < memory->block_count; k++)
        bytes += memory->blocks[k].bytes;
    pthread_mutex_unlock(&memory->lock);
    return bytes;
}
