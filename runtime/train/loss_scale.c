#include "runtime/train/loss_scale.h"

DtLossScale dt_loss_scale_first(bool scaling) {
  return (DtLossScale){.scale = scaling ? DT_SCALE_FIRST : 1};
}

void dt_loss_scale_clean(DtLossScale *s) {
  s->in_row = 0;
  if (++s->clean < DT_SCALE_GROWTH) return;
  s->clean = 0;
  if (s->scale < DT_SCALE_MOST) s->scale *= 2;
}

bool dt_loss_scale_skip(DtLossScale *s) {
  s->clean = 0;
  s->skipped++;
  if (s->scale > 1) s->scale /= 2;
  else if (++s->in_row >= DT_SCALE_SKIPS) return false;
  return true;
}

bool dt_loss_scale_valid(const DtLossScale *s) {
  double power = 1;
  while (power < s->scale && power < DT_SCALE_MOST) power *= 2;
  return s->scale == power && s->clean >= 0 && s->clean < DT_SCALE_GROWTH && s->skipped >= 0 &&
         s->in_row >= 0 && s->in_row < DT_SCALE_SKIPS;
}
