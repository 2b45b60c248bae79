// Attention of every form, at sizes that tiles do not divide, run as CUDA kernels in all orders of threads, gives what the
// interpreter finds from the bodies that define it and its derivative.
#include <stdlib.h>
#include <unistd.h>

#include "codegen/target.h"
#include "tests/codegen/support/harness.h"

typedef struct Form {
  const char *name, *type;
  int batch, tq, tk, groups, members, dim;
  int causal; // -1: not; else how far ahead
  int window;
  double cap, bias, sink;
  bool apart, slopes, sinks;
  const char *query, *key; // their places: by0, from0, turn, by1, from1 of `rank`; or NULL
  const char *half; // type of operands, or NULL
} Form;

static const Form form[] = {
    {"plain", "f32", 2, 70, 45, 1, 2, 40, -1, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"causal", "f32", 1, 131, 131, 2, 1, 64, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"wide_heads", "f32", 1, 35, 67, 1, 1, 256, -1, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"odd_heads", "f32", 1, 33, 33, 1, 3, 129, 0, 5, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"window", "f32", 1, 150, 150, 1, 1, 16, 0, 20, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"both_sides", "f32", 1, 90, 90, 1, 1, 8, 9, 10, 0, -0.25, 0, 1, 0, 0, NULL, NULL, NULL},
    {"soft_cap", "f32", 1, 40, 40, 1, 2, 24, 0, 0, 1.5, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"alibi", "f32", 1, 70, 70, 2, 2, 16, 0, 0, 0, 0.125, 0, 0, 1, 0, NULL, NULL, NULL},
    {"sink", "f32", 1, 20, 20, 1, 1, 16, 0, 4, 0, 0, 0.75, 0, 0, 0, NULL, NULL, NULL},
    {"sinks_by_head", "f32", 2, 70, 70, 2, 2, 16, 0, 0, 2.5, 0.25, 0, 0, 1, 1, NULL, NULL, NULL},
    {"places", "f32", 1, 80, 72, 1, 1, 16, 0, 0, 0, 0, 0, 0, 0, 0, "40 0 30 -40 210", "36 1 36 -36 180", NULL},
    {"double_window", "f64", 1, 75, 75, 1, 2, 48, 0, 30, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"bf16", "f32", 2, 70, 145, 1, 2, 32, -1, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, "bf16"},
    {"bf16_causal", "f32", 1, 200, 200, 1, 2, 128, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, "bf16"},
    {"fp16_window", "f32", 1, 260, 260, 1, 1, 16, 0, 30, 0, 0, 0, 0, 0, 0, NULL, NULL, "f16"},
    {"fp16_forms", "f32", 1, 131, 131, 2, 1, 48, 0, 90, 2.5, 0.25, 0.5, 0, 0, 0, NULL, NULL, "f16"},
    {"bf16_places", "f32", 1, 80, 72, 1, 1, 16, 0, 0, 0, 0, 0, 0, 0, 0, "40 0 30 -40 210", "36 1 36 -36 180", "bf16"},
    {"bf16_odd", "f32", 1, 70, 70, 1, 1, 24, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, "bf16"},
    {"double_wide", "f64", 1, 40, 70, 1, 1, 200, -1, 0, 3.5, 0.5, 0, 1, 0, 1, NULL, NULL, NULL},
};

static void put_parameters(Buf *b, const Form *x, int rank_at) {
  buf_printf(b, " intrinsic attention(scale 0.25");
  if (x->cap != 0) buf_printf(b, ", cap %g", x->cap);
  if (x->causal >= 0) buf_printf(b, ", causal %d", x->causal);
  if (x->window) buf_printf(b, ", window %d", x->window);
  if (x->bias != 0) buf_printf(b, ", bias %g", x->bias);
  if (x->apart) buf_printf(b, ", apart");
  if (x->slopes) buf_printf(b, ", slopes 3");
  if (x->sink != 0) buf_printf(b, ", sink %g", x->sink);
  if (x->sinks) buf_printf(b, ", sinks %d", 3 + x->slopes);
  if (x->query) buf_printf(b, ", query %d %s, key %d %s", rank_at, x->query, rank_at, x->key);
  buf_printf(b, ")");
}

// "(where(i < 30, i + 40 * rank + 0, i + -40 * rank + 210))"
static Str position(const char *index, const char *place) {
  int by[2], from[2], turn;
  if (!place) return str_intern(index);
  CHECK(sscanf(place, "%d %d %d %d %d", &by[0], &from[0], &turn, &by[1], &from[1]) == 5);
  return str_printf("where(%s < %d, %s + %d * rank + %d, %s + %d * rank + %d)", index, turn, index, by[0], from[0], index, by[1],
                    from[1]);
}

