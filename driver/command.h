// The commands of dtc beside compiling: `dtc fmt`, `dtc new`, ...
#ifndef DTC_COMMAND_H
#define DTC_COMMAND_H

#include "ir/util.h"

typedef struct Command {
  const char *name, *arg, *help;
  int (*run)(Arena *a, int argc,
             char **argv); // argv[0] is the command's name; returns dtc's exit status
} Command;

// NULL: no command has that name.
const Command *command_find(const char *name);
void command_help_all(FILE *out);
// Prints the help of one command: its line of the table and its text. Returns 0.
int command_help(const char *name, const char *more);

// "dtc NAME: MESSAGE" on stderr. Returns EXIT_USAGE.
int command_usage(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The bytes of a file ("-": stdin), NUL-terminated on the arena; NULL after a message.
char *command_read(Arena *a, const char *name, const char *path, size_t *n);
// Writes a file whole or not at all; one that was there keeps its mode. False after a message.
bool command_write(const char *name, const char *path, const Buf *b);

#endif
