#!/usr/bin/env python3
"""Codes of FP8 and FP4 types from ml_dtypes: quant_formats/*.json.

    python3 quant_formats_generate.py OUTPUT_DIR

For e4m3 (float8_e4m3fn), e5m2 (float8_e5m2), e2m1 (float4_e2m1fn): what every code is worth, and the codes of 10,000
floats. The floats are not stored: number i is made of the i-th output of splitmix64 from seed 0, its exponent spread
over the format's range and beyond both ends (value() below; the test makes the same). Finite numbers are clamped to the
largest one first, since ml_dtypes does not saturate. For e8m0 (float8_e8m0fnu): what every code is worth.
"""

import json
import os
import sys

import ml_dtypes
import numpy as np

COUNT = 10000
# name: dtype, bits of a code, binary exponents of the random values
FORMATS = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 8, (-12, 10)),
    "e5m2": (ml_dtypes.float8_e5m2, 8, (-19, 17)),
    "e2m1": (ml_dtypes.float4_e2m1fn, 4, (-4, 4)),
}


def splitmix64(count):
    state = np.uint64(0)
    with np.errstate(over="ignore"):
        for _ in range(count):
            state += np.uint64(0x9E3779B97F4A7C15)
            z = state
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            yield int(z ^ (z >> np.uint64(31)))


def value(word, lowest, highest):
    """Sign and fraction from the low bits, exponent from the high ones; every fourth value has its low 19 fraction bits
    cleared, so that ties are common."""
    exponent = lowest + (word >> 40) % (highest - lowest + 1)
    fraction = word & 0x7FFFFF
    if (word >> 32) % 4 == 0:
        fraction &= ~0x7FFFF
    return ((word >> 31) & 1) << 31 | (exponent + 127) << 23 | fraction


def as_bits(values):
    return [int(b) for b in np.asarray(values, np.float32).view(np.uint32)]


def main(folder):
    os.makedirs(folder, exist_ok=True)
    versions = {"ml_dtypes": ml_dtypes.__version__, "numpy": np.__version__}
    for name, (dtype, bits, (lowest, highest)) in FORMATS.items():
        codes = np.arange(2**bits, dtype=np.uint8)
        words = np.array([value(w, lowest, highest) for w in splitmix64(COUNT)], np.uint32)
        most = float(ml_dtypes.finfo(dtype).max)
        rounded = np.clip(words.view(np.float32), -most, most).astype(dtype).view(np.uint8) & (2**bits - 1)
        write(folder, name, {
            "versions": versions, "exponents": [lowest, highest],
            "decoded": as_bits(codes.view(dtype).astype(np.float32)),
            "codes": bytes(rounded.tolist()).hex(),
        })
    decoded = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    write(folder, "e8m0", {"versions": versions, "decoded": as_bits(decoded)})


def write(folder, name, content):
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as out:
        json.dump(content, out, indent=None, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__))
