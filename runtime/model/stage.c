#include "runtime/model/stage.h"

#include <stdlib.h>
#include <string.h>

static DtProgram view_of(const DtProgram *p, int stage) {
  DtProgram v = *p;
  if (p->pp < 2) return v;
  const DtStage *s = &p->stage[stage];
  v.nparam = s->nparam;
  v.param = s->param;
  v.nstack = s->nstack;
  v.stack = s->stack;
  v.param_count = s->param_count;
  v.frame_bytes = s->frame_bytes;
  return v;
}

// Numbers the stage's instances as the model does, and layers too.
static void number(DtStages *s, const DtProgram *p, int stage, const int64_t *base) {
  DtUnits *u = &s->units[stage];
  for (int64_t i = 0; i < u->ninstance; i++) {
    DtInstance *x = &u->instance[i];
    DtHeld h = p->pp < 2 ? (DtHeld){x->param, 0} : p->stage[stage].held[x->param];
    const DtParam *a = &s->view[stage].param[x->param];
    if (a->nstack) x->layer += h.first * (dt_param_slices(a) / a->extent[0]);
    x->number = base[h.param] + x->layer;
    if (s->home[x->number].stage < 0) s->home[x->number] = (DtHome){stage, i};
    x->counts = s->home[x->number].stage == stage && s->home[x->number].instance == i;
  }
  for (int64_t i = 0; i < u->nunit; i++)
    if (u->unit[i].stack) u->unit[i].layer += s->view[stage].stack[u->unit[i].stack - 1].first;
  u->model = s->ninstance;
}

static int number_all(DtStages *s, const DtProgram *p, DtError *e) {
  int64_t *base = calloc((size_t)p->nparam + 1, sizeof *base);
  for (int i = 0; base && i < p->nparam; i++) base[i + 1] = base[i] + dt_param_slices(&p->param[i]);
  s->ninstance = base ? base[p->nparam] : 0;
  s->home = calloc((size_t)s->ninstance + 1, sizeof *s->home);
  if (!base || !s->home) {
    free(base);
    return dt_fail(e, DT_EXIT_OS, "no memory for the table of tensors");
  }
  for (int64_t i = 0; i < s->ninstance; i++) s->home[i].stage = -1;
  for (int k = 0; k < s->n; k++) number(s, p, k, base);
  free(base);
  for (int64_t i = 0; i < s->ninstance; i++)
    if (s->home[i].stage < 0)
      return dt_fail(e, DT_EXIT_BUG, "no stage holds tensor %lld", (long long)i);
  return 0;
}

// ---- ties

typedef struct Held {
  int stage, param; // of the stage's
  int64_t unit;
  DtHeld what;
} Held;

// Parameters outside stacks, stage by stage: only these can be tied.
static int list_held(const DtStages *s, const DtProgram *p, Held *list) {
  int n = 0;
  for (int k = 0; k < s->n; k++) {
    int64_t unit = 0;
    for (int i = 0; i < s->view[k].nparam; i++)
      if (!s->view[k].param[i].stack) list[n++] = (Held){k, i, unit++, p->stage[k].held[i]};
  }
  return n;
}

static bool same(const Held *a, const Held *b) {
  return a->what.param == b->what.param && a->what.first == b->what.first;
}

static int add_tie(DtStages *s, const DtProgram *p, const Held *list, int n, int first,
                   DtError *e) {
  const DtParam *param = &p->param[list[first].what.param];
  DtTie t = {.name = param->name, .source = param->source};
  for (int i = 0; i < first; i++)
    if (same(&list[i], &list[first])) return 0;
  for (int i = first; i < n; i++) t.n += same(&list[i], &list[first]);
  if (t.n < 2) return 0;
  t.holder = calloc((size_t)t.n, sizeof *t.holder);
  if (!t.holder) return dt_fail(e, DT_EXIT_OS, "no memory for the table of tied tensors");
  t.n = 0;
  for (int i = first; i < n; i++)
    if (same(&list[i], &list[first])) t.holder[t.n++] = (DtHolder){list[i].stage, list[i].unit};
  s->tie[s->ntie++] = t;
  for (int i = 1; i < t.n; i++)
    if (s->units[t.holder[i].stage].unit[t.holder[i].unit].count !=
        s->units[t.holder[0].stage].unit[t.holder[0].unit].count)
      return dt_fail(e, DT_EXIT_BUG, "stages hold different parts of '%s'", t.name);
  return 0;
}

static int find_ties(DtStages *s, const DtProgram *p, DtError *e) {
  int all = 0;
  for (int k = 0; k < s->n; k++) all += s->view[k].nparam;
  Held *list = calloc((size_t)all + 1, sizeof *list);
  s->tie = calloc((size_t)all + 1, sizeof *s->tie);
  if (!list || !s->tie) {
    free(list);
    return dt_fail(e, DT_EXIT_OS, "no memory for the table of tied tensors");
  }
  int n = list_held(s, p, list);
  for (int i = 0; i < n && !e->status; i++) add_tie(s, p, list, n, i, e);
  free(list);
  return e->status;
}

int64_t dt_tie_count(const DtStages *s, int stage, int owners) {
  int64_t most = 0;
  for (int i = 0; i < s->ntie; i++) {
    const DtHolder *h = s->tie[i].holder;
    if (h[0].stage != stage || h[s->tie[i].n - 1].stage == stage) continue; // it receives nothing
    DtRange piece = dt_unit_piece(&s->units[stage].unit[h->unit], 0, owners);
    if (piece.hi > most) most = piece.hi;
  }
  return most;
}

int dt_stages_make(DtStages *s, const DtProgram *p, int owners, DtError *e) {
  *s = (DtStages){.n = p->pp > 1 ? p->pp : 1};
  s->view = calloc((size_t)s->n, sizeof *s->view);
  s->units = calloc((size_t)s->n, sizeof *s->units);
  if (!s->view || !s->units) return dt_fail(e, DT_EXIT_OS, "no memory for the table of stages");
  e->status = 0;
  for (int k = 0; k < s->n && !e->status; k++) {
    s->view[k] = view_of(p, k);
    dt_units_make(&s->units[k], &s->view[k], owners, e);
  }
  if (e->status || number_all(s, p, e) || (s->n > 1 && find_ties(s, p, e))) return e->status;
  return 0;
}

void dt_stages_free(DtStages *s) {
  for (int k = 0; k < s->n && s->units; k++) dt_units_free(&s->units[k]);
  for (int i = 0; i < s->ntie; i++) free(s->tie[i].holder);
  free(s->view);
  free(s->units);
  free(s->home);
  free(s->tie);
  memset(s, 0, sizeof *s);
}
