// The format is numpy/lib/format.py's: a magic string, a length, and a Python dict of three
// entries, which is parsed here as the literal that NumPy writes and nothing more.
#include "runtime/data/npy.h"

#include "runtime/base/real.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *descr, *name;
  int size;
  bool real;
} types[] = {
    [DT_NPY_BOOL] = {"b1", "bool", 1, false},  [DT_NPY_I8] = {"i1", "int8", 1, false},
    [DT_NPY_U8] = {"u1", "uint8", 1, false},   [DT_NPY_I16] = {"i2", "int16", 2, false},
    [DT_NPY_U16] = {"u2", "uint16", 2, false}, [DT_NPY_I32] = {"i4", "int32", 4, false},
    [DT_NPY_U32] = {"u4", "uint32", 4, false}, [DT_NPY_I64] = {"i8", "int64", 8, false},
    [DT_NPY_U64] = {"u8", "uint64", 8, false}, [DT_NPY_F16] = {"f2", "float16", 2, true},
    [DT_NPY_F32] = {"f4", "float32", 4, true}, [DT_NPY_F64] = {"f8", "float64", 8, true},
};
enum { NTYPES = sizeof types / sizeof *types };

typedef struct {
  const char *at, *end, *path;
  DtError *e;
} Header;

const char *dt_npy_type_name(DtNpyType type) { return types[type].name; }
bool dt_npy_is_real(DtNpyType type) { return types[type].real; }

static int bad(Header *h, const char *cause) {
  return dt_fail(h->e, DT_EXIT_CONTENT, "%s: bad .npy header: %s", h->path, cause);
}

static void skip_space(Header *h) {
  while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) h->at++;
}

// Takes `c`, white space before it allowed, or says false.
static bool take(Header *h, char c) {
  skip_space(h);
  if (h->at == h->end || *h->at != c) return false;
  h->at++;
  return true;
}

// 'text' or "text" of at most 31 plain bytes.
static bool string(Header *h, char out[32]) {
  char quote = '\'';
  if (!take(h, quote) && !take(h, quote = '"')) return false;
  int n = 0;
  while (h->at < h->end && *h->at != quote) {
    if (n == 31 || *h->at == '\\' || *h->at < ' ') return false;
    out[n++] = *h->at++;
  }
  out[n] = 0;
  return take(h, quote);
}

static int read_descr(Header *h, DtNpy *a) {
  char text[32];
  if (!string(h, text))
    return bad(h, "'descr' is not a plain type (structured arrays are not read)");
  if (text[0] == '>')
    return dt_fail(h->e, DT_EXIT_CONTENT,
                   "%s holds big-endian numbers ('%s'); save it with a.astype('<%s')", h->path,
                   text, text + 1);
  bool order = text[0] == '<' || text[0] == '|' || text[0] == '=';
  for (int k = 0; k < NTYPES; k++) {
    if (strcmp(text + order, types[k].descr) != 0) continue;
    a->type = (DtNpyType)k;
    return 0;
  }
  return dt_fail(h->e, DT_EXIT_CONTENT, "%s holds numbers of type '%s', which are not read",
                 h->path, text);
}

static int read_order(Header *h, bool *fortran) {
  skip_space(h);
  *fortran = h->end - h->at >= 4 && memcmp(h->at, "True", 4) == 0;
  if (!*fortran && (h->end - h->at < 5 || memcmp(h->at, "False", 5) != 0))
    return bad(h, "'fortran_order'");
  h->at += *fortran ? 4 : 5;
  return 0;
}

static int read_shape(Header *h, DtNpy *a) {
  if (!take(h, '(')) return bad(h, "'shape' is not a tuple");
  a->rank = 0;
  a->count = 1;
  while (!take(h, ')')) {
    int64_t v = 0;
    int digits = 0;
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++, digits++)
      if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *h->at - '0', &v))
        return bad(h, "an extent is too large");
    if (h->at < h->end && *h->at == 'L') h->at++; // Python 2 wrote 10L
    if (digits == 0) return bad(h, "'shape'");
    if (a->rank == DT_MAX_RANK) return bad(h, "too many dimensions");
    if (__builtin_mul_overflow(a->count, v, &a->count)) return bad(h, "the shape is too large");
    a->extent[a->rank++] = v;
    if (take(h, ',')) continue;
    if (!take(h, ')')) return bad(h, "'shape'");
    if (a->rank == 1) return bad(h, "'shape' is not a tuple");
    break;
  }
  return 0;
}

