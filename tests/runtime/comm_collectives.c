// Every operation on worlds of 1 to 8 ranks, over every kind of group, on counts that do not
// divide, in place and not, against a serial sum in the order of ranks, bit for bit.
#define _GNU_SOURCE
#include "runtime/base/real.h"
#include "runtime/control.h"
#include "runtime/device.h"
#include "support/check.h"
#include "support/worlds.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { MOST = 400000 }; // elements: several times what a slot holds

static int failed;
static unsigned seed;

static void wrong(const DtGroup *g, const char *what, int type, int64_t count, int64_t i) {
  if (failed++ < 5)
    fprintf(stderr, "rank %d: %s over %s of %d, type %d, %lld elements: wrong at %lld\n",
            dt_world.rank, what, g->axes, g->n, type, (long long)count, (long long)i);
}

// The host reads the result.
static void finish(DtTicket t) {
  dt_wait(t);
  dt_device_sync();
}

static size_t size_of(DtType t) { return dt_type_size(t); }

static double rounded(DtType t, double v) {
  return t == DT_TYPE_F64    ? v
         : t == DT_TYPE_F32  ? (double)(float)v
         : t == DT_TYPE_BF16 ? (double)dt_from_bf16(dt_to_bf16((float)v))
         : t == DT_TYPE_F16  ? (double)dt_from_f16(dt_to_f16((float)v))
                             : (double)(int32_t)(v * 1e6);
}
static void put(DtType t, void *p, int64_t i, double v) {
  if (t == DT_TYPE_I32) ((int32_t *)p)[i] = (int32_t)v;
  else dt_put_real(t, p, i, v);
}

// Element i of what rank r brings.
static double brings(DtType t, int r, int64_t i) { return rounded(t, value_of(seed, r, i)); }
static void bring(DtType t, void *p, int64_t first, int64_t n) {
  for (int64_t i = 0; i < n; i++) put(t, p, i, brings(t, dt_world.rank, first + i));
}

// In order, in float where the type has no more bits; bits() rounds the whole sum to a 16-bit type.
static double reduced(const DtGroup *g, DtType t, DtReduce op, int64_t i) {
  double a = brings(t, g->rank[0], i);
  for (int m = 1; m < g->n; m++) {
    double b = brings(t, g->rank[m], i);
    a = op == DT_SUM ? rounded(DT_TYPE_F64, a + b) : op == DT_MAX ? (b > a ? b : a) : b < a ? b : a;
    if (op == DT_SUM && t != DT_TYPE_F64 && t != DT_TYPE_I32) a = (float)a;
  }
  return a;
}

static bool bits(DtType t, const void *p, int64_t i, double v) {
  char want[8];
  put(t, want, 0, v);
  return memcmp((const char *)p + (size_t)i * size_of(t), want, size_of(t)) == 0;
}

// Sums of floats may be in another order, where devices take them and EXACT is not in the environment.
static bool is_sum(DtType t, DtReduce op, const void *p, int64_t i, double v) {
  static const double roundoff[] = {[DT_TYPE_F32] = 0x1p-24, [DT_TYPE_F64] = 0x1p-53, [DT_TYPE_BF16] = 0x1p-8, [DT_TYPE_F16] = 0x1p-11};
  if (bits(t, p, i, v)) return true;
  if (op != DT_SUM || t == DT_TYPE_I32 || !dt_comm_links() || getenv("EXACT")) return false;
  double x = t == DT_TYPE_F64   ? ((const double *)p)[i]
             : t == DT_TYPE_F32 ? ((const float *)p)[i]
             : t == DT_TYPE_F16 ? dt_from_f16(((const uint16_t *)p)[i])
                                : dt_from_bf16(((const uint16_t *)p)[i]);
  return fabs(x - v) <= 16 * dt_world.size * roundoff[t];
}

