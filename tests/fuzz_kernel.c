/* A target for libFuzzer: the first byte of an input chooses a spec, maybe with a layout; the rest is a
 * block of JSON lines.
 *
 * The module is called as Python calls it, so that all of it is under the sanitizers, what it gives out and
 * releases too. `make fuzz` writes the specs (tests/fuzz_kernel.py), builds this, runs it, and compares what
 * it found with the strict parser.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <sanitizer/lsan_interface.h>
#include <stdio.h>
#include <stdlib.h>

PyMODINIT_FUNC PyInit__kernel(void);

static PyObject *read_block, *kinds_of, *specs;

static void must(int is_so, const char *what) {
    if (is_so) return;
    if (PyErr_Occurred()) PyErr_Print();
    fprintf(stderr, "fuzz_kernel: %s\n", what);
    abort();
}

/* Compile the specs and layouts, a list of pairs as Python writes it. */
static PyObject *compiled(PyObject *kernel, const char *path) {
    FILE *file = fopen(path, "rb");
    must(file != NULL, path);
    PyObject *globals = PyDict_New();
    PyDict_SetItemString(globals, "file", PyLong_FromLong(fileno(file)));
    PyDict_SetItemString(globals, "compile_spec", PyObject_GetAttrString(kernel, "compile"));
    PyDict_SetItemString(globals, "compile_layout", PyObject_GetAttrString(kernel, "compile_layout"));
    PyObject *made = PyRun_String(
        "[(compile_spec(spec),) + (() if layout is None else (compile_layout(layout),))"
        " for spec, layout in __import__('ast').literal_eval(open(file).read())]",
        Py_eval_input, globals, globals);
    must(made && PyList_Size(made) > 0, "no specs");
    return made;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    /* What the interpreter keeps is none of the kernel's leaks. */
    __lsan_disable();
    PyImport_AppendInittab("_kernel", PyInit__kernel);
    Py_Initialize();
    PyObject *kernel = PyImport_ImportModule("_kernel");
    must(kernel != NULL, "no module");
    specs = compiled(kernel, SPECS);
    read_block = PyObject_GetAttrString(kernel, "read");
    kinds_of = PyObject_GetAttrString(kernel, "kinds");
    must(read_block && kinds_of, "no entries");
    __lsan_enable();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    PyObject *pair = PyList_GetItem(specs, data[0] % PyList_Size(specs));
    PyObject *spec = PyTuple_GetItem(pair, 0);
    PyObject *layout = PyTuple_Size(pair) > 1 ? PyTuple_GetItem(pair, 1) : NULL;
    /* Memory that ends where the block ends. */
    PyObject *block = PyMemoryView_FromMemory((char *)data + 1, (Py_ssize_t)size - 1, PyBUF_READ);
    PyObject *read = PyObject_CallFunctionObjArgs(read_block, block, spec, layout, NULL);
    PyObject *kinds = PyObject_CallFunction(kinds_of, "Oi", block, 100);
    must(read && kinds, "an exception");
    must(PyBytes_Size(PyTuple_GetItem(read, 2)) == PyBytes_Size(PyTuple_GetItem(kinds, 1)),
         "lines are counted otherwise");
    Py_DECREF(read);
    Py_DECREF(kinds);
    Py_DECREF(block);
    return 0;
}
