// The text form of the lowered level (doc/ir.md defines it): a module's text, then its kernels. What plan_text and
// ir_print write parses back to the same module, the same kernels, the same text.
#ifndef DTC_LOWERED_TEXT_H
#define DTC_LOWERED_TEXT_H

#include "codegen/lower/kernel.h"
#include "ir/text/text.h"

// Appends the module; with `places`, where in the source its statements are from; and its kernels, where it has them.
void level_print(const Module *m, bool places, Buf *b);
// Parses the text of a module, with kernels or without. NULL after diagnostics. Numbers of values are those of the
// module that was printed. Ids are in range, but codegen/lower/verify.h checks what they mean.
Module *level_parse(Arena *a, Sources *s, Str name, const char *text, size_t n);

#endif