typedef struct {
  const DtGroup *g;
  DtType type;
  int64_t count;
  void *a, *b; // MOST elements
  bool in_place;
} Case;

static void check_all_reduce(const Case *c, DtReduce op) {
  DtNote note = {"test", 3, "test.dt:1"};
  bring(c->type, c->a, 0, c->count);
  void *out = c->in_place ? c->a : c->b;
  finish(dt_all_reduce(c->g, c->type, op, c->a, out, c->count, note));
  for (int64_t i = 0; i < c->count; i++)
    if (!is_sum(c->type, op, out, i, reduced(c->g, c->type, op, i))) {
      wrong(c->g, "all_reduce", c->type, c->count, i);
      break;
    }
}

static int64_t piece(const Case *c) { return (c->count + c->g->n - 1) / c->g->n; }
static int64_t there(const Case *c, int k) {
  int64_t left = c->count - k * piece(c);
  return left < 0 ? 0 : left < piece(c) ? left : piece(c);
}

static void check_reduce_scatter(const Case *c, DtReduce op) {
  DtNote note = {"test", -1, NULL};
  bring(c->type, c->a, 0, c->count);
  int64_t first = c->g->me * piece(c);
  void *out = c->in_place ? (char *)c->a + (size_t)first * size_of(c->type) : c->b;
  if (c->in_place && first > c->count) out = c->b;
  finish(dt_reduce_scatter(c->g, c->type, op, c->a, out, c->count, note));
  for (int64_t i = 0; i < there(c, c->g->me); i++)
    if (!is_sum(c->type, op, out, i, reduced(c->g, c->type, op, first + i))) {
      wrong(c->g, "reduce_scatter", c->type, c->count, i);
      break;
    }
}

static void check_all_gather(const Case *c) {
  DtNote note = {"test", 0, "x"};
  int64_t first = c->g->me * piece(c), n = there(c, c->g->me);
  char *own = (char *)c->b + (size_t)(n ? first : 0) * size_of(c->type);
  memset(c->b, 77, (size_t)c->count * size_of(c->type));
  bring(c->type, c->in_place ? own : c->a, first, n);
  finish(dt_all_gather(c->g, c->type, c->in_place ? own : c->a, c->b, c->count, note));
  for (int m = 0; m < c->g->n; m++)
    for (int64_t i = 0; i < there(c, m); i++)
      if (!bits(c->type, c->b, m * piece(c) + i,
                brings(c->type, c->g->rank[m], m * piece(c) + i))) {
        wrong(c->g, "all_gather", c->type, c->count, i);
        return;
      }
}

static void check_all_to_all(const Case *c) {
  DtNote note = {"test", 0, NULL};
  int64_t part = c->count / c->g->n;
  bring(c->type, c->a, 0, part * c->g->n);
  void *out = c->in_place ? c->a : c->b;
  finish(dt_all_to_all(c->g, c->type, c->a, out, part * c->g->n, note));
  for (int m = 0; m < c->g->n; m++)
    for (int64_t i = 0; i < part; i++)
      if (!bits(c->type, out, m * part + i, brings(c->type, c->g->rank[m], c->g->me * part + i))) {
        wrong(c->g, "all_to_all", c->type, c->count, i);
        return;
      }
}

static void check_shift(const Case *c) {
  DtNote note = {"test", 0, NULL};
  bring(c->type, c->a, 0, c->count);
  finish(dt_shift(c->g, c->type, c->a, c->b, c->count, note));
  int before = c->g->rank[(c->g->me + c->g->n - 1) % c->g->n];
  for (int64_t i = 0; i < c->count; i++)
    if (!bits(c->type, c->b, i, brings(c->type, before, i))) {
      wrong(c->g, "shift", c->type, c->count, i);
      return;
    }
}

