/* One JSON value: its grammar, its texts decoded, its canonical text, its numbers.
 *
 * Every function that reads returns 1, or 0 where the line is for the strict parser: because the value
 * is wrong, because it is one that only the strict parser tells right from wrong, or because there is
 * no memory (then `out_of_memory` is set).
 */

#ifndef FMTKIT_JSON_H
#define FMTKIT_JSON_H

#include "arrow.h"

/* An object of more keys would take time by their square. */
#define MOST_KEYS 64

/* Of which no stack runs out: a reader calls itself so often. */
#define MOST_DEPTH 200

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Text;

typedef struct {
    Text key;
    uint64_t hash;
} Key;

typedef struct {
    const uint8_t *at;    /* the next byte */
    const uint8_t *end;   /* of the line */
    const uint8_t *limit; /* of the block: up to here bytes may be looked at */
    int line_feeds;       /* 1 in JSON inside of a text, where a line feed is a blank */
    int depth, most_depth;
    Key *keys; /* MOST_KEYS for each depth */
    int out_of_memory;
} Cursor;

typedef struct {
    Text token;
    int is_negative, is_whole;
    uint64_t digits; /* the significant digits as a number, where they are at most MOST_DIGITS */
    int64_t count;   /* how many they are, from the first that is not 0 */
    int64_t before;  /* of them and of zeros, before the point */
    int64_t power;   /* of ten, by which `digits` is to be multiplied */
    int64_t written_power;
} Number;

#define MOST_DIGITS 19

int out_of_memory(Cursor *cursor);
void skip_blanks(Cursor *cursor);

/* Step into an object or a list; 0 where it is nested too deep. */
int enter(Cursor *cursor);

/* Come to the next member of an object whose `{` was passed, and to its value. Returns 1; 0 where the
   line is unsure, so also for a key with an escape; -1 after the `}`. `*count` begins at 0. */
int next_member(Cursor *cursor, int *count, Text *key);
/* The same of a list whose `[` was passed; -1 after the `]`. */
int next_item(Cursor *cursor, int *count);
/* Remember a key of the object that the cursor is in, the `count`-th; 0 where it was there before. */
int is_new_key(Cursor *cursor, int count, Text key);

/* Step over a value. What nobody uses may hold keys twice and numbers of any size. */
int skip_value(Cursor *cursor, int is_used);
int read_literal(Cursor *cursor, const char *word);
/* Step over a string; what is between its quotes, which has no escape unless `*has_escape`. */
int read_string(Cursor *cursor, Text *inside, int *has_escape);
int read_number(Cursor *cursor, Number *number);
/* Whether the strict parser takes a number where it is used; where unsure, 0. */
int is_in_64_bits(const Number *number);
int int64_of(const Number *number, int64_t *value);
/* What Python's float() makes of the token, to the bit; 0 where that is not certain here. */
int double_of(const Number *number, double *value);

/* Decode a string, and append it. */
int decode(Cursor *cursor, Bytes *out);
/* The same of a string that may stay where it is: appended, and `text->bytes` NULL, only if it has escapes. */
int decode_in_place(Cursor *cursor, Bytes *out, Text *text);
/* Append the canonical JSON text of a value that is used. */
int write_value(Cursor *cursor, Bytes *out);

/* Go on with JSON inside of a text, which is one value with blanks around it. */
Cursor inside(const Cursor *cursor, const uint8_t *bytes, size_t size);
/* Whether nothing but blanks is left. */
int is_at_end(Cursor *cursor);

/* Take away what Python's str.strip takes away, on one side or both: the white space of Unicode. */
Text stripped(Text text, int left, int right);

int is_same(Text one, Text other);
uint64_t hash_of(Text text);

/* Take the next line of a block, without what ends it: a line feed, and a carriage return before that.
   Returns 0 at the end of the block. */
int next_line(const uint8_t **at, const uint8_t *end, Text *line);
int is_blank(Text line);
/* Begin with a line. */
void begin_line(Cursor *cursor, Text line);

#endif
