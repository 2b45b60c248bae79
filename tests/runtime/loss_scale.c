// The loss scale by itself: it doubles after 2,000 clean steps up to its greatest, halves down to 1, and gives up after
// ten skips there.
#include "runtime/train/loss_scale.h"
#include "support/check.h"

static void clean(DtLossScale *s, int steps) {
  for (int i = 0; i < steps; i++) dt_loss_scale_clean(s);
}

int main(void) {
  DtLossScale s = dt_loss_scale_first(true);
  CHECK(s.scale == 65536 && dt_loss_scale_valid(&s));
  CHECK(dt_loss_scale_first(false).scale == 1);
  clean(&s, 1999);
  CHECK(s.scale == 65536 && s.clean == 1999 && dt_loss_scale_valid(&s));
  clean(&s, 1);
  CHECK(s.scale == 131072 && s.clean == 0);
  clean(&s, 1999);
  CHECK(dt_loss_scale_skip(&s) && s.scale == 65536 && s.clean == 0 && s.skipped == 1);
  clean(&s, 1999);
  CHECK(s.scale == 65536);
  clean(&s, 1);
  CHECK(s.scale == 131072);
  clean(&s, 2000 * 40);
  CHECK(s.scale == DT_SCALE_MOST && dt_loss_scale_valid(&s));
  for (int i = 0; i < 32; i++) CHECK(dt_loss_scale_skip(&s));
  CHECK(s.scale == 1 && s.in_row == 0);
  for (int i = 0; i < 9; i++) CHECK(dt_loss_scale_skip(&s));
  CHECK(dt_loss_scale_valid(&s));
  clean(&s, 1);
  for (int i = 0; i < 9; i++) CHECK(dt_loss_scale_skip(&s));
  CHECK(!dt_loss_scale_skip(&s) && s.scale == 1);
  static const DtLossScale bad[] = {{.scale = 3}, {.scale = 0}, {.scale = 0x1p33}, {.scale = 0.5},
                                    {.scale = 2, .clean = 2000}, {.scale = 2, .clean = -1},
                                    {.scale = 2, .skipped = -1}, {.scale = 2, .in_row = 10}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!dt_loss_scale_valid(&bad[i]));
  return check_done();
}
