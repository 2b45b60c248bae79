# Names of a model that are words of C, of the headers or of the emitted code, and paths of odd characters,
# neither clash nor escape.
. "$(dirname "$0")/../support/lib.sh"
cat >odd.dt <<'DT'
use nn

layer double(main, exp) {
  param frame[main, exp] = normal(0.1)
  param INT_MAX[exp] = zeros
  param dt_zero[exp] = ones
  forward(key[b, main]) {
    beta[b, o] = sum(i: key[b, i] * frame[i, o]) + INT_MAX[o]
    launch[b, o] = beta[b, o] * dt_zero[o]
    return launch
  }
}

model register(int = 8, dt_launch = 8) {
  static = stack 2 of double(int, dt_launch)
  call = double(int, 3)
  loss(short[b, int], NULL[b]: int) {
    memcpy = static(short)
    float32_t = call(memcpy)
    return nn.cross_entropy(float32_t, NULL)
  }
}

train register {
  data = arrays(short = "a??/b\"c.npy", NULL = "l.npy")
  batch = 4
  optimizer = adamw(lr = 1e-3)
}
DT
"$DTC" odd.dt --save-temps s -o odd
cc -std=c17 -Wall -Wextra -Werror -I"$BUILD/include/dtc" -fsyntax-only s/train.c
./odd --info >info.txt
says '"register"' info.txt
