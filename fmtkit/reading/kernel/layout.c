#include "layout.h"

#include <stdio.h>

/* Making one. PyTuple_GetItem leaves an exception where there is no such item, and takes no NULL. */

static PyObject *item(PyObject *told, Py_ssize_t at) { return told ? PyTuple_GetItem(told, at) : NULL; }

/* Count the items of a tuple, as there may be; -1 and an exception where it is none. */
static int length(PyObject *told) {
    Py_ssize_t count = told ? PyTuple_Size(told) : -1;
    if (count > 1 << 20) {
        PyErr_SetString(PyExc_ValueError, "a layout that is too large");
        return -1;
    }
    return (int)count;
}

/* A number from `low` to below `high`; -1 and an exception of any other. */
static int number_of(PyObject *told, long low, long high) {
    long value = told ? PyLong_AsLong(told) : -1;
    if (PyErr_Occurred()) return -1;
    if (value >= low && value < high) return (int)value;
    PyErr_SetString(PyExc_ValueError, "a layout that names what is not there");
    return -1;
}

static int tell_slots(Layout *layout, PyObject *slots, PyObject *silent, int columns) {
    int silent_count = length(silent);
    layout->slot_count = length(slots);
    layout->column_count = columns;
    layout->slots = zeros((size_t)columns, sizeof(int));
    if (layout->slot_count < 0 || silent_count < 0 || !layout->slots) return 0;
    layout->is_conversation = zeros((size_t)layout->slot_count, sizeof(int));
    if (!layout->is_conversation) return 0;
    for (int i = 0; i < columns; i++) layout->slots[i] = SLOT_NONE;
    for (int i = 0; i < silent_count; i++) {
        int column = number_of(item(silent, i), 0, columns);
        if (column < 0) return 0;
        layout->slots[column] = SLOT_SILENT;
    }
    for (int i = 0; i < layout->slot_count; i++) {
        PyObject *told = item(slots, i);
        int column = number_of(item(told, 0), 0, columns);
        layout->is_conversation[i] = number_of(item(told, 1), 0, 2);
        if (column < 0 || layout->is_conversation[i] < 0) return 0;
        layout->slots[column] = i;
    }
    return 1;
}

static int tell_roles(Layout *layout, PyObject *roles) {
    int count = length(roles);
    if (count < 0 || !begin_names(&layout->roles, count)) return 0;
    if (count > MOST_ROLES) {
        PyErr_SetString(PyExc_ValueError, "a layout of too many roles");
        return 0;
    }
    for (int i = 0; i < count; i++) {
        PyObject *role = item(roles, i);
        int at = role ? add_name(&layout->roles, role) : -1;
        if (at >= 0 && at < i) PyErr_SetString(PyExc_ValueError, "a layout of roles that stand twice");
        if (at != i) return 0;
    }
    return 1;
}

static int tell_bits(Layout *layout, PyObject *told) {
    Bits *own = &layout->bits;
    unsigned *const bits[BIT_SETS] = {[BITS_MARKS] = &own->marks, [BITS_CALLS] = &own->calls,
                                      [BITS_SAID] = &own->said, [BITS_SEEN] = &own->seen,
                                      [BITS_LEFT] = &own->left};
    for (int i = 0; i < BIT_SETS; i++) {
        int made = number_of(item(told, i), 0, 1 << (1 + MOST_MESSAGE_KEYS));
        if (made < 0 || !bits[i]) return 0;
        *bits[i] = (unsigned)made;
    }
    return 1;
}

/* How many letters and slots each kind needs at least, whether its slots are those of conversations, and whether
   it is of slots alone: it takes no conversations that were made before it. */
typedef struct {
    int roles, slots, is_conversation, takes_no_steps;
} Need;

static const Need MAKE_NEEDS[MAKES] = {
    [MAKE_TEXTS] = {0, 0, 0, 1}, [MAKE_MESSAGES] = {0, 1, 1, 1}, [MAKE_WITH_SYSTEM] = {1, 1, 0, 0}};
