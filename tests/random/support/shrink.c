// Makes a failing program smaller, one change after another, as long as it still fails in the same
// way.
#include <stdlib.h>
#include <time.h>

#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/util.h"
#include "tests/random/support/check.h"

// One change is counted down to: `left` is 0 at the one that is made.
typedef struct Change {
  Module *m;
  uint32_t left;
  bool made;
} Change;

static bool mine(Change *c) {
  if (c->made || c->left-- > 0) return false;
  return c->made = true;
}

// ---- results and statements

static void drop_at(Id *at, uint32_t *n, uint32_t i) {
  memmove(at + i, at + i + 1, (*n - i - 1) * sizeof *at);
  --*n;
}

static bool used(const Module *m, const Fn *f, Id v) {
  for (uint32_t i = 0; i < f->result.n; i++)
    if (f->result.at[i] == v) return true;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->kind != ST_COMP) {
      for (uint32_t a = 0; a < s->call->narg; a++)
        if (s->call->arg[a].mode != ACT_ITER && s->call->arg[a].value == v) return true;
      continue;
    }
    if (ex_has_read(m, s->body, v)) return true;
    for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++)
      if (ex_has_read(m, s->sub[d], v)) return true;
  }
  return false;
}

static bool stmt_used(const Module *m, const Fn *f, const Stmt *s) {
  if (s->kind == ST_COMP) return used(m, f, s->lhs);
  for (uint32_t r = 0; r < s->call->nresult; r++)
    if (s->call->result[r].mode != RES_DROP && used(m, f, s->call->result[r].value)) return true;
  return false;
}

static void remove_dead(Module *m) {
  for (Id fn = 0; fn < m->fn.n; fn++) {
    Fn *f = &m->fn.at[fn];
    for (uint32_t i = f->stmt.n; i-- > 0;) {
      if (stmt_used(m, f, &f->stmt.at[i])) continue;
      memmove(f->stmt.at + i, f->stmt.at + i + 1, (f->stmt.n - i - 1) * sizeof *f->stmt.at);
      f->stmt.n--;
    }
  }
}

static void drop_call_result(Module *m, Id fn, uint32_t r) {
  for (Id g = 0; g < m->fn.n; g++)
    for (uint32_t i = 0; i < m->fn.at[g].stmt.n; i++) {
      Call *k = m->fn.at[g].stmt.at[i].call;
      if (m->fn.at[g].stmt.at[i].kind == ST_COMP || k->fn != fn) continue;
      memmove(k->result + r, k->result + r + 1, (k->nresult - r - 1) * sizeof *k->result);
      k->nresult--;
    }
}

static bool only_call_drops(const Module *m, Id fn, uint32_t r) {
  bool found = false;
  for (Id g = 0; g < m->fn.n; g++)
    for (uint32_t i = 0; i < m->fn.at[g].stmt.n; i++) {
      const Stmt *s = &m->fn.at[g].stmt.at[i];
      if (s->kind == ST_COMP || s->call->fn != fn) continue;
      const Result *k = &s->call->result[r];
      if (k->mode == RES_CARRY || (k->mode != RES_DROP && used(m, &m->fn.at[g], k->value)))
        return false;
      found = true;
    }
  return found;
}

static void change_results(Change *c) {
  Module *m = c->m;
  for (Id fn = 0; fn < m->fn.n; fn++) {
    Fn *f = &m->fn.at[fn];
    for (uint32_t r = 0; r < f->result.n && !c->made; r++) {
      if (fn == m->entry[ENTRY_UPDATE] ? f->result.n == 1 : !only_call_drops(m, fn, r)) continue;
      if (!mine(c)) continue;
      drop_at(f->result.at, &f->result.n, r);
      if (fn != m->entry[ENTRY_UPDATE]) drop_call_result(m, fn, r);
    }
  }
  if (c->made) return;
  Fn *f = entry_fn(m, ENTRY_UPDATE); // an earlier value instead: what comes after it goes
  for (Id v = 0; f->result.n == 1 && v < f->result.at[0] && !c->made; v++)
    if (f->value.at[v].role == ROLE_LOCAL && f->value.at[v].type == DT_REAL && mine(c))
      f->result.at[0] = v;
}

// ---- expressions

typedef struct Replace {
  Id from, to;
} Replace;

static Id replace(Module *m, Id e, const Replace *r) {
  if (e == r->from) return r->to;
  const Expr x = *ex(m, e);
  Id arg[64];
  bool changed = false;
  for (uint32_t i = 0; i < x.narg; i++) {
    Id old = ex_arg(m, e, i);
    arg[i] = replace(m, old, r);
    changed |= arg[i] != old;
  }
  if (changed && x.op == OP_GROUP)
    for (uint32_t i = 1; i < x.narg; i++)
      if (!ex_is(m, arg[i], OP_INDEX)) return e;
  return changed ? ex_like(m, e, x.integer, arg) : e;
}

