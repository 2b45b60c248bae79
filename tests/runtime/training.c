// Training with hand-written models: a batch is the same function in any microbatches, a resumed
// run gives the same bits as one that was not stopped, and every record of the log is there.
#include "runtime/files/json.h"
#include "runtime/files/safetensors.h"
#include "support/check.h"
#include "support/fake.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The number `key` of the record of `step` that has it, in the last run; NAN where there is none.
static double logged(const char *path, int64_t step, const char *key) {
  size_t n;
  double found = NAN;
  char *text = read_whole(path, &n);
  for (char *line = text; line && *line;) {
    char *end = strchr(line, '\n');
    DtJson j;
    DtError e = {0};
    CHECK(end && dt_json_parse(&j, line, (size_t)(end - line), path, &e) == 0);
    if (!end || e.status) break;
    const DtJsonValue *s = dt_json_member(&j, dt_json_root(&j), "step", DT_JSON_INTEGER);
    const DtJsonValue *v = dt_json_member(&j, dt_json_root(&j), key, DT_JSON_REAL);
    bool begins = dt_json_member(&j, dt_json_root(&j), "run", DT_JSON_OBJECT) && s && s->integer == 0;
    if (begins) found = NAN;
    if (s && s->integer == step && v) found = v->real;
    dt_json_free(&j);
    line = end + 1;
  }
  free(text);
  return found;
}

static void test_resume(const char *model) {
  CHECK(run(model, "--export", "whole.st", "--log", "whole.jsonl", NULL) == 0);
  CHECK(run(model, "--steps", "7", "--save", "ck", "--log", "part.jsonl", NULL) == 0);
  CHECK(run(model, "--resume", "ck", "--save", "ck", "--export", "resumed.st", "--log",
            "part.jsonl", NULL) == 0);
  CHECK(same_files("whole.st", "resumed.st"));
  for (int64_t s = 1; s <= 20; s++)
    CHECK(logged("whole.jsonl", s, "loss") == logged("part.jsonl", s, "loss"));
  // The checkpoint itself, and its weights as --init.
  CHECK(run(model, "--resume", "ck/step-00000020", "--steps", "0", "--export", "again.st", NULL) ==
        0);
  CHECK(same_files("whole.st", "again.st"));
  CHECK(run(model, "--init", "ck/step-00000020", "--steps", "0", "--export",
            "init.st", NULL) == 0);
  CHECK(same_files("whole.st", "init.st"));
  // Nothing to resume is a fresh start.
  CHECK(run(model, "--resume", "nowhere", "--export", "fresh.st", NULL) == 0);
  CHECK(same_files("whole.st", "fresh.st"));
  CHECK(system("rm -rf ck") == 0);
}

static void test_log_after_resume(void) {
  // A run that was killed after step 12 with a checkpoint of step 10: steps 11 and 12 are in its
  // log.
  CHECK(run("arrays", "--steps", "10", "--save", "ck", "--log", "log.jsonl", NULL) == 0);
  FILE *f = fopen("log.jsonl", "a");
  fputs("{\"step\":11,\"loss\":1}\n{\"step\":12,\"lo", f);
  fclose(f);
  CHECK(run("arrays", "--resume", "ck", "--log", "log.jsonl", NULL) == 0);
  size_t n;
  char *text = read_whole("log.jsonl", &n);
  int steps = 0;
  for (char *p = text; (p = strstr(p, "\"loss\"")); p++) steps++;
  CHECK(steps == 20 && logged("log.jsonl", 11, "loss") != 1);
  free(text);
  CHECK(system("rm -rf ck") == 0);
}

// Batches of 8 in microbatches of 3 (the last with 2) and of 8 are the same but for rounding.
static void test_microbatches(void) {
  DtData data[2];
  DtProgram whole = fake_arrays;
  memcpy(data, fake_arrays.data, sizeof data);
  data[0].extent[0] = data[1].extent[0] = 8;
  whole.data = data;
  char *argv[] = {"train", "--quiet", "--log", "whole.jsonl"};
  CHECK(run("arrays", "--log", "parts.jsonl", NULL) == 0);
  fake_micro = 8;
  CHECK(dt_main(&whole, 4, argv) == 0);
  fake_micro = 3;
  static const char *const keys[] = {"loss", "grad_norm", "error"};
  for (int64_t s = 1; s <= 20; s++)
    for (int k = 0; k < 3; k++) {
      double a = logged("parts.jsonl", s, keys[k]), b = logged("whole.jsonl", s, keys[k]);
      CHECK(fabs(a - b) <= 2e-5 * fabs(b));
    }
  // A batch of 1 is a microbatch with two rows of padding; without padding it is another number.
  CHECK(run("arrays", "--batch", "1", "--steps", "1", "--no-shuffle", "--log", "one.jsonl", NULL) ==
        0);
  CHECK(run("arrays", "--eval-only", "--val", "y=y.npy", "--eval-samples", "1", "--log",
            "eval.jsonl", NULL) == 0);
  CHECK(logged("one.jsonl", 1, "loss") == logged("eval.jsonl", 0, "val_loss"));
}

