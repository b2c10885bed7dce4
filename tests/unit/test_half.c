/* Bits of float16 and the numbers they mean. */
#include "base/half.h"

#include <criterion/criterion.h>
#include <string.h>

Test(half, every_number_has_its_bits)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t back = gt_half_bits(gt_half_value((uint16_t)bits));
        if ((bits & 0x7FFF) > 0x7C00)
            cr_assert_gt(back & 0x7FFF, 0x7C00);
        else
            cr_assert_eq(back, bits);
    }
}

Test(half, numbers_between_go_to_the_nearest)
{
    cr_expect_eq(gt_half_bits(1 + 0x1p-11), 0x3C00);
    cr_expect_eq(gt_half_bits(1 + 3 * 0x1p-11), 0x3C02);
    cr_expect_eq(gt_half_bits(65519), 0x7BFF);
    cr_expect_eq(gt_half_bits(-65520), 0xFC00);
    cr_expect_eq(gt_half_bits(0x1p-26), 0);
    cr_expect_eq(gt_half_bits(0x1p-15 * (1 - 0x1p-12)), 0x0200);
}

Test(half, bfloat16_is_the_front_of_a_float32)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint32_t wide = bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        double got = gt_brain_value((uint16_t)bits);
        if (isnan(value)) {
            cr_assert(isnan(got));
            continue;
        }
        cr_assert_eq(got, (double)value);
        cr_assert_eq(gt_small_bits(GT_BRAIN_FORMAT, got), bits);
    }
}
