// The text form of a Module (doc/ir.md defines it). Printing loses nothing that has a meaning, and
// print(parse(text)) == text for every text that ir_print wrote.
#ifndef DTC_TEXT_H
#define DTC_TEXT_H

#include "ir/ir.h"

// Appends the whole module.
void ir_print(const Module *m, Buf *b);
// The same without places in the source, as a person reads it.
void ir_print_plain(const Module *m, Buf *b);
// Appends one function, one statement on one line (neither location nor newline), or one expression
// of statement s (NULL: indices print as #0, #1, ...). For dumps and messages.
void ir_print_fn(const Module *m, const Fn *f, Buf *b);
void ir_print_stmt(const Module *m, const Fn *f, const Stmt *s, Buf *b);
void ir_print_expr(const Module *m, const Fn *f, const Stmt *s, Id e, Buf *b);
// Appends `param blocks.*.w`, `total 0`, `first`: what a value of f means.
void ir_print_meaning(const Module *m, const Fn *f, Meaning k, uint32_t of, Buf *b);

// Parses the text of a module. NULL after diagnostics at the places in `name` that are wrong. What
// it returns is typed and has every name resolved; ir/verify.h checks the rest.
Module *ir_parse(Arena *a, Sources *s, Str name, const char *text, size_t n);

// What printer and parser share.

// Appends a name, quoted where it is not dotted words or is a reserved word.
void ir_print_name(Str name, Buf *b);
// Appends a string in quotes.
void ir_print_string(Str s, Buf *b);
// Appends a real so that it parses back to the same bits, as short as that allows.
void ir_print_real(double v, Buf *b);
// Words that have a meaning wherever a name may stand.
bool ir_reserved(const char *word);

typedef enum FieldKind {
  FIELD_INT,
  FIELD_REAL,
  FIELD_BOOL,
  FIELD_STR,
  FIELD_STRS,
  FIELD_ENUM
} FieldKind;
typedef struct TrainField {
  const char *name;
  FieldKind kind;
  size_t offset; // in Train
  const char *const *word; // FIELD_ENUM: the names of its values, NULL at the end
} TrainField;
extern const TrainField train_field[];
extern const uint32_t ntrain_field;

#endif
