# Makes doc/nn.md, the reference of the standard library, from its comments and definitions:
#
#     awk -f scripts/nn-page.awk stdlib/nn.dt stdlib/nn.dt >doc/nn.md
#
# The file is read twice: for the list at the head of the page, then for the page. A comment right above
# a definition belongs to it; `# ---- TITLE ----` begins a section.

function name_of(line) {
  sub(/^(intrinsic )?(layer|fn) /, "", line)
  sub(/\(.*/, "", line)
  return line
}

# As GitHub makes it of a heading: lower case, and a number where another has it.
function anchor(name) {
  name = "nn" tolower(name)
  return name (seen[name]++ ? "-" seen[name] - 1 : "")
}

function title_of(line) {
  gsub(/^# -+ *| *-+$/, "", line)
  return toupper(substr(line, 1, 1)) substr(line, 2)
}

function is_definition() { return $0 ~ /^(intrinsic )?(layer|fn) / }

NR == 1 {
  print "# The standard library: `nn`\n"
  print "Made from `stdlib/nn.dt` by `scripts/nn-page.awk`. `use nn` brings these names as `nn.NAME`. A layer is made once,"
  print "with its sizes, and then called on tensors; a function is called. The definitions say all: `...` stands for any"
  print "number of dimensions, a name in brackets for the extent of one, and what has a `=` behind it may be left out."
  print "[language.md](language.md) defines the notation."
}
NR == FNR && /^# ----/ { list = list "\n\n**" title_of($0) "**:"; next }
NR == FNR && is_definition() { list = list " [" name_of($0) "](#" anchor(name_of($0)) ")"; next }
NR == FNR { next }
FNR == 1 { print substr(list, 2) }

/^# ----/ { print "\n## " title_of($0); comment = ""; next }
/^#/ && !open { comment = comment substr($0, 3) "\n"; next }
/^$/ && !open { comment = ""; next }
is_definition() {
  print "\n### `nn." name_of($0) "`\n"
  if (comment != "") print comment
  comment = ""
  open = 1
}
open { print $0 == "" ? "" : "    " $0 }
/^}/ || (is_definition() && /}$/) { open = 0 }
