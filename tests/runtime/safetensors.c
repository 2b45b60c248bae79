// Safetensors: a file that lies in any way is refused with the cause; numbers of every precision
// are read.
#include "runtime/files/safetensors.h"
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static DtError error;

// Parses a header and `size` bytes of data (0, 1, 2, ...) behind it.
static int parse(const char *header, size_t size, DtWeights *w) {
  static unsigned char *bytes;
  uint64_t n = strlen(header);
  free(bytes);
  bytes = malloc(8 + n + size + 1);
  memcpy(bytes, &n, 8);
  memcpy(bytes + 8, header, n);
  for (size_t i = 0; i < size; i++) bytes[8 + n + i] = (unsigned char)i;
  error = (DtError){0};
  return dt_weights_parse(w, bytes, 8 + n + size, "w.st", &error);
}

static void refuses(const char *header, size_t size, const char *why) {
  DtWeights w;
  CHECK(parse(header, size, &w) == DT_EXIT_CONTENT);
  CHECK_SAYS(error.text, why);
  CHECK_SAYS(error.text, "w.st");
  dt_weights_close(&w);
}

static void test_lies(void) {
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "truncated");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "behind the last");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "takes 12 bytes");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "gap");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
          12, "overlap");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "data_offsets");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "bad shape");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
          "bad shape");
  refuses("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
          "bad shape");
  refuses("{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
          "unknown dtype 'F31'");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
          "dimensions");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "expected dtype");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
          8, "twice");
  refuses("[]", 0, "does not begin with '{'");
  refuses("{\"a\":", 0, "unexpected end");
  DtWeights w;
  unsigned char huge[16] = {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'};
  CHECK(dt_weights_parse(&w, huge, 16, "w.st", &error) == DT_EXIT_CONTENT);
  dt_weights_close(&w);
  CHECK(dt_weights_parse(&w, huge, 5, "w.st", &error) == DT_EXIT_CONTENT);
  dt_weights_close(&w);
  CHECK(dt_weights_open(&w, "missing.st", &error) == DT_EXIT_MISSING);
  CHECK_SAYS(error.text, "missing.st");
  dt_weights_close(&w);
}

static void test_precisions(void) {
  // 1.5, -2 and the smallest subnormal in half precision; 1.5 and -2 in bfloat16.
  uint16_t half[3] = {0x3E00, 0xC000, 0x0001}, brain[2] = {0x3FC0, 0xC000};
  double d[2] = {1e300, -0.1}, out[3];
  float f[3];
  DtTensor t = {.type = DT_ST_F16, .count = 3, .data = (unsigned char *)half};
  dt_tensor_read(&t, 0, 3, DT_TYPE_F64, out);
  CHECK(out[0] == 1.5 && out[1] == -2 && out[2] == 0x1p-24);
  t = (DtTensor){.type = DT_ST_BF16, .count = 2, .data = (unsigned char *)brain};
  dt_tensor_read(&t, 0, 2, DT_TYPE_F32, f);
  CHECK(f[0] == 1.5f && f[1] == -2);
  t = (DtTensor){.type = DT_ST_F64, .count = 2, .data = (unsigned char *)d};
  dt_tensor_read(&t, 0, 2, DT_TYPE_F32, f);
  CHECK(isinf(f[0]) && f[1] == -0.1f);
  dt_tensor_read(&t, 1, 1, DT_TYPE_F64, out);
  CHECK(out[0] == -0.1);
}

static void test_round_trip(void) {
  check_folder();
  float a[6] = {1, 2, 3, 4, 5, 6}, b = 7;
  DtTensor t[2] = {{.name = "layer.weight", .rank = 2, .extent = {2, 3}, .count = 6},
                   {.name = "odd \"name\"", .count = 1}};
  DtOut o;
  CHECK(dt_out_open(&o, "w.st", &error) == 0);
  dt_weights_header(&o, t, 2, DT_TYPE_F32);
  dt_out_write(&o, a, sizeof a);
  dt_out_write(&o, &b, sizeof b);
  CHECK(dt_out_close(&o, &error) == 0);
  DtWeights w;
  CHECK(dt_weights_open(&w, "w.st", &error) == 0 && w.n == 2);
  const DtTensor *x = dt_weights_find(&w, "layer.weight"), *y = dt_weights_find(&w, "odd \"name\"");
  CHECK(x && x->rank == 2 && x->extent[0] == 2 && x->extent[1] == 3 &&
        memcmp(x->data, a, sizeof a) == 0);
  CHECK(x && (x->data - w.map.bytes) % 4096 == 0);
  CHECK(y && y->rank == 0 && y->count == 1 && memcmp(y->data, &b, sizeof b) == 0);
  CHECK(!dt_weights_find(&w, "layer"));
  dt_weights_close(&w);
}

int main(void) {
  DtWeights w;
  CHECK(parse("{}  ", 0, &w) == 0 && w.n == 0);
  dt_weights_close(&w);
  CHECK(parse("{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_"
              "offsets\":[4,8]},"
              "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
              "\"c\":{\"dtype\":\"I64\",\"shape\":[0,5],\"data_offsets\":[8,8]}}",
              8, &w) == 0);
  CHECK(w.n == 3 && strcmp(w.tensor[0].name, "a") == 0 && strcmp(w.tensor[1].name, "b") == 0);
  dt_weights_close(&w);
  test_lies();
  test_precisions();
  test_round_trip();
  return check_done();
}
