// Files given to tokens(...) that hold something else are refused, with the evidence and a remedy; files of tokens, of
// any vocabulary, are not.
#include "support/check.h"

#include "runtime/data/tokens.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 17 };
static unsigned char data[4 * MOST];
static size_t size;
static uint64_t state = 7;

static uint32_t below(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % n;
}

static void put(const void *bytes, size_t n) {
  memcpy(data + size, bytes, n);
  size += n;
}

static void put16(uint32_t v) {
  uint16_t w = (uint16_t)v;
  put(&w, 2);
}

static void is(const char *name, const char *pattern) {
  DtTokens t;
  DtError e = {0};
  int status = dt_tokens_parse(&t, data, size, false, "x.bin", &e);
  bool good = pattern ? status == DT_EXIT_CONTENT && strstr(e.text, pattern) : status == 0;
  if (!good)
    fprintf(stderr, "%s: status %d, '%s', expected '%s'\n", name, status, e.text,
            pattern ? pattern : "");
  check_that(good, name, __FILE__, __LINE__);
}
static void accepted(const char *name) { is(name, NULL); }

// Tokens of a vocabulary, the frequent ones first, as in a real one.
static uint32_t drawn(uint32_t vocab) {
  uint32_t v = below(vocab);
  for (int i = 0; i < 3; i++) v = below(2) ? v : below(v + 1);
  return v;
}

static void test_vocabularies(void) {
  static const uint32_t vocab[] = {1, 2, 3, 4, 5, 8, 17, 65, 97, 256, 1000, 8192, 32000, 50257, 65536};
  for (size_t k = 0; k < sizeof vocab / sizeof *vocab; k++)
    for (int n = 4; n <= MOST; n = n * 3 / 2) {
      char name[64];
      snprintf(name, sizeof name, "%d tokens of %u", n, vocab[k]);
      size = 0;
      for (int i = 0; i < n; i++) put16(drawn(vocab[k]));
      accepted(name);
      size = 0;
      for (int i = 0; i < n; i++) put16(below(vocab[k]));
      accepted(name);
    }
}

static void test_regular(void) {
  static const uint32_t constant[] = {0, 1, 5, 300, 0x2020, 0x6161, 50256, 65535};
  for (size_t k = 0; k < sizeof constant / sizeof *constant; k++) {
    size = 0;
    for (int i = 0; i < 5000; i++) put16(constant[k]);
    accepted("a constant file");
  }
  size = 0;
  for (uint32_t i = 0; i < 40000; i++) put16(i % 16);
  accepted("counting");
  size = 0;
  for (uint32_t i = 0; i < 40000; i++) put16(i % 2 ? 0 : 7);
  accepted("two tokens in turn"); // nothing says that these are not all
  size = 0;
  for (uint32_t i = 0; i < 40000; i++) put16(i % 501 ? 0 : 1 + i / 501);
  accepted("mostly padding");
}

static void put_wide(int bytes, uint32_t vocab, int n) {
  size = 0;
  for (int i = 0; i < n; i++) {
    uint64_t v = below(vocab);
    put(&v, (size_t)bytes);
  }
}

static void test_wide(void) {
  static const uint32_t vocab[] = {20, 65, 256, 50257};
  for (size_t k = 0; k < sizeof vocab / sizeof *vocab; k++) {
    put_wide(4, vocab[k], 3000);
    is("uint32", "x.bin: each second uint16 is 0: these are tokens of 32 bits or more");
    put_wide(8, vocab[k], 3000);
    is("int64", "x.bin: each second uint16 is 0: these are tokens of 32 bits or more");
  }
  put_wide(4, 128256, 3000);
  is("Llama's uint32", "each second uint16 is 0 to 1");
  int32_t header[256] = {20240520, 1, 6000};
  put_wide(4, 65, 3000);
  memmove(data + sizeof header, data, size);
  memcpy(data, header, sizeof header);
  size += sizeof header;
  accepted("the same with a header that says that they are uint16");
  header[0] = 20240801;
  header[1] = 7;
  memcpy(data, header, sizeof header);
  is("llm.c's newer header", "tokens of 32 bits (llm.c's header 20240801)");
  header[0] = 20240326;
  memcpy(data, header, sizeof header);
  is("llm.c's weights", "weights, by llm.c's header 20240326");
}

static void test_text(void) {
  static const char *const text[] = {
      "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n",
      "{\"text\": \"a line of JSON, as in a corpus\"}\n", "\xef\xbb\xbfwith a mark of byte order, odd\n",
      "\xe5\x88\x9d\xe3\x82\x81\xe3\x81\xa6\xe3\x81\xae\xe4\xba\xba\xe3\x80\x82\xe4\xbd\x95",
      "Gr\xfc\xdf Gott, sagte der M\xfcller, und ging in die Stadt, um Brot zu kaufen.\n"};
  for (size_t k = 0; k < sizeof text / sizeof *text; k++) {
    size = 0;
    put(text[k], strlen(text[k]));
    is("a short text", "x.bin is text, not uint16 tokens: give it to bytes(...)");
    while (size < 400000) put(text[k], strlen(text[k]));
    is("a long text", "x.bin is text");
  }
}

static void test_formats(void) {
  static const struct {
    const char *bytes;
    size_t n;
    const char *pattern;
  } form[] = {
      {"\x93NUMPY\1\0v\0{'descr': '<u2'", 24, "a NumPy array (.npy), not uint16 tokens: give it to arrays("},
      {"\x1f\x8b\x08\0\0\0\0\0\0\3\xcb\x48\xcd\xc9\xc9\x57\x28\xcf", 18, "compressed by gzip"},
      {"\x28\xb5\x2f\xfd\x24\5)\0", 8, "compressed by zstd"},
      {"PK\3\4\x2d\0\0\0\0\0\0\0!\0abcdefghijklmnopqrst", 34, "a zip file"},
      {"\x0c\0\0\0\0\0\0\0{\"__meta_\":}\1\2", 22, "a safetensors file"},
      {"\x80\4\x95\5\0\0\0\0\0\0\0]\x94(K.", 16, "a Python pickle"},
      {"PAR1\x15\4\x15\x10\x15\x14\0\0PAR1", 16, "a Parquet table"},
      {"ARROW1\0\0\xff\xff\xff\xff\xf8\1\0\0", 16, "an Arrow table"},
      {"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0", 16, "an HDF5 file"},
  };
  for (size_t k = 0; k < sizeof form / sizeof *form; k++) {
    size = 0;
    put(form[k].bytes, form[k].n);
    is(form[k].pattern, form[k].pattern);
  }
  size = 0;
  put("\x1f\x8b\x08\x77\1\0\2\0\3\0\4\0\5\0\6\0\7\0\x08\0", 20);
  accepted("GPT-2's token 35615, then 30472");
  size = 0;
  put("\1\0\2\0\3", 5);
  is("odd", "5 bytes are not a whole number of uint16 tokens");
}

int main(void) {
  test_vocabularies();
  test_regular();
  test_wide();
  test_text();
  test_formats();
  return check_done();
}