static void change_node(Change *c, Stmt *s, Id e) {
  Module *m = c->m;
  const Expr x = *ex(m, e);
  if (x.op == OP_REAL || x.op == OP_INT || x.op == OP_BOOL) return;
  for (uint32_t i = 0; i < x.narg && !c->made; i++) {
    Id a = ex_arg(m, e, i);
    if (x.op != OP_READ && ex(m, a)->type == x.type && mine(c))
      s->body = replace(m, s->body, &(Replace){e, a});
  }
  for (int k = 0; k < 2 && !c->made; k++) {
    Id leaf = x.type == SC_REAL  ? ex_real(m, 1 - k)
              : x.type == SC_INT ? ex_int(m, k)
                                 : ex_bool(m, 1 - k);
    if (mine(c)) s->body = replace(m, s->body, &(Replace){e, leaf});
  }
  for (uint32_t i = 0; i < x.narg && !c->made; i++) change_node(c, s, ex_arg(m, e, i));
}

static void change_bodies(Change *c) {
  for (Id fn = 0; fn < c->m->fn.n; fn++) {
    Fn *f = &c->m->fn.at[fn];
    for (uint32_t i = f->stmt.n; i-- > 0 && !c->made;) {
      Stmt *s = &f->stmt.at[i];
      if (s->kind == ST_COMP) change_node(c, s, s->body);
    }
  }
}

// ---- indices

static Id without_index(Module *m, const Stmt *s, Id e, uint32_t at) {
  Id to[MAX_INDEX];
  for (uint32_t i = 0; i < s->nindex; i++)
    to[i] = i == at ? ex_int(m, 0) : i < at ? NONE : ex_index(m, i - 1);
  return ex_substitute(m, e, s->index, to, 0);
}

static void change_indices(Change *c) {
  for (Id fn = 0; fn < c->m->fn.n; fn++) {
    Fn *f = &c->m->fn.at[fn];
    for (uint32_t i = 0; i < f->stmt.n && !c->made; i++) {
      Stmt *s = &f->stmt.at[i];
      for (uint32_t b = 0; s->kind == ST_COMP && b < s->nindex && !c->made; b++) {
        if ((b < s->nfree && !s->acc) || !mine(c)) continue;
        s->body = without_index(c->m, s, s->body, b);
        for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++)
          s->sub[d] = without_index(c->m, s, s->sub[d], b);
        memmove(s->index + b, s->index + b + 1, (s->nindex - b - 1) * sizeof *s->index);
        s->nindex--;
        s->nfree -= b < s->nfree;
        if (s->nindex == s->nfree && s->red != RED_ARGMAX) s->red = RED_NONE;
      }
    }
  }
}

// ---- extents

static void resize(int64_t *x, int64_t from, int64_t to) {
  if (*x % from == 0) *x = *x / from * to;
}

static void resize_all(Module *m, int64_t from, int64_t to, bool constants) {
  for (Id fn = 0; fn < m->fn.n; fn++) {
    Fn *f = &m->fn.at[fn];
    for (uint32_t v = 0; v < f->value.n; v++)
      for (uint32_t d = 0; d < f->value.at[v].rank; d++)
        resize(&f->value.at[v].extent[d], from, to);
    for (uint32_t i = 0; i < f->stmt.n; i++) {
      Stmt *s = &f->stmt.at[i];
      for (uint32_t k = 0; k < s->nindex; k++) resize(&s->index[k].extent, from, to);
      if (s->kind == ST_REPEAT) resize(&s->call->count, from, to);
      for (int64_t k = -1; s->kind == ST_COMP && constants && k <= 0; k++)
        s->body = replace(m, s->body, &(Replace){ex_int(m, from + k), ex_int(m, to + k)});
    }
  }
  for (uint32_t p = 0; p < m->param.n; p++)
    for (uint32_t d = 0; d < m->param.at[p].rank; d++) resize(&m->param.at[p].extent[d], from, to);
  for (uint32_t r = 0; r < m->range.n; r++)
    if (m->range.at[r].hi == from) m->range.at[r].hi = to;
}

static void change_extents(Change *c) {
  for (int64_t from = 65; from > 1; from--) {
    bool found = false;
    for (Id fn = 0; fn < c->m->fn.n; fn++)
      for (uint32_t i = 0; i < c->m->fn.at[fn].stmt.n; i++) {
        const Stmt *s = &c->m->fn.at[fn].stmt.at[i];
        for (uint32_t k = 0; k < s->nindex; k++) found |= s->index[k].extent == from;
        found |= s->kind == ST_REPEAT && s->call->count == from;
      }
    for (int64_t to = 1; found && to < from && to <= 5; to++)
      for (int constants = 0; constants < 2 && !c->made; constants++)
        if (mine(c)) resize_all(c->m, from, to, constants);
  }
}

// ---- the search

static bool change(Module *m, uint32_t number) {
  Change c = {m, number, false};
  change_results(&c);
  change_extents(&c);
  change_indices(&c);
  change_bodies(&c);
  if (c.made) remove_dead(m);
  if (c.made) module_sweep(m);
  return c.made;
}

char *shrink(Arena *a, const Module *m, bool (*fails)(const Module *m, void *ctx), void *ctx,
             double seconds) {
  Module *best = copy_module(a, m);
  time_t start = time(NULL);
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t n = 0;; n++) {
      if (difftime(time(NULL), start) > seconds) goto out;
      Module *next = copy_module(a, best);
      if (!next || !change(next, n)) break;
      Buf why = {0};
      bool ok = ir_verify(next, &why) && fails(next, ctx);
      buf_free(&why);
      if (!ok) continue;
      best = next;
      progress = true;
      if (n) n--; // the same number is another change now
    }
  }
out:;
  Buf text = {0};
  ir_print(best, &text);
  return text.text;
}
