// Sums into rows that other values name, such as an embedding's gradient: y[row[i], d] += x[i, d]. A block for each i: the
// first i of a row adds up all of them in order, so that the sum is the one of a loop over i.
#include "codegen/cuda/cuda.h"
#include "codegen/lower/fuse.h"

enum { MOST_PLACES = 1 << 20, EACH = 4 /* columns of a thread, where there are enough */ };

typedef struct Scatter {
  const Nest *n;
  int64_t places, columns;
  int threads, each; // columns of a thread
  Str list;
} Scatter;

static void note_read(const Module *m, Id read, void *ctx) {
  Cuda *c = ctx;
  Id v = (Id)ex(m, read)->integer;
  if (cuda_overlaps(c, c->fp->layout[v].buffer, c->fp->layout[c->st->lhs].buffer)) c->s.blocks = 0;
}

// The row is one for all columns.
static bool one_row(const Cuda *c) {
  Form f = cuda_form_lhs(c, c->ns);
  uint32_t set = affine_rest_indices(c->m, &f.rest);
  for (uint32_t i = 0; i < c->st->nindex; i++)
    if (set >> i & 1 && (c->ns->var[i] == NO_VAR || c->ns->var[i] < c->l->ngrid)) return false;
  return true;
}

static Scatter scatter_of(const Cuda *c) {
  Scatter x = {.n = &c->l->nest.at[0], .columns = 1};
  x.places = cuda_extents(c, x.n->loop, x.n->nloop);
  for (uint32_t v = 0; v < c->l->ngrid; v++) x.columns *= c->l->var.at[v].extent;
  for (x.threads = 64; x.threads < MOST_THREADS && x.threads * EACH < x.columns;) x.threads *= 2;
  x.each = (int)((x.columns + x.threads - 1) / x.threads);
  return x;
}

bool cuda_is_scatter(Cuda *c) {
  const Nest *n = &c->l->nest.at[0];
  if (c->l->nest.n != 1 || n->stmt.n != 1 || !n->nfree) return false;
  c->ns = &n->stmt.at[0];
  c->st = &c->f->stmt.at[c->ns->stmt];
  if (!c->st->acc || c->ns->init || c->st->red != RED_NONE || fuse_injective(c->m, c->f, c->st)) return false;
  if (c->fp->layout[c->st->lhs].internal || !one_row(c)) return false;
  c->s.blocks = 1;
  ex_reads(c->m, c->st->body, note_read, c);
  Scatter x = scatter_of(c);
  if (!c->s.blocks || x.places < 2 || x.places > MOST_PLACES || x.each > MOST_OWN) return false;
  c->s = (Schedule){TEAM_SCATTER, x.threads, 1, x.places, x.places, 1};
  return true;
}

// From a number to the variables of loops, declared where what follows uses them.
static void decode(Cuda *c, Decls *d, Str at, const uint8_t *loop, uint32_t n) {
  int64_t inner = cuda_extents(c, loop, n);
  cuda_begin_decls(c, d, "int");
  for (uint32_t i = 0; i < n; i++) {
    int64_t extent = c->l->var.at[loop[i]].extent;
    inner /= extent;
    Str v = inner > 1 ? str_printf("%s / %lld", at, (long long)inner) : at;
    if (i) v = str_printf("%s %% %lld", v, (long long)extent);
    c->var[loop[i]] = n == 1 ? at : cuda_name(c, cuda_var_name(c, loop[i]));
    if (n > 1) cuda_decl(c, d, c->var[loop[i]], extent == 1 ? "0" : v);
  }
}

// The number of the row that a place adds to: the only subscript that names one, or the whole offset.
static Str key(Cuda *c, const char **type, Id *only) {
  Form f = cuda_form_lhs(c, c->ns);
  bool one = f.rest.nrest == 1;
  for (uint32_t i = 0; i < c->l->ngrid; i++) f.coef[i] = 0;
  for (uint32_t v = 0; v < c->l->var.n; v++) one &= !f.coef[v];
  f.base = 0;
  *only = one ? f.rest.rest[0].expr : NONE;
  *type = one ? "int" : "int64_t";
  return one ? cuda_expr(c, *only, 5) : cuda_local_offset(c, &f); // 5: an operand of ==
}

static void open_columns(Cuda *c, const Scatter *x, Decls *d) {
  uint8_t grid[MAX_VAR];
  for (uint32_t v = 0; v < c->l->ngrid; v++) grid[v] = (uint8_t)v;
  if (x->each == 1) {
    if (x->columns < x->threads) cuda_open(c, "if (%s < %lld)", c->place, (long long)x->columns);
    decode(c, d, c->place, grid, c->l->ngrid);
    return;
  }
  Str j = cuda_name(c, "j");
  cuda_line(c, "#pragma unroll\n");
  cuda_open(c, "for (int %s = 0; %s < %d; %s++)", j, j, x->each, j);
  c->own = j;
  Str at = cuda_name(c, c->l->ngrid == 1 ? cuda_var_name(c, 0) : "column");
  cuda_line(c, "const int %s = %s * %d + %s;\n", at, j, x->threads, c->place);
  if (x->columns % x->threads) cuda_line(c, "if (%s >= %lld) break;\n", at, (long long)x->columns);
  decode(c, d, at, grid, c->l->ngrid);
}

static void close_columns(Cuda *c, const Scatter *x, Decls *d) {
  cuda_end_decls(c, d, c->indent);
  if (x->each > 1 || x->columns < x->threads) cuda_close(c);
}

static Str partial(const Cuda *c, const Scatter *x, Str sum) { return x->each == 1 ? sum : str_printf("%s[%s]", sum, c->own); }

static Str element(Cuda *c) {
  Form f = cuda_form_lhs(c, c->ns);
  return cuda_element(c, c->st->lhs, &f);
}

