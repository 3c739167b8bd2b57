// The blocks of T5's encoder and decoder: RMSNorm before each part, attention whose scores are not
// scaled, and no biases of projections. Values that hold references to parameters: a constructor
// adds them, a call puts ops on the tape. For the rank's own thread. Dimensions: T tokens, D embed,
// S tokens of the encoder.
#pragma once
#include <memory>

#include "mtrain/nn/layers.h"
#include "relative_bias.h"

namespace mtrain::t5 {

/// A micro-batch of samples of equal length, divided between encoder and decoder. The tokens of
/// each are those of all samples, one after the other.
struct Division {
  Division(const ModelInput& input, int64_t seq_length, int64_t decoder_length);
  int64_t samples, encoder_length, decoder_length;
  AttentionSpans encoder_self, decoder_self, decoder_cross;
  /// The encoder's or the decoder's part of ids or targets of all tokens.
  Tensor encoder_part(const Tensor& ids_T) const;
  Tensor decoder_part(const Tensor& ids_T) const;
};

/// Attention of queries from one stream to keys and values from the same or another one.
class SpanAttentionLayer {
 public:
  SpanAttentionLayer(const Scope& s, const T5Config& c, bool causal);
  /// Self-attention.
  Tensor operator()(const Tensor& x_TD, const AttentionSpans& spans, const RelativeBias& bias,
                    const Tensor& residual_TD) const;
  /// Attention to the encoder's output.
  Tensor cross(const Tensor& x_TD, const Tensor& encoded_SD, const AttentionSpans& spans,
               const Tensor& residual_TD) const;

 private:
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionSpans& spans,
                const RelativeBias* bias) const;
  Region region_, encoded_region_;
  const BlockPlan* plan_;
  int64_t heads_;  // of this rank
  bool causal_;
  Linear q_, k_, v_, out_;
};

/// One part of a block: x + dropout(f(x, residual)); without dropout, f adds the residual itself.
class Residual {
 public:
  Residual(const T5Config& c, const Scope& s) : drop_(c.drop()), key_(name_key(s.path())) {}
  template <class F>
  Tensor operator()(const Tensor& x_TD, const F& f) const {
    return drop_ > 0 ? add(x_TD, dropout(f(Tensor()), drop_, key_)) : f(x_TD);
  }

 private:
  float drop_;
  uint64_t key_;
};

class EncoderBlock {
 public:
  EncoderBlock(const T5Config& c, const Scope& s, const RelativeBias& bias);
  Tensor operator()(Tensor x_TD, const Division& batch) const;

 private:
  const RelativeBias* bias_;
  Norm norm1_;
  SpanAttentionLayer attn_;
  Norm norm2_;
  Mlp mlp_;
  Residual after_attn_, after_mlp_;
};

class DecoderBlock {
 public:
  DecoderBlock(const T5Config& c, const Scope& s, const RelativeBias& bias);
  Tensor operator()(Tensor x_TD, const Tensor& encoded_SD, const Division& batch) const;

 private:
  const RelativeBias* bias_;
  Norm norm1_;
  SpanAttentionLayer attn_;
  Norm norm2_;
  SpanAttentionLayer cross_;
  Norm norm3_;
  Mlp mlp_;
  Residual after_attn_, after_cross_, after_mlp_;
};

}  // namespace mtrain::t5
