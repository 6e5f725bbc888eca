#include "read.h"

#include <limits.h>

/* Every function that reads returns 1, or 0 where the line is unsure (see json.h). What a line has put
   into columns before that is taken back. */

/* A text of the line; one that is decoded may have moved by the time that it is used. Of a flag it is ""
   or "1". */
typedef struct {
    int is_there;
    Text text;
    size_t from; /* in the decoded texts, where `text.bytes` is NULL */
} Held;

/* A message of the line: its role, a place in the node's names or, behind them, its speaker; its content,
   and what it has beside that. */
typedef struct {
    int role;
    Held said[1 + MOST_MESSAGE_KEYS];
} Message;

/* What a layout takes of a line; where it stands still from another one, `line` says so. */
typedef struct {
    int64_t line;
    Held text;
    Span span; /* of the messages */
} Slot;

typedef struct {
    const Spec *spec;
    Cursor cursor;
    Column *columns;
    Mark *marks; /* of each column of Arrow, before the line */
    int64_t rows;
    const uint8_t *begin; /* of the block */
    int64_t line;    /* 1-based, so that 0 stands for no line */
    int64_t *filled; /* the last line that put something into a column of the spec */
    int64_t *there;  /* the last line in which its value was not null */
    int64_t *met;    /* the last line in which a place was met */
    int *touched;    /* columns of the spec that this line has put something into */
    int touched_count;
    Bytes scratch;
    const Layout *layout; /* or NULL */
    Laid *laid;
    Slot *slots;
    uint8_t **letters; /* of each slot: of each role of its node and of its speaker; 0 where it has none */
    Message *messages; /* MOST_TURNS of the line */
    int message_count;
    Line laid_line;
    Bytes decoded; /* texts of the line that have escapes, and JSON that is written anew */
} Reader;

static int memory(Reader *reader, int done) { return done ? 1 : out_of_memory(&reader->cursor); }

static Column *column_of(Reader *reader, const Field *field) {
    return &reader->columns[field->column];
}

static uint8_t next_byte(const Reader *reader) {
    return reader->cursor.at < reader->cursor.end ? *reader->cursor.at : 0;
}

static int is_null(Reader *reader) {
    return next_byte(reader) == 'n' && read_literal(&reader->cursor, "null");
}

/* End a text that was appended to a column's bytes. */
static int end_text(Reader *reader, const Field *field) {
    Column *column = column_of(reader, field);
    return memory(reader, put_end(column, (int64_t)column->data.used, 1));
}

static int fill(Reader *reader, const Node *node);

/* Plain values */

static int fill_text(Reader *reader, const Field *field) {
    if (next_byte(reader) != '"') return 0;
    return decode(&reader->cursor, &column_of(reader, field)->data) && end_text(reader, field);
}

static int put_flag(Reader *reader, const Field *field, int value) {
    Column *column = column_of(reader, field);
    return memory(reader,
                  put_bit(&column->data, column->count, value) && put_valid(column, 1));
}

static int is_token(const Number *number, const char *token) {
    return number->token.size == strlen(token) &&
           !memcmp(number->token.bytes, token, number->token.size);
}

static int fill_bool(Reader *reader, const Node *node) {
    Cursor *cursor = &reader->cursor;
    Text text;
    Number number;
    int has_escape, at;
    switch (next_byte(reader)) {
    case 't': return read_literal(cursor, "true") && put_flag(reader, node->field, 1);
    case 'f': return read_literal(cursor, "false") && put_flag(reader, node->field, 0);
    case '"':
        if (!read_string(cursor, &text, &has_escape) || has_escape) return 0;
        at = find_name(&node->names, text);
        return at >= 0 && put_flag(reader, node->field, node->values[at]);
    default: break;
    }
    if (!node->numbers || !read_number(cursor, &number)) return 0;
    if (is_token(&number, "0") || is_token(&number, "0.0")) return put_flag(reader, node->field, 0);
    return (is_token(&number, "1") || is_token(&number, "1.0")) && put_flag(reader, node->field, 1);
}

static int fill_int(Reader *reader, const Node *node) {
    Number number;
    int64_t value;
    if (!read_number(&reader->cursor, &number) || !int64_of(&number, &value)) return 0;
    if (node->has_range && (value < node->least || value > node->most)) return 0;
    return memory(reader, put_word(column_of(reader, node->field), &value, 1));
}

/* Whole numbers up to here are doubles. */
#define WHOLE_DOUBLES 9007199254740992.0

