#include "arrow.h"

static int put_ends(Column *column, int64_t end, int64_t count) {
    size_t size = (size_t)count * 8;
    if (!reserve(&column->offsets, size)) return 0;
    for (int64_t i = 0; i < count; i++)
        memcpy(column->offsets.bytes + column->offsets.used + (size_t)i * 8, &end, 8);
    column->offsets.used += size;
    return 1;
}

int put_nulls(Column *columns, const Field *field, int64_t count) {
    Column *column = &columns[field->column];
    int done = 1;
    switch (field->type) {
    case 'U':
    case 'u': done = put_ends(column, (int64_t)column->data.used, count); break;
    case 'm':
    case 'L': done = put_ends(column, columns[field->children[0]->column].count, count); break;
    case 'b':
        for (int64_t i = 0; done && i < count; i++)
            done = put_bit(&column->data, column->count + i, 0);
        break;
    case 's':
        for (int i = 0; done && i < field->count; i++)
            done = put_nulls(columns, field->children[i], count);
        break;
    default:
        done = reserve(&column->data, (size_t)count * 8);
        if (!done) break;
        memset(column->data.bytes + column->data.used, 0, (size_t)count * 8);
        column->data.used += (size_t)count * 8;
    }
    for (int64_t i = 0; done && i < count; i++) done = put_valid(column, 0);
    return done;
}

void free_column(Column *column) {
    free(column->valid.bytes);
    free(column->data.bytes);
    free(column->offsets.bytes);
    memset(column, 0, sizeof *column);
}

void free_field(Field *field) {
    if (!field) return;
    for (int i = 0; i < field->count; i++) free_field(field->children[i]);
    free(field->children);
    free(field->name);
    free(field);
}

/* Releases run on any thread, without the interpreter: they know malloc's memory alone. */

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        struct ArrowSchema *child = schema->children[i];
        if (child && child->release) child->release(child);
        free(child);
    }
    free(schema->children);
    free(schema->private_data);
    schema->release = NULL;
}

/* Offsets of views have 31 bits. */
static int has_views(const Field *field, const Column *columns) {
    return field->type == 'U' && columns[field->column].data.used <= INT32_MAX;
}

int export_schema(const Field *field, const Column *columns, struct ArrowSchema *schema) {
    static const char *const formats[] = {"U", "u", "b", "l", "g", "+L", "+l", "+s"};
    static const char types[] = "UublgLms";
    memset(schema, 0, sizeof *schema);
    schema->release = release_schema;
    const Column *column = &columns[field->column];
    schema->format = formats[strchr(types, field->type) - types];
    if (column->is_nothing) schema->format = "n";
    else if (has_views(field, columns)) schema->format = "vu";
    schema->flags = NULLABLE;
    size_t size = strlen(field->name) + 1;
    char *name = malloc(size);
    schema->private_data = name;
    schema->name = name;
    int count = column->is_nothing ? 0 : field->count;
    if (count) schema->children = calloc((size_t)count, sizeof *schema->children);
    if (!name || (count && !schema->children)) return 0;
    memcpy(name, field->name, size);
    for (int i = 0; i < count; i++) {
        schema->children[i] = calloc(1, sizeof **schema->children);
        if (!schema->children[i]) return 0;
        schema->n_children = i + 1;
        if (!export_schema(field->children[i], columns, schema->children[i])) return 0;
    }
    return 1;
}

typedef struct {
    void *owned[3];
    const void *buffers[4];
    int64_t size; /* of the buffer that views point into */
} Buffers;

static void release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        if (child && child->release) child->release(child);
        free(child);
    }
    free(array->children);
    Buffers *held = array->private_data;
    if (held)
        for (int i = 0; i < 3; i++) free(held->owned[i]);
    free(held);
    array->release = NULL;
}

static const int64_t NOTHING[2] = {0, 0};

