// `shard(i: tp)` after a statement or a parameter's dimensions: checked here, and kept in the IR for
// pass shard.
#include "frontend/front.h"

// The axis of entry i, which no earlier entry has.
static bool axis_of(Front *fr, const ArgList *shard, uint32_t i, uint32_t *axis) {
  const Arg *x = &shard->at[i];
  *axis = named_axis(x->name);
  if (*axis == NAMED_AXES) {
    err(fr, x->name_loc, "'%s' is not an axis that cuts a model; expected tp or cp", x->name);
    return false;
  }
  for (uint32_t k = 0; k < i; k++)
    if (shard->at[k].name == x->name) {
      err(fr, x->name_loc, "axis '%s' is given twice", x->name);
      note(fr, shard->at[k].name_loc, "the first time is here");
      return false;
    }
  return true;
}

static bool is_none(const Ast *key) { return key->kind == A_NAME && !strcmp(key->name, "none"); }

// ---- statements

bool shard_enter(St *st, const ArgList *shard) {
  Front *fr = st->fb->fr;
  if (shard->n && st->fb->fn.intrinsic) {
    err(fr, shard->at[0].value->loc,
        "'shard' is not allowed in an intrinsic function, which is cut as a whole");
    return false;
  }
  for (uint32_t i = 0; i < shard->n; i++) {
    const Ast *key = shard->at[i].value;
    uint32_t axis;
    if (!axis_of(fr, shard, i, &axis)) return false;
    if (key->kind != A_NAME) {
      err(fr, key->loc, "expected the name of an index, or none");
      return false;
    }
    if (is_none(key)) st->off |= (uint8_t)(1u << axis);
    else PUSH(fr->arena, st->shard, ((ShardName){key->name, key->loc, axis, false}));
  }
  return true;
}

uint8_t shard_on(St *st, Str name) {
  uint8_t on = 0;
  for (uint32_t i = 0; i < st->shard.n; i++) {
    if (st->shard.at[i].name != name) continue;
    st->shard.at[i].bound = true;
    on |= (uint8_t)(1u << st->shard.at[i].axis);
  }
  return on;
}

bool shard_bound(St *st) {
  for (uint32_t i = 0; i < st->shard.n; i++) {
    const ShardName *s = &st->shard.at[i];
    if (s->bound) continue;
    err(st->fb->fr, s->loc, "this statement has no index '%s'", s->name);
    return false;
  }
  return true;
}

void no_shard(Fb *fb, const ArgList *shard) {
  if (!shard->n) return;
  err(fb->fr, shard->at[0].value->loc,
      "'shard' is for a statement with indices on its left: name[i, ...] = ...");
  fb->failed = true;
}

// ---- parameters

// The dimension that a key names: by its size's name, or its number.
static bool dimension(Front *fr, const AstStmt *s, const Ast *key, int64_t *dim) {
  int64_t found = -1;
  if (key->kind == A_INT) {
    *dim = key->integer;
    if (*dim >= 0 && *dim < (int64_t)s->target.n) return true;
    err(fr, key->loc, "'%s' has %u dimension%s, counted from 0", s->name, s->target.n,
        s->target.n == 1 ? "" : "s");
    return false;
  }
  for (uint32_t d = 0; d < s->target.n; d++) {
    if (s->target.at[d]->kind != A_NAME || s->target.at[d]->name != key->name) continue;
    if (found >= 0) {
      err(fr, key->loc, "dimensions %lld and %u of '%s' are both '%s': give the number of one",
          (long long)found, d, s->name, key->name);
      return false;
    }
    found = d;
  }
  *dim = found;
  if (found < 0)
    err(fr, key->loc, "no dimension of '%s' is '%s': give its size as it stands there, or its number",
        s->name, key->name);
  return found >= 0;
}

bool param_shard(Front *fr, const AstStmt *s, Param *p) {
  for (uint32_t i = 0; i < s->shard.n; i++) {
    const Ast *key = s->shard.at[i].value;
    uint32_t axis;
    int64_t dim;
    if (!axis_of(fr, &s->shard, i, &axis)) return false;
    if (is_none(key)) {
      p->asked[axis] = -1;
      continue;
    }
    if (!dimension(fr, s, key, &dim)) return false;
    if (axis == AXIS_CP) {
      err(fr, s->shard.at[i].name_loc,
          "parameters are not cut on cp, which cuts the sequence only");
      return false;
    }
    p->asked[axis] = (int8_t)(dim + 1);
  }
  return true;
}
