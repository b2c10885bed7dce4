/* Growing the messages of onnx_writer.h. */
#include "onnx_writer.h"

void wire_put(wire *w, const void *bytes, size_t count)
{
    if (w->size + count > w->capacity) {
        w->capacity = 2 * (w->size + count) + 64;
        w->data = (uint8_t *)realloc(w->data, w->capacity);
        if (!w->data)
            abort();
    }
    if (count)
        memcpy(w->data + w->size, bytes, count);
    w->size += count;
}

void wire_varint(wire *w, uint64_t value)
{
    uint8_t byte;
    for (; value > 127; value >>= 7) {
        byte = (uint8_t)(value | 128);
        wire_put(w, &byte, 1);
    }
    byte = (uint8_t)value;
    wire_put(w, &byte, 1);
}
