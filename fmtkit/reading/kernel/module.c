/* fmtkit.reading._kernel: what Python sees of the kernel. Only fmtkit/reading/native.py imports it.
 *
 * The module keeps to the limited API of Python 3.11 (setup.py defines Py_LIMITED_API), so that one
 * build serves every later version.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifndef FMTKIT_SOURCES_HASH
#error "setup.py passes FMTKIT_SOURCES_HASH, the hash of the sources that are compiled"
#endif
#ifndef FMTKIT_VERSION
#error "setup.py passes FMTKIT_VERSION, fmtkit's own version"
#endif

static PyMethodDef methods[] = {
    {NULL, NULL, 0, NULL},
};

static int
add_constants(PyObject *module)
{
    if (PyModule_AddStringConstant(module, "SOURCES", FMTKIT_SOURCES_HASH) < 0)
        return -1;
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

PyMODINIT_FUNC
PyInit__kernel(void)
{
    return PyModuleDef_Init(&definition);
}
