#!/usr/bin/env python3
"""Golden values for T5 from Hugging Face transformers: t5_tiny/.

    python3 t5_generate.py OUTPUT_DIR

Writes OUTPUT_DIR/t5_tiny (config, weights, expected logits, step-0 gradients, parameters after five AdamW steps), replacing it. The
first ids of a row are the encoder's, zeros at their end are padding; the last `decoder` ids, as golden.json says, are the decoder's,
and `targets` are -1 elsewhere. The logits are those of the decoder's ids. `answers` are the decoder's most likely ids for the text of
each row and the end token, as much of it as the encoder has positions for, with all matrices multiplied by `answer_scale`: as they are,
the weights give the same id over and over.
"""

import argparse
import json
import os

import numpy as np
import torch
from transformers import T5Config, T5ForConditionalGeneration

import golden_common as common

CONFIG = dict(
    vocab_size=128, d_model=24, d_kv=10, d_ff=56, num_layers=2, num_decoder_layers=1, num_heads=4, relative_attention_num_buckets=8,
    relative_attention_max_distance=16, dropout_rate=0.0, pad_token_id=0, eos_token_id=1, feed_forward_proj="gated-gelu",
)
WEIGHT_SEED, BATCH_SEED, TEXTS, ENCODER, DECODER = 20240611, 9243, (22, 13, 20), 22, 11
ANSWER_SCALE = 8


def batch_and_targets():
    rng = np.random.RandomState(BATCH_SEED)
    ids = rng.randint(5, CONFIG["vocab_size"], size=(len(TEXTS), ENCODER + DECODER)).astype(np.int64)
    targets = rng.randint(5, CONFIG["vocab_size"], size=ids.shape).astype(np.int64)
    targets[:, :ENCODER] = -1
    for row, text in zip(ids, TEXTS):
        row[text:ENCODER] = 0
    return torch.from_numpy(ids), torch.from_numpy(targets)


def answers(model, ids):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(ANSWER_SCALE)
    model.eval()
    end = torch.tensor([CONFIG["eos_token_id"]])
    out = []
    for row, text in zip(ids, TEXTS):
        prompt = torch.cat([row[: min(text, ENCODER - 1)], end])[None]
        made = model.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=DECODER, do_sample=False,
            decoder_start_token_id=CONFIG["pad_token_id"])
        out.append(made[0, 1:].tolist())
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    directory = os.path.join(parser.parse_args().output, "t5_tiny")
    common.setup()
    model = T5ForConditionalGeneration._from_config(T5Config(**CONFIG), attn_implementation="eager")
    common.randomise(model, WEIGHT_SEED, matrix_std=0.1)
    common.save_hf(model.train(), directory)
    ids, targets = batch_and_targets()

    def forward(batch):
        text = batch[:, :ENCODER]
        logits = model(
            input_ids=text, attention_mask=(text != 0).long(), decoder_input_ids=batch[:, ENCODER:], use_cache=False).logits
        return torch.cat([logits.new_zeros(len(TEXTS), ENCODER, logits.shape[-1]), logits], 1)

    result = common.run(dict(model.named_parameters()), forward, ids, targets)
    result["logits"] = result["logits"][:, ENCODER:].clone()
    common.save_expected(directory, ids, result, targets)
    path = os.path.join(directory, "golden.json")
    with open(path, encoding="utf-8") as file:
        golden = json.load(file)
    golden["decoder"] = DECODER
    golden["answer_scale"] = ANSWER_SCALE
    golden["answers"] = answers(T5ForConditionalGeneration.from_pretrained(directory, attn_implementation="eager"), ids)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
