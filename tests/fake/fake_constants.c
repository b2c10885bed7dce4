/* What the fake device keeps beside its programs: constants in its memory, of each program or shared through
 * the host, and what it says of them. */
#include "fake_program.h"

/* Bytes that memory_classes tells of. */
static void uncount(fake_provider *provider, known_value *known)
{
    if (known->counted)
        atomic_fetch_sub(&provider->held_bytes, known->bytes);
    known->counted = false;
}

void fake_drop_known(fake_provider *provider, known_value *known, uint32_t count)
{
    fake_domain *domain = provider->domain;
    const gantry_host *host = provider->host;
    for (uint32_t k = 0; known && k < count; k++) {
        if (known[k].shared.data) {
            host->packed_release(host, &known[k].shared);
            continue;
        }
        if (known[k].shown) {
            atomic_fetch_sub(&domain->counters->live_bytes,
                             fake_memory_free(&domain->memory, known[k].shown));
            uncount(provider, &known[k]);
        }
        host->free(host, known[k].host);
    }
    host->free(host, known);
}

bool fake_is_read_on_host(const fake_config *config, const gantry_graph_view *graph, uint32_t value)
{
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++)
            if (graph->nodes[n]->inputs[k] == value && fake_reads_on_host(config, graph->nodes[n], k))
                return true;
    return false;
}

gantry_status fake_upload(fake_provider *provider, known_value *known, const void *data, size_t bytes,
                          bool on_host, gantry_error *err)
{
    fake_domain *domain = provider->domain;
    known->bytes = bytes;
    known->shown = fake_memory_alloc(&domain->memory, bytes);
    if (!known->shown)
        return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_COMPILE,
                         "fake device: no room for a constant of %zu bytes", bytes);
    atomic_fetch_add(&domain->counters->live_bytes, bytes ? bytes : 1);
    atomic_fetch_add(&domain->counters->uploaded_bytes, bytes);
    atomic_fetch_add(&provider->held_bytes, bytes);
    known->counted = true;
    memcpy(fake_memory_own(&domain->memory, (gantry_buffer){known->shown, 0}, bytes), data, bytes);
    if (on_host) {
        known->host = fake_zeroed(provider->host, bytes, 1);
        if (!known->host)
            return fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
        memcpy(known->host, data, bytes);
    }
    return GANTRY_OK;
}

/* ---- shared by sessions ---------------------------------------------------------------------- */

/* What the host keeps for us: the data of a gantry_packed. */
typedef struct fake_shared {
    fake_provider *provider;
    known_value *known; /* one, which nobody shares again */
} fake_shared;

static void release_shared(void *self, void *data)
{
    fake_shared *shared = data;
    const gantry_host *host = shared->provider->host;
    fake_drop_known(shared->provider, shared->known, 1);
    host->free(host, shared);
}

static void use_shared(known_value *known, const gantry_packed *packed)
{
    const fake_shared *shared = packed->data;
    *known = *shared->known;
    known->shared = *packed;
}

static gantry_status make_shared(fake_provider *provider, const void *data, size_t bytes, bool on_host,
                                 fake_shared **out_shared, gantry_error *err)
{
    fake_shared *shared = fake_zeroed(provider->host, 1, sizeof *shared);
    *out_shared = shared;
    if (!shared)
        return fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    shared->provider = provider;
    shared->known = fake_zeroed(provider->host, 1, sizeof *shared->known);
    gantry_status status = shared->known ? fake_upload(provider, shared->known, data, bytes, on_host, err)
                                         : fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    if (status == GANTRY_OK)
        uncount(provider, shared->known);
    else
        release_shared(NULL, shared);
    return status;
}

/* on_host is all that tells two forms of a constant apart. */
static gantry_status share(fake_provider *provider, const constant *c, known_value *known, bool on_host,
                           gantry_error *err)
{
    const gantry_host *host = provider->host;
    gantry_packed packed = {.struct_bytes = sizeof packed};
    if (host->packed_get(host, c->constants, c->id, on_host, &packed) == GANTRY_OK) {
        use_shared(known, &packed);
        return GANTRY_OK;
    }
    fake_shared *shared;
    gantry_status status = make_shared(provider, c->data, c->bytes, on_host, &shared, err);
    if (status != GANTRY_OK)
        return status;
    gantry_packed given = {sizeof given, shared, c->bytes, release_shared, NULL};
    status = host->packed_put(host, c->constants, c->id, on_host, &given, &packed, err);
    if (status == GANTRY_OK)
        use_shared(known, &packed);
    else
        release_shared(NULL, shared);
    return status;
}

gantry_status fake_keep_constant(fake_provider *provider, bool shared, const constant *c, known_value *known,
                                 bool on_host, gantry_error *err)
{
    if (shared && GANTRY_HAS(gantry_host, provider->host, packed_put))
        return share(provider, c, known, on_host, err);
    return fake_upload(provider, known, c->data, c->bytes, on_host, err);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Shared constants are the host's to count. */
uint32_t fake_memory_classes(void *self, gantry_memory_class *out_classes, uint32_t capacity)
{
    fake_provider *provider = self;
    if (capacity < 1 || out_classes[0].struct_bytes < sizeof *out_classes)
        return 1;
    snprintf(out_classes[0].name, sizeof out_classes[0].name, "weights");
    out_classes[0].bytes = atomic_load(&provider->held_bytes);
    return 1;
}
