// Where parameters lie in a region. Those of a stack whose layers the program runs one by one lie
// layer by layer, so that one layer's are one array, which ranks can gather and reduce as such; any
// other parameter lies whole.
#include "codegen/kernel.h"

static Str region_name(const Param *p, bool grad) {
  return grad ? str_printf("grad.%s", p->name) : p->name;
}

// "blocks" of "blocks.*.attn.qkv.weight"
static Str stack_of(const Param *p) {
  const char *star = strstr(p->name, ".*");
  return p->nstack && star ? str_internn(p->name, (size_t)(star - p->name)) : NULL;
}

// How a value is used: by the slices of repeats alone, and by how many of those.
typedef struct Use {
  bool whole;
  uint32_t repeats;
  uint32_t stmt; // the last of them
} Use;

typedef struct Reads {
  Id value;
  bool found;
} Reads;

static void visit_read(const Module *m, Id read, void *ctx) {
  Reads *r = ctx;
  r->found = r->found || (Id)ex(m, read)->integer == r->value;
}

static bool comp_touches(const Module *m, const Stmt *s, Id v) {
  Reads r = {v, s->lhs == v};
  ex_reads(m, s->body, visit_read, &r);
  return r.found;
}

static void use_in_call(const Fn *f, uint32_t at, Id v, Use *u) {
  const Call *c = f->stmt.at[at].call;
  bool repeat = f->stmt.at[at].kind == ST_REPEAT, any = false;
  for (uint32_t i = 0; i < c->narg; i++) {
    if (c->arg[i].mode == ACT_ITER || c->arg[i].value != v) continue;
    if (!repeat || c->arg[i].mode != ACT_SLICE || any) u->whole = true;
    any = true;
  }
  if (!any) return;
  u->repeats++;
  u->stmt = at;
}

static Use use_of(const Module *m, const Fn *f, Id v) {
  Use u = {0};
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->kind == ST_CALL || s->kind == ST_REPEAT) use_in_call(f, i, v, &u);
    else if (s->kind == ST_COMP ? comp_touches(m, s, v) : s->from == v || s->lhs == v)
      u.whole = true;
  }
  return u;
}

// The repeat of the step that makes the gradient of a layer; NONE where the parameter must lie whole.
static Id layered_by(const Module *m, const Param *p) {
  static const Entry entry[] = {ENTRY_SAMPLE, ENTRY_STEP, ENTRY_EVAL};
  Id by = NONE;
  if (!stack_of(p) || m->entry[ENTRY_STEP] == NONE) return NONE;
  for (unsigned i = 0; i < sizeof entry / sizeof *entry; i++) {
    if (m->entry[entry[i]] == NONE) continue;
    const Fn *f = &m->fn.at[m->entry[entry[i]]];
    Id v = value_find(f, p->name), g = value_find(f, region_name(p, true));
    if (v == NONE || use_of(m, f, v).whole) return NONE;
    if (entry[i] != ENTRY_STEP) continue;
    Use u = g == NONE ? (Use){0} : use_of(m, f, g);
    if (u.whole || u.repeats != 1) return NONE;
    by = u.stmt;
  }
  return by;
}

static int64_t rounded(int64_t n) { return (n + 15) / 16 * 16; }

// Elements on this rank: of the entry's argument, which is local where the module is.
static int64_t local_count(const Module *m, const Param *p) {
  const Fn *f = m->entry[ENTRY_STEP] == NONE ? NULL : &m->fn.at[m->entry[ENTRY_STEP]];
  Id v = f ? value_find(f, p->name) : NONE;
  int64_t n = 1;
  if (v != NONE) return value_count(&f->value.at[v]);
  for (uint32_t d = 0; d < p->rank; d++) n *= p->extent[d];
  return n;
}

// The stack of that name and gradient's repeat, found or made; NONE where the name is another's.
static uint32_t find_stack(ParamLayout *l, Arena *a, Str name, int64_t count, Id by) {
  for (uint32_t s = 0; s < l->stack.n; s++) {
    const StackPlace *t = &l->stack.at[s];
    if (t->name == name) return t->count == count && t->by == by ? s : NONE;
  }
  PUSH(a, l->stack, ((StackPlace){.name = name, .count = count, .by = by}));
  return l->stack.n - 1;
}

static void choose_stacks(ParamLayout *l, const Module *m) {
  for (uint32_t i = 0; i < m->param.n; i++) {
    const Param *p = &m->param.at[i];
    ParamPlace *q = &l->param[i];
    Id by = layered_by(m, p);
    q->count = local_count(m, p);
    q->stack = by == NONE ? NONE : find_stack(l, m->arena, stack_of(p), p->extent[0], by);
  }
}

ParamLayout *param_layout(const Module *m) {
  ParamLayout *l = NEW(m->arena, ParamLayout);
  l->param = NEWN(m->arena, ParamPlace, m->param.n + 1);
  choose_stacks(l, m);
  // Parameters start at multiples of 16 elements: a cache line of fp32.
  for (uint32_t i = 0; i < m->param.n; i++) {
    ParamPlace *q = &l->param[i];
    int64_t *at = q->stack == NONE ? &l->count : &l->stack.at[q->stack].stride;
    q->offset = *at;
    *at += rounded(q->stack == NONE ? q->count : q->count / l->stack.at[q->stack].count);
  }
  for (uint32_t s = 0; s < l->stack.n; s++) {
    l->stack.at[s].offset = l->count;
    l->count += l->stack.at[s].count * l->stack.at[s].stride;
  }
  return l;
}
