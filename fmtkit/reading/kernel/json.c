#include "json.h"

#include "scan.h"

int out_of_memory(Cursor *cursor) {
    cursor->out_of_memory = 1;
    return 0;
}

int is_same(Text one, Text other) {
    return one.size == other.size && !memcmp(one.bytes, other.bytes, one.size);
}

void skip_blanks(Cursor *cursor) {
    const uint8_t *at = cursor->at, *end = cursor->end;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' ||
                        (*at == '\n' && cursor->line_feeds)))
        at++;
    cursor->at = at;
}

int is_at_end(Cursor *cursor) {
    skip_blanks(cursor);
    return cursor->at == cursor->end;
}

Cursor inside(const Cursor *cursor, const uint8_t *bytes, size_t size) {
    Cursor made = *cursor;
    made.at = bytes;
    made.end = made.limit = bytes + size;
    made.line_feeds = 1;
    /* The strict parser puts the text into an object, and nesting begins anew. The keys of depths
       that are entered again are no longer needed by then, except those of the objects around. */
    made.depth = 1;
    made.keys = cursor->keys + (size_t)(cursor->most_depth + 1) * MOST_KEYS;
    return made;
}

int enter(Cursor *cursor) {
    cursor->at++;
    return ++cursor->depth <= cursor->most_depth;
}

/* Lines */

int next_line(const uint8_t **at, const uint8_t *end, Text *line) {
    const uint8_t *begin = *at;
    if (begin >= end) return 0;
    const uint8_t *feed = memchr(begin, '\n', (size_t)(end - begin)), *stop = feed ? feed : end;
    line->bytes = begin;
    line->size = (size_t)(stop - begin);
    if (line->size && stop[-1] == '\r') line->size--;
    *at = feed ? feed + 1 : end;
    return 1;
}

int is_blank(Text line) {
    size_t at = 0;
    while (at < line.size && (line.bytes[at] == ' ' || line.bytes[at] == '\t' || line.bytes[at] == '\r'))
        at++;
    return at == line.size;
}

void begin_line(Cursor *cursor, Text line) {
    cursor->at = line.bytes;
    cursor->end = line.bytes + line.size;
    cursor->depth = 0;
}

/* Strings */

static int hex_of(const uint8_t *at, unsigned *value) {
    unsigned made = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i];
        unsigned digit;
        if (c >= '0' && c <= '9') digit = c - '0';
        else if (c >= 'a' && c <= 'f') digit = c - 'a' + 10u;
        else if (c >= 'A' && c <= 'F') digit = c - 'A' + 10u;
        else return 0;
        made = made << 4 | digit;
    }
    *value = made;
    return 1;
}

/* Read an escape of which `at` is the backslash: its code point, and how many bytes it has; 0 where it
   is none, or half of a surrogate pair. */
static size_t escape_of(const uint8_t *at, const uint8_t *end, unsigned *point) {
    if (end - at < 2) return 0;
    switch (at[1]) {
    case '"': case '\\': case '/': *point = at[1]; return 2;
    case 'b': *point = '\b'; return 2;
    case 'f': *point = '\f'; return 2;
    case 'n': *point = '\n'; return 2;
    case 'r': *point = '\r'; return 2;
    case 't': *point = '\t'; return 2;
    case 'u': break;
    default: return 0;
    }
    unsigned high, low;
    if (end - at < 6 || !hex_of(at + 2, &high)) return 0;
    if (high < 0xD800 || high > 0xDFFF) {
        *point = high;
        return 6;
    }
    if (high > 0xDBFF || end - at < 12 || at[6] != '\\' || at[7] != 'u') return 0;
    if (!hex_of(at + 8, &low) || low < 0xDC00 || low > 0xDFFF) return 0;
    *point = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return 12;
}

