// Gathering goes in rounds: in each, every writer takes the next chunk of what it writes, and the
// ranks that have a piece of it send theirs. The elements of a chunk that a rank has are one range of
// its local array (runtime/model/layout.h), so they are sent from where they are; offloaded ones from
// a buffer that they are read into. All ranks know all chunks, and post what concerns them in the order
// (round, writer, sender): sends and receives that wait for one another cannot form a ring. While a
// chunk is written, the next one is on its way.
#include "runtime/files/save.h"

#include "runtime/base/parallel.h"
#include "runtime/files/pieces.h"
#include "runtime/files/writers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t dt_save_chunk = 1 << 19;

// Where a writer puts the chunks that it gathers.
typedef enum { NOWHERE, TO_FILE, TO_SNAPSHOT } Target;
enum { WRITTEN_AT_ONCE = 4 << 20 }; // bytes of a snapshot

static size_t size_of(const DtSave *s) { return dt_type_size(s->r->p->type); }

// What a rank sends of a chunk: elements of its local array.
static DtRange share(const DtSave *s, const DtChunk *c, int rank, DtLayout *l) {
  const DtZero *z = &s->r->zero;
  int64_t tensor = c->item % s->names.each;
  dt_piece_layout(z, tensor, rank, l);
  DtRange r = dt_piece(z, tensor, rank, l);
  if (r.lo == r.hi) return r;
  int64_t lo = dt_layout_first(l, c->from), hi = dt_layout_first(l, c->to);
  if (lo > r.lo) r.lo = lo;
  if (hi < r.hi) r.hi = hi;
  r.hi = dt_layout_trim(l, r.hi);
  if (r.hi < r.lo) r.hi = r.lo;
  return r;
}

// ---- Chunks

static void first_chunks(DtSave *s) {
  for (int r = 0; r < dt_world.size; r++) s->at[r] = (DtChunk){-1, 0, 0};
}

// The writer's next chunk of the first n tensors; `only` >= 0: that rank writes all.
static bool next_chunk(const DtSave *s, int writer, int only, int64_t n, DtChunk *c) {
  if (c->item < 0 || c->to == s->names.tensor[c->item].count) {
    int64_t i = c->item + 1;
    while (i < n && (only >= 0 ? only : s->writer[i]) != writer) i++;
    *c = (DtChunk){i, 0, 0};
  }
  if (c->item >= n) {
    c->item = n - 1; // stays at the end
    c->from = c->to = n ? s->names.tensor[n - 1].count : 0;
    return false;
  }
  int64_t left = s->names.tensor[c->item].count - c->to;
  c->from = c->to;
  c->to += left < s->chunk ? left : s->chunk;
  return true;
}

// ---- Gathering

// What concerns one round.
typedef struct {
  DtTicket sent, first, last; // the last of this rank's sends; the first and last of its receives
  DtChunk mine;  // item -1: none
} Round;

static DtNote note_of(const DtSave *s, const DtChunk *c) {
  int64_t tensor = c->item % s->names.each;
  const DtParam *p = dt_model_param(&s->r->zero, tensor);
  return (DtNote){p->name, dt_told_layer(p, dt_model_instance(&s->r->zero, tensor)), NULL};
}

static DtRegion region_of(const DtSave *s, const DtChunk *c) {
  return c->item < s->names.each ? s->first : (DtRegion)(DT_MOMENT + c->item / s->names.each - 1);
}

static int64_t instance_of(const DtSave *s, const DtChunk *c) {
  return s->r->zero.stages.home[c->item % s->names.each].instance;
}

// Elements `x` of what this rank holds, from a file into a buffer, once it is sent that was there before: since ranks
// send in the order (round, writer), they may wait for that.
static char *from_file(DtSave *s, const DtChunk *c, DtRange x, DtError *e) {
  int b = s->turn = 1 - s->turn;
  if (s->sent[b]) dt_wait(s->sent[b]);
  s->sent[b] = 0;
  DtView v;
  for (int64_t i = x.lo; i < x.hi; i += v.n) {
    if (dt_view_open(&v, s->r, region_of(s, c), instance_of(s, c), i, x.hi - i, DT_READ, e)) break;
    size_t bytes = (size_t)v.n * size_of(s);
    char *to = s->sending[b] + (size_t)(i - x.lo) * size_of(s), *mapped = dt_device_map(to, bytes, DT_WRITE);
    memcpy(mapped, v.at, bytes);
    dt_device_unmap(to, mapped, bytes, DT_WRITE);
    dt_view_close(&v);
  }
  return s->sending[b]; // after a failure too: the writer waits for it
}

