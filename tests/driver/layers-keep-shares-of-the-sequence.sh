# With the sequence on tp a rank keeps 1/N of all that a layer saves for its backward pass (Korthikanti et al., 2022, equation
# 4): of what products gather, too. In Llama rotary angles, which have no sample, are whole.
. "$(dirname "$0")/../support/lib.sh"
activations() { # MODEL LAYERS OPTIONS...
  "$DTC" "$SRC/examples/$1.dt" -D "layers=$2" "${@:3}" --report json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"]["activations"])'
}
grows() { echo $(($(activations "$1" 12 "${@:2}") - $(activations "$1" 8 "${@:2}"))); } # by four layers
for model in gpt2 llama; do
  whole=$(grows "$model")
  for n in 2 4; do
    share=$(grows "$model" --tp "$n" --sequence-parallel)
    echo "$model: four layers keep $whole bytes, on $n ranks $share"
    [ $((share * n * 100)) -le $((whole * 101)) ] || fail "more than a share"
  done
done
