#!/usr/bin/env python3
"""How long texts become when spans are removed from them, after the rules of Raffel et al. 2020: span_lengths/golden.json.

    python3 span_lengths_generate.py OUTPUT_DIR

Of n tokens a share p is removed, rounded to the nearest number (ties to even), in as many spans as make the wanted mean
length, rounded alike. At least one token is removed and one stays; every span needs a token of its own and one before it.
The inputs are what stays, a sentinel for each span and an end; the targets are the spans, a sentinel for each, where wanted
one more, and an end. The longest text for a number of places is found by looking at all of them. numpy's rint does the
rounding, on whole arrays.

The published figure holds here: 512 inputs and 114 targets of 568 tokens at p = 0.15 and spans of three.
"""

import json
import os
import sys

import numpy as np

SHARES = [(0.15, 3, False), (0.15, 3, True), (0.15, 8, False), (0.5, 3, False), (0.5, 32, True), (0.25, 1, False),
          (0.9, 1, False), (0.01, 12, False), (0.999, 64, True)]
TEXTS = [2, 3, 4, 5, 9, 10, 11, 30, 50, 90, 100, 130, 250, 499, 568, 569, 1000, 1137, 2278, 9999, 65536]
PLACES = [3, 4, 5, 6, 7, 8, 9, 16, 33, 65, 128, 129, 257, 513, 626, 1025, 2049, 4097, 8193]
MOST = max(PLACES + TEXTS)


def lengths(share, mean, closing):
    """Columns: removed tokens, spans, inputs, targets; a row for each text of 0, 1, 2 … tokens, of which the first two say
    nothing."""
    tokens = np.arange(MOST + 1)
    removed = np.maximum(np.rint(tokens * share), 1).astype(np.int64)
    removed = np.minimum(removed, tokens - 1)
    spans = np.maximum(np.rint(removed / mean), 1).astype(np.int64)
    spans = np.minimum(spans, np.minimum(removed, tokens - removed))
    return np.stack([removed, spans, tokens - removed + spans + 1, removed + spans + int(closing) + 1], axis=1)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    sets = []
    for share, mean, closing in SHARES:
        table = lengths(share, mean, closing)
        total = table[:, 2] + table[:, 3]
        longest = []
        for places in PLACES:
            fitting = np.nonzero(total[2:] <= places)[0]
            longest.append([places, int(fitting[-1]) + 2 if fitting.size else 0])
        texts = [[n] + [int(v) for v in table[n]] for n in TEXTS]
        sets.append({"share": share, "mean": mean, "closing": closing, "texts": texts, "longest": longest})
    t5 = lengths(0.15, 3, False)
    assert list(t5[568, 2:]) == [512, 114] and t5[569, 2] > 512
    with open(os.path.join(folder, "golden.json"), "w") as out:
        out.write('{"numpy": "%s", "sets": [\n' % np.__version__)
        out.write(",\n".join(json.dumps(s) for s in sets) + "\n]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
