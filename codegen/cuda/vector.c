// Elementwise kernels whose threads take several neighbouring points, so that a load or a store moves up to 16 bytes.
#include "codegen/cuda/cuda.h"

enum {
  MOST_BYTES = 16, // of a load
  MOST_WIDTH = 8,
  MOST_ELEMENTS = 64 // that a thread holds
};

// ---- how buffers are aligned

static int64_t low_bit(int64_t n) { return n & -n; }

static int64_t bytes_of(const Value *v) { return value_count(v) * dtype_size(v->type); }

// A call hands on a view that begins inside of a buffer, at no multiple of its bytes: then no argument's place is known.
static bool call_shifts(const Plan *p, const FnPlan *fp, const Call *call) {
  const Fn *f = &p->m->fn.at[fp->fn];
  for (uint32_t i = 0; i < call->narg; i++) {
    if (call->arg[i].mode == ACT_ITER) continue;
    const Value *formal = &p->m->fn.at[call->fn].value.at[p->m->fn.at[call->fn].arg.at[i]];
    Id v = call->arg[i].value;
    if (fp->layout[v].offset * dtype_size(f->value.at[v].type) % low_bit(bytes_of(formal) | MOST_BYTES)) return true;
  }
  return false;
}

static bool any_call_shifts(const Plan *p) {
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; p->reached[f] && i < p->fn[f].kernel.n; i++) {
      const Kernel *k = &p->fn[f].kernel.at[i];
      if (k->kind == K_CALL && call_shifts(p, &p->fn[f], p->m->fn.at[f].stmt.at[k->stmt.at[0]].call)) return true;
    }
  return false;
}

// Storage in a frame, parameters and data begin at multiples
// of 16. A function's argument is one of those, or a layer's slice of one: a multiple of its bytes from where that begins.
int64_t cuda_alignment(const Cuda *c, Id buffer) {
  const Value *v = &c->f->value.at[buffer];
  if (c->fp->address[buffer] >= 0) return MOST_BYTES;
  if (v->means == MEANS_PIECE || any_call_shifts(c->plan)) return dtype_size(v->type);
  return low_bit(bytes_of(v) | MOST_BYTES);
}

// ---- what a thread can move at once

// Indices of the statement that the variable of neighbouring points stands for.
static uint32_t moving(const Cuda *c) {
  uint32_t set = 0;
  for (uint32_t i = 0; i < c->st->nindex; i++)
    if (c->ns->var[i] == c->moving) set |= 1u << i;
  return set;
}

// Elements side by side for neighbouring points, the first of `width` at a multiple of their bytes.
static bool is_packed(const Cuda *c, Id value, const Form *f, int width) {
  Id b = c->fp->layout[value].buffer;
  int64_t bytes = width * dtype_size(c->f->value.at[value].type);
  if (c->fp->layout[value].internal || c->row[b] || f->coef[c->moving] != 1 || f->base % width) return false;
  for (uint32_t v = 0; v < c->l->var.n; v++)
    if (v != c->moving && f->coef[v] % width) return false;
  for (uint32_t i = 0; i < f->rest.nrest; i++)
    if (f->rest.rest[i].coef % width) return false;
  if (affine_rest_indices(c->m, &f->rest) & moving(c)) return false;
  return cuda_alignment(c, b) >= (bytes < MOST_BYTES ? bytes : MOST_BYTES);
}

static bool same_form(const Cuda *c, const Form *a, const Form *b) {
  return !a->rest.nrest && !b->rest.nrest && a->base == b->base && !memcmp(a->coef, b->coef, c->l->var.n * sizeof *a->coef);
}

Packed *cuda_find_packed(const Cuda *c, Id read) {
  if (!c->part) return NULL;
  bool lhs = read == NONE;
  Id value = lhs ? c->st->lhs : (Id)ex(c->m, read)->integer;
  Form f = lhs ? cuda_form_lhs(c, c->ns) : cuda_form_read(c, c->ns, read);
  for (uint32_t i = 0; i < c->packed.n; i++) {
    Packed *x = &c->packed.at[i];
    if (x->value != value || x->written != lhs) continue;
    if (x->read == read && x->ns == c->ns) return x;
    if (same_form(c, &x->form, &f)) return x;
  }
  return NULL;
}

