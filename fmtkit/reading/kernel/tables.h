/* What fmtkit numbers as the kernel does. Written by `make docs` (docs/pages/kernel_tables.py) from
 * fmtkit/reading/clean_lines.py and fmtkit/columns/text_layout.py; a test compares them.
 */

#ifndef FMTKIT_TABLES_H
#define FMTKIT_TABLES_H

/* Turns of a line, and of a shape; a line that has more is unsure. So are views of a shape. */
#define MOST_TURNS 128
#define MOST_VIEWS 256
/* What a message may have besides its role and content. */
#define MOST_MESSAGE_KEYS 12
/* Roles of a layout, each a letter, and what ends a conversation in the key of a shape. */
#define MOST_ROLES 125
#define CONVERSATION_END 127
/* How the key of a shape tells what a turn has: so many characters of so many bits each. */
#define THERE_BASE 32
#define THERE_BITS 6
#define THERE_CHARACTERS 2
/* Sides on which a text is trimmed. */
#define SIDE_LEFT 1
#define SIDE_RIGHT 2
/* The character that says that a value exists. */
#define MARK "\xee\x80\x80"

/* The verdict on a line. */
typedef enum {
    LINE_CLEAN = 0,
    LINE_BLANK = 1,
    LINE_UNSURE = 2,
} Verdict;

/* Kinds of JSON value, a bit each. */
typedef enum {
    KIND_NULL = 1,
    KIND_BOOL = 2,
    KIND_TEXT = 4,
    KIND_INTEGER = 8,
    KIND_LONG_INTEGER = 16,
    KIND_FLOAT = 32,
    KIND_JSON = 64,
} Kind;

/* What the bits of keys mean, of which a layout tells one set each. */
typedef enum {
    BITS_MARKS = 0,
    BITS_CALLS = 1,
    BITS_SAID = 2,
    BITS_SEEN = 3,
    BITS_LEFT = 4,
    BIT_SETS = 5,
} BitSet;

/* How a conversation is made, and when a line is left: classes of columns/turn_sources.py. */
typedef enum {
    MAKE_TEXTS = 0,
    MAKE_MESSAGES = 1,
    MAKE_WITH_SYSTEM = 2,
    MAKE_WITHOUT_SYSTEM = 3,
    MAKE_ALL_BUT_LAST = 4,
    MAKE_LAST = 5,
    MAKE_WITHOUT_ANSWER = 6,
    MAKE_AFTER_CONTEXT = 7,
    MAKE_PROMPT_TURNS = 8,
    MAKE_SHARED = 9,
    MAKE_AFTER_SHARED = 10,
    MAKES = 11,
} Make;

typedef enum {
    RULE_BLANK = 0,
    RULE_EQUAL = 1,
    RULE_FLAWED = 2,
    RULE_ENDS = 3,
    RULE_HAS_ROLE = 4,
    RULE_SAME = 5,
    RULE_FOREIGN = 6,
    RULE_SEVERAL = 7,
    RULE_OTHER_SYSTEM = 8,
    RULE_QUESTION_MISSING = 9,
    RULES = 10,
} RuleKind;

/* Comparisons of two texts. */
typedef enum {
    ASK_NONEMPTY = 0,
    ASK_STARTSWITH = 1,
    ASK_ENDSWITH = 2,
    ASK_EQUALS = 3,
    ASK_CONTAINS = 4,
    ASKS = 5,
} Ask;

#endif
