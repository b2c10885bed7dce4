/* Text that grows in a buffer of fixed size: kernels and their defines are put together with it. */
#ifndef GANTRY_OPENCL_TEXT_H
#define GANTRY_OPENCL_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct opencl_text {
    char data[24576]; /* the longest chain of operators fits */
    size_t used;
    bool overflow;
} opencl_text;

__attribute__((format(printf, 2, 3))) static inline void opencl_text_add(opencl_text *text,
                                                                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = vsnprintf(text->data + text->used, sizeof text->data - text->used, format, args);
    va_end(args);
    if (more < 0 || (size_t)more >= sizeof text->data - text->used)
        text->overflow = true;
    else
        text->used += (size_t)more;
}

#endif
