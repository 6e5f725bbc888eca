#include "names.h"

static uint64_t name_hash(Text key) {
    uint64_t hash = key.size;
    for (size_t i = 0; i < key.size; i++) hash = (hash ^ key.bytes[i]) * 0x100000001B3ULL;
    return hash ^ hash >> 29;
}

int find_name(const Names *names, Text key) {
    if (!names->count) return -1;
    for (uint64_t at = name_hash(key);; at++) {
        int found = names->slots[at & (uint64_t)names->mask];
        if (!found) return -1;
        if (is_same(names->keys[found - 1], key)) return found - 1;
    }
}

void *zeros(size_t count, size_t size) {
    void *made = calloc(count ? count : 1, size);
    if (!made) PyErr_NoMemory();
    return made;
}

/* Make room for so many names. */
int begin_names(Names *names, Py_ssize_t most) {
    int size = 4;
    if (most > 1 << 20) {
        PyErr_SetString(PyExc_ValueError, "too many names");
        return 0;
    }
    while (size < 2 * most + 2) size *= 2;
    names->mask = size - 1;
    names->keys = zeros((size_t)most, sizeof *names->keys);
    names->slots = zeros((size_t)size, sizeof *names->slots);
    return names->keys && names->slots;
}

int text_of(PyObject *told, Text *text) {
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(told, &size);
    if (!bytes) return 0;
    uint8_t *copy = zeros((size_t)size + 1, 1);
    if (!copy) return 0;
    memcpy(copy, bytes, (size_t)size);
    text->bytes = copy;
    text->size = (size_t)size;
    return 1;
}

/* Add a name that may be there; return its place, or -1 and an exception. */
int add_name(Names *names, PyObject *told) {
    Text key;
    if (!text_of(told, &key)) return -1;
    int found = find_name(names, key);
    if (found >= 0) {
        free((void *)key.bytes);
        return found;
    }
    uint64_t at = name_hash(key);
    while (names->slots[at & (uint64_t)names->mask]) at++;
    names->keys[names->count] = key;
    names->slots[at & (uint64_t)names->mask] = ++names->count;
    return names->count - 1;
}

void free_names(Names *names) {
    for (int i = 0; i < names->count; i++) free((void *)names->keys[i].bytes);
    free(names->keys);
    free(names->slots);
}
