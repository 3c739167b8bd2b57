#!/usr/bin/env python3
"""Golden values for classes of tokens from PyPI's transformers and seqeval: token_scores/golden.json and the folders token_scores/MODEL.

    python3 token_scores_generate.py OUTPUT_DIR

MODEL is llama (LlamaForTokenClassification), qwen2, gpt2 or bert, with random weights and three classes. For each case: loss by the model itself,
gradient norm, accuracy, and precision, recall and F1 of entities by seqeval, of five steps of AdamW on the same records, and the first 64
of some weights after them. `records` are words, each a list of ids, with a class each; -100: none.
"""

import argparse
import json
import os
import warnings

import numpy as np
import seqeval
import torch
import transformers
from seqeval.metrics import f1_score, precision_score, recall_score

import golden_common as common

STEPS, PAD, EOS = 5, 0, 2
NAMES = ["O", "B-PER", "I-PER"]
LABELS = dict(id2label=dict(enumerate(NAMES)), label2id={n: i for i, n in enumerate(NAMES)})
SIZES = dict(vocab_size=200, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, bos_token_id=1, eos_token_id=EOS, pad_token_id=PAD,
             intermediate_size=40, **LABELS)
CAUSAL = dict(SIZES, num_key_value_heads=2, max_position_embeddings=128)
MODELS = {
    "llama": lambda: transformers.LlamaForTokenClassification(transformers.LlamaConfig(**CAUSAL, head_dim=8)),
    "qwen2": lambda: transformers.Qwen2ForTokenClassification(transformers.Qwen2Config(**CAUSAL)),
    "gpt2": lambda: transformers.GPT2ForTokenClassification(
        transformers.GPT2Config(vocab_size=200, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=EOS,
                                pad_token_id=PAD, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **LABELS)),
    "bert": lambda: transformers.BertForTokenClassification(
        transformers.BertConfig(**{k: v for k, v in SIZES.items() if k not in ("bos_token_id", "eos_token_id")}, max_position_embeddings=64,
                                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)),
}
CASES = {"llama": ("llama", "first"), "qwen2_all": ("qwen2", "all"), "gpt2": ("gpt2", "first"), "bert": ("bert", "first")}
KEPT = ("score.weight", "score.bias", "classifier.weight", "classifier.bias", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight",
        "transformer.h.0.mlp.c_fc.weight", "bert.encoder.layer.0.attention.self.query.weight")


def records():
    rng = np.random.RandomState(31)
    word = lambda: [int(i) for i in rng.randint(3, 90, size=rng.randint(1, 4))]
    classes = ([0, 1, 2, 0, 1], [1, 2, 2, -100, 0, 0, 1, 0, 2], [0, 0, 1], [1, 1, 2, 0, 0, 1, 2])
    return [{"tokens": [word() for _ in labels], "labels": labels} for labels in classes]


def batch(rows, labeled):
    """Ids, and the class of the first id of each word, and of its others."""
    ids = [[i for w in r["tokens"] for i in w] for r in rows]
    further = {"first": lambda label: -100, "all": lambda label: 2 if label == 1 else label}[labeled]  # B-PER, I-PER
    labels = [[label if k == 0 else further(label) for w, label in zip(r["tokens"], r["labels"]) for k in range(len(w))] for r in rows]
    longest = max(map(len, ids))
    pad = lambda lists, value: torch.tensor([x + [value] * (longest - len(x)) for x in lists])
    return pad(ids, PAD), pad(labels, -100), pad([[1] * len(x) for x in ids], 0)


def load(directory, name):
    config = transformers.AutoConfig.from_pretrained(os.path.join(directory, name))
    model_class = getattr(transformers, config.architectures[0])
    model = model_class.from_pretrained(os.path.join(directory, name), attn_implementation="eager", dtype=torch.float32)
    return model.eval()  # without the dropout before the head


def of_model(model, rows, labeled):
    ids, labels, mask = batch(rows, labeled)

    def evaluate():
        out = model(input_ids=ids, attention_mask=mask, labels=labels)
        guess, there = out.logits.argmax(-1), labels != -100
        named = lambda values: [[NAMES[v] for v in row[keep].tolist()] for row, keep in zip(values, there)]
        real, found = named(labels), named(guess)
        return out.loss, {"accuracy": (guess == labels)[there].double().mean().item(), "precision": float(precision_score(real, found)),
                          "recall": float(recall_score(real, found)), "f1": float(f1_score(real, found))}

    return evaluate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    common.setup()
    torch.use_deterministic_algorithms(False)
    directory = common.fresh(os.path.join(args.output_dir, "token_scores"))
    for number, (name, make) in enumerate(MODELS.items()):
        model = make()
        common.randomise(model, 70 + number)
        head = model.score if hasattr(model, "score") else model.classifier
        with torch.no_grad():
            head.weight.mul_(6)  # scores that differ by about 1
        common.save_hf(model, os.path.join(directory, name))
        ids = common.random_batch(80 + number, 3, 20, SIZES["vocab_size"]).clamp(min=1)
        with torch.no_grad():
            logits = load(directory, name)(ids).logits
        common.save_logits(os.path.join(directory, name), {"input_ids": ids, "logits": logits})
    made, cases = records(), {}
    for name, (folder, labeled) in CASES.items():
        model = load(directory, folder)
        cases[name] = {"model": folder, "labeled": labeled, **common.train_by(model, of_model(model, made, labeled), STEPS, KEPT)}
        print(name, [round(s["loss"], 6) for s in cases[name]["steps"]], cases[name]["steps"][0])
    with open(os.path.join(directory, "golden.json"), "w") as f:
        lines = [f' "{name}": {json.dumps(case)}' for name, case in cases.items()]
        f.write(json.dumps({"note": f"seqeval {getattr(seqeval, '__version__', '1.2.2')}, {common.versions_line()}", "names": NAMES})[:-1])
        f.write(f',\n"records": {json.dumps(made)},\n"cases": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
