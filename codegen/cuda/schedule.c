// Which threads compute what: a function of sizes, never of the machine, so that sums have one order everywhere.
#include "codegen/cuda/cuda.h"
#include "codegen/lower/fuse.h"

static const Stmt *stmt_of(const Cuda *c, const NestStmt *ns) { return &c->f->stmt.at[ns->stmt]; }

static bool reduces(const Cuda *c, const Nest *n) { return stmt_of(c, &n->stmt.at[0])->red != RED_NONE; }

int64_t cuda_extents(const Cuda *c, const uint8_t *loop, uint32_t n) {
  int64_t points = 1;
  for (uint32_t i = 0; i < n; i++) points *= c->l->var.at[loop[i]].extent;
  return points;
}

// ---- forms

static Form form_of(const Cuda *c, const NestStmt *ns, const Affine *a) {
  Form f = {.base = a->base, .rest = *a};
  const Stmt *s = stmt_of(c, ns);
  for (uint32_t i = 0; i < s->nindex; i++) // an index that is merged into its neighbour is counted there
    if (ns->var[i] != NO_VAR && c->l->var.at[ns->var[i]].extent > 1) f.coef[ns->var[i]] += a->coef[i];
  return f;
}

Form cuda_form_read(const Cuda *c, const NestStmt *ns, Id read) {
  Affine a = affine_read(c->m, c->fp->layout, stmt_of(c, ns), read);
  return form_of(c, ns, &a);
}

Form cuda_form_lhs(const Cuda *c, const NestStmt *ns) {
  Affine a = affine_lhs(c->m, c->f, c->fp->layout, stmt_of(c, ns));
  return form_of(c, ns, &a);
}

const uint8_t *cuda_spread(const Cuda *c, uint32_t nest, uint32_t *n) {
  const Nest *x = &c->l->nest.at[nest];
  *n = 0;
  if (c->run[nest] == RUN_SPREAD) *n = x->nfree;
  if (c->run[nest] != RUN_FOLD) return x->loop;
  *n = x->nloop - x->nfree;
  return x->loop + x->nfree;
}

static int64_t rounds(const Cuda *c, int64_t all, int each) {
  int64_t round = (int64_t)c->s.threads * each;
  return (all + round - 1) / round;
}

// Where every thread has some and none has more than stay in registers.
int cuda_each(const Cuda *c, uint32_t nest) {
  uint32_t n;
  const uint8_t *loop = cuda_spread(c, nest, &n);
  if (!n || (c->s.team != TEAM_WARP && c->s.team != TEAM_BLOCK)) return 1;
  int64_t all = cuda_extents(c, loop, n), last = c->l->var.at[loop[n - 1]].extent;
  int64_t most = c->m->limits.chain < MOST_OWN ? c->m->limits.chain : MOST_OWN;
  for (int each = 8; each > 1; each /= 2)
    if (last % each == 0 && all / each >= c->s.threads && rounds(c, all, each) * each <= most) return each;
  return 1;
}

int64_t cuda_positions(const Cuda *c, uint32_t nest) {
  uint32_t n;
  const uint8_t *loop = cuda_spread(c, nest, &n);
  int each = cuda_each(c, nest);
  return rounds(c, cuda_extents(c, loop, n), each) * each;
}

bool cuda_same_place(const Cuda *c, uint32_t nest_a, const Form *a, uint32_t nest_b, const Form *b) {
  uint32_t na, nb;
  const uint8_t *la = cuda_spread(c, nest_a, &na), *lb = cuda_spread(c, nest_b, &nb);
  if (!na || na != nb || a->rest.nrest || b->rest.nrest || a->base != b->base) return false;
  int64_t left[MAX_VAR];
  memcpy(left, b->coef, sizeof left);
  for (uint32_t i = 0; i < na; i++) {
    if (c->l->var.at[la[i]].extent != c->l->var.at[lb[i]].extent || a->coef[la[i]] != b->coef[lb[i]]) return false;
    left[lb[i]] = 0;
  }
  for (uint32_t v = 0; v < c->l->var.n; v++) {
    bool spread = false;
    for (uint32_t i = 0; i < na; i++) spread |= la[i] == v;
    if (v < c->l->ngrid ? a->coef[v] != b->coef[v] : left[v] || (!spread && a->coef[v])) return false;
  }
  return true;
}

