/* The one door of the linked-in CPU provider: the same contract as a plugin's gantry_plugin_open. */
#ifndef CPU_CPU_PLUGIN_H
#define CPU_CPU_PLUGIN_H

#include <gantry/provider.h>

gantry_status gt_cpu_plugin_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                                 gantry_error *err);

#endif
