// Samples from files: which tokens they are, conversions, ranges with file, position and value, and
// the forms of --data.
#include "runtime/data/data.h"
#include "support/check.h"
#include "support/fake.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static DtError error;
static DtDataset set;

static int open_set(const DtProgram *p, const char *given) {
  dt_dataset_close(&set);
  error = (DtError){0};
  return dt_dataset_open(&set, p, false, given, &error);
}

static void write_tokens(const char *path, int64_t n, int64_t told, int version) {
  int32_t header[256] = {20240520, version, (int32_t)told};
  unsigned char *all = calloc(1024 + (size_t)n * 2, 1);
  memcpy(all, header, 1024);
  for (int64_t i = 0; i < n; i++) all[1024 + 2 * i] = (unsigned char)(i % 16);
  write_file(path, all, 1024 + (size_t)n * 2);
  free(all);
}

static void test_tokens(void) {
  int32_t x[4 * 8], y[4 * 8];
  void *buffer[] = {x, y};
  uint16_t bare[18];
  for (int i = 0; i < 18; i++) bare[i] = (uint16_t)(i % 16);
  write_file("bare.bin", bare, sizeof bare);
  CHECK(open_set(&fake_tokens, "bare.bin") == 0 && set.count == 2);
  CHECK(dt_dataset_row(&set, 1, 2, buffer, &error) == 0);
  for (int t = 0; t < 8; t++) CHECK(x[2 * 8 + t] == (8 + t) % 16 && y[2 * 8 + t] == (9 + t) % 16);
  // The sample's last target is its 9th token.
  write_file("bare.bin", bare, 16);
  CHECK(open_set(&fake_tokens, "bare.bin") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "too few");
  write_file("bare.bin", bare, 18);
  CHECK(open_set(&fake_tokens, "bare.bin") == 0 && set.count == 1);
  write_file("bare.bin", bare, 19);
  CHECK(open_set(&fake_tokens, "bare.bin") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "truncated");
  write_file("bare.bin", "", 0);
  CHECK(open_set(&fake_tokens, "bare.bin") == DT_EXIT_CONTENT);
  CHECK(open_set(&fake_tokens, "none.bin") == DT_EXIT_MISSING);
  CHECK_SAYS(error.text, "none.bin");
  CHECK(open_set(&fake_tokens, ".") == DT_EXIT_CONTENT);
}

static void test_llmc(void) {
  int32_t x[4 * 8], y[4 * 8];
  void *buffer[] = {x, y};
  write_tokens("llmc.bin", 33, 33, 1);
  CHECK(open_set(&fake_tokens, "llmc.bin") == 0 && set.count == 4);
  CHECK(dt_dataset_row(&set, 3, 0, buffer, &error) == 0 && x[0] == 8 && y[7] == 0);
  write_tokens("llmc.bin", 33, 40, 1);
  CHECK(open_set(&fake_tokens, "llmc.bin") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "truncated");
  write_tokens("llmc.bin", 33, 20, 1);
  CHECK(open_set(&fake_tokens, "llmc.bin") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "wrong");
  write_tokens("llmc.bin", 33, -1, 1);
  CHECK(open_set(&fake_tokens, "llmc.bin") == DT_EXIT_CONTENT);
  write_tokens("llmc.bin", 33, 33, 7);
  CHECK(open_set(&fake_tokens, "llmc.bin") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "version 7");
}

static void test_ranges(void) {
  int32_t x[4 * 8], y[4 * 8];
  void *buffer[] = {x, y};
  uint16_t t[25] = {0};
  t[13] = 16;
  write_file("bad.bin", t, sizeof t);
  CHECK(open_set(&fake_tokens, "bad.bin") == 0);
  CHECK(dt_dataset_row(&set, 0, 0, buffer, &error) == 0);
  CHECK(dt_dataset_row(&set, 1, 0, buffer, &error) == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "bad.bin: token 13 is 16; 'tokens' takes 0 to 15");
  CHECK(dt_dataset_check(&set, 0, &error) == DT_EXIT_CONTENT);
  CHECK(dt_dataset_check(&set, 49, &error) == 0); // larger than that: looked at when it is used
  t[13] = 0;
  t[24] = 99; // only a target
  write_file("bad.bin", t, sizeof t);
  CHECK(open_set(&fake_tokens, "bad.bin") == 0);
  CHECK(dt_dataset_check(&set, 0, &error) == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "token 24 is 99; 'targets'");
}