static int fill_double(Reader *reader, const Node *node) {
    Cursor *cursor = &reader->cursor;
    Number number;
    double value;
    uint8_t first = next_byte(reader);
    if (node->booleans && (first == 't' || first == 'f')) {
        value = first == 't';
        if (!read_literal(cursor, first == 't' ? "true" : "false")) return 0;
    } else if (!read_number(cursor, &number) || !is_in_64_bits(&number) ||
               !double_of(&number, &value)) {
        return 0;
    } else if (node->has_range && number.is_whole &&
               (value > WHOLE_DOUBLES || value < -WHOLE_DOUBLES)) {
        return 0;
    }
    if (node->has_range && !(value >= node->low && value <= node->high)) return 0;
    return memory(reader, put_word(column_of(reader, node->field), &value, 1));
}

/* JSON text */

static int put_json(Reader *reader, Bytes *out, const char *text) {
    size_t size = strlen(text);
    if (!reserve(out, size)) return out_of_memory(&reader->cursor);
    memcpy(out->bytes + out->used, text, size);
    out->used += size;
    return 1;
}

static const char WRAP[] = "{\"type\":\"function\",\"function\":";

/* Put an object into one of type function: `from` is where it begins. */
static int wrap(Reader *reader, Bytes *out, size_t from) {
    size_t size = sizeof WRAP - 1, own = out->used - from;
    if (!reserve(out, size + 1)) return out_of_memory(&reader->cursor);
    memmove(out->bytes + from + size, out->bytes + from, own);
    memcpy(out->bytes + from, WRAP, size);
    out->used += size;
    return put_json(reader, out, "}");
}

static int is_key(Text key, const char *name) {
    return key.size == strlen(name) && !memcmp(key.bytes, name, key.size);
}

/* Write an object, a call or a tool, wrapped where that is its due. Of a tool that is wrapped `type`
   is left out. */
static int write_function(Reader *reader, Cursor *cursor, Bytes *out, int is_tool) {
    Text key;
    int count = 0, found, has_function = 0, has_name = 0;
    size_t from = out->used, type_at = 0, type_end = 0;
    if (cursor->at >= cursor->end || *cursor->at != '{' || !enter(cursor)) return 0;
    if (!put_json(reader, out, "{")) return 0;
    while ((found = next_member(cursor, &count, &key)) > 0) {
        if (!is_new_key(cursor, count, key)) return 0;
        if (count > 1 && !put_json(reader, out, ",")) return 0;
        size_t begin = out->used;
        if (!reserve(out, key.size + 3)) return out_of_memory(cursor);
        memcpy(out->bytes + out->used, key.bytes - 1, key.size + 2);
        out->used += key.size + 2;
        if (!put_json(reader, out, ":") || !write_value(cursor, out)) return 0;
        has_function |= is_key(key, "function");
        has_name |= is_key(key, "name");
        if (is_key(key, "type")) {
            type_at = begin;
            type_end = out->used;
        }
    }
    if (!found || !put_json(reader, out, "}")) return 0;
    if (has_function || (is_tool && !has_name)) return 1;
    if (is_tool && type_at) {
        /* With one comma: it has a name too, so that there is one. */
        if (out->bytes[type_end] == ',') type_end++;
        else type_at--;
        memmove(out->bytes + type_at, out->bytes + type_end, out->used - type_end);
        out->used -= type_end - type_at;
    }
    return wrap(reader, out, from);
}

/* Write a list of calls or tools; `*count` is how many there are. */
static int write_functions(Reader *reader, Cursor *cursor, Bytes *out, int is_tool, int *count) {
    int began = 0, found;
    *count = 0;
    if (cursor->at >= cursor->end || *cursor->at != '[' || !enter(cursor)) return 0;
    if (!put_json(reader, out, "[")) return 0;
    while ((found = next_item(cursor, &began)) > 0) {
        if (*count && !put_json(reader, out, ",")) return 0;
        if (*count < INT_MAX) *count += 1;
        if (!write_function(reader, cursor, out, is_tool)) return 0;
    }
    return found && put_json(reader, out, "]");
}

/* Go into the JSON of a string: 1, and -1 where the text is blank. */
static int read_text_inside(Reader *reader, Cursor *text) {
    reader->scratch.used = 0;
    if (!decode(&reader->cursor, &reader->scratch)) return 0;
    Text held = {reader->scratch.bytes, reader->scratch.used};
    if (!held.size || !stripped(held, 1, 1).size) return -1;
    *text = inside(&reader->cursor, held.bytes, held.size);
    skip_blanks(text);
    return text->at < text->end;
}

static int ended(Reader *reader, Cursor *text, int done) {
    reader->cursor.out_of_memory |= text->out_of_memory;
    return done && is_at_end(text);
}

/* A column of JSON text in which nothing becomes null. */
static int end_or_null(Reader *reader, const Field *field, size_t from, int is_null) {
    if (!is_null) return end_text(reader, field);
    column_of(reader, field)->data.used = from;
    return memory(reader, put_null(reader->columns, field));
}

