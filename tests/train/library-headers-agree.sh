# The prototypes, types and constants of oneDNN that the runtime states are those of its header.
. "$(dirname "$0")/../support/lib.sh"
echo '#include <dnnl.h>' | cc -E - >/dev/null 2>&1 || { echo "no header of oneDNN"; exit 77; }
cat >agree.c <<'END'
#include <dnnl.h>
#include <stddef.h>

#include "runtime/device/cpu/dnnl.h"

#define SAME_FIELD(f) \
  _Static_assert(offsetof(dnnl_version_t, f) == offsetof(DtDnnlVersionInfo, f) && \
                 sizeof ((dnnl_version_t *)0)->f == sizeof ((DtDnnlVersionInfo *)0)->f, #f)
SAME_FIELD(major);
SAME_FIELD(minor);
SAME_FIELD(patch);
SAME_FIELD(cpu_runtime);
_Static_assert((unsigned)DNNL_RUNTIME_SEQ == DT_DNNL_SEQ && (unsigned)DNNL_RUNTIME_OMP == DT_DNNL_OMP, "constants");
_Static_assert(sizeof(dnnl_status_t) == sizeof(int) && dnnl_success == 0, "status");

// Compatible but for the enumeration that is returned.
static dnnl_status_t (*theirs)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *,
                               int64_t, float, float *, int64_t) = dnnl_sgemm;
static DtDnnlSgemm *ours = (DtDnnlSgemm *)dnnl_sgemm;

int main(void) { return !theirs || !ours; }
END
cc -std=gnu17 -Wall -Wextra -Wno-cast-function-type -Werror -I "$SRC" -c agree.c -o agree.o || fail "they differ from oneDNN's header"
sed 's/float alpha, const float/double alpha, const float/; s/int major, minor/int64_t major, minor/' "$SRC/runtime/device/cpu/dnnl.h" >dnnl_other.h
sed 's|"runtime/device/cpu/dnnl.h"|"dnnl_other.h"|' agree.c >other.c
! cc -std=gnu17 -I "$SRC" -I . -c other.c -o other.o 2>err.txt || fail "another type is not noticed"
