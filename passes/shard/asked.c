// The cuts that a model asks for, `shard(i: tp)`: Index.on, Index.off and Param.asked. The solver
// obeys them; those that no plan can obey are reported here, with the reason.
#include "passes/shard/shard.h"

int shard_asked(const Sharder *z, Id fn, uint32_t stmt) {
  const Stmt *s = &z->m->fn.at[fn].stmt.at[stmt];
  if (fn == z->free_fn && stmt == z->free_stmt) return ASKED_NOTHING;
  for (uint32_t i = 0; i < s->nindex; i++)
    if (s->index[i].on & z->named) return (int)i;
  for (uint32_t i = 0; i < s->nindex; i++)
    if (s->index[i].off & z->named) return ASKED_WHOLE;
  return ASKED_NOTHING;
}

static int asked_of(const Sharder *z, uint32_t param) {
  const Param *p = &z->m->param.at[param];
  for (uint32_t a = 0; a < NAMED_AXES; a++)
    if ((z->named >> a & 1) && param != z->free_param) return p->asked[a];
  return 0;
}

bool shard_asked_home(const Sharder *z, uint32_t param, Shard *home) {
  const Param *p = &z->m->param.at[param];
  int asked = asked_of(z, param);
  *home = shard_whole();
  if (asked <= 0) return asked < 0;
  uint32_t d = p->nstack + (uint32_t)asked - 1;
  *home = shard_split(d, shard_block(p->extent[d], z->n));
  return true;
}

void asked_homes(const Sharder *z, Level *l) {
  for (uint32_t i = 0; i < l->slot.n; i++) {
    Slot *s = &l->slot.at[i];
    if (s->param == NONE || s->grad) continue;
    Shard home;
    bool said = shard_asked_home(z, s->param, &home);
    if (!said && s->param != z->free_param) continue;
    if (home.kind == SHARD_SPLIT)
      home.dim = (uint8_t)(home.dim - (z->m->param.at[s->param].rank - s->of.rank));
    s->is_fixed[z->axis] = said;
    s->fixed[z->axis] = home;
  }
  for (uint32_t i = 0; i < l->cluster.n; i++) asked_homes(z, l->cluster.at[i].in);
}

void asked_forget(Module *m) {
  for (Id k = 0; k < m->fn.n; k++)
    for (uint32_t i = 0; i < m->fn.at[k].stmt.n; i++)
      for (uint32_t j = 0; j < m->fn.at[k].stmt.at[i].nindex; j++)
        m->fn.at[k].stmt.at[i].index[j].on = m->fn.at[k].stmt.at[i].index[j].off = 0;
  for (uint32_t i = 0; i < m->param.n; i++)
    memset(m->param.at[i].asked, 0, sizeof m->param.at[i].asked);
}

// ---- cuts that no plan can obey

static Str axis_of(const Sharder *z) { return z->m->axis.at[z->axis].name; }

// Whether an axis that is solved already has the index.
static bool is_taken(const Sharder *z, const Item *it, uint32_t index) {
  for (uint32_t a = 0; a < z->m->axis.n; a++) {
    Assign g = it->done[a].choice.assign;
    if (z->solved[a] && g.kind == ASSIGN_INDEX && g.index == index) return true;
  }
  return false;
}

// The reason why an index cannot be cut, for any plan around its statement; NULL: it can.
static const char *index_refused(Sharder *z, const Level *l, const Item *it, uint32_t index) {
  const Body *body = &l->body.at[it->body];
  const Fn *f = &z->m->fn.at[body->fn];
  const Stmt *s = &f->stmt.at[it->stmt];
  Id class = class_of_index(&z->class, body->fn, it->stmt, index);
  int64_t extent = s->index[index].extent;
  Buf why = {0};
  Shard made;
  if (extent < 2) return "it has one position";
  if (z->class.batch[class]) return "it runs over samples, which data-parallel ranks divide";
  if (!shard_allowed(z, class, extent))
    return z->context ? "it runs over no sequence"
                      : "it runs over the sequence, which is on tp with --sequence-parallel only";
  if (is_taken(z, it, index)) return "its extent does not divide over two axes";
  ShardAsk q = {z->m, f, s, z->axis, NEWN(z->m->arena, Shard, f->value.n + 1)};
  Assign a = {ASSIGN_INDEX, (uint8_t)index, shard_block(extent, z->n)};
  if (shard_makes(&q, a, &made, &why)) return NULL;
  CHECK(why.text);
  const char *text = arena_printf(z->m->arena, "%s", why.text);
  buf_free(&why);
  return text;
}

