// The architecture of a model: combinations of settings that no layer computes.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kModelRules[] = {
    {"activation-of-gate", "model.activation", "model.activation == 'silu'", "model.mlp_gated",
     "silu needs model.mlp_gated=true", "silu is implemented only as the activation of a gated MLP",
     "model.mlp_gated=true; model.activation='gelu'"},
    {"relu-without-gate", "model.activation", "model.activation in ['relu', 'squared_relu']",
     "not model.mlp_gated", "{model.activation} cannot be the activation of a gated MLP",
     "relu and squared_relu are activations of MLPs without a gate",
     "model.mlp_gated=false; model.activation='silu'"},
    {"experts-are-gated", "model.mlp_gated", "experts > 0", "model.mlp_gated",
     "experts need model.mlp_gated=true", "experts compute down(activation(gate(x)) * up(x))",
     "model.mlp_gated=true"},
    {"experts-without-bias", "model.mlp_bias", "experts > 0", "not model.mlp_bias",
     "model.mlp_bias does not apply to experts", "biases of experts are model.moe.expert_bias",
     "model.mlp_bias=false"},
    {"one-norm-before", "model.parallel", "model.parallel == 'one_norm'",
     "model.norm_position != 'post'", "one_norm cannot be combined with model.norm_position=post",
     "blocks have no norm that attention and MLP could share",
     "model.parallel='two_norms'; model.norm_position='pre'"},
    {"longrope-lists", "model.rope.short_factor", "model.rope.scaling == 'longrope'",
     "len(model.rope.short_factor) > 0 and len(model.rope.short_factor) == "
     "len(model.rope.long_factor)",
     "longrope needs as many short as long factors and at least one: there are "
     "{len(model.rope.short_factor)} and {len(model.rope.long_factor)}",
     "it divides each frequency by its own factor: short_factor and long_factor have one value for "
     "each pair of rotated dimensions",
     ""},
    {"t5-decoder", "model.decoder_seq_length", "model.type == 't5'",
     "model.decoder_seq_length < model.seq_length",
     "the decoder's {model.decoder_seq_length} positions leave none of model.seq_length "
     "({model.seq_length}) to the encoder",
     "model.seq_length counts the positions of encoder and decoder together", ""},
    {"t5-data", "dataset.decoder_seq_length", "model.type == 't5' and dataset.type == 't5_seq2seq'",
     "dataset.decoder_seq_length == model.decoder_seq_length",
     "the samples have {dataset.decoder_seq_length} positions of the decoder, and the model "
     "{model.decoder_seq_length}",
     "recipes/dataset/t5_seq2seq.yaml uses the value of the model",
     "dataset.decoder_seq_length=model.decoder_seq_length"},
    {"t5-pipeline", "dist.pp", "model.type == 't5'", "dist.pp == 1",
     "pipeline stages of an encoder with a decoder are not implemented", "", "dist.pp=1"},
    {"t5-context", "dist.cp", "model.type == 't5'", "dist.cp == 1",
     "context parallelism of an encoder with a decoder is not implemented", "", "dist.cp=1"},
    {"t5-sp", "dist.sp", "model.type == 't5' and dist.sp",
     "model.seq_length % dist.tp == 0 and model.decoder_seq_length % dist.tp == 0",
     "dist.tp ({dist.tp}) does not divide the positions of the encoder and of the decoder",
     "with dist.sp, it divides model.decoder_seq_length and model.seq_length", "dist.sp=false"},
    {"t5-offload", "offload.layers", "model.type == 't5'",
     "offload.layers == 0 and len(offload.modules) == 0",
     "offloading of blocks of an encoder with a decoder is not implemented", "",
     "offload.layers=0"},
    {"t5-distribute", "model.recompute_distribute", "model.type == 't5'",
     "not model.recompute_distribute",
     "sharded inputs of blocks of an encoder with a decoder are not implemented", "",
     "model.recompute_distribute=false"},
};

}  // namespace

std::span<const Rule> model_rules() { return kModelRules; }

}  // namespace mtrain