static char *held(DtSave *s, const DtChunk *c, DtRange x, DtError *e) {
  if (dt_offloaded(&s->r->offload, region_of(s, c))) return from_file(s, c, x, e);
  DtPart p = dt_instance_part(&s->r->zero, region_of(s, c), instance_of(s, c));
  return p.at + (size_t)(x.lo - p.lo) * size_of(s);
}

static void post_send(DtSave *s, const DtChunk *c, int writer, Round *round, DtError *e) {
  DtLayout l;
  DtRange x = share(s, c, dt_world.rank, &l);
  if (x.lo == x.hi) return;
  char *from = held(s, c, x, e);
  round->sent = dt_send(dt_group(DT_ALL_AXES), writer, s->r->p->type, from, x.hi - x.lo, note_of(s, c));
  if (from == s->sending[s->turn]) s->sent[s->turn] = round->sent;
}

static void post_receives(const DtSave *s, const DtChunk *c, char *to, Round *round) {
  int64_t room = s->room;
  for (int r = 0; r < dt_world.size; r++) {
    DtLayout l;
    DtRange x = share(s, c, r, &l);
    if (x.lo == x.hi || r == dt_world.rank) continue;
    if ((room -= x.hi - x.lo) < 0) {
      fprintf(stderr, "train: error: no memory for the ranks' pieces of a tensor\n");
      exit(DT_EXIT_BUG);
    }
    round->last =
        dt_recv(dt_group(DT_ALL_AXES), r, s->r->p->type, to, x.hi - x.lo, note_of(s, c));
    if (!round->first) round->first = round->last;
    to += (size_t)(x.hi - x.lo) * size_of(s);
  }
}

static bool begin_round(DtSave *s, int only, int64_t n, int buffer, Round *round, DtError *e) {
  bool any = false;
  *round = (Round){.mine = {-1, 0, 0}};
  for (int w = 0; w < dt_world.size; w++) {
    if (!next_chunk(s, w, only, n, &s->at[w])) continue;
    any = true;
    if (w == dt_world.rank) {
      round->mine = s->at[w];
      post_receives(s, &round->mine, s->received[buffer], round);
    } else {
      post_send(s, &s->at[w], w, round, e);
    }
  }
  return any;
}

// Elements `x` of a local array, from `from` on, on their way to where they belong in a chunk.
typedef struct {
  const DtSave *s;
  const DtChunk *c;
  const DtLayout *l;
  DtRange x;
  const char *from;
  char *chunk;
  _Atomic int64_t placed; // how many there are
} Scatter;

// Of them [begin, end), counted from the first.
static void scatter_part(void *const *arg, int64_t begin, int64_t end) {
  Scatter *p = arg[0];
  size_t size = size_of(p->s);
  int64_t placed = 0;
  for (int64_t i = begin, run; i < end; i += run) {
    int64_t element;
    run = dt_layout_run(p->l, p->x.lo + i, end - i, &element);
    if (element < 0) continue;
    memcpy(p->chunk + (size_t)(element - p->c->from) * size, p->from + (size_t)i * size, (size_t)run * size);
    placed += run;
  }
  atomic_fetch_add(&p->placed, placed);
}

static int64_t scatter(const DtSave *s, const DtChunk *c, const DtLayout *l, DtRange x, const char *from, char *chunk) {
  enum { EACH = 1 << 16 };
  Scatter p = {s, c, l, x, from, chunk, 0};
  void *arg[] = {&p};
  dt_parallel(scatter_part, arg, x.hi - x.lo, EACH);
  return p.placed;
}

// The same of what this rank holds; and of what it has received, from the device. Both return what they have placed.
static int64_t fetch_own(const DtSave *s, const DtChunk *c, const DtLayout *l, DtRange x, char *chunk, DtError *e) {
  int64_t placed = 0;
  DtView v;
  for (int64_t i = x.lo; i < x.hi; i += v.n) {
    if (dt_view_open(&v, s->r, region_of(s, c), instance_of(s, c), i, x.hi - i, DT_READ, e)) return placed;
    placed += scatter(s, c, l, (DtRange){i, i + v.n}, v.at, chunk);
    dt_view_close(&v);
  }
  return placed;
}