static int fill_tools(Reader *reader, const Node *node) {
    Bytes *out = &column_of(reader, node->field)->data;
    size_t from = out->used;
    int count = 0;
    if (next_byte(reader) != '"') {
        if (!write_functions(reader, &reader->cursor, out, 1, &count)) return 0;
    } else {
        Cursor text;
        int found = read_text_inside(reader, &text);
        if (!found) return 0;
        if (found > 0 && !ended(reader, &text, write_functions(reader, &text, out, 1, &count)))
            return 0;
    }
    return end_or_null(reader, node->field, from, !count);
}

static int fill_raw(Reader *reader, const Field *field) {
    return write_value(&reader->cursor, &column_of(reader, field)->data) && end_text(reader, field);
}

/* Lists, records */

static int fill_list(Reader *reader, const Node *node) {
    Cursor *cursor = &reader->cursor;
    int count = 0, found;
    if (next_byte(reader) != '[' || !enter(cursor)) return 0;
    /* A null is no item, not even of a list of any values. */
    while ((found = next_item(cursor, &count)) > 0)
        if (is_null(reader) || !fill(reader, node->nodes[0])) return 0;
    int64_t end = column_of(reader, node->nodes[0]->field)->count;
    return found && memory(reader, put_end(column_of(reader, node->field), end, 1));
}

static int fill_record(Reader *reader, const Node *node) {
    Cursor *cursor = &reader->cursor;
    Text key;
    int count = 0, found;
    uint64_t seen = 0;
    if (next_byte(reader) != '{' || !enter(cursor)) return 0;
    while ((found = next_member(cursor, &count, &key)) > 0) {
        if (!is_new_key(cursor, count, key)) return 0;
        int at = find_name(&node->names, key);
        if (at < 0) {
            if (!skip_value(cursor, 1)) return 0;
        } else if (!is_null(reader)) {
            if (!fill(reader, node->nodes[at])) return 0;
            seen |= (uint64_t)1 << at;
        }
    }
    if (!found) return 0;
    for (int i = 0; i < node->node_count; i++) {
        if (seen >> i & 1) continue;
        if (node->values[i]) return 0;
        if (!memory(reader, put_null(reader->columns, node->nodes[i]->field))) return 0;
    }
    return memory(reader, put_valid(column_of(reader, node->field), 1));
}

/* Conversations */

#define MOST_NAMES 512

/* Where the value of each name of a message begins, or NULL. */
typedef struct {
    const uint8_t *values[MOST_NAMES];
} Members;

static const Field *message_field(const Node *node) { return node->field->children[0]; }

/* Hold the string that comes next. */
static int hold(Reader *reader, Held *held) {
    if (next_byte(reader) != '"') return 0;
    held->from = reader->decoded.used;
    held->is_there = decode_in_place(&reader->cursor, &reader->decoded, &held->text);
    return held->is_there;
}

/* Hold what was written behind the decoded texts, from `held->from` on. */
static void hold_written(Reader *reader, Held *held) {
    held->text.bytes = NULL;
    held->text.size = reader->decoded.used - held->from;
    held->is_there = 1;
}

static Text held_text(const Reader *reader, const Held *held) {
    Text text = held->text;
    if (!text.size) text.bytes = (const uint8_t *)"";
    else if (!text.bytes) text.bytes = reader->decoded.bytes + held->from;
    return text;
}

/* A key that changes what a turn says, where a turn cannot hold it. */
static int is_refused(Reader *reader) {
    Cursor *cursor = &reader->cursor;
    if (next_byte(reader) == '"') return !read_literal(cursor, "\"\"");
    if (next_byte(reader) != '[') return !is_null(reader);
    int count = 0;
    return !enter(cursor) || next_item(cursor, &count) != -1;
}

static int read_role(Reader *reader, const Node *node, Message *message) {
    Text text;
    int has_escape;
    if (next_byte(reader) != '"') return 0;
    if (!read_string(&reader->cursor, &text, &has_escape) || has_escape) return 0;
    message->role = find_name(&node->roles, text);
    return message->role >= 0;
}

static int read_member(Reader *reader, const Node *node, Members *members, Message *message, int name) {
    if (name < 0) return skip_value(&reader->cursor, 1);
    members->values[name] = reader->cursor.at;
    if (name == node->role) return read_role(reader, node, message);
    if (name >= node->first_refused) return !is_refused(reader);
    if (name != node->content) return skip_value(&reader->cursor, 1);
    /* A content of parts is for the strict parser. */
    return is_null(reader) || hold(reader, &message->said[0]);
}

