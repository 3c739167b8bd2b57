"""The models that families_compare.py compares: for each model_type a config class of transformers and configurations of it.

To add a family, add an entry to FAMILIES: the names of the classes, the arguments of the config class that all its configurations
have, and one dictionary for each configuration with what differs. Sizes come from DECODER or ENCODER unless the entry has others.
Choose sizes that tell parts apart: head_dim other than hidden_size / heads, one, several and as many key/value heads as heads,
windows shorter than 32 tokens, every kind of rotary scaling, each switch of the family in both positions. `documents=False` is no
argument of the config class: it leaves out the packed documents, where a model computes by the length of the longest sequence.
"""

from dataclasses import dataclass, field

VOCAB = 271  # more than the bytes, so that the byte tokenizer fits; no multiple of anything

DECODER = dict(
    vocab_size=VOCAB, hidden_size=24, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, initializer_range=0.08, attention_dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
ENCODER = dict(
    vocab_size=VOCAB, hidden_size=24, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, initializer_range=0.08, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    pad_token_id=0,
)
PAIRS = dict(
    vocab_size=VOCAB, d_model=24, d_kv=10, d_ff=44, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
    relative_attention_max_distance=16, dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
)


@dataclass
class Family:
    config: str  # a class of transformers
    model: str  # the class whose logits are compared
    base: dict  # arguments of all configurations
    variants: dict  # name: arguments of one configuration
    sizes: dict = field(default_factory=lambda: DECODER)
    task: str = "next"  # "masked": some tokens are targets, and no attention is causal; "pairs": of an encoder and a decoder
    no_decay: str = r"_norm\.weight$"  # parameters of two dimensions without weight decay: weights of norms, biases
    std: float = 0.25  # of matrices; smaller where many blocks make softmax so sharp that fp32 is off by more
    constant: tuple = ()  # last words of tensors without gradients that transformers calls otherwise than their file
    bounds: dict = field(default_factory=dict)  # where the common ones of families_compare.py do not hold; say why


def rope(kind="default", theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


def without(sizes, *names):
    return {name: value for name, value in sizes.items() if name not in names}


# Original lengths shorter than the batch's 32 tokens, so that scaling has an effect on every frequency.
LLAMA3 = rope("llama3", 5000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
LINEAR = rope("linear", 5000.0, factor=2.5)
DYNAMIC = rope("dynamic", 5000.0, factor=2.0)
YARN = rope("yarn", 5000.0, factor=4.0, original_max_position_embeddings=16)
YARN_FULL = rope(
    "yarn", 5000.0, factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=2.0, mscale=0.7,
    mscale_all_dim=0.4, truncate=False,
)
YARN_FACTOR = rope("yarn", 5000.0, factor=4.0, original_max_position_embeddings=16, attention_factor=1.3)
FACTORS = dict(short_factor=[1.0, 1.1, 1.3, 1.4, 1.7], long_factor=[1.2, 1.9, 2.4, 3.0, 4.1])  # of heads of 10
LONGROPE = rope("longrope", 5000.0, factor=2.5, original_max_position_embeddings=16, **FACTORS)
SHORTROPE = rope("longrope", 5000.0, attention_factor=1.2, original_max_position_embeddings=64, factor=1.0, **FACTORS)

HALF = dict(partial_rotary_factor=0.5)
WIDE = dict(head_dim=10)  # wider than hidden_size / heads
ONE_KV, ALL_KV = dict(num_key_value_heads=1), dict(num_key_value_heads=4)

PHI_FACTORS = dict(short_factor=[1.0, 1.2, 1.5], long_factor=[1.3, 2.1, 3.5])  # of heads of 6
PHI_LONG = rope("longrope", 5000.0, **PHI_FACTORS)
GLM = {
    "plain": dict(rms_norm_eps=1e-5),
    "no biases, tied, one kv head": dict(attention_bias=False, tie_word_embeddings=True, **ONE_KV),
    "rotary positions of a third, all kv heads": dict(**rope(theta=500.0, partial_rotary_factor=0.34), **ALL_KV),
    "linear": dict(**rope("linear", 5000.0, factor=2.5, partial_rotary_factor=0.5)),
}
NO_DROPOUT = {k: v for k, v in DECODER.items() if k != "attention_dropout"}
# Experts as DeepSeek-V3's, the first block without; and latent attention with parts of all widths.
ONE_TOKEN = dict(
    n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=1, first_k_dense_replace=1,
)
ROUTED = dict(ONE_TOKEN, num_mtp_layers=0)
LATENT = dict(
    num_key_value_heads=4, q_lora_rank=14, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8,
)

ROBERTA = {"plain": {}, "one segment, large epsilon": dict(type_vocab_size=1, layer_norm_eps=1e-5)}
# The norms of later steps' gradients, of weights that already differ by rounding; step 0 and the losses are within 3e-6.
LATER = dict(loss=3e-5)

# Windows shorter than the batch's 32 tokens, in a number of blocks that is no multiple of the families' intervals.
WINDOWS = dict(num_hidden_layers=3, sliding_window=7)
GEMMA2 = {
    "plain": dict(rms_norm_eps=1e-5),
    "no caps, untied, one kv head": dict(
        final_logit_softcapping=None, attn_logit_softcapping=None, tie_word_embeddings=False, **ONE_KV),
    "small caps, another scale, biases, all kv heads, linear": dict(
        final_logit_softcapping=4.0, attn_logit_softcapping=2.0, query_pre_attn_scalar=12, attention_bias=True, **ALL_KV, **LINEAR),
    "full attention first": dict(layer_types=["full_attention", "sliding_attention", "sliding_attention"]),
    "windows of all blocks": dict(layer_types=["sliding_attention"] * 3),
    "no windows, yarn": dict(layer_types=["full_attention"] * 3, **YARN),
}
DBRX = dict(ffn_hidden_size=20, moe_num_experts=6, moe_top_k=3, moe_loss_weight=0.0)
GRANITE_EXPERTS = {
    "plain": dict(rms_norm_eps=1e-5, attention_multiplier=0.4),
    "all factors, two experts, tied, one kv head": dict(
        embedding_multiplier=2.5, residual_multiplier=0.4, logits_scaling=3.0, attention_multiplier=0.25, num_experts_per_tok=2,
        tie_word_embeddings=True, **ONE_KV),
    "biases, all experts, all kv heads, yarn": dict(
        attention_bias=True, logits_scaling=0.7, attention_multiplier=0.5, num_experts_per_tok=6, **ALL_KV, **YARN),
    "wide heads": dict(attention_multiplier=0.3, **WIDE),
}
GPTJ_SIZES = dict(
    vocab_size=VOCAB, n_embd=48, n_layer=3, n_head=8, n_positions=64, rotary_dim=4, bos_token_id=0, eos_token_id=0,
    initializer_range=0.08,
)
GPTJ = {
    "plain": dict(layer_norm_epsilon=1e-3),
    "narrow MLP, exact gelu, tied": dict(n_inner=20, activation_function="gelu", tie_word_embeddings=True),
    "all of a head is rotated, relu": dict(rotary_dim=6, activation_function="relu"),
    "four heads": dict(n_head=4, n_embd=40, rotary_dim=2),
}


def rope_by_kind(full, theta):
    """rope_parameters of both kinds of attention; `full` from rope(), and `theta` of the blocks with a window."""
    return dict(rope_parameters=dict(
        full_attention=full["rope_parameters"], sliding_attention=dict(rope_type="default", rope_theta=theta)))


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
    "mixtral": Family(
        "MixtralConfig", "MixtralForCausalLM", dict(num_local_experts=5, router_aux_loss_coef=0.0), {
            "plain": dict(rms_norm_eps=1e-6),
            "three of five experts, wide heads, one kv head": dict(num_experts_per_tok=3, **WIDE, **ONE_KV),
            "all experts, window, all kv heads": dict(num_experts_per_tok=5, sliding_window=7, **ALL_KV),
            "tied, yarn": dict(tie_word_embeddings=True, **YARN, **WIDE),
        }),
    "granitemoe": Family("GraniteMoeConfig", "GraniteMoeForCausalLM", dict(
        num_local_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.0), GRANITE_EXPERTS),
    "granitemoeshared": Family("GraniteMoeSharedConfig", "GraniteMoeSharedForCausalLM", dict(
        num_local_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.0, shared_intermediate_size=28), {
            **GRANITE_EXPERTS,
            "no shared expert": dict(shared_intermediate_size=0, attention_multiplier=0.3),
        }),
    "qwen3_moe": Family("Qwen3MoeConfig", "Qwen3MoeForCausalLM", dict(
        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, router_aux_loss_coef=0.0), {
            "raw weights": dict(norm_topk_prob=False, **WIDE),
            "normalized, biases, one kv head": dict(norm_topk_prob=True, attention_bias=True, rms_norm_eps=1e-5, **ONE_KV),
            "every second block, window": dict(
                decoder_sparse_step=2, num_hidden_layers=3, use_sliding_window=True, sliding_window=6, norm_topk_prob=True),
            "one expert, tied, yarn": dict(num_experts_per_tok=1, tie_word_embeddings=True, **YARN),
        }),
    "qwen2_moe": Family("Qwen2MoeConfig", "Qwen2MoeForCausalLM", dict(
        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=28,
        router_aux_loss_coef=0.0), {
            "raw weights": dict(norm_topk_prob=False, rms_norm_eps=1e-5),
            "normalized, no biases, one kv head": dict(norm_topk_prob=True, qkv_bias=False, **ONE_KV),
            "every second block, tied": dict(decoder_sparse_step=2, num_hidden_layers=3, tie_word_embeddings=True),
        }),
    "olmoe": Family("OlmoeConfig", "OlmoeForCausalLM", dict(num_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.0), {
        "raw weights": dict(norm_topk_prob=False, rms_norm_eps=1e-6),
        "normalized, limits, all kv heads": dict(norm_topk_prob=True, clip_qkv=0.7, **ALL_KV),
        "biases, tied": dict(attention_bias=True, tie_word_embeddings=True),
    }),
    "glm4_moe": Family("Glm4MoeConfig", "Glm4MoeForCausalLM", ROUTED, {
        "plain": dict(rms_norm_eps=1e-6, head_dim=8),
        "norms and biases, groups, wide heads": dict(
            use_qk_norm=True, attention_bias=True, n_group=4, topk_group=2, routed_scaling_factor=1.7, head_dim=12),
        "raw weights, two shared experts": dict(
            norm_topk_prob=False, n_shared_experts=2, first_k_dense_replace=2, num_hidden_layers=3, head_dim=8, **ONE_KV),
        "all of a head is rotated, one expert": dict(num_experts_per_tok=1, partial_rotary_factor=1.0),
    }),
    "dots1": Family("Dots1Config", "Dots1ForCausalLM", dict(ONE_TOKEN, sliding_window=None), {
        "normalized": dict(norm_topk_prob=True, n_shared_experts=1, first_k_dense_replace=1),
        "raw weights, biases, groups, wide heads": dict(
            norm_topk_prob=False, attention_bias=True, n_shared_experts=2, n_group=2, topk_group=1, **WIDE),
        "window, one kv head": dict(
            norm_topk_prob=True, n_shared_experts=1, sliding_window=6, max_window_layers=1, num_hidden_layers=3, **ONE_KV),
    }),
    "deepseek_v3": Family("DeepseekV3Config", "DeepseekV3ForCausalLM", dict(ROUTED, **LATENT), {
        "plain": dict(n_group=4, topk_group=2),
        "no latent of queries, biases, raw weights": dict(
            q_lora_rank=None, attention_bias=True, norm_topk_prob=False, n_group=1, topk_group=1),
        "halves are rotated, wide values": dict(rope_interleave=False, v_head_dim=20, n_group=2, topk_group=2),
        "yarn with its softmax factor": dict(**YARN_FULL, n_group=2, topk_group=1, routed_scaling_factor=0.6),
        "equal widths, one expert, tied": dict(
            v_head_dim=10, num_experts_per_tok=1, tie_word_embeddings=True, n_group=2, topk_group=1),
    }),
    "deepseek_v2": Family("DeepseekV2Config", "DeepseekV2ForCausalLM", dict(ONE_TOKEN, **LATENT), {
            "greedy": dict(topk_method="greedy", n_group=1, topk_group=1),
            "groups, no latent of queries": dict(
                topk_method="group_limited_greedy", n_group=4, topk_group=2, q_lora_rank=None, routed_scaling_factor=1.6),
            "biases, yarn": dict(
                topk_method="greedy", n_group=1, topk_group=1, attention_bias=True, n_shared_experts=2, **YARN_FULL),
        }),
    "minimax_m2": Family("MiniMaxM2Config", "MiniMaxM2ForCausalLM", dict(
        num_local_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.0), {
            "plain": dict(head_dim=10),
            "half of a head is rotated, one kv head": dict(
                head_dim=8, **ONE_KV, rope_parameters=dict(
                    rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5)),
            "one expert, tied": dict(head_dim=6, num_experts_per_tok=1, tie_word_embeddings=True, rms_norm_eps=1e-5, **ALL_KV),
        }),
    "gpt_oss": Family("GptOssConfig", "GptOssForCausalLM", dict(
        num_local_experts=6, num_experts_per_tok=3, sliding_window=6, head_dim=8, router_aux_loss_coef=0.0), {
            "plain": dict(swiglu_limit=0.9, **rope(theta=5000.0)),
            "no biases of attention, one kv head, yarn": dict(attention_bias=False, swiglu_alpha=1.3, **ONE_KV, **YARN),
            "windows of all blocks, two experts, tied": dict(
                layer_types=["sliding_attention"] * 2, num_experts_per_tok=2, tie_word_embeddings=True, **rope()),
        # With yarn, fp32 of transformers is 5e-5 from float64 after five steps, and mtrain 3e-6.
        }, no_decay=r"_norm\.weight$|_bias$", bounds=dict(LATER, steps=1e-4)),
    "ernie4_5_moe": Family("Ernie4_5_MoeConfig", "Ernie4_5_MoeForCausalLM", dict(
        moe_num_experts=8, moe_k=3, moe_intermediate_size=20, router_aux_loss_coef=0.0, num_hidden_layers=3), {
            "plain": dict(rms_norm_eps=1e-6),
            "one shared expert, two dense blocks, untied, one kv head, wide heads": dict(
                moe_num_shared_experts=1, moe_layer_start_index=2, tie_word_embeddings=False, **WIDE, **ONE_KV),
            "no shared expert, experts in all blocks, all kv heads, linear": dict(
                moe_num_shared_experts=0, moe_layer_start_index=0, **ALL_KV, **LINEAR),
            "two experts": dict(moe_k=2),
        }, sizes=NO_DROPOUT, std=0.2),
    "dbrx": Family("DbrxConfig", "DbrxForCausalLM", dict(resid_pdrop=0.0, emb_pdrop=0.0), {
        "limits": dict(attn_config=dict(clip_qkv=0.7, kv_n_heads=2, rope_theta=10000.0), ffn_config=dict(DBRX)),
        "one kv head, two experts, another base": dict(
            attn_config=dict(clip_qkv=1.3, kv_n_heads=1, rope_theta=500.0), ffn_config=dict(DBRX, moe_top_k=2), **rope(theta=500.0)),
        "all kv heads, all experts, yarn": dict(
            attn_config=dict(clip_qkv=2.0, kv_n_heads=4, rope_theta=5000.0), ffn_config=dict(DBRX, moe_top_k=6), **YARN),
    }, sizes=dict(vocab_size=VOCAB, d_model=24, n_heads=4, n_layers=2, max_seq_len=64, initializer_range=0.08)),
    "solar_open": Family("SolarOpenConfig", "SolarOpenForCausalLM", {
        k: v for k, v in ONE_TOKEN.items() if k != "first_k_dense_replace"}, {
            "plain": dict(rms_norm_eps=1e-6, head_dim=10),
            "biases, groups, one kv head": dict(
                attention_bias=True, n_group=4, topk_group=2, routed_scaling_factor=1.7, head_dim=6, **ONE_KV),
            "raw weights, two shared experts, tied, yarn": dict(
                norm_topk_prob=False, n_shared_experts=2, tie_word_embeddings=True, head_dim=8, **ALL_KV, **YARN),
            "one expert": dict(num_experts_per_tok=1, head_dim=8, **rope(theta=5000.0)),
        }, sizes=without(DECODER, "intermediate_size"), bounds=LATER),
    "flex_olmo": Family("FlexOlmoConfig", "FlexOlmoForCausalLM", dict(
        num_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.0), {
            "raw weights": dict(rms_norm_eps=1e-5),
            "normalized, biases, tied, one kv head": dict(
                norm_topk_prob=True, attention_bias=True, tie_word_embeddings=True, **ONE_KV),
            # Not one expert: the norm after it takes its weight away, so the router has no gradient.
            "two experts, all kv heads, yarn": dict(num_experts_per_tok=2, **ALL_KV, **YARN),
        }),
    "glm4_moe_lite": Family("Glm4MoeLiteConfig", "Glm4MoeLiteForCausalLM", dict(
        {k: v for k, v in ONE_TOKEN.items() if k != "first_k_dense_replace"}, num_hidden_layers=3, **LATENT), {
            "plain": dict(rms_norm_eps=1e-6),
            "no latent of queries, biases, raw weights, two dense blocks": dict(
                q_lora_rank=None, attention_bias=True, norm_topk_prob=False, mlp_layer_types=["dense", "dense", "sparse"]),
            "halves are rotated, groups, experts in all blocks, tied": dict(
                rope_interleave=False, n_group=4, topk_group=2, mlp_layer_types=["sparse"] * 3, tie_word_embeddings=True),
            "yarn with its softmax factor, two shared experts": dict(**YARN_FULL, n_shared_experts=2, routed_scaling_factor=0.6),
        }),
    "exaone_moe": Family("ExaoneMoeConfig", "ExaoneMoeForCausalLM", dict(
        num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, num_hidden_layers=5, sliding_window=7), {
            "plain": dict(rms_norm_eps=1e-6),
            "raw weights, two shared experts, two dense blocks, groups, tied, wide heads, one kv head": dict(
                norm_topk_prob=False, num_shared_experts=2, first_k_dense_replace=2, n_group=4, topk_group=2,
                tie_word_embeddings=True, **WIDE, **ONE_KV),
            "other blocks, one expert, all kv heads": dict(
                layer_types=["full_attention"] * 2 + ["sliding_attention"] * 3, num_experts_per_tok=1, **ALL_KV),
            "windows and positions of all blocks, experts in all blocks, yarn": dict(
                layer_types=["sliding_attention"] * 5, mlp_layer_types=["sparse"] * 5, **YARN),
            "no windows and no positions": dict(layer_types=["full_attention"] * 5),
        }, bounds=LATER, std=0.15),
    "hy_v3": Family("HYV3Config", "HYV3ForCausalLM", dict(
        num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, num_hidden_layers=3), {
            "plain": dict(rms_norm_eps=1e-6, head_dim=10),
            "two shared experts, two dense blocks, biases, tied, one kv head": dict(
                num_shared_experts=2, mlp_layer_types=["dense", "dense", "sparse"], attention_bias=True, tie_word_embeddings=True,
                head_dim=8, **ONE_KV),
            "one expert, experts in all blocks, all kv heads, yarn": dict(
                num_experts_per_tok=1, mlp_layer_types=["sparse"] * 3, router_scaling_factor=0.7, head_dim=6, **ALL_KV, **YARN),
        }, std=0.2, constant=("expert_bias",)),
    "mellum": Family("MellumConfig", "MellumForCausalLM", dict(
        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, router_aux_loss_coef=0.0, num_hidden_layers=3,
        sliding_window=7, head_dim=10), {
            "no windows": dict(rms_norm_eps=1e-5),
            "raw weights, windows of some blocks, biases, one kv head": dict(
                norm_topk_prob=False, attention_bias=True, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                **ONE_KV),
            "windows of all blocks, two dense blocks, tied": dict(
                layer_types=["sliding_attention"] * 3, mlp_layer_types=["dense", "dense", "sparse"], tie_word_embeddings=True,
                **rope_by_kind(rope(theta=700.0), 300.0)),
            "an interval of two, all kv heads, yarn": dict(
                layer_types=["sliding_attention", "full_attention", "sliding_attention"], **ALL_KV, **rope_by_kind(YARN, 300.0)),
        }, bounds=LATER),
    "afmoe": Family("AfmoeConfig", "AfmoeForCausalLM", dict(
        num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, num_hidden_layers=5, sliding_window=7), {
            "plain": dict(rms_norm_eps=1e-6, head_dim=10),
            "factor of embeddings, one shared expert, two dense blocks, tied, one kv head": dict(
                mup_enabled=True, num_shared_experts=1, num_dense_layers=2, tie_word_embeddings=True, head_dim=8, **ONE_KV),
            "an interval of two, experts in all blocks, one expert, all kv heads": dict(
                global_attn_every_n_layers=2, num_dense_layers=0, num_experts_per_tok=1, route_scale=1.7, head_dim=6, **ALL_KV),
            "other blocks, yarn": dict(
                layer_types=["full_attention"] * 2 + ["sliding_attention"] * 3, head_dim=8, **YARN),
        }, bounds=LATER, std=0.2),
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
}
