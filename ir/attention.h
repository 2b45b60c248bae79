// Softmax attention: one function with parameters, recognised from a body. The kernels, the ring
// and the derivative compute what the parameters say; a function with another body is compiled
// from its body.
//
//   (q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, e]; slopes[g, r], sinks[g, r] or neither)
//   -> (o[b, t, g, r, e], lse[b, g, r, t])
//
//     z   = scale * sum(e: q * k)                   or, with a cap,
//           cap * tanh(scale * sum(e: q * k) / cap)
//         + bias * slopes * (s - t)                 slopes: 1 where it is no argument;
//                                                   |s - t| where `apart`
//           and -inf unless s <= t + ahead          where causal
//                       and t - s < window          where there is a window
//     lse = log(sum(s: exp(z)) + exp(sink))         the last term where there is a sink, by head
//     o   = sum(s: exp(z - lse) * v)                or a constant
//
// t and s are positions in the whole sequence. Slopes are data: their derivative is 0.
#ifndef DTC_ATTENTION_H
#define DTC_ATTENTION_H

#include "ir/intrinsic.h"

// NULL where f's body is attention, whose parameters go to *to; else the difference, to follow
// "it". f is as the front end or a person wrote it, before any pass but inline.
const char *attention_differs(Module *m, const Fn *f, Attention *to);
bool attention_is_finite(const Attention *a); // the numbers in it

#endif
