# A file is written under a temporary name and renamed. What is there under that name is not written to, be it a link that
# somebody put there; and a checkpoint that is a link to another folder goes when it is too old, without its folder.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
train --steps 3 --export expected.safetensors
echo precious >victim
cp victim kept
ln -s victim w.safetensors.tmp
train --steps 3 --export w.safetensors
same w.safetensors expected.safetensors
same victim kept
[ ! -e w.safetensors.tmp ] && [ ! -L w.safetensors.tmp ] || fail 'the link is still there'
ln -s nowhere p.json.tmp
train --steps 1 --profile p.json
[ -s p.json ] && [ ! -e nowhere ] || fail 'a link to nothing was followed'
mkdir w.safetensors.tmp # nothing to remove without asking
expect 73 train --steps 1 --export w.safetensors
rmdir w.safetensors.tmp

train --steps 2 --save ck
mkdir elsewhere
mv ck/step-00000002 elsewhere
ln -s ../elsewhere/step-00000002 ck/step-00000002
expect 0 "$TRAIN" --steps 4 --resume ck --save ck --save-every 1 --keep 1
[ ! -s err.txt ] || { cat err.txt; fail 'something is said'; }
[ "$(ls ck)" = step-00000004 ] || { ls -l ck; fail 'another checkpoint or a temporary folder is left'; }
[ -e elsewhere/step-00000002/manifest.json ] || fail 'the folder behind the link was emptied'
ln -s ../elsewhere ck/step-00000001.tmp # of a version before
train --steps 5 --resume ck --save ck
[ -d elsewhere/step-00000002 ] && [ ! -L ck/step-00000001.tmp ] || fail 'the link is still there, or was followed'