static int hold_key_text(Reader *reader, const MessageKey *key, const Members *members, Held *held) {
    const uint8_t *found = NULL;
    for (int i = 0; i < key->count; i++) {
        const uint8_t *value = members->values[key->names[i]];
        if (!value || *value != '"') continue;
        if (!found || value[1] != '"') found = value;
        if (value[1] != '"') break;
    }
    if (!found) return 1;
    reader->cursor.at = found;
    return hold(reader, held);
}

static int hold_flag(Held *held, int value) {
    held->is_there = 1;
    held->text.bytes = (const uint8_t *)"1";
    held->text.size = value ? 1 : 0;
    return 1;
}

static int hold_key_flag(Reader *reader, const MessageKey *key, const Members *members, Held *held) {
    Number number;
    for (int i = 0; i < key->count; i++) {
        const uint8_t *value = members->values[key->names[i]];
        if (!value || *value == 'n' || *value == '"' || *value == '[' || *value == '{') continue;
        if (*value == 't' || *value == 'f') return hold_flag(held, *value == 't');
        reader->cursor.at = value;
        /* One that is so small that no double tells it from 0 has a power, or many digits. */
        if (!read_number(&reader->cursor, &number) || number.written_power) return 0;
        return number.token.size < 256 && hold_flag(held, number.count > 0);
    }
    return 1;
}

/* Write the calls that a message holds as they are; `*count` is 0 where there are none. */
static int write_called(Reader *reader, const uint8_t *value, Bytes *out, int *count) {
    size_t from = out->used;
    *count = 0;
    if (!value || *value == 'n') return 1;
    reader->cursor.at = value;
    if (*value == '"') {
        Cursor text;
        int found = read_text_inside(reader, &text);
        if (found < 0) return 1;
        if (!found || *text.at != '[' || !ended(reader, &text, write_value(&text, out))) return 0;
    } else if ((*value != '[' && *value != '{') || !write_value(&reader->cursor, out)) {
        return 0;
    }
    /* Of an empty list or object nothing but its brackets is written. */
    *count = out->used - from > 2;
    if (!*count) out->used = from;
    return 1;
}

static int hold_key_calls(Reader *reader, const MessageKey *key, const Members *members, Held *held) {
    Bytes *out = &reader->decoded;
    const uint8_t *call = members->values[key->names[1]];
    int count;
    held->from = out->used;
    if (!write_called(reader, members->values[key->names[0]], out, &count)) return 0;
    if (!count && call && *call == '{') {
        reader->cursor.at = call;
        if (!put_json(reader, out, "[")) return 0;
        if (!write_function(reader, &reader->cursor, out, 0) || !put_json(reader, out, "]")) return 0;
        count = 1;
    }
    if (count) hold_written(reader, held);
    return 1;
}

/* A turn of the call role: its content is the JSON of one call or of several. */
static int hold_call(Reader *reader, const Node *node, const Members *members, Message *message) {
    Text content = held_text(reader, &message->said[0]);
    if (!message->said[0].is_there || !content.size) return 0;
    Cursor text = inside(&reader->cursor, content.bytes, content.size);
    skip_blanks(&text);
    if (text.at >= text.end || (*text.at != '{' && *text.at != '[')) return 0;
    if (node->calls < 0) return ended(reader, &text, skip_value(&text, 1));
    const MessageKey *key = &node->keys[node->calls];
    if (members->values[key->names[0]] || members->values[key->names[1]]) return 0;
    /* Not behind the decoded texts, which the content may be one of: they move as they grow. */
    Bytes *out = &reader->scratch;
    out->used = 0;
    int count = 1, done;
    if (*text.at == '[')
        done = write_functions(reader, &text, out, 0, &count);
    else
        done = put_json(reader, out, "[") && write_function(reader, &text, out, 0) &&
               put_json(reader, out, "]");
    if (!ended(reader, &text, done)) return 0;
    message->said[0].text.size = 0;
    if (!count) return 1;
    Held *held = &message->said[1 + node->calls];
    held->from = reader->decoded.used;
    if (!reserve(&reader->decoded, out->used)) return out_of_memory(&reader->cursor);
    memcpy(reader->decoded.bytes + held->from, out->bytes, out->used);
    reader->decoded.used += out->used;
    hold_written(reader, held);
    return 1;
}

static int hold_keys(Reader *reader, const Node *node, const Members *members, Message *message) {
    const uint8_t *after = reader->cursor.at;
    int is_call = message->role == node->call_role;
    for (int i = 0; i < node->key_count; i++) {
        const MessageKey *key = &node->keys[i];
        Held *held = &message->said[1 + i];
        if (key->form == KEY_TEXT && !hold_key_text(reader, key, members, held)) return 0;
        if (key->form == KEY_FLAG && !hold_key_flag(reader, key, members, held)) return 0;
        if (key->form == KEY_CALLS && !is_call && !hold_key_calls(reader, key, members, held)) return 0;
    }
    reader->cursor.at = after;
    return 1;
}

