"""Prints the lines that the random tests never reached.

    unreached.py ROOT RANDOM.json ERRORS.json

Lines of ELSEWHERE are named with the reason that no test here reaches them, and are not counted.

Both files hold gcov's JSON, one object a line: of the random tests, and of the tests of errors. Lines in brackets were
reached by the latter. Lines that report a bug of dtc (BUG, CHECK, ALLOCATED) are left out: no test reaches them.
"""

import collections
import json
import os
import re
import sys

# (file, function): why its lines are not reached.
ELSEWHERE = {
    ("codegen/link.c", "runtime_libs"): "libs.txt names libraries in builds with sanitizers alone",
    ("codegen/cpu/module.c", "llvm_out_of_memory"): "without memory gcov cannot count; driver/memory-that-is-refused-is-reported",
}

REPORTS_A_BUG = re.compile(r"\b(BUG|CHECK|ALLOCATED)\(")


def counts(root, path):
    """file -> line -> (times, function)"""
    count = collections.defaultdict(dict)
    with open(path) as f:
        for text in f:
            for source in json.loads(text)["files"]:
                name = os.path.relpath(os.path.abspath(source["file"]), root)
                if not name.startswith(("passes/", "codegen/")):
                    continue
                for line in source["lines"]:
                    n, function = line["line_number"], line.get("function_name", "")
                    times = count[name].get(n, (0, ""))[0] + line["count"]
                    count[name][n] = (times, function)
    return count


def of_bugs(root, path):
    """The lines of a file that hold a part of a call that reports a bug."""
    lines, inside = set(), False
    with open(os.path.join(root, path)) as f:
        for n, text in enumerate(f, 1):
            inside = inside or bool(REPORTS_A_BUG.search(text))
            if inside:
                lines.add(n)
            inside = inside and ";" not in text
    return lines


def ranges(numbers):
    """3-5 8 10-11"""
    parts = []
    for n in numbers:
        if parts and n - parts[-1][1] <= 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return " ".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in parts)


def main():
    known = collections.defaultdict(list)
    root, random, errors = sys.argv[1], counts(*sys.argv[1:3]), counts(sys.argv[1], sys.argv[3])
    total = missed = refused = 0
    for path in sorted(random):
        bugs = of_bugs(root, path)
        lines = {n: c for n, c in sorted(random[path].items()) if c[0] or n not in bugs}
        never = {n: function for n, (times, function) in lines.items() if not times}
        for n in [n for n, function in never.items() if (path, function) in ELSEWHERE]:
            known[path, never.pop(n)].append(n)
        wrong = {n for n in never if errors[path].get(n, (0, ""))[0]}
        total, missed, refused = total + len(lines), missed + len(never), refused + len(wrong)
        functions = collections.defaultdict(list)
        for n, function in never.items():
            functions[function].append(n)
        if never:
            print("%s: %d of %d lines" % (path, len(never) - len(wrong), len(lines)))
        for name, numbers in functions.items():
            texts = [ranges([n for n in numbers if n not in wrong])]
            texts += ["[%s]" % ranges([n for n in numbers if n in wrong])] if wrong & set(numbers) else []
            print("  %-32s %s" % (name, " ".join(t for t in texts if t)))
    for place, numbers in known.items():
        print("%s: %s %s: %s" % (*place, ranges(numbers), ELSEWHERE[place]))
    print(
        "%d of %d lines were not reached; %d more were by the tests of errors alone"
        % (missed - refused, total, refused)
    )


main()
