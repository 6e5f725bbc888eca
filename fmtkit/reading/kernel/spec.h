/* A spec: which values of a line become which columns. Made once of tuples, never changed after. */

#ifndef FMTKIT_SPEC_H
#define FMTKIT_SPEC_H

#include "names.h"
#include "tables.h"

typedef struct Node Node;

typedef enum { NODE_TEXT, NODE_BOOL, NODE_INT, NODE_DOUBLE, NODE_RAW, NODE_TOOLS, NODE_LIST,
               NODE_RECORD, NODE_CONVERSATION, NODE_TEXTS } NodeKind;

/* What a message has beside role and content. */
typedef enum { KEY_TEXT, KEY_FLAG, KEY_CALLS } KeyForm;

#define MOST_KEY_NAMES 8

typedef struct {
    KeyForm form;
    Field *field;
    int count;
    int names[MOST_KEY_NAMES]; /* places in the node's `names` */
} MessageKey;

struct Node {
    NodeKind kind;
    Field *field; /* where its values go; owned by the field above it, or by the spec */
    Names names;  /* texts of booleans; fields of records; keys of messages; keys without texts */
    int *values;  /* of booleans: what each text stands for; of records: whether a field is required */
    Node **nodes; /* of records: each field's; of lists: the item's */
    int node_count;
    int numbers, booleans, has_range; /* of booleans and numbers */
    double low, high;
    int64_t least, most;
    /* Of conversations */
    int takes_text, takes_message, takes_messages;
    Text speaker;
    Names roles;
    Text *mapped; /* role -> what templates call it */
    int *silent;  /* role -> whether a message of it without content is left out */
    int role, content; /* places in `names` */
    int first_refused; /* names from here on hold null, [] or "" */
    int key_count;
    MessageKey keys[MOST_MESSAGE_KEYS];
    int calls;     /* place of the calls in `keys`, or -1 */
    int call_role; /* place in `roles`, or -1 */
    /* Of texts: whether a mark is among them where the value is there, and which texts are nothing */
    int is_label;
    Names nothing;
};

/* A key of the row, or of an object on the path to a value. */
typedef struct Place {
    Names names;
    struct Place **below; /* of each name, or NULL */
    int **columns;        /* of each name: the columns whose values lie there, -1 behind the last */
    int *is_media;
    int *ids;
} Place;

typedef struct {
    Node *node;
    int is_required;
    int first, last; /* columns of Arrow, the last apart */
} SpecColumn;

typedef struct {
    Field *root;
    int arrow_columns;
    int count;
    SpecColumn *columns;
    Place *row;
    int places; /* how many ids the places have */
    int whole_rows; /* how many of the columns hold the whole row: the last ones of `columns` */
    int required;
    int group_count;
    int **groups; /* of each: columns, -1 behind the last */
    int most_depth;
} Spec;

/* Make a spec of the tuples that fmtkit.reading.clean_lines makes; NULL and an exception if it cannot be. */
Spec *spec_of(PyObject *told);
void free_spec(Spec *spec);

#endif
