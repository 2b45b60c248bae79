// Many modules in one, to compile them together.
#ifndef DTC_TESTS_MERGE_H
#define DTC_TESTS_MERGE_H

#include "ir/ir.h"

// Copies function fn of src, and those it calls, into dst; returns its number there.
Id merge_fn(Module *dst, const Module *src, Id fn);
// Adds a function that calls each of fn[0 .. n), and makes it ENTRY_UPDATE, so that all are
// reached.
void merge_top(Module *dst, const Id *fn, uint32_t n);

#endif