static Str seen(const Form *x) {
  Str t = position("i", x->query), s = position("j", x->key), sees = "0 <= i";
  if (x->causal >= 0) sees = str_printf("%s and %s <= %s + %d", sees, s, t, x->causal);
  if (x->window) sees = str_printf("%s and %s - %s < %d", sees, t, s, x->window);
  return sees;
}

// Sizes, with the operands' types put for T.
static void put(Buf *b, const Form *x, const char *text) {
  for (const char *p = text; *p; p++) switch (*p) {
    case 'B': buf_printf(b, "%d", x->batch); break;
    case 'I': buf_printf(b, "%d", x->tq); break;
    case 'J': buf_printf(b, "%d", x->tk); break;
    case 'G': buf_printf(b, "%d", x->groups); break;
    case 'R': buf_printf(b, "%d", x->members); break;
    case 'E': buf_printf(b, "%d", x->dim); break;
    case 'H': buf_printf(b, "%s", x->half ? x->half : x->type); break;
    case 'T': buf_printf(b, "%s", x->type); break;
    case 'V': buf_printf(b, "%s", seen(x)); break;
    default: buf_printf(b, "%c", *p);
    }
}

static void put_scores(Buf *b, const Form *x) {
  put(b, x, "  x[b<B, g<G, r<R, i<I, j<J]: T = sum(e<E: q[b, i, g, r, e] * k[b, j, g, e])\n");
  if (x->cap != 0) {
    put(b, x, "  u[b<B, g<G, r<R, i<I, j<J]: T = ");
    buf_printf(b, "tanh(0.25 * x[b, g, r, i, j] / %g)\n", x->cap);
  }
  put(b, x, "  z[b<B, g<G, r<R, i<I, j<J]: T = ");
  if (x->cap != 0) buf_printf(b, "%g * u[b, g, r, i, j]", x->cap);
  else buf_printf(b, "0.25 * x[b, g, r, i, j]");
  Str apart = str_printf("real(%s - %s)", position("j", x->key), position("i", x->query));
  if (x->bias != 0)
    buf_printf(b, " + %g * %s%s", x->bias, x->slopes ? "slope[g, r] * " : "", x->apart ? str_printf("abs(%s)", apart) : apart);
  buf_printf(b, "\n");
}

static Str sink_of(const Form *x) { return x->sinks ? "sink[g, r]" : str_printf("%g", x->sink); }
static bool has_sink(const Form *x) { return x->sinks || x->sink != 0; }

static void put_operands(Buf *b, const Form *x) {
  put(b, x, "q: H[B, I, G, R, E], k: H[B, J, G, E], v: H[B, J, G, E]");
  if (x->slopes) put(b, x, ", slope: T[G, R]");
  if (x->sinks) put(b, x, ", sink: T[G, R]");
}

static void put_forward(Buf *b, const Form *x) {
  buf_printf(b, "func attention(");
  put_operands(b, x);
  if (x->query) buf_printf(b, ", rank: int");
  put(b, x, ") -> (o: T[B, I, G, R, E], lse: T[B, G, R, I])");
  put_parameters(b, x, 3 + x->slopes + x->sinks);
  buf_printf(b, " {\n");
  put_scores(b, x);
  put(b, x, "  m[b<B, g<G, r<R, i<I]: T = max(j<J: where(V, z[b, g, r, i, j], -16.0))\n");
  put(b, x, "  l[b<B, g<G, r<R, i<I]: T = sum(j<J: where(V, exp(z[b, g, r, i, j] - m[b, g, r, i]), 0.0))\n");
  put(b, x, "  lse[b<B, g<G, r<R, i<I] = log(l[b, g, r, i]");
  if (has_sink(x)) buf_printf(b, " + exp(%s - m[b, g, r, i])", sink_of(x));
  buf_printf(b, ") + m[b, g, r, i]\n");
  put(b, x, "  o[b<B, i<I, g<G, r<R, e<E] = sum(j<J: where(V, exp(z[b, g, r, i, j] - lse[b, g, r, i]), 0.0) * v[b, j, g, e])\n}\n\n");
}

static void put_gradients(Buf *b, const Form *x, const char *mode) {
  buf_printf(b, ", %sd.q: ", mode);
  put(b, x, "T[B, I, G, R, E]");
  buf_printf(b, ", %sd.k: ", mode);
  put(b, x, "T[B, J, G, E]");
  buf_printf(b, ", %sd.v: ", mode);
  put(b, x, "T[B, J, G, E]");
  if (x->slopes) buf_printf(b, ", %sd.slope: ", mode), put(b, x, "T[G, R]");
  if (x->sinks) buf_printf(b, ", %sd.sink: ", mode), put(b, x, "T[G, R]");
}

