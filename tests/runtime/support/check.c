#define _GNU_SOURCE
#include "check.h"

#include "fake.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;
static char folder[64];

void check_that(bool good, const char *what, const char *file, int line) {
  if (good) return;
  failures++;
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
}

void check_says(const char *text, const char *part, const char *file, int line) {
  if (strstr(text, part)) return;
  failures++;
  fprintf(stderr, "%s:%d: expected '%s' in: %s\n", file, line, part, text);
}

static int drop(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)s, (void)kind, (void)f;
  return remove(path);
}

int check_done(void) {
  if (folder[0] && chdir("/") == 0) nftw(folder, drop, 16, FTW_DEPTH | FTW_PHYS);
  if (failures) fprintf(stderr, "%d failed\n", failures);
  return failures ? 1 : 0;
}

const char *check_folder(void) {
  if (folder[0]) return folder;
  strcpy(folder, "/tmp/dtc-test-XXXXXX");
  if (!mkdtemp(folder) || chdir(folder) != 0) {
    perror(folder);
    exit(1);
  }
  return folder;
}

void write_file(const char *path, const void *bytes, size_t n) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
    perror(path);
    exit(1);
  }
}

void *read_whole(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  fseek(f, 0, SEEK_END);
  *n = (size_t)ftell(f);
  rewind(f);
  char *bytes = malloc(*n + 1);
  *n = fread(bytes, 1, *n, f);
  bytes[*n] = 0;
  fclose(f);
  return bytes;
}

bool same_files(const char *a, const char *b) {
  size_t n, m;
  char *x = read_whole(a, &n), *y = read_whole(b, &m);
  bool same = x && y && n == m && memcmp(x, y, n) == 0;
  free(x);
  free(y);
  return same;
}

void write_npy(const char *path, const char *descr, const char *shape, const void *bytes,
               size_t n) {
  char head[256];
  int used = snprintf(head + 10, sizeof head - 10,
                      "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
  while ((used + 11) % 64) head[10 + used++] = ' ';
  head[10 + used++] = '\n';
  memcpy(head, "\x93NUMPY\x01\x00", 8);
  head[8] = (char)(used & 255);
  head[9] = (char)(used >> 8);
  char *all = malloc((size_t)used + 10 + n);
  memcpy(all, head, (size_t)used + 10);
  memcpy(all + used + 10, bytes, n);
  write_file(path, all, (size_t)used + 10 + n);
  free(all);
}

void write_fake_data(int samples) {
  uint32_t state = 12345;
  float *x = malloc((size_t)samples * 6 * sizeof *x);
  int32_t *y = malloc((size_t)samples * sizeof *y);
  uint16_t *t = malloc((size_t)samples * 8 * sizeof *t + 2);
  for (int i = 0; i < samples * 6; i++)
    x[i] = (float)((state = state * 1664525u + 1013904223u) >> 8) / (float)(1 << 23) - 1;
  for (int i = 0; i < samples; i++) y[i] = (int32_t)(4 + 3 * x[6 * i] + 2 * x[6 * i + 1]) % 10;
  t[0] = 1;
  for (int i = 1; i <= samples * 8; i++)
    t[i] = (uint16_t)((t[i - 1] * 5 + ((state = state * 1664525u + 1013904223u) >> 24) % 3) % 16);
  char shape[64];
  snprintf(shape, sizeof shape, "(%d, 6)", samples);
  write_npy("x.npy", "<f4", shape, x, (size_t)samples * 24);
  snprintf(shape, sizeof shape, "(%d,)", samples);
  write_npy("y.npy", "<i4", shape, y, (size_t)samples * 4);
  write_file("train.bin", t, (size_t)samples * 16 + 2);
  free(x);
  free(y);
  free(t);
}

int run(const char *model, ...) {
  char *argv[32] = {"train", "--quiet"};
  int argc = 2;
  va_list args;
  va_start(args, model);
  for (char *a; (a = va_arg(args, char *)) && argc < 31;) argv[argc++] = a;
  va_end(args);
  return dt_main(strcmp(model, "arrays") == 0 ? &fake_arrays : &fake_tokens, argc, argv);
}
