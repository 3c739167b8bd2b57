#!/usr/bin/env python3
"""Checks that a name that is local to a source file (in an unnamed namespace, static, a constant, an alias, a class) occurs in one
file of a folder only: the files of a layer, of the executable or of a plugin may be compiled as one (CMAKE_UNITY_BUILD), where a
call could reach the other file's function. An alias may be repeated if it means the same. Prints every breach with its places, and
fails on any.

usage: local_names.py SOURCE_FOLDER"""
import pathlib
import re
import sys

FOLDERS = ("mtrain/*", "tools/mtrain", "plugins/*/*")
# clang-format starts what a namespace holds in column 0 and marks the end of a namespace that has more than one line.
BEGIN, END = "namespace {", "}  // namespace"
OUTSIDE = re.compile(r"(static|const|constexpr|struct|class|enum|using \w+ =) ?")
ATTRIBUTE = re.compile(r"(\[\[.*?\]\]|__attribute__\(\(.*?\)\)\)?|alignas\(\w+\)) ?")
TEMPLATE = re.compile(r"template <([^<>]|<([^<>]|<[^<>]*>)*>)*>\s*")
TYPE = re.compile(r"(?:struct|class|union|enum(?: class)?) (\w+)(?: final)?(?!\w|::)\s*(;?)")
ALIAS = re.compile(r"using (\w+) = (.*?);")
MACRO = re.compile(r"#\s*define (\w+)")
LAST_WORD = re.compile(r"(?<![\w:~])(\w+)\s*$")


def declarator(text):
    """A declaration up to its parameters or value, without template arguments, and what follows; None if the text ends before."""
    depth, head = 0, ""
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter in "({[=;":
            return head, letter
        if depth == 0 and letter != ">":
            head += letter
    return None


def local_names(lines):
    """(name, meaning, line number) of what a file keeps to itself; the meaning of anything but an alias is None."""
    inside, text, start = False, "", 0
    for number, line in enumerate(lines, 1):
        if line in (BEGIN, END) or line == "}" and lines[number - 3] == BEGIN:
            inside, text = line == BEGIN, ""
        elif macro := MACRO.match(line):
            yield macro[1], None, number
        elif text or (re.match(r"[A-Za-z_:\[]", line) if inside else OUTSIDE.match(line)):
            start = start if text else number
            text = TEMPLATE.sub("", ATTRIBUTE.sub("", f"{text} {re.sub('//.*', '', line)}".strip()))
            if alias := ALIAS.match(text):
                yield alias[1], alias[2], start
            elif known := TYPE.match(text):
                if not known[2]:
                    yield known[1], None, start
            elif re.match(r"using \w+ =", text):
                continue
            elif text and not re.match(r"using|template|static_assert|namespace|extern", text):
                if (found := declarator(text)) is None:
                    continue
                name = LAST_WORD.search(found[0])
                variable = inside or text.startswith("static") or found[1] != "("
                if name and variable and "operator" not in text and not name[1].startswith("MT_"):
                    yield name[1], None, start
            text = ""


def breaches(root, folder):
    first = {}
    for path in sorted(folder.rglob("*.cc")):
        found = set()
        for name, meaning, number in local_names(path.read_text().split("\n")):
            if name in found:
                continue
            found.add(name)
            other = first.setdefault(name, (path, number, meaning))
            if other[0] != path and (meaning is None or meaning != other[2]):
                yield f"{path.relative_to(root)}:{number}: '{name}' is a local name of {other[0].relative_to(root)}:{other[1]} too"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    folders = [folder for pattern in FOLDERS for folder in sorted(root.glob(pattern)) if folder.is_dir()]
    found = [breach for folder in folders for breach in breaches(root, folder)]
    for breach in found:
        print(f"breach: {breach}: give it a more specific name, or move what both need into a header of the folder")
    print(f"{len(folders)} folders, {len(found)} breaches")
    sys.exit(bool(found) or len(folders) < 20)


if __name__ == "__main__":
    main()
