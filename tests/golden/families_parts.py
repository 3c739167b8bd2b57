"""What families_configs.py and families_experts.py share: sizes, kinds of rotary positions, and what an entry is."""

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
