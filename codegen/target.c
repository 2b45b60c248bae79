#include "codegen/target.h"

#include "codegen/cpu/target.h"
#include "codegen/cuda/target.h"

static const Target *const targets[] = {&cpu_target, &cuda_target};
enum { NTARGET = sizeof targets / sizeof *targets };

const Target *target_named(const char *name) {
  for (int i = 0; i < NTARGET; i++)
    if (!strcmp(targets[i]->name, name)) return targets[i];
  return NULL;
}

const Target *target_with_form(const char *form) {
  for (int i = 0; i < NTARGET; i++)
    for (const char *const *f = targets[i]->forms; *f; f++)
      if (!strcmp(*f, form)) return targets[i];
  return NULL;
}

void target_names(Buf *out) {
  for (int i = 0; i < NTARGET; i++)
    buf_printf(out, "%s%s", !i ? "" : i + 1 < NTARGET ? ", " : " or ", targets[i]->name);
}

void target_use(Module *m, const Target *t) {
  m->target = t;
  m->stores = 0;
  for (int type = 0; type < NDTYPE; type++)
    if (t->stores((Dtype)type)) m->stores |= 1u << type;
  m->limits = t->limits;
  m->usual_limits = &t->limits;
}
