# On cp, gathering keeps all keys and values of each layer for its backward pass; a ring keeps a rank's share, and has a few more on
# their way at a time. Llama's have 256
# features each; on 4 ranks, of every layer three quarters need not be there.
. "$(dirname "$0")/../support/lib.sh"
activations() { # HOW LAYERS
  "$DTC" "$SRC/examples/llama.dt" -D length=2048 -D microbatch=1 -D vocab=1000 -D "layers=$2" --cp 4 --cp-attention "$1" --report json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"]["activations"])'
}
layer=$((2 * 2048 * 256 * 4)) # bytes of all keys and values
for layers in 8 12; do
  less=$(($(activations gather $layers) - $(activations ring $layers)))
  echo "$layers layers: a ring needs $less bytes less; all keys and values of a layer are $layer"
  [ $less -ge $(((layers - 1) * layer * 3 / 4)) ] || fail "not three quarters of it for each"
done
