/* Scattering with a reduction, for opencl_gather.c, which has the rows and makes the copy first. */
#ifndef GANTRY_OPENCL_SCATTER_H
#define GANTRY_OPENCL_SCATTER_H

#include "opencl_ops.h"

bool opencl_scatter_reduces(const opencl_node *node);
bool opencl_scatter_limits(const opencl_node *node, gantry_verdict *verdict);
void opencl_scatter_elements_add(opencl_build *build, const opencl_node *node);
void opencl_scatter_nd_add(opencl_build *build, const opencl_node *node);
void opencl_scatter_work(const opencl_node *node, opencl_work *inout_work);

#endif
