#!/usr/bin/env python3
"""Golden values for models of scores from PyPI's trl and transformers: scores/golden.json and the folders scores/MODEL.

    python3 scores_generate.py OUTPUT_DIR

MODEL is llama (LlamaForSequenceClassification, one label), qwen3 (three) or gpt2 (three), with random weights. For each case: loss, gradient norm
and the values that trl reports, of five steps of AdamW on the same records, and the first 64 of some weights after them. Rewards go
through trl's RewardTrainer, classes through the model's own loss.
"""

import argparse
import json
import os
import tempfile
import warnings

import numpy as np
import torch
import transformers
import trl
from datasets import Dataset
from trl import RewardConfig, RewardTrainer

import golden_common as common
from objectives_generate import EOS, pairs, tokenizer

STEPS, PAD = 5, 0
SIZES = dict(vocab_size=200, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, bos_token_id=1, eos_token_id=EOS, pad_token_id=PAD)
LLAMA = dict(SIZES, intermediate_size=40, num_key_value_heads=1, head_dim=8, max_position_embeddings=128)
MODELS = {
    "llama": lambda: transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**LLAMA, num_labels=1)),
    "qwen3": lambda: transformers.Qwen3ForSequenceClassification(
        transformers.Qwen3Config(**LLAMA, id2label={0: "bad", 1: "fair", 2: "good"}, label2id={"bad": 0, "fair": 1, "good": 2},
                                 problem_type="single_label_classification")),
    "gpt2": lambda: transformers.GPT2ForSequenceClassification(
        transformers.GPT2Config(vocab_size=200, n_embd=16, n_layer=2, n_head=2, n_positions=64, num_labels=3, bos_token_id=1, eos_token_id=EOS,
                                pad_token_id=PAD, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
}
CASES = {
    # name: (model, mtrain's settings, trl's)
    "reward": ("llama", dict(type="reward"), {}),
    "reward_margins": ("llama", dict(type="reward"), dict(margins=True)),
    "reward_centered": ("llama", dict(type="reward", center_rewards_coefficient=0.05), dict(center_rewards_coefficient=0.05)),
    "classes": ("qwen3", dict(type="classification"), None),
    "classes_gpt2": ("gpt2", dict(type="classification"), None),
}
KEPT = ("score.weight", "model.layers.0.self_attn.q_proj.weight", "transformer.h.0.mlp.c_fc.weight", "model.norm.weight")
MARGINS = (0.5, 0.0, 2.0, -0.25)
FIGURES = ("accuracy", "margin", "mean_reward", "min_reward", "max_reward")


def texts():
    rng = np.random.RandomState(23)
    return [{"text": [int(i) for i in rng.randint(3, 90, size=n)], "label": label} for n, label in ((7, 2), (15, 0), (11, 1), (4, 2))]


def load(directory, name):
    config = transformers.AutoConfig.from_pretrained(os.path.join(directory, name))
    model_class = getattr(transformers, config.architectures[0])
    return model_class.from_pretrained(os.path.join(directory, name), attn_implementation="eager", dtype=torch.float32)


def of_trl(model, config, rows):
    """Loss and metrics of the whole batch by RewardTrainer."""
    args = RewardConfig(output_dir=tempfile.mkdtemp(), use_cpu=True, report_to=[], per_device_train_batch_size=len(rows),
                        gradient_checkpointing=False, disable_dropout=True, bf16=False, pad_token="<unk>", **config)
    trainer = RewardTrainer(model=model, args=args, processing_class=tokenizer(), train_dataset=Dataset.from_list(rows * 1))
    batch = trainer.data_collator(rows)

    def evaluate():
        trainer._metrics["train"].clear()
        model.train()
        loss = trainer.compute_loss(model, dict(batch))
        return loss, {k: float(trainer._metrics["train"][k][-1]) for k in FIGURES}

    return evaluate


def of_model(model, rows):
    longest = max(len(r["text"]) for r in rows)
    ids = torch.tensor([r["text"] + [PAD] * (longest - len(r["text"])) for r in rows])
    labels = torch.tensor([r["label"] for r in rows])

    def evaluate():
        out = model(input_ids=ids, attention_mask=(ids != PAD).long(), labels=labels)
        return out.loss, {"accuracy": (out.logits.argmax(-1) == labels).float().mean().item()}

    return evaluate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    common.setup()
    torch.use_deterministic_algorithms(False)
    directory = common.fresh(os.path.join(args.output_dir, "scores"))
    for number, (name, make) in enumerate(MODELS.items()):
        model = make()
        common.randomise(model, 40 + number)
        with torch.no_grad():
            model.score.weight.mul_(6)  # scores that differ by about 1
        common.save_hf(model, os.path.join(directory, name))
        ids = common.random_batch(60 + number, 3, 20, SIZES["vocab_size"]).clamp(min=1)
        ids[1, 12:] = PAD
        with torch.no_grad():
            logits = load(directory, name).eval()(ids, attention_mask=(ids != PAD).long()).logits
        common.save_logits(os.path.join(directory, name), {"input_ids": ids, "logits": logits})
    made, classed = [dict(r, margin=m) for r, m in zip(pairs(), MARGINS)], texts()
    pair_rows = [{"chosen_ids": r["prompt"] + r["chosen"] + [EOS], "rejected_ids": r["prompt"] + r["rejected"] + [EOS]} for r in made]
    cases = {}
    for name, (folder, settings, config) in CASES.items():
        model = load(directory, folder)
        if config is None:
            evaluate = of_model(model, classed)
        else:
            with_margins = config.pop("margins", False)
            evaluate = of_trl(model, config, [dict(r, margin=m) for r, m in zip(pair_rows, MARGINS)] if with_margins else pair_rows)
        cases[name] = {"model": folder, "settings": settings, **common.train_by(model, evaluate, STEPS, KEPT)}
        print(name, [round(s["loss"], 6) for s in cases[name]["steps"]], cases[name]["steps"][0])
    with open(os.path.join(directory, "golden.json"), "w") as f:
        lines = [f' "{name}": {json.dumps(case)}' for name, case in cases.items()]
        f.write(json.dumps({"note": f"trl {trl.__version__}, {common.versions_line()}"})[:-1])
        f.write(f',\n"pairs": {json.dumps(made)},\n"texts": {json.dumps(classed)},\n"cases": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