static uint8_t *put_point(uint8_t *to, unsigned point) {
    if (point < 0x80) {
        *to++ = (uint8_t)point;
    } else if (point < 0x800) {
        *to++ = (uint8_t)(0xC0 | point >> 6);
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        *to++ = (uint8_t)(0xE0 | point >> 12);
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    } else {
        *to++ = (uint8_t)(0xF0 | point >> 18);
        *to++ = (uint8_t)(0x80 | (point >> 12 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    }
    return to;
}

static uint8_t *put_escaped(uint8_t *to, unsigned point) {
    static const char digits[] = "0123456789abcdef";
    char letter = 0;
    switch (point) {
    case '"': case '\\': letter = (char)point; break;
    case '\b': letter = 'b'; break;
    case '\f': letter = 'f'; break;
    case '\n': letter = 'n'; break;
    case '\r': letter = 'r'; break;
    case '\t': letter = 't'; break;
    default: break;
    }
    if (!letter && point >= 0x20) return put_point(to, point);
    *to++ = '\\';
    if (letter) {
        *to++ = (uint8_t)letter;
        return to;
    }
    *to++ = 'u';
    *to++ = '0';
    *to++ = '0';
    *to++ = (uint8_t)digits[point >> 4];
    *to++ = (uint8_t)digits[point & 15];
    return to;
}

int read_string(Cursor *cursor, Text *text, int *has_escape) {
    const uint8_t *begin = cursor->at + 1, *at = begin, *limit = cursor->limit;
    const uint8_t *high = NULL;
    unsigned point;
    *has_escape = 0;
    for (;;) {
        at = find_stop(at, limit, &high);
        if (at >= cursor->end || *at < 0x20) return 0;
        if (*at == '"') break;
        size_t size = escape_of(at, cursor->end, &point);
        if (!size) return 0;
        *has_escape = 1;
        at += size;
    }
    text->bytes = begin;
    text->size = (size_t)(at - begin);
    cursor->at = at + 1;
    return !high || is_utf8(high, at);
}

/* What an escape of two bytes stands for, by the second. */
static const uint8_t SHORT[256] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                   ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'};

/* Write what the escape at `at`, a backslash, stands for, with `put`; 0 where there is none. */
static inline size_t put_escape(const uint8_t *at, const uint8_t *end, uint8_t **to,
                                uint8_t *(*put)(uint8_t *, unsigned)) {
    unsigned point = end - at >= 2 ? SHORT[at[1]] : 0;
    size_t size = point ? 2 : escape_of(at, end, &point);
    if (size) *to = put(*to, point);
    return size;
}

/* Decode from a backslash up to the quote that ends the string, with `put` for each code point that was
   written as an escape. Returns the quote; NULL where there is none. */
static inline const uint8_t *decode_rest(const Cursor *cursor, const uint8_t *at, uint8_t **out,
                                         const uint8_t **high,
                                         uint8_t *(*put)(uint8_t *, unsigned)) {
    const uint8_t *end = cursor->end;
    uint8_t *to = *out;
    size_t size;
    /* What is copied is a chunk each time, however little of it is wanted: a loop over what is wanted would
       be guessed wrong by the processor at each escape. */
    while (cursor->limit - at >= 2 * CHUNK) {
        int is_high;
        const uint8_t *chunk = at;
        uint64_t stops = stops_at(chunk, &is_high);
        *high = *high ? *high : is_high ? chunk : NULL;
        for (;;) {
            size_t place = stops ? first_stop(stops) : CHUNK;
            copy_chunk(to, at);
            to += place - (size_t)(at - chunk);
            at = chunk + place;
            if (!stops) break;
            if (*at != '\\') goto stopped;
            if (!(size = put_escape(at, end, &to, put))) return NULL;
            at += size;
            if (at - chunk >= CHUNK) break;
            stops = stops_from(stops, (size_t)(at - chunk));
        }
    }
    while (at < end && *at != '"') {
        if (*at == '\\') {
            if (!(size = put_escape(at, end, &to, put))) return NULL;
            at += size;
        } else {
            if (*at < 0x20) return NULL;
            if (*at & 0x80 && !*high) *high = at;
            *to++ = *at++;
        }
    }
stopped:
    *out = to;
    return at < end && *at == '"' ? at : NULL;
}

/* Copy what is between the quotes, of which `stop` is the first byte that is none of a text, and `high` a
   place before which all is ASCII, or NULL where all is up to the stop. No escape becomes longer than it was. */
static inline int copy_from_stop(Cursor *cursor, const uint8_t *stop, const uint8_t *high, Bytes *out,
                                 uint8_t *(*put)(uint8_t *, unsigned)) {
    const uint8_t *begin = cursor->at + 1, *quote = stop;
    size_t first = (size_t)(stop - begin);
    /* Where an escape follows, no more is decoded than the line holds. */
    size_t most = *stop == '"' ? first : (size_t)(cursor->end - begin);
    if (!reserve(out, most + SLACK)) return out_of_memory(cursor);
    uint8_t *to = out->bytes + out->used;
    memcpy(to, begin, first);
    to += first;
    if (*stop != '"' && !(quote = decode_rest(cursor, stop, &to, &high, put))) return 0;
    out->used = (size_t)(to - out->bytes);
    cursor->at = quote + 1;
    return !high || is_utf8(high, quote);
}

static inline int copy_string(Cursor *cursor, Bytes *out, uint8_t *(*put)(uint8_t *, unsigned)) {
    const uint8_t *high = NULL, *stop = find_stop(cursor->at + 1, cursor->limit, &high);
    if (stop >= cursor->end || *stop < 0x20) return 0;
    return copy_from_stop(cursor, stop, high, out, put);
}

int decode(Cursor *cursor, Bytes *out) { return copy_string(cursor, out, put_point); }

int decode_in_place(Cursor *cursor, Bytes *out, Text *text) {
    const uint8_t *begin = cursor->at + 1, *high = NULL;
    const uint8_t *stop = find_stop(begin, cursor->limit, &high);
    if (stop >= cursor->end || *stop < 0x20) return 0;
    size_t from = out->used;
    int is_whole = *stop == '"';
    if (!is_whole && !copy_from_stop(cursor, stop, high, out, put_point)) return 0;
    text->bytes = is_whole ? begin : NULL;
    text->size = is_whole ? (size_t)(stop - begin) : out->used - from;
    if (!is_whole) return 1;
    cursor->at = stop + 1;
    return !high || is_utf8(high, stop);
}

/* Members, items */

uint64_t hash_of(Text text) {
    uint64_t hash = text.size * 0x9E3779B97F4A7C15ULL;
    const uint8_t *at = text.bytes;
    size_t left = text.size;
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xFF51AFD7ED558CCDULL;
        hash ^= hash >> 32;
    }
    uint64_t word = 0;
    memcpy(&word, at, left);
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDULL;
    return hash ^ hash >> 32;
}

int is_new_key(Cursor *cursor, int count, Text key) {
    if (count > MOST_KEYS) return 0;
    Key *keys = cursor->keys + (size_t)cursor->depth * MOST_KEYS;
    uint64_t hash = hash_of(key);
    for (int i = 0; i < count - 1; i++)
        if (keys[i].hash == hash && is_same(keys[i].key, key)) return 0;
    keys[count - 1].key = key;
    keys[count - 1].hash = hash;
    return 1;
}

int next_member(Cursor *cursor, int *count, Text *key) {
    int has_escape;
    skip_blanks(cursor);
    if (cursor->at >= cursor->end) return 0;
    if (*cursor->at == '}') {
        cursor->at++;
        cursor->depth--;
        return -1;
    }
    if (*count) {
        if (*cursor->at != ',') return 0;
        cursor->at++;
        skip_blanks(cursor);
        if (cursor->at >= cursor->end) return 0;
    }
    if (*cursor->at != '"' || !read_string(cursor, key, &has_escape) || has_escape) return 0;
    skip_blanks(cursor);
    if (cursor->at >= cursor->end || *cursor->at != ':') return 0;
    cursor->at++;
    skip_blanks(cursor);
    *count += 1;
    return cursor->at < cursor->end;
}

int next_item(Cursor *cursor, int *count) {
    skip_blanks(cursor);
    if (cursor->at >= cursor->end) return 0;
    if (*cursor->at == ']') {
        cursor->at++;
        cursor->depth--;
        return -1;
    }
    if (*count) {
        if (*cursor->at != ',') return 0;
        cursor->at++;
        skip_blanks(cursor);
    }
    *count = 1;
    return cursor->at < cursor->end;
}

int read_literal(Cursor *cursor, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(cursor->end - cursor->at) < size || memcmp(cursor->at, word, size)) return 0;
    cursor->at += size;
    return 1;
}

