#include "mtrain/recipe/planned_models.h"

namespace mtrain {

using enum ResumeClass;

void T5Settings::bind(Fields& f) {
  f("layers", layers, "number of decoder blocks")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_decoder_layers", "decoder_num_layers"});
  f("encoder_layers", encoder_layers, "number of encoder blocks")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_layers", "encoder_num_layers"});
  f("hidden_size", hidden_size, "width of the residual stream")
      .min(1)
      .resume(impossible)
      .renamed_from({"d_model"});
  f("heads", heads, "number of attention heads")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_heads", "num_attention_heads"});
  f("head_dim", head_dim, "width of one head")
      .min(1)
      .resume(impossible)
      .renamed_from({"d_kv", "kv_channels"});
  f("ffn_hidden_size", ffn_hidden_size, "width of the MLP")
      .min(1)
      .resume(impossible)
      .renamed_from({"d_ff"});
  f("position_buckets", position_buckets,
    "number of buckets of relative distances, each with its own bias")
      .min(1)
      .resume(impossible)
      .renamed_from({"relative_attention_num_buckets"});
  f("max_distance", max_distance, "distances beyond this share one bucket")
      .min(1)
      .resume(impossible)
      .renamed_from({"relative_attention_max_distance"});
  f("decoder_seq_length", decoder_seq_length, "number of tokens of a target").min(1).unit("tokens");
  f("norm_eps", norm_eps, "epsilon of RMSNorm, added to the mean square")
      .exclusive_min(0)
      .renamed_from({"layer_norm_epsilon"});
  f("init_factor", init_factor, "factor of the standard deviations of weight initialization")
      .min(0)
      .renamed_from({"initializer_factor"});
  f("dropout", dropout, "dropout probability")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"dropout_rate"});
  f("activation", activation, "activation of the MLP")
      .one_of({"relu", "gated_gelu"})
      .resume(impossible)
      .renamed_from({"feed_forward_proj"});
  f("tie_embeddings", tie_embeddings, "the output head shares the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
}

}  // namespace mtrain
