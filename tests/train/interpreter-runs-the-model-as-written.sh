# --interpret=source runs the model as it is written, on one rank with the whole batch; --interpret what each rank runs, after
# all that passes put in the place of it. Both train alike (float64), whatever is replaced: batches cut up, attention in a
# ring or by heads, factored axes, stages.
. "$(dirname "$0")/../support/lib.sh"
E=$SRC/examples
tokens train.bin 400 97
text 4000 >text.txt
interpret() { "$DTC" "$@" --steps 2 >log.jsonl && losses log.jsonl; }

check() {
  local model=$1 data=$2 options=() layout
  shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  interpret "$E/$model.dt" "${options[@]}" --data "$data" --interpret=source >want
  for layout; do
    # shellcheck disable=SC2086
    interpret "$E/$model.dt" "${options[@]}" --data "$data" --interpret $layout >got
    near want got 1e-11
  done
}

check llama train.bin "${SMALL_LLAMA[@]}" -- "" "--dp 2" "--cp 2 --cp-attention ring" "--cp 2 --cp-attention alltoall" \
  "--tp 4" "--pp 2 --schedule zb"
check chargpt text.txt "${SMALL_CHARGPT[@]}" -D microbatch=3 -- "" "--tp 2 --sequence-parallel --dp 2"
