#!/usr/bin/env python3
"""Compares `mtrain data prepare` with Megatron's preprocessing, on the same file and number of workers, in one run.

    tools/bench/prepare_compare.py BUILD tokenizer.json TEXT... --megatron FOLDER [--python PYTHON] [--megabytes 40]

FOLDER holds megatron/core of the PyPI package megatron-core; PYTHON has torch, numpy and the package tokenizers. The peer is
the loop of Megatron's tools/preprocess_data.py: a pool of processes that parse and encode, and the package's
IndexedDatasetBuilder that writes. Its tokenizer is the tokenizers library itself, without the layers that Megatron puts around
it. The texts are repeated up to the size wanted, as lines of JSON of about 4 KB. Checks that both pairs are the same bytes, and
prints a Markdown table: MB of text a second, the ratio, and the peak of resident memory.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

PEER = r"""
import json, multiprocessing, sys, types, pathlib
import numpy
folder, tokenizer, source, prefix, workers, eod = sys.argv[1:]
root = pathlib.Path(folder) / "megatron"
for name, path in [("megatron", root), ("megatron.core", root / "core")]:
    module = types.ModuleType(name); module.__path__ = [str(path)]; sys.modules[name] = module
utils = types.ModuleType("megatron.core.utils"); utils.log_single_rank = lambda *a, **k: None
sys.modules["megatron.core.utils"] = utils
from megatron.core.datasets import indexed_dataset
import tokenizers

class Encoder:
    def initializer(self):
        Encoder.tokenizer = tokenizers.Tokenizer.from_file(tokenizer)
    def encode(self, line):
        text = json.loads(line)["text"]
        ids = Encoder.tokenizer.encode(text, add_special_tokens=False).ids
        lengths = [len(ids)] if ids else []
        if ids:
            ids.append(int(eod)); lengths[-1] += 1
        return ids, lengths, len(line)

encoder = Encoder()
vocabulary = tokenizers.Tokenizer.from_file(tokenizer).get_vocab_size(with_added_tokens=True)
with open(source, encoding="utf-8") as lines:
    pool = multiprocessing.Pool(int(workers), initializer=encoder.initializer)
    builder = indexed_dataset.IndexedDatasetBuilder(prefix + ".bin", dtype=indexed_dataset.DType.optimal_dtype(vocabulary))
    for ids, lengths, size in pool.imap(encoder.encode, lines, 32):
        builder.add_document(ids, lengths)
    builder.finalize(prefix + ".idx")
pool.close()
"""


def make_lines(texts, path, megabytes):
    documents = []
    for text in texts:
        data = open(text, encoding="utf-8", errors="replace").read()
        at = 0
        while at < len(data):
            end = data.find("\n", at + 4000)
            end = len(data) if end < 0 else end + 1
            documents.append(data[at:end])
            at = end
    size, written = 0, 0
    with open(path, "w", encoding="utf-8") as out:
        while size < megabytes * 1e6:
            text = documents[written % len(documents)]
            out.write(json.dumps({"id": written, "text": text}, ensure_ascii=written % 2 == 0) + "\n")
            size += len(text.encode())
            written += 1
    return size / 1e6, written


def timed(command, **more):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr}")
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def peak_of(command):
    """Peak resident memory in MiB, measured by wait4 as in GNU time."""
    child = os.posix_spawn(command[0], command, os.environ,
                           file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{command[0]} failed")
    return usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("tokenizer")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--megatron", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--megabytes", type=float, default=40)
    parser.add_argument("--peer-megabytes", type=float, default=10, help="the peer gets a shorter file, because it is slower")
    parser.add_argument("--eod", type=int, default=50256)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines, short = f"{folder}/x.jsonl", f"{folder}/short.jsonl"
        size, count = make_lines(a.texts, lines, a.megabytes)
        short_size, _ = make_lines(a.texts, short, a.peer_megabytes)
        mtrain = str(pathlib.Path(a.build) / "bin/mtrain")
        def ours(source, out, workers):
            return [mtrain, "data", "prepare", "-i", source, "-o", f"{folder}/{out}", "-t", "hf", f"path={a.tokenizer}",
                    "--append-eod", "--force", "--json", "--workers", str(workers)]

        bench = [str(pathlib.Path(a.build) / "bin/bench_tokenizer"), f"{a.build}/lib/mtrain/plugins", "hf", a.tokenizer, "4096",
                 *a.texts]
        encoder = json.loads(timed(bench)[2])["warm"]
        print(f"{size:.1f} MB of text in {count} documents; the encoder alone, warm, one thread: {encoder:.1f} MB/s\n")
        print("| workers | mtrain, MB/s | relative to the encoder alone, per worker | Megatron, MB/s | ratio | mtrain's peak memory |")
        print("|---|---|---|---|---|---|")
        for workers in a.workers:
            best = max(size / json.loads(timed(ours(lines, "a", workers))[2])["seconds"] for _ in range(3))
            peer_command = [a.python, "-c", PEER, a.megatron, a.tokenizer, short, f"{folder}/b", str(workers), str(a.eod)]
            peer_seconds, _, _ = timed(peer_command, env=dict(os.environ, TOKENIZERS_PARALLELISM="false"))
            best = max(best, size / json.loads(timed(ours(lines, "a", workers))[2])["seconds"])
            timed(ours(short, "c", workers))
            for suffix in ("bin", "idx"):
                if open(f"{folder}/b.{suffix}", "rb").read() != open(f"{folder}/c.{suffix}", "rb").read():
                    sys.exit(f"the .{suffix} of mtrain and Megatron differ")
            peer = short_size / peer_seconds
            print(f"| {workers} | {best:.1f} | {100 * best / encoder / workers:.0f} % | {peer:.2f} | {best / peer:.1f} | "
                  f"{peak_of(ours(lines, 'a', workers)):.0f} MiB |")
        print("\nBoth pairs are byte-identical.")


if __name__ == "__main__":
    main()