static const Need RULE_NEEDS[RULES] = {
    [RULE_BLANK] = {0, 1, 0, 1},        [RULE_EQUAL] = {0, 2, 0, 1},
    [RULE_FLAWED] = {1, 1, 1, 1},       [RULE_SEVERAL] = {2, 0, 0, 0},
    [RULE_OTHER_SYSTEM] = {0, 1, 0, 0}, [RULE_QUESTION_MISSING] = {0, 1, 0, 0}};

/* A step that is made of those before it. */
static int tell_step(const Layout *layout, Step *step, PyObject *told, const Need *needs, int kinds,
                     int before) {
    PyObject *roles = item(told, 4), *slots = item(told, 5);
    int count = length(slots);
    step->kind = number_of(item(told, 0), 0, kinds);
    step->one = number_of(item(told, 1), 0, before ? before : 1);
    step->other = number_of(item(told, 2), 0, before ? before : 1);
    step->so = number_of(item(told, 3), 0, 2);
    if (step->kind < 0 || step->one < 0 || step->other < 0 || step->so < 0 || count < 0 || !roles)
        return 0;
    Need need = needs[step->kind];
    if (!text_of(roles, &step->roles) || !(step->slots = zeros((size_t)count, sizeof(int)))) return 0;
    for (; step->slot_count < count; step->slot_count++) {
        int slot = number_of(item(slots, step->slot_count), 0, layout->slot_count);
        if (slot < 0 || layout->is_conversation[slot] != need.is_conversation) return 0;
        step->slots[step->slot_count] = slot;
    }
    for (size_t i = 0; i < step->roles.size; i++)
        if (!step->roles.bytes[i] || step->roles.bytes[i] > layout->roles.count) return 0;
    if (needs == MAKE_NEEDS && step->kind == MAKE_TEXTS && (size_t)count != step->roles.size) return 0;
    return step->roles.size >= (size_t)need.roles && count >= need.slots &&
           (before || need.takes_no_steps);
}

static int tell_steps(Layout *layout, PyObject *steps, PyObject *rules) {
    int step_count = length(steps), rule_count = length(rules);
    if (step_count < 0 || rule_count < 0) return 0;
    if (step_count > MOST_TALKS) {
        PyErr_SetString(PyExc_ValueError, "a layout of too many conversations");
        return 0;
    }
    layout->steps = zeros((size_t)step_count, sizeof(Step));
    layout->rules = zeros((size_t)rule_count, sizeof(Step));
    if (!layout->steps || !layout->rules) return 0;
    for (int i = 0; i < step_count; i++) {
        layout->step_count++;
        if (!tell_step(layout, &layout->steps[i], item(steps, i), MAKE_NEEDS, MAKES, i)) return 0;
    }
    for (int i = 0; i < rule_count; i++) {
        layout->rule_count++;
        if (!tell_step(layout, &layout->rules[i], item(rules, i), RULE_NEEDS, RULES, step_count))
            return 0;
    }
    return 1;
}

static int tell_numbers(int **made, int *made_count, PyObject *told, int most) {
    int count = length(told);
    if (count < 0 || !(*made = zeros((size_t)count, sizeof(int)))) return 0;
    for (; *made_count < count; *made_count += 1)
        if (((*made)[*made_count] = number_of(item(told, *made_count), 0, most)) < 0) return 0;
    return 1;
}

static int tell_pairs(Pair **made, int *made_count, PyObject *told, int most) {
    int count = length(told);
    if (count < 0 || !(*made = zeros((size_t)count, sizeof(Pair)))) return 0;
    for (; *made_count < count; *made_count += 1) {
        PyObject *pair = item(told, *made_count);
        Pair *own = &(*made)[*made_count];
        own->one = number_of(item(pair, 0), 0, most);
        own->other = number_of(item(pair, 1), 0, most);
        if (own->one < 0 || own->other < 0) return 0;
    }
    return 1;
}

static int tell_tokens(Layout *layout, PyObject *tokens) {
    int count = length(tokens);
    if (count < 0 || !(layout->tokens = zeros((size_t)count, sizeof(Text)))) return 0;
    for (; layout->token_count < count; layout->token_count++) {
        PyObject *token = item(tokens, layout->token_count);
        Text *own = &layout->tokens[layout->token_count];
        if (!token || !text_of(token, own)) return 0;
        if (own->size && (!layout->token_count || own[-1].bytes[0] <= own->bytes[0])) continue;
        free((void *)own->bytes);
        PyErr_SetString(PyExc_ValueError, "control tokens are texts, in their order");
        return 0;
    }
    return 1;
}

