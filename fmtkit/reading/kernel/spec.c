#include "spec.h"

#include <stdio.h>

/* Names */

static int add_names(Names *names, PyObject *told) {
    Py_ssize_t count = PyTuple_Size(told);
    if (count < 0 || !begin_names(names, count)) return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (add_name(names, PyTuple_GetItem(told, i)) < 0) return 0;
    return 1;
}

/* Fields */

typedef struct {
    int columns;
    int depth;
} Making;

static Field *field_of(Making *making, char type, const char *name, size_t size, int children) {
    Field *field = zeros(1, sizeof *field);
    if (!field) return NULL;
    field->type = type;
    field->column = making->columns++;
    field->name = zeros(size + 1, 1);
    field->children = zeros((size_t)children, sizeof *field->children);
    if (!field->name || !field->children) {
        free_field(field);
        return NULL;
    }
    memcpy(field->name, name, size);
    return field;
}

/* Make a field the next child of another. */
static Field *child_of(Making *making, Field *field, char type, const char *name, size_t size,
                       int children) {
    Field *child = field_of(making, type, name, size, children);
    if (child) field->children[field->count++] = child;
    return child;
}

static Field *named(Making *making, Field *field, char type, const char *name, int children) {
    return child_of(making, field, type, name, strlen(name), children);
}

/* Nodes */

static Node *node_of(Making *making, PyObject *told, Field *above, const char *name, size_t size);

static void free_node(Node *node) {
    if (!node) return;
    for (int i = 0; i < node->node_count; i++) free_node(node->nodes[i]);
    for (int i = 0; i < node->roles.count; i++) free((void *)node->mapped[i].bytes);
    free(node->nodes);
    free(node->values);
    free(node->mapped);
    free(node->silent);
    free((void *)node->speaker.bytes);
    free_names(&node->names);
    free_names(&node->roles);
    free_names(&node->nothing);
    free(node);
}

static int is_true(PyObject *told, Py_ssize_t at) {
    PyObject *item = PyTuple_GetItem(told, at);
    return item ? PyObject_IsTrue(item) : -1;
}

static int tell_bool(Node *node, PyObject *told) {
    PyObject *texts = PyTuple_GetItem(told, 2);
    Py_ssize_t count = texts ? PyTuple_Size(texts) : -1;
    if (count < 0 || !begin_names(&node->names, count)) return 0;
    node->numbers = is_true(told, 1);
    node->values = zeros((size_t)count, sizeof *node->values);
    if (!node->values) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(texts, i), *text = PyTuple_GetItem(pair, 0);
        int at = text ? add_name(&node->names, text) : -1;
        if (at < 0) return 0;
        node->values[at] = is_true(pair, 1);
    }
    return !PyErr_Occurred();
}

static int tell_range(Node *node, PyObject *told) {
    PyObject *low = PyTuple_GetItem(told, 1), *high = PyTuple_GetItem(told, 2);
    if (!low || !high) return 0;
    node->has_range = low != Py_None;
    if (node->has_range && node->kind == NODE_INT) {
        node->least = PyLong_AsLongLong(low);
        node->most = PyLong_AsLongLong(high);
    } else if (node->has_range) {
        node->low = PyFloat_AsDouble(low);
        node->high = PyFloat_AsDouble(high);
    }
    if (node->kind == NODE_DOUBLE) node->booleans = is_true(told, 3);
    return !PyErr_Occurred();
}

static int tell_record(Making *making, Node *node, PyObject *fields) {
    Py_ssize_t count = PyTuple_Size(fields);
    if (count < 0 || !begin_names(&node->names, count)) return 0;
    if (count > MOST_KEYS) {
        PyErr_SetString(PyExc_ValueError, "a record of too many fields");
        return 0;
    }
    node->values = zeros((size_t)count, sizeof *node->values);
    node->nodes = zeros((size_t)count, sizeof *node->nodes);
    if (!node->values || !node->nodes) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *each = PyTuple_GetItem(fields, i), *key = PyTuple_GetItem(each, 0);
        if (!key || add_name(&node->names, key) != i) return 0;
        Text name = node->names.keys[i];
        PyObject *inner = PyTuple_GetItem(each, 1);
        if (!inner) return 0;
        node->nodes[i] = node_of(making, inner, node->field, (const char *)name.bytes, name.size);
        if (!node->nodes[i]) return 0;
        node->node_count++;
        node->values[i] = is_true(each, 2);
    }
    return !PyErr_Occurred();
}

