/* docs/operators.md is what the operator table and the CPU provider's rows say: this program makes it, and
 * fails when the file differs. With GANTRY_UPDATE=1 in the environment it writes the file instead. */
#include "graph/op.h"
#include "providers/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "docs/operators.md"

static void print_versions(gt_text *text, const gt_op *op)
{
    for (int k = 0; k < GT_OP_MAX_VERSIONS && op->since[k]; k++)
        if (op->since[k] >= op->implemented_from ||
            (k + 1 < GT_OP_MAX_VERSIONS && op->since[k + 1] > op->implemented_from))
            gt_text_printf(text, "%d ", op->since[k]);
}

static void print_types(gt_text *text, uint32_t mask)
{
    static const struct {
        uint32_t mask;
        const char *name;
    } GROUPS[] = {{CPU_SIGNED, "signed"}, {CPU_UNSIGNED, "unsigned"}};
    if (!mask) {
        gt_text_printf(text, "any");
        return;
    }
    const char *comma = "";
    for (size_t k = 0; k < sizeof GROUPS / sizeof *GROUPS; k++)
        if ((mask & GROUPS[k].mask) == GROUPS[k].mask) {
            gt_text_printf(text, "%s%s", comma, GROUPS[k].name);
            mask &= ~GROUPS[k].mask;
            comma = ", ";
        }
    for (int t = 1; t < GANTRY_DTYPE_COUNT; t++)
        if (mask >> t & 1) {
            gt_text_printf(text, "%s%s", comma, gantry_dtype_text((gantry_dtype)t));
            comma = ", ";
        }
}

static void print_table(gt_text *text)
{
    uint32_t count, computed = 0;
    const gt_op *ops = gt_op_table(&count);
    for (uint32_t k = 0; k < count; k++)
        computed += cpu_find_op(ops[k].domain, ops[k].name) != NULL;
    gt_text_printf(
        text,
        "# Operators\n\nMade from the operator table and the CPU provider's rows by "
        "tests/plain/test_operator_table.c; do not edit. "
        "%u operators have a shape rule, %u of them CPU kernels. If and Loop are run by the executor.\n\n"
        "Versions are the opsets at which a definition changed, from the oldest that is understood, up to "
        "opset 28. Types are those "
        "of the first input on the CPU; *signed* is int8 to int64, *unsigned* uint8 to uint64.\n\n"
        "| operator | versions | CPU kernel for |\n|---|---|---|\n",
        count, computed);
    for (uint32_t k = 0; k < count; k++) {
        const cpu_op_row *row = cpu_find_op(ops[k].domain, ops[k].name);
        gt_text_printf(text, "| %s%s%s | ", ops[k].domain, ops[k].domain[0] ? "." : "", ops[k].name);
        print_versions(text, &ops[k]);
        gt_text_printf(text, "| ");
        if (row)
            print_types(text, row->types[0]);
        else
            gt_text_printf(text, ops[k].flags & GT_OP_CONTROL ? "(executor, where supported)" : "-");
        gt_text_printf(text, " |\n");
    }
}

static bool same_as_file(const gt_text *text)
{
    FILE *file = fopen(TABLE, "r");
    if (!file)
        return false;
    char *bytes = malloc(text->length + 2);
    size_t got = bytes ? fread(bytes, 1, text->length + 1, file) : 0;
    fclose(file);
    bool same = bytes && got == text->length && memcmp(bytes, text->data, got) == 0;
    free(bytes);
    return same;
}

static bool update_file(const gt_text *text)
{
    FILE *file = fopen(TABLE, "w");
    bool written = file && fwrite(text->data, 1, text->length, file) == text->length;
    if (file)
        fclose(file);
    return written;
}

int main(void)
{
    gt_allocator allocator;
    gt_allocator_init(&allocator, NULL);
    gt_text text;
    gt_text_init(&text, &allocator);
    print_table(&text);
    bool good = getenv("GANTRY_UPDATE") ? update_file(&text) : same_as_file(&text);
    if (!good)
        fprintf(stderr,
                "%s is not what the tables say: run this program with GANTRY_UPDATE=1 in the top folder\n",
                TABLE);
    gt_text_free(&text);
    printf("%d passed, %d failed\n", good, !good);
    return !good;
}
