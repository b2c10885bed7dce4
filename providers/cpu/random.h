/* Makers of kernels that draw numbers. */
#ifndef CPU_RANDOM_H
#define CPU_RANDOM_H

#include "kernels.h"

gantry_status cpu_make_random(cpu_build *build,
                              cpu_kernel *out_kernel); /* RandomNormal, RandomUniform, and Like */
gantry_status cpu_make_bernoulli(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_multinomial(cpu_build *build, cpu_kernel *out_kernel);
/* Dropout whose training input is true or not known before the run. */
gantry_status cpu_make_dropout_training(cpu_build *build, cpu_kernel *out_kernel);

#endif
