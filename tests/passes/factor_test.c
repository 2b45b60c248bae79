// An axis as two factors, one for the groups of heads and one for the heads of a group: what each
// rank holds and exchanges, that it computes what one rank does, and when it is not so.
#include "ir/layout.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/shard/shard.h"
#include "support/mesh.h"
#include "tests/oracle/oracle.h"

static const char *const grouped[] = {"vocab=64", "layers=2", "heads=8", "kv_heads=2",
                                      "dim=64", "hidden=128", "train.length=16", NULL};

static Module *plan(Arena *a, const char *const *define, const Mesh *k) {
  return mesh_shard(a, "examples/llama", define, k, NULL, NULL);
}

static bool is_factored(const Module *m, int64_t inner, int64_t outer) {
  return m->axis.n >= 2 && !strcmp(m->axis.at[0].name, "tp.0") && m->axis.at[0].size == inner &&
         !strcmp(m->axis.at[1].name, "tp.1") && m->axis.at[1].size == outer;
}

static bool failed(const char *what) { return printf("FAIL %s\n", what) < 0; }

// ---- what a rank has

static bool holds(const Module *m, const char *name, uint32_t dim, int64_t places) {
  for (uint32_t i = 0; i < m->param.n; i++) {
    const Param *p = &m->param.at[i];
    if (!strstr(p->name, name)) continue;
    int64_t n = layout_extent(m, p->shard, dim, p->extent[dim]);
    if (n == places) return true;
    printf("  %s: %lld places of dimension %u, not %lld\n", p->name, (long long)n, dim,
           (long long)places);
  }
  return failed(name);
}

// Gradients that stay partial are those of keys and values, on the heads of their group.
static bool partial_ok(const Module *m) {
  const Fn *f = &m->fn.at[m->entry[ENTRY_STEP]];
  int n = 0;
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    bool is = v->shard[0].kind == SHARD_PARTIAL;
    n += is;
    if (v->shard[1].kind == SHARD_PARTIAL) return failed("partial on the groups");
    if (is && !strstr(v->name, ".wk.") && !strstr(v->name, ".wv.")) return failed(v->name);
  }
  return n == 2 || failed("gradients of keys and values are summed once a step");
}

static const Fn *attention(const Module *m, bool backward) {
  for (Id f = 0; f < m->fn.n; f++) {
    const Fn *g = &m->fn.at[f];
    if (g->intrinsic == INTR_ATTENTION && g->backward == backward &&
        g->value.at[g->arg.at[0]].extent[0] > 1)
      return g;
  }
  return NULL;
}

// ---- what it exchanges

typedef struct Seen {
  int reduce, max, scatter, gather, other, apart; // apart: over one factor
} Seen;

static Seen seen(const Module *m, Id fn) {
  Seen s = {0};
  for (uint32_t i = 0; i < m->fn.at[fn].stmt.n; i++) {
    const Stmt *t = &m->fn.at[fn].stmt.at[i];
    if (t->kind != ST_COLL) continue;
    bool reduces = t->coll == COLL_ALL_REDUCE;
    s.apart += !t->both;
    s.reduce += reduces && t->red == RED_SUM;
    s.max += reduces && t->red == RED_MAX;
    s.scatter += t->coll == COLL_REDUCE_SCATTER;
    s.gather += t->coll == COLL_ALL_GATHER;
    s.other += t->coll == COLL_ALL_TO_ALL || t->coll == COLL_SHIFT;
  }
  return s;
}

static bool exchanges(const char *what, const Module *m, Id fn, Seen want) {
  Seen s = seen(m, fn);
  if (!memcmp(&s, &want, sizeof s)) return true;
  printf("  %s: %d all-reduces, %d of maxima, %d reduce-scatters, %d all-gathers, %d others; %d "
         "over one factor\n",
         what, s.reduce, s.max, s.scatter, s.gather, s.other, s.apart);
  return failed(what);
}

