// JSON: what the grammar allows is read, what it does not is refused, and numbers print so that
// they read back.
#include "runtime/files/json.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool parses(const char *text) {
  DtJson j;
  DtError e = {0};
  int status = dt_json_parse(&j, text, strlen(text), "text", &e);
  dt_json_free(&j);
  return status == 0;
}

static void test_grammar(void) {
  static const char *const good[] = {"{}",
                                     "[]",
                                     " [1, -2.5e3, true, null, \"a\"] ",
                                     "{\"a\":{\"b\":[[]]}}",
                                     "\"\\u00e9\\ud83d\\ude00\\n\"",
                                     "0",
                                     "-0",
                                     "0.5"};
  static const char *const bad[] = {"",
                                    "{",
                                    "[1,]",
                                    "{\"a\":1,}",
                                    "{\"a\" 1}",
                                    "{a:1}",
                                    "01",
                                    "1.",
                                    ".5",
                                    "+1",
                                    "1e",
                                    "--1",
                                    "nul",
                                    "\"\\x\"",
                                    "\"\\ud83d\"",
                                    "\"\\udc00\"",
                                    "\"\\u0000\"",
                                    "\"\t\"",
                                    "\"abc",
                                    "[] []",
                                    "{\"a\":1,\"a\":2}",
                                    "{\"a\":1,\"b\":2,\"\\u0061\":3}",
                                    "9223372036854775808",
                                    "\"\xff\"",
                                    "\"\xc0\x80\"",
                                    "\"\xed\xa0\x80\"",
                                    "NaN"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) CHECK(parses(good[i]) || !good[i]);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    check_that(!parses(bad[i]), bad[i], __FILE__, __LINE__);
  char deep[400];
  memset(deep, '[', 200);
  memset(deep + 200, ']', 200);
  DtJson j;
  DtError e = {0};
  CHECK(dt_json_parse(&j, deep, 400, "deep", &e) == DT_EXIT_CONTENT);
  CHECK_SAYS(e.text, "too many levels");
  dt_json_free(&j);
}

static void test_values(void) {
  const char *text =
      "{\"n\":-9223372036854775808,\"x\":0.1,\"s\":\"\\u00e9\\ud83d\\ude00\\\"\",\"a\":[1,2,3]}";
  DtJson j;
  DtError e = {0};
  CHECK(dt_json_parse(&j, text, strlen(text), "text", &e) == 0);
  const DtJsonValue *root = dt_json_root(&j), *v;
  CHECK((v = dt_json_member(&j, root, "n", DT_JSON_INTEGER)) && v->integer == INT64_MIN);
  CHECK((v = dt_json_member(&j, root, "x", DT_JSON_REAL)) && v->real == 0.1);
  CHECK((v = dt_json_member(&j, root, "s", DT_JSON_STRING)) && strcmp(v->string, "é😀\"") == 0);
  CHECK((v = dt_json_member(&j, root, "a", DT_JSON_ARRAY)) && v->count == 3);
  CHECK(!dt_json_member(&j, root, "a", DT_JSON_STRING) &&
        !dt_json_member(&j, root, "b", DT_JSON_ARRAY));
  dt_json_free(&j);
}

static void test_writers(void) {
  static const double numbers[] = {0, -0.0, 0.1, 1.0 / 3, 1e300, 5e-324, 123456789, -2.5e-7, M_PI};
  char text[32];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    dt_json_real(text, numbers[i]);
    CHECK(strtod(text, NULL) == numbers[i] && parses(text));
  }
  dt_json_real(text, NAN);
  CHECK(strcmp(text, "null") == 0);
  char *quoted = dt_json_quote("a\"b\\c\n\x01");
  CHECK(strcmp(quoted, "\"a\\\"b\\\\c\\u000a\\u0001\"") == 0 && parses(quoted));
  free(quoted);
}

int main(void) {
  test_grammar();
  test_values();
  test_writers();
  return check_done();
}
