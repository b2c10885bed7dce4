/* What kernels find wrong while they run, such as an index outside of its axis: they write it to a few words
 * of the queue, and whoever waits for the queue, or for an event on it, gets it as an error that names the
 * node. */
#include "opencl.h"

struct opencl_errors {
    int references; /* the queue, and whoever watches it; atomic */
    int reported;   /* what the words hold; atomic */
    uint32_t round; /* how often they were cleared; atomic */
    cl_mem words;
    const opencl_device *device;
};

struct opencl_site {
    int32_t id;
    char node[160];
    opencl_site *next;
};

/* ---- sites: which launch a number stands for ------------------------------------------------- */

int32_t opencl_site_add(opencl_device *device, const char *op, const char *node)
{
    opencl_site *site = opencl_alloc(device, 1, sizeof *site);
    if (!site)
        return 0;
    snprintf(site->node, sizeof site->node, "'%.100s' (%.40s)", node, op);
    pthread_mutex_lock(&device->memory_lock);
    device->last_site = device->last_site == INT32_MAX ? 1 : device->last_site + 1;
    site->id = device->last_site;
    site->next = device->sites;
    device->sites = site;
    pthread_mutex_unlock(&device->memory_lock);
    return site->id;
}

void opencl_site_drop(opencl_device *device, int32_t id)
{
    pthread_mutex_lock(&device->memory_lock);
    opencl_site **link = &device->sites;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    opencl_site *site = *link;
    if (site)
        *link = site->next;
    pthread_mutex_unlock(&device->memory_lock);
    opencl_free(device, site);
}

static void name_site(opencl_device *device, int32_t id, char *out_text, size_t capacity)
{
    pthread_mutex_lock(&device->memory_lock);
    const opencl_site *site = device->sites;
    while (site && site->id != id)
        site = site->next;
    snprintf(out_text, capacity, "%s", site ? site->node : "a node");
    pthread_mutex_unlock(&device->memory_lock);
}

/* ---- the words ------------------------------------------------------------------------------- */

gantry_status opencl_errors_open(opencl_device *device, opencl_errors **out_errors, gantry_error *err)
{
    static const int32_t none[OPENCL_ERROR_WORDS];
    cl_int result;
    opencl_errors *errors = opencl_alloc(device, 1, sizeof *errors);
    *out_errors = NULL;
    if (!errors)
        return opencl_out_of_memory(err);
    errors->words = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof none,
                                   (void *)none, &result);
    if (result != CL_SUCCESS) {
        opencl_free(device, errors);
        return opencl_check(result, "clCreateBuffer", err);
    }
    errors->references = 1;
    errors->device = device;
    *out_errors = errors;
    return GANTRY_OK;
}

opencl_errors *opencl_errors_share(opencl_errors *errors)
{
    __atomic_fetch_add(&errors->references, 1, __ATOMIC_RELAXED);
    return errors;
}

void opencl_errors_release(opencl_errors *errors)
{
    if (!errors || __atomic_sub_fetch(&errors->references, 1, __ATOMIC_ACQ_REL))
        return;
    clReleaseMemObject(errors->words);
    opencl_free(errors->device, errors);
}

cl_mem opencl_errors_words(const opencl_errors *errors)
{
    return errors->words;
}

cl_int opencl_errors_begin(opencl_errors *errors, cl_command_queue commands)
{
    const cl_int zero = 0;
    if (!__atomic_load_n(&errors->reported, __ATOMIC_RELAXED))
        return CL_SUCCESS;
    __atomic_fetch_add(&errors->round, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&errors->reported, 0, __ATOMIC_RELEASE);
    return clEnqueueFillBuffer(commands, errors->words, &zero, sizeof zero, 0,
                               OPENCL_ERROR_WORDS * sizeof zero, 0, NULL, NULL);
}

/* ---- who watches them ------------------------------------------------------------------------ */

opencl_source opencl_errors_source(opencl_errors *errors)
{
    return (opencl_source){errors, __atomic_load_n(&errors->round, __ATOMIC_RELAXED)};
}

/* One place stays free for the queue's own. */
void opencl_queue_watch(gantry_queue *queue, opencl_source source)
{
    uint32_t room = OPENCL_ERROR_SOURCES - (source.errors == queue->errors ? 0 : 1);
    for (uint32_t k = 0; k < queue->source_count; k++)
        if (queue->sources[k].errors == source.errors) {
            queue->sources[k].round = source.round;
            return;
        }
    if (queue->source_count >= room)
        return;
    opencl_errors_share(source.errors);
    queue->sources[queue->source_count++] = source;
}

void opencl_sources_drop(opencl_source *sources, uint32_t *inout_count)
{
    while (*inout_count)
        opencl_errors_release(sources[--*inout_count].errors);
}

/* ---- reading them ---------------------------------------------------------------------------- */

cl_int opencl_errors_read(const opencl_errors *errors, cl_command_queue commands, cl_bool blocking,
                          int32_t *out_words)
{
    return clEnqueueReadBuffer(commands, errors->words, blocking, 0, OPENCL_ERROR_WORDS * sizeof *out_words,
                               out_words, 0, NULL, NULL);
}

/* A watcher from before the last failure may read what is being cleared: its round is over. */
gantry_status opencl_source_report(opencl_device *device, const opencl_source *source, const int32_t *words,
                                   gantry_error *err)
{
    char node[160];
    opencl_errors *errors = source->errors;
    if (words[0] == 0 || source->round != __atomic_load_n(&errors->round, __ATOMIC_RELAXED) ||
        __atomic_exchange_n(&errors->reported, 1, __ATOMIC_ACQ_REL))
        return GANTRY_OK;
    name_site(device, words[0], node, sizeof node);
    int64_t index = (int64_t)((uint64_t)(uint32_t)words[2] << 32 | (uint32_t)words[1]);
    return opencl_fail(err, GANTRY_DATA, GANTRY_STAGE_RUN,
                       "node %s failed in a run: its indexes hold %lld, %d to %d are allowed", node,
                       (long long)index, -words[3], words[3] - 1);
}
