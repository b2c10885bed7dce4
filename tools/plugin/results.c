/* What the rules said: a line each, a total, or JSON. */
#include "kit.h"

#include <jansson.h>
#include <stdlib.h>

static const char *const STATES[] = {"pass", "FAIL", "skipped"};
static const char *const JSON_STATES[] = {"pass", "fail", "skipped"};

static void print_row(const kit_results *results, const kit_result *row)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s%s", row->provider, *row->provider ? ": " : "", row->rule);
    if (results->plain && row->state == KIT_PASS)
        printf("%-18s %s\n", name, row->text);
    else
        printf("%-8s %-30s %s\n", STATES[row->state], name, row->text);
    fflush(stdout);
}

/* Refused operators share a line. */
static void gather(kit_results *results, const kit_result *row)
{
    size_t used = strlen(results->refused), length = strcspn(row->rule, " ");
    bool again = used >= length && strncmp(results->refused + used - length, row->rule, length) == 0;
    if (used + length + 8 < sizeof results->refused && !again)
        snprintf(results->refused + used, sizeof results->refused - used, "%s%.*s", used ? ", " : "",
                 (int)length, row->rule);
    else if (!again && used + 4 < sizeof results->refused && results->refused[used - 1] != '.')
        snprintf(results->refused + used, sizeof results->refused - used, " ...");
    results->refused_count++;
}

void kit_results_add(kit_results *results, const kit_result *row)
{
    results->counts[row->state]++;
    if (!results->json) {
        if (row->refused)
            gather(results, row);
        else
            print_row(results, row);
        return;
    }
    if (results->count == results->capacity) {
        uint32_t capacity = results->capacity ? 2 * results->capacity : 64;
        kit_result *rows = realloc(results->rows, capacity * sizeof *rows);
        if (!rows)
            return;
        results->rows = rows;
        results->capacity = capacity;
    }
    results->rows[results->count++] = *row;
}

static void print_json(const kit_results *results, const char *path)
{
    json_t *rules = json_array();
    for (uint32_t k = 0; k < results->count; k++) {
        const kit_result *row = &results->rows[k];
        json_array_append_new(rules,
                              json_pack("{s:s, s:s, s:s, s:s}", "provider", row->provider, "rule", row->rule,
                                        "state", JSON_STATES[row->state], "text", row->text));
    }
    json_t *all = json_pack("{s:s, s:o, s:i, s:i, s:i}", "plugin", path, "rules", rules, "passed",
                            (int)results->counts[KIT_PASS], "failed", (int)results->counts[KIT_FAIL],
                            "skipped", (int)results->counts[KIT_SKIP]);
    if (all)
        json_dumpf(all, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(all);
}

void kit_results_end(kit_results *results, const char *path)
{
    if (results->json)
        print_json(results, path);
    if (results->refused_count) {
        kit_result row = {.rule = "refusals"};
        snprintf(row.text, sizeof row.text,
                 "%u operators are refused with code and words (--json has them): %s", results->refused_count,
                 results->refused);
        print_row(results, &row);
    }
    if (!results->json && !results->plain)
        printf("%u passed, %u failed, %u skipped\n", results->counts[KIT_PASS], results->counts[KIT_FAIL],
               results->counts[KIT_SKIP]);
    free(results->rows);
    *results = (kit_results){.json = results->json,
                             .counts = {results->counts[0], results->counts[1], results->counts[2]}};
}
