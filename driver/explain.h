// `dtc explain`: what an exit status or a message means, its usual causes, and what to do.
#ifndef DTC_EXPLAIN_H
#define DTC_EXPLAIN_H

#include "ir/util.h"

typedef struct Cause {
  const char *cause, *remedy;
} Cause;

enum { MOST_CAUSES = 6 };

// One thing to explain. The table has statuses of training programs without `title`: runtime/base/error.h
// has their meanings.
typedef struct Explanation {
  const char *sign;  // an exit status; or a part of a message, in which * stands for what varies
  const char *of;    // which program ends so or prints it
  const char *title; // its meaning, one line
  const char *text;  // one paragraph
  Cause cause[MOST_CAUSES]; // up to the first without a cause
} Explanation;

// The table, in the order in which it is listed: statuses, then messages.
extern const Explanation explanations[];
extern const int explanation_count;

int explain_command(Arena *a, int argc, char **argv);

#endif
