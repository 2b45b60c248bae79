# The program needs the C library alone: libc, libm, libmvec and the loader.
. "$(dirname "$0")/../support/lib.sh"
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train
readelf -d train | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' >needed.txt
cat needed.txt
grep -vE '^(libc\.so\.6|libm\.so\.6|libmvec\.so\.1|libpthread\.so\.0|ld-linux-x86-64\.so\.2)$' needed.txt && fail "needs more"
true
