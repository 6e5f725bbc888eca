/* Columns as JSON lines, which the kernel reads: the way back of read.h. */

#ifndef FMTKIT_LINES_H
#define FMTKIT_LINES_H

#include "arrow.h"

/* What a column holds: of tools, and of the calls of messages, null keys are left out, since Arrow fills each
   struct with the keys of all others. */
enum { AS_IT_IS, OF_TOOLS, OF_MESSAGES, OF_CALLS };

typedef struct {
    Bytes lines;  /* one for each row; "!" where only the strict parser can judge the values of a row */
    Bytes filled; /* one byte for each row: whether a null key was left out */
} Lines;

/* Write the rows of a batch, whose offsets and lengths were checked, as lines; return 0 where there is no memory.
   `holds` says of each column what it holds. */
int lines_of_batch(const struct ArrowSchema *schema, const struct ArrowArray *array, const int *holds, Lines *made);
void free_lines(Lines *made);

#endif
