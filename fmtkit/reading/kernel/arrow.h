/* Columns that grow value by value, and their way out through the Arrow C data interface. */

#ifndef FMTKIT_ARROW_H
#define FMTKIT_ARROW_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The structs of the Arrow C data interface, as its specification gives them. */
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#define NULLABLE 2

typedef struct {
    uint8_t *bytes;
    size_t used, size;
} Bytes;

/* Make room for `more` bytes behind those in use, and where there is none for `size` in all at least;
   return 0 where there is no memory. */
static inline int reserve_about(Bytes *held, size_t more, size_t size) {
    if (held->size - held->used >= more) return 1;
    if (more > SIZE_MAX / 2 - held->used) return 0;
    size_t least = held->used + more;
    if (size < held->size * 2) size = held->size * 2;
    if (size < least) size = least;
    if (size < 256) size = 256;
    uint8_t *bytes = realloc(held->bytes, size);
    if (!bytes) return 0;
    held->bytes = bytes;
    held->size = size;
    return 1;
}

static inline int reserve(Bytes *held, size_t more) { return reserve_about(held, more, 0); }

/* A type of Arrow: its format, the name of the field, and what is inside of it. Columns are numbered
   in the order of a walk that comes to a field before its children. */
typedef struct Field {
    char type; /* U text, u text of at most 2 GiB a column, b boolean, l int64, g float64, L list,
                  m list of at most 2^31 items a column, s struct */
    char *name;
    int column;
    int count;
    struct Field **children;
} Field;

/* A column being built: `count` values, of which `nulls` are null. Offsets are of 64 bits. */
typedef struct {
    int64_t count, nulls;
    int is_nothing; /* `count` nulls without a byte: its type is Arrow's null */
    Bytes valid;    /* a bit for each value */
    Bytes data;     /* texts, numbers, or the bits of booleans */
    Bytes offsets;  /* of texts and lists: where each ends; the first begins at 0 */
} Column;

typedef struct {
    int64_t count, nulls;
    size_t data, offsets;
} Mark;

static inline Mark mark(const Column *column) {
    Mark made = {column->count, column->nulls, column->data.used, column->offsets.used};
    return made;
}

static inline void go_back(Column *column, Mark to) {
    column->count = to.count;
    column->nulls = to.nulls;
    column->data.used = to.data;
    column->offsets.used = to.offsets;
}

static inline int put_bit(Bytes *bits, int64_t at, int value) {
    size_t byte = (size_t)at >> 3;
    if (bits->size <= byte) {
        bits->used = byte;
        if (!reserve(bits, 1)) return 0;
    }
    uint8_t bit = (uint8_t)(1u << (at & 7));
    if (!(at & 7)) bits->bytes[byte] = 0;
    if (value) bits->bytes[byte] |= bit;
    else bits->bytes[byte] &= (uint8_t)~bit;
    return 1;
}

/* Count one more value. */
static inline int put_valid(Column *column, int is_valid) {
    if (!put_bit(&column->valid, column->count, is_valid)) return 0;
    column->count += 1;
    column->nulls += !is_valid;
    return 1;
}

/* End a value of a column with offsets: a text at `end` of its bytes, a list at `end` of its items. */
static inline int put_end(Column *column, int64_t end, int is_valid) {
    if (!reserve(&column->offsets, 8)) return 0;
    memcpy(column->offsets.bytes + column->offsets.used, &end, 8);
    column->offsets.used += 8;
    return put_valid(column, is_valid);
}

static inline int put_word(Column *column, const void *word, int is_valid) {
    if (!reserve(&column->data, 8)) return 0;
    memcpy(column->data.bytes + column->data.used, word, 8);
    column->data.used += 8;
    return put_valid(column, is_valid);
}

static inline int put_text(Column *column, const void *bytes, size_t size) {
    if (!reserve(&column->data, size)) return 0;
    if (size) memcpy(column->data.bytes + column->data.used, bytes, size);
    column->data.used += size;
    return put_end(column, (int64_t)column->data.used, 1);
}

/* Append nulls, also to what is inside of a struct; return 0 where there is no memory. */
int put_nulls(Column *columns, const Field *field, int64_t count);

static inline int put_null(Column *columns, const Field *field) {
    return put_nulls(columns, field, 1);
}

void free_column(Column *column);
void free_field(Field *field);

/* Hand columns out: their buffers now belong to `array`. Return 0 where there is no memory. Texts are
   views, which polars takes as they are, or have offsets of 64 bits where they are too long for views. */
int export_schema(const Field *field, const Column *columns, struct ArrowSchema *schema);
int export_array(const Field *field, Column *columns, struct ArrowArray *array);

#endif