/* Numbers */

static int is_digit(const Cursor *cursor) {
    return cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9';
}

static void read_digits(Cursor *cursor, Number *number) {
    for (; is_digit(cursor); cursor->at++) {
        if (!number->count && *cursor->at == '0') continue;
        number->count++;
        if (number->count <= MOST_DIGITS)
            number->digits = number->digits * 10 + (uint64_t)(*cursor->at - '0');
    }
}

/* Powers that need more than five digits are all alike: none is read here. */
#define MOST_POWER 99999

int read_number(Cursor *cursor, Number *number) {
    memset(number, 0, sizeof *number);
    const uint8_t *begin = cursor->at;
    number->is_whole = 1;
    if (cursor->at < cursor->end && *cursor->at == '-') {
        number->is_negative = 1;
        cursor->at++;
    }
    if (!is_digit(cursor)) return 0;
    const uint8_t *whole = cursor->at;
    if (*cursor->at == '0') {
        cursor->at++;
        if (is_digit(cursor)) return 0;
    } else {
        read_digits(cursor, number);
    }
    number->before = cursor->at - whole;
    if (cursor->at < cursor->end && *cursor->at == '.') {
        cursor->at++;
        number->is_whole = 0;
        const uint8_t *decimals = cursor->at;
        read_digits(cursor, number);
        if (cursor->at == decimals) return 0;
        number->power = -(cursor->at - decimals);
    }
    if (cursor->at < cursor->end && (*cursor->at | 0x20) == 'e') {
        cursor->at++;
        number->is_whole = 0;
        int is_negative = 0;
        if (cursor->at < cursor->end && (*cursor->at == '-' || *cursor->at == '+'))
            is_negative = *cursor->at++ == '-';
        if (!is_digit(cursor)) return 0;
        int64_t power = 0;
        for (; is_digit(cursor); cursor->at++) {
            power = power * 10 + (*cursor->at - '0');
            if (power > MOST_POWER) return 0;
        }
        number->written_power = is_negative ? -power : power;
        number->power += number->written_power;
    }
    number->token.bytes = begin;
    number->token.size = (size_t)(cursor->at - begin);
    return 1;
}

