// XXH64 against published values, and in pieces of every size.
#include "runtime/base/hash.h"
#include "support/check.h"

#include <string.h>

int main(void) {
  CHECK(dt_hash("", 0) == 0xEF46DB3751D8E999u);
  CHECK(dt_hash("a", 1) == 0xD24EC4F1A98C6E5Bu);
  CHECK(dt_hash("abc", 3) == 0x44BC2CF5AD770999u);
  const char *long_text = "Nobody inspects the spammish repetition";
  CHECK(dt_hash(long_text, strlen(long_text)) == 0xFBCEA83C8A378BF1u);
  unsigned char bytes[301];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
  uint64_t whole = dt_hash(bytes, sizeof bytes);
  for (size_t step = 1; step < sizeof bytes; step++) {
    DtHash h;
    dt_hash_begin(&h);
    for (size_t i = 0; i < sizeof bytes; i += step)
      dt_hash_add(&h, bytes + i, sizeof bytes - i < step ? sizeof bytes - i : step);
    CHECK(dt_hash_end(&h) == whole);
  }
  return check_done();
}
