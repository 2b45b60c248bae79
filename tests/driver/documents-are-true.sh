# Commands of the documents run, on small models; their excerpts of emitted code are emitted; options, variables and files
# that they name exist.
. "$(dirname "$0")/../support/lib.sh"
rm -rf ./*
pages=("$SRC/README.md" "$SRC"/doc/*.md)
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train

# ---- names
{
  "$DTC" --help
  for command in new fmt explain plot; do "$DTC" $command --help; done
  ./train --help
  grep -rhoE --include='*.py' -e '"--[a-z][a-z-]+"' "$SRC/bench" "$SRC/tests" # those of scripts
} >help.txt
# Options of other programs, of C programs in tests/ and of scripts/.
other="build config deb install preset prefix all seconds file count every cuda delay dtc jobs layout layouts length limits
  logdir models mpi no-python nproc-per-node probe rounds stop update context-parallel-size cp-comm-type
  expert-model-parallel-size global-batch-size micro micro-batch-size num-virtual-stages-per-pipeline-rank
  overlap-grad-reduce overlap-param-gather pipeline-model-parallel-size recompute-granularity recompute-num-layers
  tensor-model-parallel-size use-distributed-optimizer"
for option in $(grep -hoE -- '--[a-z][a-z-]+' "${pages[@]}" | sort -u); do
  grep -qE -- "$option\b" help.txt || grep -qw -- "${option#--}" <<<"$other" || fail "the documents name $option, which no program has"
done
grep -rhoE '\bDTC?_[A-Z_0-9]+' "$SRC"/{runtime,driver,codegen,passes,ir,frontend,tests} | sort -u >variables.txt
for variable in $(grep -hoE '\bDTC?_[A-Z_0-9]+' "${pages[@]}" | sort -u); do
  grep -qx "$variable" variables.txt || grep -q "^${variable%_}_" variables.txt || fail "the documents name $variable, which nothing has"
done
# Names of the worked examples of doc/hacking.md, which nobody has added.
invented='codegen/NAME/|passes/hoist|hoist-keeps-scatters|log1p-near-zero|mean-of-one|passes/plan_test'
for path in $(grep -hoE '`(runtime|driver|codegen|passes|ir|frontend|tests|scripts|examples|stdlib|doc)/[A-Za-z0-9_./-]+' \
  "${pages[@]}" | tr -d '`' | grep -vE "$invented" | sort -u); do
  compgen -G "$SRC/$path*" >/dev/null || fail "the documents name $path, which is not there"
done

# ---- excerpts of emitted code: each line, in its order
"$DTC" "$SRC/examples/gpt2.dt" --arch x86-64-v3 --emit c >emitted.c
"$DTC" "$SRC/examples/gpt2.dt" --arch x86-64-v3 --tp 2 --emit c >>emitted.c
python3 - "$SRC/doc/emitted.md" <<'PY'
import re, sys
emitted = open("emitted.c").read()
blocks = re.findall(r"```c\n(.*?)```", open(sys.argv[1]).read(), re.S)
assert len(blocks) >= 2
for block in blocks:
    at = 0
    for line in block.splitlines():
        at = emitted.find("\n" + line + "\n", at)
        assert at >= 0, f"doc/emitted.md: no program has, after the lines above it:\n{line}"
# The functions that the page explains.
for name in re.findall(r"`(dt_[a-z_]+)\(", open(sys.argv[1]).read()):
    assert name + "(" in emitted or name in ("dt_scan", "dt_matmul_then"), name
PY

# ---- commands
mkdir bin
cat >bin/dtc <<END
#!/bin/bash
# Small sizes for the models of the documents.
for word; do
  case \$word in
    *gpt2.dt) set -- "\$@" ${SMALL_GPT2[*]} ;;
    *chargpt.dt | model.dt) [[ " \$* " == *" -D "* || \$1 == fmt ]] && set -- "\$@" -D context=16 -D length=16 -D batch=8
      [[ " \$* " == *" -D "* || \$1 == fmt ]] || set -- "\$@" ${SMALL_CHARGPT[*]} ;;
  esac
done
[ "\$1" != fmt ] || set -- fmt model.dt
exec "$DTC" "\$@"
END
chmod +x bin/dtc
PATH=$PWD/bin:$PATH
text 20000 >text.txt
tokens corpus.bin 5000 97
ln -s "$SRC/examples" examples
cp "$SRC/examples/chargpt.dt" model.dt
cp "$SRC/examples/gpt2.dt" gpt2.dt
dtc model.dt -o train
./train --data text.txt --steps 2 --threads 1 --profile trace.json --quiet
dtc gpt2.dt --dump-after optimizer >step.ir
dtc gpt2.dt --dump-after overlap >kernels.ir
n=0
# Text behind two blanks and a mark, or in doc/ir.md behind four blanks, explains the command.
while IFS=: read -r page line; do
  [ "${page##*/}" != training.md ] || [ -e corpus_is_for_train ] || { # the data are tokens there
    rm -rf ckpt log.jsonl
    dtc gpt2.dt -o train
    touch corpus_is_for_train
  }
  line=$(sed -E 's/^ +//; s/ +#.*//; s/   +[a-zA-Z].*//; s/ \.\.\.$//; s:/mnt/nvme:.:' <<<"$line")
  case $line in
    *"--target cuda"*) continue ;; # tests/cuda builds and runs these
    *"-D layers=2 -D dim=64"*) continue ;; # doc/numerics.md: a minute in the interpreter; driver/first-step-is-verified
  esac
  [[ $line != *--offload* ]] || line=${line//train /away } # what follows it needs the program before
  line=${line//.\/away /.\/away --steps 2 --threads 1 }
  line=${line//.\/train /.\/train --steps 2 --threads 1 }
  line=${line/--sample 400/--sample 4}
  n=$((n + 1))
  bash -euc "$line" >out.txt 2>err.txt </dev/null || { cat err.txt; fail "a command of the documents fails: $line"; }
done < <(grep -HE '^    (dtc|\./train) ' "$SRC/README.md" "$SRC"/doc/{training,hacking,ir,numerics}.md)
[ $n -ge 30 ] || fail "only $n commands were found"
[ -s mine.dt ] && [ -s r.html ] && [ -e out/Makefile ] && [ -s before.ir ] || fail "a command wrote nothing"
# --info has the table of buffers that the page on emitted code promises.
./train --info >info.json
python3 -c 'import json; t = json.dumps(json.load(open("info.json"))); assert "frame" in t, t'
