#!/usr/bin/env python3
"""Compares a GGUF file with the Hugging Face folder of the same model, by the Python package gguf of llama.cpp:
names and types of tensors, every value, the metadata of the model and the tokenizer. Usage:
gguf_check.py FILE.gguf FOLDER f32|f16|bf16|q8_0     (pip install gguf numpy; exit code 77: not installed)
"""
import json
import pathlib
import struct
import sys

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(error)
    sys.exit(77)

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
                 "gemma": "gemma"}


def read_safetensors(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, info in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            raw = data[8 + length + info["data_offsets"][0]:8 + length + info["data_offsets"][1]]
            if info["dtype"] == "BF16":
                values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[info["dtype"]]).astype(np.float32)
            out[name] = values.reshape(info["shape"])
    return out


def permuted(values, heads):
    """The rows that llama.cpp's rotary embedding expects: those of the two halves of a head alternate."""
    half = values.shape[0] // heads // 2
    return values.reshape(heads, 2, half, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def expected_tensors(folder, config, architecture):
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[architecture],
                                     config["num_hidden_layers"])
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    out, experts = {}, {}
    for name, values in read_safetensors(folder).items():
        if architecture == "llama" and ".q_proj." in name:
            values = permuted(values, heads)
        if architecture == "llama" and ".k_proj." in name:
            values = permuted(values, kv_heads)
        if architecture == "gemma" and name.endswith("norm.weight"):
            values = values + np.float32(1)
        if ".experts." in name:
            block, expert, matrix = name.split(".")[2], int(name.split(".")[5]), name.split(".")[6]
            experts.setdefault(f"layers.{block}.feed_forward.experts.{matrix}.weight", {})[expert] = values
        else:
            out[names.get_name(name, (".weight", ".bias"))] = values
    for name, parts in experts.items():
        out[names.get_name(name, (".weight",))] = np.stack([parts[i] for i in sorted(parts)])
    return out


def type_of(name, shape, wanted):
    kinds = gguf.GGMLQuantizationType
    if len(shape) <= 1 or name.endswith(("_norm.weight", "ffn_gate_inp.weight")):
        return kinds.F32
    kind = {"f32": kinds.F32, "f16": kinds.F16, "bf16": kinds.BF16, "q8_0": kinds.Q8_0}[wanted]
    return kinds.F16 if kind == kinds.Q8_0 and shape[-1] % 32 else kind


def value_of(reader, key):
    field = reader.get_field(key)
    return None if field is None else field.contents()


def check_metadata(reader, config, architecture):
    head_dim = config.get("head_dim")
    wanted = {
        "general.architecture": architecture, "general.quantization_version": 2,
        f"{architecture}.block_count": config["num_hidden_layers"],
        f"{architecture}.context_length": config["max_position_embeddings"],
        f"{architecture}.embedding_length": config["hidden_size"],
        f"{architecture}.feed_forward_length": config["intermediate_size"],
        f"{architecture}.attention.head_count": config["num_attention_heads"],
        f"{architecture}.attention.head_count_kv": config.get("num_key_value_heads") or config["num_attention_heads"],
        f"{architecture}.attention.key_length": head_dim, f"{architecture}.attention.value_length": head_dim,
        f"{architecture}.expert_count": config.get("num_local_experts"),
        f"{architecture}.expert_used_count": config.get("num_experts_per_tok"),
    }
    if architecture == "llama":
        wanted["llama.vocab_size"] = config["vocab_size"]
        wanted["llama.rope.dimension_count"] = head_dim or config["hidden_size"] // config["num_attention_heads"]
    for key, value in wanted.items():
        assert value_of(reader, key) == value, (key, value_of(reader, key), value)
    for key, value in ("attention.layer_norm_rms_epsilon", config["rms_norm_eps"]), \
                      ("rope.freq_base", config.get("rope_theta")):
        got = value_of(reader, f"{architecture}.{key}")
        assert value is None or np.float32(got) == np.float32(value), (key, got, value)


def check_tokenizer(reader, folder, config):
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    sentencepiece = tokenizer["model"].get("byte_fallback", False)
    assert value_of(reader, "tokenizer.ggml.model") == ("llama" if sentencepiece else "gpt2")
    tokens, kinds = value_of(reader, "tokenizer.ggml.tokens"), value_of(reader, "tokenizer.ggml.token_type")
    assert len(tokens) == len(kinds) == config["vocab_size"]
    ids = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    added = {t["id"]: t for t in tokenizer.get("added_tokens", [])}
    for i, (token, kind) in enumerate(zip(tokens, kinds)):
        if i in added:
            text = added[i]["content"]
            assert token in (text, text.replace("\u2581", " ")) and kind in (2, 3, 4), (i, token, kind)
        elif i in ids:
            byte = sentencepiece and ids[i].startswith("<0x") and len(ids[i]) == 6
            assert token == ids[i] and kind == (6 if byte else 1), (i, token, kind)
        else:
            assert token == f"[PAD{i}]" and kind == 5, (i, token, kind)
    special = gguf.SpecialVocab(folder, load_merges=not sentencepiece, n_vocab=len(tokens))
    if not sentencepiece:
        assert value_of(reader, "tokenizer.ggml.merges") == special.merges
    keys = {"unk": "unknown", "sep": "seperator", "pad": "padding"}
    for kind in "bos", "eos", "unk", "sep", "pad", "cls", "mask":
        got = value_of(reader, f"tokenizer.ggml.{keys.get(kind, kind)}_token_id")
        assert got == special.special_token_ids.get(kind), (kind, got, special.special_token_ids)
    for kind in "bos", "eos":
        got = value_of(reader, f"tokenizer.ggml.add_{kind}_token")
        assert got == special.add_special_token.get(kind), (kind, got, special.add_special_token)
    assert value_of(reader, "tokenizer.chat_template") == special.chat_template


def main():
    path, folder, wanted = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    reader = gguf.GGUFReader(path)
    check_metadata(reader, config, architecture)
    check_tokenizer(reader, folder, config)
    tensors = {t.name: t for t in reader.tensors}
    expected = expected_tensors(folder, config, architecture)
    extra = set(tensors) - set(expected) - {"rope_freqs.weight"}
    assert not extra and not set(expected) - set(tensors), (extra, set(expected) - set(tensors))
    for name, values in expected.items():
        tensor, kind = tensors[name], type_of(name, values.shape, wanted)
        assert tensor.tensor_type == kind, (name, tensor.tensor_type, kind)
        assert list(tensor.shape) == list(reversed(values.shape)), (name, tensor.shape, values.shape)
        theirs = gguf.quants.quantize(np.ascontiguousarray(values), kind)
        assert np.asarray(tensor.data).tobytes() == theirs.tobytes(), f"{name}: other values"
    print(f"{path}: {len(expected)} tensors, {len(reader.fields)} keys")


if __name__ == "__main__":
    main()
