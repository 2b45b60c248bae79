# Sourced by the scripts here.

# run COMMAND...: prints it as one would type it, then runs it.
run() {
  local word line=
  for word; do
    [[ $word =~ ^[A-Za-z0-9_./:=,+@%-]+$ ]] || word=\'${word//\'/\'\\\'\'}\'
    line+=" $word"
  done
  printf '\n$%s\n' "$line"
  "$@"
}
