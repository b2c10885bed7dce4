/* The printed report's ledger: what the last run moved, by cause, way and ends. */
#include "report_print.h"

static void add_to(json_t *groups, const char *key, const json_t *row, const char *member)
{
    json_t *group = json_object_get(groups, key);
    double sum = gt_report_number_at(group, member) + gt_report_number_at(row, member);
    json_object_set_new(group, member, json_integer((json_int_t)sum));
}

static json_t *group_rows(const json_t *rows)
{
    size_t k;
    json_t *row, *groups = json_object();
    json_array_foreach((json_t *)rows, k, row)
    {
        char key[300];
        if (gt_report_number_at(row, "executions") == 0)
            continue;
        snprintf(key, sizeof key, "%s %s %.100s %.100s", gt_report_text_at(row, "cause"),
                 gt_report_text_at(row, "path"), gt_report_text_at(row, "source"),
                 gt_report_text_at(row, "target"));
        gt_print_group(groups, key, row);
        add_to(groups, key, row, "copies");
        add_to(groups, key, row, "bytes");
    }
    return groups;
}

static void print_group(const json_t *group, gt_text *text)
{
    char way[120];
    gt_print_room room;
    const json_t *row = json_object_get(group, "first");
    snprintf(way, sizeof way, "%.50s -> %.50s", gt_report_text_at(row, "source"),
             gt_report_text_at(row, "target"));
    gt_text_append(text, "  ", 2);
    gt_print_left(text, gt_report_text_at(row, "cause"), 13);
    gt_print_left(text, gt_report_text_at(row, "path"), 7);
    gt_print_left(text, way, 26);
    gt_print_right(text, gt_print_count(group, "count", &room), 7);
    gt_print_right(text, gt_print_count(group, "copies", &room), 8);
    gt_print_right(text, gt_print_bytes(group, "bytes", &room), 10);
    gt_print_last(text, gt_print_us(group, "us", &room), 14);
}

void gt_print_ledger(const json_t *document, gt_text *text)
{
    const char *key;
    json_t *group;
    const json_t *ledger = json_object_get(document, "ledger");
    json_t *groups = group_rows(json_object_get(ledger, "rows"));
    if (json_object_size(groups)) {
        gt_print_heading(text, "Ledger: every byte that the last run copied");
        gt_text_printf(
            text, "  cause         way     from -> to                  values   copies      bytes took\n");
        json_object_foreach(groups, key, group) print_group(group, text);
        char line[200];
        gt_print_room all, crossing;
        snprintf(line, sizeof line, "%s, %s of it between domains", gt_print_bytes(ledger, "bytes", &all),
                 gt_print_bytes(ledger, "crossing_bytes", &crossing));
        gt_print_wrapped(text, "  in all: ", "      ", line);
        if (gt_report_number_at(ledger, "pageable_bytes") > 0) {
            snprintf(line, sizeof line,
                     "%s of it from and to pageable memory: the device pins no more, or option staging_limit "
                     "is reached",
                     gt_print_bytes(ledger, "pageable_bytes", &all));
            gt_print_wrapped(text, "  ", "      ", line);
        }
    }
    json_decref(groups);
}
