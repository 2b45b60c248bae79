// Tests that are text files: a folder of .ir files whose head comments say what is expected.
#ifndef DTC_TESTS_CASES_H
#define DTC_TESTS_CASES_H

#include "ir/text/text.h"

typedef struct Case {
  const char *path, *text; // the whole file
  size_t n;
  Arena *a;
  Sources *src; // its diagnostics go to `said`
  Module *m; // NULL: it does not parse
  char *said; // filled by case_said
  size_t nsaid;
} Case;

// Runs check on each .ir file of the folder; prints the failures. The number of them, 1 for no
// files.
int cases_run(const char *dir, bool (*check)(Case *c));
// Diagnostics so far.
const char *case_said(Case *c);
// The rest of the k-th head line that begins with `# key: `, or NULL.
const char *case_expects(const Case *c, const char *key, int k);
// Whether the errors in `said` are those that the head expects, in order: each `# error: text` line
// is part of one, each `# note: text` part of a note. Prints what differs.
bool case_errors_match(Case *c);

#endif
