// The plans that pass shard finds for the examples at their sizes: they are Megatron's, counted
// collective by collective, and proved to be least ones; the same at any depth; and every one of
// their conversions is needed, by the rule that verifies them.
#include "ir/text/text.h"
#include "passes/shard/shard.h"
#include "support/mesh.h"

// ---- what they exchange

// The collectives of one function, a digit each: all-reduces, all-reduces of a maximum,
// reduce-scatters, all-gathers, all-to-alls.
typedef struct Counts {
  char text[6];
} Counts;

static void count_convert(const Module *m, const Fn *f, const Stmt *s, Counts *c) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    Shard from = f->value.at[s->from].shard[a], to = f->value.at[s->lhs].shard[a];
    if (shard_same(from, to) || from.kind == SHARD_WHOLE) continue;
    bool split = to.kind == SHARD_SPLIT;
    int reduce = split ? 2 : from.op == RED_SUM ? 0 : 1;
    c->text[from.kind == SHARD_PARTIAL ? reduce : split ? 4 : 3]++;
  }
}

static Counts count(const Module *m, Id fn) {
  Counts c = {"00000"};
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].kind == ST_CONVERT) count_convert(m, f, &f->stmt.at[i], &c);
  return c;
}

// Gradients that the step leaves partial, on an axis or on both.
static int partial_gradients(const Module *m) {
  const Fn *f = &m->fn.at[m->entry[ENTRY_STEP]];
  int n = 0;
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Shard *s = f->value.at[f->arg.at[i]].shard;
    bool partial = false;
    for (uint32_t a = 0; a < m->axis.n; a++) partial |= s[a].kind == SHARD_PARTIAL;
    n += partial;
  }
  return n;
}

// Whether what a conversion moves has a dimension of this extent: the vocabulary.
static bool moves_extent(const Module *m, Id fn, int64_t extent) {
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    for (uint32_t d = 0; s->kind == ST_CONVERT && d < f->value.at[s->lhs].rank; d++)
      if (f->value.at[s->lhs].extent[d] == extent &&
          f->value.at[s->from].shard[0].kind != SHARD_WHOLE)
        return true;
  }
  return false;
}

// What Megatron exchanges in a step, around its blocks, in a block forward and backward (Shoeybi et
// al., 2019, section 3; Korthikanti et al., 2022, section 4.2.2 for the sequence, whose layers keep
// their share of what two products read, and gather it again backward). With an untied embedding,
// halves of the features are gathered: half of what the vocabulary's partial rows would cost to
// reduce. On cp keys and values are gathered, their gradients reduced and scattered.
static const struct {
  const char *example;
  Mesh mesh;
  int64_t vocab;
  const char *step, *forward, *backward; // Counts
  int partial; // gradients
} megatron[] = {
    {"examples/gpt2", {"tp=2", 2, 1, 0, 0, 0}, 50257, "41000", "20000", "20000", 0},
    {"examples/gpt2", {"tp=4", 4, 1, 0, 0, 0}, 50257, "41000", "20000", "20000", 0},
    {"examples/gpt2", {"tp=2, t too", 2, 1, 1, 0, 0}, 50257, "21220", "00220", "00240", 8},
    {"examples/gpt2", {"tp=4, t too", 4, 1, 1, 0, 0}, 50257, "21220", "00220", "00240", 8},
    {"examples/gpt2", {"cp=2", 1, 2, 0, 0, 0}, 50257, "10000", "00020", "00200", 16},
    {"examples/gpt2", {"cp=2, heads", 1, 2, 0, 1, 0}, 50257, "10000", "00004", "00004", 16},
    {"examples/llama", {"tp=2", 2, 1, 0, 0, 0}, 32000, "31010", "20000", "20000", 0},
    {"examples/llama", {"tp=4", 4, 1, 0, 0, 0}, 32000, "31010", "20000", "20000", 0},
    {"examples/llama", {"tp=2, t too", 2, 1, 1, 0, 0}, 32000, "21112", "00220", "00240", 3},
    {"examples/llama", {"cp=2", 1, 2, 0, 0, 0}, 32000, "10000", "00020", "00200", 12},
    {"examples/gpt2", {"cp=2, ring", 1, 2, 0, 0, 1}, 50257, "10000", "00000", "00000", 16},
    {"examples/gpt2", {"tp=2 cp=2", 2, 2, 0, 0, 0}, 50257, "51000", "20020", "20200", 16},
    {"examples/gpt2", {"tp=2 cp=2, ring", 2, 2, 0, 0, 1}, 50257, "51000", "20000", "20000", 16},
    {"examples/gpt2", {"tp=2 cp=2, heads", 2, 2, 0, 1, 0}, 50257, "51000", "20004", "20004", 16},
    {"examples/gpt2", {"tp=2 cp=2, t too", 2, 2, 1, 0, 0}, 50257, "31220", "00240", "00440", 16},
    {"examples/gpt2", {"tp=2 cp=2, t, ring", 2, 2, 1, 0, 1}, 50257, "31220", "00220", "00240", 16},
    {"examples/gpt2", {"tp=2 cp=2, t, heads", 2, 2, 1, 1, 0}, 50257, "31220", "00224", "00244", 16},
    {"examples/llama", {"cp=2, ring", 1, 2, 0, 0, 1}, 32000, "10000", "00000", "00000", 12},
    {"examples/llama", {"cp=2, heads", 1, 2, 0, 1, 0}, 32000, "10000", "00004", "00004", 12},
    {"examples/llama", {"tp=2 cp=2", 2, 2, 0, 0, 0}, 32000, "41010", "20020", "20200", 12},
    {"examples/llama", {"tp=2 cp=2, ring", 2, 2, 0, 0, 1}, 32000, "41010", "20000", "20000", 12},
    {"examples/llama", {"tp=2 cp=2, heads", 2, 2, 0, 1, 0}, 32000, "41010", "20004", "20004", 12},
    {"examples/llama", {"tp=2 cp=2, t too", 2, 2, 1, 0, 0}, 32000, "31112", "00240", "00440", 12},
    {"examples/llama", {"tp=2 cp=2, t, ring", 2, 2, 1, 0, 1}, 32000, "31112", "00220", "00240", 12},
    {"examples/llama", {"tp=2 cp=2, t, heads", 2, 2, 1, 1, 0}, 32000, "31112", "00224", "00244", 12},
    {"examples/chargpt", {"tp=2", 2, 1, 0, 0, 0}, 256, "41000", "20000", "20000", 0},
    {"examples/mlp", {"tp=2", 2, 1, 0, 0, 0}, 0, "10000", "00000", "00000", 0},
};
enum { PLANS = sizeof megatron / sizeof *megatron };

