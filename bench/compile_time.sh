#!/bin/sh
# dtc's own compile time, by pass and tool, for a model at two depths: the deeper is not slower.
#     bench/compile_time.sh path/to/dtc [MODEL.dt]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
dtc=${1:?usage: bench/compile_time.sh DTC [MODEL.dt]}
model=${2:-$root/examples/gpt2.dt}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for layers in 12 48; do
  echo "== $(basename "$model"), layers=$layers"
  start=$(date +%s.%N)
  "$dtc" "$model" -D layers=$layers --time -o "$out/train"
  end=$(date +%s.%N)
  echo "$start $end $(wc -c < "$out/train")" |
    awk '{printf "whole command: %.3f s, program of %.1f MiB\n", $2 - $1, $3 / 1048576}'
done
