"""The keys of config.json that transformers knows for the families that model plugins read, with their default values.

    python3 hf_config_keys_generate.py hf_config_keys/keys.json

Made with transformers 5.23.0 (no torch needed): what to_dict() of each config class gives, the parameters of its constructor, and
the other names that it takes for them (attribute_map). null: no default, or one that is null.
"""

import inspect
import json
import sys

import transformers

CLASSES = [
    "LlamaConfig", "MistralConfig", "MixtralConfig", "GPT2Config", "BertConfig", "ArceeConfig", "CohereConfig", "Ernie4_5Config",
    "GemmaConfig", "Glm4Config", "GlmConfig", "HeliumConfig", "Jais2Config", "MinistralConfig", "NemotronConfig",
    "Olmo2Config", "OlmoConfig", "Phi3Config", "PhiConfig", "SeedOssConfig", "Starcoder2Config", "GraniteConfig", "Gemma2Config",
    "VaultGemmaConfig", "Gemma3TextConfig", "Olmo3Config", "Cohere2Config", "Exaone4Config",
    "GraniteMoeConfig", "GraniteMoeSharedConfig", "SolarOpenConfig", "FlexOlmoConfig", "CwmConfig", "AfmoeConfig",
    "GPTJConfig", "CodeGenConfig", "FalconConfig", "Ernie4_5_MoeConfig", "Glm4MoeLiteConfig", "ExaoneMoeConfig", "HYV3Config",
    "MellumConfig",
]


def keys_of(config_class):
    values = config_class().to_dict()
    for name in inspect.signature(config_class.__init__).parameters:
        if name not in ("self", "kwargs"):
            values.setdefault(name, None)
    for name, target in config_class.attribute_map.items():
        values.setdefault(name, values.get(target))
    values["architectures"] = values["dtype"] = None
    return dict(sorted(values.items()))


def main():
    families = {c.model_type: keys_of(c) for c in (getattr(transformers, name) for name in CLASSES)}
    text = json.dumps({"made_with": f"transformers {transformers.__version__}", "families": families}, indent=1)
    open(sys.argv[1], "w", encoding="utf-8").write(text + "\n")


if __name__ == "__main__":
    main()