static int tell_trim(Trim *trim, PyObject *told) {
    PyObject *characters = item(told, 1);
    trim->sides = number_of(item(told, 0), 1, 4);
    if (trim->sides < 0 || !characters) return 0;
    trim->is_space = characters == Py_None;
    if (trim->is_space) return 1;
    Text text;
    if (!text_of(characters, &text)) return 0;
    int is_ascii = 1;
    for (size_t i = 0; i < text.size; i++) {
        uint8_t byte = text.bytes[i];
        is_ascii &= byte < 0x80;
        trim->set[byte >> 6 & 1] |= (uint64_t)1 << (byte & 63);
    }
    free((void *)text.bytes);
    if (!is_ascii) PyErr_SetString(PyExc_ValueError, "only characters of ASCII are trimmed");
    return is_ascii;
}

static int tell_view(View *view, PyObject *told) {
    PyObject *trims = item(told, 1);
    int count = length(trims);
    view->turn = number_of(item(told, 0), 0, MOST_TURNS);
    view->key = number_of(item(told, 2), 0, 1 + MOST_MESSAGE_KEYS);
    if (count < 0 || view->turn < 0 || view->key < 0) return 0;
    if (!(view->trims = zeros((size_t)count, sizeof(Trim)))) return 0;
    for (; view->trim_count < count; view->trim_count++)
        if (!tell_trim(&view->trims[view->trim_count], item(trims, view->trim_count))) return 0;
    return 1;
}

static int tell_condition(Condition *condition, PyObject *told, int views) {
    PyObject *text = item(told, 2);
    condition->view = number_of(item(told, 0), 0, views);
    int ask = number_of(item(told, 1), 0, ASKS);
    condition->answer = number_of(item(told, 3), 0, 2);
    if (condition->view < 0 || ask < 0 || condition->answer < 0 || !text) return 0;
    condition->ask = (Ask)ask;
    return text_of(text, &condition->text);
}

static int tell_piece(Piece *piece, PyObject *told, int views) {
    piece->view = -1;
    if (told && PyUnicode_Check(told)) return text_of(told, &piece->text);
    piece->view = number_of(told, 0, views);
    return piece->view >= 0;
}

static int tell_path(Layout *layout, Path *path, PyObject *told, int views) {
    PyObject *conditions = item(told, 0), *texts = item(told, 1);
    int count = length(conditions), outputs = layout->conversation_count;
    if (count < 0 || length(texts) != outputs) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a path that makes other texts");
        return 0;
    }
    path->number = layout->path_count++;
    path->conditions = zeros((size_t)count, sizeof(Condition));
    path->piece_counts = zeros((size_t)outputs, sizeof(int));
    path->pieces = zeros((size_t)outputs, sizeof(Piece *));
    if (!path->conditions || !path->piece_counts || !path->pieces) return 0;
    for (; path->condition_count < count; path->condition_count++)
        if (!tell_condition(&path->conditions[path->condition_count],
                            item(conditions, path->condition_count), views))
            return 0;
    for (int i = 0; i < outputs; i++) {
        PyObject *pieces = item(texts, i);
        int size = length(pieces);
        if (size < 0 || !(path->pieces[i] = zeros((size_t)size, sizeof(Piece)))) return 0;
        for (; path->piece_counts[i] < size; path->piece_counts[i]++)
            if (!tell_piece(&path->pieces[i][path->piece_counts[i]],
                            item(pieces, path->piece_counts[i]), views))
                return 0;
    }
    return 1;
}

