/* Makes and compares the keys of cached programs: hashes of what the provider sees of its partition, and the
 * names, versions and options that it works under.
 *
 *     provider=dev                  identity: these two lines
 *     partition=#...                nodes, how they hang together, names
 *     plugin=fake 1.0               then what may change in the life of a model
 *     ...
 *     constant 0 (w)=#...
 *
 * Ids of nodes, values and constants are a session's own, and no part of it. */
#include "program_key.h"

#include "host_parts.h"

#define MOST_CONSTANT_LINES 256u /* a key has at most 64 KiB; more constants share one line */
#define MOST_LINE_TEXT 80
#define MOST_DIFFERENCES 4

typedef struct key_maker {
    const gantry_host *host;
    gantry_constants *constants;
    XXH3_state_t partition, attributes, types, sizes, bytes;
    gt_text lines; /* of constants */
    uint32_t constant_count;
    gantry_error *err;
} key_maker;

/* ---- hashing --------------------------------------------------------------------------------- */

static void add_number(XXH3_state_t *state, uint64_t number)
{
    XXH3_128bits_update(state, &number, sizeof number);
}

static void add_bytes(XXH3_state_t *state, const void *data, size_t bytes)
{
    add_number(state, bytes);
    if (data && bytes)
        XXH3_128bits_update(state, data, bytes);
}

static void add_text(XXH3_state_t *state, const char *text)
{
    add_bytes(state, text, text ? strlen(text) : 0);
}

static void add_indexes(XXH3_state_t *state, uint32_t count, const uint32_t *indexes)
{
    add_bytes(state, indexes, count * sizeof *indexes);
}

static void add_tensor(XXH3_state_t *state, const gantry_tensor *tensor)
{
    const char *data = (const char *)tensor->buffer.handle + tensor->buffer.offset_bytes;
    add_number(state, (uint64_t)tensor->dtype);
    add_bytes(state, tensor->dims, tensor->rank * sizeof *tensor->dims);
    if (tensor->dtype != GANTRY_STRING) {
        add_bytes(state, data, tensor->size_bytes);
        return;
    }
    const char *const *texts = (const char *const *)(const void *)data;
    for (size_t k = 0; k < tensor->size_bytes / sizeof *texts; k++)
        add_text(state, texts[k]);
}

