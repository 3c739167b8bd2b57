#!/usr/bin/env python3
"""Writes megatron_index/golden.json: what numpy.random.RandomState and the published sampling rules of Megatron's GPTDataset
give. Each array is kept as its length, first and last values and the SHA-256 of its little-endian bytes.

Needs numpy; made with 2.4.6. The rules, in the order in which they draw from one RandomState(seed):
  epochs   the fewest E with E * tokens >= num_samples * seq + extra
  apart    E > 1 and num_samples - ((E-1) * tokens - extra) // seq < int(0.8 * ((tokens - extra) // seq))
  documents  the ids of E epochs shuffled as one array, or of E-1 epochs and then of the last one when apart
  shuffle  all samples, or those of the first E-1 epochs and then the rest when apart
The sample index is computed here from the running sum of the document lengths, which needs no walk.
"""
import hashlib
import json
import pathlib

import numpy


def digest(array, dtype):
    array = numpy.asarray(array)
    flat = array.reshape(-1)
    return {
        "size": int(flat.size),
        "head": [int(x) for x in flat[:6]],
        "tail": [int(x) for x in flat[-6:]],
        "sha256": hashlib.sha256(flat.astype(dtype).tobytes()).hexdigest(),
    }


def lengths_of(rule, count):
    """Lengths that a test can make again: an affine walk modulo a prime."""
    i = numpy.arange(count, dtype=numpy.int64)
    return ((i * rule["step"] + rule["start"]) % rule["modulus"] + rule["least"]).astype(numpy.int32)


def index(lengths, first, num_samples, seq, seed, extra, drop_last):
    tokens, count = int(lengths.sum()), len(lengths)
    epochs = 1 if num_samples is None else max(1, -(-(num_samples * seq + extra) // tokens))
    before_last = ((epochs - 1) * tokens - extra) // seq
    apart = epochs > 1 and num_samples - before_last < int(0.80 * ((tokens - extra) // seq))
    rs = numpy.random.RandomState(seed)
    ids = numpy.arange(first, first + count, dtype=numpy.int32)
    parts = []
    for n in [epochs - 1, 1] if apart else [epochs]:
        part = numpy.tile(ids, n)
        rs.shuffle(part)
        parts.append(part)
    documents = numpy.concatenate(parts)
    available = epochs * tokens - extra
    n = available // seq if drop_last else -(-available // seq)
    # Sample i begins at token i * seq of the documents laid end to end, in the document whose end (in tokens, less the
    # `extra` that a predecessor already had as target) reaches that far.
    ends = numpy.cumsum(lengths[documents - first].astype(numpy.int64))
    starts = numpy.minimum(numpy.arange(n + 1, dtype=numpy.int64) * seq, available)
    position = numpy.searchsorted(ends, starts + extra, side="left")
    position[0] = 0
    offset = starts - (ends[position] - lengths[documents[position] - first])
    shuffle = []
    for lo, hi in [(0, before_last), (before_last, n)] if apart else [(0, n)]:
        part = numpy.arange(lo, hi, dtype=numpy.uint32)
        rs.shuffle(part)
        shuffle.append(part)
    return {
        "epochs": epochs,
        "apart": bool(apart),
        "tokens": tokens,
        "documents": digest(documents, "<i4"),
        "samples": digest(numpy.stack([position, offset], axis=1), "<i8"),
        "shuffle": digest(numpy.concatenate(shuffle), "<u4"),
    }


def main():
    shuffles = []
    for seed, size in [(0, 1), (0, 2), (1, 10), (1234, 1000), (42, 65537), (2**32 - 1, 4096), (7, 300000)]:
        values = numpy.arange(size, dtype=numpy.int64)
        rs = numpy.random.RandomState(seed)
        rs.shuffle(values)
        shuffles.append({"seed": seed, "values": digest(values, "<i8"), "next": int(rs.randint(0, 2**32, dtype=numpy.uint64))})
    cases = []
    rule = {"step": 7919, "start": 11, "modulus": 509, "least": 0}
    for count, first, num_samples, seq, seed, extra, drop_last in [
        (12, 0, None, 64, 1234, 1, True),
        (12, 5, 3, 64, 1234, 1, True),
        (12, 5, 100, 64, 1234, 1, True),
        (100, 0, 1000, 128, 1, 1, True),
        (100, 969, 512, 100, 2, 1, True),
        (100, 0, 360, 128, 3, 1, True),
        (100, 0, None, 128, 3, 1, False),
        (100, 0, 1000, 128, 4, 0, True),
        (1, 0, 40, 10, 5, 1, True),
        (5000, 0, 10000, 256, 1234, 1, True),
        (5000, 0, 10000, 256, 1234, 1, False),
        (300000, 0, 100000, 1024, 1234, 1, True),
    ]:
        case = {"lengths": rule, "count": count, "first": first, "num_samples": -1 if num_samples is None else num_samples,
                "seq_length": seq, "seed": seed, "extra": extra, "drop_last": drop_last}
        case["index"] = index(lengths_of(rule, count), first, num_samples, seq, seed, extra, drop_last)
        cases.append(case)
    splits = []
    for shares in ["969,30,1", "969, 30, 1", "9999,8,2", "1", "0,1", "98,2", "0.9,0.05,0.05", "1,1,1", "100,0,0", "5,3,2"]:
        vector = [float(x) for x in shares.split(",")]
        vector = vector + [0.0] * (3 - len(vector))
        array = numpy.array(vector, dtype=numpy.float64)
        vector = (array / numpy.sum(array)).tolist()
        ends = [0]
        for share in vector:
            ends.append(ends[-1] + share)
        for count in [0, 1, 2, 3, 5, 10, 25, 31102, 999999, 3000000001]:
            at = [int(round(end * float(count))) for end in ends]
            splits.append({"shares": shares, "count": count, "ends": at})
    sums = []
    for size in [1, 3, 7, 8, 9, 31, 128, 129, 300]:
        weights = numpy.array([((i * 7919 + 13) % 1009 + 1) / 7.0 for i in range(size)], dtype=numpy.float64)
        sums.append({"size": size, "normalized": [float(x).hex() for x in (weights / numpy.sum(weights))[[0, size // 2, size - 1]]]})
    out = {"numpy": numpy.__version__, "shuffles": shuffles, "indices": cases, "splits": splits, "sums": sums}
    path = pathlib.Path(__file__).parent / "megatron_index" / "golden.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out, separators=(",", ":")).replace('},{', '},\n{') + "\n")


if __name__ == "__main__":
    main()
