#include "mtrain/nn/mlp.h"

namespace mtrain {

GatedMlp::GatedMlp(const Scope& scope, Dim embed, Dim mlp, float init_std, float out_init_std)
    : region_(scope),
      plan_(&scope.blocks()),
      gate_(scope / "gate", mlp, embed, {init_std}),
      up_(scope / "up", mlp, embed, {init_std}),
      down_(scope / "down", embed, mlp, {out_init_std}) {}

Tensor GatedMlp::operator()(const Tensor& x, const Tensor& residual) const {
  auto mlp = [this](const Tensor& normed, const Tensor& added) {
    auto [gate, up] = region_.project(normed, {gate_, up_});
    return down_.leave(region_, silu_mul(gate, up), added);
  };
  return plan_->run(RecomputePart::mlp, mlp, x, residual);
}

Mlp::Mlp(const Scope& scope, Dim embed, Dim mlp, GeluKind kind, LinearOptions options,
         float out_init_std)
    : kind_(kind),
      region_(scope),
      plan_(&scope.blocks()),
      up_(scope / "up", mlp, embed, options),
      down_(scope / "down", embed, mlp, {out_init_std, options.bias}) {}

Tensor Mlp::operator()(const Tensor& x, const Tensor& residual) const {
  auto mlp = [this](const Tensor& normed, const Tensor& added) {
    auto [up] = region_.project(normed, {up_});
    return down_.leave(region_, gelu(up, kind_), added);
  };
  return plan_->run(RecomputePart::mlp, mlp, x, residual);
}

}  // namespace mtrain
