// Nests: the loops of a grid point, shared among its team.
#include "codegen/cuda/cuda.h"

enum { COLUMNS = 100 };

// Where a line of this text breaks: at the last space before the end, outside of brackets if there is one.
static size_t break_at(const char *s, size_t room) {
  size_t best = 0, any = 0;
  int depth = 0;
  for (size_t i = 0; s[i] && i <= room; i++) {
    depth += (s[i] == '(' || s[i] == '[') - (s[i] == ')' || s[i] == ']');
    if (s[i] != ' ' || i < room / 3) continue;
    any = i;
    if (depth <= 0) best = i;
  }
  return best ? best : any;
}

void cuda_line(Cuda *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *s = arena_vprintf(c->a, fmt, ap);
  va_end(ap);
  int indent = c->indent;
  buf_printf(c->out, "%*s", indent, "");
  bool whole = *s == '#' || strstr(s, "//");
  for (size_t n; !whole && strlen(s) + (size_t)indent > COLUMNS && (n = break_at(s, (size_t)(COLUMNS - 1 - indent)));) {
    buf_printf(c->out, "%.*s\n%*s", (int)n, s, c->indent + 4, "");
    indent = c->indent + 4;
    s += n + 1;
  }
  buf_printf(c->out, "%s", s);
}

void cuda_open(Cuda *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *head = arena_vprintf(c->a, fmt, ap);
  va_end(ap);
  cuda_line(c, "%s {\n", head);
  c->indent += 2;
}

void cuda_close(Cuda *c) {
  c->indent -= 2;
  cuda_line(c, "}\n");
}

Str cuda_var_name(const Cuda *c, uint8_t var) { // "bt" for b and t merged
  char text[64];
  size_t n = 0;
  for (const char *p = c->l->var.at[var].name; *p && n < sizeof text - 1; p++)
    if (*p != '_') text[n++] = *p;
  return str_internn(text, n);
}

void cuda_begin_decls(Cuda *c, Decls *d, Str type) {
  *d = (Decls){.type = type, .outer = c->out};
  c->out = &d->body;
}

void cuda_decl(Cuda *c, Decls *d, Str name, Str value) {
  (void)c;
  d->name[d->n] = name;
  d->value[d->n++] = value;
}

static bool is_word(char x) { return x == '_' || (x >= '0' && x <= '9') || (x >= 'A' && x <= 'Z') || (x >= 'a' && x <= 'z'); }

static bool has_word(const char *text, Str word) {
  size_t n = strlen(word);
  for (const char *p = text; p && (p = strstr(p, word)); p += n)
    if ((p == text || !is_word(p[-1])) && !is_word(p[n])) return true;
  return false;
}

void cuda_end_decls(Cuda *c, Decls *d, int indent) {
  Buf line = {0};
  c->out = d->outer;
  for (uint32_t i = 0; i < d->n; i++)
    if (has_word(d->body.text, d->name[i])) buf_printf(&line, "%s%s = %s", line.n ? ", " : "", d->name[i], d->value[i]);
  int saved = c->indent;
  c->indent = indent;
  if (line.n) cuda_line(c, "const %s %s;\n", d->type, line.text);
  c->indent = saved;
  if (d->body.n) buf_write(c->out, d->body.text, d->body.n);
  buf_free(&line);
  buf_free(&d->body);
}

// Names of a nest's loops end with it; what stands outside of them is the kernel's.
static Str loop_name(Cuda *c, Str wanted) { return names_new(&c->inner, wanted); }

Str cuda_name(Cuda *c, Str wanted) {
  return c->indent > c->base ? loop_name(c, wanted) : names_new(&c->names, wanted);
}

static void choose(Cuda *c, const NestStmt *ns) {
  c->ns = ns;
  c->st = &c->f->stmt.at[ns->stmt];
  c->shared.n = 0;
}

static Dtype lhs_type(const Cuda *c) { return c->f->value.at[c->st->lhs].type; }

static Str lhs_element(Cuda *c) {
  const Packed *packed = cuda_find_packed(c, NONE);
  if (packed) return str_printf("%s[%s]", packed->name, c->part);
  Form f = cuda_form_lhs(c, c->ns);
  return cuda_element(c, c->st->lhs, &f);
}