static int tell_shape(Layout *layout, Shape *shape, PyObject *told) {
    PyObject *views = item(told, 1), *paths = item(told, 2);
    int view_count = length(views), path_count = length(paths);
    if (view_count < 0 || path_count < 0) return 0;
    if (view_count > MOST_VIEWS) {
        PyErr_SetString(PyExc_ValueError, "a shape of too many views");
        return 0;
    }
    shape->views = zeros((size_t)view_count, sizeof(View));
    shape->paths = zeros((size_t)path_count, sizeof(Path));
    if (!shape->views || !shape->paths) return 0;
    for (int i = 0; i < view_count; i++) {
        shape->view_count++;
        if (!tell_view(&shape->views[i], item(views, i))) return 0;
    }
    for (int i = 0; i < path_count; i++) {
        shape->path_count++;
        if (!tell_path(layout, &shape->paths[i], item(paths, i), view_count)) return 0;
    }
    return 1;
}

/* What is there of the turns of a shape; their count, or -1 where its key is none. */
static int turns_of(Text key, unsigned *there) {
    int turns = 0;
    for (size_t i = 0; i < key.size; i++) {
        if (key.bytes[i] == CONVERSATION_END) continue;
        if (turns == MOST_TURNS || key.size - i <= THERE_CHARACTERS) return -1;
        unsigned held = 0;
        for (int j = 0; j < THERE_CHARACTERS; j++) {
            int part = key.bytes[++i] - THERE_BASE;
            if (part < 0 || part >> THERE_BITS) return -1;
            held |= (unsigned)part << (j * THERE_BITS);
        }
        there[turns++] = held << 1 | HAS_CONTENT;
    }
    return turns;
}

static int tell_shapes(Layout *layout, PyObject *shapes) {
    int count = length(shapes);
    if (count < 0 || !begin_names(&layout->keys, count)) return 0;
    if (!(layout->shapes = zeros((size_t)count, sizeof(Shape)))) return 0;
    for (int i = 0; i < count; i++) {
        PyObject *told = item(shapes, i), *key = item(told, 0);
        int at = key ? add_name(&layout->keys, key) : -1;
        if (at < 0) return 0;
        Shape *shape = &layout->shapes[at];
        if (at != i || !tell_shape(layout, shape, told)) return 0;
        unsigned there[MOST_TURNS];
        int turns = turns_of(layout->keys.keys[at], there);
        if (turns < 0) return 0;
        for (int j = 0; j < shape->view_count; j++) {
            const View *view = &shape->views[j];
            if (view->turn >= turns || !(there[view->turn] >> view->key & 1)) return 0;
        }
    }
    return 1;
}

/* Make a field, the next column of all. */
static Field *field_of(Layout *layout, Field *parent, char type, Text name, int children) {
    Field *field = zeros(1, sizeof *field);
    if (!field) return NULL;
    field->type = type;
    field->column = layout->arrow_columns++;
    field->name = zeros(name.size + 1, 1);
    field->children = zeros((size_t)children, sizeof *field->children);
    if (!field->name || !field->children) {
        free_field(field);
        return NULL;
    }
    if (name.size) memcpy(field->name, name.bytes, name.size);
    if (parent) parent->children[parent->count++] = field;
    return field;
}

static Text named(const char *name) {
    Text made = {(const uint8_t *)name, strlen(name)};
    return made;
}

/* Messages as the canonical tables hold them. */
static int tell_messages(Layout *layout, Field *conversation, PyObject *keys) {
    Field *message = field_of(layout, conversation, 's', named("item"), 2 + MOST_MESSAGE_KEYS);
    if (!message || !field_of(layout, message, 'u', named("role"), 0) ||
        !field_of(layout, message, 'u', named("content"), 0))
        return 0;
    for (int i = 0; i < layout->key_count; i++) {
        PyObject *key = item(item(keys, i), 0);
        Text name;
        if (!key || !text_of(key, &name)) return 0;
        Field *made = field_of(layout, message, layout->key_types[i], name, 0);
        free((void *)name.bytes);
        if (!made) return 0;
    }
    return 1;
}

