#include "mtrain/nn/mlp.h"

namespace mtrain {

Tensor activate(Activation kind, const Tensor& x) {
  MT_CHECK(kind != Activation::silu, "silu in an MLP without a gate");
  if (kind == Activation::relu) return relu(x, ReluKind::plain);
  if (kind == Activation::squared_relu) return relu(x, ReluKind::squared);
  return gelu(x, kind == Activation::gelu_erf ? GeluKind::erf : GeluKind::tanh);
}

Tensor gate(Activation kind, const Tensor& gate, const Tensor& up) {
  if (kind == Activation::silu) return silu_mul(gate, up);
  MT_CHECK(kind == Activation::gelu_erf || kind == Activation::gelu_tanh, "relu in a gated MLP");
  return gelu_mul(gate, up, kind == Activation::gelu_erf ? GeluKind::erf : GeluKind::tanh);
}

Mlp::Mlp(const Scope& scope, const Dim& embed, const Dim& mlp, const MlpOptions& options)
    : activation_(options.activation),
      region_(scope, options.shared_input),
      plan_(&scope.blocks()),
      gate_(options.gated ? std::optional<Linear>(std::in_place, scope / "gate", mlp, embed,
                                                  LinearOptions{options.init_std, options.bias})
                          : std::nullopt),
      up_(scope / "up", mlp, embed, {options.init_std, options.bias}),
      down_(scope / "down", embed, mlp, {options.out_init_std, options.bias}) {}

Mlp::Mlp(const Scope& scope, const Dim& embed, const Dim& mlp, GeluKind kind, LinearOptions options,
         float out_init_std)
    : Mlp(scope, embed, mlp,
          {.init_std = options.init_std,
           .out_init_std = out_init_std,
           .gated = false,
           .bias = options.bias,
           .activation = kind == GeluKind::erf ? Activation::gelu_erf : Activation::gelu_tanh}) {}

Tensor Mlp::operator()(const Tensor& x, const Tensor& residual) const {
  auto mlp = [this](const Tensor& normed, const Tensor& added) {
    if (!gate_) {
      auto [up] = region_.project(normed, {up_});
      return down_.leave(region_, activate(activation_, up), added);
    }
    auto [open, up] = region_.project(normed, {*gate_, up_});
    return down_.leave(region_, gate(activation_, open, up), added);
  };
  return plan_->run(RecomputePart::mlp, mlp, x, residual);
}

}  // namespace mtrain
