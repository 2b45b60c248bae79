# All ranks take the same checkpoint. A part that is damaged is found by the rank that looks at it, told once, and all go
# back to the checkpoint before; an empty folder is a fresh start for all; what was asked for by name is refused by all.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE_ZERO=3
train --ranks 4 --steps 3 --export three.safetensors
train --ranks 4 --steps 6 --save ck --save-every 3 --export six.safetensors
[ "$(ls ck/step-00000006 | wc -l)" -ge 3 ] || fail "one rank wrote all: $(ls ck/step-00000006)"
cp -r ck whole

# flip FILE PLACE: one bit of it.
flip() {
  python3 -c 'import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[int(sys.argv[2])] ^= 4
open(sys.argv[1], "wb").write(b)' "$@"
}
for ranks in 2 3 4; do
  for part in whole/step-00000006/*; do
    rm -rf ck
    cp -r whole ck
    part=ck/step-00000006/$(basename "$part")
    for damage in flip cut gone; do
      case $damage in
        flip) flip "$part" 200 ;;
        cut) truncate -s 300 "$part" ;;
        gone) rm "$part" ;;
      esac
      expect 0 train --ranks $ranks --resume ck --steps 0 --export got.safetensors
      same got.safetensors three.safetensors
      [ "$(grep -c 'going back to the checkpoint before' err.txt)" -eq 1 ] || { cat err.txt; fail "$part: told not once"; }
      says "$part" err.txt
    done
    expect 65 train --ranks $ranks --resume ck/step-00000006 --steps 0
    [ "$(grep -c "$part" err.txt)" -eq 1 ] || { cat err.txt; fail "$part: told not once"; }
  done
done
rm ck/step-00000003/manifest.json
expect 65 train --ranks 3 --resume ck --steps 0
says "ck holds no complete checkpoint" err.txt

# The same command starts the run and goes on with it.
mkdir empty
for folder in empty missing; do
  for steps in 3 6; do
    expect 0 train --ranks 4 --resume $folder --save $folder --steps $steps --export got.safetensors
  done
  same got.safetensors six.safetensors
done
expect 66 train --ranks 3 --resume missing/step-00000007
[ "$(grep -c 'there is no checkpoint' err.txt)" -eq 1 ] || { cat err.txt; fail "told not once"; }
expect 66 train --ranks 3 --init gone.safetensors
expect 0 train --ranks 3 --init whole --steps 0 --export got.safetensors
same got.safetensors six.safetensors