static bool same_counts(const char *what, const char *want, Counts got) {
  if (!strcmp(want, got.text)) return true;
  printf(
      "  %s: want %s (all-reduces, of maxima, reduce-scatters, all-gathers, all-to-alls), got %s\n",
      what, want, got.text);
  return false;
}

static bool check_plan(int i) {
  Arena *a = arena_new();
  bool exact = false, ok = true;
  double start = mesh_now();
  Module *m = mesh_shard(a, megatron[i].example, NULL, &megatron[i].mesh, &exact, NULL);
  double took = mesh_now() - start;
  Id step = m ? m->entry[ENTRY_STEP] : NONE, body[2] = {NONE, NONE};
  for (uint32_t k = 0, n = 0; m && k < m->fn.at[step].stmt.n && n < 2; k++)
    if (m->fn.at[step].stmt.at[k].kind == ST_REPEAT) body[n++] = m->fn.at[step].stmt.at[k].call->fn;
  if (!m) ok = false;
  if (ok && !exact) ok = printf("  not proved least\n") < 0;
  if (ok) ok = same_counts("step", megatron[i].step, count(m, step));
  if (ok && body[0] != NONE)
    ok = same_counts("forward", megatron[i].forward, count(m, body[0])) &&
         same_counts("backward", megatron[i].backward, count(m, body[1]));
  if (ok && partial_gradients(m) != megatron[i].partial)
    ok = printf("  %d gradients are left partial, not %d\n", partial_gradients(m),
                megatron[i].partial) < 0;
  if (ok && megatron[i].vocab && moves_extent(m, step, megatron[i].vocab))
    ok = printf("  moves the vocabulary\n") < 0;
  printf("%-4s %-36s %-16s plan  %.2f s\n", ok ? "ok" : "FAIL", megatron[i].example,
         megatron[i].mesh.name, took);
  arena_free(a);
  return ok;
}

