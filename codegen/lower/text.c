// Prints the lowered level as text (doc/ir.md): for each function that is run its values' storage, then its kernels in
// the order in which they run. Statements are named by their position in the function; what they compute follows as a
// comment, for the reader alone.
#include "codegen/lower/text.h"

#include "codegen/lower/nest.h"
#include "codegen/lower/words.h"

const char *const level_name[NLEVEL] = {"fuse", "overlap", "plan"};
const char *const kernel_word[NKERNEL_WORD] = {
    [K_LOOPS] = "loops", [K_GEMM] = "product", [K_SCAN] = "scan", [K_INTRINSIC] = "intrinsic",
    [K_CALL] = "call", [K_COLL] = "post", [K_WAIT] = "wait", [FILL_WORD] = "fill"};
const char *const act_word[NACT] = {[ACT_NONE] = "none", [ACT_GELU] = "gelu", [ACT_POINTWISE] = "pointwise"};

typedef struct Text {
  const Module *m;
  const FnPlan *fp;
  const Fn *f;
  const Kernel *k;
  bool planned; // addresses are there
  Str name[MAX_VAR]; // of the kernel's variables, unique
  bool declared[MAX_VAR]; // its extent is printed
  Buf *b;
} Text;

static void put(Text *t, const char *text) { buf_write(t->b, text, strlen(text)); }
static void put_name(Text *t, Str name) { ir_print_name(name, t->b); }
static void put_value(Text *t, Id v) { put_name(t, t->f->value.at[v].name); }
static void put_int(Text *t, int64_t n) { buf_printf(t->b, "%lld", (long long)n); }

// ---- storage

typedef struct Mentions {
  bool *seen;
} Mentions;

static void mention_read(const Module *m, Id read, void *ctx) {
  ((Mentions *)ctx)->seen[ex(m, read)->integer] = true;
}

static void mention_call(const Call *c, bool *seen) {
  for (uint32_t i = 0; i < c->narg; i++)
    if (c->arg[i].mode != ACT_ITER) seen[c->arg[i].value] = true;
  for (uint32_t i = 0; i < c->nresult; i++)
    if (c->result[i].mode != RES_DROP) seen[c->result[i].value] = true;
}

static void mention_stmt(const Module *m, const Fn *f, const Stmt *s, bool *seen) {
  Mentions x = {seen};
  if (s->call) {
    mention_call(s->call, seen);
    return;
  }
  seen[s->lhs] = true;
  if (s->kind != ST_COMP) {
    seen[s->from] = true;
    return;
  }
  ex_reads(m, s->body, mention_read, &x);
  for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++) ex_reads(m, s->sub[d], mention_read, &x);
}

bool *lowered_mentions(const Module *m, const Fn *f) {
  bool *seen = NEWN(m->arena, bool, f->value.n + 1);
  for (uint32_t i = 0; i < f->arg.n; i++) seen[f->arg.at[i]] = true;
  for (uint32_t i = 0; i < f->result.n; i++) seen[f->result.at[i]] = true;
  for (uint32_t i = 0; i < f->stmt.n; i++) mention_stmt(m, f, &f->stmt.at[i], seen);
  return seen;
}

static void put_strides(Text *t, const Layout *l, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    put(t, d ? ", " : " by ");
    put_int(t, l->stride[d]);
  }
}

static void put_storage(Text *t, Id v) {
  const Value *value = &t->f->value.at[v];
  const Layout *l = &t->fp->layout[v];
  put(t, l->buffer != v ? "  view " : l->internal ? "  inside " : "  value ");
  put_value(t, v);
  if (l->buffer != v) {
    put(t, " in ");
    put_value(t, l->buffer);
    buf_printf(t->b, " + %lld", (long long)l->offset);
  }
  if (l->buffer != v || l->internal) put_strides(t, l, value->rank);
  if (t->planned && t->fp->address[v] >= 0) buf_printf(t->b, " at %lld", (long long)t->fp->address[v]);
  buf_printf(t->b, "  # %s", dtype_name[value->type]);
  for (uint32_t d = 0; d < value->rank; d++)
    buf_printf(t->b, "%s%lld", d ? ", " : "[", (long long)value->extent[d]);
  put(t, value->rank ? "]\n" : "\n");
}

// ---- kernels

static void put_stmt(Text *t, Id stmt) {
  buf_printf(t->b, "stmt %u", stmt);
}

static void put_remark(Text *t, Id stmt) {
  put(t, "  # ");
  ir_print_stmt(t->m, t->f, &t->f->stmt.at[stmt], t->b);
  put(t, "\n");
}

