#include "runtime/train/rehearse.h"
#include "runtime/control.h"

#include "runtime/base/parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Said {
  DtOp op;
  int64_t receive; // number of a receive, from 1; or 0
  bool wait;       // for that receive, which `op` is
} Said;

static struct {
  Said *said;
  int64_t n, capacity, receives;
  bool no_memory;
} list;

// ---- writing down

static void add(Said s) {
  if (list.n == list.capacity) {
    int64_t capacity = list.capacity ? 2 * list.capacity : 256;
    Said *more = realloc(list.said, (size_t)capacity * sizeof *more);
    if (!more) {
      list.no_memory = true;
      return;
    }
    list.said = more;
    list.capacity = capacity;
  }
  list.said[list.n++] = s;
}

DtTicket dt_rehearse_post(const DtOp *op) {
  bool receive = op->kind == DT_OP_RECV;
  if (receive) list.receives++;
  add((Said){*op, receive ? list.receives : 0, false});
  return receive ? (DtTicket)list.receives : 0;
}

void dt_rehearse_wait(DtTicket receive) {
  for (int64_t i = list.n - 1; receive && i >= 0; i--) {
    if (list.said[i].wait || list.said[i].receive != (int64_t)receive) continue;
    add((Said){list.said[i].op, (int64_t)receive, true});
    return;
  }
}

void dt_rehearse_free(void) {
  free(list.said);
  memset(&list, 0, sizeof list);
}

void dt_rehearse_begin(void) {
  dt_rehearse_free();
  dt_rehearsing = true;
}

bool dt_rehearse_end(void) {
  dt_rehearsing = false;
  return !list.no_memory;
}

// One pass over a text, as dt_sample has it for every token.
static void text(DtRun *r) {
  DtCall call = {.data = {r->buffer[0]}, .scalars = r->scalars, .frame = r->frame, .out = r->frame};
  DtWalkJob job = {.data = r->buffer[0], .count = 1, .forward = DT_SAMPLE, .out = r->frame};
  DtError ignored = {0};
  if (r->p->nchunk) dt_walk(r, DT_WALK_SAMPLE, 0, &job, &ignored);
  if (r->p->nchunk) return;
  dt_zero_begin(&r->zero, &call);
  r->p->sample(&call);
}

int dt_rehearse(DtRun *r, bool training, DtError *e) {
  DtRun before = *r;
  DtResult result = {0};
  if (dt_world.size == 1) return 0;
  e->status = 0;
  dt_rehearse_begin();
  for (int i = 0; i < 2 && training && !e->status; i++) dt_step(r, &result, e);
  if (!e->status && r->has_val) dt_evaluate(r, &result, e);
  if (!e->status && r->o.sample > 0 && dt_samples(r->p) && dt_sample_needs_all(r)) text(r);
  bool kept = dt_rehearse_end();
  *r = before;
  dt_zero_forget(&r->zero);
  if (kept && !e->status) return 0;
  dt_rehearse_free();
  if (e->status) return e->status;
  return dt_fail(e, DT_EXIT_OS, "no memory to record the operations that ranks will exchange");
}

// ---- what was written down

// Whether all of a pipeline's ranks take part.
static bool of_all_stages(const DtGroup *g) {
  return g->id <= DT_ALL_AXES && g->id >> DT_AXIS_PP & 1;
}

DtTurn *dt_rehearse_turns(int64_t *n, int64_t **place) {
  DtTurn *t = malloc((size_t)(list.n + 1) * sizeof *t);
  *place = malloc((size_t)(list.n + 1) * sizeof **place);
  *n = 0;
  for (int64_t i = 0; t && *place && i < list.n; i++) {
    const Said *s = &list.said[i];
    if (!of_all_stages(s->op.g)) continue;
    DtTurnKind kind = s->wait                    ? DT_TURN_WAIT
                      : s->op.kind == DT_OP_RECV ? DT_TURN_RECV
                      : s->op.kind == DT_OP_SEND ? DT_TURN_SEND
                                                 : DT_TURN_ALL;
    (*place)[*n] = i;
    t[(*n)++] = (DtTurn){dt_op_hash(&s->op), s->receive, (int32_t)kind, (int32_t)s->op.peer};
  }
  if (t && *place) return t;
  free(t);
  free(*place);
  *place = NULL;
  return NULL;
}

