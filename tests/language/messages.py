"""Every message that a model can provoke is the expected text of a test, and every rule has one.

    messages.py ROOT    names each message of the sources that no test expects, and each rule or error test that
                        rules.md leaves out; exit status 1 if there is one

A message is a string with a space in it in the front end or a pass. A diagnostic's format must match the whole of an
expected line, any other string (a reason, a hint) a part of one.
"""

import glob
import os
import re
import sys

FORMAT = {"err": 2, "note": 2, "diag_error": 2, "diag_note": 2, "diag": 3}  # which argument it is
OURS = {"BUG", "CHECK"}  # said of dtc's own mistakes: no model provokes them
NO_MESSAGE = {
    "%p %p": "a key",
    "init %d(%.17g, %.17g)": "a key",
    "memory exhausted": "bison's word for what the grammar says otherwise",
    "an error": "the kind of a value whose error was reported",
    "Parser *": "a type",
    "<command line>": "a place",
    "def __init__": "a word of other languages",
}
# Said where the search for a plan finds none that keeps to a model's `shard`, and where a pipeline could be validated but not
# sampled from. No model is known that leads there.
LAST_RESORTS = {
    "its operands or its result cannot have that layout",
    "parameter '%s' cannot be whole on %lld ranks of %s: %s",
    "dimension %d of parameter '%s' cannot be cut over %lld ranks of %s: %s",
    "sample from",
}
# Said of a target that has not all types; tests/codegen/other_target_test.c is one.
OTHER_TARGETS = {"precision = %s: the target has no values of type %s"}
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|[A-Za-z_]\w*|\s+|.', re.S)
ESCAPE = {"n": "\n", "t": "\t", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def unquoted(literal):
    return re.sub(r"\\(.)", lambda m: ESCAPE.get(m[1], m[1]), literal[1:-1])


def strings(path):
    """Each string, adjacent ones joined: its line, its text, and the calls around it with the argument's number."""
    with open(path, encoding="utf-8") as f:
        source = f.read()
    source = re.sub(r"(?m)^(#include|%token|%option)\b.*$", "", source)
    line, last, calls, text, start = 1, "", [], None, 0
    for m in TOKEN.finditer(source):
        token = m[0]
        blank = token.isspace() or token.startswith(("//", "/*"))
        if token.startswith('"'):
            text, start = (text or "") + unquoted(token), start if text is not None else line
        elif not blank:
            if text is not None:
                yield start, text, list(calls)
            text = None
            if token in "([{":
                calls.append([last, 0])
            elif token in ")]}" and calls:
                calls.pop()
            elif token == "," and calls:
                calls[-1][1] += 1
        if not blank:
            last = token
        line += token.count("\n")


def pattern(text):
    return ".*".join(re.escape(p) for p in re.split(r"%%|%[-+0-9.*]*(?:ll|z|h)?[a-z]", text))


def messages(root):
    """Path, line, text, and whether the text is all of a diagnostic."""
    files = [p for d in ("frontend", "passes") for p in glob.glob(f"{root}/{d}/*.[cyl]")]
    for path in sorted(set(files) - {f"{root}/frontend/ast_print.c"}):  # it prints the language
        for line, text, calls in strings(path):
            named = [c for c in calls if c[0] in FORMAT or c[0] in OURS]
            whole = bool(named) and FORMAT.get(named[-1][0]) == named[-1][1]
            if any(c[0] in OURS for c in calls) or " " not in text.strip():
                continue
            yield os.path.relpath(path, root), line, text, whole


def expected(root):
    """The texts of all diagnostics that a test expects."""
    files = glob.glob(f"{root}/tests/language/*/*.err") + glob.glob(f"{root}/tests/passes/text/*.out")
    for path in sorted(files):
        with open(path, encoding="utf-8") as f:
            for line in f:
                m = re.match(r"(?:dtc|[^:]*:\d+:\d+): (?:error|warning|note): (.*)", line)
                if m:
                    yield m[1]


def untested(root):
    texts = list(expected(root))
    joined = "\n".join(texts)
    found = 0
    for path, line, text, whole in messages(root):
        if text in NO_MESSAGE or text in LAST_RESORTS | OTHER_TARGETS:
            continue
        found += 1
        want = re.compile(pattern(text))
        if whole and not any(want.fullmatch(t) for t in texts) or not whole and not want.search(joined):
            yield f"{path}:{line}: no test expects {text!r}"
    if found < 300:
        yield f"only {found} messages found: the sources are read wrongly"


def headings(text):
    return re.findall(r"(?m)^## (\d+\. .*)$", text)


def unruled(root):
    """What rules.md says that is not so, and what it leaves out."""
    with open(f"{root}/tests/language/rules.md", encoding="utf-8") as f:
        rules = f.read()
    with open(f"{root}/doc/language.md", encoding="utf-8") as f:
        language = f.read()
    tests = {os.path.basename(p)[:-3] for p in glob.glob(f"{root}/tests/language/error/*.dt")}
    named = set()
    for bullet in re.findall(r"(?m)^- .*(?:\n  .*)*", rules):
        m = re.fullmatch(r"- .+?: (`[a-z0-9-]+`(?:, `[a-z0-9-]+`)*)", re.sub(r"\s+", " ", bullet))
        if not m:
            yield f"rules.md: a rule is followed by its tests, not: {bullet}"
            continue
        named |= set(re.findall(r"`([^`]+)`", m[1]))
    named |= set(re.findall(r"(?m)^\|.*\| `([a-z-]+)` \|$", language))
    yield from (f"there is no tests/language/error/{n}.dt" for n in sorted(named - tests))
    yield from (f"rules.md: no rule names {n}" for n in sorted(tests - named))
    for title in headings(language):
        if not re.search(rf"(?m)^## {re.escape(title)}\n\n- ", rules):
            yield f"rules.md: no rules of section {title}"
    yield from (f"there is no section {t}" for t in headings(rules) if t not in headings(language))


def main():
    faults = list(untested(sys.argv[1])) + list(unruled(sys.argv[1]))
    for fault in faults:
        print(fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
