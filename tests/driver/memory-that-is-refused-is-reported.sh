# Memory that the system refuses is status 3: neither a mistake in the model, nor a bug.
. "$(dirname "$0")/../support/lib.sh"
# Out of memory, with more and more of it: in dtc, then in LLVM. (The address sanitizer needs terabytes of addresses;
# with less than the first the libraries are not loaded.)
[ "$(basename "$BUILD")" = build-debug ] && exit 0
kb=100000
until (ulimit -v $kb; "$DTC" --version) >out.txt 2>err.txt; do kb=$((kb + 1000)); done
for more in 500 1000 2000 4000 6000 8000 12000 16000 24000 32000; do
  got=0
  (ulimit -v $((kb + more)); "$DTC" "$SRC/examples/gpt2.dt" --emit asm) >out.txt 2>err.txt || got=$?
  case $got in
    0) ;;
    3) says "out of memory" err.txt ;;
    *) fail "status $got with $more KiB: $(cat err.txt)" ;;
  esac
done