static void begin_message(const Node *node, Message *message) {
    message->role = -1;
    for (int i = 0; i <= node->key_count; i++) {
        message->said[i].is_there = 0;
        message->said[i].text.size = 0;
    }
}

/* Hold a message: 1, 0 where the line is unsure, and -1 where it is none, but silence. */
static int hold_message(Reader *reader, const Node *node, Message *message) {
    Cursor *cursor = &reader->cursor;
    Members members;
    Text key;
    int count = 0, found;
    if (node->names.count > MOST_NAMES || next_byte(reader) != '{' || !enter(cursor)) return 0;
    memset(members.values, 0, (size_t)node->names.count * sizeof *members.values);
    begin_message(node, message);
    while ((found = next_member(cursor, &count, &key)) > 0) {
        if (!is_new_key(cursor, count, key)) return 0;
        if (!read_member(reader, node, &members, message, find_name(&node->names, key))) return 0;
    }
    if (!found || message->role < 0) return 0;
    int has_content = message->said[0].is_there;
    if (!has_content && node->silent[message->role]) {
        for (int i = 2; i < node->first_refused; i++)
            if (members.values[i]) return 0;
        return -1;
    }
    int is_call = message->role == node->call_role;
    if (is_call && !hold_call(reader, node, &members, message)) return 0;
    if (!hold_keys(reader, node, &members, message)) return 0;
    return has_content || (node->calls >= 0 && message->said[1 + node->calls].is_there);
}

/* Hold a text that is a message by the node's speaker. */
static int hold_speech(Reader *reader, const Node *node, Message *message) {
    begin_message(node, message);
    message->role = node->roles.count;
    return hold(reader, &message->said[0]);
}

/* Put a message into its columns. */
static int put_message(Reader *reader, const Node *node, const Message *message) {
    Field *const *fields = message_field(node)->children;
    int is_speech = message->role == node->roles.count, done;
    Text role = is_speech ? node->speaker : node->mapped[message->role];
    if (!memory(reader, put_text(column_of(reader, fields[0]), role.bytes, role.size))) return 0;
    for (int i = 0; i <= node->key_count; i++) {
        const Held *held = &message->said[i];
        const Field *field = fields[1 + i];
        Text text = held_text(reader, held);
        if (!held->is_there) done = put_null(reader->columns, field);
        else if (field->type == 'b') done = put_flag(reader, field, text.size > 0);
        else done = put_text(column_of(reader, field), text.bytes, text.size);
        if (!memory(reader, done)) return 0;
    }
    return memory(reader, put_valid(column_of(reader, message_field(node)), 1));
}

/* Take a message that was held, if it was: where a layout wants it, or into its columns. */
static int take_message(Reader *reader, const Node *node, int held, const Message *message, Slot *slot) {
    if (held <= 0) return held;
    if (!slot) return put_message(reader, node, message);
    slot->span.count++;
    reader->message_count++;
    return 1;
}

static int read_messages(Reader *reader, const Node *node, Slot *slot) {
    Message own, *message = &own;
    int count = 0, found;
    if (!enter(&reader->cursor)) return 0;
    while ((found = next_item(&reader->cursor, &count)) > 0) {
        if (slot && reader->message_count == MOST_TURNS) return 0;
        if (slot) message = &reader->messages[reader->message_count];
        if (!take_message(reader, node, hold_message(reader, node, message), message, slot)) return 0;
    }
    return found;
}

static int read_conversation(Reader *reader, const Node *node, Slot *slot) {
    Message own, *message = &own;
    uint8_t first = next_byte(reader);
    if (first == '[') return node->takes_messages && read_messages(reader, node, slot);
    if (first == '"' ? !node->takes_text : first != '{' || !node->takes_message) return 0;
    if (slot && reader->message_count == MOST_TURNS) return 0;
    if (slot) message = &reader->messages[reader->message_count];
    int held = first == '"' ? hold_speech(reader, node, message) : hold_message(reader, node, message);
    return take_message(reader, node, held, message, slot);
}

static int fill_conversation(Reader *reader, const Node *node) {
    int done = read_conversation(reader, node, NULL);
    int64_t end = column_of(reader, message_field(node))->count;
    return done && memory(reader, put_end(column_of(reader, node->field), end, 1));
}

/* Texts, wherever they are in a value */