// "at >= 0 && token[at] == row", above which its variables are declared.
static Str is_same(Cuda *c, const Scatter *x, Str at, Str bound, Str row, Decls *d) {
  const char *type;
  Id only;
  decode(c, d, at, x->n->loop, x->n->nloop);
  return str_printf("%s %s && %s == %s", at, bound, key(c, &type, &only), row);
}

// A place before this one that has the same row: it adds this one as well.
static void leave_to_first(Cuda *c, const Scatter *x, Str first, Str row) {
  Decls d = {0};
  names_init(&c->inner, c->a, &c->names);
  cuda_line(c, "// An earlier place of the same row adds up this one, too.\n");
  Str end = cuda_name(c, "end"), at = cuda_name(c, "at");
  cuda_open(c, "for (int %s = %s; %s > 0; %s -= %d)", end, first, end, end, x->threads);
  cuda_line(c, "const int %s = %s - %d + %s;\n", at, end, x->threads, c->place);
  Str same = is_same(c, x, at, ">= 0", row, &d);
  cuda_line(c, "if (dt_block_list<%d>(%s, %s)) return;\n", x->threads, same, x->list);
  cuda_end_decls(c, &d, c->indent);
  cuda_close(c);
}

static void add_place(Cuda *c, const Scatter *x, Str sum) {
  Decls d = {0};
  open_columns(c, x, &d);
  Dtype t = c->f->value.at[c->st->lhs].type;
  cuda_name_shared(c);
  Str to = partial(c, x, sum);
  Str v = cuda_round(c, cuda_sum_of(c, scalar_of(t), to, cuda_expr(c, c->st->body, scalar_of(t) == SC_REAL ? 7 : 0)), t);
  cuda_line(c, "%s = %s;\n", to, v);
  close_columns(c, x, &d);
}

static void add_places(Cuda *c, const Scatter *x, Str first, Str row, Str sum) {
  Decls d = {0}, p = {0}, e = {0};
  names_init(&c->inner, c->a, &c->names);
  Str from = cuda_name(c, "from"), at = cuda_name(c, "at"), n = cuda_name(c, "n"), i = cuda_name(c, "i");
  cuda_open(c, "for (int %s = %s; %s < %lld; %s += %d)", from, first, from, (long long)x->places, from, x->threads);
  cuda_line(c, "const int %s = %s + %s;\n", at, from, c->place);
  Str same = is_same(c, x, at, str_printf("< %lld", (long long)x->places), row, &d);
  cuda_line(c, "const int %s = dt_block_list<%d>(%s, %s);\n", n, x->threads, same, x->list);
  cuda_end_decls(c, &d, c->indent);
  cuda_line(c, "#pragma unroll 4\n");
  cuda_open(c, "for (int %s = 0; %s < %s; %s++)", i, i, n, i);
  Str place = cuda_name(c, x->n->nloop == 1 ? cuda_var_name(c, x->n->loop[0]) : "place");
  cuda_begin_decls(c, &p, "int");
  cuda_decl(c, &p, place, str_printf("%s + %s[%s]", from, x->list, i));
  decode(c, &e, place, x->n->loop, x->n->nloop);
  add_place(c, x, sum);
  cuda_end_decls(c, &e, c->indent);
  cuda_end_decls(c, &p, c->indent);
  cuda_close(c);
  cuda_close(c);
}

static void move_row(Cuda *c, const Scatter *x, Str sum, Str row, Id only, bool out) {
  Decls d = {0};
  Id v = c->st->lhs;
  names_init(&c->inner, c->a, &c->names);
  open_columns(c, x, &d);
  c->shared.n = 0;
  if (only != NONE) PUSH(c->a, c->shared, (Shared){only, row});
  Str here = partial(c, x, sum), there = element(c);
  if (out) cuda_line(c, "%s = %s;\n", there, cuda_stored(c, here, c->f->value.at[v].type));
  else cuda_line(c, "%s = %s;\n", here, cuda_load(c, v, there));
  c->shared.n = 0;
  close_columns(c, x, &d);
}

void cuda_scatter(Cuda *c) {
  Scatter x = scatter_of(c);
  const char *type;
  Id only;
  Decls d = {0};
  c->ns = &x.n->stmt.at[0];
  c->st = &c->f->stmt.at[c->ns->stmt];
  names_init(&c->inner, c->a, &c->names);
  c->place = names_new(&c->names, "t");
  x.list = names_new(&c->names, "list");
  Str first = names_new(&c->names, "first"), row = names_new(&c->names, "row"), sum = names_new(&c->names, "sum");
  cuda_line(c, "__shared__ int %s[%d];\n", x.list, x.threads);
  cuda_line(c, "const int %s = threadIdx.x, %s = blockIdx.x;\n", c->place, first);
  decode(c, &d, first, x.n->loop, x.n->nloop);
  Str mine = key(c, &type, &only);
  cuda_line(c, "const %s %s = %s;\n", type, row, mine);
  Str outer[MAX_VAR];
  memcpy(outer, c->var, sizeof outer);
  leave_to_first(c, &x, first, row);
  memcpy(c->var, outer, sizeof outer);
  const char *real = cuda_scalar(c, scalar_of(c->f->value.at[c->st->lhs].type));
  if (x.each > 1) cuda_line(c, "%s %s[%d];\n", real, sum, x.each);
  else cuda_line(c, x.columns < x.threads ? "%s %s = 0;\n" : "%s %s;\n", real, sum);
  move_row(c, &x, sum, row, only, false);
  add_places(c, &x, first, row, sum);
  memcpy(c->var, outer, sizeof outer);
  move_row(c, &x, sum, row, only, true);
  cuda_end_decls(c, &d, 2);
}
