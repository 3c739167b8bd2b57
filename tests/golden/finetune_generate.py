"""Golden tokens and masks of fine-tuning records: what TRL's SFTTrainer makes of them.

    python3 finetune_generate.py TOKENIZERS TEMPLATES OUTPUT.json

TOKENIZERS holds llama3/ and qwen2_5/ (tokenizer.json and tokenizer_config.json), TEMPLATES the chat template of
Qwen2.5-7B-Instruct. Made with trl 1.16.0, transformers 5.23.0. The records are this file's own.
"""

import json
import pathlib
import sys
import tempfile

import datasets
import transformers
import trl

HERE = pathlib.Path(__file__).parent
TALKS = [
    {"messages": [{"role": "user", "content": "Who wrote  Hamlet?"},
                  {"role": "assistant", "content": "William Shakespeare, about 1600."}]},
    {"messages": [{"role": "system", "content": "Answer in one word."},
                  {"role": "user", "content": "Größte Stadt Österreichs? 🏙"},
                  {"role": "assistant", "content": "Wien"},
                  {"role": "user", "content": "And of Japan?"},
                  {"role": "assistant", "content": " 東京\n"}]},
]

CALLS = [
    {"messages": [{"role": "user", "content": "2+2?"},
                  {"role": "assistant", "content": "",
                   "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}]},
                  {"role": "tool", "content": "4"},
                  {"role": "assistant", "content": "Four."}],
     "tools": [{"type": "function", "function": {"name": "add", "description": "a + b",
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}]},
]
PROMPTS = [{"prompt": "The capital of France is", "completion": " Paris."},
           {"prompt": "Translate: chat ->", "completion": "cat"},
           {"prompt": "x = 1\ny = ", "completion": "2\n"}]
TEXTS = [{"text": "All happy families are alike."}, {"text": " naïve\n\n\tcafé 123456"}]


def tokenizer_of(folder, template):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def prepared(tokenizer, records, assistant_only):
    """input_ids and labels of each record, by the trainer's own preparation and collator."""
    config = transformers.Qwen2Config(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                                      num_key_value_heads=1, vocab_size=len(tokenizer))
    # Lists of calls differ in their keys: kept as JSON, which the trainer reads again.
    rows = [{k: json.dumps(v) if k == "tools" else v for k, v in record.items()} for record in records]
    with tempfile.TemporaryDirectory() as scratch:
        args = trl.SFTConfig(output_dir=scratch, max_length=None, assistant_only_loss=assistant_only, report_to=[],
                             use_cpu=True, bf16=False, eos_token=tokenizer.eos_token)
        trainer = trl.SFTTrainer(transformers.Qwen2ForCausalLM(config), args=args,
                                 train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer)
        out = []
        for row in trainer.train_dataset:
            batch = trainer.data_collator([dict(row)])
            out.append({"input_ids": batch["input_ids"][0].tolist(), "labels": batch["labels"][0].tolist()})
        return out


def main():
    tokenizers, templates, output = (pathlib.Path(p) for p in sys.argv[1:4])
    marked = (HERE / "finetune" / "marked.jinja").read_text()
    qwen_template = (templates / "Qwen-Qwen2.5-7B-Instruct.jinja").read_text()
    sets = []

    def add(name, folder, jinja, records, assistant_only=False, **more):
        rows = prepared(tokenizer_of(tokenizers / folder, jinja), records, assistant_only)
        sets.append({"name": name, "tokenizer": folder, **more,
                     "records": [{"record": r, **row} for r, row in zip(records, rows)]})

    add("chat, marked template", "llama3", marked, TALKS, True, template="marked.jinja")
    add("chat, Qwen2.5", "qwen2_5", qwen_template, TALKS, True, template="Qwen-Qwen2.5-7B-Instruct.jinja")
    add("calls, Qwen2.5", "qwen2_5", qwen_template, CALLS, True, template="Qwen-Qwen2.5-7B-Instruct.jinja")
    for folder in ("llama3", "qwen2_5"):
        add(f"prompt and completion, {folder}", folder, None, PROMPTS)
        add(f"text, {folder}", folder, None, TEXTS)
    versions = {"trl": trl.__version__, "transformers": transformers.__version__}
    text = json.dumps({"made_with": versions, "sets": sets}, ensure_ascii=False)
    output.write_text(text.replace('{"name"', '\n{"name"').replace('{"record"', '\n  {"record"') + "\n")


if __name__ == "__main__":
    main()