// The same element at any point of the grid, without loops.
static bool same_scalar(const Cuda *c, const Form *a, const Form *b) {
  if (a->rest.nrest || b->rest.nrest || a->base != b->base) return false;
  return !memcmp(a->coef, b->coef, c->l->var.n * sizeof *a->coef);
}

// ---- the team

typedef struct Strides {
  const Cuda *c;
  const NestStmt *ns;
  uint8_t column, loop;
  int along_column, along_loop;
} Strides;

static void note_stride(const Module *m, Id read, void *ctx) {
  Strides *x = ctx;
  (void)m;
  Form f = cuda_form_read(x->c, x->ns, read);
  x->along_column += f.coef[x->column] == 1;
  x->along_loop += f.coef[x->loop] == 1;
}

// Points that are neighbours in the grid's last variable read neighbours in memory, and those in the loops do not:
// then a warp takes neighbouring points.
static bool runs_along_columns(const Cuda *c) {
  const Loops *l = c->l;
  if (!l->ngrid || l->var.at[l->ngrid - 1].extent < WARP / 2) return false;
  Strides x = {.c = c, .column = (uint8_t)(l->ngrid - 1)};
  for (uint32_t i = 0; i < l->nest.n; i++) {
    const Nest *n = &l->nest.at[i];
    if (n->nfree) return false;
    if (!n->nloop) continue;
    x.loop = n->loop[n->nloop - 1];
    for (uint32_t j = 0; j < n->stmt.n; j++) {
      x.ns = &n->stmt.at[j];
      ex_reads(c->m, stmt_of(c, x.ns)->body, note_stride, &x);
    }
  }
  return x.along_column > x.along_loop;
}

// Several points of the nest may add to one element: they take turns.
static bool scatters(const Cuda *c, const Nest *n) {
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    const Stmt *s = stmt_of(c, &n->stmt.at[i]);
    if (s->acc && n->nfree && !fuse_injective(c->m, c->f, s)) return true;
  }
  return false;
}

static Run run_of(const Cuda *c, const Nest *n) {
  if (c->s.team == TEAM_THREAD) return RUN_ALL;
  if (!n->nloop) return RUN_ALL;
  if (!reduces(c, n)) return scatters(c, n) ? RUN_FIRST : RUN_SPREAD;
  int64_t free = cuda_extents(c, n->loop, n->nfree), bound = cuda_extents(c, n->loop + n->nfree, n->nloop - n->nfree);
  bool spread = n->nfree && !scatters(c, n) && (free >= c->s.threads || free > bound);
  return spread ? RUN_SPREAD : RUN_FOLD;
}

static int power_of_two(int64_t least, int64_t from, int64_t to) {
  int64_t n = from;
  while (n < least && n < to) n *= 2;
  return (int)n;
}

// The most points that a nest could share among threads.
static int64_t longest(const Cuda *c) {
  int64_t most = 1;
  for (uint32_t i = 0; i < c->l->nest.n; i++) {
    const Nest *n = &c->l->nest.at[i];
    if (scatters(c, n) && !reduces(c, n)) continue;
    int64_t free = cuda_extents(c, n->loop, n->nfree), all = cuda_extents(c, n->loop, n->nloop);
    int64_t shared = reduces(c, n) && all / free > free ? all / free : free;
    if (shared > most) most = shared;
  }
  return most;
}

enum {
  THREADS = 256, // of a block whose teams do not need one another
  WARP_POINTS = 1024, // that a warp takes; more are a block's
  FEW_ROWS = 64, // so few grid points that a block takes fewer
  EACH = 8, // points of a thread in a block
  COLUMN_EACH = 16 // rows of a thread in a column
};

