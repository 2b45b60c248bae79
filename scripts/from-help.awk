# Makes of a program's --help, which is printed from its table of options, a manual page or the completion for a shell:
#
#     dtc --help | awk -f scripts/from-help.awk -v form=man|bash|zsh|fish -v name=dtc
#
# A manual page also takes page=, summary=, version= and also= (see also); a program that takes files, operand= (how
# their names end). Any awk will do. A group is a line of text with a colon behind it; an option's line is indented by 2 or 6 spaces.

function add_help(text) {
  sub(/^ +/, "", text)
  if (text != "") help[n] = help[n] (help[n] == "" ? "" : " ") text
}

# " -o, --output FILE  the program": letter, long name, argument, help.
function add_option(line) {
  n++
  sub(/^ +/, "", line)
  if (line ~ /^-[a-zA-Z], /) {
    letter[n] = substr(line, 2, 1)
    line = substr(line, 5)
  }
  match(line, /^--[a-z0-9-]+/)
  long[n] = substr(line, 3, RLENGTH - 2)
  line = substr(line, RLENGTH + 1)
  if (match(line, /^ [^ ]+/)) {
    arg[n] = substr(line, 2, RLENGTH - 1)
    line = substr(line, RLENGTH + 1)
  }
  group[n] = heading
  add_help(line)
}

# "  new NAME ...  what it does": a command, in the group of that name.
function add_command(line) {
  n++
  sub(/^ +/, "", line)
  at = match(line, /  /)
  command[n] = at ? substr(line, 1, at - 1) : line
  group[n] = heading
  add_help(at ? substr(line, at) : "")
}

/^usage: / { usage = substr($0, 8); next }
/^       [^ ]/ && heading == "" { usage = usage "\n" substr($0, 8); next }
/^[^ ].*:$/ && !closing { heading = substr($0, 1, length($0) - 1); next }
/^Exit status:/ { closing = 1 }
closing { sub(/^Exit status: /, ""); status = status (status == "" ? "" : " ") $0; next }
heading == "" { if ($0 != "") about = about (about == "" ? "" : " ") $0; next }
/^  (    )?-/ { add_option($0); next }
/^  [a-z]/ { add_command($0); next }
{ add_help($0) }

# What may stand for an option's argument: "values ast ir", "file", "dir" or "" for anything.
function kind(i,  s) {
  s = arg[i]
  if (s ~ /\|/) {
    gsub(/\[[^]]*\]/, "", s)
    gsub(/\|/, " ", s)
    return "values " s
  }
  if (s ~ /^(FILE|PATH)/) return "file"
  return s == "DIR" ? "dir" : ""
}

