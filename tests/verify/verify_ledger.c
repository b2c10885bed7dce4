/* The ledger of a run against what the devices counted meanwhile. */
#include "verify_ledger.h"

#include "core/report.h"

#include <stdio.h>
#include <stdlib.h>

static void add_part(gt_report_scope *scope, const gt_frame *frame)
{
    const gt_frame *below[2];
    scope->parts = realloc(scope->parts, (scope->part_count + 1) * sizeof *scope->parts);
    if (!scope->parts)
        abort();
    scope->parts[scope->part_count] = (gt_report_part){frame->leaf, frame, scope->part_count};
    scope->part_count++;
    for (uint32_t p = 0; p < frame->leaf->placement->partition_count; p++) {
        uint32_t count = gt_control_frames(frame->controls[p], below);
        for (uint32_t k = 0; k < count; k++)
            if (below[k]->leaf)
                add_part(scope, below[k]);
    }
}

static bool same(const json_t *row, const char *key, uint64_t counted, char *out_text)
{
    uint64_t said = (uint64_t)json_integer_value(json_object_get(row, key));
    if (said == counted)
        return true;
    snprintf(out_text, 400, "the ledger says %s of %s is %llu; the device counted %llu", key,
             json_string_value(json_object_get(row, "domain")), (unsigned long long)said,
             (unsigned long long)counted);
    return false;
}

bool verify_ledger(const gantry_run *run, const stub_domain *devices, char *out_text)
{
    static const char *const COPIES[] = {"copies", "peer_copies", "inside_copies"}, *const BYTES[] = {
                                                                                        "bytes", "peer_bytes",
                                                                                        "inside_bytes"};
    gt_report_scope scope = {.session = run->session, .run = run};
    add_part(&scope, run->root);
    json_t *ledger = gt_report_ledger(&scope);
    bool right = ledger != NULL;
    for (uint32_t d = 1; right && d < run->session->domain_count; d++) {
        const json_t *row = json_array_get(json_object_get(ledger, "devices"), d - 1);
        for (int kind = 0; right && kind < 3; kind++)
            right = same(row, COPIES[kind], devices[d].copies[kind], out_text) &&
                    same(row, BYTES[kind], devices[d].bytes[kind], out_text);
    }
    json_decref(ledger);
    free(scope.parts);
    return right;
}
