/* A growing text: appending never fails loudly; out of memory sets `failed` and drops what does not fit. */
#ifndef GT_BASE_TEXT_H
#define GT_BASE_TEXT_H

#include "alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct gt_text {
    gt_allocator *allocator;
    char *data; /* NUL-terminated once something was appended */
    size_t length, capacity;
    bool failed;
} gt_text;

static inline void gt_text_init(gt_text *text, gt_allocator *allocator)
{
    *text = (gt_text){.allocator = allocator};
}

static inline void gt_text_free(gt_text *text)
{
    gt_free(text->allocator, text->data);
    text->data = NULL;
    text->length = text->capacity = 0;
}

static inline bool gt_text_reserve(gt_text *text, size_t more)
{
    if (text->data && text->length + more + 1 <= text->capacity)
        return true;
    size_t capacity =
        text->capacity * 2 > text->length + more + 1 ? text->capacity * 2 : text->length + more + 64;
    char *data = (char *)gt_resize(text->allocator, text->data, text->capacity, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

static inline void gt_text_append(gt_text *text, const char *bytes, size_t count)
{
    if (!gt_text_reserve(text, count))
        return;
    memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = 0;
}

GANTRY_PRINTF(2, 3) static inline void gt_text_printf(gt_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int count = vsnprintf(NULL, 0, format, args);
    if (count >= 0 && gt_text_reserve(text, (size_t)count)) {
        vsnprintf(text->data + text->length, (size_t)count + 1, format, again);
        text->length += (size_t)count;
    }
    va_end(again);
    va_end(args);
}

/* Errors are shown behind a word or two ("gantry: "), on terminals of 100 columns. */
#define GT_ERROR_COLUMNS 90

/* Appends lines of at most `columns`, broken at spaces; what is broken goes on four columns further right
 * than its line began. A word longer than a line stays whole. */
static inline void gt_text_wrap(gt_text *text, const char *from, size_t columns)
{
    while (*from) {
        size_t length = strcspn(from, "\n"), indent = strspn(from, " "), margin = 0;
        while (length + margin > columns) {
            size_t first = strspn(from, " "), cut = columns - margin;
            while (cut > first && from[cut] != ' ')
                cut--;
            if (cut <= first)
                cut = first + strcspn(from + first, " \n");
            if (cut >= length)
                break;
            gt_text_append(text, from, cut);
            cut += strspn(from + cut, " ");
            from += cut;
            length -= cut;
            margin = indent + 4;
            gt_text_printf(text, "\n%*s", (int)margin, "");
        }
        gt_text_append(text, from, length);
        from += length;
        if (*from == '\n')
            gt_text_append(text, from++, 1);
    }
}

#endif
