#!/usr/bin/env python3
"""Puts known layout bugs into the code, one at a time, and asks whether `mtrain verify layouts` finds each.

usage: tests/parity/mutations.py [--build build] [NAME...]
Changes files of the working tree and puts them back; needs a finished build. A bug that is not found, or whose text is no longer
in the code, is told, and makes the exit status 1."""
import argparse
import os
import subprocess
import sys
import tempfile

LLAMA = "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128}"
GPT2 = "{type: gpt2, layers: 8, hidden_size: 64, heads: 8, dropout: 0.1, tie_embeddings: true}"
MIXTRAL = ("{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, moe: {experts: 8, top_k: 2, "
           "ffn_hidden_size: 64, router: {balancing: [aux_loss], aux_loss_coeff: [0.02]}}}")

BUGS = [  # name, file, code, code with the bug, model, ranks, layouts that show it
    ("loss + log(tp)", "core/nn/vocabulary.cc", "return top + std::log(sum);",
     "return top + std::log(sum) + std::log(static_cast<float>(ranks));", LLAMA, 2, "tp2"),
    ("norm of what a rank has, not of all", "core/optim/optimizer_state.cc",
     "if (world) squares = world->all_reduce_value(squares);", "(void)world;", LLAMA, 2, "tp2"),
    ("norms' gradients not added over tp under sp", "core/nn/parameter.cc",
     "if (!p.expert && parallel.sequence) p.partial.push_back({tensor, 0, p.numel()});", "", LLAMA, 2, "tp2+sp"),
    ("copies counted in the norm", "core/nn/parameter.cc", "p.counted = tensor->index() == 0;", "", LLAMA, 2, "tp2"),
    ("shared key/value heads not added up", "core/nn/layers.cc",
     "p->partial.push_back({copies, heads_.copied_begin * row, heads_.copied_rows * row});", "(void)row;", LLAMA, 4, "tp4"),
    ("tied embeddings of two stages not added up", "core/nn/layers.cc",
     "table->partial.push_back({ends, 0, table->numel()});", "", GPT2, 2, "pp2 1f1b"),
    ("loss scaled by cp", "core/train/trainer.cc",
     "int64_t targets = mesh_.data().comm().all_reduce_value(num_targets(batches));",
     "int64_t targets = mesh_.replicas().all_reduce_value(num_targets(batches));", LLAMA, 2, "cp2"),
    ("ring: keys of another member than meant", "core/dist/context_ring.cc",
     "return (part_.me + steps() - t % steps()) % steps(); }", "return (part_.me + t) % steps(); }", LLAMA, 4, "cp4 p2p"),
    ("micro-batches weigh by a rank's own targets", "core/train/trainer.cc",
     "int64_t targets = mesh_.data().comm().all_reduce_value(num_targets(batches));",
     "int64_t targets = num_targets(batches);", LLAMA, 2, "dp2"),
    ("balancing losses of a rank's own tokens", "core/nn/moe.cc",
     "if (cutting(axis)) axis->comm().all_reduce(counts);", "(void)axis, (void)counts;", MIXTRAL, 2, "tp2+sp"),
    ("experts' gradients added over the wrong ranks", "core/train/rank_mesh.cc",
     ".expert = mesh.expert_group(),", ".expert = mesh.dense_group(),", MIXTRAL, 2, "ep2"),
    ("dropout by a rank's own row", "core/train/session.cc",
     "if (input.context || sequence) run.own_tokens =", "if (input.context) run.own_tokens =", GPT2, 2, "tp2+sp"),
    ("values of other ranks' shards stay old", "core/optim/param_buckets.cc",
     "    b.presence = Presence::absent;\n    start_gather(b);\n  }\n  if (options_.overlap_gather) return;",
     "  }\n  if (options_.overlap_gather) return;", LLAMA, 2, "dp2 zero1"),
]


def run(words, **options):
    return subprocess.run(words, capture_output=True, text=True, **options)


def build(folder):
    done = run(["ninja", "-C", folder, "lib/libmtrain_core.so"])
    if done.returncode:
        print(done.stdout[-2000:])
    return done.returncode == 0


def check(folder, model, ranks, layouts):
    """The exit status and what was said."""
    with tempfile.TemporaryDirectory() as scratch:
        recipe = os.path.join(scratch, "r.yaml")
        with open(recipe, "w") as file:
            file.write(f"model: {model}\ndataset: mock\ntrain: {{steps: 1}}\n")
        return run([f"{folder}/bin/mtrain", "verify", "layouts", recipe, "--ranks", str(ranks), "--steps", "2", "--only", layouts])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    missed = 0
    for name, path, code, bug, model, ranks, layouts in BUGS:
        if options.names and name not in options.names:
            continue
        with open(path) as file:
            original = file.read()
        if code not in original:
            print(f"GONE   {name}: its code is not in {path}")
            missed += 1
            continue
        try:
            with open(path, "w") as file:
                file.write(original.replace(code, bug, 1))
            built = build(options.build)
            out = check(options.build, model, ranks, layouts) if built else None
        finally:
            with open(path, "w") as file:
                file.write(original)
        found = built and out.returncode == 14
        missed += not found
        said = next((line.strip() for line in out.stdout.splitlines() if "rounding explains" in line or "counted" in line), "") if built else "does not build"
        print(f"{'found' if found else 'MISSED'}  {name} ({layouts}): {said}", flush=True)
    build(options.build)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
