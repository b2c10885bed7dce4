/* Tiles of byte products on every instruction set of this processor: extreme operands, edges of rows, columns
 * and depth, each kind of result, and nothing written beside it. */
#include "providers/cpu/byte_product.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

typedef struct tile_case {
    int64_t rows, n, k;
    bool columns_first; /* B is stored [n, k] */
    cpu_byte_kind kind;
} tile_case;

typedef struct operands {
    uint8_t *a, *b;
    void *packed;
    int32_t *sums, *add, *zeros;
    float *multipliers;
} operands;

static uint8_t next_byte(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    uint8_t byte = (uint8_t)(*state >> 24);
    return byte % 5 == 0 ? 255 : byte % 7 == 0 ? 127 : byte; /* many extremes */
}

static void fill(const tile_case *t, operands *o)
{
    int64_t depth = cpu_byte_depth(t->k), wide = (t->n + 63) / 64 * 64;
    uint32_t state = (uint32_t)(t->rows * 31 + t->n * 7 + t->k);
    *o = (operands){calloc((size_t)t->rows, (size_t)depth), malloc((size_t)(t->n * t->k)),
                    malloc(cpu_byte_b_bytes(t->k, t->n)),   calloc((size_t)t->rows, sizeof(int32_t)),
                    malloc((size_t)wide * sizeof(int32_t)), malloc((size_t)wide * sizeof(int32_t)),
                    malloc((size_t)wide * sizeof(float))};
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t l = 0; l < t->k; l++)
            o->sums[i] += o->a[i * depth + l] = next_byte(&state);
    for (int64_t l = 0; l < t->n * t->k; l++)
        o->b[l] = next_byte(&state);
    for (int64_t j = 0; j < wide; j++) {
        o->add[j] = (int32_t)(j * 977 - 3000);
        o->zeros[j] = (int32_t)(j % 9) - 4;
        o->multipliers[j] = 0.0004f + 0.00001f * (float)j;
    }
    cpu_byte_pack_b(GANTRY_INT8, o->b, t->k, t->n, t->columns_first ? 1 : t->n, t->columns_first ? t->k : 1,
                    o->packed);
}

static void release(operands *o)
{
    free(o->a);
    free(o->b);
    free(o->packed);
    free(o->sums);
    free(o->add);
    free(o->zeros);
    free(o->multipliers);
}

static void check_element(const tile_case *t, const operands *o, const void *out, int64_t i, int64_t j,
                          int64_t at)
{
    int64_t depth = cpu_byte_depth(t->k), sum = o->add[j] - (int64_t)o->zeros[j] * o->sums[i];
    for (int64_t l = 0; l < t->k; l++)
        sum += (int64_t)o->a[i * depth + l] * (int8_t)o->b[t->columns_first ? j * t->k + l : l * t->n + j];
    float real = (float)(int32_t)sum * o->multipliers[j];
    if (t->kind == CPU_BYTE_INT32)
        cr_assert_eq(((const int32_t *)out)[at], (int32_t)sum);
    else if (t->kind == CPU_BYTE_FLOAT32)
        cr_assert_eq(((const float *)out)[at], real);
    else
        cr_assert_eq(((const uint8_t *)out)[at], (int)fminf(fmaxf(rintf(real), -101), 130) + 105);
}

static void check_tile(cpu_byte_isa isa, const tile_case *t)
{
    operands o;
    int64_t stride = t->n + 5, element = t->kind == CPU_BYTE_BYTES ? 1 : 4;
    size_t bytes = (size_t)(t->rows * stride * element);
    uint8_t *out = malloc(bytes);
    fill(t, &o);
    memset(out, 0xA5, bytes);
    for (int64_t column = 0; column < t->n; column += CPU_BYTE_COLUMNS)
        cpu_byte_tile_run_on(isa, &(cpu_byte_tile){.a = o.a,
                                                   .a_stride = cpu_byte_depth(t->k),
                                                   .rows = t->rows,
                                                   .packed_b = o.packed,
                                                   .k = t->k,
                                                   .n = t->n,
                                                   .column = column,
                                                   .add = o.add,
                                                   .b_zeros = o.zeros,
                                                   .a_sums = o.sums,
                                                   .multipliers = o.multipliers,
                                                   .kind = t->kind,
                                                   .low = -101,
                                                   .high = 130,
                                                   .zero = 105,
                                                   .out = out + column * element,
                                                   .out_stride = stride});
    for (int64_t i = 0; i < t->rows; i++) {
        for (int64_t j = 0; j < t->n; j++)
            check_element(t, &o, out, i, j, i * stride + j);
        for (int64_t l = t->n * element; l < stride * element; l++)
            cr_assert_eq(out[i * stride * element + l], 0xA5);
    }
    free(out);
    release(&o);
}

Test(byte_tile, every_isa_gives_the_definition)
{
    static const int64_t columns[] = {1, 15, 16, 17, 33, 48, 64, 65, 130}, depths[] = {1, 3, 4, 7, 64, 301};
    for (int isa = CPU_BYTE_C; isa <= (int)cpu_byte_best(); isa++)
        for (int64_t rows = 1; rows <= CPU_BYTE_ROWS; rows++)
            for (int c = 0; c < 9; c++)
                for (int d = 0; d < 6; d++)
                    check_tile((cpu_byte_isa)isa, &(tile_case){rows, columns[c], depths[d], (c + d) % 2,
                                                               (cpu_byte_kind)((rows + c + d) % 3)});
}
