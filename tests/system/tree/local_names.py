#!/usr/bin/env python3
"""Checks the names that are local to a source file (in an unnamed namespace, static, a constant, an alias, a class): the files of a
layer, of the executable, of a plugin and of most tests may be compiled as one (CMAKE_UNITY_BUILD), where a call could reach another
file's function. So a local name occurs in one file of its folder, and is not that of a header's function or class which another file of
the folder uses. An alias may be repeated if it means the same. Prints every breach with its places, and fails on any.

usage: local_names.py SOURCE_FOLDER"""
import pathlib
import re
import sys

FOLDERS = ("mtrain/*", "tools/mtrain", "plugins/*/*", "tests/unit/*", "tests/contract", "tests/golden", "tests/parity", "tests/recipes",
           "tests/system/data", "tests/system/install", "tests/system/plugins", "tests/system/recipes", "tests/system/tokenizers")
# The programs of these folders are joined each for itself.
FOLDERS_OF_PROGRAMS = ("tests/system/cli",)
PROGRAM = re.compile(r"mt_test\(NAME \w+ JOINED SOURCES ([\w. ]+\.cc)\b")
ADVICE = "give it a more specific name, or move what both need into a header of the folder"
# clang-format starts what a namespace holds in column 0 and marks the end of a namespace that has more than one statement.
BEGIN, END = "namespace {", "}  // namespace"
OUTSIDE = re.compile(r"(static|const|constexpr|struct|class|enum|using \w+ =) ?")
STATEMENT = re.compile(r"[A-Za-z_:\[]")
IGNORED = re.compile(r"using namespace|using [\w:, ]+;|static_assert|namespace|extern")
NOISE = re.compile(r"(\[\[.*?\]\]|__attribute__\(\(.*?\)\)\)?|alignas\(\w+\)|\bMT_\w+\b(?!\()) ?|//.*")
TEMPLATE = re.compile(r"template <([^<>]|<([^<>]|<[^<>]*>)*>)*>\s*")
TYPE = re.compile(r"(?:struct|class|union|enum(?: class)?) (\w+)(?: final)?(?!\w|::)\s*(;?)")
ALIAS = re.compile(r"using (\w+) = (.*?);")
LAST_WORD = re.compile(r"(?<![\w:~])(\w+)\s*$")
FURTHER = re.compile(r", \*?(k[A-Z]\w*)(?= = |\[|\{)")
TEXT = re.compile(r'//.*|"(?:\\.|[^"\\\n])*"')


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


def declared(text, everything):
    """(names, kind, meaning) of a statement's beginning, or None where the statement goes on. Kinds: alias, type, function, value."""
    if alias := ALIAS.match(text):
        return [alias[1]], "alias", alias[2]
    if known := TYPE.match(text):
        return [] if known[2] else [known[1]], "type", None
    if not text or IGNORED.match(text):
        return [], None, None
    found = None if text.startswith("using") else declarator(text)
    if found is None:
        return None
    name = LAST_WORD.search(found[0])
    kind = "function" if found[1] == "(" else "value"
    if kind == "value" and ";" not in text:
        return None  # further declarators may follow on other lines
    if not name or name[1].isupper() and kind == "function" or "operator" in text or not (everything or text.startswith("static") or kind == "value"):
        return [], None, None
    return [name[1]] + (FURTHER.findall(text) if kind == "value" else []), kind, None


def names_of(path):
    """(name, kind, meaning, line number) of what a source file keeps to itself, or of what a header declares."""
    lines = path.read_text().split("\n")
    header = path.suffix == ".h"
    inside, text, start, block = header, "", 0, False
    for number, line in enumerate(lines, 1):
        ends = line == END or line == "}" and not block
        block = line not in ("}", BEGIN) and (block or line.endswith("{"))
        if not header and (line == BEGIN or ends):
            inside, text = line == BEGIN, ""
        elif not header and (macro := re.match(r"#\s*define (\w+)", line)):
            yield macro[1], "macro", None, number
        elif text or (STATEMENT if inside else OUTSIDE).match(line):
            start = start if text else number
            text = TEMPLATE.sub("", NOISE.sub("", f"{text} {line}".strip()))
            found = declared(text, inside)
            if found is not None:
                yield from ((name, *found[1:], start) for name in found[0])
                text = ""


class Folder:
    """The sources of a folder, and the headers that they include, themselves or by other headers."""

    def __init__(self, root, path, sources=None):
        self.root, self.sources = root, sources or sorted(path.rglob("*.cc"))
        self.headers, waiting = set(), self.sources + sorted(path.rglob("*.h"))
        while waiting:
            file = waiting.pop()
            for name in re.findall(r'#include "(.+?)"', file.read_text()):
                for header in (root / name, root / "tests" / name, file.parent / name):
                    if header.is_file() and header not in self.headers:
                        self.headers.add(header)
                        waiting.append(header)

    def place(self, path, number):
        return f"{path.relative_to(self.root)}:{number}"

    def breaches(self):
        public = {name: (header, number) for header in sorted(self.headers) for name, _, _, number in names_of(header)}
        texts = {path: TEXT.sub("", path.read_text()) for path in self.sources}
        first = {}
        for path in self.sources:
            found = {}
            for name, kind, meaning, number in names_of(path):
                found.setdefault(name, (kind, meaning, number))
            for name, (kind, meaning, number) in found.items():
                other = first.setdefault(name, (path, number, meaning))
                if other[0] != path and (meaning is None or meaning != other[2]):
                    yield f"{self.place(path, number)}: '{name}' is a local name of {self.place(*other[:2])} too"
                if name not in public or kind == "alias":
                    continue
                use = re.compile(rf"(?<![\w.:>~]){name}\b" + (r"[(<]" if kind == "function" else ""))
                if user := next((user for user in self.sources if user != path and use.search(texts[user])), None):
                    yield (f"{self.place(path, number)}: '{name}' is a local name, and that of {self.place(*public[name])} "
                           f"in {user.relative_to(self.root)}")


def programs(root, path):
    for files in PROGRAM.findall((path / "CMakeLists.txt").read_text()):
        yield Folder(root, path, [path / name for name in files.split()])


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    folders = [Folder(root, path) for pattern in FOLDERS for path in sorted(root.glob(pattern)) if path.is_dir()]
    folders += [program for name in FOLDERS_OF_PROGRAMS for program in programs(root, root / name)]
    found = [breach for folder in folders for breach in folder.breaches()]
    for breach in found:
        print(f"breach: {breach}: {ADVICE}")
    print(f"{len(folders)} folders and programs, {len(found)} breaches")
    sys.exit(bool(found) or len(folders) < 40)


if __name__ == "__main__":
    main()