static void choose_team(Cuda *c) {
  Schedule *s = &c->s;
  int64_t most = longest(c);
  *s = (Schedule){.team = TEAM_THREAD, .threads = 1, .teams = THREADS, .points = 1};
  for (uint32_t i = 0; i < c->l->ngrid; i++) s->points *= c->l->var.at[i].extent;
  s->teams = power_of_two(s->points, s->points > 1 ? WARP : 1, THREADS);
  if (most < c->m->limits.team_points) return;
  if (runs_along_columns(c)) {
    s->team = TEAM_COLUMN, s->threads = power_of_two(most / COLUMN_EACH, 4, 32), s->teams = WARP;
  } else if (most <= (s->points < FEW_ROWS ? WARP_POINTS / 8 : WARP_POINTS)) {
    s->team = TEAM_WARP, s->threads = WARP, s->teams = power_of_two(s->points, 1, THREADS / WARP);
  } else {
    s->team = TEAM_BLOCK, s->threads = power_of_two(most / EACH, 64, MOST_THREADS), s->teams = 1;
  }
}

static void count_blocks(Cuda *c) {
  Schedule *s = &c->s;
  const Loops *l = c->l;
  int64_t teams = s->width > 1 ? s->points / s->width : s->points;
  if (s->width > 1) s->teams = power_of_two(teams, WARP, THREADS);
  s->blocks = (teams + s->teams - 1) / s->teams;
  if (s->team != TEAM_COLUMN) return;
  int64_t columns = l->var.at[l->ngrid - 1].extent;
  s->blocks = s->points / columns * ((columns + WARP - 1) / WARP);
}

// ---- what stays in the kernel

static void find_writers(Cuda *c) {
  uint32_t *count = NEWN(c->a, uint32_t, c->f->value.n + 1);
  for (uint32_t i = 0; i < c->l->nest.n; i++)
    for (uint32_t j = 0; j < c->l->nest.at[i].stmt.n; j++) {
      const NestStmt *ns = &c->l->nest.at[i].stmt.at[j];
      Id v = stmt_of(c, ns)->lhs;
      c->writer[v] = count[v]++ ? NULL : ns;
      c->writer_nest[v] = i;
    }
}

static Keep keep_of(const Cuda *c, Id v) {
  const NestStmt *w = c->writer[v];
  if (!w || (stmt_of(c, w)->acc && !w->init)) return KEEP_NOT;
  uint32_t nest = c->writer_nest[v];
  const Nest *n = &c->l->nest.at[nest];
  if (!n->nfree && (c->run[nest] == RUN_ALL || c->run[nest] == RUN_FOLD)) return KEEP_SCALAR;
  bool own = c->run[nest] == RUN_SPREAD && !reduces(c, n) && cuda_positions(c, nest) <= MOST_OWN;
  return own ? KEEP_OWN : KEEP_NOT;
}

bool cuda_is_kept(const Cuda *c, uint32_t nest, const NestStmt *ns, Id read) {
  Id v = (Id)ex(c->m, read)->integer;
  if (!c->writer[v] || c->keep[v] == KEEP_NOT || c->writer_nest[v] >= nest) return false;
  Form w = cuda_form_lhs(c, c->writer[v]), r = cuda_form_read(c, ns, read);
  if (c->keep[v] == KEEP_SCALAR) return same_scalar(c, &w, &r);
  return cuda_same_place(c, c->writer_nest[v], &w, nest, &r);
}

typedef struct Kept {
  Cuda *c;
  uint32_t nest;
  const NestStmt *ns;
  bool *used; // registers that a later nest reads
} Kept;

static void note_kept(const Module *m, Id read, void *ctx) {
  Kept *x = ctx;
  Id v = (Id)ex(m, read)->integer;
  Cuda *c = x->c;
  if (cuda_is_kept(c, x->nest, x->ns, read)) x->used[v] = true;
  else if (c->fp->layout[v].internal && !(c->writer[v] && c->writer_nest[v] == x->nest)) c->row[v] = true;
}

