/* What the files of gantry_model_optimize share: its report is a gantry_report of another document. */
#ifndef GT_CORE_OPTIMIZE_H
#define GT_CORE_OPTIMIZE_H

#include "report.h"

#include "graph/onnx_write.h"

/* Of a session that was opened for a file and written. */
gantry_status gt_optimization_report(const gantry_session *session, const gantry_optimize_target *target,
                                     const gt_write_result *written, gantry_report **out_report);

#endif
