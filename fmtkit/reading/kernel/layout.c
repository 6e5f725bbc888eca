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
    for (int i = 0; i < columns; i++) layout->slots[i] = SLOT_NONE;
    for (int i = 0; i < silent_count; i++) {
        int column = number_of(item(silent, i), 0, columns);
        if (column < 0) return 0;
        layout->slots[column] = SLOT_SILENT;
    }
    for (int i = 0; i < layout->slot_count; i++) {
        int column = number_of(item(slots, i), 0, columns);
        if (column < 0) return 0;
        layout->slots[column] = i;
    }
    return 1;
}

static int tell_dialogs(Layout *layout, PyObject *dialogs) {
    int count = length(dialogs);
    if (count < 0 || !(layout->dialogs = zeros((size_t)count, sizeof(Dialog)))) return 0;
    layout->dialog_count = count;
    for (int i = 0; i < count; i++) {
        Dialog *dialog = &layout->dialogs[i];
        PyObject *turns = item(dialogs, i);
        int size = length(turns);
        if (size < 0 || !(dialog->turns = zeros((size_t)size, sizeof(Turn)))) return 0;
        for (; dialog->count < size; dialog->count++) {
            Turn *turn = &dialog->turns[dialog->count];
            PyObject *told = item(turns, dialog->count);
            int role = number_of(item(told, 1), 1, DIALOG_END);
            turn->slot = number_of(item(told, 0), 0, layout->slot_count);
            turn->role = (char)role;
            if (role < 0 || turn->slot < 0) return 0;
        }
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
    if (count < 0 || view->turn < 0) return 0;
    if (!(view->trims = zeros((size_t)count, sizeof(Trim)))) return 0;
    for (; view->trim_count < count; view->trim_count++)
        if (!tell_trim(&view->trims[view->trim_count], item(trims, view->trim_count))) return 0;
    return 1;
}

static int tell_condition(Condition *condition, PyObject *told, int views) {
    PyObject *text = item(told, 2);
    condition->view = number_of(item(told, 0), 0, views);
    int ask = number_of(item(told, 1), ASK_NONEMPTY, ASK_CONTAINS + 1);
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
    int count = length(conditions), outputs = layout->root->count;
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

/* How many turns the key of a shape has. */
static int turns_of(Text key) {
    int turns = 0;
    for (size_t i = 0; i < key.size; i++) turns += key.bytes[i] != DIALOG_END;
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
        int turns = turns_of(layout->keys.keys[at]);
        for (int j = 0; j < shape->view_count; j++)
            if (shape->views[j].turn >= turns) return 0;
    }
    return 1;
}

static Field *text_field(int number) {
    Field *field = zeros(1, sizeof *field);
    if (!field) return NULL;
    field->type = 'u';
    field->column = number + 1;
    field->name = zeros(16, 1);
    if (!field->name) {
        free_field(field);
        return NULL;
    }
    snprintf(field->name, 16, "%d", number);
    return field;
}

static int tell_outputs(Layout *layout, int count) {
    Field *root = layout->root = zeros(1, sizeof *root);
    if (!root) return 0;
    root->type = 's';
    root->name = zeros(1, 1);
    root->children = zeros((size_t)count, sizeof *root->children);
    if (!root->name || !root->children) return 0;
    for (; root->count < count; root->count++)
        if (!(root->children[root->count] = text_field(root->count))) return 0;
    return 1;
}

Layout *layout_of(PyObject *told) {
    PyObject *slots, *silent, *dialogs, *solid, *differing, *unlike, *tokens, *shapes;
    int columns, outputs;
    long long most;
    if (!PyArg_ParseTuple(told, "iOOOOOiOOLO", &columns, &slots, &silent, &dialogs, &solid, &differing,
                          &outputs, &unlike, &tokens, &most, &shapes))
        return NULL;
    if (columns < 0 || outputs < 0 || outputs > MOST_TURNS || columns > 1 << 20 || most < 0 ||
        most > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a layout of numbers that cannot be");
        return NULL;
    }
    Layout *layout = zeros(1, sizeof *layout);
    if (!layout) return NULL;
    layout->most = (size_t)most;
    if (tell_outputs(layout, outputs) && tell_slots(layout, slots, silent, columns) &&
        tell_dialogs(layout, dialogs) &&
        tell_numbers(&layout->solid, &layout->solid_count, solid, layout->slot_count) &&
        tell_pairs(&layout->differing, &layout->differing_count, differing, layout->slot_count) &&
        tell_pairs(&layout->unlike, &layout->unlike_count, unlike, outputs) &&
        tell_tokens(layout, tokens) && tell_shapes(layout, shapes) && !PyErr_Occurred())
        return layout;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a layout that contradicts itself");
    free_layout(layout);
    return NULL;
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

void free_layout(Layout *layout) {
    if (!layout) return;
    for (int i = 0; i < layout->dialog_count; i++) free(layout->dialogs[i].turns);
    for (int i = 0; i < layout->token_count; i++) free((void *)layout->tokens[i].bytes);
    for (int i = 0; layout->shapes && i < layout->keys.count; i++)
        free_shape(&layout->shapes[i], layout->root->count);
    free(layout->slots);
    free(layout->dialogs);
    free(layout->solid);
    free(layout->differing);
    free(layout->unlike);
    free(layout->tokens);
    free(layout->shapes);
    free_names(&layout->keys);
    free_field(layout->root);
    free(layout);
}

/* Laying out. Nothing from here on needs the interpreter. */

int begin_laid(const Layout *layout, Laid *laid) {
    memset(laid, 0, sizeof *laid);
    laid->columns = calloc((size_t)layout->root->count + 1, sizeof(Column));
    laid->taken = calloc((size_t)layout->path_count + 1, sizeof(int64_t));
    return laid->columns && laid->taken;
}

void free_laid(const Layout *layout, Laid *laid) {
    for (int i = 0; laid->columns && i <= layout->root->count; i++) free_column(&laid->columns[i]);
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
    default: return !other.size || holds_any(text, &other, 1);
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
        if (!reserve(data, size + 1)) return -1;
    }
    return 1;
}

static Text last_text(const Column *column, Mark before) {
    Text text = {column->data.bytes + before.data, column->data.used - before.data};
    return text;
}

static int put_texts(const Layout *layout, Laid *laid, const Path *path, const Text *views) {
    Mark marks[MOST_TURNS];
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

/* Gather the turns that are not empty; the key of their shape, or 0 where they are too many. */
static size_t gather_turns(const Layout *layout, const Text *texts, Text *turns, uint8_t *key) {
    int count = 0;
    size_t size = 0;
    for (int i = 0; i < layout->dialog_count; i++) {
        const Dialog *dialog = &layout->dialogs[i];
        for (int j = 0; j < dialog->count; j++) {
            if (!texts[dialog->turns[j].slot].size) continue;
            if (count == MOST_TURNS) return 0;
            turns[count++] = texts[dialog->turns[j].slot];
            key[size++] = (uint8_t)dialog->turns[j].role;
        }
        key[size++] = DIALOG_END;
    }
    return size;
}

static int keeps_rules(const Layout *layout, const Text *texts) {
    for (int i = 0; i < layout->solid_count; i++)
        if (!stripped(texts[layout->solid[i]], 1, 1).size) return 0;
    for (int i = 0; i < layout->differing_count; i++)
        if (is_same(texts[layout->differing[i].one], texts[layout->differing[i].other])) return 0;
    return 1;
}

int lay_out(const Layout *layout, const Text *texts, Laid *laid) {
    Text turns[MOST_TURNS], views[MOST_VIEWS];
    uint8_t bytes[2 * MOST_TURNS];
    if (!keeps_rules(layout, texts)) return 0;
    size_t size = gather_turns(layout, texts, turns, bytes);
    Text key = {bytes, size};
    int found = size ? find_name(&layout->keys, key) : -1;
    if (found < 0) return 0;
    for (int i = 0; i < layout->slot_count; i++)
        if (holds_token(layout, texts[i])) return 0;
    const Shape *shape = &layout->shapes[found];
    for (int i = 0; i < shape->view_count; i++) {
        const View *view = &shape->views[i];
        views[i] = turns[view->turn];
        for (int j = 0; j < view->trim_count; j++) views[i] = trimmed(views[i], &view->trims[j]);
    }
    const Path *path = path_of(shape, views);
    return path && put_texts(layout, laid, path, views);
}
