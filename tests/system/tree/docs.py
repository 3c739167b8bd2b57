#!/usr/bin/env python3
"""Checks that what the pages name exists: targets of links, paths, symbols and settings in backticks, mtrain's commands with their
options. Prints every fault with its place, and fails on any.

usage: docs.py SOURCE_FOLDER MTRAIN_BINARY"""
import functools
import pathlib
import re
import subprocess
import sys

CODE = (".cc", ".h", ".cu", ".cuh")
BUILDING = (".cmake", ".txt", ".sh", ".py", ".yaml", ".in")
GENERATED = ("build", "runs", "data", ".git", ".cache")
# Of other programs.
FOREIGN = {"tools/preprocess_data.py", "IndexedDataset"}
FILE_ENDINGS = {"h", "cc", "json", "model", "merges", "safetensors", "yaml", "md", "bin", "idx", "jsonl", "so"}
PATH = re.compile(r"^[\w.*-]+(/[\w.*-]+)+/?$")
QUALIFIED = re.compile(r"^\w+(::\w+)+(\(.*\))?$")
CAMEL = re.compile(r"^([A-Z][a-z0-9]+){2,}(\(\))?$")
SETTING = re.compile(r"(?<![\w./+~-])([a-z_]+(?:\.[a-z_]+)+)(?:=\S*)?(?![\w/.(])")


class Tree:
    """The source tree: its pages, and the names that its sources hold."""

    def __init__(self, root):
        self.root = root
        self.pages = self.files(".md")
        self.texts = [path.read_text(errors="replace") for path in self.files(*CODE)]
        self.words = set()
        for text in self.texts + [path.read_text(errors="replace") for path in self.files(*BUILDING)]:
            self.words.update(re.findall(r"[A-Za-z_]\w*", text))
        self.folders = {path.name for path in root.iterdir() if path.is_dir()} - set(GENERATED)
        self.settings = set()
        section = ""
        for line in (root / "docs/config.md").read_text().split("\n"):
            if heading := re.match(r"#+ (\w+)", line):
                section = heading[1]
            elif row := re.match(r"\| `([\w.]+)` \|", line):
                self.settings.add(f"{section}.{row[1]}")
        self.sections = {setting.split(".")[0] for setting in self.settings}

    def files(self, *suffixes):
        inside = [path.relative_to(self.root) for path in sorted(self.root.rglob("*")) if path.suffix in suffixes]
        return [self.root / path for path in inside if path.parts[0] not in GENERATED and not path.parts[0].startswith("build-")]

    def has_member(self, owner, name):
        owned = re.compile(rf"\b{owner}::{name}\b")
        defined = re.compile(rf"\b(class|struct|namespace|enum class|enum) (MT_API )?([\w:]+::)?{owner}\b")
        member = re.compile(rf"\b{name}\b")
        return any(owned.search(text) or (defined.search(text) and member.search(text)) for text in self.texts)

    def has_path(self, page, path):
        bases = [page.parent, self.root] + [self.root / folder for folder in ("core", "tests", "plugins", "tools")]
        return any(any(base.glob(path.rstrip("/"))) for base in bases)


class Program:
    """The commands of the executable."""

    def __init__(self, binary, root):
        self.binary = binary
        self.recipes = {path.stem for path in (root / "recipes").rglob("*.yaml")}

    @functools.cache
    def help(self, *command):
        result = subprocess.run([self.binary, "help", *command], capture_output=True, text=True)
        return result.stdout if result.returncode == 0 else None

    def fault(self, line):
        """What is wrong with one command line of a page, or None."""
        words = line.split("#")[0].split()
        if len(words) < 2 or not re.fullmatch(r"[a-z][\w-]*", words[1]):
            return None
        command, text = [], self.help()
        for word in words[1:3]:
            names = word.split("|")
            if not all(re.fullmatch(r"[a-z][\w-]*", name) for name in names) or (longer := self.help(*command, names[0])) is None:
                break
            command.append(names[0])
            text += longer
        if not command and words[1] != "help" and words[1] not in self.recipes:
            return f"mtrain has no command or recipe '{words[1]}'"
        for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", line):
            if not re.search(rf"(?<![\w-]){option}(?![\w-])", text):
                return f"mtrain {' '.join(command)} has no option {option}"
        return None


def anchors(page):
    titles = re.findall(r"^#+ +(.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def link_fault(page, target):
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    if re.match(r"[a-z]+:", target):
        return None
    if not file.exists():
        return f"the link leads nowhere: {target}"
    return f"no heading for the link {target}" if anchor and file.suffix == ".md" and anchor not in anchors(file) else None


def code_faults(tree, page, code):
    if PATH.match(code) and code.split("/")[0] in tree.folders and code not in FOREIGN and not tree.has_path(page, code):
        yield f"no such path: {code}"
    names = re.findall(r"[A-Za-z_]\w*", code.split("(")[0])
    if QUALIFIED.match(code) and names[0] != "std" and not tree.has_member(*names[-2:]):
        yield f"no such member: {code}"
    if CAMEL.match(code) and code not in FOREIGN and names[0] not in tree.words:
        yield f"no such symbol in the sources: {code}"
    for setting in SETTING.findall(code):
        if page.name == "CHANGELOG.md" or setting.split(".")[0] not in tree.sections or setting.split(".")[-1] in FILE_ENDINGS:
            continue
        if setting not in tree.settings and not any(known.startswith(setting + ".") for known in tree.settings):
            yield f"no such setting: {setting}"


def page_faults(tree, program, page):
    fence = None
    for number, line in enumerate(page.read_text().split("\n"), 1):
        if line.lstrip().startswith("```"):
            fence = line.strip("` ") if fence is None else None
            continue
        commands = []
        if fence is None:
            yield from ((number, link_fault(page, target)) for target in re.findall(r"\]\(([^)\s]+)\)", line))
            for code in re.findall(r"`([^`]+)`", line):
                yield from ((number, fault) for fault in code_faults(tree, page, code))
                commands.append(code)
        elif fence == "sh":
            commands = re.split(r"&&|\|(?=\s)|;", line)
        for command in commands:
            if re.match(r"\s*mtrain ", command):
                yield number, program.fault(command)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    tree, program = Tree(root), Program(sys.argv[2], root)
    faults = [f"{page.relative_to(root)}:{number}: {fault}" for page in tree.pages for number, fault in page_faults(tree, program, page) if fault]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(tree.pages)} pages, {len(faults)} faults")
    sys.exit(bool(faults))


main()