// Registers that no later nest reads are none; values inside that are read elsewhere need a row.
static void place_values(Cuda *c) {
  Kept x = {.c = c, .used = NEWN(c->a, bool, c->f->value.n + 1)};
  for (Id v = 0; v < c->f->value.n; v++) c->row[v] = false, c->keep[v] = keep_of(c, v);
  for (x.nest = 0; x.nest < c->l->nest.n; x.nest++)
    for (uint32_t j = 0; j < c->l->nest.at[x.nest].stmt.n; j++) {
      x.ns = &c->l->nest.at[x.nest].stmt.at[j];
      const Stmt *s = stmt_of(c, x.ns);
      comp_reads(c->m, c->f, s, note_kept, &x);
      if (c->fp->layout[s->lhs].internal && !c->writer[s->lhs]) c->row[s->lhs] = true;
    }
  for (Id v = 0; v < c->f->value.n; v++)
    if (!x.used[v]) c->keep[v] = KEEP_NOT;
}

// ---- rows that are read once

const Cached *cuda_find_cached(const Cuda *c, uint32_t nest, const NestStmt *ns, Id read) {
  if (!c->cached.n) return NULL;
  Form f = cuda_form_read(c, ns, read);
  for (uint32_t i = 0; i < c->cached.n; i++) {
    const Cached *x = &c->cached.at[i];
    if (x->value == ex(c->m, read)->integer && x->nest <= nest && cuda_same_place(c, x->nest, &x->form, nest, &f)) return x;
  }
  return NULL;
}

bool cuda_is_inside(const Cuda *c, const Stmt *s, Id read) {
  const Value *v = &c->f->value.at[ex(c->m, read)->integer];
  for (uint32_t d = 0; d < v->rank; d++)
    if (!affine_inside(c->m, s, ex_arg(c->m, read, d), v->extent[d])) return false;
  return true;
}

static bool moves_along(const Cuda *c, uint32_t nest, const Form *f) {
  uint32_t n;
  const uint8_t *loop = cuda_spread(c, nest, &n);
  for (uint32_t i = 0; i < n; i++)
    if (f->coef[loop[i]]) return true;
  return false;
}

static void note_cached(const Module *m, Id read, void *ctx) {
  Kept *x = ctx;
  Cuda *c = x->c;
  Id v = (Id)ex(m, read)->integer;
  Cached *had = (Cached *)cuda_find_cached(c, x->nest, x->ns, read);
  if (had) had->again |= had->nest < x->nest;
  // A sum under a condition may be left out, and its reads with it.
  bool left_out = stmt_of(c, x->ns)->red != RED_NONE && ex_is(m, stmt_of(c, x->ns)->body, OP_WHERE);
  if (had || left_out || x->used[c->fp->layout[v].buffer] || !cuda_is_inside(c, stmt_of(c, x->ns), read)) return;
  Form f = cuda_form_read(c, x->ns, read);
  if (!f.rest.nrest && moves_along(c, x->nest, &f)) PUSH(c->a, c->cached, (Cached){.value = v, .form = f, .nest = x->nest});
}

// Elements that a thread may hold: registers are 65,536 to an SM.
static int64_t room_for_rows(const Cuda *c) {
  int threads = c->s.threads * c->s.teams;
  int64_t n = threads <= 256 ? 96 : threads <= 512 ? 48 : 16;
  return c->m->compute == DT_F64 ? n / 2 : n;
}

