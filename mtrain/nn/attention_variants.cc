#include "mtrain/nn/attention_variants.h"

#include "mtrain/base/error.h"

namespace mtrain {

namespace {

void bind_projections(AttentionVariants& a, Fields& f) {
  using enum ResumeClass;
  f("bias", a.bias, "add biases to all projections of attention; the same as qkv_bias and out_bias")
      .resume(impossible)
      .renamed_from({"attention_bias"});
  f("qkv_bias", a.qkv_bias, "add biases to the projections of queries, keys and values")
      .resume(impossible)
      .renamed_from({"add_qkv_bias", "use_qkv_bias"});
  f("out_bias", a.out_bias, "add a bias to the projection of the attention output")
      .resume(impossible);
  f("qk_norm", a.qk_norm, "normalize queries and keys before their rotary positions")
      .resume(impossible)
      .renamed_from({"qk_layernorm", "use_qk_norm"});
  f("qk_norm_scope", a.qk_norm_scope,
    "what qk_norm normalizes; head: each head, all heads with the same weights (Qwen3), own_head: "
    "each head with weights of its own (Cohere), all_heads: all heads of a token together (OLMo 2)")
      .one_of({"head", "own_head", "all_heads"})
      .resume(impossible);
  f("qk_norm_kind", a.qk_norm_kind,
    "the norm of qk_norm: RMSNorm, LayerNorm, or LayerNorm without a bias")
      .one_of({"rms", "layer", "layer_no_bias"})
      .resume(impossible);
  f("clip_qkv", a.clip_qkv, "limit queries, keys and values to [-clip_qkv, clip_qkv]; 0: no limit")
      .min(0);
  f("output_gate", a.output_gate,
    "a projection of the block's input gates the attention output by its sigmoid")
      .resume(impossible)
      .renamed_from({"attention_output_gate"});
  f("no_rope_interval", a.no_rope_interval,
    "every n-th block has no rotary position embedding; 0: all blocks have it")
      .min(0)
      .max(kLargestDimension)
      .renamed_from({"no_rope_freq", "no_rope_layer_interval"});
  f("rope_pattern", a.rope_pattern,
    "which blocks have rotary position embeddings: 1 with, 0 without, repeated over the blocks; "
    "[]: as no_rope_interval says")
      .min(0)
      .max(1)
      .example("[1, 1, 1, 0]");
}

}  // namespace

void AttentionVariants::bind(Fields& f) {
  using enum ResumeClass;
  f("window", window,
    "sliding-window attention: number of positions that a token attends to, including its own; 0: "
    "all earlier positions")
      .min(0)
      .max(kLargestDimension)
      .unit("tokens")
      .renamed_from({"window_size"});
  f("global_interval", global_interval,
    "every n-th block uses full attention instead of the window; 0: none")
      .min(0)
      .max(kLargestDimension)
      .renamed_from({"window_attn_skip_freq"});
  f("window_blocks", window_blocks,
    "which blocks use the window, a value for each block; 1: window, 0: full attention; empty: as "
    "global_interval says")
      .min(0)
      .max(1)
      .example("[1, 1, 0, 1, 1, 0]");
  bind_projections(*this, f);
  f("softmax", softmax,
    "off_by_one: add a zero logit to each softmax; learnable: add a learned logit (an attention "
    "sink)")
      .one_of({"standard", "off_by_one", "learnable"})
      .resume(impossible)
      .renamed_from({"softmax_type"});
  f("softmax_scale", softmax_scale, "factor of the attention logits; null: 1 / sqrt(head_dim)")
      .exclusive_min(0);
  f("logit_cap", logit_cap, "soft cap c of the attention logits, c * tanh(x / c); 0: no cap")
      .min(0)
      .renamed_from({"attn_logit_softcapping"});
  f("dropout", dropout, "dropout probability of attention weights")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"attention_dropout"});
}

int64_t AttentionVariants::window_of(int64_t block) const {
  if (!window_blocks.empty()) return window_blocks[static_cast<size_t>(block)] != 0 ? window : 0;
  return global_interval > 0 && (block + 1) % global_interval == 0 ? 0 : window;
}

bool AttentionVariants::has_rope(int64_t block) const {
  if (!rope_pattern.empty())
    return rope_pattern[static_cast<size_t>(block) % rope_pattern.size()] != 0;
  return no_rope_interval == 0 || (block + 1) % no_rope_interval != 0;
}

std::optional<QkNormOptions> AttentionVariants::norm_options(float eps, bool zero_centered) const {
  using Rows = HeadNormForm::Rows;
  if (!qk_norm) return std::nullopt;
  return QkNormOptions{.rows = qk_norm_scope == "head"       ? Rows::head
                               : qk_norm_scope == "own_head" ? Rows::own_head
                                                             : Rows::all_heads,
                       .layer = qk_norm_kind != "rms",
                       .bias = qk_norm_kind == "layer",
                       .eps = eps,
                       .zero_centered = zero_centered};
}

void AttentionVariants::check(int64_t blocks) const {
  MT_USER_CHECK(
      window_blocks.empty() || std::ssize(window_blocks) == blocks, ErrorClass::config,
      cat("attention.window_blocks has ", window_blocks.size(), " values for ", blocks, " blocks"),
      "give a 1 or a 0 for each block, or use attention.global_interval");
  MT_USER_CHECK(rope_pattern.empty() || no_rope_interval == 0, ErrorClass::config,
                "attention.rope_pattern and attention.no_rope_interval both say which blocks have "
                "rotary positions",
                "leave one of them out");
}

}  // namespace mtrain