static void check_broadcast(const Case *c, int root) {
  DtNote note = {"test", 0, NULL};
  bring(c->type, c->a, 0, c->count);
  finish(dt_broadcast(c->g, c->type, root, c->a, c->count, note));
  for (int64_t i = 0; i < c->count; i++)
    if (!bits(c->type, c->a, i, brings(c->type, c->g->rank[root], i))) {
      wrong(c->g, "broadcast", c->type, c->count, i);
      return;
    }
}

// Round the ring: even members send first, then all pass the other way, with two under way at once.
static void check_pairs(const Case *c) {
  DtNote note = {"test", 0, NULL};
  int n = c->g->n, next = (c->g->me + 1) % n, before = (c->g->me + n - 1) % n;
  if (n == 1) return;
  bring(c->type, c->a, 0, c->count);
  DtTicket s, r;
  if (c->g->me % 2 == 0) {
    s = dt_send(c->g, next, c->type, c->a, c->count, note);
    r = dt_recv(c->g, before, c->type, c->b, c->count, note);
  } else {
    r = dt_recv(c->g, before, c->type, c->b, c->count, note);
    s = dt_send(c->g, next, c->type, c->a, c->count, note);
  }
  dt_wait(s);
  finish(r);
  for (int64_t i = 0; i < c->count; i++)
    if (!bits(c->type, c->b, i, brings(c->type, c->g->rank[before], i))) {
      wrong(c->g, "send and recv", c->type, c->count, i);
      return;
    }
}

static void check_group(const DtGroup *g, Case c) {
  c.g = g;
  if (g->rank[g->me] != dt_world.rank) wrong(g, "the group", 0, 0, 0);
  for (int m = 1; m < g->n; m++)
    if (g->rank[m] <= g->rank[m - 1]) wrong(g, "the order of the group", 0, 0, m);
  seed++;
  check_all_reduce(&c, DT_SUM);
  check_reduce_scatter(&c, DT_SUM);
  check_all_gather(&c);
  check_all_to_all(&c);
  check_shift(&c);
  check_broadcast(&c, (int)(seed % (unsigned)g->n));
  check_pairs(&c);
  if (c.count > 1000) return;
  check_all_reduce(&c, DT_MAX);
  check_all_reduce(&c, DT_MIN);
  check_reduce_scatter(&c, DT_MAX);
  dt_barrier(g);
}

static void check_cuts(Case c) {
  const DtGroup *all = dt_group(15);
  for (int part = 1; part <= all->n; part++) {
    if (all->n % part) continue;
    check_group(dt_group_within(all, part), c);
    check_group(dt_group_across(all, part), c);
    if (dt_group_within(all, part)->n != part || dt_group_across(all, part)->n * part != all->n)
      wrong(all, "the cut", 0, 0, part);
    if (dt_group_within(all, part) != dt_group_within(all, part)) wrong(all, "the cut", 0, 0, part);
  }
}

static int all_checks(void *large) {
  static const int64_t small[] = {0, 1, 7, 997, 5003};
  static const DtType types[] = {DT_TYPE_F32, DT_TYPE_F64, DT_TYPE_I32, DT_TYPE_BF16, DT_TYPE_F16};
  Case c = {.a = malloc(MOST * 8), .b = malloc(MOST * 8)};
  // Each mask meets each type with some of the counts.
  for (int i = 0; i < (int)(sizeof small / sizeof *small); i++) {
    c.count = small[i];
    for (int mask = 0; mask <= 1 << DT_AXES; mask++) {
      c.type = types[(mask + i) % 5];
      c.in_place = (i + mask / 2) % 2;
      if (mask < 1 << DT_AXES) check_group(dt_group((unsigned)mask), c);
      else check_cuts(c);
    }
  }
  for (int i = 0; large && i < 3; i++) {
    c.type = i < 2 ? DT_TYPE_F32 : DT_TYPE_BF16;
    c.in_place = i > 0;
    c.count = i ? MOST : 65537;
    check_group(dt_group(DT_ALL_AXES), c);
    check_group(dt_group(1 << DT_AXIS_DP | 1 << DT_AXIS_TP), c);
  }
  free(c.a);
  free(c.b);
  return failed ? 1 : 0;
}

