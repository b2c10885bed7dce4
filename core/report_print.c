/* What a printed report is made of: characters are counted as code points, and none of them moves the cursor.
 */
#include "report_print.h"

/* ---- characters ------------------------------------------------------------------------------ */

/* Texts of the document are UTF-8, but a line made of them may be cut inside a character. */
static size_t character_bytes(const char *at)
{
    size_t bytes = gt_report_character(at);
    return bytes ? bytes : 1;
}

/* Control characters, and those that change the direction of a line or end it. */
static bool is_printable(const char *at)
{
    const unsigned char *c = (const unsigned char *)at;
    if (!gt_report_character(at))
        return false;
    if (c[0] < 0x80)
        return c[0] >= 32 && c[0] != 127;
    if (c[0] == 0xc2)
        return c[1] >= 0xa0;
    if (c[0] != 0xe2)
        return true;
    bool separator = c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae));
    return !separator && !(c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9);
}

static size_t count_characters(const char *text)
{
    size_t count = 0;
    for (; *text; text += character_bytes(text))
        count++;
    return count;
}

static void put(gt_text *text, const char *at)
{
    bool printable = is_printable(at);
    gt_text_append(text, printable ? at : "?", printable ? character_bytes(at) : 1);
}

static void blanks(gt_text *text, size_t count)
{
    while (count--)
        gt_text_append(text, " ", 1);
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void put_cell(gt_text *text, const char *cell, size_t width)
{
    size_t count = count_characters(cell);
    if (count > width) {
        for (size_t skip = count - (width - 2); skip--;)
            cell += character_bytes(cell);
        gt_text_append(text, "..", 2);
    }
    for (; *cell; cell += character_bytes(cell))
        put(text, cell);
}

void gt_print_left(gt_text *text, const char *cell, size_t width)
{
    size_t count = count_characters(cell);
    put_cell(text, cell, width);
    blanks(text, count < width ? width - count + 1 : 1);
}

void gt_print_right(gt_text *text, const char *cell, size_t width)
{
    size_t count = count_characters(cell);
    blanks(text, count < width ? width - count : 0);
    put_cell(text, cell, width);
    blanks(text, 1);
}

void gt_print_last(gt_text *text, const char *cell, size_t width)
{
    put_cell(text, cell, width);
    while (text->length && text->data[text->length - 1] == ' ')
        text->data[--text->length] = 0;
    gt_text_append(text, "\n", 1);
}

/* ---- lines ----------------------------------------------------------------------------------- */

void gt_print_wrapped(gt_text *text, const char *first, const char *indent, const char *line)
{
    size_t column = strlen(first), margin = strlen(indent);
    gt_text_append(text, first, column);
    while (*line) {
        size_t bytes = strcspn(line, " "), count = 0;
        for (const char *at = line; at < line + bytes; at += character_bytes(at))
            count++;
        if (column + count > GT_PRINT_COLUMNS && column > margin) {
            while (text->length && text->data[text->length - 1] == ' ')
                text->data[--text->length] = 0;
            gt_text_printf(text, "\n%s", indent);
            column = margin;
        }
        for (const char *end = line + bytes; line < end; line += character_bytes(line), column++) {
            if (column == GT_PRINT_COLUMNS) {
                gt_text_printf(text, "\n%s", indent);
                column = margin;
            }
            put(text, line);
        }
        if (*line && column < GT_PRINT_COLUMNS) {
            blanks(text, 1);
            column++;
        }
        line += *line ? 1 : 0;
    }
    gt_print_last(text, "", 0);
}

void gt_print_heading(gt_text *text, const char *title)
{
    gt_text_printf(text, "\n%s\n", title);
}

/* ---- numbers --------------------------------------------------------------------------------- */

const char *gt_print_time(double us, gt_print_room *room)
{
    double size = us < 0 ? -us : us;
    double value = size < 1e3 ? us : size < 1e6 ? us / 1e3 : us / 1e6;
    double shown = value < 0 ? -value : value;
    snprintf(room->text, sizeof room->text,
             shown < 10    ? "%.2f %s"
             : shown < 100 ? "%.1f %s"
                           : "%.0f %s",
             value,
             size < 1e3   ? "us"
             : size < 1e6 ? "ms"
                          : "s");
    return room->text;
}

/* The word that stands for a number; NULL when it is one. */
static const char *no_number(const json_t *value)
{
    return json_is_number(value) ? NULL : json_is_string(value) ? json_string_value(value) : "-";
}

const char *gt_print_us(const json_t *object, const char *key, gt_print_room *room)
{
    const json_t *value = json_object_get(object, key);
    const char *word = no_number(value);
    return word ? word : gt_print_time(json_number_value(value), room);
}

const char *gt_print_bytes(const json_t *object, const char *key, gt_print_room *room)
{
    static const char *const UNITS[] = {"B", "kB", "MB", "GB", "TB"};
    const json_t *value = json_object_get(object, key);
    const char *word = no_number(value);
    double bytes = json_number_value(value);
    size_t unit = 0;
    for (; bytes >= 9999.5 && unit + 1 < sizeof UNITS / sizeof *UNITS; unit++)
        bytes /= 1000;
    snprintf(room->text, sizeof room->text, "%.0f %s", bytes, UNITS[unit]);
    return word ? word : room->text;
}

const char *gt_print_count(const json_t *object, const char *key, gt_print_room *room)
{
    const json_t *value = json_object_get(object, key);
    const char *word = no_number(value);
    snprintf(room->text, sizeof room->text, "%.0f", json_number_value(value));
    return word ? word : room->text;
}

const char *gt_print_share(const json_t *object, const char *key, gt_print_room *room)
{
    const json_t *value = json_object_get(object, key);
    snprintf(room->text, sizeof room->text, "%.1f %%", 100 * json_number_value(value));
    return json_is_number(value) ? room->text : "";
}

/* ---- groups ---------------------------------------------------------------------------------- */

void gt_print_group(json_t *groups, const char *key, json_t *row)
{
    json_t *group = json_object_get(groups, key), *us = json_object_get(row, "us");
    if (!group) {
        group = json_object();
        json_object_set(group, "first", row);
        json_object_set_new(group, "us", json_is_number(us) ? json_real(0) : json_string(GT_NOT_MEASURED));
        json_object_set_new_nocheck(groups, key, group);
    }
    json_t *sum = json_object_get(group, "us");
    json_object_set_new(group, "count", json_integer(1 + (json_int_t)gt_report_number_at(group, "count")));
    if (json_is_number(sum) && json_is_number(us))
        json_real_set(sum, json_number_value(sum) + json_number_value(us));
    else if (json_is_number(sum))
        json_object_set_new(group, "us", json_string(GT_NOT_MEASURED));
}
