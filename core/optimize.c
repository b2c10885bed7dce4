/* Optimizing a model into a file: read, simplified for a file, written, and accounted for. */
#include "optimize.h"

typedef struct optimize_job {
    gantry_session *session;
    gt_write_result written;
} optimize_job;

static gantry_status check_arguments(gantry_runtime *runtime, const char *path,
                                     const gantry_optimize_target *target, gantry_error *err)
{
    if (!runtime || !path || !target)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "gantry_model_optimize: %s is NULL",
                       !runtime ? "runtime"
                       : !path  ? "path"
                                : "target");
    if (target->struct_bytes < sizeof *target)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "gantry_model_optimize: target.struct_bytes is %zu; it must be at least %zu",
                       target->struct_bytes, sizeof *target);
    if (!target->path || !target->path[0])
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "gantry_model_optimize: target.path is %s", target->path ? "empty" : "NULL");
    return GANTRY_OK;
}

static gantry_status write_model(optimize_job *job, const gantry_optimize_target *target, gantry_error *err)
{
    gt_model *model = job->session->model;
    gt_write_options options = {.version = gantry_version(), .external_name = target->external_data};
    GT_TRY(gt_graph_make_standard(model->root, err));
    return gt_onnx_write_file(model, target->path, &options, &job->written, err);
}

gantry_status gantry_model_optimize(gantry_runtime *runtime, const char *path, const gantry_options *options,
                                    const gantry_optimize_target *target, gantry_report **out_report,
                                    gantry_error *err)
{
    if (out_report)
        *out_report = NULL;
    GT_TRY(check_arguments(runtime, path, target, err));
    gt_file_rules rules = {target->growth_limit_bytes};
    optimize_job job = {0};
    GT_TRY(gt_session_open_for_file(runtime, path, options, &rules, &job.session, err));
    gantry_status status = write_model(&job, target, err);
    /* The file is there: a report that can't be made does not make it bad. */
    if (status == GANTRY_OK && out_report)
        (void)gt_optimization_report(job.session, target, &job.written, out_report);
    gt_session_free(job.session);
    return status;
}