static void add_attribute(XXH3_state_t *state, const gantry_attribute *attribute)
{
    uint32_t count = attribute->count;
    bool single = attribute->kind == GANTRY_ATTR_TENSOR;
    add_text(state, attribute->name);
    add_number(state, (uint64_t)attribute->kind);
    add_number(state, count);
    add_number(state, (uint64_t)attribute->i);
    add_bytes(state, &attribute->f, sizeof attribute->f);
    add_bytes(state, attribute->s, attribute->s ? attribute->length : 0);
    add_bytes(state, attribute->ints, attribute->ints ? count * sizeof *attribute->ints : 0);
    add_bytes(state, attribute->floats, attribute->floats ? count * sizeof *attribute->floats : 0);
    for (uint32_t k = 0; attribute->strings && k < count; k++)
        add_text(state, attribute->strings[k]);
    for (uint32_t k = 0; attribute->tensors && k < (single ? 1 : count); k++)
        add_tensor(state, &attribute->tensors[k]);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* A name from a model, as part of a component's. */
static void append_name(gt_text *text, const char *name)
{
    for (size_t k = 0; name && name[k] && k < MOST_LINE_TEXT; k++) {
        char c = name[k];
        gt_text_append(text, (unsigned char)c < 32 || c == '=' || c == 127 ? "_" : &c, 1);
    }
}

static void append_hash(gt_text *text, XXH128_hash_t hash)
{
    gt_text_printf(text, "#%016llx%016llx\n", (unsigned long long)hash.high64,
                   (unsigned long long)hash.low64);
}

static bool fits_line(const char *value)
{
    size_t k = 0;
    while (value[k] && (unsigned char)value[k] >= 32 && value[k] != 127)
        k++;
    return !value[k] && k <= MOST_LINE_TEXT && *value != '#';
}

static void add_line(gt_text *text, const char *component, const char *value)
{
    append_name(text, component);
    gt_text_append(text, "=", 1);
    if (fits_line(value))
        gt_text_printf(text, "%s\n", value);
    else
        append_hash(text, XXH3_128bits(value, strlen(value)));
}

static void add_hash_line(gt_text *text, const char *component, const XXH3_state_t *state)
{
    gt_text_printf(text, "%s=", component);
    append_hash(text, XXH3_128bits_digest(state));
}

/* ---- what the provider sees ------------------------------------------------------------------ */

static gantry_status add_constant(key_maker *maker, const gantry_value_view *value)
{
    gt_identity identity = {0};
    uint32_t index = maker->constant_count++;
    GT_TRY(gt_identity_add_content(maker->host, maker->constants, value->constant_id, &identity, maker->err));
    add_bytes(&maker->bytes, identity.content, sizeof identity.content);
    if (index >= MOST_CONSTANT_LINES)
        return GANTRY_OK;
    gt_text_printf(&maker->lines, "constant %u (", index);
    append_name(&maker->lines, value->name);
    gt_text_append(&maker->lines, ")=", 2);
    append_hash(&maker->lines, (XXH128_hash_t){.low64 = identity.content[0], .high64 = identity.content[1]});
    return GANTRY_OK;
}

static gantry_status add_value(key_maker *maker, const gantry_value_view *value)
{
    bool constant = value->constant_id != GANTRY_NO_ID;
    add_text(&maker->partition, value->name);
    add_number(&maker->partition, constant);
    add_number(&maker->types, (uint64_t)value->kind);
    add_number(&maker->types, (uint64_t)value->dtype);
    add_number(&maker->types, value->flags);
    add_number(&maker->sizes, (uint64_t)(int64_t)value->rank);
    for (int32_t d = 0; d < value->rank; d++) {
        add_number(&maker->sizes, (uint64_t)value->dims[d]);
        add_number(&maker->sizes, (uint64_t)value->typical_dims[d]);
        add_text(&maker->sizes, value->dim_names[d]);
    }
    return constant ? add_constant(maker, value) : GANTRY_OK;
}

static gantry_status add_graph(key_maker *maker, const gantry_graph_view *graph);

static gantry_status add_node(key_maker *maker, const gantry_node_view *node)
{
    add_text(&maker->partition, node->name);
    add_text(&maker->partition, node->op);
    add_text(&maker->partition, node->domain);
    add_number(&maker->partition, (uint64_t)node->version);
    add_indexes(&maker->partition, node->input_count, node->inputs);
    add_indexes(&maker->partition, node->output_count, node->outputs);
    add_number(&maker->attributes, node->attribute_count);
    for (uint32_t k = 0; k < node->attribute_count; k++)
        add_attribute(&maker->attributes, &node->attributes[k]);
    add_number(&maker->partition, node->body_count);
    for (uint32_t k = 0; k < node->body_count; k++) {
        add_text(&maker->partition, node->bodies[k]->name);
        GT_TRY(add_graph(maker, node->bodies[k]->graph));
    }
    add_number(&maker->partition, node->composite != NULL);
    return node->composite ? add_graph(maker, node->composite) : GANTRY_OK;
}

static gantry_status add_graph(key_maker *maker, const gantry_graph_view *graph)
{
    add_number(&maker->partition, graph->value_count);
    for (uint32_t k = 0; k < graph->value_count; k++)
        GT_TRY(add_value(maker, graph->values[k]));
    add_number(&maker->partition, graph->node_count);
    for (uint32_t k = 0; k < graph->node_count; k++)
        GT_TRY(add_node(maker, graph->nodes[k]));
    add_indexes(&maker->partition, graph->input_count, graph->inputs);
    add_indexes(&maker->partition, graph->output_count, graph->outputs);
    return GANTRY_OK;
}

/* ---- what it works under --------------------------------------------------------------------- */

/* Options in force: those that the provider states; of one that states none, those that were set. */
static void add_options(const gantry_session *session, const gt_provider_entry *entry, gt_text *text)
{
    const char *provider = entry->info.name;
    size_t length = strlen(provider);
    gantry_option_info info;
    char component[200];
    uint32_t stated = 0;
    for (; gt_provider_option(entry, stated, &info); stated++) {
        const char *asked = gt_session_provider_option(session, provider, info.key);
        snprintf(component, sizeof component, "option %s", info.key);
        add_line(text, component, asked ? asked : info.value);
    }
    for (uint32_t k = 0; !stated && k < session->options.rows.count; k++) {
        const gt_option_row *row = &session->options.rows.data[k];
        if (!row->asked || strncmp(row->key, provider, length) != 0 || row->key[length] != '.')
            continue;
        snprintf(component, sizeof component, "option %s", row->key + length + 1);
        add_line(text, component, row->asked);
    }
}

static void add_formats(const gantry_compile_args *args, gt_text *text)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (uint32_t k = 0; k < args->graph->input_count + args->graph->output_count; k++) {
        const gantry_format *format = k < args->graph->input_count
                                          ? &args->input_formats[k]
                                          : &args->output_formats[k - args->graph->input_count];
        add_number(&state, (uint64_t)format->dtype);
        add_number(&state, format->tag);
        add_number(&state, format->quantization);
    }
    add_hash_line(text, "edge formats", &state);
}