static bool in_memory(const Cuda *c, Id v) { return !c->fp->layout[v].internal || c->row[v]; }

// ---- loops

static const char *int_type(int64_t most) { return most > INT32_MAX - (1 << 20) ? "int64_t" : "int"; }

// All loops of the list, one in the other; returns how many.
static uint32_t open_loops(Cuda *c, const uint8_t *loop, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const LoopVar *v = &c->l->var.at[loop[i]];
    Str name = c->var[loop[i]] = loop_name(c, cuda_var_name(c, loop[i]));
    cuda_open(c, "for (%s %s = 0; %s < %lld; %s++)", int_type(v->extent), name, name, (long long)v->extent, name);
  }
  return n;
}

static void close_loops(Cuda *c, uint32_t n) {
  while (n--) cuda_close(c);
}

// From a position to the variables of the loops.
static void decode(Cuda *c, Decls *d, Str at, const uint8_t *loop, uint32_t n) {
  int64_t inner = cuda_extents(c, loop, n);
  for (uint32_t i = 0; i < n; i++) {
    int64_t extent = c->l->var.at[loop[i]].extent;
    inner /= extent;
    Str name = c->var[loop[i]] = loop_name(c, cuda_var_name(c, loop[i])), v = at;
    if (inner > 1) v = str_printf("%s / %lld", v, (long long)inner);
    if (i) v = str_printf("%s %% %lld", v, (long long)extent);
    cuda_decl(c, d, name, extent == 1 ? "0" : v);
  }
}

static bool writes_own(const Cuda *c, const Nest *n) {
  for (uint32_t i = 0; i < n->stmt.n; i++)
    if (c->keep[c->f->stmt.at[n->stmt.at[i].stmt].lhs] == KEEP_OWN) return true;
  return false;
}

typedef struct OwnReads {
  const Cuda *c;
  bool found;
} OwnReads;

static void note_own(const Module *m, Id read, void *ctx) {
  OwnReads *x = ctx;
  const Cuda *c = x->c;
  if (c->keep[ex(m, read)->integer] == KEEP_OWN && cuda_is_kept(c, c->nest, c->ns, read)) x->found = true;
  if (cuda_find_cached(c, c->nest, c->ns, read)) x->found = true;
}

static bool reads_own(Cuda *c, const Nest *n) {
  OwnReads x = {.c = c};
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    choose(c, &n->stmt.at[i]);
    comp_reads(c->m, c->f, c->st, note_own, &x);
  }
  return x.found;
}

// A thread's elements of a row. Some threads have none at their last position, and never read it. Compilers do not see
// that, and would warn.
static void declare_elements(Cuda *c, Id v, Str name) {
  uint32_t nloop;
  const uint8_t *loop = cuda_spread(c, c->nest, &nloop);
  int64_t n = cuda_positions(c, c->nest);
  cuda_line(c, "%s %s[%lld]%s;\n", cuda_scalar(c, scalar_of(c->f->value.at[v].type)), name, (long long)n,
            n * c->s.threads > cuda_extents(c, loop, nloop) ? " = {}" : "");
}

// The elements that this nest reads for later ones as well.
static void declare_cached(Cuda *c) {
  for (uint32_t i = 0; i < c->cached.n; i++)
    if (c->cached.at[i].nest == c->nest) declare_elements(c, c->cached.at[i].value, c->cached.at[i].name);
}

static void read_cached(Cuda *c) {
  for (uint32_t i = 0; i < c->cached.n; i++) {
    const Cached *x = &c->cached.at[i];
    if (x->nest != c->nest) continue;
    const Packed *packed = cuda_packed_like(c, x->value, &x->form);
    Str from = packed ? str_printf("%s[%s]", packed->name, c->part) : cuda_element(c, x->value, &x->form);
    cuda_line(c, "%s[%s] = %s;\n", x->name, c->own, cuda_load(c, x->value, from));
  }
}

// The declarations in the loops over positions. outer: in groups of neighbours, the variable's name outside of a group.
typedef struct Spread {
  Decls at, loops, point, own;
  Str outer;
} Spread;