static void take(Buffers *held, int at, Bytes *bytes) {
    held->owned[at] = bytes->bytes;
    held->buffers[at] = bytes->bytes ? (const void *)bytes->bytes : (const void *)NOTHING;
    memset(bytes, 0, sizeof *bytes);
}

/* Offsets begin with the 0 that was not written. */
static int take_offsets(Buffers *held, Bytes *offsets) {
    if (!reserve(offsets, 8)) return 0;
    if (offsets->used) memmove(offsets->bytes + 8, offsets->bytes, offsets->used);
    memset(offsets->bytes, 0, 8);
    take(held, 1, offsets);
    return 1;
}

/* Offsets of 32 bits, of texts that are together no longer. */
static int take_narrow_offsets(Buffers *held, const Column *column) {
    int32_t *offsets = malloc(((size_t)column->count + 1) * sizeof *offsets);
    if (!offsets) return 0;
    const int64_t *ends = (const int64_t *)(const void *)column->offsets.bytes;
    offsets[0] = 0;
    for (int64_t i = 0; i < column->count; i++) offsets[i + 1] = (int32_t)ends[i];
    held->owned[1] = offsets;
    held->buffers[1] = offsets;
    return 1;
}

/* A view: the size of a text, its first four bytes, the number of a buffer and the place in it; of a
   text of at most 12 bytes its size and all of its bytes. */
typedef struct {
    int32_t size;
    union {
        uint8_t whole[12];
        struct {
            uint8_t first[4];
            int32_t buffer, at;
        } held;
    };
} View;

static int take_views(Buffers *held, const Column *column) {
    View *views = calloc(column->count ? (size_t)column->count : 1, sizeof *views);
    if (!views) return 0;
    held->owned[1] = views;
    held->buffers[1] = views;
    const int64_t *ends = (const int64_t *)(const void *)column->offsets.bytes;
    int64_t at = 0;
    for (int64_t i = 0; i < column->count; at = ends[i++]) {
        View *view = &views[i];
        view->size = (int32_t)(ends[i] - at);
        /* Where all texts are empty there are no bytes at all. */
        if (view->size > 12) {
            memcpy(view->held.first, column->data.bytes + at, 4);
            view->held.at = (int32_t)at;
        } else if (view->size) {
            memcpy(view->whole, column->data.bytes + at, (size_t)view->size);
        }
    }
    return 1;
}

int export_array(const Field *field, Column *columns, struct ArrowArray *array) {
    Column *column = &columns[field->column];
    memset(array, 0, sizeof *array);
    array->release = release_array;
    array->length = column->count;
    array->null_count = column->nulls;
    if (column->is_nothing) return 1;
    Buffers *held = calloc(1, sizeof *held);
    array->private_data = held;
    if (field->count) array->children = calloc((size_t)field->count, sizeof *array->children);
    if (!held || (field->count && !array->children)) return 0;
    array->buffers = held->buffers;
    int is_text = field->type == 'U' || field->type == 'u';
    array->n_buffers = field->type == 's' ? 1 : is_text ? 3 : 2;
    if (column->nulls) take(held, 0, &column->valid);
    if (has_views(field, columns)) {
        if (!take_views(held, column)) return 0;
        held->size = (int64_t)column->data.used;
        take(held, 2, &column->data);
        held->buffers[3] = &held->size;
        array->n_buffers = 4;
    } else if (field->type == 'u' || field->type == 'm') {
        if (!take_narrow_offsets(held, column)) return 0;
        if (field->type == 'u') take(held, 2, &column->data);
    } else if (field->type == 'U' || field->type == 'L') {
        if (!take_offsets(held, &column->offsets)) return 0;
        if (field->type == 'U') take(held, 2, &column->data);
    } else if (field->type != 's') {
        take(held, 1, &column->data);
    }
    for (int i = 0; i < field->count; i++) {
        array->children[i] = calloc(1, sizeof **array->children);
        if (!array->children[i]) return 0;
        array->n_children = i + 1;
        if (!export_array(field->children[i], columns, array->children[i])) return 0;
    }
    return 1;
}
