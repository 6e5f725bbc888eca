/* A reading encoder: Arrow columns as JSON lines for the kernel. A prototype; benchmarks/reading.py builds it.

   A row that only the strict parser can judge (a decimal, an image, null arguments of a call) becomes the
   line "!", which no reader is certain of. Nulls under the keys of objects are written; in tools and calls
   they are left out, since Arrow fills each struct with the keys of all others. */

#include <math.h>
#include <stdio.h>

#include "arrow.h"
#include "scan.h"

enum { AS_IT_IS, TOOLS, MESSAGES, CALLS };
enum { DONE, NO_MEMORY, UNSURE };

typedef struct Source {
    char form; /* of Arrow's format: u, U, b, l, g, s (struct), + (list), m (map), n, ! */
    char width;
    int is_signed, place, is_media, is_arguments;
    const uint8_t *valid, *bytes;
    const void *ends;
    int64_t offset, count;
    Bytes key;
    struct Source *parts;
} Source;

static int put(Bytes *to, const void *bytes, size_t size) {
    if (!reserve(to, size)) return NO_MEMORY;
    memcpy(to->bytes + to->used, bytes, size);
    to->used += size;
    return DONE;
}

static uint8_t *escape(uint8_t *to, uint8_t byte) {
    static const char shortest[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *found = memchr(shortest, byte, 7);
    *to++ = '\\';
    if (found) {
        *to++ = (uint8_t)letters[found - shortest];
        return to;
    }
    return to + sprintf((char *)to, "u%04x", byte);
}

static int put_string(Bytes *held, const uint8_t *at, size_t size) {
    if (!reserve_about(held, size * 6 + SLACK + 2, held->size * 2)) return NO_MEMORY;
    const uint8_t *end = at + size;
    uint8_t *to = held->bytes + held->used;
    int high;
    *to++ = '"';
    while (end - at >= CHUNK) {
        copy_chunk(to, at);
        uint64_t stops = stops_at(at, &high);
        size_t done = 0;
        while (stops) {
            size_t place = first_stop(stops);
            to += place - done;
            to = escape(to, at[place]);
            done = place + 1;
            /* What follows is behind an escape now. */
            if (end - at < 2 * CHUNK) break;
            copy_chunk(to, at + done);
            stops = done < CHUNK ? stops_from(stops, done) : 0;
        }
        if (!stops) to += CHUNK - done;
        at += stops ? done : CHUNK;
    }
    for (; at < end; at++) {
        if (is_stop(*at))
            to = escape(to, *at);
        else
            *to++ = *at;
    }
    *to++ = '"';
    held->used = (size_t)(to - held->bytes);
    return DONE;
}

static int64_t end_at(const Source *column, int64_t place) {
    if (column->width == 8) return ((const int64_t *)column->ends)[place];
    return ((const int32_t *)column->ends)[place];
}

static int is_bit(const uint8_t *bits, int64_t place) { return bits[place >> 3] >> (place & 7) & 1; }

static int is_null(const Source *column, int64_t row) {
    if (column->form == 'n' || (column->valid && !is_bit(column->valid, row + column->offset))) return 1;
    /* An image without bytes and path is none. */
    for (int64_t i = 0; column->is_media && i < column->count; i++)
        if (!is_null(column->parts + i, row + column->offset)) return 0;
    return column->is_media;
}

static int put_integer(Bytes *to, const Source *column, int64_t place) {
    uint8_t text[24], *at = text + sizeof text;
    int64_t value = 0;
    memcpy(&value, column->bytes + place * column->width, (size_t)column->width);
    int unused = 64 - 8 * column->width;
    if (column->is_signed) value = (int64_t)((uint64_t)value << unused) >> unused;
    int is_negative = column->is_signed && value < 0;
    uint64_t left = is_negative ? 0 - (uint64_t)value : (uint64_t)value;
    do *--at = (uint8_t)('0' + left % 10);
    while (left /= 10);
    if (is_negative) *--at = '-';
    return put(to, at, (size_t)(text + sizeof text - at));
}

/* The shortest of three lengths that reads back as the same double: what Python writes, of usual numbers. */
static int put_real(Bytes *to, double value) {
    char text[40];
    int size = 0;
    if (value != 0 && !(fabs(value) >= 1e-4 && fabs(value) < 1e15)) return UNSURE;
    for (int digits = 15; digits <= 17; digits++) {
        size = sprintf(text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (!strpbrk(text, ".e")) size += sprintf(text + size, ".0");
    return put(to, text, (size_t)size);
}

static int put_value(Bytes *to, const Source *column, int64_t row, int is_bare);

static int put_struct(Bytes *to, const Source *column, int64_t place, int is_bare) {
    if (column->is_media) return UNSURE;
    int done = put(to, "{", 1), some = 0;
    for (int64_t i = 0; i < column->count && !done; i++) {
        const Source *part = column->parts + i;
        if (is_bare && is_null(part, place)) {
            if (column->is_arguments) return UNSURE;
            continue;
        }
        if (some++) done = put(to, ",", 1);
        if (!done) done = put(to, part->key.bytes, part->key.used);
        if (!done) done = put_value(to, part, place, is_bare || part->place == CALLS);
    }
    return done ? done : put(to, "}", 1);
}

static int put_items(Bytes *to, const Source *column, int64_t place, int is_bare) {
    int64_t first = end_at(column, place), end = end_at(column, place + 1);
    int done = put(to, "[", 1);
    for (int64_t i = first; i < end && !done; i++) {
        if (i > first) done = put(to, ",", 1);
        if (done) break;
        if (column->form == '+') {
            done = put_value(to, column->parts, i, is_bare);
            continue;
        }
        /* Python has the entries of a map as pairs. */
        const Source *entry = column->parts;
        int64_t own = i + entry->offset;
        done = put(to, "[", 1);
        if (!done) done = put_value(to, entry->parts, own, is_bare);
        if (!done) done = put(to, ",", 1);
        if (!done) done = put_value(to, entry->parts + 1, own, is_bare);
        if (!done) done = put(to, "]", 1);
    }
    return done ? done : put(to, "]", 1);
}

static int put_value(Bytes *to, const Source *column, int64_t row, int is_bare) {
    if (is_null(column, row)) return put(to, "null", 4);
    int64_t place = row + column->offset;
    switch (column->form) {
        case 'u': {
            int64_t first = end_at(column, place);
            return put_string(to, column->bytes + first, (size_t)(end_at(column, place + 1) - first));
        }
        case 'b': return is_bit(column->bytes, place) ? put(to, "true", 4) : put(to, "false", 5);
        case 'i': return put_integer(to, column, place);
        case 'f': return put_real(to, (double)((const float *)(const void *)column->bytes)[place]);
        case 'g': return put_real(to, ((const double *)(const void *)column->bytes)[place]);
        case 's': return put_struct(to, column, place, is_bare);
        case '+':
        case 'm': return put_items(to, column, place, is_bare);
        default: return UNSURE;
    }
}

static void forget(Source *column) {
    for (int64_t i = 0; column->parts && i < column->count; i++) forget(column->parts + i);
    free(column->parts);
    free(column->key.bytes);
}

static int is_named(const struct ArrowSchema *schema, const char *name) {
    return schema->name && !strcmp(schema->name, name);
}

static int prepare(Source *column, const struct ArrowSchema *schema, const struct ArrowArray *array, int place) {
    const char *format = schema->format;
    static const char integers[] = "cCsSiIlL";
    memset(column, 0, sizeof *column);
    column->valid = array->n_buffers ? array->buffers[0] : NULL;
    column->offset = array->offset;
    if (place == MESSAGES && (is_named(schema, "tool_calls") || is_named(schema, "function_call"))) place = CALLS;
    column->place = place;
    const char *number = strchr(integers, *format);
    if (!format[1] && number) {
        int at = (int)(number - integers);
        column->form = 'i';
        column->width = (char)(1 << at / 2);
        column->is_signed = at % 2 == 0;
        column->bytes = array->buffers[1];
    } else if (!format[1] && strchr("uUzZ", *format)) {
        column->form = 'u';
        column->width = *format == 'U' || *format == 'Z' ? 8 : 4;
        column->ends = array->buffers[1];
        column->bytes = array->buffers[2];
    } else if (!format[1] && strchr("bfg", *format)) {
        column->form = *format;
        column->bytes = array->buffers[1];
    } else if (!strcmp(format, "+l") || !strcmp(format, "+L") || !strcmp(format, "+m")) {
        column->form = format[1] == 'm' ? 'm' : '+';
        column->width = format[1] == 'L' ? 8 : 4;
        column->ends = array->buffers[1];
    } else {
        column->form = !strcmp(format, "+s") ? 's' : *format == 'n' ? 'n' : '!';
    }
    const char *name = schema->name ? schema->name : "";
    if (put_string(&column->key, (const uint8_t *)name, strlen(name)) || put(&column->key, ":", 1)) return NO_MEMORY;
    if (!strchr("s+m", column->form)) return DONE;
    column->count = schema->n_children;
    column->parts = calloc((size_t)column->count + 1, sizeof *column->parts);
    if (!column->parts) return NO_MEMORY;
    int names = 0, done = DONE;
    for (int64_t i = 0; i < column->count && !done; i++) {
        names += is_named(schema->children[i], "bytes") || is_named(schema->children[i], "path");
        done = prepare(column->parts + i, schema->children[i], array->children[i], place);
    }
    column->is_media = column->form == 's' && column->count == 2 && names == 2;
    column->is_arguments = place == CALLS && is_named(schema, "arguments");
    return done;
}

/* Encode a record batch as one line for each row. The caller passes the result to `reading_free`. */
int reading_encode(const struct ArrowSchema *schema, const struct ArrowArray *array, const int *places, size_t about,
                   uint8_t **bytes, size_t *size) {
    Bytes to = {0};
    Source *columns = calloc((size_t)schema->n_children + 1, sizeof *columns);
    int done = columns && reserve_about(&to, SLACK, about) ? DONE : NO_MEMORY;
    for (int64_t i = 0; i < schema->n_children && !done; i++)
        done = prepare(columns + i, schema->children[i], array->children[i], places[i]);
    for (int64_t row = 0; row < array->length && !done; row++) {
        size_t begun = to.used;
        done = put(&to, "{", 1);
        for (int64_t i = 0; i < schema->n_children && !done; i++) {
            if (i) done = put(&to, ",", 1);
            if (!done) done = put(&to, columns[i].key.bytes, columns[i].key.used);
            if (!done) done = put_value(&to, columns + i, row, places[i] == TOOLS);
        }
        if (!done) done = put(&to, "}\n", 2);
        if (done == UNSURE) {
            to.used = begun;
            done = put(&to, "!\n", 2);
        }
    }
    for (int64_t i = 0; columns && i < schema->n_children; i++) forget(columns + i);
    free(columns);
    *bytes = to.bytes;
    *size = to.used;
    return done;
}

void reading_free(uint8_t *bytes) { free(bytes); }