// Loops over the thread's positions of a nest, some neighbouring ones at a time.
static void open_groups(Cuda *c, const Nest *n, Spread *p, int each) {
  uint32_t nloop;
  const uint8_t *loop = cuda_spread(c, c->nest, &nloop);
  int64_t all = cuda_extents(c, loop, nloop), groups = cuda_positions(c, c->nest) / each;
  Str at = loop_name(c, nloop == 1 ? cuda_var_name(c, loop[0]) : "at"), group = loop_name(c, "g"), own = loop_name(c, "j");
  if (writes_own(c, n) || reads_own(c, n)) declare_cached(c);
  cuda_line(c, "#pragma unroll\n");
  cuda_open(c, "for (int %s = 0; %s < %lld; %s++)", group, group, (long long)groups, group);
  cuda_begin_decls(c, &p->at, "int");
  cuda_decl(c, &p->at, at, str_printf("(%s * %d + %s) * %d", group, c->s.threads, c->place, each));
  if (all % (c->s.threads * each)) cuda_line(c, "if (%s >= %lld) break;\n", at, (long long)all);
  c->var[loop[0]] = at;
  if (nloop > 1) {
    cuda_begin_decls(c, &p->loops, "int");
    decode(c, &p->loops, at, loop, nloop);
  }
  bool alone = n->nloop == nloop || c->run[c->nest] == RUN_FOLD;
  p->outer = cuda_open_packed(c, n, &p->point, loop[nloop - 1], each, alone);
  cuda_begin_decls(c, &p->own, "int");
  cuda_decl(c, &p->own, own, str_printf("%s * %d + %s", group, each, c->part));
  c->own = own;
  read_cached(c);
}

// A loop over the thread's positions of a nest: from `from` on where that is not NULL, then `count` of them.
static void open_positions(Cuda *c, const Nest *n, Spread *p, Str from, int64_t count) {
  *p = (Spread){0};
  int each = cuda_each(c, c->nest);
  if (each > 1) {
    open_groups(c, n, p, each);
    return;
  }
  uint32_t nloop;
  const uint8_t *loop = cuda_spread(c, c->nest, &nloop);
  int64_t all = cuda_extents(c, loop, nloop);
  int threads = c->s.threads;
  Str at = loop_name(c, nloop == 1 ? cuda_var_name(c, loop[0]) : "at"), own = NULL;
  if (!from && (writes_own(c, n) || reads_own(c, n))) {
    own = loop_name(c, "j");
    declare_cached(c);
    cuda_line(c, "#pragma unroll\n");
    cuda_open(c, "for (int %s = 0; %s < %lld; %s++)", own, own, (long long)cuda_positions(c, c->nest), own);
  } else if (from) {
    Str end = str_printf("%s + %lld", from, (long long)count * threads);
    Str more = all % (count * threads) ? str_printf(" && %s < %lld", at, (long long)all) : "";
    cuda_open(c, "for (int %s = %s + %s; %s < %s%s; %s += %d)", at, from, c->place, at, end, more, at, threads);
  } else {
    cuda_open(c, "for (%s %s = %s; %s < %lld; %s += %d)", int_type(all), at, c->place, at, (long long)all, at, threads);
  }
  c->own = own;
  cuda_begin_decls(c, &p->at, "int");
  if (own) cuda_decl(c, &p->at, at, str_printf("%s * %d + %s", own, threads, c->place));
  if (own && all % threads) cuda_line(c, "if (%s >= %lld) break;\n", at, (long long)all);
  if (nloop == 1) {
    c->var[loop[0]] = at;
  } else {
    cuda_begin_decls(c, &p->loops, "int");
    decode(c, &p->loops, at, loop, nloop);
  }
  if (own) read_cached(c);
}

static void close_positions(Cuda *c, Spread *p) {
  if (p->outer) {
    cuda_end_decls(c, &p->own, c->indent);
    cuda_close_packed(c, &p->point, p->outer);
  }
  if (p->loops.outer) cuda_end_decls(c, &p->loops, c->indent);
  cuda_end_decls(c, &p->at, c->indent);
  cuda_close(c);
}

// ---- pointwise nests

static Str old_value(Cuda *c) {
  Id v = c->st->lhs;
  return c->now[v] ? c->now[v] : cuda_load(c, v, lhs_element(c));
}

