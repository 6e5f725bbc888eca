/* fmtkit.reading._kernel: what Python sees of the kernel. Only fmtkit/reading/native.py imports it.
 *
 * The module keeps to the limited API of Python 3.11 (setup.py defines Py_LIMITED_API), so that one
 * build serves every later version.
 */

#include "kinds.h"
#include "read.h"

#ifndef FMTKIT_SOURCES_HASH
#error "setup.py passes FMTKIT_SOURCES_HASH, the hash of the sources that are compiled"
#endif
#ifndef FMTKIT_VERSION
#error "setup.py passes FMTKIT_VERSION, fmtkit's own version"
#endif

static const char SPEC[] = "fmtkit.read_spec";

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

static PyObject *schema_of(const Spec *spec, const Result *result) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    if (!schema) return PyErr_NoMemory();
    int done = export_schema(spec->root, result->columns, schema);
    PyObject *capsule = PyCapsule_New(schema, SCHEMA, drop_schema);
    if (!capsule) {
        schema->release(schema);
        free(schema);
    }
    if (done || !capsule) return capsule;
    Py_DECREF(capsule);
    return PyErr_NoMemory();
}

static PyObject *array_of(const Spec *spec, Result *result) {
    struct ArrowArray *array = calloc(1, sizeof *array);
    if (!array) return PyErr_NoMemory();
    int done = export_array(spec->root, result->columns, array);
    PyObject *capsule = PyCapsule_New(array, ARRAY, drop_array);
    if (!capsule) {
        array->release(array);
        free(array);
    }
    if (done || !capsule) return capsule;
    Py_DECREF(capsule);
    return PyErr_NoMemory();
}

static PyObject *read_lines_of(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer block;
    PyObject *held, *capsule, *made = NULL;
    if (!PyArg_ParseTuple(arguments, "OO", &held, &capsule)) return NULL;
    Spec *spec = PyCapsule_GetPointer(capsule, SPEC);
    if (!spec || PyObject_GetBuffer(held, &block, PyBUF_SIMPLE) < 0) return NULL;
    Result result;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = read_block(spec, block.buf, (size_t)block.len, &result);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&block);
    if (done) {
        PyObject *schema = schema_of(spec, &result), *array = schema ? array_of(spec, &result) : NULL;
        const char *verdicts = result.verdicts.used ? (const char *)result.verdicts.bytes : "";
        if (array)
            made = Py_BuildValue("NNy#", schema, array, verdicts, (Py_ssize_t)result.verdicts.used);
        else
            Py_XDECREF(schema);
    } else {
        PyErr_NoMemory();
    }
    free_result(spec, &result);
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

static PyMethodDef methods[] = {
    {"compile", compile_spec, METH_O,
     "compile(spec)\n--\n\nReturn the spec, as tuples tell it, ready to read by."},
    {"read", read_lines_of, METH_VARARGS,
     "read(block, spec)\n--\n\nRead JSON lines.\n\n"
     "Return the columns of the clean lines as an Arrow schema and an Arrow array (PyCapsules of a\n"
     "struct with a child for each column), and one byte a line: 0 clean, 1 blank, 2 unsure."},
    {"kinds", kinds_of, METH_VARARGS,
     "kinds(block, max_depth)\n--\n\nTell which kinds of value the keys of JSON lines hold.\n\n"
     "Return a list of (line, place, key, kinds) of the clean lines, the first two saying where the key\n"
     "was met first, the last a sum of bits (1 null, 2 boolean, 4 text, 8 integer, 16 integer beyond\n"
     "2^53, 32 float, 64 JSON), and one byte a line, as `read` does."},
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