static int tell_roles(Node *node, PyObject *roles, PyObject *silent, PyObject *call_role) {
    Py_ssize_t count = PyTuple_Size(roles);
    if (count < 0 || !begin_names(&node->roles, count + 1)) return 0;
    node->mapped = zeros((size_t)count + 1, sizeof *node->mapped);
    node->silent = zeros((size_t)count + 1, sizeof *node->silent);
    if (!node->mapped || !node->silent) return 0;
    node->call_role = -1;
    if (call_role != Py_None) {
        PyObject *name = PyTuple_GetItem(call_role, 0), *becomes = PyTuple_GetItem(call_role, 1);
        node->call_role = name && becomes ? add_name(&node->roles, name) : -1;
        if (node->call_role < 0 || !text_of(becomes, &node->mapped[node->call_role])) return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(roles, i), *name = PyTuple_GetItem(pair, 0);
        PyObject *becomes = PyTuple_GetItem(pair, 1);
        int at = name && becomes ? add_name(&node->roles, name) : -1;
        if (at < 0) return 0;
        if (at == node->call_role) continue;
        if (!text_of(becomes, &node->mapped[at])) return 0;
        node->silent[at] = PySequence_Contains(silent, becomes);
    }
    return !PyErr_Occurred();
}

static int tell_keys(Making *making, Node *node, PyObject *keys, Field *message) {
    Py_ssize_t count = PyTuple_Size(keys);
    if (count < 0) return 0;
    if (count > MOST_MESSAGE_KEYS) {
        PyErr_SetString(PyExc_ValueError, "too many keys of a message");
        return 0;
    }
    node->calls = -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = NULL, *names = NULL;
        const char *form, *text;
        if (!PyArg_ParseTuple(PyTuple_GetItem(keys, i), "O!O!s", &PyUnicode_Type, &name,
                              &PyTuple_Type, &names, &form))
            return 0;
        MessageKey *key = &node->keys[i];
        key->form = !strcmp(form, "flag") ? KEY_FLAG : !strcmp(form, "calls") ? KEY_CALLS : KEY_TEXT;
        if (key->form == KEY_TEXT && strcmp(form, "text")) {
            PyErr_SetString(PyExc_ValueError, "a key of a message in a form that is not read");
            return 0;
        }
        key->count = (int)PyTuple_Size(names);
        if (key->form == KEY_CALLS) node->calls = (int)i;
        if (key->count > MOST_KEY_NAMES || (key->form == KEY_CALLS && key->count != 2)) {
            PyErr_SetString(PyExc_ValueError, "a key of a message with other names than are read");
            return 0;
        }
        for (int j = 0; j < key->count; j++) {
            key->names[j] = add_name(&node->names, PyTuple_GetItem(names, j));
            if (key->names[j] < 0) return 0;
        }
        Py_ssize_t size;
        text = PyUnicode_AsUTF8AndSize(name, &size);
        if (!text) return 0;
        char type = key->form == KEY_FLAG ? 'b' : 'U';
        key->field = child_of(making, message, type, text, (size_t)size, 0);
        if (!key->field) return 0;
        node->key_count++;
    }
    return 1;
}

static int tell_conversation(Making *making, Node *node, PyObject *told) {
    PyObject *forms, *role, *content, *speaker, *roles, *silent, *keys, *refused, *call_role;
    const char *kind;
    if (!PyArg_ParseTuple(told, "sO!UUUO!O!O!O!O", &kind, &PyTuple_Type, &forms, &role, &content,
                          &speaker, &PyTuple_Type, &roles, &PyTuple_Type, &silent, &PyTuple_Type,
                          &keys, &PyTuple_Type, &refused, &call_role))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(forms); i++) {
        PyObject *form = PyTuple_GetItem(forms, i);
        node->takes_text |= !PyUnicode_CompareWithASCIIString(form, "text");
        node->takes_message |= !PyUnicode_CompareWithASCIIString(form, "message");
        node->takes_messages |= !PyUnicode_CompareWithASCIIString(form, "messages");
    }
    Py_ssize_t most = 2 + MOST_MESSAGE_KEYS * MOST_KEY_NAMES + PyTuple_Size(refused);
    if (!begin_names(&node->names, most)) return 0;
    node->role = add_name(&node->names, role);
    node->content = add_name(&node->names, content);
    if (node->role != 0 || node->content != 1) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "role and content are one key");
        return 0;
    }
    int fields = 2 + (int)PyTuple_Size(keys);
    Field *message = named(making, node->field, 's', "item", fields);
    if (!message || !named(making, message, 'U', "role", 0) ||
        !named(making, message, 'U', "content", 0))
        return 0;
    if (!tell_keys(making, node, keys, message)) return 0;
    node->first_refused = node->names.count;
    for (Py_ssize_t i = 0; i < PyTuple_Size(refused); i++) {
        int before = node->names.count, at = add_name(&node->names, PyTuple_GetItem(refused, i));
        if (at < 0) return 0;
        if (at < before) {
            PyErr_SetString(PyExc_ValueError, "a key of a message that is read and refused");
            return 0;
        }
    }
    for (int i = 0; i < node->key_count; i++)
        for (int j = 0; j < node->keys[i].count; j++)
            if (node->keys[i].names[j] < 2) {
                PyErr_SetString(PyExc_ValueError, "a key of a message that is its role or content");
                return 0;
            }
    return text_of(speaker, &node->speaker) && tell_roles(node, roles, silent, call_role);
}

