# The grammars for editors hold the reserved words of the lexer and the builtins of the front end, no more and no less; Vim
# colours a model by them, where it is installed.
. "$(dirname "$0")/../support/lib.sh"
python3 - "$SRC" <<'PY'
import json, re, sys
src = sys.argv[1]
lexer = open(src + "/frontend/lexer.l").read()
words = set(re.findall(r'\{"([a-z]+)", T_[A-Z]+\}', lexer))
scope = open(src + "/frontend/scope.c").read()
builtins = set(re.findall(r'"(\w+)"', re.search(r"builtins\[\] = \{(.*?)\}", scope, re.S).group(1)))
assert len(words) > 15 and len(builtins) > 25, (words, builtins)
want = words | builtins | {"pi", "inf"}

grammar = json.load(open(src + "/editors/vscode/syntaxes/dt.tmLanguage.json"))
rules = grammar["repository"]["all"]["patterns"]
found = set()
for r in rules:
    m = re.fullmatch(r"\\b\(([a-z_|]+)\)\\b", r.get("match", ""))
    if m: found |= set(m.group(1).split("|"))
assert found == want, ("TextMate", found ^ want)
vim = open(src + "/editors/vim/syntax/dtc.vim").read()
found = {w for l in re.findall(r"^syntax keyword dtc(?!Todo)\w+ (.*)$", vim, re.M) for w in l.split()}
assert found == want, ("Vim", found ^ want)

# Where the rules of the TextMate grammar match first in a line: Python's regular expressions serve.
def scopes(line):
    at, out = 0, {}
    while at < len(line):
        best = None
        for r in rules:
            m = re.compile(r.get("match") or r["begin"]).search(line, at)
            if m and (best is None or m.start() < best[0].start()): best = (m, r)
        if not best: break
        m, r = best
        end = m.end()
        if "begin" in r:
            end = re.compile(r'(?:\\.|[^"\\])*"?').match(line, m.end()).end()
            out[line[m.start():end]] = r["name"]
        elif "captures" in r:
            for k, c in r["captures"].items(): out[m.group(int(k))] = c["name"]
        else: out[m.group()] = r["name"]
        at = max(end, m.start() + 1)
    return {k: v.removesuffix(".dtc") for k, v in out.items()}
got = scopes('layer Block(dim = 1_0, p = 2e-3) { x[..., d] = sum(d: f(y)) # if "a"')
for k, v in {"layer": "keyword.declaration", "Block": "entity.name.type", "1_0": "constant.numeric",
             "2e-3": "constant.numeric", "...": "keyword.operator", "sum": "support.function",
             "f": "entity.name.function", '# if "a"': "comment.line.number-sign"}.items():
    assert got.get(k) == v, (k, got)
got = scopes('data = bytes("a # \\" b", length = 3)  # not')
assert got['"a # \\" b"'] == "string.quoted.double" and got["# not"] == "comment.line.number-sign", got
for f in ("vscode/package.json", "vscode/language-configuration.json", "tree-sitter-dtc/package.json"):
    json.load(open(src + "/editors/" + f))
tree = open(src + "/editors/tree-sitter-dtc/grammar.js").read()
missing = {w for w in words if not re.search("'%s'" % w, tree)}
assert not missing, ("tree-sitter", missing)
PY
if command -v tree-sitter >/dev/null && command -v node >/dev/null; then
  # Every model that dtc accepts is parsed.
  rm -rf grammar models
  cp -r "$SRC/editors/tree-sitter-dtc" grammar
  mkdir models
  (cd "$SRC" && find stdlib examples tests -name '*.dt' -type f -print0 | xargs -0 tar c) | tar x -C models
  cd grammar
  tree-sitter generate --no-bindings >../tree.txt 2>&1 || { cat ../tree.txt; fail "tree-sitter generate"; }
  find ../models -name '*.dt' -type f | sort >../paths.txt
  tree-sitter parse -q --paths ../paths.txt 2>/dev/null | awk '{ print $1 }' >../bad.txt || true
  while read -r f; do "$DTC" "$f" --check >/dev/null 2>&1 && fail "tree-sitter does not parse $f"; done <../bad.txt
  [ "$(wc -l <../bad.txt)" -lt 25 ] || fail "tree-sitter refuses too many models"
  tree-sitter query queries/highlights.scm ../models/examples/chargpt.dt 2>/dev/null >../query.txt
  cd ..
  says 'type, .*text: `CharGPT`' query.txt
  says 'comment, .*text: `# tied head`' query.txt
  says 'function.call, .*text: `cross_entropy`' query.txt
else echo "no tree-sitter: its grammar is not tried"; fi
command -v vim >/dev/null || { echo "no vim: not tried"; exit 0; }
vim --version | grep -q '+syntax' && vim --version | grep -q '+eval' || { echo "this vim colours nothing: not tried"; exit 0; }
cat >colours.vim <<'END'
set nocompatible
let &runtimepath = $SRC . '/editors/vim,' . &runtimepath
filetype plugin on
syntax on
execute 'edit ' . fnameescape($SRC . '/examples/chargpt.dt')
let out = ['filetype ' . &filetype . ' ' . &shiftwidth]
for [line, col] in [[1, 3], [5, 1], [7, 1], [7, 7], [19, 28], [21, 12], [26, 23], [32, 23], [33, 16], [33, 40]]
  call add(out, line . ':' . col . ' ' . synIDattr(synID(line, col, 1), 'name'))
endfor
call writefile(out, 'colours.txt')
qall!
END
SRC=$SRC timeout 60 vim -N -u NONE -i NONE -es -S colours.vim </dev/null >vim.txt 2>&1 || { cat vim.txt; fail "vim"; }
cat >want.txt <<'END'
filetype dtc 2
1:3 dtcComment
5:1 dtcDeclaration
7:1 dtcDeclaration
7:7 dtcName
19:28 
21:12 dtcStatement
26:23 dtcBuiltin
32:23 dtcString
33:16 dtcNumber
33:40 dtcComment
END
diff -u want.txt colours.txt || fail "Vim colours in another way"
