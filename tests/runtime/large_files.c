// Files past 2^31 and 2^32 bytes: what is read there is what is there, and what is written there
// arrives. The files are holes but for a few places, and take neither disk nor time.
#define _GNU_SOURCE
#include "runtime/data/data.h"
#include "runtime/files/safetensors.h"
#include "support/check.h"
#include "support/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 6, NO_HOLES = 77 };
// Bytes into the data: before and behind the ends of what int32 and uint32 count, also in elements.
static const int64_t place[PLACES] = {
    0, ((int64_t)1 << 31) - 8, ((int64_t)1 << 31) + 8, ((int64_t)1 << 32) - 16,
    ((int64_t)1 << 32) + 8, 4400000000};
static const int64_t DATA = 4400000016; // bytes
static DtError error;

static int make(const char *path, const void *head, size_t n, int64_t bytes) {
  int f = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  struct stat s;
  CHECK(f >= 0 && write(f, head, n) == (ssize_t)n);
  if (ftruncate(f, (off_t)n + bytes) != 0 || fstat(f, &s) != 0 || s.st_blocks > 2048) {
    fprintf(stderr, "no sparse files here: %s\n", strerror(errno));
    close(f);
    unlink(path);
    exit(check_done() ? 1 : NO_HOLES);
  }
  return f;
}

static void put(int f, size_t head, int64_t at, const void *value, size_t size) {
  CHECK(pwrite(f, value, size, (off_t)head + at) == (ssize_t)size);
}

// Sample by sample, as a step reads them: each place is some token of one sample and some target.
static void check_samples(const char *path, int width) {
  DtDataset d;
  int32_t x[8], y[8];
  void *buffer[] = {x, y};
  CHECK(dt_dataset_open(&d, &fake_tokens, false, path, &error) == 0);
  for (int i = 0; i < PLACES; i++) {
    int64_t token = place[i] / width, sample = token / d.tokens_each;
    if (sample >= d.count) continue;
    CHECK(dt_dataset_row(&d, sample, 0, buffer, &error) == 0);
    CHECK(x[token % 8] == i + 1);
    if (token % 8) CHECK(y[token % 8 - 1] == i + 1);
  }
  dt_dataset_close(&d);
}

static void test_tokens(void) {
  DtTokens t;
  int f = make("bare.bin", "", 0, DATA);
  for (int i = 0; i < PLACES; i++) put(f, 0, place[i], &(uint16_t){(uint16_t)(i + 1)}, 2);
  close(f);
  CHECK(dt_tokens_open(&t, "bare.bin", false, &error) == 0 && t.count == DATA / 2);
  for (int i = 0; i < PLACES; i++)
    CHECK(dt_token(&t, place[i] / 2) == i + 1 && dt_token(&t, place[i] / 2 + 1) == 0);
  dt_tokens_close(&t);
  CHECK(dt_tokens_open(&t, "bare.bin", true, &error) == 0 && t.count == DATA);
  for (int i = 0; i < PLACES; i++)
    CHECK(dt_token(&t, place[i]) == i + 1 && dt_token(&t, place[i] + 1) == 0);
  dt_tokens_close(&t);
  check_samples("bare.bin", 2);
  unlink("bare.bin");
}

// llm.c's header counts tokens in an int32: the largest such file ends just behind 2^32 bytes.
static void test_llmc(void) {
  DtTokens t;
  int32_t header[256] = {20240520, 1, INT32_MAX};
  int64_t last = ((int64_t)1 << 32) - 4;
  int f = make("llmc.bin", header, sizeof header, 2 * (int64_t)INT32_MAX);
  for (int i = 0; i < 4; i++) put(f, sizeof header, place[i], &(uint16_t){(uint16_t)(i + 1)}, 2);
  put(f, sizeof header, last, &(uint16_t){9}, 2);
  close(f);
  CHECK(dt_tokens_open(&t, "llmc.bin", false, &error) == 0 && t.count == INT32_MAX);
  for (int i = 0; i < 4; i++) CHECK(dt_token(&t, place[i] / 2) == i + 1);
  CHECK(dt_token(&t, last / 2) == 9);
  dt_tokens_close(&t);
  unlink("llmc.bin");
}

static int make_npy(const char *path, const char *descr, int64_t count, size_t *head) {
  char text[128] = "\x93NUMPY\x01", shape[96];
  int n = snprintf(shape, sizeof shape,
                   "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,), }", descr,
                   (long long)count);
  memset(text + 10, ' ', sizeof text - 10);
  text[7] = 0;
  text[8] = sizeof text - 10;
  text[9] = 0;
  memcpy(text + 10, shape, (size_t)n);
  text[sizeof text - 1] = '\n';
  *head = sizeof text;
  return make(path, text, sizeof text, DATA);
}

