/* The turns of a line, the conversations that are made of them, and the rules that these must keep: what
 * fmtkit/columns/turn_sources.py declares, on one line.
 */

#ifndef FMTKIT_TURNS_H
#define FMTKIT_TURNS_H

#include "names.h"
#include "tables.h"

/* Conversations of a layout, those too of which others are made. */
#define MOST_TALKS 32

_Static_assert(MOST_TURNS <= 256, "the number of a turn is a byte");
_Static_assert(MOST_MESSAGE_KEYS < 30, "a bit for each key in an int, and one for the content");

#define HAS_CONTENT 1u

/* A message: its role by letter, its content, and what it has beside that; a flag is the text "" or "1". */
typedef struct {
    uint8_t role;
    unsigned there; /* HAS_CONTENT, and a bit for each key, from 2 on */
    Text said[1 + MOST_MESSAGE_KEYS];
} Turn;

typedef struct {
    int first, count;
} Span;

typedef struct {
    Text *texts; /* of each slot of a text; empty where it is null */
    Span *spans; /* of each slot of a conversation: its turns */
    Turn *turns; /* MOST_TURNS */
    int turn_count;
} Line;

/* A conversation: the numbers of its turns. */
typedef struct {
    int count;
    uint8_t turns[MOST_TURNS];
} Talk;

/* How a conversation is made, or when a line is left: of conversations made before it, or of slots. */
typedef struct {
    int kind; /* a Make, or a RuleKind */
    int one, other; /* numbers of steps */
    int so;
    Text roles; /* letters */
    int slot_count;
    int *slots; /* of MAKE_TEXTS: one for each letter */
} Step;

/* Which bits of `there` mean what. */
typedef struct {
    unsigned marks;     /* no part of what a turn says */
    unsigned calls;
    unsigned said;      /* enough without a text */
    unsigned seen;      /* by templates */
    unsigned left;      /* a line in which a turn has them is left */
} Bits;

/* Make a conversation of a line; 0 where that has too many turns. */
int make_talk(const Step *step, const Bits *bits, Line *line, Talk *talks, Talk *made);
/* Tell whether a line is to be left, because of a rule. */
int is_left(const Step *rule, const Bits *bits, const Line *line, const Talk *talks);

#endif
