# dtc fmt gives every model of the tree one layout: formatting again changes nothing, and the module is the same.
. "$(dirname "$0")/../support/lib.sh"
rm -rf tree before
mkdir tree
(cd "$SRC" && find stdlib examples tests -name '*.dt' -type f -print0 | xargs -0 tar c) | tar x -C tree
cp -r tree before
mapfile -d '' -t files < <(find tree -name '*.dt' -type f -print0)
"$DTC" fmt "${files[@]}" 2>err.txt || [ $? -eq 1 ] || { cat err.txt; fail "dtc fmt"; } # 1: some do not parse
changed=0
for f in "${files[@]}"; do
  f=${f#tree/}
  cmp -s "before/$f" "tree/$f" && continue
  changed=$((changed + 1))
  flags=$(sed -n '1s/^# flags: .*\(-D.*\)/\1/p' "before/$f")
  status=0
  (cd before && "$DTC" "$f" $flags --emit ir >../one.ir 2>/dev/null) || status=$?
  (cd tree && "$DTC" "$f" $flags --emit ir >../two.ir 2>/dev/null) || [ $status -ne 0 ] || fail "$f is refused once it is formatted"
  [ $status -ne 0 ] || same one.ir two.ir
done
"$DTC" fmt --check "${files[@]}" >out.txt 2>err.txt || true
[ ! -s out.txt ] || { cat out.txt; fail "formatting twice changes more"; }
broken=$(grep -oE '^tree/[^:]*:[0-9]+' err.txt | cut -d: -f1 | sort -u | wc -l)
echo "${#files[@]} models, $broken do not parse, $changed were laid out in another way"
[ $((${#files[@]} - broken)) -gt 300 ] && [ "$changed" -gt 5 ] || fail "too few models"
expect 0 "$DTC" fmt --check "$SRC"/stdlib/*.dt "$SRC"/examples/*.dt

# What the layout is.
cat >ugly.dt <<'END'


# a model   
use   nn
model M( n=3,
         m = 4 )   {   # head
      fc=nn.Linear(n,m)# first
      second   =nn.Linear( m ,1 )   # second


      loss(x[b,n],y[b,1]) {

  h[b,(c=2 i)]=max(0.0,
      -x[b,i]*( - 2.0))
  hh[b]     = 1.e-3*-h[b,0]  # not a call: "#, ( "
  k         = sum(b:- (hh[b]) **2)
        z = where(
     h[b, 0]<3 and not(h[b,0]==2),
        # inside
     1.0,-1.0
        )
   a = 1 ; c = 2
         if n>2 {
         q = 1
   } else { q=2 }
         return nn.mse(fc(x)
    + 1,y)

   }
}
END
cat >pretty.dt <<'END'
# a model
use nn
model M(n = 3,
        m = 4) {       # head
  fc = nn.Linear(n, m) # first
  second = nn.Linear(m, 1)   # second

  loss(x[b, n], y[b, 1]) {
    h[b, (c=2 i)] = max(0.0,
      -x[b, i] * (-2.0))
    hh[b]     = 1.e-3 * -h[b, 0]  # not a call: "#, ( "
    k         = sum(b: -(hh[b]) ** 2)
    z = where(
      h[b, 0] < 3 and not (h[b, 0] == 2),
      # inside
      1.0, -1.0
    )
    a = 1; c = 2
    if n > 2 {
      q = 1
    } else { q = 2 }
    return nn.mse(fc(x)
      + 1, y)
  }
}
END
"$DTC" fmt <ugly.dt >got.dt
diff -u pretty.dt got.dt || fail "another layout"
sed 's/$/\r/' ugly.dt | "$DTC" fmt >got.dt
same pretty.dt got.dt

# The command: what it writes, and what it refuses.
cp ugly.dt kept.dt
chmod 640 kept.dt
ln -sf kept.dt link.dt
expect 1 "$DTC" fmt --check link.dt pretty.dt
says '^link.dt$' out.txt
[ "$(wc -l <out.txt)" -eq 1 ] || fail "a file with the layout is named"
same ugly.dt kept.dt
expect 0 "$DTC" fmt link.dt
same pretty.dt kept.dt
[ -L link.dt ] && [ "$(stat -c %a kept.dt)" = 640 ] || fail "the link or the mode is lost"
: >empty.dt
expect 0 "$DTC" fmt empty.dt
printf 'model M {\n' >open.dt
cp open.dt was.dt
expect 1 "$DTC" fmt open.dt
same open.dt was.dt
printf 'use nn\0use nn\n' >nul.dt
expect 1 "$DTC" fmt nul.dt
says 'holds a NUL' err.txt
expect 1 "$DTC" fmt missing.dt
says 'missing.dt: No such file' err.txt
expect 2 "$DTC" fmt --no-such-option
says 'dtc fmt --help' err.txt
expect 0 "$DTC" fmt --help
says '^usage: dtc fmt' out.txt