static void check_coordinates(void) {
  const DtWorld *w = &dt_world;
  int r = 0;
  for (int a = DT_AXES; a-- > 0;) r = r * w->degree[a] + w->coord[a];
  if (r != w->rank) wrong(dt_group(0), "coordinates", 0, 0, r);
  int n = 1;
  for (int a = 0; a < DT_AXES; a++) n *= w->degree[a];
  if (n != w->size) wrong(dt_group(0), "degrees", 0, 0, n);
}

// Many operations posted before the first is waited for, on different groups, with random delays.
static int many_at_once(void *unused) {
  enum { OPS = 1500, N = 50 };
  (void)unused;
  check_coordinates();
  float *x = malloc(OPS * N * sizeof *x);
  DtTicket *t = malloc(OPS * sizeof *t);
  for (int i = 0; i < OPS; i++) {
    const DtGroup *g = dt_group((unsigned)(i * 7) % 16);
    DtNote note = {"many", i, NULL};
    for (int k = 0; k < N; k++) x[i * N + k] = (float)brings(DT_TYPE_F32, dt_world.rank, i + k);
    t[i] = i % 3 == 2 ? dt_broadcast(g, DT_TYPE_F32, i % g->n, &x[i * N], N, note)
                      : dt_all_reduce(g, DT_TYPE_F32, DT_SUM, &x[i * N], &x[i * N], N, note);
    if (value_of(5, dt_world.rank, i) > 1.99) sleep_ms(10);
  }
  for (int i = OPS - 1; i >= 0; i--) dt_wait(t[i]);
  dt_device_sync();
  for (int i = 0; i < OPS; i++) {
    const DtGroup *g = dt_group((unsigned)(i * 7) % 16);
    for (int k = 0; k < N; k++) {
      double v = i % 3 == 2 ? brings(DT_TYPE_F32, g->rank[i % g->n], i + k)
                            : reduced(g, DT_TYPE_F32, DT_SUM, i + k);
      if (!is_sum(DT_TYPE_F32, DT_SUM, &x[i * N], k, v)) wrong(g, "many", i % 3, N, i);
    }
  }
  free(x);
  free(t);
  int lowest = dt_agree(dt_world.rank == dt_world.size - 1 ? 70 : dt_world.rank ? 75 : 0);
  if (lowest != 70 || dt_agree(0)) wrong(dt_group(15), "agree", 0, 0, lowest);
  return failed ? 1 : 0;
}

// Two ranks in turn tell the others something new, while one of those is still at the first of it.
static int taking_turns(void *unused) {
  enum { TURNS = 40 };
  (void)unused;
  DtNote note = {"turns", -1, NULL};
  if (dt_world.rank == 2) sleep_ms(30);
  for (int i = 0; i < TURNS; i++) {
    int32_t v = dt_world.rank == i % 2 ? 100 + i : 0;
    note.layer = i;
    finish(dt_broadcast(dt_group(15), DT_TYPE_I32, i % 2, &v, 1, note));
    if (v != 100 + i) wrong(dt_group(15), "turns", DT_TYPE_I32, 1, i);
  }
  return failed ? 1 : 0;
}

static int not_a_number(void *unused) {
  (void)unused;
  float v = dt_world.rank == 1 ? 0.0f / 0.0f : (float)dt_world.rank, max = 0, min = 0;
  DtNote note = {"nan", -1, NULL};
  finish(dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_MAX, &v, &max, 1, note));
  finish(dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_MIN, &v, &min, 1, note));
  return max == max || min == min;
}

