/* Texts that are put together while their line is read: what each line makes of its values.
 *
 * A layout is made once of tuples and never changed after. A line that it does not fit is unsure: because
 * a rule of its type does not hold, because a content holds a control token, or because nobody has seen
 * yet what the template makes of such a conversation.
 */

#ifndef FMTKIT_LAYOUT_H
#define FMTKIT_LAYOUT_H

#include "spec.h"
#include "turns.h"

#define MOST_CONVERSATIONS 8

_Static_assert(MOST_ROLES < CONVERSATION_END && CONVERSATION_END < 128, "a letter is a character of ASCII");
_Static_assert(THERE_BASE + (1 << THERE_BITS) <= CONVERSATION_END, "what a turn has ends no conversation");
_Static_assert(MOST_MESSAGE_KEYS <= THERE_BITS * THERE_CHARACTERS, "a bit for each key");

typedef struct {
    int sides;
    int is_space;    /* white space; else what is in `set` */
    uint64_t set[2]; /* a bit for each character of ASCII */
} Trim;

/* A text of a turn, trimmed one way after another. */
typedef struct {
    int turn, key;
    int trim_count;
    Trim *trims;
} View;

typedef struct {
    int view;
    Ask ask;
    int answer;
    Text text;
} Condition;

typedef struct {
    int view; /* or -1: the text */
    Text text;
} Piece;

/* One way through a template: the questions that lead there, and the pieces of each text. */
typedef struct {
    int condition_count;
    Condition *conditions;
    int *piece_counts;
    Piece **pieces;
    int number; /* of all paths of the layout */
} Path;

/* Conversations of the same roles. */
typedef struct {
    int view_count;
    View *views;
    int path_count;
    Path *paths;
} Shape;

typedef struct {
    int one, other;
} Pair;

/* Of columns that are read as ever, and of those that must be null, or hold no text. */
#define SLOT_NONE (-1)
#define SLOT_SILENT (-2)

typedef struct {
    int slot_count;
    int *is_conversation;   /* of each slot: its column holds messages; else a text */
    int column_count; /* of the spec */
    int *slots;       /* column of the spec -> slot, or one of those above */
    Names roles;      /* the letter of a role is its place, from 1 on */
    int key_count;    /* of messages, beside role and content */
    char key_types[MOST_MESSAGE_KEYS]; /* as of a Field: u or b */
    Bits bits;
    int step_count;
    Step *steps;
    int rule_count;
    Step *rules;
    int conversation_count;
    int *conversations; /* the steps whose conversations are written */
    int messages; /* as messages; else as texts */
    int unlike_count;
    Pair *unlike; /* texts that may not be equal */
    int token_count;
    Text *tokens; /* none of them empty, sorted by their first bytes */
    size_t most;  /* bytes of a column of texts */
    Names keys;   /* of the shapes: of each turn its letter and keys, and what ends a conversation */
    Shape *shapes;
    int path_count;
    int arrow_columns;
    Field *root; /* a struct with a field for each conversation */
} Layout;

typedef struct {
    Column *columns; /* as `root` numbers them */
    int64_t *taken;  /* how many lines took each path */
    size_t size, done; /* bytes of the block, and of the lines up to this one */
    int out_of_memory;
} Laid;

Layout *layout_of(PyObject *told);
void free_layout(Layout *layout);
/* Tell whether a layout was made for such a spec. */
int layout_fits(const Layout *layout, const Spec *spec);

/* Lay out a line; 0 where it is unsure. */
int lay_out(const Layout *layout, Line *line, Laid *laid);
int begin_laid(const Layout *layout, Laid *laid);
void free_laid(const Layout *layout, Laid *laid);

#endif
