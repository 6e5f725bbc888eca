/* Texts that are put together while their line is read: what each line makes of its values.
 *
 * A layout is made once of tuples and never changed after. A line that it does not fit is unsure: because
 * a rule of its type does not hold, because a content holds a control token, or because nobody has seen
 * yet what the template makes of such a conversation.
 */

#ifndef FMTKIT_LAYOUT_H
#define FMTKIT_LAYOUT_H

#include "names.h"

/* Of a line; one that has more of either is unsure. */
#define MOST_TURNS 64
#define MOST_VIEWS 256

#define SIDE_LEFT 1
#define SIDE_RIGHT 2

typedef struct {
    int sides;
    int is_space;    /* white space; else what is in `set` */
    uint64_t set[2]; /* a bit for each character of ASCII */
} Trim;

/* The text of a turn, trimmed one way after another. */
typedef struct {
    int turn;
    int trim_count;
    Trim *trims;
} View;

typedef enum { ASK_NONEMPTY, ASK_STARTSWITH, ASK_ENDSWITH, ASK_EQUALS, ASK_CONTAINS } Ask;

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
    int slot;
    char role; /* what stands for it in the key of a shape */
} Turn;

typedef struct {
    int count;
    Turn *turns; /* an empty one is left out */
} Dialog;

typedef struct {
    int one, other;
} Pair;

/* Of columns that are read as ever, and of those of texts that may hold none. */
#define SLOT_NONE (-1)
#define SLOT_SILENT (-2)

typedef struct {
    int slot_count;
    int column_count; /* of the spec */
    int *slots;       /* column of the spec -> slot, or one of those below */
    int dialog_count;
    Dialog *dialogs;
    int solid_count;
    int *solid; /* slots that may not be blank */
    int differing_count;
    Pair *differing; /* slots that may not be equal */
    int unlike_count;
    Pair *unlike; /* texts that may not be equal */
    int token_count;
    Text *tokens; /* none of them empty, sorted by their first bytes */
    size_t most;  /* bytes of a column of texts */
    Names keys;   /* of the shapes: the roles of each dialog, and what ends it */
    Shape *shapes;
    int path_count;
    Field *root; /* a struct with a text for each column */
} Layout;

/* Ends a dialog in the key of a shape. */
#define DIALOG_END 0x7f

typedef struct {
    Column *columns; /* as `root` numbers them */
    int64_t *taken;  /* how many lines took each path */
    int out_of_memory;
} Laid;

Layout *layout_of(PyObject *told);
void free_layout(Layout *layout);

/* Lay out the texts of a line, one for each slot (empty where it is null); 0 where it is unsure. */
int lay_out(const Layout *layout, const Text *texts, Laid *laid);
int begin_laid(const Layout *layout, Laid *laid);
void free_laid(const Layout *layout, Laid *laid);

#endif
