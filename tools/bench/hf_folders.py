#!/usr/bin/env python3
"""Import, export and conversion of a Hugging Face folder, compared with copies of the same bytes.

    tools/bench/hf_folders.py build WORK [--runs 5] [--layers 8] [--shard-size 500MB]

Makes a folder of bf16 weights in Llama's shape (random values; 1.1 GB with 8 layers) in WORK, then
alternates each command with copies of what it wrote: by `cp -r`, and by `cp -r` followed by `sync`,
since mtrain makes what it writes durable before it returns. Prints the medians of time, of the
ratios to the copies of the same round, and of peak memory. WORK needs space for about ten times the
folder.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import time

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 32768, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True,
    "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
}


def shapes(layers):
    """Names and shapes of the tensors, in the order of their files."""
    h, f = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    kv = h // CONFIG["num_attention_heads"] * CONFIG["num_key_value_heads"]
    yield "model.embed_tokens.weight", [CONFIG["vocab_size"], h]
    for i in range(layers):
        at = f"model.layers.{i}."
        for name, rows, columns in [("mlp.down_proj", h, f), ("mlp.gate_proj", f, h),
                                    ("mlp.up_proj", f, h), ("self_attn.k_proj", kv, h),
                                    ("self_attn.o_proj", h, h), ("self_attn.q_proj", h, h),
                                    ("self_attn.v_proj", kv, h)]:
            yield f"{at}{name}.weight", [rows, columns]
        yield f"{at}input_layernorm.weight", [h]
        yield f"{at}post_attention_layernorm.weight", [h]
    yield "model.norm.weight", [h]


def size_of(shape):
    bytes_ = 2
    for n in shape:
        bytes_ *= n
    return bytes_


def random_bf16(count, seed):
    """Finite values: the upper byte has the sign and an exponent near that of 0.03."""
    source = random.Random(seed)
    out = bytearray(source.randbytes(2 * count))
    table = bytes((0x3C if b & 1 else 0x3D) | (b & 0x80) for b in range(256))
    out[1::2] = bytes(out[1::2]).translate(table)
    return bytes(out)


def write_file(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size_of(shape)]}
        at += size_of(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = random_bf16(1 << 20, 1)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for index, (_, shape) in enumerate(tensors):
            left, turn = size_of(shape), 2 * (index * 997 % (1 << 19))
            turned = block[turn:] + block[:turn]
            while left > 0:
                file.write(turned[:left])
                left -= min(left, len(turned))


def make_folder(folder, layers, shard_bytes):
    os.makedirs(folder)
    shards, used = [[]], 0
    for name, shape in shapes(layers):
        if shards[-1] and used + size_of(shape) > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append((name, shape))
        used += size_of(shape)
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, tensors in zip(names, shards):
        write_file(os.path.join(folder, name), tensors)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": sum(size_of(s) for _, s in shapes(layers))},
                   "weight_map": {t: n for n, ts in zip(names, shards) for t, _ in ts}}, file)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**CONFIG, "num_hidden_layers": layers}, file)


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(root, name))
               for root, _, names in os.walk(folder) for name in names)


def timed(command, out):
    """Seconds and peak memory in MiB of a command that writes `out`, which is removed before."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    start = time.monotonic()
    process = subprocess.Popen(command, shell=True, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    errors = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if status != 0:
        sys.exit(f"failed: {command}\n{errors}")
    return seconds, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("work")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--shard-size", default="500MB")
    parser.add_argument("--only", help="of: import, export, convert, convert-fp32")
    args = parser.parse_args()
    mtrain = os.path.join(os.path.abspath(args.build), "bin/mtrain")
    os.makedirs(args.work, exist_ok=True)
    os.chdir(args.work)
    shard_bytes = int(args.shard_size.removesuffix("MB")) * 1000000
    if not os.path.exists("folder/config.json"):
        make_folder("folder", args.layers, shard_bytes)
    size = folder_bytes("folder")
    shard = f"--shard-size {args.shard_size}"
    words = "tokenizer.type=byte model.vocab_size=32768 model.seq_length=64 dataset.type=mock"
    commands = {
        "import": ("run", f"{mtrain} import folder run {words}"),
        "export": ("out", f"{mtrain} export base out {shard}"),
        "convert": ("out", f"{mtrain} convert folder out {shard}"),
        "convert-fp32": ("out", f"{mtrain} convert folder out --dtype fp32 {shard}"),
    }
    if args.only:
        commands = {name: commands[name] for name in args.only.split(",")}
    if not os.path.exists("base"):
        timed(f"{mtrain} import folder base {words}", "base")
    print(f"{size / 1e9:.2f} GB in {args.shard_size} shards, {args.runs} rounds")
    rows = {}
    for _ in range(args.runs):
        for name, (out, command) in commands.items():
            seconds, memory = timed(command, out)
            plain, _ = timed(f"cp -r {out} copy", "copy")
            durable, _ = timed(f"cp -r {out} copy && sync -f copy", "copy")
            rows.setdefault(name, []).append((seconds, memory, plain, durable, folder_bytes(out)))
            shutil.rmtree("copy")
            shutil.rmtree(out)
    print("| command | GB written | s | cp -r, s | cp -r and sync, s | "
          "relative to cp -r | to cp -r and sync | peak, MiB |\n|" + "---|" * 8)
    for name, runs in rows.items():
        def median(get):
            return statistics.median(get(*run) for run in runs)
        print(f"| {name} | {median(lambda s, m, p, d, w: w) / 1e9:.2f} "
              f"| {median(lambda s, *_: s):.2f} | {median(lambda s, m, p, *_: p):.2f} "
              f"| {median(lambda s, m, p, d, w: d):.2f} "
              f"| {100 * median(lambda s, m, p, d, w: p / s):.0f} % "
              f"| {100 * median(lambda s, m, p, d, w: d / s):.0f} % "
              f"| {median(lambda s, m, *_: m):.0f} |")


if __name__ == "__main__":
    main()
