"""The models that families_compare.py compares: for each model_type a config class of transformers and configurations of it.

To add a family, add an entry to FAMILIES, or with experts to EXPERTS of families_experts.py: the names of the classes, the arguments of
the config class that all its configurations have, and one dictionary for each configuration with what differs. families_parts.py
describes an entry; sizes come from its DECODER or ENCODER unless the entry has others.
Choose sizes that tell parts apart: head_dim other than hidden_size / heads, one, several and as many key/value heads as heads,
windows shorter than 32 tokens, every kind of rotary scaling, each switch of the family in both positions. `documents=False` is no
argument of the config class: it leaves out the packed documents, where a model computes by the length of the longest sequence.
"""

from families_experts import EXPERTS
from families_parts import *  # noqa: F403

FAMILIES = {
    "llama": Family("LlamaConfig", "LlamaForCausalLM", {}, {
        "plain": dict(tie_word_embeddings=False, rms_norm_eps=1e-5),
        "tied, wide heads, one kv head": dict(tie_word_embeddings=True, **WIDE, **ONE_KV, **rope(theta=500000.0)),
        "biases, all kv heads": dict(attention_bias=True, mlp_bias=True, **ALL_KV),
        "attention biases": dict(attention_bias=True, **WIDE),
        "MLP biases": dict(mlp_bias=True),
        "llama3": dict(**LLAMA3, **WIDE),
        "linear": LINEAR,
        "dynamic": dict(**DYNAMIC, max_position_embeddings=20, documents=False),
        "longrope, long": dict(**LONGROPE, **WIDE, max_position_embeddings=40, documents=False),
        "longrope, short": dict(**SHORTROPE, **WIDE),
        "yarn": dict(**YARN, **WIDE),
        "yarn, all its keys": dict(**YARN_FULL, **WIDE),
        "yarn, attention factor": YARN_FACTOR,
    }),
    "mistral": Family("MistralConfig", "MistralForCausalLM", {}, {
        "window": dict(sliding_window=7),
        "no window, wide heads, one kv head": dict(sliding_window=None, **WIDE, **ONE_KV),
        "window, tied, all kv heads, yarn": dict(sliding_window=5, tie_word_embeddings=True, **ALL_KV, **YARN),
        "llama3": dict(sliding_window=12, rms_norm_eps=1e-5, **LLAMA3, **WIDE),
    }),
    "qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", dict(num_hidden_layers=3), {
        "plain": dict(use_sliding_window=False, rms_norm_eps=1e-5),
        "tied, one kv head, yarn": dict(tie_word_embeddings=True, **ONE_KV, **YARN),
        "all kv heads, linear": dict(**ALL_KV, **LINEAR),
        "windows of the last blocks": dict(use_sliding_window=True, sliding_window=6, max_window_layers=1),
        "windows of all blocks": dict(use_sliding_window=True, sliding_window=6, max_window_layers=0),
        "wide heads": WIDE,
    }),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", dict(num_hidden_layers=3, head_dim=10), {
        "plain": dict(rms_norm_eps=1e-5),
        "tied, one kv head, yarn": dict(tie_word_embeddings=True, **ONE_KV, **YARN),
        "all kv heads, biases": dict(attention_bias=True, **ALL_KV),
        "windows of the last blocks": dict(use_sliding_window=True, sliding_window=6, max_window_layers=1),
    }),
    "gemma": Family("GemmaConfig", "GemmaForCausalLM", WIDE, {
        "plain": dict(rms_norm_eps=1e-5),
        "untied, one kv head, llama3": dict(tie_word_embeddings=False, **ONE_KV, **LLAMA3),
        "biases of attention, all kv heads": dict(attention_bias=True, **ALL_KV),
        "yarn": YARN,
    }, bounds=LATER),
    "phi3": Family("Phi3Config", "Phi3ForCausalLM", dict(original_max_position_embeddings=64), {
        "plain": dict(rms_norm_eps=1e-6),
        "window, tied, one kv head": dict(sliding_window=7, tie_word_embeddings=True, **ONE_KV),
        "rotary positions of two thirds, all kv heads": dict(**rope(theta=500.0, partial_rotary_factor=0.67), **ALL_KV),
        "longrope, long": dict(**PHI_LONG, original_max_position_embeddings=16, max_position_embeddings=40, documents=False),
        "longrope, short": dict(**rope("longrope", 5000.0, attention_factor=1.2, **PHI_FACTORS)),
    }),
    "olmo": Family("OlmoConfig", "OlmoForCausalLM", {}, {
        "plain": {},
        "limits, tied, one kv head": dict(clip_qkv=0.6, tie_word_embeddings=True, **ONE_KV, **rope(theta=500.0)),
        "limits, biases of attention, all kv heads, linear": dict(clip_qkv=0.4, attention_bias=True, **ALL_KV, **LINEAR),
    }),
    "olmo2": Family("Olmo2Config", "Olmo2ForCausalLM", {}, {
        "plain": dict(rms_norm_eps=1e-6),
        "tied, one kv head, yarn": dict(tie_word_embeddings=True, **ONE_KV, **YARN),
        "biases of attention, all kv heads, llama3": dict(attention_bias=True, **ALL_KV, **LLAMA3),
    }),
    "glm": Family("GlmConfig", "GlmForCausalLM", dict(head_dim=12), GLM),
    "glm4": Family("Glm4Config", "Glm4ForCausalLM", dict(head_dim=12), GLM),
    "cohere": Family("CohereConfig", "CohereForCausalLM", {}, {
        "plain": dict(layer_norm_eps=1e-6),
        "untied, one kv head, another logit scale": dict(tie_word_embeddings=False, logit_scale=0.3, **ONE_KV),
        "norms of queries and keys": dict(use_qk_norm=True, logit_scale=1.5),
        "norms of queries and keys, biases, all kv heads, linear": dict(use_qk_norm=True, attention_bias=True, **ALL_KV, **LINEAR),
    }),
    "ministral": Family("MinistralConfig", "MinistralForCausalLM", dict(num_hidden_layers=3, head_dim=10), {
        "windows of all blocks": dict(sliding_window=7),
        "windows of some blocks": dict(sliding_window=6, layer_types=["full_attention", "sliding_attention", "full_attention"]),
        "window, all kv heads, yarn": dict(sliding_window=8, **ALL_KV, **YARN),
        "no window, tied, one kv head": dict(layer_types=["full_attention"] * 3, tie_word_embeddings=True, **ONE_KV),
    }, bounds=LATER),
    "seed_oss": Family("SeedOssConfig", "SeedOssForCausalLM", dict(residual_dropout=0.0, head_dim=10), {
        "plain": dict(rms_norm_eps=1e-5),
        "no biases, tied, one kv head": dict(attention_bias=False, tie_word_embeddings=True, **ONE_KV),
        "all biases, all kv heads, yarn": dict(attention_out_bias=True, mlp_bias=True, **ALL_KV, **YARN),
        "biases of the output alone": dict(attention_bias=False, attention_out_bias=True),
    }),
    "arcee": Family("ArceeConfig", "ArceeForCausalLM", {}, {
        "plain": dict(rms_norm_eps=1e-6),
        "tied, wide heads, one kv head, yarn": dict(tie_word_embeddings=True, **WIDE, **ONE_KV, **YARN),
        "biases, all kv heads": dict(attention_bias=True, mlp_bias=True, **ALL_KV),
    }),
    "helium": Family("HeliumConfig", "HeliumForCausalLM", dict(head_dim=6), {
        "plain": dict(rms_norm_eps=1e-5),
        "tied, one kv head": dict(tie_word_embeddings=True, **ONE_KV),
        "biases, all kv heads, linear": dict(attention_bias=True, mlp_bias=True, **ALL_KV, **LINEAR),
    }),
    "ernie4_5": Family("Ernie4_5Config", "Ernie4_5ForCausalLM", dict(head_dim=10), {
        "plain": dict(rms_norm_eps=1e-6),
        "untied, one kv head, linear": dict(tie_word_embeddings=False, **ONE_KV, **LINEAR),
        "all kv heads": ALL_KV,
    }, sizes=NO_DROPOUT),
    "jais2": Family("Jais2Config", "Jais2ForCausalLM", {}, {
        "plain": dict(layer_norm_eps=1e-4),
        "no biases, tied, wide heads, one kv head": dict(attention_bias=False, mlp_bias=False, tie_word_embeddings=True, **WIDE, **ONE_KV),
        "biases of attention, all kv heads, yarn": dict(mlp_bias=False, **ALL_KV, **YARN),
    }),
    "smollm3": Family("SmolLM3Config", "SmolLM3ForCausalLM", dict(num_hidden_layers=4), {
        "plain": dict(rms_norm_eps=1e-5),
        "other blocks, untied, one kv head": dict(no_rope_layers=[0, 1, 1, 0], tie_word_embeddings=False, **ONE_KV),
        "biases, all kv heads, yarn": dict(attention_bias=True, mlp_bias=True, no_rope_layer_interval=2, **ALL_KV, **YARN),
        "windows of blocks without positions": dict(use_sliding_window=True, sliding_window=6, no_rope_layer_interval=3),
    }, bounds=LATER),
    "granite": Family("GraniteConfig", "GraniteForCausalLM", {}, {
        "plain": dict(rms_norm_eps=1e-5),
        "all factors, tied, one kv head": dict(
            embedding_multiplier=2.5, residual_multiplier=0.4, logits_scaling=3.0, attention_multiplier=0.25,
            tie_word_embeddings=True, **ONE_KV),
        "biases, all kv heads, yarn": dict(
            attention_bias=True, mlp_bias=True, logits_scaling=0.7, attention_multiplier=0.5, **ALL_KV, **YARN),
        "wide heads": dict(attention_multiplier=0.3, **WIDE),
    }),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", dict(head_dim=10, **WINDOWS), GEMMA2, bounds=LATER),
    "vaultgemma": Family("VaultGemmaConfig", "VaultGemmaForCausalLM", dict(head_dim=10, **WINDOWS), GEMMA2, bounds=LATER),
    # Queries and keys have norms of their own: with a larger scale, softmax is so sharp that fp32 of transformers is 1e-5 from float64.
    "gemma3_text": Family("Gemma3TextConfig", "Gemma3ForCausalLM", dict(head_dim=10, num_hidden_layers=7, sliding_window=7), {
        "plain": dict(rms_norm_eps=1e-5),
        "cap, untied, one kv head, another scale": dict(
            final_logit_softcapping=4.0, attn_logit_softcapping=2.0, query_pre_attn_scalar=400, tie_word_embeddings=False, **ONE_KV),
        "biases, all kv heads, linear": dict(attention_bias=True, **ALL_KV, **rope_by_kind(LINEAR, 300.0)),
        "other blocks, yarn": dict(
            layer_types=["full_attention"] * 2 + ["sliding_attention"] * 5, **rope_by_kind(YARN_FULL, 5000.0)),
        "an interval of two": dict(sliding_window_pattern=2),
        "no windows": dict(layer_types=["full_attention"] * 7, **rope_by_kind(rope(theta=500.0), 300.0)),
    }, bounds=LATER),
    "olmo3": Family("Olmo3Config", "Olmo3ForCausalLM", dict(num_hidden_layers=5, sliding_window=7), {
        "plain": dict(rms_norm_eps=1e-6),
        "tied, one kv head, yarn": dict(tie_word_embeddings=True, **ONE_KV, **rope_by_kind(YARN, 5000.0)),
        "biases, all kv heads, llama3": dict(attention_bias=True, **ALL_KV, **rope_by_kind(LLAMA3, 300.0)),
        "other blocks": dict(layer_types=["full_attention", "sliding_attention"] + ["full_attention"] * 3),
        "no windows": dict(layer_types=["full_attention"] * 5, **rope_by_kind(LINEAR, 300.0)),
        # Of an older config.json: transformers does not give its base to blocks with a window.
        "rope_theta": dict(rope_theta=300.0),
    }, bounds=LATER),
    "cohere2": Family("Cohere2Config", "Cohere2ForCausalLM", dict(num_hidden_layers=5, sliding_window=7), {
        "plain": dict(layer_norm_eps=1e-3),
        "untied, one kv head, another logit scale, an interval of two": dict(
            tie_word_embeddings=False, logit_scale=0.3, sliding_window_pattern=2, **ONE_KV),
        "other blocks, biases, all kv heads, linear": dict(
            layer_types=["full_attention"] * 2 + ["sliding_attention"] * 3, attention_bias=True, **ALL_KV, **LINEAR),
        "windows and positions of all blocks": dict(layer_types=["sliding_attention"] * 5, **YARN),
        "no windows and no positions": dict(layer_types=["full_attention"] * 5),
    }, bounds=LATER),
    "exaone4": Family("Exaone4Config", "Exaone4ForCausalLM", dict(num_hidden_layers=5, sliding_window=7), {
        "plain": dict(rms_norm_eps=1e-6),
        "tied, wide heads, one kv head, llama3": dict(tie_word_embeddings=True, **WIDE, **ONE_KV, **LLAMA3),
        "other blocks, all kv heads": dict(layer_types=["full_attention"] * 2 + ["sliding_attention"] * 3, **ALL_KV),
        "no windows, positions of all blocks, yarn": dict(sliding_window=None, layer_types=["full_attention"] * 5, **YARN),
        "no windows and no positions": dict(layer_types=["full_attention"] * 5),
    }, bounds=LATER),
    "hyperclovax": Family("HyperCLOVAXConfig", "HyperCLOVAXForCausalLM", {}, {
        "plain": dict(rms_norm_eps=1e-5),
        "all factors, tied, one kv head": dict(
            embedding_multiplier=2.5, residual_multiplier=0.4, logits_scaling=0.3, attention_multiplier=0.25,
            tie_word_embeddings=True, **ONE_KV),
        "one norm each, biases, wide heads, yarn": dict(
            use_post_norm=False, attention_bias=True, mlp_bias=True, logits_scaling=1.7, **WIDE, **YARN),
        "all kv heads, linear": dict(residual_multiplier=0.7, **ALL_KV, **LINEAR),
    }),
    "cwm": Family("CwmConfig", "CwmForCausalLM", dict(num_hidden_layers=5, sliding_window=7, head_dim=10), {
        "plain": dict(rms_norm_eps=1e-6, **LLAMA3),
        "windows of all blocks, tied, one kv head": dict(
            layer_types=["sliding_attention"] * 5, tie_word_embeddings=True, **ONE_KV, **rope(theta=5000.0)),
        "no windows, all kv heads, yarn": dict(layer_types=["full_attention"] * 5, **ALL_KV, **YARN),
        "without rotary settings": dict(
            max_position_embeddings=9000, layer_types=["full_attention"] * 2 + ["sliding_attention"] * 3),
    }, bounds=LATER, std=0.15),
    "gptj": Family("GPTJConfig", "GPTJForCausalLM", {}, GPTJ, sizes=GPTJ_SIZES),
    "codegen": Family("CodeGenConfig", "CodeGenForCausalLM", {}, GPTJ, sizes=GPTJ_SIZES),
    "falcon": Family("FalconConfig", "FalconForCausalLM", {}, {
        "7B": dict(layer_norm_epsilon=1e-3),
        "40B": dict(new_decoder_architecture=True, num_kv_heads=2, ffn_hidden_size=44),
        "11B, untied": dict(
            new_decoder_architecture=True, num_ln_in_parallel_attn=1, num_kv_heads=4, tie_word_embeddings=False,
            **rope(theta=500.0)),
        "40B with one kv head, tanh, linear": dict(
            new_decoder_architecture=True, num_kv_heads=1, activation="gelu_pytorch_tanh", **LINEAR),
        "no multi-query, yarn": dict(multi_query=False, num_kv_heads=4, **YARN),
        "7B with a number of kv heads": dict(num_kv_heads=4, activation="gelu_new"),
    }, sizes=without(DECODER, "num_key_value_heads", "intermediate_size")),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", dict(hidden_size=64), {
        "plain": dict(layer_norm_eps=1e-3),
        "one after the other, all of a head is rotated": dict(
            use_parallel_residual=False, **rope(theta=5000.0, partial_rotary_factor=1.0)),
        "no biases of attention, tied, tanh": dict(attention_bias=False, tie_word_embeddings=True, hidden_act="gelu_fast"),
        "one after the other, half of a head is rotated, relu": dict(
            use_parallel_residual=False, hidden_act="relu", **rope("linear", factor=2.5, partial_rotary_factor=0.5)),
    }, sizes=without(DECODER, "num_key_value_heads")),
    "phi": Family("PhiConfig", "PhiForCausalLM", dict(hidden_size=32), {
        "plain": dict(layer_norm_eps=1e-3),
        "norms of heads, one kv head": dict(qk_layernorm=True, **ONE_KV, **rope(theta=5000.0, partial_rotary_factor=0.25)),
        "tied, all kv heads, exact gelu": dict(tie_word_embeddings=True, hidden_act="gelu", **ALL_KV),
        "norms of heads, tied, yarn": dict(qk_layernorm=True, tie_word_embeddings=True, **YARN, **HALF),
    }),
    "stablelm": Family("StableLmConfig", "StableLmForCausalLM", dict(hidden_size=32), {
        "plain": dict(layer_norm_eps=1e-3),
        "biases, norms of heads": dict(use_qkv_bias=True, qk_layernorm=True),
        "parallel, one kv head, tied": dict(use_parallel_residual=True, tie_word_embeddings=True, **ONE_KV),
        "parallel, norms of heads, all kv heads": dict(
            use_parallel_residual=True, qk_layernorm=True, **ALL_KV, **rope(theta=5000.0, partial_rotary_factor=0.5)),
    }),
    "starcoder2": Family("Starcoder2Config", "Starcoder2ForCausalLM", {}, {
        "plain": dict(norm_epsilon=1e-3),
        "untied, window, one kv head": dict(tie_word_embeddings=False, sliding_window=7, **ONE_KV),
        "exact gelu, all kv heads, yarn": dict(hidden_act="gelu", **ALL_KV, **YARN),
    }),
    "nemotron": Family("NemotronConfig", "NemotronForCausalLM", {}, {
        "plain": dict(head_dim=8, norm_eps=1e-3),
        "biases, wide heads, one kv head": dict(
            attention_bias=True, mlp_bias=True, **ONE_KV, head_dim=12, **rope(theta=5000.0, partial_rotary_factor=1.0)),
        "biases of the MLP, gelu, tied": dict(mlp_bias=True, hidden_act="gelu", tie_word_embeddings=True, head_dim=8, **ALL_KV),
        "biases of attention, relu": dict(attention_bias=True, hidden_act="relu", head_dim=8),
    }, std=0.15),  # norms have a factor of 2 here, and squares enlarge what they multiply
    "persimmon": Family("PersimmonConfig", "PersimmonForCausalLM", dict(hidden_size=32), {
        "plain": dict(layer_norm_eps=1e-3),
        "no norms of heads, tied": dict(qk_layernorm=False, tie_word_embeddings=True),
        "gelu_new, a quarter of a head is rotated": dict(
            hidden_act="gelu_new", **rope(theta=5000.0, partial_rotary_factor=0.25)),
    }, sizes=without(DECODER, "num_key_value_heads")),
    "gpt2": Family(
        "GPT2Config", "GPT2LMHeadModel", dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, summary_first_dropout=0.0), {
            "plain": {},
            "narrow MLP, gelu": dict(n_inner=20, activation_function="gelu", layer_norm_epsilon=1e-3),
            "untied": dict(tie_word_embeddings=False),
            "other names of gelu_new": dict(activation_function="gelu_pytorch_tanh"),
        },
        sizes=dict(vocab_size=VOCAB, n_embd=24, n_layer=3, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0,
                   initializer_range=0.08)),
    "opt": Family("OPTConfig", "OPTForCausalLM", dict(dropout=0.0, ffn_dim=44, pad_token_id=1), {
        "plain": {},
        "gelu, untied": dict(activation_function="gelu", tie_word_embeddings=False),
    }, sizes=without(DECODER, "num_key_value_heads", "intermediate_size", "initializer_range")),
    "gpt_bigcode": Family(
        "GPTBigCodeConfig", "GPTBigCodeForCausalLM", dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0), {
            "one kv head": dict(layer_norm_epsilon=1e-3),
            "all kv heads, narrow MLP, gelu": dict(multi_query=False, n_inner=20, activation_function="gelu"),
            "untied": dict(tie_word_embeddings=False),
        },
        sizes=dict(vocab_size=VOCAB, n_embd=24, n_layer=3, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0,
                   initializer_range=0.08)),
    "bert": Family("BertConfig", "BertForMaskedLM", {}, {
        "plain": {},
        "gelu_new, one segment": dict(hidden_act="gelu_new", type_vocab_size=1, layer_norm_eps=1e-5),
        # Not untied: transformers then has two biases of the head, of which one has no effect. mtrain refuses a folder where they differ.
    }, sizes=ENCODER, task="masked"),
    "roberta": Family("RobertaConfig", "RobertaForMaskedLM", dict(pad_token_id=1), ROBERTA, sizes=ENCODER, task="masked"),
    "xlm-roberta": Family("XLMRobertaConfig", "XLMRobertaForMaskedLM", dict(pad_token_id=1), ROBERTA, sizes=ENCODER, task="masked"),
    "camembert": Family("CamembertConfig", "CamembertForMaskedLM", dict(pad_token_id=1), ROBERTA, sizes=ENCODER, task="masked"),
    "distilbert": Family("DistilBertConfig", "DistilBertForMaskedLM", {}, {
        "plain": {},
        "gelu_new, untied": dict(activation="gelu_new", tie_word_embeddings=False),
    }, sizes=dict(vocab_size=VOCAB, dim=24, hidden_dim=44, n_layers=2, n_heads=4, max_position_embeddings=64, dropout=0.0,
                  attention_dropout=0.0, initializer_range=0.08, pad_token_id=0), task="masked"),
    "t5": Family("T5Config", "T5ForConditionalGeneration", {}, {
        "1.0": {},
        "1.1": dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        "gated, tied, other layers and distances": dict(
            feed_forward_proj="gated-gelu", num_decoder_layers=1, relative_attention_num_buckets=12,
            relative_attention_max_distance=20, layer_norm_epsilon=1e-5),
    }, sizes=PAIRS, task="pairs", no_decay=r"_norm\.weight$|relative_attention_bias", std=0.1),  # scores are not scaled
    "mt5": Family("MT5Config", "MT5ForConditionalGeneration", {}, {
        "plain": {},
        "untied, relu": dict(feed_forward_proj="relu", tie_word_embeddings=False, num_decoder_layers=3),
    }, sizes=PAIRS, task="pairs", no_decay=r"_norm\.weight$|relative_attention_bias", std=0.1),  # scores are not scaled
    **EXPERTS,
}
