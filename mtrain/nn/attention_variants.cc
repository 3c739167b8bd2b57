#include "mtrain/nn/attention_variants.h"

#include "mtrain/base/error.h"

namespace mtrain {

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
  f("qk_norm", qk_norm, "normalize queries and keys per head")
      .needs("norms of queries and keys")
      .resume(impossible)
      .renamed_from({"qk_layernorm"});
  f("qkv_bias", qkv_bias, "add biases to the query, key and value projections")
      .needs("biases of queries, keys and values")
      .resume(impossible)
      .renamed_from({"add_qkv_bias", "attention_bias"});
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
  f("output_gate", output_gate, "a learned gate scales the attention output")
      .needs("gated attention output")
      .resume(impossible)
      .renamed_from({"attention_output_gate"});
  f("no_rope_interval", no_rope_interval,
    "every n-th block has no rotary position embedding; 0: all blocks have it")
      .min(0)
      .max(kLargestDimension)
      .needs("blocks without position embeddings")
      .renamed_from({"no_rope_freq"});
  f("dropout", dropout, "dropout probability of attention weights")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"attention_dropout"});
}

int64_t AttentionVariants::window_of(int64_t block) const {
  if (!window_blocks.empty()) return window_blocks[static_cast<size_t>(block)] != 0 ? window : 0;
  return global_interval > 0 && (block + 1) % global_interval == 0 ? 0 : window;
}

void AttentionVariants::check(int64_t blocks) const {
  MT_USER_CHECK(
      window_blocks.empty() || std::ssize(window_blocks) == blocks, ErrorClass::config,
      cat("attention.window_blocks has ", window_blocks.size(), " values for ", blocks, " blocks"),
      "give a 1 or a 0 for each block, or use attention.global_interval");
}

}  // namespace mtrain