void dt_rehearse_text(char *to, size_t n, int64_t place) {
  const Said *s = &list.said[place];
  int length = snprintf(to, n, "%s", s->wait ? "the wait for " : "");
  dt_op_text(to + length, n - (size_t)length, &s->op);
}

// ---- comparing the operations of a group

// Whether all members of a group post the operation: a message is posted by two ranks.
static bool shared(const Said *s) {
  return !s->wait && s->op.kind != DT_OP_SEND && s->op.kind != DT_OP_RECV;
}

// The hash of the first `n` operations of a group; *all: how many there are.
static uint64_t hash_of_group(int id, int64_t n, int64_t *all) {
  uint64_t h = 0;
  *all = 0;
  for (int64_t i = 0; i < list.n; i++) {
    const Said *s = &list.said[i];
    if (!shared(s) || s->op.g->id != id || (*all)++ >= n) continue;
    uint64_t both[] = {h, dt_op_hash(&s->op)};
    h = dt_turns_hash(both, 2);
  }
  return h;
}

// Where operation `number` of the group is in the list; -1: there are fewer.
static int64_t in_group(int id, int64_t number) {
  for (int64_t i = 0; i < list.n; i++)
    if (shared(&list.said[i]) && list.said[i].op.g->id == id && number-- == 0) return i;
  return -1;
}

static void from(int rank, void *data, size_t bytes) {
  DtNote note = {"rehearsal", -1, NULL};
  dt_control_broadcast(dt_group(DT_ALL_AXES), DT_TYPE_I32, rank, data, (int64_t)(bytes / 4), note);
}

enum { TEXT = 512 };