static int tell_outputs(Layout *layout, PyObject *keys) {
    layout->key_count = length(keys);
    if (layout->key_count < 0) return 0;
    if (layout->key_count > MOST_MESSAGE_KEYS || layout->conversation_count > MOST_CONVERSATIONS) {
        PyErr_SetString(PyExc_ValueError, "a layout of too many keys, or conversations");
        return 0;
    }
    for (int i = 0; i < layout->key_count; i++) {
        int is_flag = number_of(item(item(keys, i), 1), 0, 2);
        if (is_flag < 0) return 0;
        layout->key_types[i] = is_flag ? 'b' : 'u';
    }
    Field *root = layout->root = field_of(layout, NULL, 's', named(""), MOST_CONVERSATIONS);
    if (!root) return 0;
    for (int i = 0; i < layout->conversation_count; i++) {
        char name[2] = {(char)('0' + i), 0};
        Field *made = field_of(layout, root, layout->messages ? 'm' : 'u', named(name), 1);
        if (!made || (layout->messages && !tell_messages(layout, made, keys))) return 0;
    }
    return 1;
}

Layout *layout_of(PyObject *told) {
    PyObject *slots, *silent, *roles, *keys, *bits, *steps, *rules, *conversations, *unlike, *tokens, *shapes;
    int columns, messages;
    long long most;
    if (!PyArg_ParseTuple(told, "iOOOOOOOOiOOLO", &columns, &slots, &silent, &roles, &keys, &bits,
                          &steps, &rules, &conversations, &messages, &unlike, &tokens, &most, &shapes))
        return NULL;
    if (columns < 0 || columns > 1 << 20 || most < 0 || most > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a layout of numbers that cannot be");
        return NULL;
    }
    Layout *layout = zeros(1, sizeof *layout);
    if (!layout) return NULL;
    layout->most = (size_t)most;
    layout->messages = messages != 0;
    if (tell_slots(layout, slots, silent, columns) && tell_roles(layout, roles) &&
        tell_steps(layout, steps, rules) &&
        tell_numbers(&layout->conversations, &layout->conversation_count, conversations, layout->step_count) &&
        tell_outputs(layout, keys) && tell_bits(layout, bits) &&
        tell_pairs(&layout->unlike, &layout->unlike_count, unlike,
                   layout->messages ? 0 : layout->conversation_count) &&
        tell_tokens(layout, tokens) && tell_shapes(layout, shapes) && !PyErr_Occurred())
        return layout;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a layout that contradicts itself");
    free_layout(layout);
    return NULL;
}

int layout_fits(const Layout *layout, const Spec *spec) {
    if (layout->column_count != spec->count) return 0;
    for (int i = 0; i < spec->count; i++) {
        const Node *node = spec->columns[i].node;
        int slot = layout->slots[i];
        if (slot < 0) continue;
        if (node->kind != (layout->is_conversation[slot] ? NODE_CONVERSATION : NODE_TEXT)) return 0;
        if (!layout->is_conversation[slot]) continue;
        if (node->key_count != layout->key_count) return 0;
        for (int j = 0; j < node->key_count; j++)
            if ((node->keys[j].form == KEY_FLAG) != (layout->key_types[j] == 'b')) return 0;
    }
    return 1;
}

static void free_path(Path *path, int outputs) {
    for (int i = 0; i < path->condition_count; i++) free((void *)path->conditions[i].text.bytes);
    for (int i = 0; path->pieces && i < outputs; i++) {
        for (int j = 0; j < path->piece_counts[i]; j++) free((void *)path->pieces[i][j].text.bytes);
        free(path->pieces[i]);
    }
    free(path->conditions);
    free(path->piece_counts);
    free(path->pieces);
}

static void free_shape(Shape *shape, int outputs) {
    for (int i = 0; i < shape->view_count; i++) free(shape->views[i].trims);
    for (int i = 0; i < shape->path_count; i++) free_path(&shape->paths[i], outputs);
    free(shape->views);
    free(shape->paths);
}

static void free_steps(Step *steps, int count) {
    for (int i = 0; i < count; i++) {
        free((void *)steps[i].roles.bytes);
        free(steps[i].slots);
    }
    free(steps);
}

void free_layout(Layout *layout) {
    if (!layout) return;
    free_steps(layout->steps, layout->step_count);
    free_steps(layout->rules, layout->rule_count);
    for (int i = 0; i < layout->token_count; i++) free((void *)layout->tokens[i].bytes);
    for (int i = 0; layout->shapes && i < layout->keys.count; i++)
        free_shape(&layout->shapes[i], layout->conversation_count);
    free(layout->slots);
    free(layout->is_conversation);
    free(layout->conversations);
    free(layout->unlike);
    free(layout->tokens);
    free(layout->shapes);
    free_names(&layout->keys);
    free_names(&layout->roles);
    free_field(layout->root);
    free(layout);
}

