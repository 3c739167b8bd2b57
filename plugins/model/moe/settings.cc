#include "settings.h"

namespace mtrain {

using enum ResumeClass;

void MlaSettings::bind(Fields& f) {
  f("kv_lora_rank", kv_lora_rank, "width of the latent of keys and values; 0: no latent attention")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible);
  f("q_lora_rank", q_lora_rank, "width of the latent of queries; 0: none")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible);
  f("qk_head_dim", qk_head_dim, "width of the non-rotary part of a query and key head")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"qk_nope_head_dim"});
  f("rope_head_dim", rope_head_dim, "width of the rotary part of a query and key head")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"qk_pos_emb_head_dim", "qk_rope_head_dim"});
  f("v_head_dim", v_head_dim, "width of a head's values")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible);
  f("norm_eps", norm_eps, "epsilon of the norms of the latents").exclusive_min(0);
}

std::optional<LatentSizes> MlaSettings::sizes(int64_t heads) const {
  if (kv_lora_rank == 0) return std::nullopt;
  return LatentSizes{
      .q_rank = q_lora_rank,
      .kv_rank = kv_lora_rank,
      .heads = {.heads = heads, .plain = qk_head_dim, .rotary = rope_head_dim, .value = v_head_dim},
      .norm_eps = static_cast<float>(norm_eps)};
}

void MoeDecoderSettings::bind(Fields& f) {
  DecoderSettings::bind(f);
  f.section("moe", moe);
  f.section("mla", mla);
}

MoeDecoderSettings MoeDecoderSettings::resolved() const {
  MoeDecoderSettings out = *this;
  out.latent = mla.sizes(heads);
  return out;
}

}  // namespace mtrain
