// A device whose addresses the host cannot follow.
#ifndef DTC_TEST_APART_H
#define DTC_TEST_APART_H

#include <stdbool.h>

void apart_open(void);
// Whether regions are on the device from here on, or in the host's memory; the device is empty.
void apart_use(bool yes);
// Where the bytes of an address are; the address itself where it is the host's.
void *apart_bytes(const void *p);

#endif
