/* Printing a report for people: cells, wrapped lines, units, and rows grouped by what they have in common. */
#ifndef GT_CORE_REPORT_PRINT_H
#define GT_CORE_REPORT_PRINT_H

#include "report.h"

#define GT_PRINT_COLUMNS 100u

/* Room of the small texts below. */
typedef struct gt_print_room {
    char text[48];
} gt_print_room;

/* Text in a column of that width, and a blank after it. A longer text loses its beginning (names differ at
 * their ends); control characters become '?'. */
void gt_print_left(gt_text *text, const char *cell, size_t width);
void gt_print_right(gt_text *text, const char *cell, size_t width);
/* The same for the last column of a line, without padding. */
void gt_print_last(gt_text *text, const char *cell, size_t width);

/* A line broken before the right margin; lines after the first begin with `indent`. */
void gt_print_wrapped(gt_text *text, const char *first, const char *indent, const char *line);
void gt_print_heading(gt_text *text, const char *title);

/* "12.3 us", "4.56 ms"; what the member says where it is no number, "-" for null. */
const char *gt_print_us(const json_t *object, const char *key, gt_print_room *room);
const char *gt_print_time(double us, gt_print_room *room);
const char *gt_print_bytes(const json_t *object, const char *key, gt_print_room *room);
const char *gt_print_count(const json_t *object, const char *key, gt_print_room *room);
/* "12 %" of a share between 0 and 1; "" where it is no number. */
const char *gt_print_share(const json_t *object, const char *key, gt_print_room *room);

/* Adds a row to the group of that key: "count", "first" (the row), "us" (sum of the rows' times, while each
 * has one). Groups stay in the order in which they came. */
void gt_print_group(json_t *groups, const char *key, json_t *row);

void gt_print_nodes(const json_t *document, gt_text *text);    /* report_text_nodes.c */
void gt_print_tables(const json_t *document, gt_text *text);   /* report_text_tables.c */
void gt_print_ledger(const json_t *document, gt_text *text);   /* report_text_ledger.c */
void gt_print_accounts(const json_t *document, gt_text *text); /* report_text_accounts.c */

#endif
