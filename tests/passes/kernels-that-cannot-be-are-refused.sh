# Text that is no module for the lowered passes, and kernels that do not parse: status 1 and the reason.
. "$(dirname "$0")/../support/lib.sh"
refused() { # PASS FILE REASON
  expect 1 "$DTC" --run "$1" "$2"
  says "$3" err.txt
}
func() { # NAME TYPE
  printf 'func %s(x: %s[3]) -> (y: %s[3]) {\n  y[i<3] = x[i] + 1.0\n}\n' "$1" "$2" "$2"
}
(echo "entry update = f"; func f real) >real.ir
refused fuse real.ir 'pass fuse comes after pass precision: .x. of .f. has no storage type'
cat >conversion.ir <<'IR'
compute f32
axis tp 2
entry update = f
func f(x: f32[4]) -> (y: f32[4]) {
  z: f32[4] @tp split 0 = convert x
  y = convert z
}
IR
refused fuse conversion.ir 'pass fuse comes after pass localise: .f. has a conversion'
refused simplify conversion.ir 'pass simplify is for programs of one rank, and this one is cut over a mesh'
cat >stop.ir <<'IR'
compute f32
entry update = f
func f(x: f32[4]) -> (y: f32[4]) {
  y[i<4] = 2.0 * stop_gradient(x[i])
}
IR
refused fuse stop.ir 'pass fuse comes after pass normalise: .f. has a .stop_gradient.'
"$DTC" --run normalise,fuse,overlap,plan stop.ir >stop.out

(printf 'compute f32\nentry update = f\n'; func f f32) >good.ir
"$DTC" --run fuse good.ir >kernels.ir
"$DTC" --run "" kernels.ir >again.ir
same kernels.ir again.ir
(cat kernels.ir; func g f32) >late.ir
refused "" late.ir 'functions come before .lowered.'
sed 's/^  value x.*/  value 7/' kernels.ir >value.ir
refused "" value.ir 'expected a value, found .7.'
sed '/^  value y/d' kernels.ir >missing.ir
refused "" missing.ir 'there is no storage of .y.'
sed 's/act gelu/act softmax/' "$SRC/tests/passes/lowered/function-of-another-name.ir" >act.ir
refused "" act.ir 'expected a function of the sum, found .softmax.'