// What the statement makes at a point, rounded as if it had been stored.
static Str point_value(Cuda *c) {
  cuda_name_shared(c);
  Scalar type = scalar_of(lhs_type(c));
  bool adds = c->st->acc && !c->ns->init, plain = !adds && !cuda_is_narrow(c, lhs_type(c));
  Str v = cuda_expr(c, c->st->body, adds && type == SC_REAL ? 7 : 0); // 7: an operand of a sum
  if (adds) v = cuda_sum_of(c, type, old_value(c), v);
  return plain ? v : cuda_round(c, v, lhs_type(c));
}

static void store(Cuda *c, Str v, Str guard) {
  Str element = lhs_element(c), stored = cuda_stored(c, v, lhs_type(c));
  if (guard) cuda_line(c, "if (%s) %s = %s;\n", guard, element, stored);
  else cuda_line(c, "%s = %s;\n", element, stored);
}

// Where the value goes besides memory: a register that later nests read, or one for this point.
static Str target(Cuda *c, Id v, bool *declared) {
  *declared = c->keep[v] != KEEP_NOT;
  if (c->keep[v] == KEEP_SCALAR) return c->kept[v];
  if (c->keep[v] == KEEP_OWN) return str_printf("%s[%s]", c->kept[v], c->own);
  Str name = c->f->value.at[v].name;
  return cuda_name(c, in_memory(c, v) ? str_printf("%s_v", name) : name);
}

// Whether a later statement of the nest reads what this one makes, or writes it too.
static bool used_later(const Cuda *c, const Nest *n, uint32_t i) {
  Id v = c->f->stmt.at[n->stmt.at[i].stmt].lhs;
  for (uint32_t j = i + 1; j < n->stmt.n; j++) {
    const Stmt *s = &c->f->stmt.at[n->stmt.at[j].stmt];
    if (s->lhs == v || stmt_has_read(c->m, c->f, s, v)) return true;
  }
  return false;
}

// Stores the value as it is computed: nothing else needs it, and no later statement reads what the store overwrites.
static bool store_at_once(Cuda *c, const Nest *n, uint32_t i, Str guard) {
  Id v = c->st->lhs;
  bool last = i + 1 == n->stmt.n || cuda_find_packed(c, NONE);
  if (!last || c->keep[v] != KEEP_NOT || !in_memory(c, v) || used_later(c, n, i) || c->now[v]) return false;
  cuda_name_shared(c);
  bool adds = c->st->acc && !c->ns->init;
  Str x = cuda_expr(c, c->st->body, adds ? 7 : 0);
  if (adds) x = cuda_sum_of(c, scalar_of(lhs_type(c)), old_value(c), x);
  store(c, x, guard);
  return true;
}

static void points(Cuda *c, const Nest *n, Str guard, bool scalars) {
  Str *value = NEWN(c->a, Str, n->stmt.n);
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    choose(c, &n->stmt.at[i]);
    Id v = c->st->lhs;
    if (store_at_once(c, n, i, guard)) continue;
    bool declared;
    Str text = point_value(c), name = target(c, v, &declared);
    if (declared && !scalars) cuda_line(c, "%s = %s;\n", name, text);
    else cuda_line(c, "const %s %s = %s;\n", cuda_scalar(c, scalar_of(lhs_type(c))), name, text);
    value[i] = c->now[v] = name;
  }
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    choose(c, &n->stmt.at[i]);
    bool last = true; // a later += to the same element has the sum
    for (uint32_t j = i + 1; j < n->stmt.n; j++) last &= c->f->stmt.at[n->stmt.at[j].stmt].lhs != c->st->lhs;
    if (value[i] && last && in_memory(c, c->st->lhs)) store(c, value[i], guard);
  }
  for (uint32_t i = 0; i < n->stmt.n; i++) c->now[c->f->stmt.at[n->stmt.at[i].stmt].lhs] = NULL;
}

static void declare_own(Cuda *c, const Nest *n) {
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    Id v = c->f->stmt.at[n->stmt.at[i].stmt].lhs;
    if (c->keep[v] == KEEP_OWN) declare_elements(c, v, c->kept[v]);
  }
}

