"""The models with experts that families_compare.py compares; families_configs.py says how to add one."""

from families_parts import *  # noqa: F403

EXPERTS = {
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
        }, sizes=without(DECODER, "intermediate_size"), bounds=LATER, std=0.2),
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
}
