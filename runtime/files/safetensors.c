#include "runtime/files/safetensors.h"

#include "runtime/base/real.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 1 << 20, LONGEST_NAME = 1024 };
static const uint64_t LONGEST_HEADER = 100000000;

static const struct {
  const char *name;
  int size;
  bool real;
} stored[] = {
    [DT_ST_BOOL] = {"BOOL", 1, false}, [DT_ST_U8] = {"U8", 1, false},
    [DT_ST_I8] = {"I8", 1, false},     [DT_ST_U16] = {"U16", 2, false},
    [DT_ST_I16] = {"I16", 2, false},   [DT_ST_F16] = {"F16", 2, true},
    [DT_ST_BF16] = {"BF16", 2, true},  [DT_ST_U32] = {"U32", 4, false},
    [DT_ST_I32] = {"I32", 4, false},   [DT_ST_F32] = {"F32", 4, true},
    [DT_ST_U64] = {"U64", 8, false},   [DT_ST_I64] = {"I64", 8, false},
    [DT_ST_F64] = {"F64", 8, true},
};
enum { NSTORED = sizeof stored / sizeof *stored };

const char *dt_stored_name(DtStored type) { return stored[type].name; }
bool dt_stored_real(DtStored type) { return stored[type].real; }

void dt_shape_text(char out[192], int rank, const int64_t *extent) {
  char *p = out;
  *p++ = '[';
  for (int i = 0; i < rank; i++) p += sprintf(p, i ? ", %lld" : "%lld", (long long)extent[i]);
  strcpy(p, "]");
}

typedef struct {
  uint64_t begin, end; // in the data
} Span;

// One member of the header. `data` is where tensors' data begins, `size` its length.
static int read_entry(DtWeights *w, const DtJsonValue *v, const unsigned char *data, uint64_t size,
                      const char *path, Span *span, DtError *e) {
  DtTensor *t = &w->tensor[w->n];
  t->name = v->key;
  char shown[128];
  dt_json_escape(shown, sizeof shown, v->key);
  if (strlen(v->key) > LONGEST_NAME)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: a name is longer than %d bytes: %s...", path,
                   LONGEST_NAME, shown);
  const DtJsonValue *type = dt_json_member(&w->json, v, "dtype", DT_JSON_STRING);
  const DtJsonValue *shape = dt_json_member(&w->json, v, "shape", DT_JSON_ARRAY);
  const DtJsonValue *where = dt_json_member(&w->json, v, "data_offsets", DT_JSON_ARRAY);
  if (!type || !shape || !where || v->count != 3 || where->count != 2)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: tensor '%s': expected dtype, shape and data_offsets",
                   path, shown);
  int k = 0;
  while (k < NSTORED && strcmp(stored[k].name, type->string) != 0) k++;
  if (k == NSTORED) {
    char other[32];
    dt_json_escape(other, sizeof other, type->string);
    return dt_fail(e, DT_EXIT_CONTENT, "%s: tensor '%s': unknown dtype '%s'", path, shown, other);
  }
  t->type = (DtStored)k;
  if (shape->count > DT_MAX_RANK)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: tensor '%s' has %u dimensions, more than %d", path,
                   shown, shape->count, DT_MAX_RANK);
  t->rank = 0;
  t->count = 1;
  for (const DtJsonValue *x = dt_json_first(&w->json, shape); x; x = dt_json_next(&w->json, x)) {
    if (x->kind != DT_JSON_INTEGER || x->integer < 0 ||
        __builtin_mul_overflow(t->count, x->integer, &t->count))
      return dt_fail(e, DT_EXIT_CONTENT, "%s: tensor '%s': bad shape", path, shown);
    t->extent[t->rank++] = x->integer;
  }
  int64_t bytes;
  if (__builtin_mul_overflow(t->count, stored[k].size, &bytes))
    return dt_fail(e, DT_EXIT_CONTENT, "%s: tensor '%s': bad shape", path, shown);
  const DtJsonValue *b = dt_json_first(&w->json, where), *n = dt_json_next(&w->json, b);
  if (b->kind != DT_JSON_INTEGER || n->kind != DT_JSON_INTEGER || b->integer < 0 ||
      n->integer < b->integer)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: tensor '%s': bad data_offsets", path, shown);
  if ((uint64_t)n->integer > size)
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s: tensor '%s' ends at byte %lld of data that has %llu: the file is truncated",
                   path, shown, (long long)n->integer, (unsigned long long)size);
  if (n->integer - b->integer != bytes) {
    char text[192];
    dt_shape_text(text, t->rank, t->extent);
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s: tensor '%s': %s %s takes %lld bytes, its data_offsets span %lld", path,
                   shown, type->string, text, (long long)bytes,
                   (long long)(n->integer - b->integer));
  }
  t->data = data + b->integer;
  *span = (Span){(uint64_t)b->integer, (uint64_t)n->integer};
  w->n++;
  return 0;
}

static int compare_spans(const void *a, const void *b) {
  const Span *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const DtTensor *)a)->name, ((const DtTensor *)b)->name);
}