static int tell_texts(Making *making, Node *node, PyObject *told) {
    PyObject *without = PyTuple_GetItem(told, 1), *nothing = PyTuple_GetItem(told, 3);
    if (!without || !nothing || !add_names(&node->names, without)) return 0;
    node->is_label = is_true(told, 2);
    return add_names(&node->nothing, nothing) && named(making, node->field, 'U', "item", 0);
}

static int tell_list(Making *making, Node *node, PyObject *told) {
    PyObject *item = PyTuple_GetItem(told, 1);
    node->nodes = zeros(1, sizeof *node->nodes);
    if (!item || !node->nodes) return 0;
    node->nodes[0] = node_of(making, item, node->field, "item", 4);
    node->node_count = node->nodes[0] != NULL;
    return node->node_count;
}

static const struct {
    const char *name;
    NodeKind kind;
    char type;
} KINDS[] = {
    {"text", NODE_TEXT, 'U'},     {"bool", NODE_BOOL, 'b'},     {"int", NODE_INT, 'l'},
    {"double", NODE_DOUBLE, 'g'}, {"raw", NODE_RAW, 'U'},       {"tools", NODE_TOOLS, 'U'},
    {"list", NODE_LIST, 'L'},     {"record", NODE_RECORD, 's'}, {"conversation", NODE_CONVERSATION, 'L'},
    {"texts", NODE_TEXTS, 'L'},
};

static int tell(Making *making, Node *node, PyObject *told) {
    switch (node->kind) {
    case NODE_BOOL: return tell_bool(node, told);
    case NODE_INT: case NODE_DOUBLE: return tell_range(node, told);
    case NODE_LIST: return tell_list(making, node, told);
    case NODE_RECORD: {
        PyObject *fields = PyTuple_GetItem(told, 1);
        return fields && tell_record(making, node, fields);
    }
    case NODE_CONVERSATION: return tell_conversation(making, node, told);
    case NODE_TEXTS: return tell_texts(making, node, told);
    default: return 1;
    }
}

#define MOST_NESTED_NODES 50

static int children_of(NodeKind kind, PyObject *told) {
    if (kind != NODE_RECORD) return kind == NODE_LIST || kind == NODE_CONVERSATION || kind == NODE_TEXTS;
    PyObject *fields = PyTuple_GetItem(told, 1);
    return fields ? (int)PyTuple_Size(fields) : -1;
}

static Node *node_of(Making *making, PyObject *told, Field *above, const char *name, size_t size) {
    PyObject *first = PyTuple_GetItem(told, 0);
    size_t known = sizeof KINDS / sizeof *KINDS, at = 0;
    while (first && at < known && PyUnicode_CompareWithASCIIString(first, KINDS[at].name)) at++;
    if (!first || at == known || making->depth > MOST_NESTED_NODES) {
        if (first) PyErr_SetString(PyExc_ValueError, "a node that is not read");
        return NULL;
    }
    int children = children_of(KINDS[at].kind, told);
    Node *node = children < 0 ? NULL : zeros(1, sizeof *node);
    if (!node) return NULL;
    node->kind = KINDS[at].kind;
    node->field = child_of(making, above, KINDS[at].type, name, size, children);
    making->depth++;
    if (!node->field || !tell(making, node, told) || PyErr_Occurred()) {
        free_node(node);
        node = NULL;
    }
    making->depth--;
    return node;
}

/* The row */

static void free_place(Place *place) {
    if (!place) return;
    for (int i = 0; i < place->names.count; i++) {
        free_place(place->below[i]);
        free(place->columns[i]);
    }
    free(place->below);
    free(place->columns);
    free(place->is_media);
    free(place->ids);
    free_names(&place->names);
    free(place);
}

static Place *place_of(Py_ssize_t most) {
    Place *place = zeros(1, sizeof *place);
    if (!place) return NULL;
    size_t size = (size_t)most;
    if (begin_names(&place->names, most) && (place->below = zeros(size, sizeof *place->below)) &&
        (place->columns = zeros(size, sizeof *place->columns)) &&
        (place->is_media = zeros(size, sizeof(int))) && (place->ids = zeros(size, sizeof(int))))
        return place;
    free_place(place);
    return NULL;
}

