#!/usr/bin/env python3
"""Compares the encoding speed with that of the PyPI library `tokenizers`, in one run: mtrain, the library, mtrain again.

    tools/bench/tokenizer_compare.py BUILD tokenizer.json TEXT... [--document-bytes N]

BUILD is the build folder, with bench_tokenizer and the plugins. The library's figure is its batch call
(encode_batch_fast where it has it), on one thread and on two. Prints a Markdown table.
"""
import argparse
import json
import os
import subprocess
import sys
import time


def documents(text: str, size: int) -> list[str]:
    out, data, at = [], text.encode(), 0
    while at < len(data):
        end = len(data) if len(data) - at <= size else data.find(b"\n", at + size)
        end = len(data) if end < 0 else end + 1 if end < len(data) else end
        out.append(data[at:end].decode(errors="replace"))
        at = end
    return out


def ours(build: str, path: str, size: int, texts: list[str]) -> dict:
    done = subprocess.run([f"{build}/bin/bench_tokenizer", f"{build}/lib/mtrain/plugins", "hf", path, str(size), *texts],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def peer(path: str, docs: list[str], threads: int) -> float:
    """Seconds of the best of three batch calls, in a separate process, because the number of threads is read at start."""
    code = ("import sys,json,time,tokenizers\n"
            "path,docs=json.load(sys.stdin)\n"
            "t=tokenizers.Tokenizer.from_file(path)\n"
            "call=getattr(t,'encode_batch_fast',t.encode_batch)\n"
            "best=1e9\n"
            "for _ in range(3):\n"
            "  begin=time.perf_counter(); out=call(docs,add_special_tokens=False); best=min(best,time.perf_counter()-begin)\n"
            "print(json.dumps([best,sum(len(e.ids) for e in out),tokenizers.__version__]))\n")
    env = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true" if threads > 1 else "false")
    done = subprocess.run([sys.executable, "-c", code], input=json.dumps([path, docs]), capture_output=True, text=True,
                          check=True, env=env)
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("tokenizer")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--document-bytes", type=int, default=4096)
    a = parser.parse_args()
    text = "".join(open(t, encoding="utf-8", errors="replace", newline="").read() for t in a.texts)
    docs = documents(text, a.document_bytes)
    megabytes = len(text.encode()) / 1e6
    first = ours(a.build, a.tokenizer, a.document_bytes, a.texts)
    one, tokens, version = peer(a.tokenizer, docs, 1)
    two, _, _ = peer(a.tokenizer, docs, 2)
    second = ours(a.build, a.tokenizer, a.document_bytes, a.texts)
    best = {k: max(first[k], second[k]) for k in ("cold", "warm", "two_threads")}
    print(f"{megabytes:.2f} MB in {len(docs)} documents; tokens: mtrain {first['tokens']}, tokenizers {version} {tokens}\n")
    print("| | MB/s | ratio |\n|---|---|---|")
    print(f"| tokenizers, one thread | {megabytes / one:.2f} | 1 |")
    print(f"| tokenizers, two threads | {megabytes / two:.2f} | {one / two:.2f} |")
    for name in ("cold", "warm", "two_threads"):
        print(f"| mtrain, {name.replace('_', ' ')} | {best[name]:.1f} | {best[name] * one / megabytes:.1f} |")
    print(f"| mtrain, load | {min(first['load_ms'], second['load_ms']):.0f} ms | |")
    if first["tokens"] != tokens:
        print("the numbers of tokens differ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
