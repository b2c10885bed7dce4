/* Programs of the fake device as bytes: its kernels, its fusions, and its constants as they lie in its
 * memory.
 *
 *     header | kernels | fusions | for each value: bytes (u64, NOT_KNOWN: no constant), and as many bytes
 *
 * Nodes and values are named by index: ids are a session's own. */
#include "fake_program.h"

#define BLOB_MAGIC "GFAKEBL1"
#define NOT_KNOWN UINT64_MAX

typedef struct blob_header {
    char magic[8];
    uint64_t bytes; /* of all */
    uint32_t node_count, value_count, kernel_count, fusion_count;
} blob_header;

/* ---- saving ---------------------------------------------------------------------------------- */

static size_t count_bytes(const gantry_program *program)
{
    size_t bytes =
        sizeof(blob_header) + program->kernel_count * sizeof(kernel) + program->fusion_count * sizeof(fusion);
    for (uint32_t v = 0; v < program->graph->value_count; v++)
        bytes += sizeof(uint64_t) + (program->known[v].shown ? program->known[v].bytes : 0);
    return bytes;
}

static void put(char **inout_at, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(*inout_at, data, bytes);
    *inout_at += bytes;
}

gantry_status fake_blob_save(void *self, const gantry_program *program, void **out_data, size_t *out_bytes,
                             gantry_error *err)
{
    fake_provider *provider = self;
    const gantry_host *host = provider->host;
    *out_data = NULL;
    *out_bytes = 0;
    gantry_status status = fake_call_begin(provider->domain, &provider->script, FAKE_CALL_SAVE, err);
    if (status != GANTRY_OK)
        return status;
    blob_header header = {BLOB_MAGIC,
                          count_bytes(program),
                          program->graph->node_count,
                          program->graph->value_count,
                          program->kernel_count,
                          program->fusion_count};
    char *data = host->alloc(host, header.bytes, 16), *at = data;
    if (!data)
        return fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    put(&at, &header, sizeof header);
    put(&at, program->kernels, program->kernel_count * sizeof(kernel));
    put(&at, program->fusions, program->fusion_count * sizeof(fusion));
    for (uint32_t v = 0; v < program->graph->value_count; v++) {
        const known_value *known = &program->known[v];
        uint64_t bytes = known->shown ? known->bytes : NOT_KNOWN;
        put(&at, &bytes, sizeof bytes);
        if (known->shown)
            put(&at, fake_memory_own(&provider->domain->memory, (gantry_buffer){known->shown, 0}, bytes),
                bytes);
    }
    *out_data = data;
    *out_bytes = header.bytes;
    return GANTRY_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* What is left of the bytes. */
typedef struct blob_reader {
    const char *at;
    size_t left;
} blob_reader;

static const void *take(blob_reader *reader, size_t bytes)
{
    const char *at = reader->at;
    if (bytes > reader->left)
        return NULL;
    reader->at += bytes;
    reader->left -= bytes;
    return at;
}

static bool take_into(blob_reader *reader, void *target, size_t bytes)
{
    const void *data = take(reader, bytes);
    if (data && bytes)
        memcpy(target, data, bytes);
    return data != NULL;
}

static bool are_nodes(const gantry_program *program, uint32_t count, const uint32_t *nodes)
{
    bool good = count >= 1 && count <= FAKE_MAX_CHAIN;
    for (uint32_t k = 0; good && k < count; k++)
        good = nodes[k] < program->graph->node_count;
    return good;
}

/* Each node in one kernel. */
static bool are_kernels(const gantry_program *program)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        if (!are_nodes(program, program->kernels[k].node_count, program->kernels[k].nodes))
            return false;
        count += program->kernels[k].node_count;
    }
    if (count != program->graph->node_count)
        return false;
    memset(program->kernel_of_node, 0xff, program->graph->node_count * sizeof *program->kernel_of_node);
    fake_index_kernels((gantry_program *)program);
    for (uint32_t n = 0; n < program->graph->node_count; n++)
        if (program->kernel_of_node[n] == UINT32_MAX)
            return false;
    return true;
}