// Which of a group's operations is the first in which two ranks differ: by halves, so that a few
// numbers are exchanged. By all ranks.
static int64_t first_difference(int a, int b, int id) {
  int64_t n, mine[2] = {0}, lo = 0;
  hash_of_group(id, 0, &n);
  for (int k = 0; k < 2; k++) {
    mine[k] = n;
    from(k ? b : a, &mine[k], sizeof mine[k]);
  }
  for (int64_t hi = mine[0] < mine[1] ? mine[0] : mine[1]; lo < hi;) {
    int64_t mid = (lo + hi) / 2;
    uint64_t ours = hash_of_group(id, mid + 1, &n), theirs = ours;
    from(b, &theirs, sizeof theirs);
    int32_t differs = theirs != ours;
    from(a, &differs, sizeof differs);
    if (differs) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}

static int tell_difference(int a, int b, int id, DtError *e) {
  char theirs[TEXT] = "", ours[TEXT];
  int64_t at = first_difference(a, b, id);
  int64_t place = in_group(id, at);
  if (place < 0) snprintf(ours, TEXT, "nothing more");
  else dt_rehearse_text(ours, TEXT, place);
  if (dt_world.rank == b) memcpy(theirs, ours, TEXT);
  from(b, theirs, TEXT);
  if (dt_world.rank != a) return 0;
  return dt_fail(e, DT_EXIT_DISAGREE,
                 "ranks %d and %d would exchange different operations: operation %lld of their "
                 "group is, on rank %d, %s; on rank %d, %s",
                 a, b, (long long)at + 1, a, ours, b, theirs);
}

// The hashes of this rank's operations in each of its groups; 0: none. And the groups.
static void hash_groups(uint64_t *hash, const DtGroup **group) {
  memset(hash, 0, DT_GROUPS * sizeof *hash);
  memset(group, 0, DT_GROUPS * sizeof *group);
  for (int64_t i = 0; i < list.n; i++) {
    const DtOp *op = &list.said[i].op;
    if (!shared(&list.said[i])) continue;
    uint64_t both[] = {hash[op->g->id], dt_op_hash(op)};
    hash[op->g->id] = dt_turns_hash(both, 2);
    group[op->g->id] = op->g;
  }
}

// Whether a member of one of this rank's groups posts other operations in it than this rank: 1 + the
// group's number, and which rank; 0.
static int differs(const uint64_t *all, const DtGroup *const *group, int *who) {
  const uint64_t *mine = all + (size_t)dt_world.rank * DT_GROUPS;
  for (int id = 0; id < DT_GROUPS; id++)
    for (int k = 0; group[id] && k < group[id]->n; k++) {
      *who = group[id]->rank[k];
      if (all[(size_t)*who * DT_GROUPS + (size_t)id] != mine[id]) return 1 + id;
    }
  return 0;
}

static void everywhere(const DtGroup *g, const void *mine, void *all, size_t bytes) {
  DtNote note = {"rehearsal", -1, NULL};
  dt_control_gather(g, DT_TYPE_I32, mine, all, (int64_t)(bytes / 4), note);
}

static bool all_have(bool memory, DtError *e) {
  if (!dt_agree(memory ? 0 : DT_EXIT_OS)) return true;
  dt_fail(e, DT_EXIT_OS, "no memory to compare the operations of ranks");
  return false;
}

static int compare_groups(DtError *e) {
  const DtGroup *world = dt_group(DT_ALL_AXES);
  const DtGroup *group[DT_GROUPS];
  uint64_t mine[DT_GROUPS];
  uint64_t *all = calloc((size_t)world->n * DT_GROUPS, sizeof *all);
  if (!all_have(all, e)) {
    free(all);
    return e->status;
  }
  hash_groups(mine, group);
  everywhere(world, mine, all, sizeof mine);
  int other = 0, id = differs(all, group, &other);
  free(all);
  // The first rank that sees a difference, and in which group.
  int first = dt_agree(id ? dt_world.rank * DT_GROUPS + id : 0);
  if (!first) return 0;
  int32_t who[2] = {(first - 1) / DT_GROUPS, other};
  from(who[0], who, sizeof who);
  return tell_difference(who[0], who[1], (first - 1) % DT_GROUPS, e);
}

// ---- a pipeline's ranks, one of each stage

// The two ranks send the text of their operations; the first member of the pipeline reports both.
static int explain(const DtGroup *g, const DtStuck *s, const int64_t *place, DtError *e) {
  char what[2][TEXT] = {"", ""};
  DtNote note = {"rehearsal", -1, NULL};
  for (int k = 0; k < 2; k++) {
    if (s->at[k] >= 0 && s->who[k] == g->me) dt_rehearse_text(what[k], TEXT, place[s->at[k]]);
    dt_control_broadcast(g, DT_TYPE_I32, s->who[k], what[k], TEXT / 4, note);
  }
  if (g->me) return 0;
  return dt_fail(e, DT_EXIT_BUG,
                 "ranks would exchange operations that do not match: %s: rank %d, %s; and rank %d, "
                 "%s",
                 s->what, g->rank[s->who[0]], what[0], g->rank[s->who[1]],
                 s->at[1] < 0 ? "which has finished" : what[1]);
}

typedef struct Column { // a pipeline's ranks
  const DtGroup *g;
  DtTurn *mine, *all; // everybody's, padded to those of the longest
  int64_t *place, *n, most;
  const DtTurn **turn;
} Column;

static int run_column(Column *x, DtError *e) {
  size_t P = (size_t)x->g->n;
  int64_t n;
  x->n = calloc(P, sizeof *x->n);
  x->turn = calloc(P, sizeof *x->turn);
  x->mine = dt_rehearse_turns(&n, &x->place);
  if (!all_have(x->n && x->turn && x->mine, e)) return e->status;
  everywhere(x->g, &n, x->n, sizeof n);
  for (size_t r = 0; r < P; r++) x->most = x->n[r] > x->most ? x->n[r] : x->most;
  x->all = calloc(P * (size_t)x->most + 1, sizeof *x->all);
  if (!all_have(x->all, e)) return e->status;
  DtTurn *here = x->all + x->g->me * x->most;
  memcpy(here, x->mine, (size_t)n * sizeof *here);
  everywhere(x->g, here, x->all, (size_t)x->most * sizeof *x->all);
  for (size_t r = 0; r < P; r++) x->turn[r] = x->all + r * (size_t)x->most;
  DtStuck stuck;
  if (dt_turns_run(x->turn, x->n, x->g->n, &stuck)) return 0;
  if (stuck.who[0] < 0) return dt_fail(e, DT_EXIT_OS, "%s", stuck.what);
  return explain(x->g, &stuck, x->place, e);
}

static void run_pipeline(DtError *e) {
  Column x = {.g = dt_group(1u << DT_AXIS_PP)};
  if (x.g->n == 1) return;
  run_column(&x, e);
  free(x.mine);
  free(x.all);
  free(x.place);
  free(x.n);
  free(x.turn);
}

int dt_rehearse_compare(DtError *e) {
  if (dt_world.size == 1) return 0;
  e->status = 0;
  compare_groups(e);
  if (!dt_agree_on(e)) {
    run_pipeline(e);
    dt_agree_on(e);
  }
  dt_rehearse_free();
  return e->status;
}
