/* Convolutions with a 3x3 window by Winograd's minimal filtering: fewer multiplications than the definition
 * has, at the price of transforms.
 *
 *     input tile  -- B' d B -->  V [P][C]          once for all output channels
 *     weights     -- G g G' -->  U [P][C][K]       once, when the kernel is made
 *     M [P][K] = V[P] * U[P]                       P products over many tiles
 *     A' M A      --> m x m outputs
 *
 * m = 4, stride 1: 6 x 6 inputs, P = 36 instead of 144, with the points 0, +-sqrt(1/2), +-sqrt(2) and
 * infinity. Against 0, +-1, +-2 they have a third of the error (measured: 2 to 3 times that of the direct
 * sum), because no coefficient is above 4. m = 2: P = 16 instead of 36, points 0, +-1 and infinity, the error
 * of the direct sum.
 *
 * m = 4, stride 2: the outer two weights of a row meet even inputs only, which is a filter of two taps of
 * stride 1: 5 products for 4 outputs (points +-1/2, +-5/4, infinity); the middle one meets the odd inputs, 4
 * products. So P = 81 instead of 144, with the error of the direct sum. The four products of the middle
 * weight share it: 36 different weights. */
#ifndef CPU_CONV_WINOGRAD_H
#define CPU_CONV_WINOGRAD_H

#include "conv_loops.h"

/* float32 in blocks of channels. GANTRY_UNSUPPORTED without an error text when the shape is not one for it,
 * or the direct kernel is faster. */
gantry_status cpu_conv_winograd(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

/* Whether the weights (operand 1, constant float32) may be transformed: those so large that their transform
 * overflows, or not finite, would spoil outputs that do not use them. The answer is kept beside the packed
 * weights: a new shape does not read all of them again. GANTRY_RESOURCE when there is no memory for it. */
gantry_status cpu_conv_weights_tame(cpu_build *build, bool *out_tame);

#endif
