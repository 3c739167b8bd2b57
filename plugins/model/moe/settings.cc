#include "settings.h"

namespace mtrain {

using enum ResumeClass;

void MlaSettings::bind(Fields& f) {
  const std::string mla = "multi-head latent attention";
  f("kv_lora_rank", kv_lora_rank, "width of the latent of keys and values; 0: plain heads")
      .min(0)
      .max(kLargestDimension)
      .needs(mla)
      .resume(impossible);
  f("q_lora_rank", q_lora_rank, "width of the latent of queries; 0: none")
      .min(0)
      .max(kLargestDimension)
      .needs(mla)
      .resume(impossible);
  f("qk_head_dim", qk_head_dim, "width of a head without positions")
      .min(1)
      .max(kLargestDimension)
      .needs(mla)
      .resume(impossible)
      .renamed_from({"qk_nope_head_dim"});
  f("rope_head_dim", rope_head_dim, "width of the rotary part of a head")
      .min(1)
      .max(kLargestDimension)
      .needs(mla)
      .resume(impossible)
      .renamed_from({"qk_pos_emb_head_dim", "qk_rope_head_dim"});
  f("v_head_dim", v_head_dim, "width of a head's values")
      .min(1)
      .max(kLargestDimension)
      .needs(mla)
      .resume(impossible);
  f("cache_latents", cache_latents, "generation keeps latents instead of keys and values")
      .needs(mla)
      .resume(safe)
      .renamed_from({"cache_mla_latents"});
}

void MtpSettings::bind(Fields& f) {
  const std::string mtp = "prediction of several tokens";
  f("layers", layers, "further tokens that are predicted, a block for each")
      .min(0)
      .max(kMostLayers)
      .needs(mtp)
      .resume(impossible)
      .fact(Fact::mtp_layers)
      .renamed_from({"mtp_num_layers", "num_nextn_predict_layers"});
  f("loss_coeff", loss_coeff, "weight of their loss")
      .min(0)
      .needs(mtp)
      .renamed_from({"mtp_loss_scaling_factor"});
  f("standalone", standalone, "they have a pipeline stage of their own")
      .needs(mtp)
      .resume(safe)
      .renamed_from({"mtp_standalone"});
}

void MoeDecoderSettings::bind(Fields& f) {
  DecoderSettings::bind(f);
  f.section("moe", moe);
  f.section("mla", mla);
  f.section("mtp", mtp);
}

}  // namespace mtrain
