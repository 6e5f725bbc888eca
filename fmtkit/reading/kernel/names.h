/* Names found by hash, and what specs and layouts are made with. */

#ifndef FMTKIT_NAMES_H
#define FMTKIT_NAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrow.h"
#include "json.h"

/* Names and what they stand for, found by hash. */
typedef struct {
    int count, mask;
    Text *keys;
    int *slots; /* place in `keys` + 1; 0 of an empty slot */
} Names;

int find_name(const Names *names, Text key); /* -1 where it is not there */

/* Of these each raises an exception where it returns 0, or -1. */
void *zeros(size_t count, size_t size);
int begin_names(Names *names, Py_ssize_t most);
int text_of(PyObject *told, Text *text);
int add_name(Names *names, PyObject *told); /* one that may be there; its place */
void free_names(Names *names);

#endif
