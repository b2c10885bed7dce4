/* The report's values: texts of any bytes made UTF-8, and numbers that nobody may have measured. */
#include "report.h"

#include <stdlib.h>

/* ---- text ------------------------------------------------------------------------------------ */

size_t gt_report_character(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    static const struct {
        unsigned char first, last, second_low, second_high, length;
    } FORMS[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                 {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                 {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t k = 0; k < sizeof FORMS / sizeof *FORMS; k++) {
        if (at[0] < FORMS[k].first || at[0] > FORMS[k].last)
            continue;
        size_t length = FORMS[k].length;
        if (length > 1 && (at[1] < FORMS[k].second_low || at[1] > FORMS[k].second_high))
            return 0;
        for (size_t m = 2; m < length; m++)
            if ((at[m] & 0xc0) != 0x80)
                return 0;
        return length;
    }
    return 0;
}

static size_t clean(const char *text, char *out)
{
    size_t used = 0;
    while (*text) {
        size_t length = gt_report_character(text);
        memcpy(out + used, length ? text : "\xef\xbf\xbd", length ? length : 3);
        used += length ? length : 3;
        text += length ? length : 1;
    }
    out[used] = 0;
    return used;
}

json_t *gt_report_string(const char *text)
{
    if (!text)
        return json_null();
    json_t *value = json_string(text);
    if (value)
        return value;
    char *copy = malloc(3 * strlen(text) + 1);
    if (!copy)
        return NULL;
    value = json_stringn(copy, clean(text, copy));
    free(copy);
    return value;
}

/* Two symbols may share a name: the second is told apart, not lost. */
void gt_report_set_named(json_t *object, const char *key, json_t *value)
{
    char *copy = malloc(3 * strlen(key) + 16);
    if (!copy) {
        json_decref(value);
        return;
    }
    size_t length = clean(key, copy);
    for (unsigned k = 2; json_object_get(object, copy); k++)
        snprintf(copy + length, 16, " #%u", k);
    json_object_set_new(object, copy, value);
    free(copy);
}

/* ---- numbers --------------------------------------------------------------------------------- */

json_t *gt_report_us(double ns)
{
    return gt_report_number(ns / 1000.0);
}

json_t *gt_report_number(double value)
{
    return __builtin_isfinite(value) ? json_real(value) : json_null();
}

json_t *gt_report_measured_us(double ns)
{
    return gt_report_measured(ns / 1000.0);
}

json_t *gt_report_measured(double value)
{
    return __builtin_isfinite(value) ? json_real(value) : json_string(GT_NOT_MEASURED);
}

json_t *gt_report_count(uint64_t count)
{
    return json_integer((json_int_t)count);
}

/* ---- reading --------------------------------------------------------------------------------- */

double gt_report_number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : 0;
}

const char *gt_report_text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

const char *gt_report_source(char source)
{
    return source == 'm' ? "measured" : source == 'e' ? "estimated" : "assumed";
}
