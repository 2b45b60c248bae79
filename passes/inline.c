// Flattens calls: every layer and fn of the language becomes part of its caller.
// requires: entries and functions as the frontend makes them; no recursion.
// guarantees: no ST_CALL but of intrinsics, whose bodies are ones that backends implement, with
//   their parameters (ir/intrinsic.h); bodies of repeats and intrinsics flat inside; every function
//   reached from an entry.
// invalidates: positions of functions, statements and values.
#include "ir/intrinsic.h"
#include "passes/passes.h"
#include "passes/util.h"

enum { MAX_FLAT = 100000 }; // statements; as many take some 10 s to compile

// What copying a callee's statements into a caller needs.
typedef struct Inliner {
  Module *m;
  Id caller, callee;
  Str prefix;
  Id loc; // of the call
  Id *value; // callee's value -> caller's
} Inliner;

static bool ends_with(Str s, const char *tail) {
  size_t n = strlen(s), k = strlen(tail);
  return n > k && !strcmp(s + n - k, tail);
}

// `ln1.y` defined by a call whose result is `y` gives the callee's `mean` the name `ln1.mean`.
static Str call_prefix(const Fn *caller, const Call *c, const Fn *callee) {
  if (!c->nresult || c->result[0].value == NONE) return callee->name;
  Str name = caller->value.at[c->result[0].value].name;
  Str result = callee->value.at[callee->result.at[0]].name;
  Str tail = str_printf(".%s", result);
  return ends_with(name, tail) ? str_internn(name, strlen(name) - strlen(tail)) : name;
}

// The caller's value for each of the callee's: actuals, results, and new locals. A result that is
// an argument, or that stands twice in the list, is left to be copied.
static void map_values(Inliner *in, const Call *c) {
  Module *m = in->m;
  Fn *callee = &m->fn.at[in->callee], *caller = &m->fn.at[in->caller];
  in->value = NEWN(m->arena, Id, callee->value.n + 1);
  memset(in->value, 0xff, (callee->value.n + 1) * sizeof(Id));
  for (uint32_t i = 0; i < callee->arg.n; i++) in->value[callee->arg.at[i]] = c->arg[i].value;
  for (uint32_t i = 0; i < callee->result.n; i++)
    if (in->value[callee->result.at[i]] == NONE && c->result[i].value != NONE)
      in->value[callee->result.at[i]] = c->result[i].value;
  for (Id v = 0; v < callee->value.n; v++) {
    if (in->value[v] != NONE) continue;
    Value l = callee->value.at[v];
    Str name = str_printf("%s.%s", in->prefix, l.name);
    in->value[v] = fn_value(m, caller, name, l.type, l.extent, l.rank, ROLE_LOCAL,
                            loc_inlined(m->src, l.loc, in->loc));
  }
}

static void copy_stmts(Inliner *in) {
  Module *m = in->m;
  for (uint32_t i = 0; i < m->fn.at[in->callee].stmt.n; i++) {
    Fn *callee = &m->fn.at[in->callee], *caller = &m->fn.at[in->caller];
    Stmt s = stmt_renumber(m, callee, &callee->stmt.at[i], in->value);
    s.loc = loc_inlined(m->src, s.loc, in->loc);
    PUSH(m->arena, caller->stmt, s);
  }
}

static void inline_call(Module *m, Id caller, const Stmt *s) {
  Inliner in = {.m = m, .caller = caller, .callee = s->call->fn, .loc = s->loc};
  in.prefix = call_prefix(&m->fn.at[caller], s->call, &m->fn.at[in.callee]);
  map_values(&in, s->call);
  copy_stmts(&in);
  const Fn *callee = &m->fn.at[in.callee];
  for (uint32_t i = 0; i < callee->result.n; i++) {
    Id to = s->call->result[i].value, from = in.value[callee->result.at[i]];
    if (to != NONE && to != from) fn_copy_stmt(m, &m->fn.at[caller], to, from, s->loc);
  }
}

static void flatten(Module *m, Id fn) {
  Fn *f = &m->fn.at[fn];
  uint32_t n = f->stmt.n;
  Stmt *old = f->stmt.at;
  f->stmt.at = NULL;
  f->stmt.n = f->stmt.cap = 0;
  for (uint32_t i = 0; i < n; i++) {
    const Stmt *s = &old[i];
    if (s->kind == ST_CALL && m->fn.at[s->call->fn].intrinsic == INTR_NONE)
      inline_call(m, fn, s);
    else
      PUSH(m->arena, m->fn.at[fn].stmt, *s);
  }
}

// Statements that a function has once its calls are written out.
static int64_t flat_size(const Module *m, Id fn, const int64_t *size) {
  const Fn *f = &m->fn.at[fn];
  int64_t n = 0;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    bool flat = s->kind == ST_CALL && m->fn.at[s->call->fn].intrinsic == INTR_NONE;
    n += flat ? size[s->call->fn] : 1;
  }
  return n;
}

// Functions that each call the next one twice make 2^n statements, so this is found out before they
// are written.
static bool check_sizes(Module *m, const Id *order, uint32_t n) {
  int64_t *size = NEWN(m->arena, int64_t, m->fn.n + 1);
  for (uint32_t i = 0; i < n; i++) {
    const Fn *f = &m->fn.at[order[i]];
    size[order[i]] = flat_size(m, order[i], size);
    if (size[order[i]] <= MAX_FLAT) continue;
    diag_error(m->src, f->loc,
               "'%s' has %lld statements when its calls are inlined, and the limit is %d; call "
               "functions fewer times, or make equal layers a stack",
               f->name, (long long)size[order[i]], MAX_FLAT);
    return false;
  }
  return true;
}

bool pass_inline(Module *m) {
  // In the local form a ring's parts have the note from localise, and bodies of their kind.
  if (!m->spmd && !intrinsics_recognise(m)) return false;
  Id *order = NEWN(m->arena, Id, m->fn.n + 1);
  uint32_t n = module_postorder(m, order);
  if (!check_sizes(m, order, n)) return false;
  for (uint32_t i = 0; i < n; i++) flatten(m, order[i]);
  for (uint32_t i = 0; i < n; i++) {
    fn_remove_dead(m, &m->fn.at[order[i]], NULL);
    fn_compact(m, &m->fn.at[order[i]]);
  }
  module_sweep(m);
  return true;
}
