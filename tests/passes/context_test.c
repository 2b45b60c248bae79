// Context parallelism in float64: models whose statements ask for positions (causal masks, rotary,
// learned and sinusoidal positions, dropout) compute on the ranks of a mesh what one rank does,
// every gradient included. Where attention is causal and the sequence divides, each rank has an
// early and a late block of it. Keys and values are gathered or go round. And a wrong position in
// the program of a rank is noticed. The program before it was cut says what is right.
#include <stdlib.h>

#include "ir/verify.h"
#include "passes/passes.h"
#include "support/mesh.h"
#include "tests/oracle/oracle.h"

// What is compared of a rank's program: its step.
static bool step_differs(const Module *plain, const Module *whole, const Module *local,
                         double *worst) {
  Buf error = {0};
  ArgOptions args = {.seed = 5};
  InterpOptions run = {.seed = 7, .step = 2};
  bool ran = ranks_compare_to(plain, plain->entry[ENTRY_STEP], whole, local,
                              whole->entry[ENTRY_STEP], &args, &run, worst, &error);
  if (!ran) {
    printf("     %s\n", error.text ? error.text : "");
    *worst = 1;
  }
  buf_free(&error);
  return !(*worst <= 1e-11);
}

static Module *parsed(Arena *a, const Module *m) {
  Buf text = {0};
  ir_print(m, &text);
  const char *kept = arena_copy(a, text.text, text.n + 1);
  buf_free(&text);
  return load_module(a, "printed.ir", kept);
}

// ---- models

static const struct {
  const char *name, *define[MAX_DEFINES];
  bool causal;
} model[] = {
    {"examples/gpt2",
     {"vocab=19", "context=25", "layers=2", "heads=4", "dim=8", "train.length=24", "train.batch=3",
      "train.microbatch=2"},
     true},
    {"examples/llama",
     {"vocab=19", "layers=2", "heads=4", "kv_heads=2", "dim=16", "hidden=10", "train.length=24",
      "train.batch=3", "train.microbatch=2"},
     true},
    {"examples/classifier",
     {"vocab=11", "length=24", "layers=2", "heads=2", "dim=8", "train.batch=3",
      "train.microbatch=2"},
     false},
    {"tests/passes/shard/context", {NULL}, true},
};
static const Mesh mesh[] = {
    {"cp=2", 1, 2, false, false, false},
    {"cp=3", 1, 3, false, false, false},
    {"tp=2 cp=2", 2, 2, false, false, false},
    {"tp=2 cp=2, t too", 2, 2, true, false, false},
    {"cp=2, ring", 1, 2, false, false, true},
    {"cp=3, ring", 1, 3, false, false, true},
    {"cp=4, ring", 1, 4, false, false, true},
    {"tp=2 cp=2, ring", 2, 2, false, false, true},
    {"tp=2 cp=3, ring", 2, 3, false, false, true},
};
enum { MODELS = sizeof model / sizeof *model, MESHES = sizeof mesh / sizeof *mesh };

static bool folds(const Module *m) {
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (m->axis.at[a].folded) return true;
  return false;
}

static bool check(int i, const Mesh *k) {
  Arena *a = arena_new();
  double worst = 0;
  Buf why = {0};
  Module *whole = mesh_shard(a, model[i].name, model[i].define, k, NULL, NULL);
  Module *local = whole ? parsed(a, whole) : NULL;
  bool ok = local && pass_localise(local);
  if (ok && folds(whole) != model[i].causal) ok = printf("     folded, or not\n") < 0;
  if (ok && !ir_verify_ranges(local, &why)) ok = printf("     %s\n", why.text) < 0;
  Module *plain = ok ? mesh_compile(a, model[i].name, model[i].define) : NULL;
  ok = plain && !step_differs(plain, whole, local, &worst);
  printf("%-4s %-28s %-18s error %.1e\n", ok ? "ok" : "FAIL", model[i].name, k->name, worst);
  buf_free(&why);
  arena_free(a);
  return ok;
}

// ---- planted faults