static void put_backward(Buf *b, const Form *x) {
  buf_printf(b, "func attention.backward(");
  put_operands(b, x);
  put(b, x, ", o: H[B, I, G, R, E], lse: T[B, G, R, I], d.o: H[B, I, G, R, E]");
  put_gradients(b, x, "inout ");
  if (x->query) buf_printf(b, ", rank: int");
  buf_printf(b, ") -> ()");
  put_parameters(b, x, 9 + 2 * x->slopes + 2 * x->sinks);
  buf_printf(b, " backward {\n");
  put_scores(b, x);
  put(b, x, "  p[b<B, g<G, r<R, i<I, j<J]: T = where(V, exp(z[b, g, r, i, j] - lse[b, g, r, i]), 0.0)\n"
            "  dp[b<B, g<G, r<R, i<I, j<J]: T = sum(e<E: d.o[b, i, g, r, e] * v[b, j, g, e])\n"
            "  mean[b<B, g<G, r<R, i<I]: T = sum(e<E: d.o[b, i, g, r, e] * o[b, i, g, r, e])\n"
            "  ds[b<B, g<G, r<R, i<I, j<J]: T = p[b, g, r, i, j] * (dp[b, g, r, i, j] - mean[b, g, r, i]) * 0.25");
  if (x->cap != 0) buf_printf(b, " * (1.0 - u[b, g, r, i, j] * u[b, g, r, i, j])");
  put(b, x, "\n  d.q[b<B, i<I, g<G, r<R, e<E] += sum(j<J: ds[b, g, r, i, j] * k[b, j, g, e])\n"
            "  d.k[b<B, j<J, g<G, e<E] += sum(r<R, i<I: ds[b, g, r, i, j] * q[b, i, g, r, e])\n"
            "  d.v[b<B, j<J, g<G, e<E] += sum(r<R, i<I: p[b, g, r, i, j] * d.o[b, i, g, r, e])\n");
  if (x->sinks) put(b, x, "  d.sink[g<G, r<R] += sum(b<B, i<I: -exp(sink[g, r] - lse[b, g, r, i]) * mean[b, g, r, i])\n");
  buf_printf(b, "}\n\n");
}

static void put_caller(Buf *b, const Form *x) {
  Str more = str_printf("%s%s", x->slopes ? ", slope" : "", x->sinks ? ", sink" : "");
  Str rank = x->query ? ", rank" : "", gradients = str_printf("%s%s", x->slopes ? ", d.slope" : "", x->sinks ? ", d.sink" : "");
  buf_printf(b, "func %s(", x->name);
  put_operands(b, x);
  put(b, x, ", d.o: H[B, I, G, R, E]");
  if (x->query) buf_printf(b, ", rank: int");
  put(b, x, ") -> (o: T[B, I, G, R, E], lse: T[B, G, R, I]");
  put_gradients(b, x, "");
  buf_printf(b, ") {\n  o, lse = call attention(q, k, v%s%s)\n", more, rank);
  if (x->half) put(b, x, "  p[b<B, i<I, g<G, r<R, e<E]: H = o[b, i, g, r, e]\n");
  buf_printf(b, "  call attention.backward(q, k, v%s, %s, lse, d.o, d.q, d.k, d.v%s%s)\n}\n", more, x->half ? "p" : "o", gradients,
             rank);
}

static bool is_taken(Module *m, Id f) {
  const Plan *p = plan_lower(m);
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->fn[f].kernel.n; i++) n += p->fn[f].kernel.at[i].kind == K_INTRINSIC;
  return n == 2;
}

static bool run_form(const Form *x) {
  Buf b = {0};
  char path[] = "/tmp/dtc-attention-XXXXXX";
  buf_printf(&b, "module t\ncompute %s\n\n", x->type);
  put_forward(&b, x);
  put_backward(&b, x);
  put_caller(&b, x);
  int fd = mkstemp(path);
  CHECK(fd >= 0 && write(fd, b.text, b.n) == (ssize_t)b.n && !close(fd));
  Arena *a = arena_new();
  Module *m = harness_parse(a, path);
  harness_unit = !x->half ? 0 : *x->half == 'b' ? 0x1p-16 : 0x1p-19; // a bound of every rounding in float32, times 2^8, 2^5
  bool ok = m && harness_run(m, m->fn.n - 1, false);
  if (ok && !is_taken(m, m->fn.n - 1)) ok = false, printf("%s is compiled from its body\n", x->name);
  if (!ok) printf("%s: wrong, of\n%s\n", x->name, b.text);
  unlink(path);
  arena_free(a);
  buf_free(&b);
  return ok;
}

int main(int argc, char **argv) {
  bool ok = true;
  if (system("command -v c++ >/dev/null")) return printf("no C++ compiler\n"), 77;
  harness_cuda = true;
  for (size_t i = 0; i < sizeof form / sizeof *form; i++)
    if (argc < 2 || !strcmp(argv[1], form[i].name)) ok = run_form(&form[i]) && ok;
  return !ok;
}