static int add_column(Spec *spec, PyObject *path, int column, Py_ssize_t most) {
    Place *place = spec->row;
    Py_ssize_t count = PyTuple_Size(path);
    for (Py_ssize_t i = 0; i < count; i++) {
        int before = place->names.count, at = add_name(&place->names, PyTuple_GetItem(path, i));
        if (at < 0) return 0;
        if (place->names.count > before || !place->ids[at]) place->ids[at] = ++spec->places;
        if (i < count - 1) {
            if (!place->below[at]) place->below[at] = place_of(most);
            if (!place->below[at]) return 0;
            place = place->below[at];
            continue;
        }
        int held = 0;
        while (place->columns[at] && place->columns[at][held] >= 0) held++;
        int *columns = realloc(place->columns[at], ((size_t)held + 2) * sizeof(int));
        if (!columns) return PyErr_NoMemory() != NULL;
        columns[held] = column;
        columns[held + 1] = -1;
        place->columns[at] = columns;
    }
    return 1;
}

static int tell_columns(Spec *spec, PyObject *columns, Py_ssize_t media) {
    Py_ssize_t count = PyTuple_Size(columns);
    Making making = {0, 0};
    if (count < 0) return 0;
    spec->columns = zeros((size_t)count, sizeof *spec->columns);
    spec->row = place_of(count + media);
    spec->root = field_of(&making, 's', "", 0, (int)count);
    if (!spec->columns || !spec->row || !spec->root) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *path, *node;
        int is_required;
        char name[16];
        if (!PyArg_ParseTuple(PyTuple_GetItem(columns, i), "O!O!p", &PyTuple_Type, &path,
                              &PyTuple_Type, &node, &is_required))
            return 0;
        int size = snprintf(name, sizeof name, "%d", (int)i);
        SpecColumn *column = &spec->columns[i];
        column->first = making.columns;
        column->node = node_of(&making, node, spec->root, name, (size_t)size);
        if (!column->node) return 0;
        column->last = making.columns;
        column->is_required = is_required;
        spec->required += is_required;
        spec->count++;
        if (!PyTuple_Size(path)) spec->whole_rows++;
        else if (spec->whole_rows) {
            PyErr_SetString(PyExc_ValueError, "columns of the whole row come last");
            return 0;
        }
        if (!add_column(spec, path, (int)i, count)) return 0;
    }
    spec->arrow_columns = making.columns;
    return 1;
}

static int tell_groups(Spec *spec, PyObject *groups) {
    Py_ssize_t count = PyTuple_Size(groups);
    if (count < 0 || !(spec->groups = zeros((size_t)count, sizeof *spec->groups))) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *group = PyTuple_GetItem(groups, i);
        Py_ssize_t size = PyTuple_Size(group);
        if (size < 0) return 0;
        int *columns = spec->groups[i] = zeros((size_t)size + 1, sizeof(int));
        if (!columns) return 0;
        spec->group_count++;
        for (Py_ssize_t j = 0; j < size; j++) {
            long at = PyLong_AsLong(PyTuple_GetItem(group, j));
            if (at < 0 || at >= spec->count) {
                PyErr_SetString(PyExc_ValueError, "a group of columns that are not there");
                return 0;
            }
            columns[j] = (int)at;
        }
        columns[size] = -1;
    }
    return 1;
}

static int tell_media(Spec *spec, PyObject *media) {
    Place *row = spec->row;
    for (Py_ssize_t i = 0; i < PyTuple_Size(media); i++) {
        int at = add_name(&row->names, PyTuple_GetItem(media, i));
        if (at < 0) return 0;
        if (!row->ids[at]) row->ids[at] = ++spec->places;
        row->is_media[at] = 1;
    }
    return 1;
}

Spec *spec_of(PyObject *told) {
    PyObject *columns, *groups, *media;
    int most_depth;
    if (!PyArg_ParseTuple(told, "O!O!O!i", &PyTuple_Type, &columns, &PyTuple_Type, &groups,
                          &PyTuple_Type, &media, &most_depth))
        return NULL;
    if (most_depth < 1 || most_depth > MOST_DEPTH) {
        PyErr_SetString(PyExc_ValueError, "a limit of nesting that is not from 1 to 200");
        return NULL;
    }
    Spec *spec = zeros(1, sizeof *spec);
    if (!spec) return NULL;
    spec->most_depth = most_depth;
    if (tell_columns(spec, columns, PyTuple_Size(media)) && tell_groups(spec, groups) &&
        tell_media(spec, media) && !PyErr_Occurred())
        return spec;
    free_spec(spec);
    return NULL;
}

void free_spec(Spec *spec) {
    if (!spec) return;
    for (int i = 0; i < spec->count; i++) free_node(spec->columns[i].node);
    for (int i = 0; i < spec->group_count; i++) free(spec->groups[i]);
    free(spec->groups);
    free(spec->columns);
    free_place(spec->row);
    free_field(spec->root);
    free(spec);
}
