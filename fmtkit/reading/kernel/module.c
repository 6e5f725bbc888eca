/* fmtkit.reading._kernel: what Python sees of the kernel. Only fmtkit/reading/native.py imports it.
 *
 * The module keeps to the limited API of Python 3.11 (setup.py defines Py_LIMITED_API), so that one
 * build serves every later version.
 */

#include "kinds.h"
#include "lines.h"
#include "read.h"

#ifndef FMTKIT_SOURCES_HASH
#error "setup.py passes FMTKIT_SOURCES_HASH, the hash of the sources that are compiled"
#endif
#ifndef FMTKIT_VERSION
#error "setup.py passes FMTKIT_VERSION, fmtkit's own version"
#endif

static const char SPEC[] = "fmtkit.columns.read_spec", LAYOUT[] = "fmtkit.columns.text_layout";

static void drop_spec(PyObject *capsule) { free_spec(PyCapsule_GetPointer(capsule, SPEC)); }

static PyObject *compile_spec(PyObject *module, PyObject *told) {
    (void)module;
    if (!PyTuple_Check(told)) {
        PyErr_SetString(PyExc_TypeError, "a spec is a tuple");
        return NULL;
    }
    Spec *spec = spec_of(told);
    if (!spec) return NULL;
    PyObject *capsule = PyCapsule_New(spec, SPEC, drop_spec);
    if (!capsule) free_spec(spec);
    return capsule;
}

static void drop_layout(PyObject *capsule) { free_layout(PyCapsule_GetPointer(capsule, LAYOUT)); }

static PyObject *compile_layout(PyObject *module, PyObject *told) {
    (void)module;
    if (!PyTuple_Check(told)) {
        PyErr_SetString(PyExc_TypeError, "a layout is a tuple");
        return NULL;
    }
    Layout *layout = layout_of(told);
    if (!layout) return NULL;
    PyObject *capsule = PyCapsule_New(layout, LAYOUT, drop_layout);
    if (!capsule) free_layout(layout);
    return capsule;
}

/* Names of the PyCapsule protocol of Arrow. */
static const char SCHEMA[] = "arrow_schema", ARRAY[] = "arrow_array";

static void drop_schema(PyObject *capsule) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, SCHEMA);
    if (schema->release) schema->release(schema);
    free(schema);
}

static void drop_array(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, ARRAY);
    if (array->release) array->release(array);
    free(array);
}

static PyObject *schema_of(const Field *root, const Column *columns) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    if (!schema) return PyErr_NoMemory();
    int done = export_schema(root, columns, schema);
    PyObject *capsule = PyCapsule_New(schema, SCHEMA, drop_schema);
    if (!capsule) {
        schema->release(schema);
        free(schema);
    }
    if (done || !capsule) return capsule;
    Py_DECREF(capsule);
    return PyErr_NoMemory();
}

static PyObject *array_of(const Field *root, Column *columns) {
    struct ArrowArray *array = calloc(1, sizeof *array);
    if (!array) return PyErr_NoMemory();
    int done = export_array(root, columns, array);
    PyObject *capsule = PyCapsule_New(array, ARRAY, drop_array);
    if (!capsule) {
        array->release(array);
        free(array);
    }
    if (done || !capsule) return capsule;
    Py_DECREF(capsule);
    return PyErr_NoMemory();
}

/* Put columns into a tuple as two capsules, from `at` on. */
static int put_columns(PyObject *made, Py_ssize_t at, const Field *root, Column *columns) {
    PyObject *schema = schema_of(root, columns), *array = schema ? array_of(root, columns) : NULL;
    if (!array) {
        Py_XDECREF(schema);
        return 0;
    }
    return !PyTuple_SetItem(made, at, schema) && !PyTuple_SetItem(made, at + 1, array);
}

static int put_bytes(PyObject *made, Py_ssize_t at, const void *bytes, size_t size) {
    PyObject *own = PyBytes_FromStringAndSize(size ? bytes : "", (Py_ssize_t)size);
    return own && !PyTuple_SetItem(made, at, own);
}

