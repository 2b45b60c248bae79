// `dtc fmt`: the layout of a model's text.
#ifndef DTC_FMT_H
#define DTC_FMT_H

#include "ir/util.h"

// Appends to out the text in its one layout: two spaces a block, one more step where a line goes
// on, single spaces around operators. Line ends, comments and the order of everything stay; `=` and
// comments that stand in one column in lines that follow each other stay aligned. The tokens are
// the same, and formatting twice changes nothing more. The text is one that the grammar accepts.
void fmt_text(Arena *a, const char *text, size_t n, Buf *out);

// The command: files are rewritten in place; without one, stdin goes to stdout.
int fmt_command(Arena *a, int argc, char **argv);

#endif