const Packed *cuda_packed_like(const Cuda *c, Id value, const Form *f) {
  for (uint32_t i = 0; c->part && i < c->packed.n; i++) {
    const Packed *x = &c->packed.at[i];
    if (x->value == value && !x->written && same_form(c, &x->form, f)) return x;
  }
  return NULL;
}

// A condition that is the same for all points of a thread, and that reads nothing that the nest makes.
typedef struct Uniform {
  const Cuda *c;
  bool holds;
} Uniform;

static void note_made(const Module *m, Id read, void *ctx) {
  Uniform *x = ctx;
  if (x->c->writer[ex(m, read)->integer]) x->holds = false;
}

static bool is_uniform(const Cuda *c, Id cond) {
  Uniform x = {c, !(ex_indices(c->m, cond) & moving(c))};
  ex_reads(c->m, cond, note_made, &x);
  return x.holds;
}

// Under which conditions an expression is needed. `some`: at some points of a thread, under another one; what is in range
// at all points is read for all of them.
typedef struct When {
  Id cond[MOST_WHEN];
  bool is[MOST_WHEN], some;
  uint32_t n;
} When;

static void pack(Cuda *c, Id read, int width, const When *when) {
  Id v = (Id)ex(c->m, read)->integer;
  Form f = cuda_form_read(c, c->ns, read);
  const Cached *cached = cuda_find_cached(c, c->nest, c->ns, read);
  if (c->writer[v] || !is_packed(c, v, &f, width) || (cached && cached->nest < c->nest) || (when->some && !cuda_is_inside(c, c->st, read))) return;
  Packed *had = cuda_find_packed(c, read), x = {.value = v, .read = read, .ns = c->ns, .st = c->st, .form = f, .nwhen = when->n};
  memcpy(x.cond, when->cond, sizeof x.cond);
  memcpy(x.is, when->is, sizeof x.is);
  if (!had) PUSH(c->a, c->packed, x);
  else if (!when->n) had->nwhen = 0;
  else if (had->nwhen != when->n || had->ns != c->ns || memcmp(had->cond, x.cond, when->n * sizeof *x.cond) ||
           memcmp(had->is, x.is, when->n * sizeof *x.is))
    had->value = NONE; // needed under several conditions: not packed
}

static void pack_reads(Cuda *c, Id id, int width, const When *when) {
  const Expr *e = ex(c->m, id);
  if (e->op == OP_READ) pack(c, id, width, when);
  bool branches = e->op == OP_WHERE;
  for (uint32_t i = 0; i < e->narg; i++) {
    bool lazy = i && (branches || e->op == OP_AND || e->op == OP_OR);
    When inner = *when;
    if (lazy) {
      Id cond = ex_arg(c->m, id, 0);
      bool uniform = when->n < MOST_WHEN && branches && is_uniform(c, cond);
      inner.some |= !uniform;
      if (uniform) inner.cond[inner.n] = cond, inner.is[inner.n++] = i == 1;
    }
    pack_reads(c, ex_arg(c->m, id, i), width, &inner);
  }
}

// Fills `packed` for this width; false where something that is written is not side by side.
static bool pack_nest(Cuda *c, const Nest *n, uint8_t moving, int width) {
  c->packed.n = 0;
  c->moving = moving;
  c->part = "";
  bool good = true;
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    c->ns = &n->stmt.at[i];
    c->st = &c->f->stmt.at[c->ns->stmt];
    pack_reads(c, c->st->body, width, &(When){.n = 0});
    Form f = cuda_form_lhs(c, c->ns);
    if (c->st->red != RED_NONE || c->fp->layout[c->st->lhs].internal) continue;
    if (!is_packed(c, c->st->lhs, &f, width)) {
      good = false;
      continue;
    }
    Packed *had = cuda_find_packed(c, NONE);
    Packed x = {.value = c->st->lhs, .read = NONE, .written = true, .ns = c->ns, .st = c->st, .form = f};
    x.loaded = c->st->acc && !c->ns->init && !had;
    if (!had) PUSH(c->a, c->packed, x);
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < c->packed.n; i++)
    if (c->packed.at[i].value != NONE) c->packed.at[kept++] = c->packed.at[i];
  c->packed.n = kept;
  c->part = NULL;
  if (kept * (uint32_t)width > MOST_ELEMENTS) c->packed.n = 0;
  return good && c->packed.n;
}

