// The MLPs of transformers, with and without a gate. Values that hold references to parameters: the
// constructor adds the parameters, a call puts ops on the tape. For the rank's own thread.
// Dimensions: T tokens, D embed, F mlp.
#pragma once
#include "mtrain/nn/layers.h"

namespace mtrain {

/// down(silu(gate(x)) * up(x)).
class MT_API GatedMlp {
 public:
  GatedMlp(const Scope& scope, Dim embed, Dim mlp, float init_std, float out_init_std);
  Tensor operator()(const Tensor& x_TD, const Tensor& residual_TD = {}) const;

 private:
  Region region_;
  const BlockPlan* plan_;
  Linear gate_, up_, down_;
};

/// down(gelu(up(x))).
class MT_API Mlp {
 public:
  Mlp(const Scope& scope, Dim embed, Dim mlp, GeluKind kind, LinearOptions options,
      float out_init_std);
  Tensor operator()(const Tensor& x_TD, const Tensor& residual_TD = {}) const;

 private:
  GeluKind kind_;
  Region region_;
  const BlockPlan* plan_;
  Linear up_, down_;
};

}  // namespace mtrain
