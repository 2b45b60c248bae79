// Whether the chunks of a pipeline fit together (ir/verify_chunk.c).
#ifndef DTC_IR_CHUNK_H
#define DTC_IR_CHUNK_H

#include "ir/ir.h"

// Messages and what is kept, of a module whose functions are in order otherwise. False with a
// message that names the two ranks, what each does, and the lines.
bool chunks_verify(const Module *m, Buf *why);

#endif