static int64_t fetch(const DtSave *s, const DtChunk *c, const DtLayout *l, DtRange x, char *from, char *chunk) {
  int64_t placed = 0;
  for (int64_t i = x.lo, n; i < x.hi; i += n) {
    n = dt_device_window(size_of(s), x.hi - i);
    size_t bytes = (size_t)n * size_of(s);
    char *at = from + (size_t)(i - x.lo) * size_of(s), *mapped = dt_device_map(at, bytes, DT_READ);
    placed += scatter(s, c, l, (DtRange){i, i + n}, mapped, chunk);
    dt_device_unmap(at, mapped, bytes, DT_READ);
  }
  return placed;
}

static int end_round(DtSave *s, int buffer, const Round *round, Target target, DtError *e) {
  const DtChunk *c = &round->mine;
  char *received = s->received[buffer];
  int64_t placed = 0;
  dt_wait(round->sent);
  dt_wait_receives(round->first, round->last);
  if (c->item < 0) return 0;
  char *to = s->gathered[buffer];
  if (target == TO_SNAPSHOT) to = s->snapshot + (size_t)(s->place[c->item] + c->from) * size_of(s);
  for (int r = 0; r < dt_world.size; r++) {
    DtLayout l;
    DtRange x = share(s, c, r, &l);
    if (x.lo == x.hi) continue;
    if (r == dt_world.rank) {
      placed += fetch_own(s, c, &l, x, to, e);
    } else {
      placed += fetch(s, c, &l, x, received, to);
      received += (size_t)(x.hi - x.lo) * size_of(s);
    }
  }
  if (e->status) return e->status;
  if (placed != c->to - c->from)
    return dt_fail(e, DT_EXIT_BUG, "the ranks have %lld of %lld elements of '%s'",
                   (long long)placed, (long long)(c->to - c->from),
                   s->names.tensor[c->item].name);
  if (target == TO_FILE) dt_out_write(&s->out, to, (size_t)placed * size_of(s));
  return 0;
}

// The first n tensors, from all ranks to their writers.
static int gather(DtSave *s, int only, int64_t n, Target target, DtError *e) {
  Round round[2] = {{.mine = {-1, 0, 0}}, {.mine = {-1, 0, 0}}};
  bool any = true;
  first_chunks(s);
  for (int buffer = 0; any; buffer = 1 - buffer) {
    // A failure here does not stop the others.
    DtError why = {0};
    any = begin_round(s, only, n, buffer, &round[buffer], &why);
    if (end_round(s, 1 - buffer, &round[1 - buffer], target, &why) && !e->status) *e = why;
    round[1 - buffer].mine.item = -1;
  }
  return e->status;
}

static int close_file(DtSave *s, DtPartInfo *info, DtError *e) {
  if (dt_out_close(&s->out, e)) return e->status;
  *info = (DtPartInfo){(int64_t)s->out.bytes, dt_hash_end(&s->out.hash)};
  return 0;
}

static int write_file(DtSave *s, const char *path, const DtTensor *tensor, int64_t ntensor, int only,
                      int64_t n, DtPartInfo *info, DtError *e) {
  bool open = ntensor > 0 && !dt_out_open(&s->out, path, e);
  *info = (DtPartInfo){0, 0};
  if (open) dt_weights_header(&s->out, tensor, ntensor, s->r->p->type);
  gather(s, only, n, open ? TO_FILE : NOWHERE, e);
  if (open && e->status) dt_out_abandon(&s->out);
  return !open || e->status ? e->status : close_file(s, info, e);
}

int dt_save_part(DtSave *s, const char *path, DtPartInfo *info, DtError *e) {
  return write_file(s, path, s->mine, s->nmine, -1, s->names.n, info, e);
}

int dt_save_take(DtSave *s, DtError *e) { return gather(s, -1, s->names.n, TO_SNAPSHOT, e); }

int dt_save_taken(DtSave *s, const char *path, const atomic_bool *stop, DtPartInfo *info, DtError *e) {
  size_t bytes = (size_t)s->nsnapshot * size_of(s);
  *info = (DtPartInfo){0, 0};
  if (!s->nmine || dt_out_open(&s->out, path, e)) return e->status;
  dt_weights_header(&s->out, s->mine, s->nmine, s->r->p->type);
  for (size_t at = 0, n; at < bytes && !atomic_load(stop); at += n) {
    n = bytes - at < WRITTEN_AT_ONCE ? bytes - at : WRITTEN_AT_ONCE;
    dt_out_write(&s->out, s->snapshot + at, n);
  }
  if (atomic_load(stop)) {
    dt_out_abandon(&s->out);
    return e->status = DT_EXIT_IO;
  }
  return close_file(s, info, e);
}