static void cache_rows(Cuda *c) {
  Kept x = {.c = c, .used = NEWN(c->a, bool, c->f->value.n + 1)}; // used: buffers that the kernel writes
  c->cached.n = 0;
  if (c->s.team != TEAM_WARP && c->s.team != TEAM_BLOCK) return;
  for (uint32_t i = 0; i < c->k->stmt.n; i++) x.used[c->fp->layout[c->f->stmt.at[c->k->stmt.at[i]].lhs].buffer] = true;
  for (x.nest = 0; x.nest < c->l->nest.n; x.nest++) {
    bool rows = c->run[x.nest] == RUN_SPREAD || (c->run[x.nest] == RUN_FOLD && !c->l->nest.at[x.nest].nfree);
    if (!rows || cuda_positions(c, x.nest) > MOST_OWN) continue;
    for (uint32_t j = 0; j < c->l->nest.at[x.nest].stmt.n; j++) {
      x.ns = &c->l->nest.at[x.nest].stmt.at[j];
      ex_reads(c->m, stmt_of(c, x.ns)->body, note_cached, &x);
    }
  }
  int64_t room = room_for_rows(c);
  uint32_t n = 0;
  for (Id v = 0; v < c->f->value.n; v++)
    if (c->keep[v] == KEEP_OWN) room -= cuda_positions(c, c->writer_nest[v]);
  for (uint32_t i = 0; i < c->cached.n; i++) {
    int64_t each = cuda_positions(c, c->cached.at[i].nest);
    if (!c->cached.at[i].again || each > room) continue;
    room -= each;
    c->cached.at[n++] = c->cached.at[i];
  }
  c->cached.n = n;
}

int64_t cuda_row_elements(const Cuda *c, Id v) {
  const Value *value = &c->f->value.at[v];
  int64_t n = 1;
  for (uint32_t d = 0; d < value->rank; d++) n += (value->extent[d] - 1) * c->fp->layout[v].stride[d];
  return n;
}

static int64_t shared_bytes(const Cuda *c) {
  int64_t bytes = MOST_THREADS / WARP * 16 * 4; // of reductions
  for (Id v = 0; v < c->f->value.n; v++)
    if (c->row[v]) bytes += (cuda_row_elements(c, v) * dtype_size(c->f->value.at[v].type) + 15) / 16 * 16 * c->s.teams;
  return bytes;
}

static bool has_place(const Cuda *c, Id v, int64_t *from, int64_t *to) {
  *from = c->fp->address[v];
  *to = *from + value_count(&c->f->value.at[v]) * dtype_size(c->f->value.at[v].type);
  return *from >= 0;
}

bool cuda_overlaps(const Cuda *c, Id a, Id b) {
  int64_t a_from, a_to, b_from, b_to;
  if (a == b) return true;
  if (has_place(c, a, &a_from, &a_to) && has_place(c, b, &b_from, &b_to)) return a_from < b_to && b_from < a_to;
  for (uint32_t r = 0; r < c->f->alias.n; r++) {
    Id arg = c->f->alias.at[r], result = c->f->result.at[r];
    if (arg != NONE && ((arg == a && result == b) || (arg == b && result == a))) return true;
  }
  return false;
}

// Updates of a place by each thread for itself would not be one: the first thread does them, and what it makes is read
// from memory. The same where a value is laid over another that the nest reads.
static bool must_be_first(const Cuda *c, const Nest *n) {
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    const Stmt *s = stmt_of(c, &n->stmt.at[i]);
    if (s->acc && !n->stmt.at[i].init) return true;
    for (uint32_t k = 0; k < c->k->arg.n; k++)
      if (c->k->arg.at[k] != s->lhs && cuda_overlaps(c, c->k->arg.at[k], s->lhs)) return true;
  }
  return false;
}

static void choose_runs(Cuda *c) {
  for (uint32_t i = 0; i < c->l->nest.n; i++) {
    const Nest *n = &c->l->nest.at[i];
    c->run[i] = run_of(c, n);
    if (c->run[i] == RUN_ALL && c->s.team != TEAM_THREAD && must_be_first(c, n)) c->run[i] = RUN_FIRST;
  }
  find_writers(c);
  place_values(c);
}

