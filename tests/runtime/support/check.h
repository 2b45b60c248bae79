// What the C tests share: checks that say where they failed, files, and a folder to work in.
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Counts a failure and prints it; a test's main ends with `return check_done();`.
#define CHECK(condition)       check_that((condition), #condition, __FILE__, __LINE__)
#define CHECK_SAYS(text, part) check_says((text), (part), __FILE__, __LINE__)
void check_that(bool good, const char *what, const char *file, int line);
void check_says(const char *text, const char *part, const char *file, int line);
int check_done(void); // exit status; removes the folder

const char *check_folder(void); // an empty folder, made at the first call and entered
void write_file(const char *path, const void *bytes, size_t n);
void *read_whole(const char *path, size_t *n); // NULL where there is none; free it
bool same_files(const char *a, const char *b); // both are there, with the same bytes
// The .npy file of an array whose header has these texts: "<f4", "(3, 2)".
void write_npy(const char *path, const char *descr, const char *shape, const void *bytes, size_t n);

// x.npy and y.npy for fake_arrays, train.bin for fake_tokens; the same each time.
void write_fake_data(int samples);

// Runs dt_main of fake_arrays or fake_tokens in this process: run("arrays", "--steps", "3", NULL).
int run(const char *model, ...) __attribute__((sentinel));

#endif