static void put_stmts(Text *t) {
  for (uint32_t i = 0; i < t->k->stmt.n; i++) {
    put(t, "    ");
    put_stmt(t, t->k->stmt.at[i]);
    put_remark(t, t->k->stmt.at[i]);
  }
}

static bool name_taken(const Text *t, Str name, uint32_t n) {
  for (uint32_t v = 0; v < n; v++)
    if (t->name[v] == name) return true;
  return false;
}

// Nests have loops of the same name: those after the first are i.2, i.3, ...
static void name_vars(Text *t) {
  const Loops *l = t->k->loops;
  for (uint32_t v = 0; v < l->var.n; v++) {
    t->name[v] = l->var.at[v].name;
    for (int i = 2; name_taken(t, t->name[v], v); i++) t->name[v] = str_printf("%s.%d", l->var.at[v].name, i);
    t->declared[v] = false;
  }
}

// i<64, or `i as i.2<64`; without its extent once that was printed.
static void put_var(Text *t, uint8_t v) {
  if (v == NO_VAR) {
    put(t, "_");
    return;
  }
  const LoopVar *var = &t->k->loops->var.at[v];
  if (!t->declared[v] && t->name[v] != var->name) {
    put_name(t, var->name);
    put(t, " as ");
  }
  put_name(t, t->name[v]);
  if (!t->declared[v]) buf_printf(t->b, "<%lld", (long long)var->extent);
  t->declared[v] = true;
}

static void put_args(Text *t) {
  const Kernel *k = t->k;
  for (uint32_t i = 0; i < k->arg.n; i++) {
    put(t, i ? ", " : "    args ");
    if (k->written.at[i]) put(t, "write ");
    put_value(t, k->arg.at[i]);
  }
  if (k->arg.n) put(t, "\n");
  if (k->random) put(t, "    random\n");
}

static void put_inplace(Text *t) {
  for (uint32_t i = 0; i < t->k->inplace.n; i++) {
    put(t, "    inplace ");
    put_value(t, t->k->inplace.at[i].out);
    put(t, " over ");
    put_value(t, t->k->inplace.at[i].in);
    put(t, "\n");
  }
}

// grid b<8, t<64 by 16
static void put_grid(Text *t) {
  const Loops *l = t->k->loops;
  for (uint32_t v = 0; v < l->ngrid; v++) {
    put(t, v ? ", " : "    grid ");
    put_var(t, (uint8_t)v);
    if (v + 1 == l->ngrid && l->tile) buf_printf(t->b, " by %lld", (long long)l->tile);
  }
  if (l->ngrid) put(t, "\n");
}

// stmt 3(b, t, _, k) init: the variable of each index, `_` where the next one's counts over both.
static void put_nest_stmt(Text *t, const NestStmt *ns) {
  const Stmt *s = &t->f->stmt.at[ns->stmt];
  put(t, "      ");
  put_stmt(t, ns->stmt);
  put(t, "(");
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (i) put(t, ", ");
    put_var(t, ns->var[i]);
  }
  put(t, ns->init ? ") init" : ")");
  put_remark(t, ns->stmt);
}

// nest (i<3, j<4 | k<5) lanes k {
static void put_nest(Text *t, const Nest *n) {
  put(t, "    nest (");
  for (uint32_t i = 0; i < n->nloop; i++) {
    if (i == n->nfree) put(t, i ? " | " : "| ");
    else if (i) put(t, ", ");
    put_var(t, n->loop[i]);
  }
  put(t, ")");
  if (n->vec != NO_VAR) {
    put(t, " lanes ");
    put_var(t, n->vec);
  }
  put(t, " {\n");
  for (uint32_t i = 0; i < n->stmt.n; i++) put_nest_stmt(t, &n->stmt.at[i]);
  put(t, "    }\n");
}

static void put_loops(Text *t) {
  put_args(t);
  put_inplace(t);
  buf_printf(t->b, "    task %lld\n", (long long)t->k->chunk);
  if (t->k->fill != NONE) {
    put(t, "    zeros ");
    put_value(t, t->k->fill);
    put(t, "\n");
    return;
  }
  name_vars(t);
  put_grid(t);
  for (uint32_t i = 0; i < t->k->loops->nest.n; i++) put_nest(t, &t->k->loops->nest.at[i]);
}

// a x + 12 by 64, 1
static void put_operand(Text *t, const char *word, Id v, int64_t offset) {
  buf_printf(t->b, "    %s ", word);
  put_value(t, v);
  buf_printf(t->b, " + %lld", (long long)offset);
}

static void put_term(Text *t, const char *word, Id v, int64_t offset) {
  if (v == NONE) return;
  put_operand(t, word, v, offset);
  put(t, "\n");
}