// What a log record must hold, and the values that can be known.
static void test_records(void) {
  CHECK(run("arrays", "--log", "log.jsonl", "--val", ".", "--eval-every", "8", NULL) == 0);
  static const char *const keys[] = {"loss",         "lr",      "grad_norm",    "tokens",
                                     "tokens_per_s", "seconds", "memory_bytes", "error"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    CHECK(isfinite(logged("log.jsonl", 20, keys[k])));
  CHECK(fabs(logged("log.jsonl", 1, "lr") - 0.05 / 4) < 1e-15 &&
        fabs(logged("log.jsonl", 4, "lr") - 0.05) < 1e-15);
  CHECK(logged("log.jsonl", 1, "tokens") == 8);
  CHECK(isfinite(logged("log.jsonl", 8, "val_loss")) &&
        isfinite(logged("log.jsonl", 16, "val_error")));
  CHECK(isfinite(logged("log.jsonl", 20, "val_loss")) &&
        isnan(logged("log.jsonl", 12, "val_loss")));
  CHECK(run("tokens", "--log", "log.jsonl", "--steps", "1", NULL) == 0);
  CHECK(logged("log.jsonl", 1, "tokens") == 32);
}

// The mean over the validation set is exact: over all of it at once, ignored targets not counted.
static void test_validation(void) {
  CHECK(run("tokens", "--eval-only", "--val", "train.bin", "--log", "all.jsonl", NULL) == 0);
  CHECK(run("tokens", "--steps", "1", "--batch", "50", "--no-shuffle", "--log", "one.jsonl",
            NULL) == 0);
  double a = logged("all.jsonl", 0, "val_loss"), b = logged("one.jsonl", 1, "loss");
  CHECK(fabs(a - b) < 1e-13 * b);
}

static void test_order(void) {
  CHECK(run("tokens", "--steps", "1", "--log", "a.jsonl", NULL) == 0);
  CHECK(run("tokens", "--steps", "1", "--no-shuffle", "--log", "b.jsonl", NULL) == 0);
  CHECK(logged("a.jsonl", 1, "loss") != logged("b.jsonl", 1, "loss"));
  // 50 samples in two epochs of 25 steps' 2: each sample once, so means over an epoch agree when
  // nothing is learnt.
  CHECK(run("tokens", "--steps", "50", "--batch", "2", "--lr", "0", "--log", "a.jsonl", NULL) == 0);
  double first = 0, second = 0, in_order = 0;
  CHECK(run("tokens", "--steps", "25", "--batch", "2", "--lr", "0", "--no-shuffle", "--log",
            "b.jsonl", NULL) == 0);
  // Each step's mean is over its own valid targets: with the weight of the grad it would agree
  // exactly; here nearly.
  for (int64_t s = 1; s <= 25; s++) {
    first += logged("a.jsonl", s, "loss");
    second += logged("a.jsonl", s + 25, "loss");
    in_order += logged("b.jsonl", s, "loss");
  }
  CHECK(fabs(first - in_order) < 1e-3 * in_order && fabs(second - in_order) < 1e-3 * in_order &&
        first != second);
}

static void test_not_finite(void) {
  fake_nan_at = 5;
  CHECK(run("arrays", "--log", "log.jsonl", "--save", "ck", "--save-every", "2", NULL) == 79);
  fake_nan_at = 0;
  CHECK(isfinite(logged("log.jsonl", 4, "loss")) && isnan(logged("log.jsonl", 5, "loss")));
  CHECK(run("arrays", "--resume", "ck", "--steps", "0", "--export", "kept.st", NULL) == 0);
  CHECK(run("arrays", "--steps", "4", "--export", "four.st", NULL) == 0);
  CHECK(same_files("kept.st", "four.st"));
  CHECK(system("rm -rf ck") == 0);
}

int main(void) {
  check_folder();
  write_fake_data(50);
  test_resume("arrays");
  test_resume("tokens");
  test_log_after_resume();
  test_microbatches();
  test_records();
  test_validation();
  test_order();
  test_not_finite();
  return check_done();
}
