# A model that says where its indices and parameters go trains as one rank does (fp64, 1e-11).
. "$(dirname "$0")/../support/lib.sh"
tokens tokens.bin 2000 11
run() { # run NAME RANKS OPTIONS...
  local name=$1 ranks=$2
  shift 2
  "$DTC" "$SRC/tests/passes/shard/annotated.dt" --precision fp64 -o train "$@"
  ./train --quiet --threads 1 --ranks "$ranks" --log log.jsonl
  losses log.jsonl >"$name"
  near one "$name" 1e-11
}
run one 1
run cut 8 --tp 2 --cp 2 --zero 2