/* Python's floats end at 1.8e308; a power so near to it is left to the strict parser. */
#define SURE_POWER 290

static int is_surely_finite(const Number *number) {
    return number->before + number->written_power <= SURE_POWER;
}

int is_in_64_bits(const Number *number) {
    int64_t value;
    return number->is_whole ? int64_of(number, &value) : is_surely_finite(number);
}

int int64_of(const Number *number, int64_t *value) {
    if (!number->is_whole || number->count > MOST_DIGITS) return 0;
    uint64_t most = (uint64_t)INT64_MAX + (uint64_t)number->is_negative;
    if (number->digits > most) return 0;
    if (!number->is_negative) *value = (int64_t)number->digits;
    else if (number->digits == most) *value = INT64_MIN;
    else *value = -(int64_t)number->digits;
    return 1;
}

typedef unsigned __int128 Wide;

/* Return 2 to a power of a normal double. */
static double power_of_two(int power) {
    uint64_t bits = (uint64_t)(power + 1023) << 52;
    double made;
    memcpy(&made, &bits, 8);
    return made;
}

static int bits_of(Wide value) {
    uint64_t high = (uint64_t)(value >> 64), low = (uint64_t)value;
    return high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll(low);
}

/* Round value * 2^power (and, if `is_more`, a little more) to the nearest double, ties to even. */
static double rounded(Wide value, int power, int is_more) {
    int extra = bits_of(value) - 53;
    if (extra <= 0) return (double)(uint64_t)value * power_of_two(power);
    uint64_t kept = (uint64_t)(value >> extra);
    Wide half = (Wide)1 << (extra - 1), rest = value & (((Wide)1 << extra) - 1);
    if (rest > half || (rest == half && (is_more || (kept & 1)))) kept++;
    return (double)kept * power_of_two(power + extra);
}

/* 5^27 is the last power of five in 63 bits. */
#define MOST_FIVES 27

/* The digits are a number below 2^64, and a power of ten is one of five and one of two: times 5^27 it
   is below 2^127, and divided by it, after a shift to 128 bits, it keeps 64 bits and a remainder. Both
   are exact, and rounded once. All results are normal: from 1e-27 to 1e46. */
int double_of(const Number *number, double *value) {
    if (number->is_whole) {
        int64_t whole;
        if (!int64_of(number, &whole)) return 0;
        /* Rounds to nearest, ties to even, as Python does; -0 is 0. */
        *value = (double)whole;
        return 1;
    }
    double made;
    if (!number->digits) {
        made = 0.0;
    } else {
        int64_t power = number->power;
        if (number->count > MOST_DIGITS || power < -MOST_FIVES || power > MOST_FIVES) return 0;
        uint64_t fives = 1;
        for (int64_t i = power < 0 ? -power : power; i; i--) fives *= 5;
        if (power >= 0) {
            made = rounded((Wide)number->digits * fives, (int)power, 0);
        } else {
            int shift = 64 + __builtin_clzll(number->digits);
            Wide shifted = (Wide)number->digits << shift;
            made = rounded(shifted / fives, (int)power - shift, shifted % fives != 0);
        }
    }
    *value = number->is_negative ? -made : made;
    return 1;
}

/* Values */

static int skip_number(Cursor *cursor, int is_used) {
    Number number;
    if (!read_number(cursor, &number)) return 0;
    if (is_used) return is_in_64_bits(&number);
    /* Elsewhere the strict parser minds an infinite real with a large power alone. */
    return number.written_power <= 0 || is_surely_finite(&number);
}

