#include "mtrain/recipe/planned_models.h"

namespace mtrain {

using enum ResumeClass;

void T5Settings::bind(Fields& f) {
  f("layers", layers, "decoder blocks")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_decoder_layers", "decoder_num_layers"});
  f("encoder_layers", encoder_layers, "encoder blocks")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_layers", "encoder_num_layers"});
  f("hidden_size", hidden_size, "width of the residual stream")
      .min(1)
      .resume(impossible)
      .renamed_from({"d_model"});
  f("heads", heads, "attention heads")
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
  f("position_buckets", position_buckets, "relative distances that have a bias of their own")
      .min(1)
      .resume(impossible)
      .renamed_from({"relative_attention_num_buckets"});
  f("max_distance", max_distance, "distances beyond this share one")
      .min(1)
      .resume(impossible)
      .renamed_from({"relative_attention_max_distance"});
  f("decoder_seq_length", decoder_seq_length, "tokens of a target").min(1).unit("tokens");
  f("norm_eps", norm_eps, "added to the mean square")
      .exclusive_min(0)
      .renamed_from({"layer_norm_epsilon"});
  f("init_factor", init_factor, "factor of the standard deviations of start weights")
      .min(0)
      .renamed_from({"initializer_factor"});
  f("dropout", dropout, "probability of dropping an element")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"dropout_rate"});
  f("activation", activation, "of the MLP")
      .one_of({"relu", "gated_gelu"})
      .resume(impossible)
      .renamed_from({"feed_forward_proj"});
  f("tie_embeddings", tie_embeddings, "the head uses the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
}

}  // namespace mtrain
