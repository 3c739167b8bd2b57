#!/usr/bin/env python3
"""make_records.py OUT [RECORDS]: records of 65 one-byte ids: small sums in words, "7+5=12;"."""
import random
import sys

random.seed(1)
count = int(sys.argv[2]) if len(sys.argv) > 2 else 400
with open(sys.argv[1], "wb") as out:
    for _ in range(count):
        text = ""
        while len(text) < 65:
            a, b = random.randrange(10), random.randrange(10)
            text += f"{a}+{b}={a + b};"
        out.write(text[:65].encode())