static PyObject *told_of(const Spec *spec, const Layout *layout, Result *result) {
    PyObject *made = PyTuple_New(layout ? 6 : 3);
    if (!made) return NULL;
    int done = put_columns(made, 0, spec->root, result->columns) &&
               put_bytes(made, 2, result->verdicts.bytes, result->verdicts.used);
    if (done && layout) {
        size_t size = (size_t)layout->path_count * sizeof(int64_t);
        done = put_columns(made, 3, layout->root, result->laid.columns) &&
               put_bytes(made, 5, result->laid.taken, size);
    }
    if (done) return made;
    Py_DECREF(made);
    return NULL;
}

static PyObject *read_lines_of(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer block;
    PyObject *held, *capsule, *layout_capsule = NULL, *made = NULL;
    if (!PyArg_ParseTuple(arguments, "OO|O", &held, &capsule, &layout_capsule)) return NULL;
    Spec *spec = PyCapsule_GetPointer(capsule, SPEC);
    Layout *layout = layout_capsule ? PyCapsule_GetPointer(layout_capsule, LAYOUT) : NULL;
    if (PyErr_Occurred()) return NULL;
    if (layout && !layout_fits(layout, spec)) {
        PyErr_SetString(PyExc_ValueError, "a layout of another spec");
        return NULL;
    }
    if (PyObject_GetBuffer(held, &block, PyBUF_SIMPLE) < 0) return NULL;
    Result result;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = read_block(spec, layout, block.buf, (size_t)block.len, &result);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&block);
    made = done ? told_of(spec, layout, &result) : PyErr_NoMemory();
    free_result(spec, layout, &result);
    return made;
}

static PyObject *list_of(const Kinds *kinds) {
    PyObject *made = PyList_New(0);
    for (size_t i = 0; made && i < kinds->count; i++) {
        const Kept *kept = &kinds->kept[i];
        if (!kept->kinds) continue;
        PyObject *each = Py_BuildValue("LLs#i", (long long)kept->line, (long long)kept->place,
                                       (const char *)kept->key.bytes, (Py_ssize_t)kept->key.size,
                                       kept->kinds);
        if (!each || PyList_Append(made, each) < 0) Py_CLEAR(made);
        Py_XDECREF(each);
    }
    return made;
}

static PyObject *kinds_of(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer block;
    PyObject *held, *made = NULL;
    int most_depth, done;
    if (!PyArg_ParseTuple(arguments, "Oi", &held, &most_depth)) return NULL;
    if (most_depth < 1 || most_depth > MOST_DEPTH) {
        PyErr_SetString(PyExc_ValueError, "a limit of nesting that no stack holds");
        return NULL;
    }
    if (PyObject_GetBuffer(held, &block, PyBUF_SIMPLE) < 0) return NULL;
    Kinds kinds;
    Py_BEGIN_ALLOW_THREADS
    done = kinds_of_block(block.buf, (size_t)block.len, most_depth, &kinds);
    Py_END_ALLOW_THREADS
    PyObject *list = done ? list_of(&kinds) : PyErr_NoMemory();
    /* The keys lie in the block. */
    PyBuffer_Release(&block);
    const char *verdicts = kinds.verdicts.used ? (const char *)kinds.verdicts.bytes : "";
    if (list) made = Py_BuildValue("Ny#", list, verdicts, (Py_ssize_t)kinds.verdicts.used);
    free_kinds(&kinds);
    return made;
}

/* Return what each column holds, as the caller numbers it; NULL with an exception. */
static int *holds_of(PyObject *told, int64_t count) {
    if (!PyTuple_Check(told) || PyTuple_Size(told) != (Py_ssize_t)count) {
        PyErr_SetString(PyExc_ValueError, "a number for each column, in a tuple");
        return NULL;
    }
    int *holds = calloc((size_t)count + 1, sizeof *holds);
    if (!holds) PyErr_NoMemory();
    for (int64_t i = 0; holds && i < count; i++) {
        long number = PyLong_AsLong(PyTuple_GetItem(told, (Py_ssize_t)i));
        if (number < AS_IT_IS || number > OF_MESSAGES) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "what no column holds");
            free(holds);
            return NULL;
        }
        holds[i] = (int)number;
    }
    return holds;
}

