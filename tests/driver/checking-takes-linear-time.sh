# Checking takes time in proportion to the text: forty thousand functions, terms of a sum or statements
# are checked within seconds of processor time, and what is called twice with the same arguments is one call.
. "$(dirname "$0")/../support/lib.sh"
QUICK=$([ "$(basename "$BUILD")" = build-debug ] && echo 40 || echo 4)
model() { # BODY [HEAD]
  printf '%s\nmodel M() {\n  param w[3] = normal(1)\n  loss(x[b, 3]) {\n    y[b, d] = x[b, d] * w[d]\n%s\n' \
    "${2:-}" "$1"
  printf '    return mean(b, d: y[b, d])\n  }\n}\n'
}
quick() { # STATUS OPTION...
  (ulimit -t "$QUICK"; expect "$1" "$DTC" m.dt "${@:2}") || exit 1
}
functions() { seq -f 'fn f%.0f(x[...]) { return x * 2.0 }' "$1"; }

model '' "$(functions 40000)" >m.dt
quick 0 --check

model "$(seq -f '    y = f%.0f(y)' 8000)" "$(functions 8000)" >m.dt
quick 0 --check

model "$(seq -f '    y%.0f = y' 20000)" >m.dt
quick 0 --check

# One mistake is one message.
model "    z[b, d] = 0.0 $(yes '+ y[b, d]' | head -n 40000 | tr '\n' ' ')" >m.dt
quick 1 --check
[ "$(grep -c error: err.txt)" -eq 1 ] || fail "$(grep error: err.txt)"
says 'nests more than 500 levels deep' err.txt

model "    z[b, d] = $(yes 'where(y[b, d] > 0.0, ' | head -n 3000 | tr -d '\n')1.0$(yes ', 0.0)' | head -n 3000 | tr -d '\n')" >m.dt
quick 1 --check
[ "$(grep -c error: err.txt)" -eq 1 ] || fail "$(grep error: err.txt)"

# What is not shown takes no time.
model "$(seq -f '    y%.0f[b, d] = unknown[b, d]' 20000)" >m.dt
quick 1 --check
[ "$(grep -c error: err.txt)" -eq 20 ] || fail "$(grep error: err.txt)"

# Forty functions that each call the one before twice: two statements each.
chain() { # N ARGUMENT
  echo 'fn f0(x[...]) { return x * 2.0 }'
  for i in $(seq "$1"); do echo "fn f$i(x[...]) { return f$((i - 1))(x) + f$((i - 1))($2) }"; done
}
model '    y = f40(y)' "$(chain 40 x)" >m.dt
quick 0 --emit kernels
model '    y = f60(y)' "$(chain 60 'x + 1.0')" >m.dt
quick 1 --check
says "m.dt:17:4: error: 'f16' has 196606 statements" err.txt
