// What printer and parser of the lowered level's text share.
#ifndef DTC_LOWERED_WORDS_H
#define DTC_LOWERED_WORDS_H

#include "codegen/lower/kernel.h"

// The word that begins a kernel, by its kind; a kernel of loops that fills with zeros has its own.
enum { FILL_WORD = K_WAIT + 1, NKERNEL_WORD };
extern const char *const kernel_word[NKERNEL_WORD];

// The functions of sums.
extern const char *const act_word[NACT];

// For each value of the function, whether its text mentions it: others are not printed.
bool *lowered_mentions(const Module *m, const Fn *f);

#endif