static int gather(Reader *reader, const Node *node) {
    Cursor *cursor = &reader->cursor;
    Text key;
    int count = 0, found;
    switch (next_byte(reader)) {
    case '"': return fill_text(reader, node->field->children[0]);
    case '[':
        if (!enter(cursor)) return 0;
        while ((found = next_item(cursor, &count)) > 0)
            if (!gather(reader, node)) return 0;
        return found;
    case '{':
        if (!enter(cursor)) return 0;
        while ((found = next_member(cursor, &count, &key)) > 0) {
            int is_text = find_name(&node->names, key) < 0;
            if (!is_new_key(cursor, count, key)) return 0;
            if (!(is_text ? gather(reader, node) : skip_value(cursor, 1))) return 0;
        }
        return found;
    default: return skip_value(cursor, 1);
    }
}

static int fill_texts(Reader *reader, const Node *node) {
    Column *list = column_of(reader, node->field), *item = &list[1];
    const uint8_t *begin = reader->cursor.at;
    size_t from = item->data.used;
    if (!gather(reader, node)) return 0;
    int is_there = 1;
    if (*begin == '"') {
        Text text = {item->data.bytes + from, item->data.used - from};
        is_there = find_name(&node->nothing, stripped(text, 1, 1)) < 0;
    } else if (*begin == '[' || *begin == '{') {
        const uint8_t *at = begin + 1;
        while (*at == ' ' || *at == '\t' || *at == '\r') at++;
        is_there = *at != ']' && *at != '}';
    }
    if (node->is_label && is_there && !memory(reader, put_text(item, MARK, sizeof MARK - 1)))
        return 0;
    return memory(reader, put_end(list, item->count, 1));
}

static int fill(Reader *reader, const Node *node) {
    switch (node->kind) {
    case NODE_TEXT: return fill_text(reader, node->field);
    case NODE_BOOL: return fill_bool(reader, node);
    case NODE_INT: return fill_int(reader, node);
    case NODE_DOUBLE: return fill_double(reader, node);
    case NODE_RAW: return fill_raw(reader, node->field);
    case NODE_TOOLS: return fill_tools(reader, node);
    case NODE_LIST: return fill_list(reader, node);
    case NODE_RECORD: return fill_record(reader, node);
    case NODE_CONVERSATION: return fill_conversation(reader, node);
    default: return fill_texts(reader, node);
    }
}

/* Lines */

/* Make the columns of one of the spec as long as there are clean lines before this one. */
static int pad(Reader *reader, const SpecColumn *column) {
    int64_t missing = reader->rows - reader->columns[column->first].count;
    return missing <= 0 || put_nulls(reader->columns, column->node->field, missing);
}

/* The same of a column whose values a layout takes: nobody asks for it. */
static void leave_out(Reader *reader, const SpecColumn *column) {
    Column *own = &reader->columns[column->first];
    own->count = own->nulls = reader->rows;
    own->is_nothing = 1;
}

static int touch(Reader *reader, int column) {
    const SpecColumn *own = &reader->spec->columns[column];
    if (!memory(reader, pad(reader, own))) return 0;
    for (int i = own->first; i < own->last; i++) reader->marks[i] = mark(&reader->columns[i]);
    reader->touched[reader->touched_count++] = column;
    reader->filled[column] = reader->line;
    return 1;
}

/* Read what a layout takes. */
static int read_slot(Reader *reader, const Node *node, Slot *slot) {
    slot->line = reader->line;
    slot->span.first = reader->message_count;
    slot->span.count = 0;
    if (node->kind == NODE_CONVERSATION) return read_conversation(reader, node, slot);
    return hold(reader, &slot->text);
}

/* Read a column that must hold nothing: a list of no texts, or null. */
static int read_silent(Reader *reader, const SpecColumn *own) {
    const Column *column = &reader->columns[own->first];
    /* The texts of a list lie in the column behind it. */
    if (own->node->kind == NODE_TEXTS) {
        int64_t before = column[1].count;
        return fill(reader, own->node) && column[1].count == before;
    }
    int64_t before = column->nulls;
    return fill(reader, own->node) && column->nulls > before;
}

static int read_column(Reader *reader, int column) {
    const SpecColumn *own = &reader->spec->columns[column];
    if (is_null(reader)) return !own->is_required;
    int slot = reader->layout ? reader->layout->slots[column] : SLOT_NONE;
    if (slot >= 0) {
        reader->there[column] = reader->line;
        return read_slot(reader, own->node, &reader->slots[slot]);
    }
    if (!touch(reader, column)) return 0;
    reader->there[column] = reader->line;
    return slot == SLOT_SILENT ? read_silent(reader, own) : fill(reader, own->node);
}

/* A value of a key that may hold nothing: null, false, "", {}, [] or a list of nulls. */
static int is_nothing(Reader *reader) {
    Cursor *cursor = &reader->cursor;
    int count = 0, found;
    Text key;
    switch (next_byte(reader)) {
    case '"': return read_literal(cursor, "\"\"");
    case 'f': return read_literal(cursor, "false");
    case '{': return enter(cursor) && next_member(cursor, &count, &key) == -1;
    case '[':
        if (!enter(cursor)) return 0;
        while ((found = next_item(cursor, &count)) > 0)
            if (!is_null(reader)) return 0;
        return found;
    default: return is_null(reader);
    }
}