int dt_save_export(DtSave *s, const char *path, DtRegion what, DtError *e) {
  DtPartInfo info;
  int64_t n = s->names.each;
  s->first = what;
  write_file(s, path, s->names.tensor, dt_world.rank == 0 ? n : 0, 0, n, &info, e);
  s->first = DT_MASTER;
  return e->status;
}

// ---- What it needs

// Elements of the longest chunk.
static int64_t longest(const DtProgram *p) {
  int64_t most = 1;
  for (int i = 0; i < p->nparam; i++) {
    int64_t count = 1;
    for (int d = p->param[i].nstack; d < p->param[i].rank; d++) count *= p->param[i].extent[d];
    if (count > most) most = count;
  }
  return most < dt_save_chunk ? most : dt_save_chunk;
}

// Elements that others send for one chunk, at most: the chunk, and padding between its elements.
// Along a dimension that is split with a remainder one rank has padding, at the end of its block, and
// a chunk that reaches over it to the next row is longer than it: as much again for each such
// dimension.
static int64_t room(const DtProgram *p, const DtCut *cut) {
  bool split[DT_STATIC_AXES] = {p->tp > 1, p->tp_outer > 1, p->cp > 1};
  int64_t times = cut->owners > 1 || p->pp > 1;
  for (int a = 0; a < DT_STATIC_AXES; a++)
    if (split[a]) times = times ? 2 * times : 2;
  return times * longest(p);
}

int64_t dt_save_collected(const DtProgram *p) { return 2 * longest(p) * (int64_t)dt_type_size(p->type); }

int64_t dt_save_received(const DtProgram *p, const DtCut *cut) {
  return 2 * room(p, cut) * (int64_t)dt_type_size(p->type);
}

int64_t dt_save_sending(const DtProgram *p, const DtCut *cut) { return p->offload ? dt_save_received(p, cut) : 0; }

bool dt_save_behind(const DtProgram *p, const DtOptions *o) {
  return o->save && o->save_every && !o->save_sync && !p->offload;
}

int dt_save_snapshot_bytes(const DtProgram *p, const DtStages *s, int stage, const DtCut *cut, int ranks, int64_t *bytes,
                           DtError *e) {
  int degree[DT_AXES];
  int64_t most = 0;
  dt_mesh_degrees(p, ranks, degree);
  dt_writers(s, stage, cut, degree, p->nmoment, NULL, &most, e);
  *bytes = most * (int64_t)dt_type_size(p->type);
  return e->status;
}

int dt_save_open(DtSave *s, DtRun *r, bool parts, DtError *e) {
  *s = (DtSave){.r = r, .first = DT_MASTER};
  if (dt_names_make(&s->names, r->p, parts ? r->p->nmoment : 0, e)) return e->status;
  s->writer = calloc((size_t)s->names.n + 1, sizeof *s->writer);
  s->mine = calloc((size_t)s->names.n + 1, sizeof *s->mine);
  s->at = calloc((size_t)dt_world.size, sizeof *s->at);
  s->place = calloc((size_t)s->names.n + 1, sizeof *s->place);
  if (!s->writer || !s->mine || !s->at || !s->place)
    return dt_fail(e, DT_EXIT_OS, "no memory for the list of tensors");
  int64_t most;
  for (int i = 0; parts && i < r->zero.stages.n; i++)
    if (dt_writers(&r->zero.stages, i, &r->zero.cut, dt_world.degree, r->p->nmoment, s->writer, &most, e)) return e->status;
  for (int64_t i = 0; parts && i < s->names.n; i++) {
    if (s->writer[i] != dt_world.rank) continue;
    s->mine[s->nmine++] = s->names.tensor[i];
    s->place[i] = s->nsnapshot;
    s->nsnapshot += s->names.tensor[i].count;
  }
  s->snapshot = r->snapshot;
  s->chunk = longest(r->p);
  s->room = room(r->p, &r->zero.cut);
  for (int64_t i = 0; i < 2; i++) {
    s->gathered[i] = (char *)r->collected + (size_t)(i * s->chunk) * size_of(s);
    s->received[i] = (char *)r->received + (size_t)(i * s->room) * size_of(s);
    if (r->sending) s->sending[i] = (char *)r->sending + (size_t)(i * s->room) * size_of(s);
  }
  return dt_out_reserve(e);
}

void dt_save_close(DtSave *s) {
  dt_names_free(&s->names);
  free(s->writer);
  free(s->mine);
  free(s->at);
  free(s->place);
  *s = (DtSave){.r = NULL};
}
