/* exp, sigmoid and silu of every instruction set this processor runs, over all magnitudes and at the edges.
 */
#include "providers/cpu/rows.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { BATCH = 41 };

static double ulps(float got, double wanted)
{
    if (got == (float)wanted || (isnan(got) && isnan(wanted)))
        return 0;
    if (!isfinite(wanted))
        return INFINITY;
    double unit = ldexp(1, ilogb(fabs(wanted) < (double)FLT_MIN ? (double)FLT_MIN : wanted) - 23);
    return fabs((double)got - wanted) / unit;
}

/* Left of -88 the exponential of the definition is infinite, and the result 0. */
static bool close_enough(float got, double wanted)
{
    return ulps(got, wanted) <= 3 || fabs((double)got - wanted) < 3e-37;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void check(const cpu_rows *rows, const float *x, int64_t n)
{
    static const float one[2] = {1, 0};
    float y[BATCH];
    rows->unary[CPU_UNARY_exp](x, y, n, NULL);
    for (int64_t k = 0; k < n; k++)
        cr_assert_leq(ulps(y[k], exp((double)x[k])), 1.1, "%s exp(%a): %a", rows->isa, (double)x[k],
                      (double)y[k]);
    rows->unary[CPU_UNARY_sigmoid](x, y, n, NULL);
    for (int64_t k = 0; k < n; k++)
        cr_assert(close_enough(y[k], sigmoid((double)x[k])), "%s sigmoid(%a): %a", rows->isa, (double)x[k],
                  (double)y[k]);
    rows->unary[CPU_UNARY_silu](x, y, n, one);
    for (int64_t k = 0; k < n; k++)
        cr_assert(close_enough(y[k], (double)x[k] * sigmoid((double)x[k])), "%s silu(%a): %a", rows->isa,
                  (double)x[k], (double)y[k]);
}

static void sweep(const cpu_rows *rows)
{
    static const float edges[] = {0.0f,       -0.0f,   88.722839f, 88.72284f, 89.5f,    100.0f,    1e30f,
                                  -87.33654f, -87.4f,  -103.27f,   -103.97f,  -104.5f,  -200.0f,   -1e30f,
                                  NAN,        FLT_MIN, -FLT_MIN,   INFINITY,  0.34657f, -0.34657f, 1.5f};
    check(rows, edges, sizeof edges / sizeof *edges);
    for (uint32_t bits = 0; bits < 0x42d00000u; bits += BATCH * 3001u)
        for (uint32_t sign = 0; sign < 2; sign++) {
            float x[BATCH];
            for (uint32_t k = 0; k < BATCH; k++) {
                uint32_t one = (bits + k * 3001u) | sign << 31;
                memcpy(&x[k], &one, sizeof one);
            }
            check(rows, x, BATCH);
        }
}

Test(rows_exp, every_instruction_set)
{
    sweep(&cpu_rows_base);
#if defined(__x86_64__)
    if (cpu_rows_best() != &cpu_rows_base)
        sweep(&cpu_rows_avx2);
    if (cpu_rows_best() == &cpu_rows_avx512)
        sweep(&cpu_rows_avx512);
#endif
}
