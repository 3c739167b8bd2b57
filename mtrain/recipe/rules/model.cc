// The architecture of a model: combinations of settings that no layer computes.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kRules[] = {
    {"activation-of-gate", "model.activation", "model.activation == 'silu'", "model.mlp_gated",
     "{model.activation} without a gate", "silu is the activation of a gate: of model.mlp_gated",
     "model.mlp_gated=true; model.activation='gelu'"},
    {"relu-without-gate", "model.activation", "model.activation in ['relu', 'squared_relu']",
     "not model.mlp_gated", "{model.activation} as a gate",
     "relu and squared_relu are activations of MLPs without a gate",
     "model.mlp_gated=false; model.activation='silu'"},
    {"experts-are-gated", "model.mlp_gated", "experts > 0", "model.mlp_gated",
     "experts without a gate", "experts compute down(activation(gate(x)) * up(x))",
     "model.mlp_gated=true"},
    {"experts-without-bias", "model.mlp_bias", "experts > 0", "not model.mlp_bias",
     "experts with biases", "the matrices of experts have none", "model.mlp_bias=false"},
    {"one-norm-before", "model.parallel", "model.parallel == 'one_norm'",
     "model.norm_position != 'post'", "one_norm with norm_position=post",
     "blocks have no norm that attention and MLP could share",
     "model.parallel='two_norms'; model.norm_position='pre'"},
    {"longrope-lists", "model.rope.short_factor", "model.rope.scaling == 'longrope'",
     "len(model.rope.short_factor) > 0 and len(model.rope.short_factor) == "
     "len(model.rope.long_factor)",
     "longrope with {len(model.rope.short_factor)} short and {len(model.rope.long_factor)} long "
     "factors",
     "it divides each frequency by its own factor: give short_factor and long_factor one for each "
     "pair of rotated dimensions",
     ""},
};

}  // namespace

std::span<const Rule> model_rules() { return kRules; }

}  // namespace mtrain
