// One fused kernel: its signature, the grid point of a team, its nests and the barriers between them.
#include "codegen/cuda/cuda.h"
#include <stdlib.h>

// ---- the launch's shape

void cuda_put_launch(Cuda *c) {
  CudaLaunch l = cuda_launch_of(c);
  if (l.y == 1) buf_printf(c->out, ": <<<%lld, %d>>>\n", (long long)l.blocks, l.x);
  else buf_printf(c->out, ": <<<%lld, dim3(%d, %d)>>>\n", (long long)l.blocks, l.x, l.y);
}

static void put_team(Cuda *c) {
  const Schedule *s = &c->s;
  if (cuda_has_extent(c->f)) {
    buf_printf(c->out, "// an element each: <<<(count + %d) / %d, %d>>>\n", s->teams - 1, s->teams, s->teams);
    return;
  }
  long long points = (long long)s->points;
  const char *many = points == 1 ? "" : "s";
  switch (s->team) {
  case TEAM_THREAD:
    buf_printf(c->out, "// %lld point%s, ", points, many);
    if (s->width > 1) buf_printf(c->out, "%d to a thread", s->width);
    else buf_printf(c->out, "a thread each");
    break;
  case TEAM_WARP: buf_printf(c->out, "// %lld row%s, a warp each", points, many); break;
  case TEAM_BLOCK: buf_printf(c->out, "// %lld row%s, a block each", points, many); break;
  case TEAM_COLUMN: buf_printf(c->out, "// %lld columns, %d threads each", points, s->threads); break;
  case TEAM_SCATTER: buf_printf(c->out, "// %lld places, a block each; the first of a row adds up all of it", points); break;
  }
  cuda_put_launch(c);
}

CudaLaunch cuda_launch_of(const Cuda *c) {
  const Schedule *s = &c->s;
  if (c->k->kind == K_GEMM) return (CudaLaunch){s->blocks, TILE, TILE};
  switch (s->team) {
  case TEAM_WARP: return (CudaLaunch){s->blocks, WARP, s->teams};
  case TEAM_COLUMN: return (CudaLaunch){s->blocks, WARP, s->threads};
  case TEAM_BLOCK:
  case TEAM_SCATTER: return (CudaLaunch){s->blocks, s->threads, 1};
  default: return (CudaLaunch){s->blocks, s->teams, 1};
  }
}

// ---- arguments

uint32_t cuda_buffers(const Cuda *c, Id *buffer, bool *written) {
  const Kernel *k = c->k;
  const GemmPlan *g = &k->gemm;
  const Layout *l = c->fp->layout;
  uint32_t n = 0;
  memset(written, 0, MOST_BUFFERS * sizeof *written);
  switch (k->kind) {
  case K_LOOPS:
    CHECK(k->arg.n <= MOST_BUFFERS);
    for (uint32_t i = 0; i < k->arg.n; i++) buffer[n] = k->arg.at[i], written[n++] = k->written.at[i];
    break;
  case K_GEMM:
    buffer[n++] = l[g->a].buffer;
    buffer[n++] = l[g->b].buffer;
    if (g->bias != NONE) buffer[n++] = l[g->bias].buffer;
    written[n] = true;
    buffer[n++] = l[g->c].buffer;
    break;
  case K_SCAN:
    buffer[n++] = k->scan.from;
    written[n] = true;
    buffer[n++] = k->scan.to;
    break;
  default: BUG("a kernel of kind %d", k->kind);
  }
  return n;
}

// Whether no other argument of the kernel may be at the same place, where one of them is written.
static bool lies_alone(const Cuda *c, const Id *buffer, const bool *written, uint32_t n, uint32_t i) {
  for (uint32_t j = 0; j < n; j++)
    if (j != i && (written[i] || written[j]) && cuda_overlaps(c, buffer[i], buffer[j])) return false;
  return true;
}

void cuda_signature(Cuda *c, int threads, const Str *name) {
  Id buffer[MOST_BUFFERS];
  bool written[MOST_BUFFERS];
  uint32_t n = cuda_buffers(c, buffer, written), count = n;
  Str *arg = NEWN(c->a, Str, n + 2);
  for (uint32_t i = 0; i < n; i++) {
    const Value *v = &c->f->value.at[buffer[i]];
    Str id = name ? name[i] : names_new(&c->names, v->name);
    if (!name) c->pointer[buffer[i]] = id;
    arg[i] = str_printf("%s%s *%s%s", written[i] ? "" : "const ", cuda_type(c, v->type),
                        lies_alone(c, buffer, written, n, i) ? "__restrict__ " : "", id);
  }
  if (c->k->kind == K_LOOPS && c->k->random) arg[count++] = "const uint64_t *__restrict__ key";
  if (c->k->kind == K_GEMM && c->k->gemm.bias == NONE) arg[count++] = str_printf("%s beta", c->real);
  if (cuda_has_extent(c->f)) arg[count++] = "int64_t count";
  buf_printf(c->out, "extern \"C\" __global__ void __launch_bounds__(%d)\n", threads);
  put_call(c->out, 0, str_printf("%s_kernel", c->k->name), arg, count, " {\n");
  c->indent = c->base = 2;
}

