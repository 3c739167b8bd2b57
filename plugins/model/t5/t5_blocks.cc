#include "t5_blocks.h"

#include <algorithm>
#include <vector>

#include "mtrain/autograd/latent_ops.h"
#include "mtrain/base/rng.h"

namespace mtrain::t5 {
namespace {

/// Rows [begin, begin + count) of each of the samples' `length` rows.
Tensor rows_of(const Tensor& ids, int64_t samples, int64_t length, int64_t begin, int64_t count) {
  ExecutionContext& ctx = ids.context();
  Tensor part = ctx.empty({samples * count}, ids.dtype());
  const size_t bytes = static_cast<size_t>(count) * size_of(ids.dtype());
  for (int64_t s = 0; s < samples; ++s)
    ctx.backend().copy(ctx.stream(), part.slice(0, s * count, (s + 1) * count).raw(),
                       ids.slice(0, s * length + begin, s * length + begin + count).raw(), bytes);
  return part;
}

}  // namespace

Division::Division(const ModelInput& input, int64_t seq_length, int64_t decoder_length_in)
    : samples(input.tokens_T.size(0) / seq_length),
      encoder_length(seq_length - decoder_length_in),
      decoder_length(decoder_length_in) {
  MT_CHECK(input.tokens_T.size(0) % seq_length == 0, input.tokens_T.size(0),
           " tokens of samples of ", seq_length);
  MT_CHECK(!input.cp_slice, "context parallelism with an encoder and a decoder");
  std::vector<AttentionSpan> encoder, decoder, cross;
  const std::vector<int32_t>& bounds = *input.bounds;
  const auto e = static_cast<int32_t>(encoder_length), d = static_cast<int32_t>(decoder_length);
  for (int64_t sample = 0; sample < samples; ++sample) {
    // The encoder's text is the first sequence of the sample; what follows it is padding.
    const auto begin = static_cast<int32_t>(sample * seq_length);
    const int32_t next = *std::upper_bound(bounds.begin(), bounds.end(), begin);
    const int32_t text = std::min(next - begin, e), at = static_cast<int32_t>(sample) * e,
                  to = static_cast<int32_t>(sample) * d;
    encoder.push_back({.first_query = at, .queries = text, .first_key = at, .keys = text});
    if (text < e)
      encoder.push_back({.first_query = at + text,
                         .queries = e - text,
                         .first_key = at + text,
                         .keys = e - text});
    decoder.push_back({.first_query = to, .queries = d, .first_key = to, .keys = d});
    cross.push_back({.first_query = to, .queries = d, .first_key = at, .keys = text});
  }
  auto keep = [](std::vector<AttentionSpan>& spans) {
    return std::make_shared<const std::vector<AttentionSpan>>(std::move(spans));
  };
  encoder_self = keep(encoder), decoder_self = keep(decoder), decoder_cross = keep(cross);
}

Tensor Division::encoder_part(const Tensor& ids) const {
  return rows_of(ids, samples, encoder_length + decoder_length, 0, encoder_length);
}

Tensor Division::decoder_part(const Tensor& ids) const {
  return rows_of(ids, samples, encoder_length + decoder_length, encoder_length, decoder_length);
}

SpanAttentionLayer::SpanAttentionLayer(const Scope& s, const T5Config& c, bool causal)
    : region_(s),
      encoded_region_(s, true),  // all blocks of the decoder read the encoder's output
      plan_(&s.blocks()),
      heads_(c.heads / axis_size(s.parallel().tp)),
      causal_(causal),
      q_(s / "q", c.head_width(), c.embed(), {c.std_of(c.hidden_size * c.head_dim)}),
      k_(s / "k", c.head_width(), c.embed(), {c.std_of(c.hidden_size)}),
      v_(s / "v", c.head_width(), c.embed(), {c.std_of(c.hidden_size)}),
      out_(s / "out", c.embed(), c.head_width(), {c.std_of(c.heads * c.head_dim)}) {}

Tensor SpanAttentionLayer::attend(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const AttentionSpans& spans, const RelativeBias* bias) const {
  auto core = [this, spans, bias](const std::array<Tensor, 3>& in) {
    return span_attention(in[0], in[1], in[2], heads_, spans, {.scale = 1, .causal = causal_},
                          bias ? (*bias)() : DistanceBias());
  };
  if (plan_->recomputes(RecomputePart::core_attn)) return recompute_discardable(core, q, k, v);
  return core({q, k, v});
}

Tensor SpanAttentionLayer::operator()(const Tensor& x, const AttentionSpans& spans,
                                      const RelativeBias& bias, const Tensor& residual) const {
  auto [q, k, v] = region_.project(x, {q_, k_, v_});
  return out_.leave(region_, attend(q, k, v, spans, &bias), residual);
}

Tensor SpanAttentionLayer::cross(const Tensor& x, const Tensor& encoded,
                                 const AttentionSpans& spans, const Tensor& residual) const {
  auto [q] = region_.project(x, {q_});
  auto [k, v] = encoded_region_.project(encoded, {k_, v_});
  return out_.leave(region_, attend(q, k, v, spans, nullptr), residual);
}

EncoderBlock::EncoderBlock(const T5Config& c, const Scope& s, const RelativeBias& bias)
    : bias_(&bias),
      norm1_(s / "norm1", Norm::Kind::rms, c.embed(), c.eps()),
      attn_(s / "attn", c, false),
      norm2_(s / "norm2", Norm::Kind::rms, c.embed(), c.eps()),
      mlp_(s / "mlp", c.embed(), c.mlp(), c.mlp_options()),
      after_attn_(c, s / "drop1"),
      after_mlp_(c, s / "drop2") {}

Tensor EncoderBlock::operator()(Tensor x, const Division& batch) const {
  x = after_attn_(x, [&](const Tensor& residual) {
    return attn_(norm1_(x), batch.encoder_self, *bias_, residual);
  });
  return after_mlp_(x, [&](const Tensor& residual) { return mlp_(norm2_(x), residual); });
}

DecoderBlock::DecoderBlock(const T5Config& c, const Scope& s, const RelativeBias& bias)
    : bias_(&bias),
      norm1_(s / "norm1", Norm::Kind::rms, c.embed(), c.eps()),
      attn_(s / "attn", c, true),
      norm2_(s / "norm2", Norm::Kind::rms, c.embed(), c.eps()),
      cross_(s / "cross", c, false),
      norm3_(s / "norm3", Norm::Kind::rms, c.embed(), c.eps()),
      mlp_(s / "mlp", c.embed(), c.mlp(), c.mlp_options()),
      after_attn_(c, s / "drop1"),
      after_cross_(c, s / "drop2"),
      after_mlp_(c, s / "drop3") {}

namespace {

/// The same tensor, whose gradients are added up before they are passed on: the order of sums is
/// then that of a block that is computed again in backward.
struct OwnSum {
  Tensor forward(ExecutionContext&, const Tensor& x) { return x.detach(); }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    if (g[0].wanted()) g[0].give(ctx, dy);
  }
};

}  // namespace

Tensor DecoderBlock::operator()(Tensor x, const Tensor& all_encoded, const Division& batch) const {
  const Tensor encoded = apply(OwnSum{}, all_encoded);
  x = after_attn_(x, [&](const Tensor& residual) {
    return attn_(norm1_(x), batch.decoder_self, *bias_, residual);
  });
  x = after_cross_(x, [&](const Tensor& residual) {
    return cross_.cross(norm2_(x), encoded, batch.decoder_cross, residual);
  });
  return after_mlp_(x, [&](const Tensor& residual) { return mlp_(norm3_(x), residual); });
}

}  // namespace mtrain::t5