static void pointwise(Cuda *c, const Nest *n) {
  Run run = c->run[c->nest];
  if (c->s.width > 1) {
    Decls d = {0};
    Str outer = cuda_open_packed(c, n, &d, (uint8_t)(c->l->ngrid - 1), c->s.width, true);
    points(c, n, NULL, true);
    cuda_close_packed(c, &d, outer);
    return;
  }
  if (run == RUN_ALL && !n->nloop) {
    points(c, n, c->first, true);
    return;
  }
  bool alone = run == RUN_FIRST && c->first;
  if (alone) cuda_open(c, "if (%s)", c->first);
  if (run == RUN_SPREAD) {
    Spread p;
    declare_own(c, n);
    open_positions(c, n, &p, NULL, 0);
    points(c, n, NULL, false);
    close_positions(c, &p);
  } else {
    uint32_t opened = open_loops(c, n->loop, n->nloop);
    points(c, n, NULL, false);
    close_loops(c, opened);
  }
  if (alone) cuda_close(c);
}

// ---- reductions

typedef struct Fold {
  const NestStmt *ns;
  Scalar type; // of the body
  Str acc; // name
} Fold;

static const char *op_name(Red r) {
  return r == RED_MAX ? "DtMax" : r == RED_MIN ? "DtMin" : r == RED_ARGMAX ? "DtArgmax" : "DtSum";
}

static const char *acc_name(Red r) {
  return r == RED_MAX ? "most" : r == RED_MIN ? "least" : r == RED_ARGMAX ? "best" : "sum";
}

static bool is_sum(Red r) { return r == RED_SUM || r == RED_MEAN; }

// -0 is neutral to every real, -0 included.
static Str identity(Cuda *c, Red r, Scalar type) {
  if (type == SC_INT) return r == RED_MIN ? "2147483647" : is_sum(r) ? "0" : "-2147483647 - 1";
  return cuda_real(c, r == RED_MIN ? __builtin_inf() : is_sum(r) ? -0.0 : -__builtin_inf());
}

static void declare_fold(Cuda *c, const Fold *x, Str name, bool zero) {
  Red r = c->st->red;
  Str id = zero ? x->type == SC_INT ? "0" : cuda_real(c, 0) : identity(c, r, x->type);
  const char *type = cuda_scalar(c, x->type);
  if (r == RED_ARGMAX) cuda_line(c, "DtArg<%s> %s = {%s, 0};\n", type, name, id);
  else cuda_line(c, "%s %s = %s;\n", type, name, id);
}

// Adds `what` to the accumulator.
static void fold_in(Cuda *c, const Fold *x, Str acc, Str what) {
  Red r = c->st->red;
  if (r == RED_ARGMAX) cuda_line(c, "%s = dt_argmax(%s, %s);\n", acc, acc, what);
  else if (r == RED_MAX || r == RED_MIN)
    cuda_line(c, "%s = %s(%s, %s);\n", acc, r == RED_MAX ? "dt_max" : "dt_min", acc, what);
  else if (x->type == SC_REAL) cuda_line(c, "%s += %s;\n", acc, what);
  else cuda_line(c, "%s = dt_add(%s, %s);\n", acc, acc, what);
}

// The number of the point, row-major over the bound indices.
static Str position(Cuda *c) {
  Buf b = {0};
  int64_t stride = 1;
  for (uint32_t i = c->st->nindex; i-- > c->st->nfree;) {
    uint8_t v = c->ns->var[i];
    if (v != NO_VAR) {
      Str old = str_internn(b.text ? b.text : "", b.n);
      b.n = 0;
      buf_printf(&b, stride == 1 ? "%s" : "%s * %lld", c->var[v], (long long)stride);
      if (*old) buf_printf(&b, " + %s", old);
    }
    stride *= c->st->index[i].extent;
  }
  Str s = b.n ? str_internn(b.text, b.n) : "0";
  buf_free(&b);
  return s;
}

static void fold_points(Cuda *c, Fold *x, uint32_t n, Str *acc) {
  for (uint32_t i = 0; i < n; i++) {
    choose(c, x[i].ns);
    cuda_name_shared(c);
    Str v = cuda_expr(c, c->st->body, 0);
    if (c->st->red == RED_ARGMAX)
      v = str_printf("DtArg<%s>{%s, %s}", cuda_scalar(c, x[i].type), v, position(c));
    fold_in(c, &x[i], acc[i], v);
  }
  c->shared.n = 0;
}