/* Laying out. Nothing from here on needs the interpreter. */

int begin_laid(const Layout *layout, Laid *laid) {
    memset(laid, 0, sizeof *laid);
    laid->columns = calloc((size_t)layout->arrow_columns, sizeof(Column));
    laid->taken = calloc((size_t)layout->path_count + 1, sizeof(int64_t));
    return laid->columns && laid->taken;
}

void free_laid(const Layout *layout, Laid *laid) {
    for (int i = 0; laid->columns && i < layout->arrow_columns; i++) free_column(&laid->columns[i]);
    free(laid->columns);
    free(laid->taken);
    memset(laid, 0, sizeof *laid);
}

static int begins_with(Text text, Text other) {
    return text.size >= other.size && !memcmp(text.bytes, other.bytes, other.size);
}

static Text without_first(Text text, size_t count) {
    Text made = {text.bytes + count, text.size - count};
    return made;
}

/* Tell whether a text holds one of some texts that begin with the same byte. */
static int holds_any(Text text, const Text *others, int count) {
    while (text.size) {
        const uint8_t *at = memchr(text.bytes, others->bytes[0], text.size);
        if (!at) return 0;
        text = without_first(text, (size_t)(at - text.bytes));
        for (int i = 0; i < count; i++)
            if (begins_with(text, others[i])) return 1;
        text = without_first(text, 1);
    }
    return 0;
}

static int holds_token(const Layout *layout, Text text) {
    for (int i = 0, next; i < layout->token_count; i = next) {
        for (next = i + 1; next < layout->token_count; next++)
            if (layout->tokens[next].bytes[0] != layout->tokens[i].bytes[0]) break;
        if (holds_any(text, &layout->tokens[i], next - i)) return 1;
    }
    return 0;
}

static int is_in(const Trim *trim, uint8_t byte) {
    return byte < 0x80 && (trim->set[byte >> 6] >> (byte & 63) & 1);
}

static Text trimmed(Text text, const Trim *trim) {
    if (trim->is_space) return stripped(text, trim->sides & SIDE_LEFT, trim->sides & SIDE_RIGHT);
    while (trim->sides & SIDE_LEFT && text.size && is_in(trim, text.bytes[0]))
        text = without_first(text, 1);
    while (trim->sides & SIDE_RIGHT && text.size && is_in(trim, text.bytes[text.size - 1]))
        text.size--;
    return text;
}

static int is_so(const Condition *condition, Text text) {
    Text other = condition->text;
    switch (condition->ask) {
    case ASK_NONEMPTY: return text.size > 0;
    case ASK_STARTSWITH: return begins_with(text, other);
    case ASK_ENDSWITH:
        return text.size >= other.size &&
               begins_with(without_first(text, text.size - other.size), other);
    case ASK_EQUALS: return is_same(text, other);
    case ASK_CONTAINS: return !other.size || holds_any(text, &other, 1);
    default: return -1; /* no answer */
    }
}

static const Path *path_of(const Shape *shape, const Text *views) {
    for (int i = 0; i < shape->path_count; i++) {
        const Path *path = &shape->paths[i];
        int at = 0;
        while (at < path->condition_count &&
               is_so(&path->conditions[at], views[path->conditions[at].view]) ==
                   path->conditions[at].answer)
            at++;
        if (at == path->condition_count) return path;
    }
    return NULL;
}

static Text piece_text(const Piece *piece, const Text *views) {
    return piece->view < 0 ? piece->text : views[piece->view];
}

static int put_pieces(Column *column, const Path *path, int output, const Text *views) {
    for (int i = 0; i < path->piece_counts[output]; i++) {
        Text text = piece_text(&path->pieces[output][i], views);
        if (text.size) memcpy(column->data.bytes + column->data.used, text.bytes, text.size);
        column->data.used += text.size;
    }
    return put_end(column, (int64_t)column->data.used, 1);
}

