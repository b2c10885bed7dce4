/* What a session has and its model declares: providers, inputs, outputs, metadata. */
#include "session.h"

uint32_t gantry_session_provider_count(const gantry_session *session)
{
    return session ? session->provider_count : 0;
}

gantry_status gantry_session_provider(const gantry_session *session, uint32_t index, const char **out_name,
                                      int *out_created, const char **out_detail)
{
    const gt_session_provider *provider =
        session && index < session->provider_count ? &session->providers[index] : NULL;
    if (out_name)
        *out_name = provider ? provider->name : NULL;
    if (out_created)
        *out_created = provider && provider->entry;
    if (out_detail)
        *out_detail = provider ? provider->reason : NULL;
    return provider ? GANTRY_OK : GANTRY_INVALID_ARGUMENT;
}

uint32_t gantry_session_input_count(const gantry_session *session)
{
    return session ? gt_session_graph(session)->inputs.count : 0;
}

uint32_t gantry_session_output_count(const gantry_session *session)
{
    return session ? gt_session_graph(session)->outputs.count : 0;
}

/* The name of a symbolic extent, NULL when it has none. */
static gantry_status name_dim(gantry_session *session, const gt_value *value, uint32_t d,
                              const char **out_name, gantry_error *err)
{
    gt_expr e = value->dims[d];
    bool declared = (int32_t)d < value->declared_rank && value->declared_dim_names &&
                    value->declared_dim_names[d] && value->declared_dim_names[d][0];
    *out_name = declared ? value->declared_dim_names[d] : NULL;
    if (declared || e == GT_EXPR_UNKNOWN)
        return GANTRY_OK;
    gt_text text;
    gt_text_init(&text, session->allocator);
    gt_expr_print(&session->model->exprs, e, &text);
    *out_name =
        text.failed ? NULL : gt_arena_text(&session->model->arena, text.data ? text.data : "", text.length);
    gt_text_free(&text);
    return *out_name ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_NONE);
}

static gantry_status make_dims(gantry_session *session, const gt_value *value, gt_told_dims *out_told,
                               gantry_error *err)
{
    uint32_t rank = (uint32_t)value->rank;
    int64_t *dims = GT_ARENA_ARRAY(&session->model->arena, int64_t, rank);
    const char **names = GT_ARENA_ARRAY(&session->model->arena, const char *, rank);
    if (!dims || !names)
        return gt_out_of_memory(err, GANTRY_STAGE_NONE);
    for (uint32_t d = 0; d < rank; d++) {
        gt_expr e = value->dims[d];
        if (e != GT_EXPR_UNKNOWN && gt_expr_is_const(&session->model->exprs, e, &dims[d]))
            continue;
        dims[d] = -1;
        GT_TRY(name_dim(session, value, d, &names[d], err));
    }
    *out_told = (gt_told_dims){dims, names};
    return GANTRY_OK;
}

/* Extents and names of a value, kept with the session: made when they are first asked for, because most
 * sessions are never asked, and once, because others ask before every run. */
static gantry_status describe_dims(gantry_session *session, uint32_t id, const gt_value *value,
                                   gantry_value_info *out_info, gantry_error *err)
{
    if (!session->told_dims) {
        session->told_dims =
            GT_NEW_ARRAY(session->allocator, gt_told_dims, gt_session_graph(session)->values.count);
        if (!session->told_dims)
            return gt_out_of_memory(err, GANTRY_STAGE_NONE);
    }
    gt_told_dims *told = &session->told_dims[id];
    if (!told->dims)
        GT_TRY(make_dims(session, value, told, err));
    out_info->dims = told->dims;
    out_info->dim_names = told->names;
    return GANTRY_OK;
}

static gantry_status describe(const gantry_session *session, uint32_t index, bool input,
                              gantry_value_info *out_info, gantry_error *err)
{
    if (!session || !out_info || out_info->struct_bytes < sizeof *out_info)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "session is NULL, or out_info without its struct_bytes");
    const gt_graph *graph = gt_session_graph(session);
    uint32_t count = input ? graph->inputs.count : graph->outputs.count;
    if (index >= count)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL, "%s %u of %u",
                       input ? "input" : "output", index, count);
    uint32_t id = input ? graph->inputs.data[index] : graph->outputs.data[index];
    const gt_value *value = graph->values.data[id];
    *out_info = (gantry_value_info){.struct_bytes = out_info->struct_bytes,
                                    .name = value->name,
                                    .kind = value->kind,
                                    .dtype = value->dtype,
                                    .rank = value->rank,
                                    .has_default = input && value->constant != GT_NONE};
    if (value->rank <= 0)
        return GANTRY_OK;
    gantry_session *mutable_session = (gantry_session *)(uintptr_t)session;
    pthread_mutex_lock(&mutable_session->lock);
    gantry_status status = describe_dims(mutable_session, id, value, out_info, err);
    pthread_mutex_unlock(&mutable_session->lock);
    return status;
}

gantry_status gantry_session_input(const gantry_session *session, uint32_t index, gantry_value_info *out_info,
                                   gantry_error *err)
{
    return describe(session, index, true, out_info, err);
}

gantry_status gantry_session_output(const gantry_session *session, uint32_t index,
                                    gantry_value_info *out_info, gantry_error *err)
{
    return describe(session, index, false, out_info, err);
}

const char *gantry_session_metadata(const gantry_session *session, const char *key)
{
    for (uint32_t k = 0; session && key && k < session->model->metadata.count; k++)
        if (strcmp(session->model->metadata.data[k].key, key) == 0)
            return session->model->metadata.data[k].value;
    return NULL;
}

uint32_t gantry_session_metadata_count(const gantry_session *session)
{
    return session ? session->model->custom_metadata_count : 0;
}

const char *gantry_session_metadata_key(const gantry_session *session, uint32_t index)
{
    return session && index < session->model->custom_metadata_count ? session->model->metadata.data[index].key
                                                                    : NULL;
}