static int skip_object(Cursor *cursor, int is_used) {
    Text key;
    int count = 0, found;
    if (!enter(cursor)) return 0;
    while ((found = next_member(cursor, &count, &key)) > 0) {
        if (is_used && !is_new_key(cursor, count, key)) return 0;
        if (!skip_value(cursor, is_used)) return 0;
    }
    return found;
}

static int skip_list(Cursor *cursor, int is_used) {
    int count = 0, found;
    if (!enter(cursor)) return 0;
    while ((found = next_item(cursor, &count)) > 0)
        if (!skip_value(cursor, is_used)) return 0;
    return found;
}

int skip_value(Cursor *cursor, int is_used) {
    Text text;
    int has_escape;
    if (cursor->at >= cursor->end) return 0;
    switch (*cursor->at) {
    case '"': return read_string(cursor, &text, &has_escape);
    case '{': return skip_object(cursor, is_used);
    case '[': return skip_list(cursor, is_used);
    case 't': return read_literal(cursor, "true");
    case 'f': return read_literal(cursor, "false");
    case 'n': return read_literal(cursor, "null");
    default: return skip_number(cursor, is_used);
    }
}

/* Canonical text */

static int write_bytes(Cursor *cursor, Bytes *out, const void *bytes, size_t size) {
    if (!reserve(out, size)) return out_of_memory(cursor);
    memcpy(out->bytes + out->used, bytes, size);
    out->used += size;
    return 1;
}

static int write_object(Cursor *cursor, Bytes *out) {
    Text key;
    int count = 0, found;
    if (!enter(cursor) || !write_bytes(cursor, out, "{", 1)) return 0;
    while ((found = next_member(cursor, &count, &key)) > 0) {
        if (!is_new_key(cursor, count, key)) return 0;
        if (count > 1 && !write_bytes(cursor, out, ",", 1)) return 0;
        /* A key without an escape stands as it is written, its quotes too. */
        if (!write_bytes(cursor, out, key.bytes - 1, key.size + 2)) return 0;
        if (!write_bytes(cursor, out, ":", 1) || !write_value(cursor, out)) return 0;
    }
    return found && write_bytes(cursor, out, "}", 1);
}

static int write_list(Cursor *cursor, Bytes *out) {
    int count = 0, found, is_first = 1;
    if (!enter(cursor) || !write_bytes(cursor, out, "[", 1)) return 0;
    while ((found = next_item(cursor, &count)) > 0) {
        if (!is_first && !write_bytes(cursor, out, ",", 1)) return 0;
        is_first = 0;
        if (!write_value(cursor, out)) return 0;
    }
    return found && write_bytes(cursor, out, "]", 1);
}

int write_value(Cursor *cursor, Bytes *out) {
    const uint8_t *begin = cursor->at;
    if (begin >= cursor->end) return 0;
    switch (*begin) {
    case '{': return write_object(cursor, out);
    case '[': return write_list(cursor, out);
    case '"':
        return write_bytes(cursor, out, "\"", 1) && copy_string(cursor, out, put_escaped) &&
               write_bytes(cursor, out, "\"", 1);
    default:
        return skip_value(cursor, 1) &&
               write_bytes(cursor, out, begin, (size_t)(cursor->at - begin));
    }
}

/* White space */

static int is_space(unsigned point) {
    if (point < 0x80) return (point >= 9 && point <= 13) || (point >= 0x1C && point <= 0x20);
    return point == 0x85 || point == 0xA0 || point == 0x1680 || point == 0x2028 ||
           point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000 ||
           (point >= 0x2000 && point <= 0x200A);
}

static unsigned point_at(const uint8_t *at, size_t *size) {
    if (*at < 0x80) return *size = 1, *at;
    if (*at < 0xE0) return *size = 2, (*at & 0x1Fu) << 6 | (at[1] & 0x3Fu);
    if (*at < 0xF0)
        return *size = 3, (*at & 0x0Fu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
    return *size = 4, 0x10000;
}

Text stripped(Text text, int left, int right) {
    size_t size;
    while (left && text.size && is_space(point_at(text.bytes, &size))) {
        text.bytes += size;
        text.size -= size;
    }
    while (right && text.size) {
        const uint8_t *at = text.bytes + text.size - 1;
        while (is_tail(*at)) at--;
        if (!is_space(point_at(at, &size))) break;
        text.size = (size_t)(at - text.bytes);
    }
    return text;
}
