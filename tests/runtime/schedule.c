// Learning rates against values worked out by hand, and the bias corrections.
#include "runtime/pipeline/schedule.h"
#include "support/check.h"

static bool near(double a, double b) { return fabs(a - b) <= 1e-15 + 1e-12 * fabs(b); }

int main(void) {
  // gpt2.dt's own: the log's first record says 8.6e-7.
  CHECK(near(dt_rate(DT_COSINE, 6e-4, 700, 20000, 0.1, 0), 6e-4 / 700));
  for (DtSchedule k = DT_CONSTANT; k <= DT_INVSQRT; k++) {
    CHECK(near(dt_rate(k, 2, 4, 20, 0.1, 0), 0.5));
    CHECK(near(dt_rate(k, 2, 4, 20, 0.1, 3), 2));
  }
  CHECK(near(dt_rate(DT_CONSTANT, 2, 0, 20, 0, 0), 2));
  CHECK(near(dt_rate(DT_CONSTANT, 2, 4, 20, 0.1, 1000), 2));
  CHECK(near(dt_rate(DT_LINEAR, 2, 4, 20, 0.1, 12), 2 * 0.55));
  CHECK(near(dt_rate(DT_LINEAR, 2, 4, 20, 0.1, 20), 0.2));
  CHECK(near(dt_rate(DT_LINEAR, 2, 4, 20, 0.1, 99), 0.2));
  CHECK(near(dt_rate(DT_COSINE, 2, 4, 20, 0.1, 12), 2 * 0.55));
  CHECK(near(dt_rate(DT_COSINE, 2, 4, 20, 0.1, 8), 2 * (0.1 + 0.9 * 0.5 * (1 + sqrt(0.5)))));
  CHECK(near(dt_rate(DT_COSINE, 2, 4, 20, 0.1, 99), 0.2));
  CHECK(near(dt_rate(DT_INVSQRT, 2, 4, 20, 0, 15), 1));
  CHECK(near(dt_rate(DT_INVSQRT, 2, 4, 20, 0.9, 15), 1.8));
  // Nothing divides by zero where warm-up is all of it.
  CHECK(near(dt_rate(DT_COSINE, 2, 20, 20, 0.1, 20), 0.2));
  CHECK(near(dt_bias_correction(0.9, 1), 0.1));
  CHECK(near(dt_bias_correction(0.9, 2), 0.19));
  return check_done();
}
