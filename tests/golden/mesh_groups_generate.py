#!/usr/bin/env python3
"""Writes mesh_groups/golden.json: which ranks form the groups of which axes.

The rule (Megatron-LM, megatron/core/parallel_state.py): ranks are handed out by counting through the axes of the order
text, the first one fastest; a group is the set of ranks that agree on all axes that are not in it. The dense mesh counts
tp, cp, dp, pp, the experts' mesh etp (in the place of tp), ep, edp (in that of dp), pp. Here ranks are really handed out one
by one and sorted into groups by what they agree on: no strides are computed. `published` checks the tables that the
documentation of initialize_model_parallel gives for 16 ranks. Needs Python 3.9 only.
"""
import itertools
import json
import pathlib

DEFAULT, PP_BEFORE_DP = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"
CASES = [  # world, tp, pp, cp, ep, etp, order
    (1, 1, 1, 1, 1, 1, DEFAULT),
    (16, 2, 4, 1, 1, 2, DEFAULT),
    (16, 2, 4, 1, 1, 2, PP_BEFORE_DP),
    (8, 2, 2, 2, 1, 2, DEFAULT),
    (8, 4, 1, 2, 1, 4, DEFAULT),
    (16, 4, 2, 1, 8, 1, DEFAULT),
    (16, 2, 2, 2, 2, 2, DEFAULT),
    (16, 2, 2, 2, 2, 2, PP_BEFORE_DP),
    (24, 2, 2, 3, 3, 1, DEFAULT),
    (24, 3, 2, 1, 2, 1, "dp-ep-tp-cp-pp"),
    (32, 2, 2, 2, 4, 1, "cp-tp-dp-ep-pp"),
    (12, 3, 2, 1, 1, 3, "pp-tp-dp"),
    (12, 1, 1, 2, 6, 1, "tp-cp-ep-dp-pp"),
    (64, 8, 2, 2, 8, 2, DEFAULT),
]
DENSE = ["tp", "cp", "dp", "pp", "dp-cp", "tp-cp", "tp-pp", "tp-dp", "tp-dp-cp", "tp-cp-dp-pp"]
EXPERT = ["etp", "ep", "edp", "pp", "etp-ep", "ep-edp", "etp-ep-pp", "etp-ep-edp"]


def hand_out(order, sizes):
    """Rank by rank, what its place is on every axis."""
    names = [n for n in order if n in sizes]
    names += [n for n in sizes if n not in names]
    # product() varies its last argument fastest.
    return [dict(zip(reversed(names), place))
            for place in itertools.product(*(range(sizes[n]) for n in reversed(names)))]


def groups(places, token):
    inside = token.split("-")
    by_rest = {}
    for rank, place in enumerate(places):
        key = tuple(sorted((n, at) for n, at in place.items() if n not in inside))
        by_rest.setdefault(key, []).append(rank)
    return sorted(by_rest.values())


def one(world, tp, pp, cp, ep, etp, order):
    axes = order.split("-")
    dense = hand_out(axes, {"tp": tp, "cp": cp, "dp": world // (tp * cp * pp), "pp": pp})
    renamed = [{"tp": "etp", "dp": "edp"}.get(n, n) for n in axes]
    expert = hand_out(renamed, {"etp": etp, "ep": ep, "edp": world // (etp * ep * pp), "pp": pp})
    assert groups(dense, "pp") == groups(expert, "pp"), order
    return {"world": world, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp, "order": order,
            "dense": {t: groups(dense, t) for t in DENSE}, "expert": {t: groups(expert, t) for t in EXPERT}}


def published(cases):
    tables = next(c for c in cases if c["world"] == 16 and c["order"] == DEFAULT)["dense"]
    assert tables["dp"] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert tables["tp"] == [[i, i + 1] for i in range(0, 16, 2)]
    assert tables["pp"] == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    # "tensor model parallel size is 4 and context parallel size is 2": 8 ranks
    assert next(c for c in cases if c["tp"] == 4 and c["cp"] == 2)["dense"]["cp"] == [[0, 4], [1, 5], [2, 6], [3, 7]]


if __name__ == "__main__":
    made = [one(*case) for case in CASES]
    published(made)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in made)
    (pathlib.Path(__file__).parent / "mesh_groups" / "golden.json").write_text(f"[\n{lines}\n]\n")