static int read_place(Reader *reader, const Place *place);

static int read_known(Reader *reader, const Place *place, int at) {
    const uint8_t *begin = reader->cursor.at;
    const int *column = place->columns[at];
    if (column || place->below[at]) {
        if (reader->met[place->ids[at]] == reader->line) return 0;
        reader->met[place->ids[at]] = reader->line;
    }
    for (; column && *column >= 0; column++) {
        reader->cursor.at = begin;
        if (!read_column(reader, *column)) return 0;
    }
    if (place->below[at]) {
        reader->cursor.at = begin;
        if (!is_null(reader) && !read_place(reader, place->below[at])) return 0;
    }
    if (!place->is_media[at]) return 1;
    reader->cursor.at = begin;
    return is_nothing(reader);
}

static int read_place(Reader *reader, const Place *place) {
    Cursor *cursor = &reader->cursor;
    Text key;
    int count = 0, found;
    if (next_byte(reader) != '{' || !enter(cursor)) return 0;
    while ((found = next_member(cursor, &count, &key)) > 0) {
        int at = find_name(&place->names, key);
        if (!(at < 0 ? skip_value(cursor, 0) : read_known(reader, place, at))) return 0;
    }
    return found;
}

static int is_complete(const Reader *reader) {
    const Spec *spec = reader->spec;
    int columns = spec->count - spec->whole_rows;
    for (int i = 0; i < columns && spec->required; i++)
        if (spec->columns[i].is_required && reader->there[i] != reader->line) return 0;
    for (int i = 0; i < spec->group_count; i++) {
        const int *column = spec->groups[i];
        while (*column >= 0 && reader->there[*column] != reader->line) column++;
        if (*column < 0) return 0;
    }
    return 1;
}

/* Make a turn of a message; 0 where the layout has no such role. */
static int make_turn(Reader *reader, const Message *message, const uint8_t *letters, Turn *turn) {
    turn->role = letters[message->role];
    turn->there = 0;
    for (int i = 0; i <= reader->layout->key_count; i++) {
        turn->said[i] = held_text(reader, &message->said[i]);
        turn->there |= (unsigned)message->said[i].is_there << i;
    }
    return turn->role > 0;
}

static int lay_line_out(Reader *reader) {
    Line *line = &reader->laid_line;
    line->turn_count = reader->message_count;
    for (int i = 0; i < reader->layout->slot_count; i++) {
        static const Held nothing;
        const Slot *slot = &reader->slots[i];
        int is_there = slot->line == reader->line;
        line->texts[i] = held_text(reader, is_there ? &slot->text : &nothing);
        line->spans[i] = slot->span;
        if (!is_there) line->spans[i].count = 0;
        for (int j = 0; j < line->spans[i].count; j++) {
            int at = slot->span.first + j;
            if (!make_turn(reader, &reader->messages[at], reader->letters[i], &line->turns[at])) return 0;
        }
    }
    int done = lay_out(reader->layout, line, reader->laid);
    reader->cursor.out_of_memory |= reader->laid->out_of_memory;
    return done;
}

static int read_line(Reader *reader, Text line) {
    const Spec *spec = reader->spec;
    Cursor *cursor = &reader->cursor;
    begin_line(cursor, line);
    reader->touched_count = 0;
    reader->decoded.used = 0;
    reader->message_count = 0;
    skip_blanks(cursor);
    const uint8_t *begin = cursor->at;
    for (int i = spec->count - spec->whole_rows; i < spec->count; i++) {
        cursor->at = begin;
        if (next_byte(reader) != '{' || !read_column(reader, i)) return 0;
    }
    cursor->at = begin;
    if (!read_place(reader, spec->row) || !is_at_end(cursor) || !is_complete(reader)) return 0;
    return !reader->layout || lay_line_out(reader);
}

static void take_back(Reader *reader) {
    for (int i = 0; i < reader->touched_count; i++) {
        const SpecColumn *own = &reader->spec->columns[reader->touched[i]];
        for (int j = own->first; j < own->last; j++) go_back(&reader->columns[j], reader->marks[j]);
    }
}