void cuda_schedule(Cuda *c) {
  if (cuda_is_scatter(c)) return;
  choose_team(c);
  choose_runs(c);
  bool rows = false;
  for (Id v = 0; v < c->f->value.n; v++) rows |= c->row[v];
  if (c->s.team == TEAM_COLUMN && rows) { // of 32 points at once
    c->s.team = TEAM_WARP, c->s.threads = WARP, c->s.teams = power_of_two(c->s.points, 1, THREADS / WARP);
    choose_runs(c);
  }
  while (c->s.team == TEAM_WARP && c->s.teams > 1 && shared_bytes(c) > c->m->limits.shared_bytes) c->s.teams /= 2;
  if (c->s.team != TEAM_THREAD && shared_bytes(c) > c->m->limits.shared_bytes) {
    c->s.team = TEAM_THREAD, c->s.threads = 1, c->s.teams = power_of_two(c->s.points, 1, WARP);
    choose_runs(c);
  }
  c->s.width = cuda_has_extent(c->f) ? 1 : cuda_width(c);
  count_blocks(c);
  cache_rows(c);
}

// ---- waiting

typedef struct Access {
  Id buffer;
  bool write, first; // first: by the team's first thread alone
  uint32_t nest;
  Form form;
} Access;

typedef struct Accesses {
  const Cuda *c;
  const NestStmt *ns;
  uint32_t nest;
  VEC(Access) at;
} Accesses;

static void add_access(Accesses *x, Id buffer, bool write, bool first, Form form) {
  PUSH(x->c->a, x->at, (Access){buffer, write, first, x->nest, form});
}

static void note_read(const Module *m, Id read, void *ctx) {
  Accesses *x = ctx;
  const Cuda *c = x->c;
  Id v = (Id)ex(m, read)->integer;
  bool here = c->writer[v] && c->writer_nest[v] == x->nest;
  const Cached *had = cuda_find_cached(c, x->nest, x->ns, read);
  if (here || cuda_is_kept(c, x->nest, x->ns, read) || (had && had->nest < x->nest)) return;
  add_access(x, c->fp->layout[v].buffer, false, c->run[x->nest] == RUN_FIRST, cuda_form_read(c, x->ns, read));
}

static void note_nest(Accesses *x, bool reads) {
  const Cuda *c = x->c;
  const Nest *n = &c->l->nest.at[x->nest];
  for (uint32_t j = 0; j < n->stmt.n; j++) {
    x->ns = &n->stmt.at[j];
    const Stmt *s = stmt_of(c, x->ns);
    if (reads) comp_reads(c->m, c->f, s, note_read, x);
    if (c->fp->layout[s->lhs].internal && !c->row[s->lhs]) continue;
    add_access(x, c->fp->layout[s->lhs].buffer, true, c->run[x->nest] != RUN_SPREAD, cuda_form_lhs(c, x->ns));
  }
}

static bool conflicts(const Cuda *c, const Access *a, const Access *b) {
  if (!(a->write || b->write) || (a->first && b->first) || !cuda_overlaps(c, a->buffer, b->buffer)) return false;
  return a->first || b->first || !cuda_same_place(c, a->nest, &a->form, b->nest, &b->form);
}

Str cuda_must_wait(const Cuda *c, uint32_t nest, uint32_t since, bool read) {
  if (c->s.team == TEAM_THREAD) return NULL;
  Accesses before = {.c = c}, here = {.c = c, .nest = nest};
  for (before.nest = since; before.nest < nest; before.nest++) note_nest(&before, !(read && before.nest == since));
  note_nest(&here, true);
  for (uint32_t i = 0; i < before.at.n; i++)
    for (uint32_t j = 0; j < here.at.n; j++) {
      const Access *a = &before.at.at[i], *b = &here.at.at[j];
      if (!conflicts(c, a, b)) continue;
      Str was = c->f->value.at[a->buffer].name, is = c->f->value.at[b->buffer].name;
      if (a->write) return str_printf("%s is complete", was);
      return was == is ? str_printf("%s has been read", was) : str_printf("%s has been read; %s takes its place", was, is);
    }
  return NULL;
}
