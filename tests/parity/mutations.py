#!/usr/bin/env python3
"""Puts known layout bugs into the code, one at a time, and asks whether `mtrain verify layouts`, or a test, finds each.

usage: tests/parity/mutations.py [--build build] [WORD...]     those whose names hold one of the words; all without any
       tests/parity/mutations.py --check     only looks whether the code of each bug is still there, once
Changes files of the working tree and puts them back; needs a finished build. Reports each bug that is not found, and each whose
text is no longer in the code, and then exits with status 1."""
import argparse
import os
import subprocess
import sys
import tempfile
from typing import NamedTuple


class Layouts(NamedTuple):
    """Layouts of a model that show the bug."""
    model: str
    ranks: int
    layouts: str


class Case(NamedTuple):
    """Cases of a test program that show the bug."""
    program: str
    cases: str


class Bug(NamedTuple):
    name: str
    file: str
    code: str
    with_bug: str
    shown_by: NamedTuple


LLAMA = "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128}"
GPT2 = "{type: gpt2, layers: 8, hidden_size: 64, heads: 8, dropout: 0.1, tie_embeddings: true}"
MIXTRAL = ("{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, moe: {experts: 8, top_k: 2, "
           "ffn_hidden_size: 64, router: {balancing: [aux_loss], aux_loss_coeff: [0.02]}}}")
WINDOWS = ("{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 2, ffn_hidden_size: 128, norm_position: sandwich, rope: {percent: 0.5}, "
           "attention: {window: 64, softmax: learnable, dropout: 0.1}}")
GPT_OSS = ("{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, attention: {bias: true, window: 128, "
           "window_blocks: [1, 0, 1, 0, 1, 0, 1, 0], softmax: learnable}, moe: {experts: 8, top_k: 2, ffn_hidden_size: 64, expert_bias: true}}")

