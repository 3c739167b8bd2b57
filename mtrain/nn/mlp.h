// The MLPs of transformers, with and without a gate. Values that hold references to parameters: the
// constructor adds the parameters, a call puts ops on the tape. For the rank's own thread.
// Dimensions: T tokens, D embed, F mlp.
#pragma once
#include <optional>

#include "mtrain/nn/layers.h"

namespace mtrain {

/// silu is the activation of a gate only; relu and squared_relu are those of MLPs without a gate.
enum class Activation : uint8_t { silu, gelu_erf, gelu_tanh, relu, squared_relu };
/// activation(x).
MT_API Tensor activate(Activation kind, const Tensor& x_TF);
/// activation(gate) * up.
MT_API Tensor gate(Activation kind, const Tensor& gate_TF, const Tensor& up_TF);

struct MlpOptions {
  float init_std = 0.02f, out_init_std = 0.02f;
  bool gated = true, bias = false;
  Activation activation = Activation::silu;
  bool shared_input = false;  // as in Region
};

/// down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.
class MT_API Mlp {
 public:
  Mlp(const Scope& scope, const Dim& embed, const Dim& mlp, const MlpOptions& options);
  /// down(gelu(up(x))).
  Mlp(const Scope& scope, const Dim& embed, const Dim& mlp, GeluKind kind, LinearOptions options,
      float out_init_std);
  Tensor operator()(const Tensor& x_TD, const Tensor& residual_TD = {}) const;

 private:
  Activation activation_;
  Region region_;
  const BlockPlan* plan_;
  std::optional<Linear> gate_;
  Linear up_, down_;
};

/// down(silu(gate(x)) * up(x)).
class MT_API GatedMlp : public Mlp {
 public:
  GatedMlp(const Scope& scope, const Dim& embed, const Dim& mlp, float init_std, float out_init_std)
      : Mlp(scope, embed, mlp, {.init_std = init_std, .out_init_std = out_init_std}) {}
};

}  // namespace mtrain