static void test_arrays(void) {
  DtNpy a;
  size_t head;
  int f = make_npy("i.npy", "<i4", DATA / 4, &head);
  for (int i = 0; i < PLACES; i++) put(f, head, place[i], &(int32_t){-i - 1}, 4);
  close(f);
  CHECK(dt_npy_open(&a, "i.npy", &error) == 0 && a.count == DATA / 4);
  for (int i = 0; i < PLACES; i++)
    CHECK(dt_npy_integer(&a, place[i] / 4) == -i - 1 && dt_npy_integer(&a, place[i] / 4 + 1) == 0);
  dt_npy_close(&a);
  unlink("i.npy");
  f = make_npy("r.npy", "<f4", DATA / 4, &head);
  for (int i = 0; i < PLACES; i++) put(f, head, place[i], &(float){(float)i + 0.5f}, 4);
  close(f);
  CHECK(dt_npy_open(&a, "r.npy", &error) == 0);
  for (int i = 0; i < PLACES; i++) CHECK(dt_npy_real(&a, place[i] / 4) == i + 0.5);
  dt_npy_close(&a);
  unlink("r.npy");
}

// A part with one tensor past 2^32 bytes, and another one behind it.
static void test_weights(void) {
  DtWeights w;
  char header[256] = "";
  int n = snprintf(header + 8, sizeof header - 8,
                   "{\"large\":{\"dtype\":\"F32\",\"shape\":[%lld],\"data_offsets\":[0,%lld]},"
                   "\"small\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%lld,%lld]}}",
                   (long long)DATA / 4, (long long)DATA, (long long)DATA, (long long)DATA + 4);
  uint64_t length = (uint64_t)n;
  size_t head = 8 + (size_t)n;
  memcpy(header, &length, 8);
  int f = make("w.st", header, head, DATA + 4);
  for (int i = 0; i < PLACES; i++) put(f, head, place[i], &(float){(float)i + 0.5f}, 4);
  put(f, head, DATA, &(float){7}, 4);
  close(f);
  CHECK(dt_weights_open(&w, "w.st", &error) == 0 && w.n == 2);
  const DtTensor *large = dt_weights_find(&w, "large"), *small = dt_weights_find(&w, "small");
  CHECK(large && small && large->count == DATA / 4);
  for (int i = 0; large && i < PLACES; i++) {
    float v[2];
    double wide[2];
    dt_tensor_read(large, place[i] / 4, 2, DT_TYPE_F32, v);
    CHECK(v[0] == (float)i + 0.5f && v[1] == 0);
    dt_tensor_read(large, place[i] / 4, 2, DT_TYPE_F64, wide);
    CHECK(wide[0] == i + 0.5 && wide[1] == 0);
  }
  float v = 0;
  if (small) dt_tensor_read(small, 0, 1, DT_TYPE_F32, &v);
  CHECK(v == 7);
  dt_weights_close(&w);
  unlink("w.st");
}

static int64_t offset_in(const char *header, const char *name, int which) {
  const char *at = strstr(header, name);
  at = at ? strstr(at, "data_offsets\":[") : NULL;
  long long v[2] = {-1, -1};
  if (at) sscanf(at, "data_offsets\":[%lld,%lld]", &v[0], &v[1]);
  return v[which];
}

// What is written: the offsets that a header tells of tensors that lie past 2^32, and a writer's
// bytes from 2^31 on, where the file's first part is a hole.
static void test_writing(void) {
  DtTensor t[3] = {{.name = "a", .rank = 1, .extent = {DATA / 4}, .count = DATA / 4},
                   {.name = "b", .rank = 1, .extent = {2}, .count = 2},
                   {.name = "c", .rank = 1, .extent = {DATA / 8}, .count = DATA / 8}};
  DtOut o;
  size_t n;
  CHECK(dt_out_open(&o, "header.st", &error) == 0);
  dt_weights_header(&o, t, 3, DT_TYPE_F32);
  CHECK(dt_out_close(&o, &error) == 0);
  char *header = read_whole("header.st", &n);
  CHECK(n % 4096 == 0 && header);
  header[n - 1] = 0;
  CHECK(offset_in(header + 8, "\"b\"", 0) == DATA && offset_in(header + 8, "\"b\"", 1) == DATA + 8);
  CHECK(offset_in(header + 8, "\"c\"", 1) == DATA + 8 + DATA / 2);
  free(header);

  const int64_t from[] = {((int64_t)1 << 31) - 100, ((int64_t)1 << 32) - 100};
  enum { BYTES = 9 << 20 }; // past what the disk is asked to begin with
  unsigned char *bytes = malloc(BYTES), *back = malloc(BYTES);
  for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * 7 + i / 251);
  for (int k = 0; k < 2; k++) {
    CHECK(dt_out_open(&o, "out.bin", &error) == 0);
    CHECK(ftruncate(o.fd, from[k]) == 0 && lseek(o.fd, from[k], SEEK_SET) == from[k]);
    o.bytes = o.started = (uint64_t)from[k];
    dt_out_write(&o, bytes, 1000);
    dt_out_write(&o, bytes + 1000, BYTES - 1000);
    CHECK(o.bytes + o.used == (uint64_t)from[k] + BYTES && !o.error);
    CHECK(dt_out_close(&o, &error) == 0);
    DtMap m;
    CHECK(dt_map_open(&m, "out.bin", &error) == 0 && m.size == (size_t)from[k] + BYTES);
    if (m.size) memcpy(back, m.bytes + from[k], BYTES);
    CHECK(memcmp(back, bytes, BYTES) == 0);
    dt_map_close(&m);
    unlink("out.bin");
  }
  free(bytes);
  free(back);
}

int main(void) {
  check_folder();
  test_tokens();
  test_llmc();
  test_arrays();
  test_weights();
  test_writing();
  return check_done();
}