static void test_arrays(void) {
  float x[3 * 6];
  int32_t y[3];
  void *buffer[] = {x, y};
  double wide[12];
  int64_t label[2] = {3, 9}, far[2] = {3, 10}, farther[2] = {1, (int64_t)1 << 40};
  for (int i = 0; i < 12; i++) wide[i] = i + 0.1;
  write_npy("x.npy", "<f8", "(2, 6)", wide, sizeof wide);
  write_npy("y.npy", "<i8", "(2,)", label, sizeof label);
  CHECK(open_set(&fake_arrays, NULL) == 0 && set.count == 2);
  CHECK(dt_dataset_row(&set, 1, 2, buffer, &error) == 0 && x[12] == 6.1f && x[17] == 11.1f &&
        y[2] == 9);
  CHECK(dt_dataset_check(&set, 0, &error) == 0);
  write_npy("far.npy", "<i8", "(2,)", far, sizeof far);
  CHECK(open_set(&fake_arrays, "y=far.npy") == 0);
  CHECK(dt_dataset_row(&set, 1, 0, buffer, &error) == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "far.npy: element 0 of row 1 is 10; 'y' takes 0 to 9");
  write_npy("far.npy", "<i8", "(2,)", farther, sizeof farther);
  CHECK(open_set(&fake_arrays, "y=far.npy,x=x.npy") == 0);
  CHECK(dt_dataset_check(&set, 0, &error) == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "1099511627776");
  // Integers serve as reals, reals not as integers.
  CHECK(open_set(&fake_arrays, "y=x.npy") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "holds float64; 'y' takes integers");
  int8_t small[12] = {-1};
  write_npy("small.npy", "|i1", "(2, 6)", small, sizeof small);
  CHECK(open_set(&fake_arrays, "x=small.npy") == 0 &&
        dt_dataset_row(&set, 0, 0, buffer, &error) == 0 && x[0] == -1);
  write_npy("small.npy", "|i1", "(2, 2, 3)", small, sizeof small);
  CHECK(open_set(&fake_arrays, "x=small.npy") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "has shape [2, 2, 3]; 'x' takes rows of shape [6]");
  write_npy("small.npy", "|i1", "(1, 6)", small, 6);
  CHECK(open_set(&fake_arrays, "x=small.npy") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "y.npy has 2 rows, small.npy has 1");
  write_npy("small.npy", "|i1", "(0, 6)", small, 0);
  CHECK(open_set(&fake_arrays, "x=small.npy") == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "no sample");
  CHECK(open_set(&fake_arrays, "z=x.npy") == DT_EXIT_USAGE);
  CHECK(open_set(&fake_arrays, "nowhere") == DT_EXIT_MISSING);
  CHECK(open_set(&fake_arrays, ".") == 0);
  CHECK_SAYS(set.path[0], "./x.npy");
}

// A file that is larger than what is looked through, with holes. The ends are left as they were.
static void test_hash(void) {
  enum { TENTHS = 10 };
  const int64_t size = (int64_t)DT_LOOK_THROUGH * 4, changed = size / 1000;
  char *bytes = malloc((size_t)changed);
  memset(bytes, 1, (size_t)changed);
  write_file("large.bin", "", 0);
  CHECK(truncate("large.bin", size) == 0);
  CHECK(open_set(&fake_tokens, "large.bin") == 0);
  uint64_t before = dt_dataset_hash(&set, 0);
  for (int i = 0; i < TENTHS; i++) {
    int64_t at = size / TENTHS * i + size / 37;
    int f = open("large.bin", O_WRONLY);
    CHECK(pwrite(f, bytes, (size_t)changed, at) == changed);
    close(f);
    CHECK(open_set(&fake_tokens, "large.bin") == 0);
    uint64_t now = dt_dataset_hash(&set, 0);
    CHECK(now != before);
    before = now;
  }
  CHECK(truncate("large.bin", DT_LOOK_THROUGH) == 0);
  CHECK(open_set(&fake_tokens, "large.bin") == 0 && dt_dataset_hash(&set, 0) != before);
  free(bytes);
}

int main(void) {
  check_folder();
  test_tokens();
  test_llmc();
  test_ranges();
  test_arrays();
  test_hash();
  dt_dataset_close(&set);
  return check_done();
}
