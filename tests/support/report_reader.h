/* Reading reports in tests: the document by path, rows by a member, and what holds for every printed one. */
#ifndef GT_TESTS_REPORT_READER_H
#define GT_TESTS_REPORT_READER_H

#include "small_models.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

static inline json_t *json_of(gantry_report *report)
{
    const char *text = NULL;
    size_t bytes = 0;
    json_error_t where;
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &text, &bytes, NULL), GANTRY_OK);
    json_t *document = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    cr_assert_not_null(document, "line %d: %s", where.line, where.text);
    return document;
}

/* The report of the session and its run as JSON; the text form is checked on the way. */
static inline void check_text(gantry_report *report);
static inline json_t *report_of(small_session *s)
{
    gantry_report *report = NULL;
    cr_assert_eq(gantry_session_report(s->session, s->run, &report, &s->err), GANTRY_OK, "%s",
                 s->err.message);
    json_t *document = json_of(report);
    check_text(report);
    gantry_report_destroy(&report);
    return document;
}

static inline const char *text_of(gantry_report *report)
{
    const char *text = NULL;
    size_t bytes = 0;
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_TEXT, &text, &bytes, NULL), GANTRY_OK);
    cr_assert_eq(bytes, strlen(text));
    return text;
}

static inline void check_text(gantry_report *report)
{
    size_t column = 0;
    for (const char *c = text_of(report); *c; c++) {
        cr_assert((unsigned char)*c >= 32 || *c == '\n', "a control character %d", *c);
        cr_assert_neq(*c, 127);
        column = *c == '\n' ? 0 : column + ((*c & 0xc0) != 0x80);
        cr_assert_leq(column, 100, "a line above 100 columns: %.120s", c - 100);
    }
}

/* A member by path, "totals.nodes.placed"; numbers are indexes of arrays. */
static inline json_t *at(json_t *value, const char *path)
{
    char room[200], *rest = NULL;
    snprintf(room, sizeof room, "%s", path);
    for (char *name = strtok_r(room, ".", &rest); name; name = strtok_r(NULL, ".", &rest)) {
        value =
            json_is_array(value) ? json_array_get(value, (size_t)atoi(name)) : json_object_get(value, name);
        cr_assert_not_null(value, "%s has no %s", path, name);
    }
    return value;
}

static inline double number(json_t *value, const char *path)
{
    json_t *member = at(value, path);
    cr_assert(json_is_number(member), "%s is no number", path);
    return json_number_value(member);
}

static inline const char *string(json_t *value, const char *path)
{
    json_t *member = at(value, path);
    cr_assert(json_is_string(member), "%s is no text", path);
    return json_string_value(member);
}

static inline bool not_measured(json_t *value, const char *path)
{
    return json_is_string(at(value, path)) && strcmp(string(value, path), "not measured") == 0;
}

/* The row whose member `key` is `text`. */
static inline json_t *row_of(json_t *document, const char *table, const char *key, const char *text)
{
    size_t k;
    json_t *row;
    json_array_foreach(at(document, table), k, row)
    {
        const char *found = json_string_value(json_object_get(row, key));
        if (found && strcmp(found, text) == 0)
            return row;
    }
    cr_assert_fail("no row of %s has %s = %s", table, key, text);
    return NULL;
}

static inline void run_add(small_session *s, int64_t rows, int times)
{
    static float a[64], b[64];
    cr_assert_eq(s->status, GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 0, GANTRY_FLOAT32, 2, rows, 4, a), GANTRY_OK);
    cr_assert_eq(small_bind(s, 1, GANTRY_FLOAT32, 2, rows, 4, b), GANTRY_OK);
    for (int k = 0; k < times; k++)
        cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
}

#endif
