/* The fake device keeps the host to the concurrency class it states: two calls at a time are an error. */
#include "fake_program.h"

static gantry_status enter(fake_provider *provider, gantry_error *err)
{
    if (atomic_fetch_add(&provider->inside, 1) == 0)
        return GANTRY_OK;
    atomic_fetch_sub(&provider->inside, 1);
    return fake_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN,
                     "fake device: two calls at a time in a provider that takes one");
}

static void leave(fake_provider *provider)
{
    atomic_fetch_sub(&provider->inside, 1);
}

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    gantry_status status = enter(self, err);
    if (status != GANTRY_OK)
        return status;
    status = fake_compile(self, args, out_program, err);
    leave(self);
    return status;
}

static gantry_status blob_save(void *self, const gantry_program *program, void **out_data, size_t *out_bytes,
                               gantry_error *err)
{
    gantry_status status = enter(self, err);
    if (status != GANTRY_OK)
        return status;
    status = fake_blob_save(self, program, out_data, out_bytes, err);
    leave(self);
    return status;
}

static gantry_status blob_load(void *self, const gantry_compile_args *args, const void *data, size_t bytes,
                               gantry_program **out_program, gantry_error *err)
{
    gantry_status status = enter(self, err);
    if (status != GANTRY_OK)
        return status;
    status = fake_blob_load(self, args, data, bytes, out_program, err);
    leave(self);
    return status;
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    gantry_status status = enter(self, err);
    if (status != GANTRY_OK)
        return status;
    status = fake_reshape(self, program, args, out_shaped, out_info, err);
    leave(self);
    return status;
}

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    gantry_status status = enter(self, err);
    if (status != GANTRY_OK)
        return status;
    status = fake_context_create(self, shaped, out_context, err);
    leave(self);
    return status;
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    gantry_status status = enter(self, err);
    if (status != GANTRY_OK)
        return status;
    status = fake_run(self, context, args, err);
    leave(self);
    return status;
}

void fake_keep_class(fake_provider *provider)
{
    if (provider->config.concurrency != GANTRY_CONCURRENCY_FREE)
        provider->table.context_create = context_create;
    if (provider->config.concurrency != GANTRY_CONCURRENCY_SERIAL)
        return;
    provider->table.compile = compile;
    provider->table.reshape = reshape;
    provider->table.run = run;
    if (provider->config.blobs) {
        provider->table.blob_save = blob_save;
        provider->table.blob_load = blob_load;
    }
}