// Layers are planned once: 3 and 48 of them alike.
static bool check_depth(void) {
  Buf text[2] = {{0}, {0}};
  const char *const define[2][2] = {{"layers=3", NULL}, {"layers=48", NULL}};
  const Mesh k = {"tp=2", 2, 1, false, false, false};
  bool ok = true;
  for (int i = 0; i < 2; i++) {
    Arena *a = arena_new();
    Module *m = mesh_shard(a, "examples/gpt2", define[i], &k, NULL, NULL);
    for (uint32_t f = 0; m && f < m->fn.n; f++)
      if (!strncmp(m->fn.at[f].name, "Block", 5)) ir_print_fn(m, &m->fn.at[f], &text[i]);
    ok &= m != NULL;
    arena_free(a);
  }
  ok = ok && text[0].n && text[0].n == text[1].n && !memcmp(text[0].text, text[1].text, text[0].n);
  printf("%-4s layers are planned alike at any depth\n", ok ? "ok" : "FAIL");
  for (int i = 0; i < 2; i++) buf_free(&text[i]);
  return ok;
}

// ---- faults

// Conversion number `at` of the module, counted through its functions: where it is; false past the
// last.
static bool find_convert(const Module *m, uint32_t at, Id *fn, uint32_t *stmt) {
  for (*fn = 0; *fn < m->fn.n; ++*fn)
    for (*stmt = 0; *stmt < m->fn.at[*fn].stmt.n; ++*stmt)
      if (m->fn.at[*fn].stmt.at[*stmt].kind == ST_CONVERT && !at--) return true;
  return false;
}

// Without the conversion: what read its result reads its operand.
static void drop(Module *m, Id fn, uint32_t stmt) {
  Fn *f = &m->fn.at[fn];
  Stmt s = f->stmt.at[stmt];
  Id *to = NEWN(m->arena, Id, f->value.n + 1);
  for (Id v = 0; v < f->value.n; v++) to[v] = v == s.lhs ? s.from : v;
  for (uint32_t i = stmt; i + 1 < f->stmt.n; i++)
    f->stmt.at[i] = stmt_renumber(m, f, &f->stmt.at[i + 1], to);
  f->stmt.n--;
  for (uint32_t i = 0; i < f->result.n; i++) f->result.at[i] = to[f->result.at[i]];
}

// The conversion again, of its own result.
static void again(Module *m, Id fn, uint32_t stmt) {
  Fn *f = &m->fn.at[fn];
  Value v = f->value.at[f->stmt.at[stmt].lhs];
  Id twice = fn_value(m, f, v.name, v.type, v.extent, v.rank, ROLE_LOCAL, v.loc);
  memcpy(f->value.at[twice].shard, v.shard, sizeof v.shard);
  Stmt s = {.kind = ST_CONVERT,
            .lhs = twice,
            .from = f->stmt.at[stmt].lhs,
            .loc = f->stmt.at[stmt].loc};
  PUSH(m->arena, f->stmt, s);
}

// Every collective and slice of a plan, left out or done twice, is refused, and the message says
// where.
static bool check_faults(const Mesh *k) {
  Arena *a = arena_new();
  Module *m = mesh_shard(a, "examples/gpt2", NULL, k, NULL, NULL);
  uint32_t n = 0, stmt;
  bool ok = m != NULL;
  Id fn;
  for (uint32_t at = 0; ok && find_convert(m, at, &fn, &stmt); at++)
    for (int twice = 0; ok && twice < 2; twice++) {
      Fn *f = &m->fn.at[fn], kept = *f;
      f->stmt.at = arena_copy(a, f->stmt.at, f->stmt.n * sizeof *f->stmt.at);
      f->stmt.cap = f->stmt.n;
      f->result.at = arena_copy(a, f->result.at, f->result.n * sizeof *f->result.at);
      (twice ? again : drop)(m, fn, stmt);
      Buf why = {0};
      ok = !shard_verify(m, &why) && strstr(why.text, f->name) != NULL;
      if (!ok)
        printf("  conversion %u of `%s` %s: %s\n", at, f->name, twice ? "twice" : "left out",
               why.text ? why.text : "accepted");
      n++;
      buf_free(&why);
      m->fn.at[fn] = kept;
    }
  ok &= n > 20;
  printf("%-4s gpt2 %s: %u faults in conversions are found\n", ok ? "ok" : "FAIL", k->name, n);
  arena_free(a);
  return ok;
}

int main(void) {
  int bad = 0;
  const Mesh *k[] = {&megatron[0].mesh, &megatron[2].mesh, &megatron[4].mesh};
  for (int i = 0; i < PLANS; i += SPARSE) bad += !check_plan(i);
  bad += !check_depth();
  for (int i = 0; i < 3; i++) bad += !check_faults(k[i]);
  printf("%d fail\n", bad);
  return bad != 0;
}