static int read_lines(Reader *reader, const uint8_t *at, const uint8_t *end, Bytes *verdicts) {
    Text line;
    while (next_line(&at, end, &line)) {
        if (!reserve(verdicts, 1)) return 0;
        uint8_t *verdict = &verdicts->bytes[verdicts->used++];
        reader->line++;
        if (reader->laid) reader->laid->done = (size_t)(at - reader->begin);
        if (is_blank(line)) {
            *verdict = LINE_BLANK;
        } else if (read_line(reader, line)) {
            *verdict = LINE_CLEAN;
            reader->rows++;
        } else if (reader->cursor.out_of_memory) {
            return 0;
        } else {
            *verdict = LINE_UNSURE;
            take_back(reader);
        }
    }
    return 1;
}

/* Find the letters of the roles of a slot's node. */
static uint8_t *letters_of(const Layout *layout, const Node *node) {
    uint8_t *letters = calloc((size_t)node->roles.count + 1, 1);
    for (int i = 0; letters && i < node->roles.count; i++)
        letters[i] = (uint8_t)(find_name(&layout->roles, node->mapped[i]) + 1);
    if (letters)
        letters[node->roles.count] = (uint8_t)(find_name(&layout->roles, node->speaker) + 1);
    return letters;
}

static int begin_layout(Reader *reader, const Layout *layout, Laid *laid) {
    if (!layout) return 1;
    size_t slots = (size_t)layout->slot_count + 1;
    Line *line = &reader->laid_line;
    reader->layout = layout;
    reader->laid = laid;
    reader->slots = calloc(slots, sizeof(Slot));
    reader->letters = calloc(slots, sizeof(uint8_t *));
    reader->messages = malloc(MOST_TURNS * sizeof(Message));
    line->texts = calloc(slots, sizeof(Text));
    line->spans = calloc(slots, sizeof(Span));
    line->turns = malloc(MOST_TURNS * sizeof(Turn));
    if (!reader->slots || !reader->letters || !reader->messages || !line->texts || !line->spans ||
        !line->turns)
        return 0;
    for (int i = 0; i < layout->column_count; i++) {
        int slot = layout->slots[i];
        if (slot < 0 || !layout->is_conversation[slot] || reader->letters[slot]) continue;
        if (!(reader->letters[slot] = letters_of(layout, reader->spec->columns[i].node))) return 0;
    }
    return begin_laid(layout, laid);
}

static int begin(Reader *reader, const Spec *spec, Result *result) {
    size_t columns = (size_t)spec->count + 1;
    size_t keys = 2 * ((size_t)spec->most_depth + 1) * MOST_KEYS;
    memset(reader, 0, sizeof *reader);
    reader->spec = spec;
    reader->columns = result->columns = calloc((size_t)spec->arrow_columns, sizeof(Column));
    reader->marks = calloc((size_t)spec->arrow_columns, sizeof(Mark));
    reader->filled = calloc(columns, sizeof(int64_t));
    reader->there = calloc(columns, sizeof(int64_t));
    reader->met = calloc((size_t)spec->places + 1, sizeof(int64_t));
    reader->touched = calloc(columns, sizeof(int));
    reader->cursor.keys = malloc(keys * sizeof(Key));
    reader->cursor.most_depth = spec->most_depth;
    return reader->columns && reader->marks && reader->filled && reader->there && reader->met &&
           reader->touched && reader->cursor.keys;
}

static void end(Reader *reader) {
    free(reader->marks);
    free(reader->filled);
    free(reader->there);
    free(reader->met);
    free(reader->touched);
    free(reader->cursor.keys);
    free(reader->scratch.bytes);
    free(reader->decoded.bytes);
    for (int i = 0; reader->letters && i < reader->layout->slot_count; i++) free(reader->letters[i]);
    free(reader->slots);
    free(reader->letters);
    free(reader->messages);
    free(reader->laid_line.texts);
    free(reader->laid_line.spans);
    free(reader->laid_line.turns);
}

int read_block(const Spec *spec, const Layout *layout, const uint8_t *bytes, size_t size,
               Result *result) {
    Reader reader;
    memset(result, 0, sizeof *result);
    int done = begin(&reader, spec, result) && begin_layout(&reader, layout, &result->laid);
    if (done) {
        reader.cursor.limit = bytes + size;
        reader.begin = bytes;
        result->laid.size = size;
        done = read_lines(&reader, bytes, bytes + size, &result->verdicts);
    }
    for (int i = 0; done && i < spec->count; i++) {
        if (layout && layout->slots[i] >= 0) leave_out(&reader, &spec->columns[i]);
        else done = pad(&reader, &spec->columns[i]);
    }
    if (done) result->columns[0].count = reader.rows;
    end(&reader);
    return done;
}

void free_result(const Spec *spec, const Layout *layout, Result *result) {
    if (layout) free_laid(layout, &result->laid);
    for (int i = 0; result->columns && i < spec->arrow_columns; i++) free_column(&result->columns[i]);
    free(result->columns);
    free(result->verdicts.bytes);
    memset(result, 0, sizeof *result);
}
