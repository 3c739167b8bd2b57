#!/usr/bin/env python3
"""budget.py BUILD_FOLDER BUDGET: holds what ptxas said of each kernel against a budget."""
import re
import sys
from pathlib import Path

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")


def kernels(folder):
    for file in sorted(folder.rglob("*.ptxas")):
        entry, spilt = None, 0
        for line in file.read_text().splitlines():
            if found := ENTRY.search(line):
                entry, spilt = found.groups(), 0
            elif found := SPILL.search(line):
                spilt = max(int(found[2]), int(found[3]))
            elif (found := USED.search(line)) and entry:
                yield file.name, *entry, int(found[1]), spilt
                entry = None


def main(folder, budget_file):
    budget = []
    for line in Path(budget_file).read_text().splitlines():
        if words := line.split("#")[0].split():
            budget.append((words[0], int(words[1]), int(words[2])))
    worst = {pattern: [0, 0, 0] for pattern, _, _ in budget}
    breaches = count = 0
    for file, name, arch, registers, spilt in kernels(Path(folder)):
        count += 1
        rule = next((b for b in budget if b[0] in name), None)
        if rule is None:
            print(f"breach: no budget for {name}")
            breaches += 1
            continue
        most = worst[rule[0]]
        worst[rule[0]] = [max(most[0], registers), max(most[1], spilt), most[2] + 1]
        if registers > rule[1] or spilt > rule[2]:
            print(f"breach: {file} {arch} {name}: {registers} registers of {rule[1]}, {spilt} bytes spilt of {rule[2]}")
            breaches += 1
    for pattern, (registers, spilt, kernels_of) in worst.items():
        print(f"{pattern:20} {kernels_of:4} kernels, at most {registers} registers, {spilt} bytes spilt")
    print(f"{count} kernels, {breaches} breaches")
    if count < 50:
        print("that are too few: the reports of ptxas are not where they are looked for")
        return 1
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
