// A checkpoint that is damaged in any way is told and passed over for the one before; names and
// shapes that are not the model's are refused.
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool same(const char *a, const char *b) {
  char command[256];
  snprintf(command, sizeof command, "cmp -s %s %s", a, b);
  return system(command) == 0;
}

static void fresh_checkpoints(void) {
  CHECK(system("rm -rf ck") == 0);
  CHECK(run("arrays", "--steps", "6", "--save", "ck", "--save-every", "3", NULL) == 0);
}

// Flips a bit of byte `at` of the newest checkpoint's `file`; then --resume must take step 3.
static void damage(const char *file, size_t at) {
  char path[128];
  size_t n;
  snprintf(path, sizeof path, "ck/step-00000006/%s", file);
  char *bytes = read_whole(path, &n);
  if (!bytes) {
    CHECK(bytes);
    return;
  }
  bytes[at % n] ^= 4;
  write_file(path, bytes, n);
  CHECK(run("arrays", "--resume", "ck", "--steps", "0", "--export", "got.st", NULL) == 0);
  CHECK(same("got.st", "three.st"));
  CHECK(run("arrays", "--resume", "ck/step-00000006", "--steps", "0", NULL) == 65);
  bytes[at % n] ^= 4;
  write_file(path, bytes, n);
  write_file(path, bytes, n / 2); // cut off
  CHECK(run("arrays", "--resume", "ck", "--steps", "0", "--export", "got.st", NULL) == 0);
  CHECK(same("got.st", "three.st"));
  CHECK(unlink(path) == 0);
  CHECK(run("arrays", "--resume", "ck", "--steps", "0", "--export", "got.st", NULL) == 0);
  CHECK(same("got.st", "three.st"));
  write_file(path, bytes, n);
  CHECK(run("arrays", "--resume", "ck", "--steps", "0", "--export", "got.st", NULL) == 0);
  CHECK(same("got.st", "six.st"));
  free(bytes);
}

static void test_damage(void) {
  CHECK(run("arrays", "--steps", "3", "--export", "three.st", NULL) == 0);
  CHECK(run("arrays", "--steps", "6", "--export", "six.st", NULL) == 0);
  fresh_checkpoints();
  size_t n;
  char *manifest = read_whole("ck/step-00000006/manifest.json", &n);
  for (size_t at = 0; at < n; at += 11) damage("manifest.json", at);
  static const size_t places[] = {3, 500, 4096 + 20, 4096 + 100, 4096 + 200};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    damage("part-00000.safetensors", places[i]);
  free(manifest);
  // A run that goes on from step 3 replaces the damaged step 6.
  CHECK(truncate("ck/step-00000006/part-00000.safetensors", 100) == 0);
  CHECK(run("arrays", "--resume", "ck", "--steps", "6", "--save", "ck", NULL) == 0);
  CHECK(run("arrays", "--resume", "ck", "--steps", "0", "--export", "got.st", NULL) == 0);
  CHECK(same("got.st", "six.st"));
  CHECK(system("test -z \"$(ls ck | grep tmp)\"") == 0);
  // None is whole.
  CHECK(truncate("ck/step-00000003/part-00000.safetensors", 100) == 0);
  CHECK(truncate("ck/step-00000006/part-00000.safetensors", 100) == 0);
  CHECK(run("arrays", "--resume", "ck", "--steps", "0", NULL) == 65);
}

static void test_keep(void) {
  CHECK(system("rm -rf ck") == 0);
  CHECK(run("arrays", "--save", "ck", "--save-every", "3", "--keep", "2", NULL) == 0);
  CHECK(system("test \"$(echo $(ls ck))\" = \"step-00000018 step-00000020\"") == 0);
  // What a killed run left is removed; a second run on the folder's older steps leaves newer ones.
  CHECK(system("mkdir ck/step-00000099.tmp && touch ck/step-00000099.tmp/part-00000.safetensors.tmp") ==
        0);
  CHECK(run("arrays", "--steps", "2", "--save", "ck", "--keep", "1", NULL) == 0);
  CHECK(system("test \"$(echo $(ls ck))\" = \"step-00000002 step-00000018 step-00000020\"") == 0);
}

static void test_other_models(void) {
  fresh_checkpoints();
  CHECK(run("tokens", "--resume", "ck", NULL) == 65);
  CHECK(run("tokens", "--init", "ck", NULL) == 65);
  CHECK(run("arrays", "--init", "x.npy", NULL) == 65);
  CHECK(run("arrays", "--init", "missing.st", NULL) == 66);
  CHECK(system("mkdir empty") == 0);
  CHECK(run("arrays", "--init", "empty", NULL) == 66);
  // A part has the moments too, so it is no file of weights; its folder is as good as one.
  CHECK(run("arrays", "--init", "ck/step-00000006/part-00000.safetensors", NULL) == 65);
  CHECK(run("arrays", "--steps", "6", "--export", "six.st", NULL) == 0);
  CHECK(run("arrays", "--init", "ck", "--steps", "0", "--export", "got.st", NULL) == 0);
  CHECK(same("got.st", "six.st"));
  CHECK(run("arrays", "--resume", "x.npy", NULL) == 65);
  CHECK(run("arrays", "--resume", "ck/step-00000007", NULL) == 66);
  CHECK(unlink("ck/step-00000006/manifest.json") == 0);
  CHECK(run("arrays", "--resume", "ck/step-00000006", NULL) == 65);
  CHECK(run("arrays", "--save", "x.npy/sub", NULL) == 73);
  CHECK(run("arrays", "--log", "no/such/folder.jsonl", NULL) == 73);
  CHECK(run("arrays", "--export", "no/such/folder.st", NULL) == 73);
}

int main(void) {
  check_folder();
  write_fake_data(20);
  test_damage();
  test_keep();
  test_other_models();
  return check_done();
}
