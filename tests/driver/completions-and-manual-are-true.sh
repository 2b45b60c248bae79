# Manual pages and completions hold every option of --help, and complete words in bash, zsh and fish where they are installed.
. "$(dirname "$0")/../support/lib.sh"
text 2000 >text.txt
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train
"$DTC" --help >dtc.txt
./train --help >train.txt
share=$BUILD/share
for program in dtc train; do
  [ $program = dtc ] && page=$share/man/man1/dtc.1 || page=$share/man/man1/dtc-train.1
  sed 's/\\-/-/g; s/\\f[RBI]//g' "$page" >page.txt
  options=$(sed -nE 's/^ +(-[A-Za-z], )?--([a-z-]+).*/\2/p' $program.txt)
  [ "$(wc -w <<<"$options")" -gt 20 ] || fail "no options found in $program.txt"
  for o in $options; do
    says "(^|, )--$o( |$)" page.txt
    says "[ ']--$o[ ']" "$share/bash-completion/completions/$program"
    says "'\*--$o[=[]" "$share/zsh/site-functions/_$program"
    says " -l $o( |$)" "$share/fish/vendor_completions.d/$program.fish"
  done
done
# Of two columns of blanks or more, a line of --help has the help; the page has it whole.
says 'reduce gradients once a step \(default for --zero 0 and 1\) or at each microbatch' <(sed 's/\\-/-/g' "$share/man/man1/dtc.1")
if command -v groff >/dev/null && [ -e /usr/share/groff/current/tmac/an.tmac ]; then
  groff -man -ww -Tutf8 "$share"/man/man1/*.1 2>err.txt >/dev/null
  [ ! -s err.txt ] || { cat err.txt; fail "the manual pages have faults"; }
fi

rm -rf words
mkdir -p words/folder
cd words
cp "$SRC/examples/mlp.dt" 'a model.dt'
touch other.txt
# in_bash WORDS...: what may stand for the last one.
in_bash() {
  bash -c '. "$1/bash-completion/completions/dtc"; . "$1/bash-completion/completions/train"; shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); "_dtc_$1"; printf "%s\n" "${COMPREPLY[@]}"' bash "$share" "$@" | sort | tr '\n' ' '
}
is() { [ "$1" = "$2" ] || fail "completed to '$1', expected '$2'"; }
is "$(in_bash dtc --emi)" "--emit "
is "$(in_bash dtc x.dt --emit l)" "llvm "
is "$(in_bash dtc x.dt --report = j)" "json "
is "$(in_bash dtc x.dt --schedule '')" "1f1b gpipe interleaved zb "
is "$(in_bash dtc x.dt --tp '')" " "
is "$(in_bash dtc 'a')" "a model.dt "
is "$(in_bash dtc '')" "a model.dt explain fmt folder new plot "
is "$(in_bash dtc x.dt -o o)" "other.txt "
is "$(in_bash dtc x.dt --save-temps f)" "folder "
is "$(in_bash train --res)" "--resume "
is "$(in_bash train --data o)" "other.txt "

if command -v fish >/dev/null; then
  in_fish() { HOME=$PWD fish --no-config -c "source $share/fish/vendor_completions.d/$1.fish; complete -C '$2'" | cut -f1 | sort | tr '\n' ' '; }
  is "$(in_fish dtc 'dtc --emi')" "--emit "
  is "$(in_fish dtc 'dtc x.dt --emit l')" "llvm "
  is "$(in_fish dtc 'dtc x.dt --cp-attention ')" "alltoall gather ring "
  says ' (fmt|new) ' <(in_fish dtc 'dtc ')
  says 'a model.dt|a\\ model.dt' <(in_fish dtc 'dtc a')
  is "$(in_fish train 'train --res')" "--resume "
else echo "no fish: not tried"; fi

if command -v zsh >/dev/null && zsh -f -c 'zmodload zsh/zpty && zpty z true' 2>/dev/null; then
  # Types LINE and a tab in an interactive zsh, and prints what its screen got.
  in_zsh() {
    zsh -f -c 'zmodload zsh/zpty
      zpty z zsh -f -i
      zpty -w z "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; PS1=READY; PS2=; unsetopt zle_bracketed_paste"
      zpty -w z "print BEG""IN"
      zpty -r z out "*BEGIN*READY*"
      zpty -w -n z "$2"$'"'\\t\\t'"'
      sleep 1
      zpty -w -n z $'"'\\C-c'"'
      zpty -w z "print DO""NE"
      zpty -r z out "*DONE*"
      print -r -- "$out"' zsh "$share/zsh/site-functions" "$1" | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' | tr -d '\r'
  }
  says 'dtc --emit=' <(in_zsh 'dtc --emi')
  says 'kernels' <(in_zsh 'dtc --emit=')
  says 'llvm' <(in_zsh 'dtc x.dt --emit ll')
  says 'train --resume=' <(in_zsh 'train --resu')
  says 'plot +-- draw' <(in_zsh 'dtc ')
else echo "no zsh, or no terminals for it: not tried"; fi