function roff(s) {
  gsub(/\\/, "\\e", s)
  gsub(/-/, "\\-", s)
  gsub(/`/, "\\(ga", s)
  gsub(/'/, "\\(aq", s)
  return s
}

function man(  i, last) {
  printf ".\\\" Made of %s --help by scripts/from-help.awk.\n.TH %s 1 \"\" \"%s\" \"dtc\"\n", name, toupper(page), version
  printf ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(page), roff(summary)
  gsub(/\n/, "\n.br\n.B ", usage)
  printf ".B %s\n.SH DESCRIPTION\n%s\n.SH OPTIONS\n", roff(usage), roff(about)
  for (i = 1; i <= n; i++) {
    if (group[i] != last) print ".SS " roff(group[i])
    last = group[i]
    if (command[i] != "") printf ".TP\n.B %s\n%s\n", roff(name " " command[i]), roff(help[i])
    else printf ".TP\n\\fB%s\\-\\-%s\\fR%s\n%s\n", letter[i] ? "\\-" letter[i] "\\fR, \\fB" : "", roff(long[i]), arg[i] ? " \\fI" roff(arg[i]) "\\fR" : "", roff(help[i])
  }
  printf ".SH EXIT STATUS\n%s\n.SH SEE ALSO\n%s\n", roff(status), also
}

function both(i) { return (letter[i] ? "-" letter[i] "|" : "") "--" long[i] }

function first_word(s) { sub(/ .*/, "", s); return s }

function bash(  i, k, words, commands, none) {
  print "# Completion for bash. Made of " name " --help by scripts/from-help.awk."
  print "_dtc_" name "() {"
  print "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}"
  print "  # --name=value is three words here."
  print "  [ \"$prev\" = = ] && prev=${COMP_WORDS[COMP_CWORD - 2]}"
  print "  [ \"$cur\" = = ] && cur="
  print "  COMPREPLY=()\n  case $prev in"
  for (i = 1; i <= n; i++) {
    if (command[i] != "") { commands = commands " " first_word(command[i]); continue }
    words = words (letter[i] ? " -" letter[i] : "") " --" long[i]
    if (arg[i] == "") continue
    k = kind(i)
    if (k == "") { none = none (none == "" ? "" : "|") both(i); continue }
    if (k ~ /^values/) printf "    %s) mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\"); return ;;\n", both(i), substr(k, 8)
    else printf "    %s) mapfile -t COMPREPLY < <(compgen -%s -- \"$cur\"); return ;;\n", both(i), k == "dir" ? "d" : "f"
  }
  if (none != "") print "    " none ") return ;;"
  print "  esac\n  if [[ $cur == -* ]]; then"
  print "    mapfile -t COMPREPLY < <(compgen -W '" substr(words, 2) "' -- \"$cur\")"
  if (operand != "") {
    print "  else"
    print "    mapfile -t COMPREPLY < <(compgen -f -X '!*." operand "' -- \"$cur\"; compgen -d -- \"$cur\")"
    if (commands != "") {
      print "    [ \"$COMP_CWORD\" -eq 1 ] && mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < \\"
      print "      <(compgen -W '" substr(commands, 2) "' -- \"$cur\")"
    }
  }
  print "  fi\n}\ncomplete -o filenames -F _dtc_" name " " name
}

function zquote(s) { gsub(/'/, "'\\''", s); gsub(/[\[\]:]/, "\\\\&", s); return s }

function zsh(  i, k, act, commands) {
  print "#compdef " name "\n# Completion for zsh. Made of " name " --help by scripts/from-help.awk.\nlocal -a options=("
  for (i = 1; i <= n; i++) {
    if (command[i] != "") {
      commands = commands "\n  '" first_word(command[i]) ":" zquote(help[i]) "'"
      continue
    }
    k = kind(i)
    act = ""
    if (arg[i] != "") {
      act = ":" zquote(arg[i]) ":"
      if (k ~ /^values/) act = act "(" substr(k, 8) ")"
      if (k == "file") act = act "_files"
      if (k == "dir") act = act "_files -/"
      if (k == "") act = act " "
    }
    printf "  '*--%s%s[%s]%s'\n", long[i], arg[i] == "" ? "" : "=", zquote(help[i]), act
    if (letter[i] != "") printf "  '*-%s%s[%s]%s'\n", letter[i], arg[i] == "" ? "" : "+", zquote(help[i]), act
  }
  print ")"
  if (operand == "") { print "_arguments $options"; return }
  if (commands == "") { print "_arguments $options '*:file:_files -g \"*." operand "\"'"; return }
  print "local -a dtc_commands=(" commands "\n)"
  print "_dtc_operand() { _describe command dtc_commands; _files -g \"*." operand "\" }"
  print "_arguments $options '1: :_dtc_operand' '*: :_files -g \"*." operand "\"'"
}

function fquote(s) { gsub(/\\/, "\\\\", s); gsub(/'/, "\\'", s); return "'" s "'" }

function fish(  i, k, rest) {
  print "# Completion for fish. Made of " name " --help by scripts/from-help.awk."
  print "complete -c " name " -f"
  if (operand != "") print "complete -c " name " -k -x -a '(__fish_complete_suffix ." operand ")'"
  for (i = 1; i <= n; i++) {
    if (command[i] != "") {
      print "complete -c " name " -n __fish_use_subcommand -a " first_word(command[i]) " -d " fquote(help[i])
      continue
    }
    k = kind(i)
    rest = ""
    if (k ~ /^values/) rest = " -x -a '" substr(k, 8) "'"
    else if (k == "file") rest = " -r -F"
    else if (k == "dir") rest = " -x -a '(__fish_complete_directories)'"
    else if (arg[i] != "") rest = " -x"
    print "complete -c " name (letter[i] ? " -s " letter[i] : "") " -l " long[i] rest " -d " fquote(help[i])
  }
}

END {
  if (form == "man") man()
  if (form == "bash") bash()
  if (form == "zsh") zsh()
  if (form == "fish") fish()
}
