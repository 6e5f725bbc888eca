/* Columns as JSON lines: conversations and tools of Parquet and Arrow are read as those of JSON are.

   Only what has one JSON text is written: a value of another type, a number that Python writes otherwise, and
   null arguments of a call, which may be meant, leave the whole row to the strict parser. */

#include "lines.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>

#include "scan.h"

#define MOST_NESTED 64
enum { DONE, NO_MEMORY, UNSURE };

typedef struct Source {
    char form; /* u text, b boolean, i integer, f and g real, s struct, l list, n nulls, ! anything else */
    int width, is_signed, holds, is_arguments;
    const uint8_t *valid, *bytes;
    const void *ends;
    int64_t offset, count;
    Bytes key;
    struct Source *parts;
} Source;

typedef struct {
    Bytes *lines;
    int is_filled;  /* whether a null key of this row was left out */
    int has_points; /* whether the C library writes and reads numbers with a point */
} Writer;

static int put(Bytes *to, const void *bytes, size_t size) {
    if (!reserve(to, size)) return NO_MEMORY;
    memcpy(to->bytes + to->used, bytes, size);
    to->used += size;
    return DONE;
}

static uint8_t *escape(uint8_t *to, uint8_t byte) {
    static const char shortest[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\", digits[] = "0123456789abcdef";
    const char *known = memchr(shortest, byte, sizeof shortest - 1);
    *to++ = '\\';
    if (known) {
        *to++ = (uint8_t)letters[known - shortest];
        return to;
    }
    memcpy(to, "u00", 3);
    to[3] = (uint8_t)digits[byte >> 4];
    to[4] = (uint8_t)digits[byte & 15];
    return to + 5;
}

/* The bytes that a text needs at most: six for each of those that are escaped, and what chunks overwrite. */
static size_t room_of(const uint8_t *at, size_t size) {
    size_t stops = 0;
    if (size < 4096) return size * 6 + SLACK + 2;
    for (size_t i = 0; i < size; i++) stops += is_stop(at[i]);
    return size + stops * 5 + SLACK + 2;
}

static int put_text_of(Bytes *held, const uint8_t *at, size_t size) {
    if (!reserve(held, room_of(at, size))) return NO_MEMORY;
    const uint8_t *end = at + size;
    uint8_t *to = held->bytes + held->used;
    int high;
    *to++ = '"';
    while (end - at >= CHUNK) {
        uint64_t stops = stops_at(at, &high);
        copy_chunk(to, at);
        if (!stops) {
            to += CHUNK;
            at += CHUNK;
            continue;
        }
        size_t place = first_stop(stops);
        to = escape(to + place, at[place]);
        at += place + 1;
    }
    for (; at < end; at++) {
        if (is_stop(*at)) to = escape(to, *at);
        else *to++ = *at;
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
    return column->form == 'n' || (column->valid && !is_bit(column->valid, row + column->offset));
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
static int put_real(const Writer *to, double value) {
    char text[40];
    int size = 0;
    if (!to->has_points || (value != 0 && !(fabs(value) >= 1e-4 && fabs(value) < 1e15))) return UNSURE;
    for (int digits = 15; digits <= 17; digits++) {
        size = snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (!strpbrk(text, ".e")) {
        memcpy(text + size, ".0", 2);
        size += 2;
    }
    return put(to->lines, text, (size_t)size);
}

static int put_value(Writer *to, const Source *column, int64_t row, int is_bare);

/* With `is_bare` null keys are left out. */
static int put_struct(Writer *to, const Source *column, int64_t place, int is_bare) {
    int done = put(to->lines, "{", 1), some = 0;
    for (int64_t i = 0; i < column->count && !done; i++) {
        const Source *part = column->parts + i;
        if (is_bare && is_null(part, place)) {
            if (column->is_arguments) return UNSURE;
            to->is_filled = 1;
            continue;
        }
        if (some++) done = put(to->lines, ",", 1);
        if (!done) done = put(to->lines, part->key.bytes, part->key.used);
        if (!done) done = put_value(to, part, place, is_bare || part->holds == OF_CALLS);
    }
    return done ? done : put(to->lines, "}", 1);
}

static int put_items(Writer *to, const Source *column, int64_t place, int is_bare) {
    int64_t first = end_at(column, place), end = end_at(column, place + 1);
    int done = put(to->lines, "[", 1);
    for (int64_t i = first; i < end && !done; i++) {
        if (i > first) done = put(to->lines, ",", 1);
        if (!done) done = put_value(to, column->parts, i, is_bare);
    }
    return done ? done : put(to->lines, "]", 1);
}

static int put_value(Writer *to, const Source *column, int64_t row, int is_bare) {
    static const uint8_t nothing[1];
    if (is_null(column, row)) return put(to->lines, "null", 4);
    int64_t place = row + column->offset;
    switch (column->form) {
        case 'u': {
            int64_t first = end_at(column, place), end = end_at(column, place + 1);
            const uint8_t *at = end > first ? column->bytes + first : nothing;
            return put_text_of(to->lines, at, (size_t)(end - first));
        }
        case 'b': return is_bit(column->bytes, place) ? put(to->lines, "true", 4) : put(to->lines, "false", 5);
        case 'i': return put_integer(to->lines, column, place);
        case 'f': return put_real(to, (double)((const float *)(const void *)column->bytes)[place]);
        case 'g': return put_real(to, ((const double *)(const void *)column->bytes)[place]);
        case 's': return put_struct(to, column, place, is_bare);
        case 'l': return put_items(to, column, place, is_bare);
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

/* Fill in form and buffers; `column` is all zeros before. */
static void describe(Source *column, const char *format, const struct ArrowArray *array) {
    static const char integers[] = "cCsSiIlL";
    const char *number = *format && !format[1] ? strchr(integers, *format) : NULL;
    column->form = '!';
    if (array->dictionary) return;
    if (number) {
        int at = (int)(number - integers);
        column->form = 'i';
        column->width = 1 << at / 2;
        column->is_signed = at % 2 == 0;
        column->bytes = array->buffers[1];
    } else if (!strcmp(format, "u") || !strcmp(format, "U")) {
        column->form = 'u';
        column->width = *format == 'U' ? 8 : 4;
        column->ends = array->buffers[1];
        column->bytes = array->buffers[2];
    } else if (!strcmp(format, "b") || !strcmp(format, "f") || !strcmp(format, "g")) {
        column->form = *format;
        column->bytes = array->buffers[1];
    } else if (!strcmp(format, "+l") || !strcmp(format, "+L")) {
        column->form = 'l';
        column->width = format[1] == 'L' ? 8 : 4;
        column->ends = array->buffers[1];
    } else if (!strcmp(format, "+s")) {
        column->form = 's';
    } else if (!strcmp(format, "n")) {
        column->form = 'n';
    }
    if (column->form != '!' && column->form != 'n') column->valid = array->buffers[0];
}

static int prepare(Source *column, const struct ArrowSchema *schema, const struct ArrowArray *array, int holds,
                   int depth) {
    memset(column, 0, sizeof *column);
    if (holds == OF_MESSAGES && (is_named(schema, "tool_calls") || is_named(schema, "function_call"))) holds = OF_CALLS;
    describe(column, schema->format, array);
    column->offset = array->offset;
    column->holds = holds;
    column->is_arguments = holds == OF_CALLS && is_named(schema, "arguments");
    const char *name = schema->name ? schema->name : "";
    if (put_text_of(&column->key, (const uint8_t *)name, strlen(name)) || put(&column->key, ":", 1)) return NO_MEMORY;
    if (column->form != 's' && column->form != 'l') return DONE;
    if (depth == MOST_NESTED) {
        column->form = '!';
        return DONE;
    }
    column->parts = calloc((size_t)schema->n_children + 1, sizeof *column->parts);
    if (!column->parts) return NO_MEMORY;
    column->count = schema->n_children;
    int done = DONE;
    for (int64_t i = 0; i < column->count && !done; i++)
        done = prepare(column->parts + i, schema->children[i], array->children[i], holds, depth + 1);
    return done;
}

static int put_row(Writer *to, const Source *columns, int64_t count, int64_t row) {
    size_t begun = to->lines->used;
    int done = put(to->lines, "{", 1);
    to->is_filled = 0;
    for (int64_t i = 0; i < count && !done; i++) {
        if (i) done = put(to->lines, ",", 1);
        if (!done) done = put(to->lines, columns[i].key.bytes, columns[i].key.used);
        if (!done) done = put_value(to, columns + i, row, columns[i].holds == OF_TOOLS);
    }
    if (!done) return put(to->lines, "}\n", 2);
    if (done != UNSURE) return done;
    to->lines->used = begun;
    to->is_filled = 0;
    return put(to->lines, "!\n", 2);
}

int lines_of_batch(const struct ArrowSchema *schema, const struct ArrowArray *array, const int *holds, Lines *made) {
    memset(made, 0, sizeof *made);
    int64_t count = schema->n_children;
    Writer to = {&made->lines, 0, !strcmp(localeconv()->decimal_point, ".")};
    Source *columns = calloc((size_t)count + 1, sizeof *columns);
    int done = columns ? DONE : NO_MEMORY;
    for (int64_t i = 0; i < count && !done; i++)
        done = prepare(columns + i, schema->children[i], array->children[i], holds[i], 0);
    for (int64_t row = 0; row < array->length && !done; row++) {
        done = put_row(&to, columns, count, row + array->offset);
        uint8_t is_filled = (uint8_t)to.is_filled;
        if (!done) done = put(&made->filled, &is_filled, 1);
    }
    for (int64_t i = 0; columns && i < count; i++) forget(columns + i);
    free(columns);
    return done == DONE;
}

void free_lines(Lines *made) {
    free(made->lines.bytes);
    free(made->filled.bytes);
}