static bool read_kernels(gantry_program *program, blob_reader *reader)
{
    blob_header header;
    const gantry_graph_view *graph = program->graph;
    size_t bytes = reader->left;
    if (!take_into(reader, &header, sizeof header) || memcmp(header.magic, BLOB_MAGIC, 8) != 0 ||
        header.bytes != bytes || header.node_count != graph->node_count ||
        header.value_count != graph->value_count || header.kernel_count > graph->node_count ||
        header.fusion_count > program->fusion_capacity)
        return false;
    program->kernel_count = header.kernel_count;
    if (!take_into(reader, program->kernels, header.kernel_count * sizeof(kernel)) || !are_kernels(program))
        return false;
    if (!take_into(reader, program->fusions, header.fusion_count * sizeof(fusion)))
        return false;
    for (; program->fusion_count < header.fusion_count; program->fusion_count++) {
        const fusion *f = &program->fusions[program->fusion_count];
        if (f->pattern >= program->provider->config.fused_count ||
            !are_nodes(program, f->node_count, f->nodes))
            return false;
    }
    return true;
}

static gantry_status damaged(gantry_error *err, const char *what)
{
    return fake_fail(err, GANTRY_DATA, GANTRY_STAGE_COMPILE,
                     "fake device: these are not the bytes of this program: %s", what);
}

static gantry_status load_constant(gantry_program *program, const gantry_compile_args *args, uint32_t value,
                                   const void *data, size_t bytes, gantry_error *err)
{
    fake_provider *provider = program->provider;
    bool shared = fake_option_is_on(provider, args->session_options, FAKE_OPTION_SHARE);
    constant c = {args->constants, program->graph->values[value]->constant_id, data, bytes};
    return fake_keep_constant(provider, shared, &c, &program->known[value],
                              fake_is_read_on_host(&provider->config, program->graph, value), err);
}

static gantry_status read_constants(gantry_program *program, const gantry_compile_args *args,
                                    blob_reader *reader, gantry_error *err)
{
    gantry_status status = GANTRY_OK;
    for (uint32_t v = 0; status == GANTRY_OK && v < program->graph->value_count; v++) {
        bool known = program->graph->values[v]->constant_id != GANTRY_NO_ID;
        uint64_t bytes;
        const void *data = NULL;
        if (!take_into(reader, &bytes, sizeof bytes) || known != (bytes != NOT_KNOWN))
            return damaged(err, "other constants");
        if (!known)
            continue;
        data = take(reader, bytes);
        status = data ? load_constant(program, args, v, data, bytes, err) : damaged(err, "they end early");
    }
    return status == GANTRY_OK && reader->left ? damaged(err, "there are too many") : status;
}

/* The kit has to notice: another constant than in the program that was saved. */
static void spoil(const gantry_program *program)
{
    for (uint32_t v = 0; v < program->graph->value_count; v++) {
        const known_value *known = &program->known[v];
        char *own = known->shown ? fake_memory_own(&program->provider->domain->memory,
                                                   (gantry_buffer){known->shown, 0}, known->bytes)
                                 : NULL;
        if (own && known->bytes)
            own[0] ^= 1;
    }
}

static gantry_status read_program(gantry_program *program, const gantry_compile_args *args, const void *data,
                                  size_t bytes, gantry_error *err)
{
    blob_reader reader = {data, bytes};
    fake_phase phase = fake_phase_begin(program->provider, args->recorder, "load");
    if (!read_kernels(program, &reader))
        return damaged(err, "the header or the kernels are others");
    gantry_status status = read_constants(program, args, &reader, err);
    if (status == GANTRY_OK)
        status = fake_read_bodies(program, args->constants, err);
    fake_phase_end(&phase, "%u kernels", program->kernel_count);
    return status;
}

gantry_status fake_blob_load(void *self, const gantry_compile_args *args, const void *data, size_t bytes,
                             gantry_program **out_program, gantry_error *err)
{
    fake_provider *provider = self;
    const char *quirk = provider->config.quirk;
    *out_program = NULL;
    gantry_status status = fake_call_begin(provider->domain, &provider->script, FAKE_CALL_STALE, err);
    if (status != GANTRY_OK)
        return status;
    gantry_program *program = fake_program_create(provider, args);
    status = program ? read_program(program, args, data, bytes, err)
                     : fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    /* Recorded before it fails: the host has to forget that. */
    if (status == GANTRY_OK && strcmp(quirk, "blob_silent") != 0)
        fake_record_program(program, args->recorder);
    if (status == GANTRY_OK)
        status = fake_call_begin(provider->domain, &provider->script, FAKE_CALL_LOAD, err);
    if (status != GANTRY_OK) {
        fake_program_destroy(self, program);
        return status == GANTRY_DATA && strcmp(quirk, "blob_any") == 0
                   ? fake_compile(self, args, out_program, err)
                   : status;
    }
    if (strcmp(quirk, "blob_other") == 0)
        spoil(program);
    *out_program = program;
    return GANTRY_OK;
}