static void add_surroundings(const gantry_session *session, const gt_provider_entry *entry,
                             const gantry_host *host, const gantry_compile_args *args, gt_text *text)
{
    char plugin[64], version[32], both[128];
    gt_host_plugin_name(host, plugin, version);
    snprintf(both, sizeof both, "%s %s", plugin, version);
    add_line(text, "plugin", both);
    snprintf(both, sizeof both, "%u", host->abi);
    add_line(text, "ABI level", both);
    add_line(text, "Gantry version", gantry_version());
    add_line(text, "provider version", entry->info.version);
    add_line(text, "fingerprint", entry->info.fingerprint);
    add_line(text, "config of the plugin", host->config);
    add_options(session, entry, text);
    snprintf(both, sizeof both, "%d", args->threads);
    add_line(text, "threads", both);
    add_line(text, "exact", args->exact ? "on" : "off");
}

/* ---- the key --------------------------------------------------------------------------------- */

static void append_all(const key_maker *maker, const gantry_session *session, const gt_provider_entry *entry,
                       const gantry_compile_args *args, gt_text *text, size_t *out_identity_bytes)
{
    size_t begin = text->length;
    add_line(text, "provider", entry->info.name);
    add_hash_line(text, "partition", &maker->partition);
    *out_identity_bytes = text->length - begin;
    add_surroundings(session, entry, maker->host, args, text);
    add_hash_line(text, "attributes", &maker->attributes);
    add_hash_line(text, "types", &maker->types);
    add_hash_line(text, "sizes", &maker->sizes);
    add_formats(args, text);
    if (maker->constant_count <= MOST_CONSTANT_LINES && maker->lines.length)
        gt_text_append(text, maker->lines.data, maker->lines.length);
    else if (maker->constant_count)
        add_hash_line(text, "constants", &maker->bytes);
}

gantry_status gt_program_key_make(const gantry_session *session, const gt_provider_entry *entry,
                                  const gantry_compile_args *args, gt_text *inout_text,
                                  size_t *out_identity_bytes, gantry_error *err)
{
    key_maker maker = {
        .host = gt_runtime_host_of(session->runtime, entry), .constants = args->constants, .err = err};
    XXH3_128bits_reset(&maker.partition);
    XXH3_128bits_reset(&maker.attributes);
    XXH3_128bits_reset(&maker.types);
    XXH3_128bits_reset(&maker.sizes);
    XXH3_128bits_reset(&maker.bytes);
    gt_text_init(&maker.lines, session->allocator);
    gantry_status status = add_graph(&maker, args->graph);
    if (status == GANTRY_OK)
        append_all(&maker, session, entry, args, inout_text, out_identity_bytes);
    if (status == GANTRY_OK && (inout_text->failed || maker.lines.failed))
        status = gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    gt_text_free(&maker.lines);
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* "component=value" without the end of its line. */
typedef struct key_line {
    const char *name, *value;
    int name_bytes, value_bytes;
} key_line;

static bool next_line(const char **inout_at, key_line *out_line)
{
    const char *at = *inout_at, *end = strchr(at, '\n'), *equals = strchr(at, '=');
    if (!end || !equals || equals > end)
        return false;
    *out_line = (key_line){at, equals + 1, (int)(equals - at), (int)(end - equals - 1)};
    *inout_at = end + 1;
    return true;
}

static bool find_line(const char *key, const key_line *wanted, key_line *out_line)
{
    while (next_line(&key, out_line))
        if (out_line->name_bytes == wanted->name_bytes &&
            memcmp(out_line->name, wanted->name, (size_t)wanted->name_bytes) == 0)
            return true;
    return false;
}

static bool is_same(const key_line *a, const key_line *b)
{
    return a->value_bytes == b->value_bytes && memcmp(a->value, b->value, (size_t)a->value_bytes) == 0;
}

/* before or now is NULL: it is a line of one key only. */
static void say_difference(const key_line *before, const key_line *now, gt_text *text)
{
    const key_line *named = now ? now : before;
    gt_text_printf(text, "%s%.*s ", text->length ? "; " : "", named->name_bytes, named->name);
    if (!before)
        gt_text_append(text, "is new", 6);
    else if (!now)
        gt_text_append(text, "is no more", 10);
    else if (*before->value == '#' || *now->value == '#')
        gt_text_append(text, "has changed", 11);
    else
        gt_text_printf(text, "was \"%.*s\", and is \"%.*s\"", before->value_bytes, before->value,
                       now->value_bytes, now->value);
}

void gt_program_key_compare(const char *before, const char *now, gt_text *inout_text)
{
    key_line line, other;
    uint32_t count = 0;
    for (const char *at = now; next_line(&at, &line);) {
        bool found = find_line(before, &line, &other);
        if ((!found || !is_same(&line, &other)) && count++ < MOST_DIFFERENCES)
            say_difference(found ? &other : NULL, &line, inout_text);
    }
    for (const char *at = before; next_line(&at, &line);)
        if (!find_line(now, &line, &other) && count++ < MOST_DIFFERENCES)
            say_difference(&line, NULL, inout_text);
    if (count > MOST_DIFFERENCES)
        gt_text_printf(inout_text, "; and %u more", count - MOST_DIFFERENCES);
}