// ---- the grid

// The declarations of a kernel's grid point, where what follows uses them.
typedef struct Point {
  Decls at, var; // at: the point's number
} Point;

// From a number to the variables of the grid [0, n), declared where what follows uses them.
static void decode_point(Cuda *c, Decls *d, Str at, uint32_t n) {
  int64_t inner = 1;
  for (uint32_t i = 0; i < n; i++) inner *= c->l->var.at[i].extent;
  cuda_begin_decls(c, d, "int");
  for (uint32_t i = 0; i < n; i++) {
    int64_t extent = c->l->var.at[i].extent;
    inner /= extent;
    c->var[i] = names_new(&c->names, cuda_var_name(c, (uint8_t)i));
    Str v = inner > 1 ? str_printf("%s / %lld", at, (long long)inner) : at;
    if (i) v = str_printf("%s %% %lld", v, (long long)extent);
    cuda_decl(c, d, c->var[i], extent == 1 ? "0" : v);
  }
}

static int64_t launched(const Cuda *c) { return c->s.blocks * c->s.teams * (c->s.width > 1 ? c->s.width : 1); } // points

static bool is_large(const Cuda *c) { return launched(c) > INT32_MAX - (1 << 20); }

// "const int row = ..": by the only variable's name, where there is one.
static void name_point(Cuda *c, Point *p, Str at, Str wanted) {
  const char *type = is_large(c) ? "int64_t" : "int";
  if (!c->l->ngrid && launched(c) == 1) return;
  bool one = c->l->ngrid == 1;
  Str name = names_new(&c->names, one ? cuda_var_name(c, 0) : wanted);
  cuda_begin_decls(c, &p->at, type);
  cuda_decl(c, &p->at, name, at);
  if (launched(c) > c->s.points) cuda_line(c, "if (%s >= %lld) return;\n", name, (long long)c->s.points);
  if (one) c->var[0] = name;
  else decode_point(c, &p->var, name, c->l->ngrid);
}

static Str thread_number(const Cuda *c) {
  const char *wide = is_large(c) ? "(int64_t)" : "";
  Str team = c->s.blocks == 1 ? "threadIdx.x" : str_printf("%sblockIdx.x * %d + threadIdx.x", wide, c->s.teams);
  if (c->s.width <= 1) return team;
  return str_printf(c->s.blocks == 1 ? "%s * %d" : "(%s) * %d", team, c->s.width);
}

bool cuda_has_extent(const Fn *f) { return arg_find(f, MEANS_PIECE, PIECE_PARAM) != NONE; }

// All `count` elements of the arrays.
static void open_extent(Cuda *c) {
  CHECK(c->l->ngrid == 1 && c->s.width <= 1);
  c->var[0] = names_new(&c->names, cuda_var_name(c, 0));
  cuda_line(c, "const int64_t %s = (int64_t)blockIdx.x * %d + threadIdx.x;\n", c->var[0], c->s.teams);
  cuda_line(c, "if (%s >= count) return;\n", c->var[0]);
}

static void open_thread(Cuda *c, Point *p) {
  if (cuda_has_extent(c->f)) open_extent(c);
  else name_point(c, p, thread_number(c), "i");
}

static void open_warp(Cuda *c, Point *p) {
  c->place = names_new(&c->names, "lane");
  c->first = str_printf("%s == 0", c->place);
  cuda_line(c, "const int %s = threadIdx.x;\n", c->place);
  Str at = c->s.blocks == 1 ? "threadIdx.y" : c->s.teams == 1 ? "blockIdx.x"
           : str_printf("blockIdx.x * %d + threadIdx.y", c->s.teams);
  name_point(c, p, at, "row");
}

static void open_block(Cuda *c, Point *p) {
  c->place = names_new(&c->names, "t");
  c->first = str_printf("%s == 0", c->place);
  cuda_line(c, "const int %s = threadIdx.x;\n", c->place);
  name_point(c, p, "blockIdx.x", "row");
}

