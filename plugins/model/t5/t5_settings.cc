#include "t5_settings.h"

#include <limits>

#include "mtrain/base/error.h"

namespace mtrain::t5 {

using enum ResumeClass;

void T5Config::bind_sizes(Fields& f) {
  f("layers", layers, "number of decoder blocks")
      .min(1)
      .max(kMostLayers)
      .resume(impossible)
      .fact(Fact::layers)
      .renamed_from({"num_decoder_layers", "decoder_num_layers"});
  f("encoder_layers", encoder_layers, "number of encoder blocks")
      .min(1)
      .max(kMostLayers)
      .resume(impossible)
      .renamed_from({"num_layers", "encoder_num_layers"});
  f("hidden_size", hidden_size, "width of the residual stream")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::hidden_size)
      .renamed_from({"d_model"});
  f("heads", heads, "number of attention heads")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::heads)
      .renamed_from({"num_heads", "num_attention_heads"});
  f("head_dim", head_dim, "width of one head")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::head_dim)
      .renamed_from({"d_kv", "kv_channels"});
  f("ffn_hidden_size", ffn_hidden_size, "width of the MLP")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::ffn_hidden_size)
      .renamed_from({"d_ff"});
}

void T5Config::bind(Fields& f) {
  f.objective(Dataset::kSequenceToSequence);
  bind_sizes(f);
  f("position_buckets", position_buckets,
    "number of buckets of relative distances, each with its own bias")
      .min(4)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"relative_attention_num_buckets"});
  f("max_distance", max_distance, "distances beyond this share one bucket")
      .min(2)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"relative_attention_max_distance"});
  f("decoder_seq_length", decoder_seq_length,
    "number of positions at the end of a sample that the decoder reads; the encoder reads the "
    "seq_length - decoder_seq_length before them")
      .min(1)
      .max(kLargestDimension)
      .unit("tokens");
  f("decoder_start_token", decoder_start_token,
    "id of the token with which the decoder starts, unless dataset.start_token names another; -1: "
    "the end token where dataset=t5_seq2seq trains, else the padding token")
      .min(-1)
      .max(std::numeric_limits<int32_t>::max())
      .renamed_from({"decoder_start_token_id"});
  f("norm_eps", norm_eps, "epsilon of RMSNorm, added to the mean square")
      .exclusive_min(0)
      .renamed_from({"layer_norm_epsilon"});
  f("init_factor", init_factor, "factor of the standard deviations of weight initialization")
      .min(0)
      .resume(start)
      .renamed_from({"initializer_factor"});
  f("dropout", dropout,
    "dropout probability of embeddings, of the results of attention and MLP, and of the outputs of "
    "encoder and decoder")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"dropout_rate"});
  f("activation", activation, "activation of the MLP; gated_gelu: gelu(gate(x)) * up(x)")
      .one_of({"relu", "gated_gelu"})
      .resume(impossible)
      .renamed_from({"feed_forward_proj"});
  f("tie_embeddings", tie_embeddings, "the output head shares the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
  f("scale_output", scale_output, "logits are multiplied by 1 / sqrt(hidden_size)")
      .resume(impossible);
}

MlpOptions T5Config::mlp_options() const {
  const bool gated = activation == "gated_gelu";
  return {.init_std = std_of(hidden_size),
          .out_init_std = std_of(ffn_hidden_size),
          .gated = gated,
          .activation = gated ? Activation::gelu_tanh : Activation::relu};
}

void T5Config::check(int64_t seq_length) const {
  MT_USER_CHECK(decoder_seq_length < seq_length, ErrorClass::config,
                cat("model.decoder_seq_length (", decoder_seq_length,
                    ") leaves no position of model.seq_length (", seq_length, ") to the encoder"),
                "model.seq_length counts the positions of encoder and decoder together");
  MT_USER_CHECK(position_buckets % 4 == 0, ErrorClass::config,
                cat("model.position_buckets (", position_buckets, ") is not a multiple of 4"),
                "half of the encoder's buckets are for each direction, and half of these for "
                "single distances");
  MT_USER_CHECK(
      max_distance > position_buckets / 2, ErrorClass::config,
      cat("model.max_distance (", max_distance,
          ") is not above the single distances of model.position_buckets (", position_buckets, ")"),
      "raise max_distance");
}

}  // namespace mtrain::t5