static int read_dict(Header *h, DtNpy *a) {
  enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
  int seen = 0;
  bool fortran = false;
  if (!take(h, '{')) return bad(h, "no dict");
  while (!take(h, '}')) {
    char key[32];
    if (!string(h, key) || !take(h, ':')) return bad(h, "a key is missing");
    int which = strcmp(key, "descr") == 0           ? DESCR
                : strcmp(key, "fortran_order") == 0 ? ORDER
                : strcmp(key, "shape") == 0         ? SHAPE
                                                    : 0;
    if (!which) return bad(h, "an unknown key");
    if (seen & which) return bad(h, "a key occurs twice");
    seen |= which;
    if (which == DESCR   ? read_descr(h, a)
        : which == ORDER ? read_order(h, &fortran)
                         : read_shape(h, a))
      return h->e->status;
    if (take(h, ',')) continue;
    if (!take(h, '}')) return bad(h, "',' or '}' is missing");
    break;
  }
  if (seen != (DESCR | ORDER | SHAPE))
    return bad(h, "'descr', 'fortran_order' or 'shape' is missing");
  skip_space(h);
  if (h->at != h->end) return bad(h, "something behind the dict");
  if (fortran && a->rank > 1)
    return dt_fail(h->e, DT_EXIT_CONTENT,
                   "%s is in Fortran order; save it with numpy.ascontiguousarray", h->path);
  return 0;
}

int dt_npy_parse(DtNpy *a, const unsigned char *bytes, size_t size, const char *path, DtError *e) {
  memset(a, 0, sizeof *a);
  if (size < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0)
    return dt_fail(e, DT_EXIT_CONTENT, "%s is not a .npy file", path);
  int version = bytes[6];
  if (version < 1 || version > 3)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: .npy version %d.%d is not read", path, version,
                   bytes[7]);
  size_t before = version == 1 ? 10 : 12, length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
  if (version > 1 && size >= 12) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
  if (size < before || length > size - before)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: its .npy header of %zu bytes is longer than the file",
                   path, length);
  const char *text = (const char *)bytes + before;
  Header h = {text, text + length, path, e};
  if (read_dict(&h, a)) return e->status;
  int64_t need;
  size_t have = size - before - length;
  bool over = __builtin_mul_overflow(a->count, types[a->type].size, &need);
  if (over || (uint64_t)need != have)
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s: its header announces %lld elements of %s, its data has %zu bytes: %s", path,
                   (long long)a->count, types[a->type].name, have,
                   over || (uint64_t)need > have ? "the file is truncated" : "the header is wrong");
  a->data = bytes + before + length;
  return 0;
}

int dt_npy_open(DtNpy *a, const char *path, DtError *e) {
  memset(a, 0, sizeof *a);
  DtMap map;
  if (dt_map_open(&map, path, e)) return e->status;
  int status = dt_npy_parse(a, map.bytes, map.size, path, e);
  a->map = map;
  return status;
}

void dt_npy_close(DtNpy *a) {
  dt_map_close(&a->map);
  memset(a, 0, sizeof *a);
}

#define LOAD(type)                                                                                 \
  {                                                                                                \
    type v;                                                                                        \
    memcpy(&v, a->data + (size_t)i * sizeof v, sizeof v);                                          \
    return v;                                                                                      \
  }

int64_t dt_npy_integer(const DtNpy *a, int64_t i) {
  switch (a->type) {
  case DT_NPY_BOOL:
  case DT_NPY_U8: LOAD(uint8_t)
  case DT_NPY_I8: LOAD(int8_t)
  case DT_NPY_I16: LOAD(int16_t)
  case DT_NPY_U16: LOAD(uint16_t)
  case DT_NPY_I32: LOAD(int32_t)
  case DT_NPY_U32: LOAD(uint32_t)
  case DT_NPY_I64: LOAD(int64_t)
  case DT_NPY_U64: {
    uint64_t v;
    memcpy(&v, a->data + (size_t)i * 8, 8);
    return v > INT64_MAX ? INT64_MAX : (int64_t)v;
  }
  default: return 0;
  }
}

double dt_npy_real(const DtNpy *a, int64_t i) {
  switch (a->type) {
  case DT_NPY_F32: LOAD(float)
  case DT_NPY_F64: LOAD(double)
  case DT_NPY_F16: {
    uint16_t h;
    memcpy(&h, a->data + (size_t)i * 2, 2);
    return (double)dt_from_f16(h);
  }
  default: return (double)dt_npy_integer(a, i);
  }
}
