# The order of calls in a save: the part synchronised before it gets its name, the manifest last, the folder synchronised, then
# renamed, then the folder above synchronised, and only then an old checkpoint touched.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
cc -shared -fPIC -O1 -o fail_nth.so "$HERE/fail_nth.c" -ldl
train --steps 3 --save ck
env LD_PRELOAD="$PWD/fail_nth.so" IO_TRACE="$PWD/trace.txt" "$TRAIN" --quiet --steps 6 --resume ck --save ck --keep 1
cat trace.txt
python3 - <<'PY'
calls = [l.split(" ", 1) for l in open("trace.txt").read().splitlines()]
calls = [(c, p[p.index("ck"):].rstrip("/")) for c, p in calls if "/ck" in p or p.startswith("ck")]
tmp = "ck/step-00000006.tmp"
want = [("mkdir", tmp)]
for part in ("part-00000.safetensors", "manifest.json"):
    name = tmp + "/" + part
    want += [("create", name + ".tmp"), ("write", name + ".tmp"), ("sync", name + ".tmp"), ("rename", name + ".tmp")]
want += [("sync", tmp), ("rename", tmp), ("sync", "ck"), ("rename", "ck/step-00000003")]
got = [c for i, c in enumerate(calls) if i == 0 or c != calls[i - 1]]
got = got[got.index(want[0]):]
assert got == want, "\n%s\nexpected\n%s" % (got, want)
PY

# With three ranks: no rank begins its part before the folder is there, and every part is synchronised and has its name
# before there is a manifest.
env LD_PRELOAD="$PWD/fail_nth.so" IO_TRACE="$PWD/trace3.txt" "$TRAIN" --quiet --ranks 3 --steps 9 --resume ck --save ck
python3 - <<'PY'
calls = [l.split(" ", 1) for l in open("trace3.txt").read().splitlines()]
calls = [(c, p[p.index("ck"):].rstrip("/")) for c, p in calls if "/ck" in p or p.startswith("ck")]
tmp = "ck/step-00000009.tmp"
begin, manifest = calls.index(("mkdir", tmp)), calls.index(("create", tmp + "/manifest.json.tmp"))
for part in range(3):
    name = "%s/part-%05d.safetensors.tmp" % (tmp, part)
    own = [i for i, (c, p) in enumerate(calls) if p == name]
    assert begin < own[0] and own[-1] < manifest, (part, calls)
    assert [calls[i][0] for i in (own[0], own[-2], own[-1])] == ["create", "sync", "rename"], calls
rest = [c for i, c in enumerate(calls) if i > manifest and c != calls[i - 1]]
name = tmp + "/manifest.json.tmp"
assert rest == [("write", name), ("sync", name), ("rename", name), ("sync", tmp), ("rename", tmp), ("sync", "ck")], rest
PY
