#define _GNU_SOURCE
#include "codegen/link.h"

#include "codegen/target.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// Rounding is part of the program: no contraction. The host code is calls and address arithmetic,
// on which -O1 and -O2 differ by nothing but compile time.
static const char *const compile_flags[] = {"-std=c17", "-O1", "-ffp-contract=off", "-Wall",
                                            "-Wextra"};
enum {
  NCOMPILE = sizeof compile_flags / sizeof *compile_flags,
  MOST_WORDS = 8, // of $CC, of libs.txt, of each list of a target
  MOST_ARGS = NCOMPILE + 4 * MOST_WORDS + 16
};

static bool exists(Str path) { return access(path, R_OK) == 0; }

Str install_dir(void) {
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return str_intern("/usr");
  path[n] = 0;
  Str nearest = NULL;
  for (char *slash; (slash = strrchr(path, '/')) && slash != path;) {
    *slash = 0;
    if (exists(str_printf("%s/lib/dtc/libdtc_rt.a", path))) return str_intern(path);
    if (!nearest && strrchr(path, '/') != path) nearest = str_printf("%s/..", path);
  }
  return nearest ? nearest : str_intern("/usr");
}

static bool complain(Str path) {
  fprintf(stderr, "dtc: %s: %s\n", path, strerror(errno));
  return false;
}

void remove_half(Str path) {
  struct stat st;
  if (!stat(path, &st) && S_ISREG(st.st_mode)) unlink(path);
}

static bool write_file(Str path, const char *text, size_t n) {
  FILE *f = fopen(path, "wb");
  if (!f) return complain(path);
  bool ok = fwrite(text, 1, n, f) == n;
  if (!fclose(f) && ok) return true;
  complain(path);
  remove_half(path);
  return false;
}

bool link_write(Str path, const Buf *b) {
  return write_file(path, b->text ? b->text : "", b->n);
}

// $CC, which may hold several words ("ccache gcc"), or cc.
static int compiler(const char **arg) {
  const char *cc = getenv("CC");
  int n = 0;
  for (const char *p = cc ? cc : ""; *(p += strspn(p, " \t")) && n < MOST_WORDS;) {
    size_t len = strcspn(p, " \t");
    arg[n++] = str_internn(p, len);
    p += len;
  }
  if (!n) arg[n++] = "cc";
  return n;
}

// Its messages go where ours go.
bool link_run(const char *const *arg, const char *what, const char *hint) {
  signal(SIGCHLD, SIG_DFL); // where it is ignored, there is no status to wait for
  pid_t pid;
  int status, e = posix_spawnp(&pid, arg[0], NULL, NULL, (char *const *)arg, environ);
  if (e) {
    fprintf(stderr, "dtc: cannot run %s '%s': %s (%s)\n", what, arg[0], strerror(e), hint);
    return false;
  }
  while (waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (WIFSIGNALED(status))
    fprintf(stderr, "dtc: '%s' was stopped by signal %d\n", arg[0], WTERMSIG(status));
  else
    fprintf(stderr, "dtc: '%s' failed with status %d\n", arg[0], WEXITSTATUS(status));
  return false;
}

// The libraries that this build of the runtime uses beside the system's: the words of libs.txt,
// which lies beside it.
static int runtime_libs(Str prefix, const char **arg) {
  char line[256] = "";
  FILE *f = fopen(str_printf("%s/lib/dtc/libs.txt", prefix), "r");
  if (!f) return 0;
  size_t got = fread(line, 1, sizeof line - 1, f);
  fclose(f);
  line[got] = 0;
  int n = 0;
  for (const char *p = line; *(p += strspn(p, " \n")) && n < MOST_WORDS;) {
    size_t len = strcspn(p, " \n");
    arg[n++] = str_internn(p, len);
    p += len;
  }
  return n;
}

static int append(const char **arg, const char *const *list) {
  int n = 0;
  for (; list[n]; n++) arg[n] = list[n];
  CHECK(n <= MOST_WORDS);
  return n;
}

bool link_host(const LinkOptions *o, Str dir, const char *const *object, const LinkWith *with) {
  Str prefix = install_dir(), runtime = str_printf("%s/lib/dtc/%s", prefix, with->runtime);
  if (!exists(runtime)) {
    fprintf(stderr, "dtc: the runtime is missing: %s\n", runtime);
    return false;
  }
  const char *arg[MOST_ARGS];
  int n = compiler(arg);
  for (int i = 0; i < NCOMPILE; i++) arg[n++] = compile_flags[i];
  if (o->quick) arg[n++] = "-O0", arg[n++] = "-w";
  if (o->shared) arg[n++] = "-fPIC";
  if (o->shared) arg[n++] = "-shared";
  arg[n++] = str_printf("-I%s/include/dtc", prefix);
  arg[n++] = "-o";
  arg[n++] = o->output;
  arg[n++] = str_printf("%s/train.c", dir);
  n += append(arg + n, object);
  arg[n++] = runtime;
  n += append(arg + n, with->library);
  n += runtime_libs(prefix, arg + n);
  arg[n] = NULL;
  return link_run(arg, "the C compiler", "install one, or name it in CC");
}

void link_makefile(const char *objects, const char *tools, const LinkWith *with, Buf *b) {
  buf_printf(b,
             "# Rebuilds the training program from the sources that dtc left here.\n"
             "DTC ?= %s\nCC ?= cc\n%sCFLAGS ?=",
             install_dir(), tools);
  for (int i = 0; i < NCOMPILE; i++) buf_printf(b, " %s", compile_flags[i]);
  buf_printf(b, "\nLDLIBS ?=");
  for (int i = 0; with->library[i]; i++) buf_printf(b, " %s", with->library[i]);
  const char *lib[MOST_WORDS];
  int nlib = runtime_libs(install_dir(), lib);
  for (int i = 0; i < nlib; i++) buf_printf(b, " %s", lib[i]);
  buf_printf(b,
             "\n\ntrain: train.c %s\n"
             "\t$(CC) $(CFLAGS) -I$(DTC)/include/dtc -o $@ $^ $(DTC)/lib/dtc/%s $(LDLIBS)\n\n",
             objects, with->runtime);
}

static Str make_dir(const LinkOptions *o) {
  if (o->save_temps) {
    if (!mkdir(o->save_temps, 0777) || errno == EEXIST) return o->save_temps;
    complain(o->save_temps);
    return NULL;
  }
  const char *tmp = getenv("TMPDIR");
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/dtc-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  if (n < (int)sizeof path && mkdtemp(path)) return str_intern(path);
  if (n >= (int)sizeof path) errno = ENAMETOOLONG;
  complain(str_intern(path));
  return NULL;
}

// The folder and all that the target wrote into it.
static void remove_dir(Str dir) {
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));)
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlink(str_printf("%s/%s", dir, e->d_name));
  if (d) closedir(d);
  rmdir(dir);
}

bool link_program(const LinkOptions *o, const Buf *c, const Buf *kernels) {
  Str dir = make_dir(o);
  if (!dir) return false;
  bool ok = link_write(str_printf("%s/train.c", dir), c) && o->plan->m->target->build(o, dir, kernels);
  if (!o->save_temps) remove_dir(dir);
  return ok;
}