// The last block's threads past the last column compute that column as well, and store nothing: all of a block meet at
// its barriers.
static void open_column(Cuda *c, Point *p) {
  uint32_t last = c->l->ngrid - 1;
  int64_t columns = c->l->var.at[last].extent, tiles = (columns + WARP - 1) / WARP;
  Str tile = "blockIdx.x";
  c->place = "threadIdx.y";
  c->first = "threadIdx.y == 0";
  if (last) {
    Str rest = names_new(&c->names, last == 1 ? cuda_var_name(c, 0) : "rest");
    cuda_begin_decls(c, &p->at, "int");
    cuda_decl(c, &p->at, rest, str_printf("blockIdx.x / %lld", (long long)tiles));
    if (last == 1) c->var[0] = rest;
    else decode_point(c, &p->var, rest, last);
    tile = str_printf("blockIdx.x %% %lld", (long long)tiles);
  }
  Str name = c->var[last] = names_new(&c->names, cuda_var_name(c, (uint8_t)last));
  Str at = tiles == 1 ? "threadIdx.x" : str_printf("%s * 32 + threadIdx.x", tile);
  if (columns % WARP == 0) {
    cuda_line(c, "const int %s = %s;\n", name, at);
    return;
  }
  Str column = names_new(&c->names, "column");
  cuda_line(c, "const int %s = %s, %s = %s < %lld ? %s : %lld;\n", column, at, name, column, (long long)columns, column,
            (long long)columns - 1);
  c->first = str_printf("threadIdx.y == 0 && %s < %lld", column, (long long)columns);
}

// ---- pointers that are moved to the grid point once

typedef struct Rebase {
  Cuda *c;
  const NestStmt *ns;
  uint32_t nest;
  bool *seen, *mixed, *moves;
  Form *form; // the first access of each buffer
} Rebase;

static void note_access(Rebase *x, Id value, Form f) {
  Id b = x->c->fp->layout[value].buffer;
  uint32_t ngrid = x->c->l->ngrid;
  if (!x->c->pointer[b] || x->c->row[b]) return;
  if (!x->seen[b]) x->form[b] = f;
  x->mixed[b] |= memcmp(x->form[b].coef, f.coef, ngrid * sizeof *f.coef) != 0;
  x->seen[b] = true;
  for (uint32_t v = ngrid; v < x->c->l->var.n; v++) x->moves[b] |= f.coef[v] != 0;
}

static void note_read(const Module *m, Id read, void *ctx) {
  Rebase *x = ctx;
  Id v = (Id)ex(m, read)->integer;
  bool here = x->c->writer[v] && x->c->writer_nest[v] == x->nest;
  if (here || cuda_is_kept(x->c, x->nest, x->ns, read)) return;
  note_access(x, v, cuda_form_read(x->c, x->ns, read));
}

static Str grid_offset(const Cuda *c, const Form *f) {
  Buf b = {0};
  int64_t most = 0;
  for (uint32_t v = 0; v < c->l->ngrid; v++) most += llabs(f->coef[v]) * (c->l->var.at[v].extent - 1);
  for (uint32_t v = 0; v < c->l->ngrid; v++) {
    if (!f->coef[v]) continue;
    const char *cast = most > INT32_MAX && !is_large(c) ? "(int64_t)" : "";
    buf_printf(&b, "%s%s%s", b.n ? " + " : "", cast, c->var[v]);
    if (f->coef[v] != 1) buf_printf(&b, " * %lld", (long long)f->coef[v]);
  }
  Str s = b.n ? str_internn(b.text, b.n) : NULL;
  buf_free(&b);
  return s;
}

static void rebase_pointers(Cuda *c) {
  uint32_t n = c->f->value.n + 1;
  Rebase x = {.c = c, .seen = NEWN(c->a, bool, n), .mixed = NEWN(c->a, bool, n), .moves = NEWN(c->a, bool, n),
              .form = NEWN(c->a, Form, n)};
  for (x.nest = 0; x.nest < c->l->nest.n; x.nest++)
    for (uint32_t j = 0; j < c->l->nest.at[x.nest].stmt.n; j++) {
      x.ns = &c->l->nest.at[x.nest].stmt.at[j];
      const Stmt *s = &c->f->stmt.at[x.ns->stmt];
      comp_reads(c->m, c->f, s, note_read, &x);
      note_access(&x, s->lhs, cuda_form_lhs(c, x.ns));
    }
  for (uint32_t i = 0; i < c->k->arg.n; i++) {
    Id b = c->k->arg.at[i];
    if (!x.seen[b] || x.mixed[b] || !x.moves[b]) continue;
    Str by = grid_offset(c, &x.form[b]);
    if (!by) continue;
    c->rebased[b] = true;
    cuda_line(c, "%s += %s;\n", c->pointer[b], by);
  }
}

