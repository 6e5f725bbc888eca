/* Reading a block of JSON lines by a spec. */

#ifndef FMTKIT_READ_H
#define FMTKIT_READ_H

#include "spec.h"

enum { LINE_CLEAN = 0, LINE_BLANK = 1, LINE_UNSURE = 2 };

typedef struct {
    Column *columns; /* of the spec's `arrow_columns`; the first is the row */
    Bytes verdicts;  /* one a line */
} Result;

/* Read every line; return 0 where there is no memory. Needs no interpreter. */
int read_block(const Spec *spec, const uint8_t *bytes, size_t size, Result *result);
void free_result(const Spec *spec, Result *result);

#endif
