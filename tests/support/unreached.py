"""Prints the lines that gcov's JSON on stdin (one object a line) says were never reached."""
import collections
import json
import os
import sys

root = sys.argv[1]
count = collections.defaultdict(dict)  # file -> line -> (times, function)
for text in sys.stdin:
    for f in json.loads(text)["files"]:
        path = os.path.relpath(os.path.abspath(f["file"]), root)
        if not path.startswith(("passes/", "codegen/")):
            continue
        for line in f["lines"]:
            n, function = line["line_number"], line.get("function_name", "")
            count[path][n] = (count[path].get(n, (0, ""))[0] + line["count"], function)


def ranges(numbers):
    """3-5 8 10-11"""
    parts = []
    for n in numbers:
        if parts and n - parts[-1][1] <= 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return " ".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in parts)


total = missed = 0
for path in sorted(count):
    function = collections.defaultdict(list)
    for n, (times, name) in sorted(count[path].items()):
        total += 1
        if not times:
            missed += 1
            function[name].append(n)
    if function:
        print("%s: %d of %d lines" % (path, sum(map(len, function.values())), len(count[path])))
    for name, lines in function.items():
        print("  %-32s %s" % (name, ranges(lines)))
print("%d of %d lines were not reached" % (missed, total))
