#!/usr/bin/env python3
"""Writes pipeline/schedules.txt: the order of forwards and backwards per rank, for tests/unit/pipeline/generators_test.cc.

It has no phases of warmup and steady state, unlike the generators. Each rank is a greedy worker on a clock (forward, backward
of inputs and backward of weights take one unit each; a whole backward two) that keeps its window of micro-batches in flight
full. Whenever it is free, the first line that holds says what is next; it starts when what it needs has arrived:
  1. weight gradients, when more than `lag` of its backwards have none yet, or nothing else is left;
  2. a forward, when one is left and fewer than `window` micro-batches of its stages are in flight;
  3. a backward.
Rules of the papers and of Megatron-LM give the rest:
  gpipe        window: all (Huang et al. 2019)
  1f1b         window of rank r of p: p - r (Narayanan et al. 2021, section 2.2)
  interleaved  forwards go group by group, chunk by chunk; backwards the same with the chunks reversed. Window: what is in flight
               when the first gradient of the rank's last chunk can arrive: (vp - 1) * group + 2 * (p - 1 - r) + 1 (Megatron-LM,
               megatron/core/pipeline_parallel/schedules.py, whose comment holds the table checked in check_published())
  combined     as interleaved with one more in flight, so that a forward never feeds the backward after it; once the window has
               been full, a forward with a backward after it is written with a +: the two run side by side (Megatron-LM,
               megatron/core/pipeline_parallel/combined_1f1b.py)
  zb_h1        as 1f1b with weight gradients apart and lag r (Qi et al. 2023, section 2.1: as many in flight on all ranks)
Made with Python 3.11.7. Usage: python3 pipeline_generate.py .
"""
import pathlib
import sys


def table(m, vp, group):
    return [(c, i) for first in range(0, m, group) for c in range(vp) for i in range(first, min(first + group, m))]


def check_published():
    # Megatron-LM's comment at get_schedule_table: PP2 N3M5 with VP2.
    micro = [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    chunk = [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert table(5, 2, 3) == list(zip(chunk, micro))


class Worker:
    def __init__(self, rank, p, m, vp, group, window, lag, split):
        self.rank, self.p, self.vp, self.m = rank, p, vp, m
        self.f = [(c * p + rank, i) for c, i in table(m, vp, group)]
        self.b = [((vp - 1 - c) * p + rank, i) for c, i in table(m, vp, group)]
        self.w = list(self.b) if split else []
        self.window, self.lag, self.split = window, lag, split
        self.done_f = self.done_b = 0
        self.free = 0
        self.order = []

    def step(self, now, done, stages):
        """Starts one thing; gives (key, end) or None."""
        total = self.m * self.vp
        waiting_w = self.done_b - (total - len(self.w)) if self.split else 0
        if self.split and self.w and (waiting_w > self.lag or (not self.b and waiting_w > 0)):
            s, i = self.w.pop(0)
            return ("W", s, i), 1
        full = self.done_f - self.done_b >= self.window
        if self.b and (full or not self.f):
            s, i = self.b[0]
            need = ("F", s, i) if s + 1 == stages else ("B", s + 1, i)
            if done.get(need, 1e9) <= now and done.get(("F", s, i), 1e9) <= now:
                self.b.pop(0)
                self.done_b += 1
                return ("B", s, i), 1 if self.split else 2
        if self.f and not full:
            s, i = self.f[0]
            if s == 0 or done.get(("F", s - 1, i), 1e9) <= now:
                self.f.pop(0)
                self.done_f += 1
                return ("F", s, i), 1
        return None


def schedule(name, p, m, vp=1, group=0):
    group = group or p
    windows = {"gpipe": lambda r: m, "1f1b": lambda r: p - r, "zb_h1": lambda r: p - r,
               "interleaved": lambda r: (vp - 1) * group + 2 * (p - 1 - r) + 1,
               "combined": lambda r: (vp - 1) * group + 2 * (p - 1 - r) + 2}
    grouped = name in ("interleaved", "combined")
    workers = [Worker(r, p, m, vp, group if grouped else m, windows[name](r), r, name == "zb_h1")
               for r in range(p)]
    done, now = {}, 0
    while any(w.f or w.b or w.w for w in workers):
        for w in workers:
            if w.free > now:
                continue
            started = w.step(now, done, p * vp)
            if started:
                key, cost = started
                w.free = now + cost
                done[key] = now + cost
                w.order.append(f"{key[1]}{key[0]}{key[2]}")
        now += 1
        assert now < 100000
    if name == "combined":
        for w in workers:
            w.order = with_pairs(w.order, w.window)
    return [" ".join(w.order) for w in workers]


def with_pairs(order, window):
    out, forwards = [], 0
    for i, what in enumerate(order):
        forwards += "F" in what
        full = forwards >= window
        out.append(what + "+" if "F" in what and full and "B" in order[i + 1] else what)
    return out


CASES = ([("gpipe", p, m) for p, m in [(1, 3), (2, 3), (4, 4)]] +
         [("1f1b", p, m) for p, m in [(1, 4), (2, 2), (2, 5), (4, 8), (4, 2), (8, 16)]] +
         [("interleaved", p, m, vp, g) for p, m, vp, g in
          [(4, 8, 2, 4), (2, 4, 2, 2), (2, 5, 2, 3), (2, 6, 4, 2), (4, 4, 2, 4), (4, 9, 2, 5), (3, 8, 3, 5), (8, 16, 2, 8),
           (4, 16, 2, 8)]] +
         [("combined", p, m, vp, g) for p, m, vp, g in
          [(1, 1, 1, 1), (1, 4, 1, 1), (2, 4, 2, 2), (2, 5, 2, 3), (4, 8, 2, 4), (3, 8, 3, 5), (4, 16, 1, 4)]] +
         [("zb_h1", p, m) for p, m in [(1, 3), (2, 4), (4, 8), (4, 5), (8, 16)]])


def main():
    check_published()
    out = ["# Made by ../pipeline_generate.py with Python 3.11.7; see there."]
    for case in CASES:
        name, p, m, vp, group = (case + (1, 0))[:5] if len(case) == 3 else case
        out.append(f"== {name} {p} {m} {vp} {group}")
        out += schedule(name, p, m, vp, group)
    (pathlib.Path(sys.argv[1]) / "pipeline" / "schedules.txt").write_text("\n".join(out) + "\n")


main()