BUGS = [
    Bug("loss + log(tp)", "mtrain/nn/vocabulary.cc",
        "return top + std::log(sum);",
        "return top + std::log(sum) + std::log(static_cast<float>(ranks));", Layouts(LLAMA, 2, "tp2")),
    Bug("norm of what a rank has, not of all", "mtrain/optim/optimizer_state.cc",
        "if (world) squares = world->all_reduce_value(squares);",
        "(void)world;", Layouts(LLAMA, 2, "tp2")),
    Bug("norms' gradients not added over tp under sp", "mtrain/nn/parameter.cc",
        "if (!p.expert && parallel.sequence_parallel) p.partial.push_back({tensor, 0, p.numel()});",
        "", Layouts(LLAMA, 2, "tp2+sp")),
    Bug("copies counted in the norm", "mtrain/nn/parameter.cc",
        "p.is_primary = tensor->index() == 0;",
        "", Layouts(LLAMA, 2, "tp2")),
    Bug("shared key/value heads not added up", "mtrain/nn/attention.cc",
        "p->partial.push_back({copies, heads_.copied_begin * row, heads_.copied_rows * row});",
        "(void)row;", Layouts(LLAMA, 4, "tp4")),
    Bug("tied embeddings of two stages not added up", "mtrain/nn/layers.cc",
        "table->partial.push_back({embedding_group, 0, table->numel()});",
        "", Layouts(GPT2, 2, "pp2 1f1b")),
    Bug("loss scaled by cp", "mtrain/train/trainer.cc",
        "const int64_t targets = mesh_.data().comm().all_reduce_value(mine);",
        "const int64_t targets = mesh_.replicas().all_reduce_value(mine);", Layouts(LLAMA, 2, "cp2")),
    Bug("ring: keys of another member than meant", "mtrain/dist/context_ring.cc",
        "return (part_.me + steps() - t % steps()) % steps(); }",
        "return (part_.me + t) % steps(); }", Layouts(LLAMA, 4, "cp4 p2p")),
    Bug("micro-batches weigh by a rank's own targets", "mtrain/train/trainer.cc",
        "const int64_t targets = mesh_.data().comm().all_reduce_value(mine);",
        "const int64_t targets = mine;", Layouts(LLAMA, 2, "dp2")),
    Bug("balancing losses of a rank's own tokens", "mtrain/nn/moe.cc",
        "if (active_axis(axis)) axis->comm().all_reduce(counts);",
        "(void)axis, (void)counts;", Layouts(MIXTRAL, 2, "tp2+sp")),
    Bug("experts' gradients added over the wrong ranks", "mtrain/launch/rank_mesh.cc",
        ".expert = mesh.expert_group(),",
        ".expert = mesh.dense_group(),", Layouts(MIXTRAL, 2, "ep2")),
    Bug("dropout by a rank's own row", "mtrain/train/model_input.cc",
        "if (input.cp_slice || sequence_parallel)\n    ctx.own_tokens =",
        "if (input.cp_slice) ctx.own_tokens =", Layouts(GPT2, 2, "tp2+sp")),
    Bug("values of other ranks' shards stay old", "mtrain/optim/param_buckets.cc",
        "    b.presence = Presence::absent;\n    start_gather(b);\n  }\n  if (options_.overlap_gather) return;",
        "  }\n  if (options_.overlap_gather) return;", Layouts(LLAMA, 2, "dp2 zero1")),
    Bug("what the ranks have is not added up behind a region", "mtrain/nn/region.cc",
        "linear_scattered(x, *parallel_->tp, w) : leave(linear(x, w, {}, {}, quantized));",
        "linear_scattered(x, *parallel_->tp, w) : linear(x, w, {}, {}, quantized);", Layouts(LLAMA, 2, "tp2")),
    Bug("a region is not entered", "mtrain/nn/region.cc",
        "GatheredProducts out{.whole_TD = enter(x), .y = {}};",
        "GatheredProducts out{.whole_TD = x, .y = {}};", Layouts(GPT2, 2, "tp2")),
    Bug("ring: queries before a block's keys take part", "mtrain/dist/context_spans.cc",
        "queries = {queries.first + ring.early(me, s), ring.late(me, s)};",
        "{}", Case("test_dist", "*context*")),
    Bug("kept inputs: every rank keeps the first piece", "mtrain/dist/kept_pieces.cc",
        "std::min(x.numel(), size * axis.index())",
        "int64_t{0}", Layouts(LLAMA, 2, "tp2 recompute-distributed")),
    Bug("bf16 gradients: a rank sums its own piece alone", "mtrain/optim/gradient_messages.cc",
        "ctx_.accumulate(into, pieces.slice(0, at, at + count));",
        "", Case("test_optim", "gradient messages*")),
    Bug("ring: keys after the queries take part", "mtrain/dist/context_spans.cc",
        "if (causal && other < me) keys.rows = ring.early(other, s);",
        "", Case("test_dist", "*context*")),
    Bug("ring: a rank's own keys lose the others' gradient", "mtrain/dist/context_ring.cc",
        "if (round.steps() > 1) block.add_packed(ctx, gathered, d_mine);",
        "", Case("test_dist", "*context*")),
    Bug("rows put in order: backward as forward", "mtrain/dist/reorder_rows.cc",
        "ordered(ctx, dy, ranges, !back)",
        "ordered(ctx, dy, ranges, back)", Case("test_dist", "*context*")),
    Bug("copied keys: gradients of copies not added up", "mtrain/dist/repeat_kv.cc",
        "back.accumulate = true;",
        "back.accumulate = false;", Case("test_dist", "*context*")),
    Bug("packed sequences: the first chunk always goes to the first rank", "mtrain/dist/context_slice.cc",
        "turn = (turn + length % (2 * ranks)) % ranks;",
        "", Case("test_dist", "*context*")),
    Bug("all-gather of keys: the late half is lost", "mtrain/dist/context_gather.cc",
        "for (bool early : {true, false})",
        "for (bool early : {true})", Case("test_dist", "*context*")),
    Bug("sums of spans not cleared", "mtrain/cpu/kernels/attention_backward.cc",
        "if (args_.spans) clear_sums(",
        "if (false) clear_sums(", Case("test_cpu", "*at a time*,*spans*")),
    Bug("parts of attention not scaled to the new sum", "mtrain/cpu/kernels/attention.cc",
        "before = std::exp(known - all)",
        "before = 1.0f", Case("test_cpu", "*at a time*,*spans*")),
    Bug("a causal edge before the first key", "mtrain/cpu/kernels/attention.cc",
        "std::clamp<int64_t>(first_seen + row, 0, keys)",
        "std::min(first_seen + row, keys)", Case("test_cpu", "*at a time*,*spans*")),
    Bug("windows: keys before them take part", "mtrain/cpu/kernels/attention.cc",
        "for (int64_t c = begin; c < span.hidden(r + m); ++c) t.s[m * kTile + c] = -kInfinity;",
        "", Case("test_cpu", "*with windows*")),
    Bug("windows: a query's gradient starts at the sequence's first keys only",
        "mtrain/cpu/kernels/attention_backward.cc",
        "return leads || first_hidden + row >= 0;",
        "return leads;", Case("test_cpu", "*with windows*")),
    Bug("windows: a ring's keys as far away as if they were the first", "mtrain/dist/context_spans.cc",
        "keys.row += before, keys.rows -= before, offset -= before;",
        "keys.row += before, keys.rows -= before;", Case("test_dist", "*windows*")),
    Bug("windows of a twin: a ring's keys as far away as if they were the first", "mtrain/dist/context_spans.cc",
        "keys.row += before, keys.rows -= before, offset -= before;",
        "keys.row += before, keys.rows -= before;", Layouts(WINDOWS, 2, "cp2 p2p")),
    Bug("dropout of scores by a rank's own heads", "mtrain/nn/attention_core.cc",
        "heads.heads.empty() ? 0 : heads.heads[0].global / o.layout.head_dim};",
        "heads.heads.empty() ? 0 : heads.heads[0].local / o.layout.head_dim};", Layouts(WINDOWS, 2, "tp2")),
    Bug("biases of experts not added up over the ranks of an expert", "mtrain/nn/moe.cc",
        "down_bias_->partial.push_back({shards, 0, down_bias_->numel()});",
        "(void)shards;", Layouts(GPT_OSS, 2, "etp2")),
    Bug("sinks count once for each part of the keys", "mtrain/dist/context_ring.cc",
        "once = {};", "", Case("test_dist", "*sinks*")),
    Bug("capped scores: the gradient of scores without a cap", "mtrain/cpu/kernels/attention_backward.cc",
        "* (1.0f - ratio * ratio)", "", Case("test_cpu", "*caps*")),
]