static bool check_rank(int64_t tp, bool sequence) {
  Arena *a = arena_new();
  Mesh k = {"tp", tp, 1, sequence, false, false};
  Module *m = plan(a, grouped, &k);
  bool ok = m && (is_factored(m, tp / 2, 2) || failed("not factored"));
  ok = ok && (sequence || partial_ok(m)) && pass_localise(m);
  ok = ok && holds(m, ".wq.", 2, 8 / tp) && holds(m, ".wk.", 2, 1) && holds(m, ".wv.", 2, 1) &&
       holds(m, ".wo.", 1, 64 / tp) && holds(m, ".gate.", 2, 128 / tp) &&
       holds(m, ".down.", 1, 128 / tp) && holds(m, "output.", 1, 64 / tp) &&
       holds(m, "embed.", 1, 64 / tp);
  for (int backward = 0; ok && backward < 2; backward++) {
    const Fn *f = attention(m, backward);
    const int64_t *q = f ? f->value.at[f->arg.at[0]].extent : NULL;
    const int64_t *kv = f ? f->value.at[f->arg.at[1]].extent : NULL;
    ok = f && q[2] == 1 && q[3] == 8 / tp && kv[2] == 1;
    if (!ok) failed("attention of one head of keys and values");
  }
  const Fn *step = ok ? &m->fn.at[m->entry[ENTRY_STEP]] : NULL;
  Id body[2] = {NONE, NONE};
  for (uint32_t i = 0, n = 0; ok && i < step->stmt.n && n < 2; i++)
    if (step->stmt.at[i].kind == ST_REPEAT) body[n++] = step->stmt.at[i].call->fn;
  Seen forward = sequence ? (Seen){.scatter = 2, .gather = 2} : (Seen){.reduce = 2};
  Seen back = sequence ? (Seen){.scatter = 2, .gather = 4} : forward;
  Seen around = sequence ? (Seen){2, 1, 1, 1, 2, 0} : (Seen){3, 1, 0, 1, 0, 0};
  ok = ok && exchanges("forward", m, body[0], forward) && exchanges("backward", m, body[1], back) &&
       exchanges("around", m, m->entry[ENTRY_STEP], around);
  printf("%-4s tp=%lld%s: groups on one factor, their heads on the other\n", ok ? "ok" : "FAIL",
         (long long)tp, sequence ? ", t too" : "");
  arena_free(a);
  return ok;
}

// ---- what it computes

static bool check_equal(const char *const *define, Mesh k) {
  const Entry entry[] = {ENTRY_STEP, ENTRY_EVAL, ENTRY_SAMPLE, ENTRY_COUNT};
  Arena *a = arena_new();
  Module *whole = plan(a, define, &k), *local = NULL;
  Buf text = {0}, why = {0};
  double most = 0;
  bool ok = whole && (is_factor(&whole->axis.at[0]) || failed("not factored"));
  if (ok) {
    ir_print(whole, &text);
    local = load_module(a, k.name, arena_copy(a, text.text, text.n + 1));
    ok = local && pass_localise(local) && ir_verify_ranges(local, &why);
  }
  Module *plain = ok ? mesh_compile(a, "examples/llama", define) : NULL;
  ok = plain;
  for (int e = 0; ok && e < 4; e++) {
    double worst;
    ok = ranks_compare_to(plain, plain->entry[entry[e]], whole, local, whole->entry[entry[e]],
                          &(ArgOptions){.seed = 11}, &(InterpOptions){.seed = 7, .step = 2}, &worst,
                          &why);
    if (ok && !(worst <= most)) most = worst;
  }
  ok = ok && most <= 1e-11;
  printf("%-4s %s: error %.1e %s\n", ok ? "ok" : "FAIL", k.name, most, why.text ? why.text : "");
  buf_free(&text);
  buf_free(&why);
  arena_free(a);
  return ok;
}

