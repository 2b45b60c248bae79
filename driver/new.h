// `dtc new`: a model to begin with.
#ifndef DTC_NEW_H
#define DTC_NEW_H

#include "ir/util.h"

int new_command(Arena *a, int argc, char **argv);

#endif
