// .npy files as NumPy writes them, and headers that lie.
#include "runtime/data/npy.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

static DtError error;

static int parse(int version, const char *dict, size_t size, DtNpy *a) {
  static unsigned char *bytes;
  size_t n = strlen(dict), before = version == 1 ? 10 : 12;
  free(bytes);
  bytes = calloc(before + n + size + 1, 1);
  memcpy(bytes, "\x93NUMPY", 6);
  bytes[6] = (unsigned char)version;
  bytes[8] = (unsigned char)(n & 255);
  bytes[9] = (unsigned char)(n >> 8);
  memcpy(bytes + before, dict, n);
  for (size_t i = 0; i < size; i++) bytes[before + n + i] = (unsigned char)(i + 1);
  error = (DtError){0};
  return dt_npy_parse(a, bytes, before + n + size, "x.npy", &error);
}

static void refuses(const char *dict, size_t size, const char *why) {
  DtNpy a;
  CHECK(parse(1, dict, size, &a) == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, why);
  CHECK_SAYS(error.text, "x.npy");
}

static void test_types(void) {
  static const struct {
    const char *descr;
    int size;
    int64_t first; // of the bytes 1, 2, 3, ...
  } table[] = {{"|b1", 1, 1},
               {"|i1", 1, 1},
               {"|u1", 1, 1},
               {"<i2", 2, 0x0201},
               {"<u2", 2, 0x0201},
               {"<i4", 4, 0x04030201},
               {"<u4", 4, 0x04030201},
               {"<i8", 8, 0x0807060504030201},
               {"<u8", 8, 0x0807060504030201}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    char dict[128] = "{'descr': '";
    strcat(strcat(dict, table[i].descr), "', 'fortran_order': False, 'shape': (2, 3), }\n");
    DtNpy a;
    CHECK(parse(1 + (int)i % 3, dict, (size_t)table[i].size * 6, &a) == 0);
    CHECK(a.rank == 2 && a.extent[0] == 2 && a.extent[1] == 3 && a.count == 6);
    CHECK(dt_npy_integer(&a, 0) == table[i].first && dt_npy_real(&a, 0) == (double)table[i].first);
  }
  DtNpy a;
  CHECK(parse(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (1,)}", 2, &a) == 0);
  CHECK(dt_npy_real(&a, 0) == (512 + 1) * 0x1p-24);
  CHECK(parse(1, "{'descr': '<f8', 'fortran_order': False, 'shape': ()}", 8, &a) == 0 &&
        a.rank == 0);
  // Keys in any order, the other quotes, Fortran order where it makes no difference.
  CHECK(parse(2, "{\"shape\": (2L,), \"fortran_order\": True, \"descr\": \"<f4\"}", 8, &a) == 0);
}

static void test_lies(void) {
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 8, "truncated");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 8, "wrong");
  refuses("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", 8, "Fortran");
  refuses("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8, "big-endian");
  refuses("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", 8, "type '<c8'");
  refuses("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8, "type '|O'");
  refuses("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8, "structured");
  refuses("{'descr': '<f4', 'shape': (2,), }", 8, "missing");
  refuses("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8, "twice");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (2), }", 8, "tuple");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", 8, "shape");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 8,
          "too large");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296,), }", 8,
          "too large");
  refuses("{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,), }", 8,
          "truncated");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4,
          "dimensions");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", 8, "unknown key");
  refuses("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x", 8, "behind");
  refuses("", 8, "no dict");
  DtNpy a;
  CHECK(parse(4, "{}", 0, &a) == DT_EXIT_CONTENT);
  CHECK(dt_npy_parse(&a, (const unsigned char *)"\x93NUMPY\x01\x00\xff\xff{", 11, "x.npy",
                     &error) == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, "longer than the file");
  CHECK(dt_npy_parse(&a, (const unsigned char *)"text", 4, "x.npy", &error) == DT_EXIT_CONTENT);
}

int main(void) {
  test_types();
  test_lies();
  return check_done();
}