static bool has_sums(const Cuda *c, const Fold *x, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (is_sum(c->f->stmt.at[x[i].ns->stmt].red) && x[i].type == SC_REAL) return true;
  return false;
}

static void begin_parts(Cuda *c, Fold *x, uint32_t n, Str *part) {
  for (uint32_t i = 0; i < n; i++) {
    choose(c, x[i].ns);
    part[i] = cuda_name(c, "part");
    declare_fold(c, &x[i], part[i], false);
  }
}

static void end_parts(Cuda *c, Fold *x, uint32_t n, Str *acc, Str *part) {
  for (uint32_t i = 0; i < n; i++) {
    choose(c, x[i].ns);
    fold_in(c, &x[i], acc[i], part[i]);
  }
}

// Bound loops from the at-th on in one thread; long ones add up each `chain` rounds on their own first.
static void fold_loops(Cuda *c, const Nest *n, uint32_t at, Fold *x, uint32_t count, Str *acc) {
  if (at == n->nloop) {
    fold_points(c, x, count, acc);
    return;
  }
  int64_t extent = c->l->var.at[n->loop[at]].extent, chain = c->m->limits.chain;
  if (!has_sums(c, x, count) || extent <= chain) {
    open_loops(c, n->loop + at, 1);
    fold_loops(c, n, at + 1, x, count, acc);
    cuda_close(c);
    return;
  }
  Str part[MAX_ZIPPED], from = loop_name(c, "from"), name = c->var[n->loop[at]] = loop_name(c, cuda_var_name(c, n->loop[at]));
  const char *type = int_type(extent);
  cuda_open(c, "for (%s %s = 0; %s < %lld; %s += %lld)", type, from, from, (long long)extent, from, (long long)chain);
  begin_parts(c, x, count, part);
  Str more = extent % chain ? str_printf(" && %s < %lld", name, (long long)extent) : "";
  cuda_open(c, "for (%s %s = %s; %s < %s + %lld%s; %s++)", type, name, from, name, from, (long long)chain, more, name);
  fold_loops(c, n, at + 1, x, count, part);
  cuda_close(c);
  end_parts(c, x, count, acc, part);
  cuda_close(c);
}

// The thread's share of the bound points.
static void fold_share(Cuda *c, const Nest *n, Fold *x, uint32_t count, Str *acc) {
  int64_t chain = c->m->limits.chain;
  Spread p;
  if (!has_sums(c, x, count) || cuda_positions(c, c->nest) <= chain || reads_own(c, n)) {
    open_positions(c, n, &p, NULL, 0);
    fold_points(c, x, count, acc);
    close_positions(c, &p);
    return;
  }
  uint32_t nloop;
  const uint8_t *loop = cuda_spread(c, c->nest, &nloop);
  int64_t all = cuda_extents(c, loop, nloop);
  Str part[MAX_ZIPPED], from = loop_name(c, "from");
  cuda_open(c, "for (int %s = 0; %s < %lld; %s += %lld)", from, from, (long long)all, from, (long long)chain * c->s.threads);
  begin_parts(c, x, count, part);
  open_positions(c, n, &p, from, chain);
  fold_points(c, x, count, part);
  close_positions(c, &p);
  end_parts(c, x, count, acc, part);
  cuda_close(c);
}

// "a || b" where every statement has one; NULL where one has none.
static Str conditions(Cuda *c, Fold *x, uint32_t n) {
  Buf b = {0};
  bool all = true;
  for (uint32_t i = 0; i < n; i++) {
    choose(c, x[i].ns);
    Id cond = nest_condition(c->m, c->st);
    all = all && cond != NONE;
    if (all) buf_printf(&b, "%s%s", i ? " || " : "", cuda_expr(c, cond, n > 1 ? 4 : 0));
  }
  Str s = all ? str_internn(b.text, b.n) : NULL;
  buf_free(&b);
  return s;
}