// In the local form of Llama on cp=2, or on cp=3 as a ring: within functions whose names begin so,
// `from` becomes `to`.
static const struct {
  bool ring;
  const char *what, *in, *from, *to;
} fault[] = {
    {false, "the mask's offset, backward", "attention.causal.backward", "(2 - $rank.cp) * 6",
     "(1 - $rank.cp) * 6"},
    {false, "the mask's offset, forward", "attention.causal(", "(2 - $rank.cp) * 6",
     "$rank.cp * 6"},
    {false, "a mask of local positions, backward", "attention.causal.backward", "$rank.cp * 6 + t",
     "t"},
    {false, "rotary angles of local positions", "Block.forward.3", "where(p < 6, $rank.cp * 6 + p,",
     "where(p < 6, p,"},
    {false, "rotary angles of other positions, backward", "Block.backward", "h.k.2.angle[t, i]",
     "h.k.2.angle[11 - t, i]"},
    {false, "blocks of keys in the order of ranks", "Block.forward.3",
     "where(q % 2 == 0, r, 1 - r)", "r"},
    {false, "gradients of keys to another rank", "Block.backward",
     "d.h.k.2[i, ((q * 2 + where(q % 2 == 0, r, 1 - r)) c)", "d.h.k.2[i, (q r c)"},
    {true, "keys taken for another rank's", "Block.forward.3", "($rank.cp + 1) % 3",
     "($rank.cp + 2) % 3"},
    {true, "keys taken for another rank's, backward", "Block.backward", "($rank.cp + 1) % 3",
     "($rank.cp + 2) % 3"},
    {true, "keys of later blocks, backward", "attention.causal.backward.part",
     "(4 - from) * 4 + s", "(3 - from) * 4 + s"},
    {true, "gradients that do not come home", "Block.backward", "k.came.3[b, s, g, e]",
     "k.sum.2[b, s, g, e]"},
    {true, "parts merged with one's own weight", "Block.forward.3", "weight.part.2[b, g, r, t]",
     "weight.2[b, g, r, t]"},
};
enum { FAULTS = sizeof fault / sizeof *fault };

// Replaces within the functions; how often.
static int replace_in(const char *text, int which, Buf *out) {
  size_t from = strlen(fault[which].from), in = strlen(fault[which].in);
  bool inside = false;
  int n = 0;
  while (*text) {
    if (!strncmp(text, "func ", 5)) inside = !strncmp(text + 5, fault[which].in, in);
    if (inside && !strncmp(text, fault[which].from, from)) {
      buf_printf(out, "%s", fault[which].to);
      text += from;
      n++;
    } else {
      buf_printf(out, "%c", *text++);
    }
  }
  return n;
}

static bool check_fault(const Module *plain, const Module *whole, const char *text, int which) {
  Arena *a = arena_new();
  Buf edited = {0};
  double worst = 0;
  int n = replace_in(text, which, &edited);
  Module *bad = load_module(a, "edited.ir", edited.text);
  bool ok = n && bad && step_differs(plain, whole, bad, &worst);
  printf("%-4s %s: edited in %d places, error %.1e\n", ok ? "ok" : "FAIL", fault[which].what, n,
         worst);
  buf_free(&edited);
  arena_free(a);
  return ok;
}

static int check_faults(bool ring, const Mesh *k) {
  Arena *a = arena_new();
  Buf text = {0};
  int bad = 0;
  Module *whole = mesh_shard(a, model[1].name, model[1].define, k, NULL, NULL);
  Module *local = whole ? parsed(a, whole) : NULL;
  Module *plain = mesh_compile(a, model[1].name, model[1].define);
  if (!local || !plain || !pass_localise(local)) return 1;
  ir_print(local, &text);
  for (int i = 0; i < FAULTS; i++)
    if (fault[i].ring == ring) bad += !check_fault(plain, whole, text.text, i);
  buf_free(&text);
  arena_free(a);
  return bad;
}

// ---- what a ring holds

// Whether no block of the model gathers, and keys and values go round: forward 2 (n - 1) shifts,
// and backward with their gradients 2 n more.
static bool check_ring(const Mesh *k) {
  Arena *a = arena_new();
  int shifts[3] = {0}, others = 0; // without gradients; with; anything else
  Module *m = mesh_shard(a, model[1].name, model[1].define, k, NULL, NULL);
  bool ok = m && pass_localise(m);
  for (Id f = 0; ok && f < m->fn.n; f++) {
    bool backward = !strncmp(m->fn.at[f].name, "Block.backward", 14);
    bool forward = !strcmp(m->fn.at[f].name, "Block.forward");
    for (uint32_t i = 0; (forward || backward) && i < m->fn.at[f].stmt.n; i++) {
      const Stmt *s = &m->fn.at[f].stmt.at[i];
      if (s->kind != ST_COLL) continue;
      if (s->coll == COLL_SHIFT) shifts[backward]++;
      else others++;
    }
  }
  int n = (int)k->cp;
  ok = ok && shifts[0] == 2 * (n - 1) && shifts[1] == 2 * (n - 1) + 2 * n && !others;
  printf("%-4s %s: %d shifts forward, %d backward, %d other collectives\n", ok ? "ok" : "FAIL",
         k->name, shifts[0], shifts[1], others);
  arena_free(a);
  return ok;
}

// Without arguments, models and meshes in turn; with `all`, each of them on each.
int main(int argc, char **argv) {
  bool all = argc > 1 && !strcmp(argv[1], "all");
  int bad = 0;
  for (int i = 0; i < MODELS; i++)
    for (int k = 0; k < MESHES; k++)
      if (all || (i + k) % 3 == 0) bad += !check(i, &mesh[k]);
  bad += check_faults(false, &mesh[0]) + check_faults(true, &mesh[5]);
  bad += !check_ring(&mesh[4]) + !check_ring(&mesh[6]);
  printf("%d fail\n", bad);
  return bad != 0;
}
