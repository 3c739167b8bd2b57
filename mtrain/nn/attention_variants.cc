#include "mtrain/nn/attention_variants.h"

namespace mtrain {

void AttentionVariants::bind(Fields& f) {
  using enum ResumeClass;
  f("window", window,
    "sliding-window attention: number of positions that a token attends to, including its own; 0: "
    "all earlier positions")
      .min(0)
      .max(kLargestDimension)
      .unit("tokens")
      .needs("sliding-window attention")
      .renamed_from({"window_size"});
  f("global_interval", global_interval,
    "every n-th block uses full attention instead of the window; 0: none")
      .min(0)
      .max(kLargestDimension)
      .needs("sliding-window attention")
      .renamed_from({"window_attn_skip_freq"});
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
      .needs("attention sinks")
      .resume(impossible)
      .renamed_from({"softmax_type"});
  f("softmax_scale", softmax_scale, "factor of the attention logits; null: 1 / sqrt(head_dim)")
      .exclusive_min(0)
      .needs("a custom softmax scale");
  f("logit_cap", logit_cap, "soft cap c of the attention logits, c * tanh(x / c); 0: no cap")
      .min(0)
      .needs("attention logit caps")
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
      .needs("dropout of attention weights")
      .renamed_from({"attention_dropout"});
}

int64_t AttentionVariants::window_of(int64_t block) const {
  return global_interval > 0 && (block + 1) % global_interval == 0 ? 0 : window;
}

}  // namespace mtrain
