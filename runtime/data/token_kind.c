// Whether a file given as bare uint16 tokens is plainly something else. A bare file says nothing about itself, and
// any bytes can be read as tokens; the rules here take as evidence only what a file of tokens shows by
// an accident that does not happen. llm.c's header before the tokens says for sure that they are some.
#include "runtime/data/tokens.h"

#include <stdio.h>

enum {
  LOOKED_AT = 256 << 10, // bytes, from the beginning
  LEAST_TEXT = 16,       // bytes that are evidence
  LEAST_WORDS = 16       // tokens in places where half of them should not be
};

static uint32_t word16(const unsigned char *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t word32(const unsigned char *p) { return word16(p) | word16(p + 2) << 16; }
static uint64_t word64(const unsigned char *p) { return word32(p) | (uint64_t)word32(p + 4) << 32; }

// ---- Formats that begin with a magic number

static bool begins(const unsigned char *d, size_t n, const char *magic, size_t length) {
  return n >= length && memcmp(d, magic, length) == 0;
}

// RFC 1952: deflate, no reserved flags, a known kind of file system. The first two bytes alone are GPT-2's
// token 35615.
static bool is_gzip(const unsigned char *d, size_t n) {
  return n >= 18 && begins(d, n, "\x1f\x8b\x08", 3) && d[3] < 0x20 &&
         (d[8] == 0 || d[8] == 2 || d[8] == 4) && (d[9] <= 13 || d[9] == 255);
}

// A first member that is stored or deflated.
static bool is_zip(const unsigned char *d, size_t n) {
  return n >= 30 && begins(d, n, "PK\3\4", 4) && word16(d + 4) <= 63 &&
         (word16(d + 8) == 0 || word16(d + 8) == 8);
}

static bool is_safetensors(const unsigned char *d, size_t n) {
  uint64_t header = n >= 10 ? word64(d) : 0;
  if (header < 2 || header > n - 8 || d[8] != '{') return false;
  unsigned char last = d[8 + header - 1];
  return (d[9] == '"' || d[9] == ' ' || d[9] == '}') && (last == '}' || last == ' ');
}

// Protocol 4 or 5 with one frame, or torch.save's format before it was a zip file.
static bool is_pickle(const unsigned char *d, size_t n) {
  bool framed = n >= 12 && d[0] == 0x80 && (d[1] == 4 || d[1] == 5) && d[2] == 0x95;
  return (framed && word64(d + 3) <= n - 11 && d[n - 1] == '.') ||
         begins(d, n, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", 8);
}

static bool is_parquet(const unsigned char *d, size_t n) {
  return n >= 12 && begins(d, n, "PAR1", 4) && memcmp(d + n - 4, "PAR1", 4) == 0;
}

static bool is_packed_otherwise(const unsigned char *d, size_t n) {
  return begins(d, n, "\x28\xb5\x2f\xfd", 4) || begins(d, n, "\xfd" "7zXZ", 6) ||
         (n >= 10 && begins(d, n, "BZh", 3) && memcmp(d + 4, "1AY&SY", 6) == 0);
}

static bool is_array_file(const unsigned char *d, size_t n) { return begins(d, n, "\x93NUMPY", 6); }
static bool is_hdf5(const unsigned char *d, size_t n) { return begins(d, n, "\x89HDF\r\n\x1a\n", 8); }
static bool is_arrow(const unsigned char *d, size_t n) { return begins(d, n, "ARROW1\0\0", 8); }

static const struct {
  bool (*is)(const unsigned char *, size_t);
  const char *what, *todo;
} formats[] = {
    {is_array_file, "a NumPy array (.npy)",
     "give it to arrays(...), or write its tokens bare: a.astype('<u2').tofile(...)"},
    {is_gzip, "compressed by gzip", "unpack it first"},
    {is_packed_otherwise, "compressed by zstd, xz or bzip2", "unpack it first"},
    {is_zip, "a zip file (.zip, .npz, .pt)", "write the tokens in it to a file of uint16"},
    {is_safetensors, "a safetensors file of weights", "name a file of tokens"},
    {is_pickle, "a Python pickle", "write the tokens in it to a file of uint16"},
    {is_parquet, "a Parquet table", "write its text as tokens to a file of uint16"},
    {is_arrow, "an Arrow table", "write its text as tokens to a file of uint16"},
    {is_hdf5, "an HDF5 file", "write the tokens in it to a file of uint16"},
};

// llm.c's other headers: dev/data/data_common.py, train_gpt2.py, tokenizer.h.
static const struct {
  uint32_t magic;
  const char *what;
} headers[] = {{20240801, "tokens of 32 bits (llm.c's header 20240801); only uint16 are read, which hold "
                          "vocabularies up to 65536"},
               {20240326, "weights, by llm.c's header 20240326, not tokens"},
               {20240327, "a debugging state, by llm.c's header 20240327, not tokens"},
               {20240328, "a tokenizer, by llm.c's header 20240328, not tokens"},
               {20240522, "an evaluation's questions, by llm.c's header 20240522, not tokens"}};

// ---- Text

// Bytes of a character of UTF-8 beyond ASCII at d, or 0.
static size_t character(const unsigned char *d, size_t n) {
  size_t length = d[0] >= 0xC2 && d[0] < 0xE0   ? 2
                  : d[0] >= 0xE0 && d[0] < 0xF0 ? 3
                  : d[0] >= 0xF0 && d[0] < 0xF5 ? 4
                                                : 0;
  for (size_t i = 1; i < length && i < n; i++)
    if ((d[i] & 0xC0) != 0x80) return 0;
  return length;
}

// No byte that text does not have, and some variety: UTF-8, or mostly ASCII (Latin-1). A token below 8192,
// which frequent ones are, has a high byte that text does not have.
static bool is_text(const unsigned char *d, size_t n) {
  size_t plain = 0, kinds = 0, step;
  bool seen[256] = {false}, utf8 = true;
  for (size_t i = 0; i < n; i += step) {
    bool blank = d[i] == '\t' || d[i] == '\n' || d[i] == '\r' || d[i] == '\f';
    step = 1;
    if ((d[i] < 0x20 && !blank) || d[i] == 0x7f) return false;
    if (d[i] < 0x80) plain++;
    else if (character(d + i, n - i)) step = character(d + i, n - i);
    else utf8 = false;
  }
  for (size_t i = 0; i < n; i++) {
    kinds += !seen[d[i]];
    seen[d[i]] = true;
  }
  enum { KINDS = 6, PLAIN_IN_20 = 17 };
  return n >= LEAST_TEXT && kinds >= KINDS && (utf8 || plain * 20 >= n * PLAIN_IN_20);
}

// ---- Tokens of 32 or 64 bits

// The largest of each second uint16, where these are small enough for high halves of tokens, and the others are
// not like them; else -1.
static int high_halves(const unsigned char *d, size_t n) {
  enum { MOST = 3 }; // vocabularies up to 2^18
  uint32_t most = 0, first = 0;
  size_t others = 0;
  bool vary = false;
  for (size_t i = 0; i + 4 <= n; i += 4) {
    uint32_t low = word16(d + i), high = word16(d + i + 2);
    if (high > MOST) return -1;
    if (high > most) most = high;
    if (low <= most) continue;
    if (!others++) first = low;
    vary |= low != first;
  }
  return others >= LEAST_WORDS && vary ? (int)most : -1;
}

int dt_tokens_suspect(const unsigned char *d, size_t size, const char *path, DtError *e) {
  size_t n = size < LOOKED_AT ? size : LOOKED_AT;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (formats[i].is(d, size))
      return dt_fail(e, DT_EXIT_CONTENT, "%s is %s, not uint16 tokens: %s", path, formats[i].what,
                     formats[i].todo);
  for (size_t i = 0; size >= 1024 && i < sizeof headers / sizeof *headers; i++)
    if (word32(d) == headers[i].magic)
      return dt_fail(e, DT_EXIT_CONTENT, "%s holds %s", path, headers[i].what);
  if (is_text(d, n))
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s is text, not uint16 tokens: give it to bytes(...), or write its tokens to a "
                   "file of uint16",
                   path);
  int high = size % 4 ? -1 : high_halves(d, n);
  if (high < 0) return 0;
  char range[24] = "0";
  if (high) snprintf(range, sizeof range, "0 to %d", high);
  return dt_fail(e, DT_EXIT_CONTENT,
                 "%s: each second uint16 is %s: these are tokens of 32 bits or more; write them as "
                 "uint16 (a.astype('<u2').tofile(...)). If they are uint16 all the same, put llm.c's "
                 "header before them: int32 20240520, 1, count and 253 zeros",
                 path, range);
}