static int check_all_equal(void) {
  static const char *const even[] = {"vocab=24", "layers=2", "heads=8", "kv_heads=2",
                                     "dim=32", "hidden=24", "train.length=8", "train.batch=3",
                                     "train.microbatch=2", NULL};
  static const char *const few[] = {"vocab=24", "layers=2", "heads=4", "kv_heads=2",
                                    "dim=16", "hidden=24", "train.length=6", "train.batch=3",
                                    "train.microbatch=2", NULL};
  static const char *const odd[] = {"vocab=24", "layers=2", "heads=10", "kv_heads=2",
                                    "dim=40", "hidden=24", "train.length=6", "train.batch=3",
                                    "train.microbatch=2", NULL};
  const Mesh mesh[] = {{"tp=4", 4, 1, false, false, false},
                       {"tp=8", 8, 1, false, false, false},
                       {"tp=8, t too", 8, 1, true, false, false},
                       {"tp=4 cp=2", 4, 2, false, false, false},
                       {"tp=4 cp=2, t too", 4, 2, true, false, false},
                       {"tp=4 cp=2, t, ring", 4, 2, true, false, true}};
  int bad = 0;
  for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++) bad += !check_equal(even, mesh[i]);
  bad += !check_equal(few, (Mesh){"fewer heads than ranks", 8, 1, false, false, false});
  bad += !check_equal(odd, (Mesh){"5 heads a group on 2", 4, 1, false, false, false});
  return bad;
}

// ---- when not

static bool stays_whole(const char *what, const char *const *define, Mesh k) {
  Arena *a = arena_new();
  Module *m = plan(a, define, &k);
  bool ok = m && !strcmp(m->axis.at[0].name, "tp");
  printf("%-4s tp=%lld stays one axis: %s\n", ok ? "ok" : "FAIL", (long long)k.tp, what);
  arena_free(a);
  return ok;
}

static bool check_whole(void) {
  static const char *const as_many[] = {"heads=8", "kv_heads=4", "dim=64", "layers=2", NULL};
  static const char *const single[] = {"heads=8", "kv_heads=1", "dim=64", "layers=2", NULL};
  static const char *const alone[] = {"heads=6", "kv_heads=6", "dim=48", "layers=2", NULL};
  static const char *const odd[] = {"vocab=32003", "heads=8", "kv_heads=2", "dim=64",
                                    "layers=2", NULL};
  return stays_whole("groups divide", as_many, (Mesh){"", 4, 1, false, false, false}) &
         stays_whole("groups divide", as_many, (Mesh){"", 2, 2, true, false, false}) &
         stays_whole("one group", single, (Mesh){"", 4, 1, false, false, false}) &
         stays_whole("groups of one head", alone, (Mesh){"", 4, 1, false, false, false}) &
         stays_whole("nothing in common", grouped, (Mesh){"", 3, 1, false, false, false}) &
         stays_whole("words do not divide", odd, (Mesh){"", 8, 1, false, false, false}) &
         stays_whole("heads are on cp", grouped, (Mesh){"", 4, 2, false, true, false});
}

// ---- faults

// Without the conversion, or with it done again, on one factor: the verifier names it.
static bool check_faults(void) {
  Arena *a = arena_new();
  Mesh k = {"tp=8", 8, 1, false, false, false};
  Module *m = plan(a, grouped, &k);
  uint32_t n = 0;
  bool ok = m != NULL;
  for (Id f = 0; ok && f < m->fn.n; f++)
    for (uint32_t i = 0; ok && i < m->fn.at[f].stmt.n; i++) {
      Fn *g = &m->fn.at[f];
      if (g->stmt.at[i].kind != ST_CONVERT) continue;
      Value *to = &g->value.at[g->stmt.at[i].lhs], kept = *to;
      const Value *from = &g->value.at[g->stmt.at[i].from];
      for (uint32_t x = 0; ok && x < 2; x++) { // it leaves the axis as it was, or does both at once
        Buf why = {0};
        to->shard[x] = shard_same(kept.shard[x], from->shard[x]) ? shard_partial(RED_SUM)
                                                                 : from->shard[x];
        if (shard_same(to->shard[x], kept.shard[x])) continue;
        ok = !shard_verify(m, &why) && why.text && strstr(why.text, g->name);
        if (!ok) printf("  `%s` of %s: %s\n", kept.name, g->name, why.text ? why.text : "accepted");
        *to = kept;
        buf_free(&why);
        n++;
      }
    }
  ok &= n > 20;
  printf("%-4s %u faults on one factor are named\n", ok ? "ok" : "FAIL", n);
  arena_free(a);
  return ok;
}

int main(void) {
  int bad = !check_rank(8, false) + !check_rank(4, false) + !check_rank(8, true) +
            !check_rank(4, true);
  bad += check_all_equal();
  bad += !check_whole();
  bad += !check_faults();
  return bad != 0;
}