static int agreeing(void *differs) {
  DtError e = {0};
  char text[2000];
  int n = snprintf(text, sizeof text, "build: abc\n");
  for (int i = 0; i < 20; i++)
    n += snprintf(text + n, sizeof text - (size_t)n, "option %d: yes\n", i);
  snprintf(text + n, sizeof text - (size_t)n, "seed: %d\n",
           differs && dt_world.rank >= 2 ? dt_world.rank : 1);
  int status = dt_comm_handshake(text, &e);
  if (!differs) return status;
  return status != DT_EXIT_DISAGREE ||
         !strstr(e.text, "rank 0 has \"seed: 1\", rank 2 has \"seed: 2\"");
}

// One rank that a launcher has started, on a mesh of TP CP PP.
static int launched(char **argv) {
  DtProgram p = {.tp = atoi(argv[2]), .cp = atoi(argv[3]), .pp = atoi(argv[4])};
  DtError e = {0};
  if (dt_comm_start(&p, 0, 60, &e) || open_device(1, &e)) {
    fprintf(stderr, "%s\n", e.text);
    return e.status;
  }
  int status = all_checks("large") || many_at_once(NULL);
  close_device();
  dt_comm_stop();
  if (!status) printf("rank %d of %d is content\n", dt_world.rank, dt_world.size);
  return status;
}

// Rank argv[2] is killed or stopped, and the others wait for it; argv[3]: --timeout.
static int lost(char **argv) {
  static const DtProgram p;
  DtError e = {0};
  if (dt_comm_start(&p, 0, atof(argv[3]), &e)) {
    fprintf(stderr, "%s\n", e.text);
    return e.status;
  }
  for (int step = 1; step <= 3; step++) {
    dt_comm_step(step);
    dt_barrier(dt_group(15));
    if (dt_world.rank == atoi(argv[2])) raise(strcmp(argv[1], "killed") ? SIGSTOP : SIGKILL);
  }
  dt_comm_stop();
  return 0;
}

// comm_collectives [MOST]: worlds of up to so many ranks. comm_collectives launched TP CP PP and
// killed|stopped RANK TIMEOUT: what mpirun is to start.
int main(int argc, char **argv) {
  if (argc == 5) return launched(argv);
  if (argc == 4) return lost(argv);
  int most = argc > 1 ? atoi(argv[1]) : 8; // ranks of a world
  static const int world[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {2, 2, 1, 1}, {3, 1, 1, 3},
                                 {4, 2, 1, 1}, {4, 1, 2, 2}, {6, 3, 1, 2}, {6, 1, 1, 1},
                                 {8, 2, 1, 2}, {8, 2, 2, 1}};
  for (size_t i = 0; i < sizeof world / sizeof *world; i++) {
    const int *w = world[i];
    if (w[0] > most) continue;
    fprintf(stderr, "%d ranks, tp %d, cp %d, pp %d\n", w[0], w[1], w[2], w[3]);
    CHECK(in_world(w[0], w[1], w[2], w[3], 60, all_checks, (void *)(i % 2 ? "large" : NULL),
                   NULL) == 0);
    CHECK(in_world(w[0], w[1], w[2], w[3], 60, many_at_once, NULL, NULL) == 0);
  }
  CHECK(in_world(3, 1, 1, 1, 60, taking_turns, NULL, NULL) == 0);
  CHECK(in_world(3, 1, 1, 1, 60, not_a_number, NULL, NULL) == 0);
  CHECK(in_world(4, 2, 1, 1, 60, agreeing, NULL, NULL) == 0);
  CHECK(in_world(4, 1, 1, 2, 60, agreeing, "differs", NULL) == 0);
  check_folder();
  int s = in_world(5, 2, 1, 3, 60, agreeing, NULL, "said");
  size_t n;
  char *said = read_whole("said", &n);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == DT_EXIT_MISFIT);
  CHECK_SAYS(said,
             "5 ranks: the program was compiled for tp 2 x cp 1 x pp 3, so the number of ranks "
             "must be a multiple of 6, such as 6");
  free(said);
  return check_done();
}
