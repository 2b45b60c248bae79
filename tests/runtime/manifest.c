// A manifest that lies, though its hashes are right, is refused: names that leave the folder, parts
// that are not there, tensors that are there twice, or not, or in another shape. A checkpoint of the
// first version is read.
#define _GNU_SOURCE
#include "runtime/base/hash.h"
#include "runtime/files/manifest.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char MANIFEST[] = "ck/step-00000006/manifest.json";
static const char PART[] = "ck/step-00000006/part-00000.safetensors";

// What a run prints to stderr goes to said.txt.
static int run_quietly(const char *option, const char *value) {
  fflush(stderr);
  pid_t pid = fork();
  if (pid == 0) {
    if (!freopen("said.txt", "w", stderr)) _exit(99);
    int status = run("arrays", option, value, "--steps", "0", "--export", "got.st", NULL);
    fflush(NULL);
    _exit(status);
  }
  int status;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void refuses(const char *why) {
  size_t n;
  int status = run_quietly("--resume", "ck/step-00000006");
  char *said = read_whole("said.txt", &n);
  if (status != 65) fprintf(stderr, "status %d for '%s'\n", status, why);
  CHECK(status == 65);
  CHECK_SAYS(said, why);
  free(said);
}

static bool same(const char *a, const char *b) {
  char command[256];
  snprintf(command, sizeof command, "cmp -s %s %s", a, b);
  return system(command) == 0;
}

// Writes a manifest with the last line that it needs.
static void write_manifest(const char *text) {
  FILE *f = fopen(MANIFEST, "w");
  size_t n = strlen(text);
  if (!f) abort();
  fprintf(f, "%s\"check\":\"%016llx\"}\n", text, (unsigned long long)dt_hash(text, n));
  fclose(f);
}

// The manifest without its last line.
static char *manifest(void) {
  size_t n;
  char *text = read_whole(MANIFEST, &n);
  if (!text) abort();
  char *last = memrchr(text, '\n', n - 1);
  last[1] = 0;
  return text;
}

// `text` with the first `from` replaced by `to`.
static char *replaced(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  char *out;
  if (!at || asprintf(&out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) < 0) abort();
  return out;
}

static void refuses_edit(const char *from, const char *to, const char *why) {
  char *was = manifest(), *text = replaced(was, from, to);
  write_manifest(text);
  refuses(why);
  write_manifest(was);
  free(was);
  free(text);
}

// An entry for a file as it is.
static char *entry(const char *name) {
  char path[256], *out;
  size_t n;
  snprintf(path, sizeof path, "ck/step-00000006/%s", name);
  char *bytes = read_whole(path, &n);
  if (!bytes || asprintf(&out, "{\"file\":\"%s\",\"bytes\":%zu,\"xxh64\":\"%016llx\"}", name, n,
                         (unsigned long long)dt_hash(bytes, n)) < 0)
    abort();
  free(bytes);
  return out;
}

static void fresh(void) {
  CHECK(system("rm -rf ck") == 0);
  CHECK(run("arrays", "--steps", "6", "--save", "ck", "--export", "six.st", NULL) == 0);
}

static void test_names(void) {
  static const char part[] = "\"file\":\"part-00000.safetensors\"";
  static const struct {
    const char *name, *why;
  } bad[] = {{"\"file\":\"../part-00000.safetensors\"", "not a name of a part"},
             {"\"file\":\"/etc/passwd\"", "not a name of a part"},
             {"\"file\":\"a/b\"", "not a name of a part"},
             {"\"file\":\"..\"", "not a name of a part"},
             {"\"file\":\".\"", "not a name of a part"},
             {"\"file\":\"\"", "not a name of a part"},
             {"\"file\":\"part..safetensors\"", "not a name of a part"},
             {"\"file\":3", "bad entry"},
             {"\"flie\":\"part-00000.safetensors\"", "bad entry"},
             {"\"file\":\"part-00001.safetensors\"", "part-00001.safetensors: No such file"},
             {"\"file\":\"manifest.json\"", "damaged"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuses_edit(part, bad[i].name, bad[i].why);
}

static void test_fields(void) {
  refuses_edit("\"format\":\"dtc checkpoint\"", "\"format\":\"other\"",
               "not a checkpoint's manifest");
  refuses_edit("\"version\":2", "\"version\":3", "of version 3");
  refuses_edit("\"version\":2", "\"version\":0", "of version 0");
  refuses_edit("\"version\":2", "\"version\":1", "'parts' is not a list of the parts");
  refuses_edit("\"step\":6", "\"step\":-6", "'step' is -6, possible are 0 to 1000000000000000");
  refuses_edit("\"step\":6", "\"step\":1000000000000001", "'step' is 1000000000000001, possible");
  refuses_edit("\"samples\":", "\"samples\":9223372036854775807,\"was\":", "'samples' is 9223372036854775807, possible");
  refuses_edit("\"samples\":", "\"samples\":-", "'samples' is -");
  refuses_edit("\"samples\":", "\"samples\":1.5,\"was\":", "the integer 'samples' is missing");
  refuses_edit("\"train_samples\":", "\"train_samples\":-1,\"were\":", "'train_samples' is -1, possible");
  refuses_edit("\"step\":6", "\"step\":\"6\"", "the integer 'step' is missing");
  refuses_edit("\"moments\":2", "\"moments\":3", "'moments' is 3, possible are 0 to 2");
  refuses_edit("\"moments\":2", "\"moments\":1", "unknown: 'moment1/blocks.0.scale'");
  // The state of a loss scale, which only programs of fp16 write, is looked at in all of them.
  refuses_edit("\"moments\":", "\"loss_scale\":0,\"moments\":", "'loss_scale' is 0, possible are 1 to 4294967296");
  refuses_edit("\"moments\":", "\"loss_scale\":8,\"moments\":", "the integer 'clean_steps' is missing");
  refuses_edit("\"moments\":", "\"loss_scale\":8,\"clean_steps\":2000,\"moments\":", "'clean_steps' is 2000, possible");
  refuses_edit("\"moments\":", "\"loss_scale\":8,\"clean_steps\":0,\"skipped_steps\":7,\"moments\":",
               "'skipped_steps' is 7, possible are 0 to 6");
  refuses_edit("\"moments\":",
               "\"loss_scale\":9,\"clean_steps\":0,\"skipped_steps\":0,\"skipped_at_1\":0,\"moments\":",
               "'loss_scale' is 9, which is no power of two");
  refuses_edit("\"parts\":[", "\"parts\":[7,", "bad entry");
  refuses_edit("\"bytes\":", "\"bytes\":1", "damaged");
  refuses_edit("\"bytes\":", "\"bytes\":-", "manifest.json: 'bytes' is -");
  refuses_edit("\"bytes\":", "\"bytes\":9223372036854775807,\"were\":", "manifest.json: 'bytes' is 9");
  refuses_edit("\"xxh64\":\"", "\"xxh64\":\"0", "bad entry");
  refuses_edit("\"xxh64\":\"", "\"xxh64\":\"X", "bad entry");
}

// The part's header, whose padding makes room, with one text replaced by another, under a right hash.
static void refuses_header(const char *from, const char *to, const char *why) {
  size_t n, a = strlen(from), b = strlen(to);
  uint64_t length;
  char *bytes = read_whole(PART, &n), *keep = malloc(n), *was = manifest();
  char *at = memmem(bytes, n, from, a), *before = entry("part-00000.safetensors");
  if (!at) abort();
  memcpy(keep, bytes, n);
  memcpy(&length, bytes, sizeof length);
  char *end = bytes + 8 + length;
  memmove(at + b, at + a, (size_t)(end - at) - (a > b ? a : b));
  if (a > b) memset(end - (a - b), ' ', a - b);
  memcpy(at, to, b);
  write_file(PART, bytes, n);
  char *after = entry("part-00000.safetensors"), *edited = replaced(was, before, after);
  write_manifest(edited);
  refuses(why);
  write_file(PART, keep, n);
  write_manifest(was);
  free(bytes), free(keep), free(was), free(before), free(after), free(edited);
}

static void test_tensors(void) {
  refuses_header("\"shape\":[6]", "\"shape\":[2,3]", "has shape [2, 3], expected [6]");
  refuses_header("\"shape\":[6]", "\"shape\":[7]", "[7] takes 28 bytes");
  refuses_header("\"dtype\":\"F32\"", "\"dtype\":\"I32\"", "holds I32");
  refuses_header("\"moment1/head.bias\"", "\"moment7/head.bias\"",
                 "missing: 'moment1/head.bias'; unknown: 'moment7/head.bias'");
  // A second part with the same tensors, one that lacks them, none at all.
  char *text = manifest();
  CHECK(system("cp ck/step-00000006/part-00000.safetensors ck/step-00000006/part-00001.safetensors") ==
        0);
  char *one = entry("part-00000.safetensors"), *two = entry("part-00001.safetensors"), *both;
  if (asprintf(&both, "%s,%s", one, two) < 0) abort();
  char *edited = replaced(text, one, both);
  write_manifest(edited);
  refuses("'blocks.0.scale' occurs twice, in ck/step-00000006/part-0000");
  refuses_edit(both, "", "missing: 'head.weight', 'head.bias', 'blocks.0.scale' and 9 more");
  write_manifest(text);
  CHECK(unlink("ck/step-00000006/part-00001.safetensors") == 0);
  free(text), free(one), free(two), free(both), free(edited);
}

// The parts that version 1 had: the tensors of one kind under the parameters' names.
static void write_old_part(const DtWeights *w, const char *prefix, const char *name) {
  char path[256];
  DtTensor tensor[16];
  DtError e = {0};
  DtOut o;
  int64_t n = 0;
  snprintf(path, sizeof path, "ck/step-00000006/%s", name);
  for (int64_t i = 0; i < w->n; i++) {
    bool moment = strchr(w->tensor[i].name, '/');
    size_t skip = strlen(prefix);
    if (moment != (skip > 0) || strncmp(w->tensor[i].name, prefix, skip) != 0) continue;
    tensor[n] = w->tensor[i];
    tensor[n++].name += skip;
  }
  CHECK(n == 4 && dt_out_open(&o, path, &e) == 0);
  dt_weights_header(&o, tensor, n, DT_TYPE_F32);
  for (int64_t i = 0; i < n; i++) dt_out_write(&o, tensor[i].data, (size_t)tensor[i].count * 4);
  CHECK(dt_out_close(&o, &e) == 0);
}

static void test_version_1(void) {
  static const char *const name[] = {"params.safetensors", "moment0.safetensors",
                                     "moment1.safetensors"};
  DtWeights w;
  DtError e = {0};
  CHECK(dt_weights_open(&w, PART, &e) == 0);
  write_old_part(&w, "", name[0]);
  write_old_part(&w, "moment0/", name[1]);
  write_old_part(&w, "moment1/", name[2]);
  dt_weights_close(&w);
  char *text = manifest(), *part = entry("part-00000.safetensors"), *all, *old[3];
  for (int i = 0; i < 3; i++) old[i] = entry(name[i]);
  if (asprintf(&all, "%s,\n%s,\n%s", old[0], old[1], old[2]) < 0) abort();
  char *parts = replaced(text, part, all), *edited = replaced(parts, "\"version\":2", "\"version\":1");
  write_manifest(edited);
  CHECK(unlink(PART) == 0);
  CHECK(run_quietly("--resume", "ck") == 0 && same("got.st", "six.st"));
  CHECK(run_quietly("--init", "ck") == 0 && same("got.st", "six.st"));
  // With its moments: the next steps are those of a run that was not stopped.
  CHECK(run("arrays", "--resume", "ck", "--steps", "9", "--export", "nine.st", NULL) == 0);
  CHECK(run("arrays", "--steps", "9", "--export", "whole.st", NULL) == 0);
  CHECK(same("nine.st", "whole.st"));
  free(text), free(part), free(all), free(parts), free(edited);
  for (int i = 0; i < 3; i++) free(old[i]);
}

int main(void) {
  check_folder();
  write_fake_data(20);
  fresh();
  test_names();
  test_fields();
  test_tensors();
  CHECK(run_quietly("--resume", "ck") == 0 && same("got.st", "six.st"));
  test_version_1();
  return check_done();
}
