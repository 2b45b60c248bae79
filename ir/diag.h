// Source files, locations and diagnostics as clang prints them.
#ifndef DTC_DIAG_H
#define DTC_DIAG_H

#include "ir/util.h"

// A place in a source file. `parent` is the place of the call that this one was inlined or
// specialised from (a Loc id, 0 for none), so that a message can say "in a call from here".
typedef struct Loc {
  uint32_t file; // index into Sources.file
  uint32_t line, col; // from 1
  uint32_t len; // bytes to underline, at least 1
  Id parent;
} Loc;

typedef struct SourceFile {
  Str name; // as the user wrote it, or the stdlib's path
  const char *text; // NUL-terminated; owned by the Sources' arena; NULL where unknown (IR input)
  size_t n;
} SourceFile;

typedef enum Severity { DIAG_ERROR, DIAG_WARNING, DIAG_NOTE } Severity;

typedef struct Sources {
  Arena *arena;
  VEC(SourceFile) file;
  VEC(Loc) loc; // loc 0 is "unknown"
  FILE *out; // where diagnostics go (stderr; a test's buffer)
  bool color;
  uint32_t nerror, max_errors; // printing stops after max_errors (20)
  struct LocTable *table; // interns locations; private to diag.c
} Sources;

Sources *sources_new(Arena *a);
uint32_t sources_add(Sources *s, Str name, const char *text, size_t n);
// Interns a location; returns its id.
Id loc_new(Sources *s, uint32_t file, uint32_t line, uint32_t col, uint32_t len, Id parent);
// The same place as `loc`, reached through the call at `parent` (appended to the end of its chain).
Id loc_inlined(Sources *s, Id loc, Id parent);

// `file:line:col: error: message`, the source line, a caret with tildes; then for each parent a note
// "in a call from here". diag_note adds to the message before it.
void diag(Sources *s, Severity sev, Id loc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
#define diag_error(s, loc, ...) diag((s), DIAG_ERROR, (loc), __VA_ARGS__)
#define diag_note(s, loc, ...) diag((s), DIAG_NOTE, (loc), __VA_ARGS__)
// The candidate nearest to `name` by edit distance, or NULL if none is near enough to suggest.
Str did_you_mean(Str name, const Str *candidate, uint32_t n);

#endif