static void put_epilogue(Text *t, const GemmPlan *g) {
  if (g->plus_first) put_term(t, "plus", g->plus, g->plus_offset);
  put_term(t, "bias", g->bias, g->bias_offset);
  if (!g->plus_first) put_term(t, "plus", g->plus, g->plus_offset);
  if (g->kept != NONE) {
    put(t, "    keep ");
    put_value(t, g->kept);
    put(t, "\n");
  }
  if (g->act != ACT_NONE) buf_printf(t->b, "    act %s\n", act_word[g->act]);
}

static void put_product(Text *t) {
  const GemmPlan *g = &t->k->gemm;
  put_stmts(t);
  buf_printf(t->b, "    size %lld, %lld, %lld\n", (long long)g->m, (long long)g->n, (long long)g->k);
  put_operand(t, "a", g->a, g->a_offset);
  buf_printf(t->b, " by %lld, %lld\n", (long long)g->a_row, (long long)g->a_col);
  put_operand(t, "b", g->b, g->b_offset);
  buf_printf(t->b, " by %lld, %lld\n", (long long)g->b_row, (long long)g->b_col);
  put_operand(t, g->accumulate ? "add c" : "c", g->c, g->c_offset);
  buf_printf(t->b, " by %lld\n", (long long)g->c_row);
  put_epilogue(t, g);
  for (uint32_t i = 0; i < g->nbatch; i++)
    buf_printf(t->b, "    loop %lld: %lld, %lld, %lld\n", (long long)g->batch[i].count, (long long)g->batch[i].a,
               (long long)g->batch[i].b, (long long)g->batch[i].c);
}

static void put_scan_dim(Text *t, const char *word, const ScanDim *d) {
  buf_printf(t->b, "    %s %lld: %lld, %lld\n", word, (long long)d->count, (long long)d->x, (long long)d->y);
}

static void put_scan(Text *t) {
  const ScanPlan *p = &t->k->scan;
  put_stmts(t);
  put_operand(t, "from", p->from, p->from_offset);
  put(t, "\n");
  put_operand(t, p->add ? "add to" : "to", p->to, p->to_offset);
  put(t, "\n");
  put_scan_dim(t, "along", &p->along);
  put_scan_dim(t, "column", &p->column);
  for (uint32_t i = 0; i < p->nloop; i++) put_scan_dim(t, "loop", &p->loop[i]);
  if (p->reverse) put(t, "    reverse\n");
  if (p->exclusive) put(t, "    exclusive\n");
}

static void put_kernel(Text *t, uint32_t kernel) {
  const Kernel *k = t->k = &t->fp->kernel.at[kernel];
  buf_printf(t->b, "  %s ", kernel_word[k->kind == K_LOOPS && k->fill != NONE ? FILL_WORD : (int)k->kind]);
  put_name(t, k->name);
  put(t, " {\n");
  if (k->bytes != 0 || k->flops != 0) {
    put(t, "    cost ");
    ir_print_real(k->bytes, t->b);
    put(t, ", ");
    ir_print_real(k->flops, t->b);
    put(t, "\n");
  }
  switch (k->kind) {
  case K_LOOPS: put_loops(t); break;
  case K_GEMM: put_product(t); break;
  case K_SCAN: put_scan(t); break;
  case K_INTRINSIC:
  case K_CALL:
  case K_COLL:
  case K_WAIT:
    put_stmts(t);
    put_inplace(t);
    break;
  }
  if (t->planned && t->fp->callee_frame[kernel] >= 0)
    buf_printf(t->b, "    frame %lld\n", (long long)t->fp->callee_frame[kernel]);
  put(t, "  }\n");
}

static void put_function(Text *t) {
  put(t, "\nkernels ");
  put_name(t, t->f->name);
  put(t, " {\n");
  if (t->planned) buf_printf(t->b, "  frame %lld\n", (long long)t->fp->frame_bytes);
  const bool *seen = lowered_mentions(t->m, t->f);
  for (Id v = 0; v < t->f->value.n; v++)
    if (seen[v]) put_storage(t, v);
  for (uint32_t i = 0; i < t->fp->kernel.n; i++) put_kernel(t, i);
  put(t, "}\n");
}

void level_print(const Module *m, bool places, Buf *b) {
  const Plan *p = m->lowered;
  if (places) ir_print(m, b);
  else ir_print_plain(m, b);
  if (!p) return;
  buf_printf(b, "\nlowered %s\n", level_name[p->level]);
  for (Id fn = 0; fn < m->fn.n; fn++) {
    if (!p->reached[fn]) continue;
    Text t = {.m = m, .fp = &p->fn[fn], .f = &m->fn.at[fn], .planned = p->level == LEVEL_PLAN, .b = b};
    put_function(&t);
  }
}