// An element of the least type that the kernel stores or reads decides: 8 of bf16 are 16 bytes.
static int width_of_types(const Cuda *c) {
  int64_t least = 8;
  for (uint32_t i = 0; i < c->k->arg.n; i++) {
    int64_t size = dtype_size(c->f->value.at[c->k->arg.at[i]].type);
    bool one = value_count(&c->f->value.at[c->k->arg.at[i]]) == 1;
    if (!one && size < least) least = size;
  }
  return MOST_BYTES / least < MOST_WIDTH ? (int)(MOST_BYTES / least) : MOST_WIDTH;
}

int cuda_width(Cuda *c) {
  const Nest *n = &c->l->nest.at[0];
  bool elementwise = c->s.team == TEAM_THREAD && c->l->ngrid && c->l->nest.n == 1 && !n->nloop;
  if (!elementwise || c->f->stmt.at[n->stmt.at[0].stmt].red != RED_NONE) return 1; // a sum of one term has no loop either
  uint8_t last = (uint8_t)(c->l->ngrid - 1);
  int64_t extent = c->l->var.at[last].extent;
  for (int width = width_of_types(c); width > 1; width /= 2)
    if (extent % width == 0 && c->s.points / width >= WARP && pack_nest(c, n, last, width)) return width;
  return 1;
}

int cuda_fill_width(const Cuda *c, Id value) {
  const Value *v = &c->f->value.at[value];
  int width = (int)(MOST_BYTES / dtype_size(v->type));
  return cuda_alignment(c, value) == MOST_BYTES && value_count(v) % width == 0 ? width : 1;
}

// ---- printing

static Str vector_type(const Cuda *c, const Packed *x) {
  return str_printf("DtVec<%s, %d>", cuda_type(c, c->f->value.at[x->value].type), c->width);
}

static Str when_of(Cuda *c, const Packed *x) {
  Buf b = {0};
  for (uint32_t i = 0; i < x->nwhen; i++) {
    Str cond = cuda_expr(c, x->cond[i], x->nwhen > 1 && x->is[i] ? 4 : x->is[i] ? 0 : 9); // 4: an operand of &&; 9: of !
    buf_printf(&b, "%s%s%s", i ? " && " : "", x->is[i] ? "" : "!", cond);
  }
  Str s = str_internn(b.text, b.n);
  buf_free(&b);
  return s;
}

static void load(Cuda *c, Packed *x) {
  c->ns = x->ns;
  c->st = x->st;
  Str type = vector_type(c, x), from = str_printf("dt_load<%d>(&%s)", c->width, cuda_element(c, x->value, &x->form));
  x->name = cuda_name(c, str_printf("%s_%d", c->f->value.at[x->value].name, c->width));
  if (x->written) cuda_line(c, x->loaded ? "%s %s = %s;\n" : "%s %s;\n", type, x->name, from);
  else if (!x->nwhen) cuda_line(c, "const %s %s = %s;\n", type, x->name, from);
  else {
    cuda_line(c, "%s %s = {};\n", type, x->name);
    cuda_line(c, "if (%s) %s = %s;\n", when_of(c, x), x->name, from);
  }
}

Str cuda_open_packed(Cuda *c, const Nest *n, Decls *d, uint8_t moving, int width, bool pack) {
  pack_nest(c, n, moving, width);
  if (!pack) c->packed.n = 0;
  c->width = width;
  c->shared.n = 0;
  for (uint32_t i = 0; i < c->packed.n; i++) load(c, &c->packed.at[i]);
  Str part = cuda_name(c, "k"), outer = c->var[moving];
  cuda_line(c, "#pragma unroll\n");
  cuda_open(c, "for (int %s = 0; %s < %d; %s++)", part, part, width, part);
  c->part = part;
  cuda_begin_decls(c, d, "int");
  c->var[moving] = cuda_name(c, str_printf("%s_%s", outer, part));
  cuda_decl(c, d, c->var[moving], str_printf("%s + %s", outer, part));
  return outer;
}

void cuda_close_packed(Cuda *c, Decls *d, Str outer) {
  cuda_end_decls(c, d, c->indent);
  cuda_close(c);
  c->part = NULL;
  c->var[c->moving] = outer;
  for (uint32_t i = 0; i < c->packed.n; i++) {
    const Packed *x = &c->packed.at[i];
    if (!x->written) continue;
    c->ns = x->ns;
    c->st = x->st;
    cuda_line(c, "dt_store(&%s, %s);\n", cuda_element(c, x->value, &x->form), x->name);
  }
  c->packed.n = 0;
}
