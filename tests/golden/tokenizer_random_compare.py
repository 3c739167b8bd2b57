#!/usr/bin/env python3
"""Random texts of many scripts through mtrain and through the PyPI library `tokenizers`: the ids have to be the same.

    python3 tests/golden/tokenizer_random_compare.py BUILD tokenizer.json... [--texts N] [--seed S] [--text FILE]

BUILD is the build folder. Texts are runs of one script, mixtures of all, and, with --text, pieces of a file. Ends with 1
where any differ, after the first three of them. Last run with tokenizers 0.23.3.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys

import tokenizers

RANGES = [(0x21, 0x7F), (0xC0, 0x180), (0x400, 0x460), (0x5D0, 0x5EB), (0x620, 0x64B), (0x905, 0x94E), (0xE01, 0xE3B),
          (0x3041, 0x3097), (0x30A1, 0x30FB), (0x4E00, 0x9FA0), (0xAC00, 0xD7A3), (0x1F600, 0x1F64F)]


def make_texts(count: int, pieces: str) -> list[str]:
    pools = ["".join(map(chr, range(*r))) for r in RANGES] + [" ab\n 1", "\u4e2d\u65e5\u672c\u306e"]
    texts = []
    for _ in range(count):
        size = random.choice([2, 5, 17, 60])
        kind = random.random()
        if pieces and kind < 0.3:
            at = random.randrange(len(pieces))
            texts.append(pieces[at:at + size])
        elif kind < 0.6:
            texts.append("".join(random.choice(random.choice(pools)) for _ in range(size)))
        else:
            pool = random.choice(pools)
            texts.append("".join(random.choice(pool) for _ in range(size)))
    return texts


def differing(build: str, path: str, texts: list[str]) -> int:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run([f"{build}/bin/mtrain", "data", "tokenize", "-t", "hf", f"path={path}"], input=lines,
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    ours = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
    library = tokenizers.Tokenizer.from_file(path)
    wanted = [library.encode(text, add_special_tokens=False).ids for text in texts]
    wrong = [i for i in range(len(texts)) if len(ours) <= i or ours[i] != wanted[i]]
    for i in wrong[:3]:
        print(f"{texts[i]!r}: wanted {wanted[i]}, got {ours[i] if i < len(ours) else None}")
    print(f"{path}: {len(texts)} texts, {sum(map(len, wanted))} tokens, {len(wrong)} differ")
    return len(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("tokenizers", nargs="+", metavar="tokenizer.json")
    parser.add_argument("--texts", type=int, default=30000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", type=pathlib.Path, help="a file whose pieces are among the texts")
    args = parser.parse_args()
    random.seed(args.seed)
    texts = make_texts(args.texts, args.text.read_text(errors="replace") if args.text else "")
    sys.exit(any([differing(args.build, path, texts) for path in args.tokenizers]))


if __name__ == "__main__":
    main()
