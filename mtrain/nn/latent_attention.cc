#include "mtrain/nn/latent_attention.h"

namespace mtrain {
namespace {

/// Refuses what has no meaning here before any parameter is made.
const AttentionOptions& accepted(const AttentionOptions& options) {
  MT_USER_CHECK(!options.qk_norm && options.clip == 0 && !options.gate, ErrorClass::config,
                "latent attention does not support attention.qk_norm, clip_qkv and output_gate",
                "the latents have norms of their own: leave these settings out, or set "
                "mla.kv_lora_rank=0");
  return options;
}

Dim heads_of_width(const LatentSizes& sizes, int64_t width) {
  return {"heads", sizes.heads.heads * width};
}

LatentHeads of_rank(LatentHeads whole, const HeadShard& shard) {
  whole.heads = shard.local.heads;
  return whole;
}

}  // namespace

LatentAttention::LatentAttention(const Scope& scope, Dim embed, const AttentionOptions& options,
                                 const LatentSizes& sizes)
    : rope_(accepted(options).rope),
      region_(scope, options.shared_input),
      latents_(scope),
      plan_(&scope.blocks()),
      shard_(shard_heads(sizes.heads.layout(), scope.parallel().tp)),
      q_down_(sizes.q_rank > 0 ? std::optional<Linear>(
                                     std::in_place, scope / "q_down", Dim{"latent", sizes.q_rank},
                                     embed, LinearOptions{options.init_std, options.bias})
                               : std::nullopt),
      q_norm_(sizes.q_rank > 0
                  ? std::optional<Norm>(std::in_place, scope / "q_norm", Norm::Kind::rms,
                                        Dim{"latent", sizes.q_rank}, sizes.norm_eps)
                  : std::nullopt),
      q_up_(scope / (sizes.q_rank > 0 ? "q_up" : "q"), heads_of_width(sizes, sizes.heads.query()),
            sizes.q_rank > 0 ? Dim{"latent", sizes.q_rank} : embed, {options.init_std, false}),
      kv_down_(scope / "kv_down", {"latent", sizes.kv_rank}, embed,
               {options.init_std, options.bias}),
      kv_norm_(scope / "kv_norm", Norm::Kind::rms, {"latent", sizes.kv_rank}, sizes.norm_eps),
      kv_up_(scope / "kv_up", heads_of_width(sizes, sizes.heads.plain + sizes.heads.value),
             {"latent", sizes.kv_rank}, {options.init_std, false}),
      k_rope_(scope / "k_rope", {"head_dim", sizes.heads.rotary}, embed,
              {options.init_std, options.bias}),
      out_(scope / "out", embed, heads_of_width(sizes, sizes.heads.value),
           {options.out_init_std, options.out_bias.value_or(options.bias)}),
      core_(scope, options, shard_) {
  heads_ = of_rank(sizes.heads, shard_);
}

/// The tensor that the product over tokens reads.
Tensor LatentAttention::heads_of(const Tensor& kv_latent, const Tensor& q_input,
                                 const Tensor& k_rotary, const Tensor& positions) const {
  auto [kv] = latents_.project(kv_latent, {kv_up_});
  auto [q] = (q_down_ ? latents_ : region_).project(q_input, {q_up_});
  Tensor qkv = latent_heads(q, kv, latents_.enter(k_rotary), heads_);
  return rope_ ? rope(std::move(qkv), heads_.layout(), *rope_, positions) : qkv;
}

Tensor LatentAttention::operator()(const Tensor& x, const ModelInput& input,
                                   const Tensor& residual) const {
  Tensor q = q_down_ ? (*q_norm_)((*q_down_)(x)) : x;
  Tensor kv = kv_norm_(kv_down_(x)), k_rotary = k_rope_(x);
  if (q_down_) k_rotary = region_.release_norm(k_rotary, x);
  const bool again = plan_->recomputes(RecomputePart::mla_up_proj);
  auto up = [this, positions = input.positions_T](const std::array<Tensor, 3>& in) {
    return heads_of(in[0], in[1], in[2], positions);
  };
  Tensor qkv = again ? recompute_discardable(up, kv, q, k_rotary) : up({kv, q, k_rotary});
  Tensor result = core_(qkv, input);
  if (again) result = discard_until_backward(result, qkv);
  return out_.leave(region_, narrow_heads(result, heads_.heads, heads_.value), residual);
}

}  // namespace mtrain