def run(words, **options):
    return subprocess.run(words, capture_output=True, text=True, **options)


def build(folder, target):
    done = run(["ninja", "-C", folder, target])
    if done.returncode:
        print(done.stdout[-2000:])
    return done.returncode == 0


def by_layouts(folder, how):
    """Whether the layouts differ from one rank, and what was said."""
    if not build(folder, "lib/libmtrain_core.so"):
        return False, "does not build"
    with tempfile.TemporaryDirectory() as scratch:
        recipe = os.path.join(scratch, "r.yaml")
        with open(recipe, "w") as file:
            file.write(f"model: {how.model}\ndataset: mock\ntrain: {{steps: 1}}\n")
        out = run([f"{folder}/bin/mtrain", "verify", "layouts", recipe, "--ranks", str(how.ranks), "--steps", "2", "--only", how.layouts])
    lines = [line.strip() for line in out.stdout.splitlines()]
    words = ("rounding explains", "come from", "cannot mix")
    return out.returncode == 14, next((line for line in lines if any(word in line for word in words)), f"status {out.returncode}")


def by_case(folder, how):
    """Whether a case fails, and which. A program that hangs or crashes counts as a failed case."""
    if not build(folder, how.program):
        return False, "does not build"
    try:
        out = run([f"{folder}/bin/{how.program}", f"-tc={how.cases}"], timeout=1200)
    except subprocess.TimeoutExpired:
        return True, "hangs"
    failed = [line.split(":", 1)[1].strip() for line in out.stdout.splitlines() if line.startswith("TEST CASE:")]
    return out.returncode != 0, "; ".join(dict.fromkeys(failed)) or f"status {out.returncode}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    missed, targets = 0, set()
    for bug in BUGS:
        if options.words and not any(word in bug.name for word in options.words):
            continue
        with open(bug.file) as file:
            original = file.read()
        if original.count(bug.code) != 1:
            print(f"GONE   {bug.name}: its code is {original.count(bug.code)} times in {bug.file}")
            missed += 1
            continue
        if options.check:
            continue
        try:
            with open(bug.file, "w") as file:
                file.write(original.replace(bug.code, bug.with_bug))
            layouts = isinstance(bug.shown_by, Layouts)
            found, said = (by_layouts if layouts else by_case)(options.build, bug.shown_by)
        finally:
            with open(bug.file, "w") as file:
                file.write(original)
        targets.add("lib/libmtrain_core.so" if layouts else bug.shown_by.program)
        missed += not found
        print(f"{'found' if found else 'MISSED'}  {bug.name} ({bug.shown_by.layouts if layouts else bug.shown_by.program}): {said}", flush=True)
    for target in sorted(targets):
        build(options.build, target)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
