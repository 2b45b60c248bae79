// The host reads and writes the device's memory by the functions of runtime/device.h alone: on a device whose addresses
// the host cannot follow, which shows it a page at a time, runs give the same bits as on the CPU.
#include "apart/apart.h"
#include "support/check.h"
#include "support/fake.h"

#include <stdio.h>

static void check_model(const char *model) {
  apart_use(false);
  CHECK(run(model, "--export", "cpu.st", "--export-gradient", "cpu.grad", NULL) == 0);
  apart_use(true);
  CHECK(run(model, "--export", "apart.st", "--export-gradient", "apart.grad", NULL) == 0);
  CHECK(same_files("cpu.st", "apart.st") && same_files("cpu.grad", "apart.grad"));
  CHECK(run(model, "--steps", "7", "--save", model, "--save-every", "5", NULL) == 0);
  CHECK(run(model, "--resume", model, "--export", "resumed.st", NULL) == 0);
  CHECK(same_files("cpu.st", "resumed.st"));
  char behind[64]; // written behind steps 6 and 7
  snprintf(behind, sizeof behind, "%s/step-00000005", model);
  CHECK(run(model, "--resume", behind, "--export", "resumed.st", NULL) == 0);
  CHECK(same_files("cpu.st", "resumed.st"));
  CHECK(run(model, "--init", "cpu.st", "--steps", "0", "--export", "init.st", NULL) == 0);
  CHECK(same_files("cpu.st", "init.st"));
}

int main(void) {
  apart_open();
  fake_at = apart_bytes;
  check_folder();
  write_fake_data(40);
  check_model("arrays");
  check_model("tokens");
  CHECK(run("tokens", "--steps", "2", "--sample", "5", "--temperature", "1", NULL) == 0);
  return check_done();
}
