#include "mtrain/nn/attention_variants.h"

namespace mtrain {

void AttentionVariants::bind(Fields& f) {
  using enum ResumeClass;
  f("window", window, "tokens that one sees, itself included; 0: all before it")
      .min(0)
      .max(kLargestDimension)
      .unit("tokens")
      .needs("sliding-window attention")
      .renamed_from({"window_size"});
  f("global_interval", global_interval, "every n-th block sees beyond the window; 0: none does")
      .min(0)
      .max(kLargestDimension)
      .needs("sliding-window attention")
      .renamed_from({"window_attn_skip_freq"});
  f("qk_norm", qk_norm, "queries and keys are normalised head by head")
      .needs("norms of queries and keys")
      .resume(impossible)
      .renamed_from({"qk_layernorm"});
  f("qkv_bias", qkv_bias, "queries, keys and values have biases")
      .needs("biases of queries, keys and values")
      .resume(impossible)
      .renamed_from({"add_qkv_bias", "attention_bias"});
  f("softmax", softmax,
    "off_by_one: a zero logit joins in; learnable: a learnt one does, an attention sink")
      .one_of({"standard", "off_by_one", "learnable"})
      .needs("attention sinks")
      .resume(impossible)
      .renamed_from({"softmax_type"});
  f("softmax_scale", softmax_scale, "factor of the logits; null: 1 / sqrt(width of a head)")
      .exclusive_min(0)
      .needs("a softmax scale of its own");
  f("logit_cap", logit_cap, "logits are kept within this by c * tanh(x / c); 0: they are not")
      .min(0)
      .needs("soft caps of attention logits")
      .renamed_from({"attn_logit_softcapping"});
  f("output_gate", output_gate, "a learnt gate scales what attention gives")
      .needs("gated attention output")
      .resume(impossible)
      .renamed_from({"attention_output_gate"});
  f("no_rope_interval", no_rope_interval, "every n-th block has no rotary positions; 0: all have")
      .min(0)
      .max(kLargestDimension)
      .needs("blocks without positions")
      .renamed_from({"no_rope_freq"});
  f("dropout", dropout, "probability of dropping an attention weight")
      .min(0)
      .exclusive_max(1)
      .needs("dropout of attention weights")
      .renamed_from({"attention_dropout"});
}

}  // namespace mtrain