/* Make room in a column for as much as it will hold at the end of the block, by what it holds now; by little
   that cannot be said. */
static int make_space(const Laid *laid, Bytes *data, size_t more) {
    if (data->size - data->used >= more) return 1;
    if (data->used < 1 << 14 || !laid->done) return reserve_about(data, more, 1 << 15);
    double most = (double)data->used / (double)laid->done * (double)laid->size * 1.05;
    size_t twice = 2 * laid->size;
    return reserve_about(data, more, most < (double)twice ? (size_t)most : twice);
}

/* Make room for the texts of a path: 1, 0 where a column would be too long, -1 where there is no memory. */
static int make_room(const Layout *layout, Laid *laid, const Path *path, const Text *views) {
    for (int i = 0; i < layout->root->count; i++) {
        Bytes *data = &laid->columns[i + 1].data;
        size_t left = layout->most > data->used ? layout->most - data->used : 0, size = 0;
        for (int j = 0; j < path->piece_counts[i]; j++) {
            size_t own = piece_text(&path->pieces[i][j], views).size;
            if (own > left - size) return 0;
            size += own;
        }
        if (!make_space(laid, data, size + 1)) return -1;
    }
    return 1;
}

static Text last_text(const Column *column, Mark before) {
    Text text = {column->data.bytes + before.data, column->data.used - before.data};
    return text;
}

static int put_texts(const Layout *layout, Laid *laid, const Path *path, const Text *views) {
    Mark marks[MOST_CONVERSATIONS];
    int room = make_room(layout, laid, path, views);
    laid->out_of_memory |= room < 0;
    if (room <= 0) return 0;
    for (int i = 0; i < layout->root->count; i++) {
        marks[i] = mark(&laid->columns[i + 1]);
        if (!put_pieces(&laid->columns[i + 1], path, i, views)) {
            laid->out_of_memory = 1;
            return 0;
        }
    }
    for (int i = 0; i < layout->unlike_count; i++) {
        Pair pair = layout->unlike[i];
        if (!is_same(last_text(&laid->columns[pair.one + 1], marks[pair.one]),
                     last_text(&laid->columns[pair.other + 1], marks[pair.other])))
            continue;
        for (int j = 0; j < layout->root->count; j++) go_back(&laid->columns[j + 1], marks[j]);
        return 0;
    }
    laid->taken[path->number]++;
    laid->columns[0].count++;
    return 1;
}

/* The key of the shape of some conversations, and their turns; 0 where they are too many. */
static size_t key_of(const Layout *layout, const Line *line, const Talk *talks, const Turn **turns,
                     uint8_t *key) {
    int count = 0;
    size_t size = 0;
    for (int i = 0; i < layout->conversation_count; i++) {
        const Talk *talk = &talks[layout->conversations[i]];
        for (int j = 0; j < talk->count; j++) {
            if (count == MOST_TURNS) return 0;
            const Turn *turn = &line->turns[talk->turns[j]];
            if (!(turn->there & HAS_CONTENT)) return 0;
            turns[count++] = turn;
            key[size++] = turn->role;
            unsigned held = (turn->there & layout->bits.seen) >> 1;
            for (int k = 0; k < THERE_CHARACTERS; k++, held >>= THERE_BITS)
                key[size++] = (uint8_t)(THERE_BASE + (held & ((1u << THERE_BITS) - 1)));
        }
        key[size++] = CONVERSATION_END;
    }
    return size;
}

/* Put the texts of a template together. */
static int put_rendered(const Layout *layout, const Line *line, const Talk *talks, Laid *laid) {
    const Turn *turns[MOST_TURNS];
    Text views[MOST_VIEWS];
    uint8_t bytes[(1 + THERE_CHARACTERS) * MOST_TURNS + MOST_CONVERSATIONS];
    size_t size = key_of(layout, line, talks, turns, bytes);
    Text key = {bytes, size};
    int found = size ? find_name(&layout->keys, key) : -1;
    if (found < 0) return 0;
    const Shape *shape = &layout->shapes[found];
    for (int i = 0; i < shape->view_count; i++) {
        const View *view = &shape->views[i];
        views[i] = turns[view->turn]->said[view->key];
        for (int j = 0; j < view->trim_count; j++) views[i] = trimmed(views[i], &view->trims[j]);
    }
    const Path *path = path_of(shape, views);
    return path && put_texts(layout, laid, path, views);
}

