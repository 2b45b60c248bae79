// Softmax attention as backends implement it: the one body that the hand-written kernels, the ring
// and the derivative compute. A function with any other body is compiled from the body.
//
//   (q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, e]) -> (o[b, t, g, r, e], lse[b, g, r, t])
//     z   = sum(e: q * k) / sqrt(e), or the same where(s <= t, ., -inf), with the products under
//           where(s <= t, ., 0) or not
//     m   = max(s: stop_gradient(z))
//     lse = log(sum(s: exp(z - m))) + m
//     o   = sum(s: exp(z - lse) * v)
#ifndef DTC_ATTENTION_H
#define DTC_ATTENTION_H

#include "ir/ir.h"

// NULL where f's body is that of attention, before any pass has changed it; else the difference, to
// follow "it".
const char *attention_differs(Module *m, const Fn *f);
// Takes the note `intrinsic` from functions with another body. False after an error: a layout was
// asked for that needs the implementation.
bool attention_recognise(Module *m);

#endif