static int read_header(DtWeights *w, const unsigned char *data, uint64_t size, const char *path,
                       Span *span, DtError *e) {
  for (const DtJsonValue *v = dt_json_first(&w->json, dt_json_root(&w->json)); v;
       v = dt_json_next(&w->json, v)) {
    if (strcmp(v->key, "__metadata__") == 0) {
      if (v->kind != DT_JSON_OBJECT)
        return dt_fail(e, DT_EXIT_CONTENT, "%s: bad __metadata__", path);
      continue;
    }
    if (read_entry(w, v, data, size, path, &span[w->n], e)) return e->status;
  }
  qsort(span, (size_t)w->n, sizeof *span, compare_spans);
  uint64_t at = 0;
  for (int64_t i = 0; i < w->n; i++) {
    if (span[i].begin != at)
      return dt_fail(e, DT_EXIT_CONTENT, "%s: tensors' data %s at byte %llu", path,
                     span[i].begin > at ? "has a gap" : "overlaps", (unsigned long long)at);
    at = span[i].end;
  }
  if (at != size)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: %llu bytes behind the last tensor", path,
                   (unsigned long long)(size - at));
  qsort(w->tensor, (size_t)w->n, sizeof *w->tensor, compare_names);
  return 0;
}

int dt_weights_parse(DtWeights *w, const unsigned char *bytes, size_t size, const char *path,
                     DtError *e) {
  memset(w, 0, sizeof *w);
  uint64_t length;
  if (size < 8)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: %zu bytes are not a safetensors file", path, size);
  memcpy(&length, bytes, 8);
  if (length > LONGEST_HEADER || length > size - 8)
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s: its first 8 bytes announce a header of %llu bytes; the file has %zu", path,
                   (unsigned long long)length, size);
  if (length < 2 || bytes[8] != '{')
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s: not a safetensors file: its header does not begin with '{'", path);
  if (dt_json_parse(&w->json, (const char *)bytes + 8, length, path, e)) return e->status;
  uint32_t n = dt_json_root(&w->json)->count;
  if (n > MOST_TENSORS) return dt_fail(e, DT_EXIT_CONTENT, "%s: %u tensors are too many", path, n);
  w->tensor = calloc(n ? n : 1, sizeof *w->tensor);
  Span *span = calloc(n ? n : 1, sizeof *span);
  int status = w->tensor && span
                   ? read_header(w, bytes + 8 + length, size - 8 - length, path, span, e)
                   : dt_fail(e, DT_EXIT_OS, "no memory to read %s", path);
  free(span);
  return status;
}

int dt_weights_open(DtWeights *w, const char *path, DtError *e) {
  memset(w, 0, sizeof *w);
  DtMap map;
  if (dt_map_open(&map, path, e)) return e->status;
  int status = dt_weights_parse(w, map.bytes, map.size, path, e);
  w->map = map;
  return status;
}

void dt_weights_close(DtWeights *w) {
  dt_json_free(&w->json);
  free(w->tensor);
  dt_map_close(&w->map);
  memset(w, 0, sizeof *w);
}

const DtTensor *dt_weights_find(const DtWeights *w, const char *name) {
  DtTensor key = {.name = name};
  return w->n ? bsearch(&key, w->tensor, (size_t)w->n, sizeof key, compare_names) : NULL;
}

static double element(const DtTensor *t, int64_t i) {
  uint16_t h;
  float f;
  double d;
  switch (t->type) {
  case DT_ST_F16: memcpy(&h, t->data + 2 * i, 2); return (double)dt_from_f16(h);
  case DT_ST_BF16: memcpy(&h, t->data + 2 * i, 2); return (double)dt_from_bf16(h);
  case DT_ST_F32: memcpy(&f, t->data + 4 * i, 4); return (double)f;
  default: memcpy(&d, t->data + 8 * i, 8); return d;
  }
}

void dt_tensor_read(const DtTensor *t, int64_t begin, int64_t n, DtType to, void *out) {
  if (n <= 0) return;
  if (t->type == DT_ST_F32 && to == DT_TYPE_F32) {
    memcpy(out, t->data + 4 * begin, (size_t)n * 4);
  } else if (t->type == DT_ST_F64 && to == DT_TYPE_F64) {
    memcpy(out, t->data + 8 * begin, (size_t)n * 8);
  } else {
    for (int64_t i = 0; i < n; i++) dt_put_real(to, out, i, element(t, begin + i));
  }
}

// Prints the header's JSON, or only counts its bytes where o is NULL.
static size_t print_header(DtOut *o, const DtTensor *tensor, int64_t n, DtType type) {
  char line[4096], name[2048];
  size_t total = 0;
  int64_t at = 0;
  int size = type == DT_TYPE_F64 ? 8 : 4;
  for (int64_t i = 0; i < n; i++) {
    const DtTensor *t = &tensor[i];
    char shape[192];
    dt_json_escape(name, sizeof name, t->name);
    dt_shape_text(shape, t->rank, t->extent);
    int k = snprintf(line, sizeof line,
                     "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%lld,%lld]}",
                     i ? ",\n" : "{", name, size == 8 ? "F64" : "F32", shape, (long long)at,
                     (long long)(at + t->count * size));
    at += t->count * size;
    total += (size_t)k;
    if (o) dt_out_write(o, line, (size_t)k);
  }
  const char *end = n ? "}" : "{}";
  if (o) dt_out_write(o, end, strlen(end));
  return total + strlen(end);
}

void dt_weights_header(DtOut *o, const DtTensor *tensor, int64_t n, DtType type) {
  size_t text = print_header(NULL, tensor, n, type);
  uint64_t padded = (text + 8 + 4095) / 4096 * 4096 - 8;
  dt_out_write(o, &padded, 8);
  print_header(o, tensor, n, type);
  for (size_t i = text; i < padded; i++) dt_out_write(o, " ", 1);
}