static Str folded(Cuda *c, const Fold *x) {
  Red r = c->st->red;
  Str all = x->acc;
  if (c->run[c->nest] == RUN_FOLD && c->s.team == TEAM_WARP) all = str_printf("dt_warp_reduce<%s>(%s)", op_name(r), all);
  else if (c->run[c->nest] == RUN_FOLD)
    all = str_printf("dt_%s_reduce<%s, %d>(%s)", c->s.team == TEAM_BLOCK ? "block" : "column", op_name(r), c->s.threads, all);
  if (r == RED_ARGMAX) return str_printf("%s.at", all);
  if (r != RED_MEAN) return all;
  int64_t points = 1;
  for (uint32_t i = c->st->nfree; i < c->st->nindex; i++) points *= c->st->index[i].extent;
  return str_printf("%s / %s", all, cuda_real(c, (double)points));
}

// The mean's division, the addition to what is there, and the store.
static void finish(Cuda *c, const Fold *x) {
  choose(c, x->ns);
  Id v = c->st->lhs;
  Dtype t = lhs_type(c);
  bool scalar = c->keep[v] == KEEP_SCALAR, adds = c->st->acc && !c->ns->init;
  Run run = c->run[c->nest];
  Str guard = run == RUN_FOLD || run == RUN_ALL ? c->first : NULL, value = folded(c, x);
  if (scalar) {
    Str rounded = cuda_round(c, value, t);
    if (rounded != x->acc || c->kept[v] != x->acc)
      cuda_line(c, "%s%s = %s;\n", c->kept[v] == x->acc ? "" : str_printf("const %s ", cuda_scalar(c, scalar_of(t))), c->kept[v], rounded);
    value = c->kept[v];
  } else if (value != x->acc && guard) { // all threads take part in the fold
    Str total = cuda_name(c, "total");
    cuda_line(c, "const %s %s = %s;\n", cuda_scalar(c, scalar_of(t)), total, value);
    value = total;
  }
  if (!in_memory(c, v)) return;
  if (adds) value = cuda_sum_of(c, scalar_of(t), old_value(c), value);
  store(c, value, guard);
}

static void reduction(Cuda *c, const Nest *n) {
  Fold x[MAX_ZIPPED];
  Str acc[MAX_ZIPPED];
  uint32_t count = n->stmt.n, opened = 0;
  CHECK(count <= MAX_ZIPPED);
  Run run = c->run[c->nest];
  bool alone = run == RUN_FIRST && c->first;
  if (alone) cuda_open(c, "if (%s)", c->first);
  Spread p;
  if (run == RUN_SPREAD) open_positions(c, n, &p, NULL, 0);
  else opened = open_loops(c, n->loop, n->nfree);
  for (uint32_t i = 0; i < count; i++) x[i] = (Fold){.ns = &n->stmt.at[i]};
  Str cond = conditions(c, x, count);
  for (uint32_t i = 0; i < count; i++) {
    choose(c, x[i].ns);
    Id v = c->st->lhs;
    x[i].type = (Scalar)ex(c->m, c->st->body)->type;
    bool same = c->keep[v] == KEEP_SCALAR && c->st->red != RED_ARGMAX;
    x[i].acc = acc[i] = same ? c->kept[v] : cuda_name(c, acc_name(c->st->red));
    declare_fold(c, &x[i], acc[i], cond != NULL);
  }
  if (cond) {
    cuda_open(c, "if (%s)", cond);
    for (uint32_t i = 0; i < count; i++) {
      choose(c, x[i].ns);
      if (x[i].type == SC_REAL) cuda_line(c, "%s = %s;\n", acc[i], identity(c, c->st->red, x[i].type));
    }
  }
  if (run == RUN_FOLD) fold_share(c, n, x, count, acc);
  else fold_loops(c, n, n->nfree, x, count, acc);
  if (cond) cuda_close(c);
  for (uint32_t i = 0; i < count; i++) finish(c, &x[i]);
  if (run == RUN_SPREAD) close_positions(c, &p);
  close_loops(c, opened);
  if (alone) cuda_close(c);
}

void cuda_nest(Cuda *c, uint32_t nest) {
  const Nest *n = &c->l->nest.at[nest];
  c->nest = nest;
  c->own = NULL;
  names_init(&c->inner, c->a, &c->names);
  choose(c, &n->stmt.at[0]);
  if (c->st->red == RED_NONE) pointwise(c, n);
  else reduction(c, n);
}
