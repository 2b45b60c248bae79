#define _GNU_SOURCE
#include "worlds.h"

#include "runtime/device/links.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void redirect(const char *said) {
  if (!said) return;
  int fd = open(said, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) _exit(99);
  close(fd);
}

int open_device(int ranks, DtError *e) {
  static const DtProgram p;
  if (!dt_device_links()) return 0;
  if (dt_device_fits(&p, e) || dt_device_open(&p, 1, dt_world.local_rank, ranks, e)) return e->status;
  return dt_comm_link(getenv("EXACT") != NULL, e);
}

void close_device(void) {
  if (!dt_device_links()) return;
  dt_device_sync();
  dt_comm_unlink();
  dt_device_close();
}

static _Noreturn void be_rank(const DtProgram *p, int ranks, double timeout, Body *body,
                              void *argument) {
  DtError e = {0};
  if (dt_comm_start(p, ranks, timeout, &e) || open_device(ranks, &e)) {
    fprintf(stderr, "%s\n", e.text);
    _exit(e.status);
  }
  int status = body(argument);
  close_device();
  dt_comm_stop();
  fflush(NULL);
  _exit(status);
}

int in_world(int ranks, int tp, int cp, int pp, double timeout, Body *body, void *argument,
             const char *said) {
  DtProgram p = {.tp = tp, .cp = cp, .pp = pp};
  fflush(NULL);
  if (said) unlink(said);
  pid_t pid = fork();
  if (pid == 0) {
    redirect(said);
    be_rank(&p, ranks, timeout, body, argument);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

int in_launched(int ranks, void (*variables)(int rank, int ranks), Body *body, void *argument,
                const char *said) {
  static const DtProgram p;
  int worst = 0;
  fflush(NULL);
  if (said) unlink(said);
  for (int r = 0; r < ranks; r++) {
    if (fork() != 0) continue;
    redirect(said);
    variables(r, ranks);
    be_rank(&p, 0, 2, body, argument);
  }
  for (int status; wait(&status) > 0;) {
    int s = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (worst >= 0 && (s < 0 || s > worst)) worst = s;
  }
  return worst;
}

double value_of(unsigned seed, int rank, int64_t i) {
  uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u +
               (uint64_t)(rank + 1) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  return (double)(x >> 11) * 0x1p-51 - 2;
}

void sleep_ms(int ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&t, NULL);
}

// Whether a thread of it still runs; its state follows the name, which is in parentheses.
static bool runs(pid_t pid) {
  char path[300], stat[600];
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *threads = opendir(path);
  bool any = false;
  for (struct dirent *t; threads && (t = readdir(threads));) {
    if (t->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, t->d_name);
    FILE *f = fopen(path, "r");
    if (!f) continue;
    const char *name = fgets(stat, sizeof stat, f) ? strrchr(stat, ')') : NULL;
    any |= name && strncmp(name, ") T", 3) != 0;
    fclose(f);
  }
  if (threads) closedir(threads);
  return any;
}

void stop_process(pid_t pid) {
  kill(pid, SIGSTOP);
  while (runs(pid)) sleep_ms(1);
}