// ---- the body

static void declare_rows(Cuda *c) {
  for (Id v = 0; v < c->f->value.n; v++) {
    if (!c->row[v]) continue;
    c->pointer[v] = names_new(&c->names, c->f->value.at[v].name);
    const char *type = cuda_type(c, c->f->value.at[v].type);
    long long n = (long long)cuda_row_elements(c, v);
    if (c->s.team == TEAM_THREAD) cuda_line(c, "%s %s[%lld];\n", type, c->pointer[v], n);
    else if (c->s.team == TEAM_WARP && c->s.teams > 1)
      cuda_line(c, "__shared__ %s %s[%d][%lld];\n", type, c->pointer[v], c->s.teams, n);
    else cuda_line(c, "__shared__ %s %s[%lld];\n", type, c->pointer[v], n);
  }
}

static void name_kept(Cuda *c) {
  for (Id v = 0; v < c->f->value.n; v++) {
    if (c->keep[v] == KEEP_NOT) continue;
    bool memory = !c->fp->layout[v].internal || c->row[v];
    Str name = c->f->value.at[v].name;
    if (memory) name = str_printf(c->keep[v] == KEEP_OWN ? "%s_row" : "%s_v", name);
    c->kept[v] = names_new(&c->names, name);
  }
  for (uint32_t i = 0; i < c->cached.n; i++)
    c->cached.at[i].name = names_new(&c->names, str_printf("%s_row", c->f->value.at[c->cached.at[i].value].name));
}

// A fold of a block or a column ends with a barrier, past which its reads are over.
static bool ends_in_barrier(const Cuda *c, uint32_t nest) {
  return c->run[nest] == RUN_FOLD && c->s.team != TEAM_WARP;
}

static void print_nests(Cuda *c) {
  uint32_t since = 0;
  bool read = false;
  for (uint32_t i = 0; i < c->l->nest.n; i++) {
    Str why = cuda_must_wait(c, i, since, read);
    if (why) {
      cuda_line(c, "%s(); // %s\n", c->s.team == TEAM_WARP ? "__syncwarp" : "__syncthreads", why);
      since = i;
      read = false;
    }
    cuda_nest(c, i);
    if (ends_in_barrier(c, i)) since = i, read = true;
  }
}

static void print_fill(Cuda *c) {
  Id v = c->k->fill;
  Dtype t = c->f->value.at[v].type;
  int64_t n = value_count(&c->f->value.at[v]);
  int width = cuda_fill_width(c, v);
  c->s = (Schedule){TEAM_THREAD, 1, 256, n, (n / width + 255) / 256, width};
  put_team(c);
  cuda_signature(c, 256, NULL);
  cuda_line(c, "const %s i = %s;\n", is_large(c) ? "int64_t" : "int", thread_number(c));
  if (launched(c) > n) cuda_line(c, "if (i >= %lld) return;\n", (long long)n);
  if (width > 1) cuda_line(c, "dt_store(&%s[i], DtVec<%s, %d>{});\n", c->pointer[v], cuda_type(c, t), width);
  else cuda_line(c, "%s[i] = %s;\n", c->pointer[v], is_half(t) ? str_printf("(%s)0.0f", cuda_type(c, t)) : "0");
  buf_printf(c->out, "}\n");
}

void cuda_loops(Cuda *c) {
  put_kernel(c->m, c->f, c->k, c->out);
  if (c->k->fill != NONE) {
    print_fill(c);
    return;
  }
  cuda_schedule(c);
  put_team(c);
  CudaLaunch l = cuda_launch_of(c);
  cuda_signature(c, l.x * l.y, NULL);
  if (c->s.team == TEAM_SCATTER) {
    cuda_scatter(c);
    buf_printf(c->out, "}\n");
    return;
  }
  name_kept(c);
  Point p = {0};
  switch (c->s.team) {
  case TEAM_THREAD: open_thread(c, &p); break;
  case TEAM_WARP: open_warp(c, &p); break;
  case TEAM_BLOCK: open_block(c, &p); break;
  case TEAM_COLUMN: open_column(c, &p); break;
  case TEAM_SCATTER: BUG("a scatter has no grid point");
  }
  if (c->s.team == TEAM_WARP || c->s.team == TEAM_BLOCK) rebase_pointers(c);
  declare_rows(c);
  print_nests(c);
  if (p.var.outer) cuda_end_decls(c, &p.var, c->base);
  if (p.at.outer) cuda_end_decls(c, &p.at, c->base);
  if (c->base > 2) cuda_close(c);
  buf_printf(c->out, "}\n");
}