static PyObject *lines_of(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *schema_capsule, *array_capsule, *told, *made = NULL;
    if (!PyArg_ParseTuple(arguments, "OOO", &schema_capsule, &array_capsule, &told)) return NULL;
    const struct ArrowSchema *schema = PyCapsule_GetPointer(schema_capsule, SCHEMA);
    const struct ArrowArray *array = schema ? PyCapsule_GetPointer(array_capsule, ARRAY) : NULL;
    if (!array) return NULL;
    if (strcmp(schema->format, "+s") || schema->n_children != array->n_children) {
        PyErr_SetString(PyExc_ValueError, "no batch of columns");
        return NULL;
    }
    int *holds = holds_of(told, schema->n_children);
    if (!holds) return NULL;
    Lines lines;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = lines_of_batch(schema, array, holds, &lines);
    Py_END_ALLOW_THREADS
    free(holds);
    const char *text = lines.lines.used ? (const char *)lines.lines.bytes : "";
    const char *filled = lines.filled.used ? (const char *)lines.filled.bytes : "";
    if (done)
        made = Py_BuildValue("y#y#", text, (Py_ssize_t)lines.lines.used, filled, (Py_ssize_t)lines.filled.used);
    else
        PyErr_NoMemory();
    free_lines(&lines);
    return made;
}

static PyMethodDef methods[] = {
    {"compile", compile_spec, METH_O,
     "compile(spec)\n--\n\nReturn the spec, as tuples tell it, ready to read by."},
    {"compile_layout", compile_layout, METH_O,
     "compile_layout(layout)\n--\n\nReturn the layout, as tuples tell it, ready to read by."},
    {"read", read_lines_of, METH_VARARGS,
     "read(block, spec, layout=None)\n--\n\nRead JSON lines.\n\n"
     "Return the columns of the clean lines as an Arrow schema and an Arrow array (PyCapsules of a\n"
     "struct with a child for each column), and one byte a line: 0 clean, 1 blank, 2 unsure. With a\n"
     "layout also the texts that it makes, as another schema and array, and how many lines took each\n"
     "of its paths (int64)."},
    {"kinds", kinds_of, METH_VARARGS,
     "kinds(block, max_depth)\n--\n\nTell which kinds of value the keys of JSON lines hold.\n\n"
     "Return a list of (line, place, key, kinds) of the clean lines, the first two saying where the key\n"
     "was met first, the last a sum of bits (1 null, 2 boolean, 4 text, 8 integer, 16 integer beyond\n"
     "2^53, 32 float, 64 JSON), and one byte a line, as `read` does."},
    {"lines", lines_of, METH_VARARGS,
     "lines(schema, array, holds)\n--\n\nWrite the rows of a batch, two PyCapsules of Arrow, as JSON lines.\n\n"
     "Offsets and lengths of the batch must have been checked, and its texts be UTF-8. `holds` says of each\n"
     "column what it holds (0 anything, 1 tools, 2 messages): in tools and calls null keys are left out.\n"
     "Return the lines, of which one is ! where only the strict parser can judge a row, and one byte a row:\n"
     "whether a key was left out."},
    {NULL, NULL, 0, NULL},
};

static int add_constants(PyObject *module) {
    if (PyModule_AddStringConstant(module, "SOURCES", FMTKIT_SOURCES_HASH) < 0) return -1;
    return PyModule_AddStringConstant(module, "VERSION", FMTKIT_VERSION);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)add_constants},
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "fmtkit.reading._kernel",
    .m_doc = "Reads JSON lines into Arrow columns.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&definition); }
