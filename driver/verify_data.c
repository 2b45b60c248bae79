// Data for --verify-run where the model's own is not there.
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/verify_run.h"

static uint64_t next(uint64_t *state) { // splitmix64
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

// What elements of data argument i may be.
static void range_of(const Module *m, uint32_t i, int64_t *lo, int64_t *hi) {
  *lo = 0;
  *hi = 2;
  for (uint32_t k = 0; k < m->range.n; k++) {
    if (m->range.at[k].arg != i) continue;
    *lo = m->range.at[k].lo;
    *hi = m->range.at[k].hi;
  }
}

// Where there is no end below, one in seven is -1: a target that does not count.
static int32_t integer(int64_t lo, int64_t hi, uint64_t *state) {
  bool ignored = lo < -1000 && next(state) % 7 == 0;
  int64_t first = lo < -1000 ? 0 : lo, n = hi - first < 1 << 20 ? hi - first : 1 << 20;
  return ignored ? -1 : (int32_t)(first + (int64_t)(next(state) % (uint64_t)(n < 1 ? 1 : n)));
}

static const Value *argument(const Module *m, uint32_t i) {
  const Fn *f = &m->fn.at[m->entry[ENTRY_STEP]];
  return &f->value.at[f->arg.at[i]];
}

static FILE *create(Str path) {
  FILE *f = fopen(path, "wb");
  if (!f) fprintf(stderr, "dtc: cannot create %s: %s\n", path, strerror(errno));
  return f;
}

static bool finish(FILE *f, Str path) {
  bool ok = !ferror(f);
  if (!fclose(f) && ok) return true;
  fprintf(stderr, "dtc: cannot write %s: %s\n", path, strerror(errno));
  return false;
}

// Both arguments are the same tokens, one shifted: they lie in both ranges.
static bool write_tokens(const Module *m, Str path) {
  bool bytes = m->train.data == DATA_BYTES;
  int64_t lo, hi, least = 0, end = bytes ? 256 : 65536;
  for (uint32_t i = 0; i < m->ndata; i++) {
    range_of(m, i, &lo, &hi);
    for (uint32_t k = 0; k < m->range.n; k++)
      if (m->range.at[k].arg == i) {
        if (lo > least) least = lo;
        if (hi < end) end = hi;
      }
  }
  FILE *f = create(path);
  if (!f) return false;
  uint64_t state = 1;
  for (int64_t i = 0; i < m->train.batch * m->train.length + 1; i++) {
    int32_t t = integer(least, end, &state);
    putc(t & 255, f);
    if (!bytes) putc(t >> 8, f);
  }
  return finish(f, path);
}

static bool write_array(const Module *m, uint32_t i, Str path, uint64_t *state) {
  const Value *v = argument(m, i);
  Scalar type = scalar_of(v->type);
  Buf head = {0};
  buf_printf(&head, "{'descr': '%s', 'fortran_order': False, 'shape': (",
             type == SC_REAL  ? "<f4"
             : type == SC_INT ? "<i4"
                              : "|b1");
  for (uint32_t d = 0; d < v->rank; d++) buf_printf(&head, "%lld,", (long long)v->extent[d]);
  buf_printf(&head, ")}");
  while ((head.n + 11) % 64) buf_printf(&head, " ");
  buf_printf(&head, "\n");
  FILE *f = create(path);
  if (!f) return false;
  fwrite("\x93NUMPY\x01\x00", 1, 8, f);
  putc((int)(head.n & 255), f);
  putc((int)(head.n >> 8), f);
  fwrite(head.text, 1, head.n, f);
  buf_free(&head);
  int64_t lo, hi;
  range_of(m, i, &lo, &hi);
  for (int64_t e = 0; e < value_count(v); e++) {
    float real = (float)(int64_t)next(state) * 0x1p-62f;
    int32_t word = integer(lo, hi, state);
    if (type == SC_BOOL)
      putc(word & 1, f);
    else
      fwrite(type == SC_REAL ? (void *)&real : &word, 1, 4, f);
  }
  return finish(f, path);
}

Str verify_data(const Module *m, Str folder) {
  if (m->train.data != DATA_ARRAYS) {
    Str path = str_printf("%s/data.bin", folder);
    return write_tokens(m, path) ? path : NULL;
  }
  Buf list = {0};
  uint64_t state = 1;
  for (uint32_t i = 0; i < m->ndata; i++) {
    Str path = str_printf("%s/data%u.npy", folder, i);
    if (!write_array(m, i, path, &state)) return NULL;
    buf_printf(&list, "%s%s=%s", i ? "," : "", m->train.array_name.at[i], path);
  }
  Str all = str_printf("%s", list.text);
  buf_free(&list);
  return all;
}

Str verify_missing(const Module *m) {
  const Train *t = &m->train;
  if (t->data == DATA_TOKENS || t->data == DATA_BYTES)
    return access(t->data_path, R_OK) ? t->data_path : NULL;
  for (uint32_t i = 0; t->data == DATA_ARRAYS && i < t->array_path.n; i++)
    if (access(t->array_path.at[i], R_OK)) return t->array_path.at[i];
  return NULL;
}
