// Faults planted in the program that each rank runs: every collective of the programs of
// tests/passes/localise is left out, done twice, or done over another axis or with another
// operation, in the program's text. The verifier refuses it, or ranks in lock step find that they
// differ, or from the program of one rank.
#include <stdlib.h>

#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/util.h"
#include "support/load.h"
#include "tests/oracle/oracle.h"

typedef enum Fault { DROPPED, TWICE, OTHER_AXIS, OTHER_REDUCTION, NFAULT } Fault;
static const char *const fault_name[NFAULT] = {"dropped", "doubled", "over another axis",
                                               "with another reduction"};
static int caught[NFAULT];

// Faults that change nothing.
static const struct {
  const char *file, *value;
  Fault fault;
} harmless[] = {
    {"packed-heads.ir", "q", OTHER_REDUCTION}, // nothing reads it
    {"vocabulary.ir", "m", OTHER_REDUCTION}, // what the exponentials are shifted by, and back again
};

static bool is_harmless(const char *file, Str value, Fault fault) {
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (!strcmp(harmless[i].file, file) && !strcmp(harmless[i].value, value) &&
        harmless[i].fault == fault)
      return true;
  return false;
}

static bool called(const Module *m, Id fn) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++)
      if (m->fn.at[f].stmt.at[i].call && m->fn.at[f].stmt.at[i].call->fn == fn) return true;
  return false;
}

// The statement's operand takes its place: `y[i<4] = x[i]`.
static bool leave_out(Module *m, Fn *f, uint32_t at) {
  Stmt *s = &f->stmt.at[at];
  if (s->coll != COLL_ALL_REDUCE) return false; // what else changes the shape
  Id lhs = s->lhs, from = s->from, loc = s->loc;
  uint32_t n = f->stmt.n;
  fn_copy_stmt(m, f, lhs, from, loc);
  f->stmt.at[at] = f->stmt.at[n];
  f->stmt.n = n;
  return true;
}

// `y = all_reduce sum tp x` becomes that of a copy of itself. A maximum may be taken twice.
static bool do_twice(Module *m, Fn *f, uint32_t at) {
  Stmt s = f->stmt.at[at];
  if (s.coll != COLL_ALL_REDUCE || s.red != RED_SUM) return false;
  Value v = f->value.at[s.lhs];
  Id once = fn_value(m, f, str_printf("%s.once", v.name), v.type, v.extent, v.rank, ROLE_LOCAL,
                     v.loc);
  VEC(Stmt) stmt = {0};
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    Stmt t = f->stmt.at[i];
    if (i == at) {
      Stmt first = s;
      first.lhs = t.from = once;
      PUSH(m->arena, stmt, first);
    }
    PUSH(m->arena, stmt, t);
  }
  f->stmt.at = stmt.at;
  f->stmt.n = f->stmt.cap = stmt.n;
  return true;
}

static bool plant(Module *m, Fn *f, uint32_t at, Fault fault) {
  Stmt *s = &f->stmt.at[at];
  switch (fault) {
  case DROPPED: return leave_out(m, f, at);
  case TWICE: return do_twice(m, f, at);
  case OTHER_AXIS:
    if (s->both) s->both = false; // over one factor alone
    else s->axis = s->axis ? s->axis - 1 : 1;
    return m->axis.n > 1;
  case OTHER_REDUCTION:
    if (!coll_reduces(s->coll)) return false;
    s->red = s->red == RED_SUM ? RED_MAX : RED_SUM;
    return true;
  case NFAULT: break;
  }
  return false;
}

// The local program with one fault, read back from its text; NULL where the fault has no meaning.
static Module *faulty(Arena *a, const char *path, const char *text, Id fn, uint32_t at,
                      Fault fault) {
  Module *m = load_module(a, path, text);
  if (!m || !run_pass(m, "localise", path)) exit(1);
  if (!plant(m, &m->fn.at[fn], at, fault)) return NULL;
  Buf out = {0};
  ir_print(m, &out);
  m = ir_parse(a, sources_new(a), str_intern(path), arena_copy(a, out.text, out.n + 1), out.n);
  if (!m) exit(1);
  buf_free(&out);
  return m;
}

// Where ranks, or ranks and the program of one rank, differ.
static bool found(const Module *whole, const Module *local, Buf *how) {
  if (!ir_verify(local, how)) return true;
  for (Id fn = 0; fn < whole->fn.n; fn++) {
    double worst = 0;
    if (called(whole, fn)) continue;
    if (!ranks_compare(whole, local, fn, &(ArgOptions){.seed = 1},
                       &(InterpOptions){.seed = 7, .step = 1}, &worst, how))
      return true;
    if (!(worst <= 1e-9)) {
      buf_printf(how, "`%s` is off by %.2g", whole->fn.at[fn].name, worst);
      return true;
    }
  }
  return false;
}

static int check(const char *dir, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  Arena *a = arena_new();
  char *text = load_text(path, 0);
  Module *whole = text ? load_module(a, path, text) : NULL, *good = load_module(a, path, text);
  if (!whole || !good || !run_pass(good, "localise", path)) exit(1);
  int bad = 0;
  for (Id fn = 0; fn < good->fn.n; fn++)
    for (uint32_t i = 0; i < good->fn.at[fn].stmt.n; i++)
      for (int k = 0; good->fn.at[fn].stmt.at[i].kind == ST_COLL && k < NFAULT; k++) {
        Id lhs = good->fn.at[fn].stmt.at[i].lhs;
        if (is_harmless(name, good->fn.at[fn].value.at[lhs].name, (Fault)k)) continue;
        Module *local = faulty(a, path, text, fn, i, (Fault)k);
        Buf how = {0}, stmt = {0};
        ir_print_stmt(good, &good->fn.at[fn], &good->fn.at[fn].stmt.at[i], &stmt);
        if (local && found(whole, local, &how)) {
          if (!caught[k]++) printf("`%s` %s: %s\n", stmt.text, fault_name[k], how.text);
        } else if (local && ++bad) {
          printf("FAIL %s: `%s` %s: nobody notices\n", name, stmt.text, fault_name[k]);
        }
        buf_free(&how);
        buf_free(&stmt);
      }
  free(text);
  arena_free(a);
  return bad;
}

int main(void) {
  static char name[256][256];
  const char *dir = SOURCE_DIR "/tests/passes/localise";
  int n = list_files(dir, ".ir", name, 256), bad = 0;
  for (int i = 0; i < n; i++) bad += check(dir, name[i]);
  for (int k = 0; k < NFAULT; k++) {
    printf("%d collectives %s were noticed\n", caught[k], fault_name[k]);
    bad += !caught[k];
  }
  return bad != 0;
}
