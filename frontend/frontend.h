// From .dt text to a Module: parse, resolve names, instantiate the tree of layers, check shapes and
// types, write index notation.
#ifndef DTC_FRONTEND_H
#define DTC_FRONTEND_H

#include "ir/ir.h"

typedef struct FrontendOptions {
  Str path; // of the model, as the user wrote it
  const char *text; // its text, NUL-terminated; NULL: read `path`
  const Str *include; // directories that `use` searches first
  uint32_t ninclude;
  Str stdlib; // directory that `use` searches last; NULL: none
  const Str *define; // -D NAME=VALUE
  uint32_t ndefine;
} FrontendOptions;

// The model's program: its functions, parameters and settings, with ENTRY_LOSS, ENTRY_EVAL_LOSS
// and, where the model has logits over tokens, ENTRY_SAMPLE. NULL after errors were reported to s.
Module *frontend_compile(Arena *a, Sources *s, const FrontendOptions *o);

// Appends the syntax tree of the file (not of those it uses) to out. False after errors.
bool frontend_print_ast(Arena *a, Sources *s, const FrontendOptions *o, Buf *out);

#endif