/* Messages */

static int put_turn_text(const Laid *laid, Column *column, const Turn *turn, int at) {
    if (!(turn->there >> at & 1)) return put_end(column, (int64_t)column->data.used, 0);
    Text text = turn->said[at];
    return make_space(laid, &column->data, text.size) && put_text(column, text.bytes, text.size);
}

static int put_turn(const Layout *layout, Laid *laid, const Field *message, const Turn *turn) {
    Column *columns = laid->columns;
    Field *const *fields = message->children;
    Text role = layout->roles.keys[turn->role - 1];
    if (!put_text(&columns[fields[0]->column], role.bytes, role.size)) return 0;
    for (int i = 0; i <= layout->key_count; i++) {
        Column *column = &columns[fields[1 + i]->column];
        int is_there = turn->there >> i & 1;
        if (fields[1 + i]->type == 'u') {
            if (!put_turn_text(laid, column, turn, i)) return 0;
        } else if (!put_bit(&column->data, column->count, is_there && turn->said[i].size) ||
                   !put_valid(column, is_there)) {
            return 0;
        }
    }
    return put_valid(&columns[message->column], 1);
}

/* Whether a column of a conversation would be too long with these turns. */
static int is_full(const Layout *layout, const Line *line, const Talk *talk, const Column *columns,
                   const Field *message) {
    size_t more = 0;
    for (int i = 0; i < talk->count; i++) {
        const Turn *turn = &line->turns[talk->turns[i]];
        more += layout->roles.keys[turn->role - 1].size;
        for (int j = 0; j <= layout->key_count; j++)
            if (turn->there >> j & 1) more += turn->said[j].size;
    }
    for (int i = 0; i < message->count; i++)
        if (columns[message->children[i]->column].data.used + more > layout->most) return 1;
    return (size_t)columns[message->column].count + (size_t)talk->count > layout->most;
}

static int put_messages(const Layout *layout, const Line *line, const Talk *talks, Laid *laid) {
    Column *columns = laid->columns;
    for (int i = 0; i < layout->conversation_count; i++)
        if (is_full(layout, line, &talks[layout->conversations[i]], columns,
                    layout->root->children[i]->children[0]))
            return 0;
    for (int i = 0; i < layout->conversation_count; i++) {
        const Talk *talk = &talks[layout->conversations[i]];
        const Field *conversation = layout->root->children[i], *message = conversation->children[0];
        int done = 1;
        for (int j = 0; done && j < talk->count; j++)
            done = put_turn(layout, laid, message, &line->turns[talk->turns[j]]);
        if (!done || !put_end(&columns[conversation->column], columns[message->column].count, 1)) {
            laid->out_of_memory = 1;
            return 0;
        }
    }
    columns[0].count++;
    return 1;
}

/* Whether a content that is written holds a control token. */
static int has_tokens(const Layout *layout, const Line *line, const Talk *talks) {
    for (int i = 0; layout->token_count && i < layout->conversation_count; i++) {
        const Talk *talk = &talks[layout->conversations[i]];
        for (int j = 0; j < talk->count; j++) {
            const Turn *turn = &line->turns[talk->turns[j]];
            if (turn->there & HAS_CONTENT && holds_token(layout, turn->said[0])) return 1;
        }
    }
    return 0;
}

int lay_out(const Layout *layout, Line *line, Laid *laid) {
    Talk talks[MOST_TALKS];
    for (int i = 0; i < line->turn_count; i++)
        if (line->turns[i].there & layout->bits.left) return 0;
    for (int i = 0; i < layout->step_count; i++)
        if (!make_talk(&layout->steps[i], &layout->bits, line, talks, &talks[i])) return 0;
    for (int i = 0; i < layout->rule_count; i++)
        if (is_left(&layout->rules[i], &layout->bits, line, talks)) return 0;
    if (has_tokens(layout, line, talks)) return 0;
    return layout->messages ? put_messages(layout, line, talks, laid)
                            : put_rendered(layout, line, talks, laid);
}