static void report_stmt(Sharder *z, const Level *l, const Item *it, const char *why) {
  Id fn = l->body.at[it->body].fn;
  const Stmt *s = &z->m->fn.at[fn].stmt.at[it->stmt];
  Str value = z->m->fn.at[fn].value.at[s->lhs].name;
  int asked = shard_asked(z, fn, it->stmt);
  if (asked >= 0)
    diag_error(z->m->src, s->loc, "index '%s' of '%s' cannot be cut over %lld ranks of %s: %s",
               s->index[asked].name, value, (long long)z->n, axis_of(z), why);
  else
    diag_error(z->m->src, s->loc, "'%s' cannot be computed whole on each of %lld ranks of %s: %s",
               value, (long long)z->n, axis_of(z), why);
}

// Reports a statement that has no way at all to be done as the model says.
static bool report_impossible(Sharder *z, const Level *l) {
  for (uint32_t i = 0; i < l->item.n; i++) {
    const Item *it = &l->item.at[i];
    if (it->kind != ITEM_COMP || it->choice.n) continue;
    int asked = shard_asked(z, l->body.at[it->body].fn, it->stmt);
    if (asked == ASKED_NOTHING) continue;
    const char *why = asked >= 0 ? index_refused(z, l, it, (uint32_t)asked) : NULL;
    report_stmt(z, l, it, why ? why : "its operands or its result cannot have that layout");
    return true;
  }
  for (uint32_t i = 0; i < l->cluster.n; i++)
    if (report_impossible(z, l->cluster.at[i].in)) return true;
  return false;
}

bool asked_possible(const Sharder *z) {
  for (uint32_t i = 0; i < z->m->param.n; i++) {
    const Param *p = &z->m->param.at[i];
    int asked = asked_of(z, i);
    if (asked <= 0 || p->extent[p->nstack + asked - 1] > 1) continue;
    diag_error(z->m->src, p->loc,
               "dimension %d of parameter '%s' cannot be cut over %lld ranks of %s: it has one "
               "position",
               asked - 1, p->name, (long long)z->n, axis_of(z));
    return false;
  }
  return true;
}

static const char together[] = "no plan of the statements around it allows that";

// Reports the first statement without whose annotation there is a plan, or the first of all.
static bool report_stmts(Sharder *z, Level *l, Level *in, bool any) {
  for (uint32_t i = 0; i < in->item.n; i++) {
    const Item *it = &in->item.at[i];
    Id fn = in->body.at[it->body].fn;
    if (it->kind != ITEM_COMP || shard_asked(z, fn, it->stmt) == ASKED_NOTHING) continue;
    z->free_fn = fn;
    z->free_stmt = it->stmt;
    bool this = any || entry_solve(z, l);
    z->free_fn = z->free_stmt = NONE;
    if (!this) continue;
    report_stmt(z, in, it, together);
    return true;
  }
  for (uint32_t i = 0; i < in->cluster.n; i++)
    if (report_stmts(z, l, in->cluster.at[i].in, any)) return true;
  return false;
}

static bool report_params(Sharder *z, Level *l, bool any) {
  for (uint32_t i = 0; i < z->m->param.n; i++) {
    const Param *p = &z->m->param.at[i];
    int asked = asked_of(z, i);
    if (!asked) continue;
    z->free_param = i;
    asked_homes(z, l);
    bool this = any || entry_solve(z, l);
    z->free_param = NONE;
    asked_homes(z, l);
    if (!this) continue;
    if (asked < 0)
      diag_error(z->m->src, p->loc, "parameter '%s' cannot be whole on %lld ranks of %s: %s",
                 p->name, (long long)z->n, axis_of(z), together);
    else
      diag_error(z->m->src, p->loc,
                 "dimension %d of parameter '%s' cannot be cut over %lld ranks of %s: %s",
                 asked - 1, p->name, (long long)z->n, axis_of(z), together);
    return true;
  }
  return false;
}

bool asked_refused(Sharder *z, Level *l, bool homes) {
  return report_impossible(z, l) || (homes && report_params(z, l, false)) ||
         report_stmts(z, l, l, false) || (homes && report_params(z, l, true)) ||
         report_stmts(z, l, l, true);
}
