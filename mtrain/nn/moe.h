// Moe: a mixture of experts in the place of a block's MLP — a router, the experts it chooses from,
// and one that sees every token. Holds references to its parameters; for the rank's own thread.
// Legend: T tokens, D embed, E experts, K experts per token, F width of an expert, R rows.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/dist/expert_dispatch.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/moe_capacity.h"

namespace mtrain {

struct MoeOptions {
  int64_t experts = 8;
  int64_t ffn = 0;
  int64_t shared_ffn = 0;       // 0: no shared expert
  bool shared_overlap = false;  // the shared expert works while tokens travel to the others
  bool shared_gate =
      false;  // the shared expert's output is scaled by sigmoid(x · w), w [embed] (Qwen2-MoE)
  RouterRule rule;
  std::vector<BalanceTerm>
      terms;  // losses that balance the router; those over given loads take the last step's
  double z_coefficient = 0;
  ExpertCapacity capacity;
  bool bias = false;  // moved towards equal load after each step, by `bias_update_rate`
  double bias_update_rate = 1e-3;
  float init_std = 0.02f, out_init_std = 0.02f;
};

/// y = residual + Σ_k w_k · down_k(silu(gate_k(x)) · up_k(x)) over the chosen experts, and the
/// shared expert's output. Every token reaches all its experts, unless they have a capacity.
/// Experts are cut over ep, and their width over etp; over tp the stream must be cut by tokens
/// (dist.sp), so that each rank brings tokens of its own. Throws Error(config) where that is not
/// so.
class MT_API Moe {
 public:
  Moe(const Scope& scope, Dim embed, const MoeOptions& options);
  Tensor operator()(const Tensor& x_TD, const ModelInput& input,
                    const Tensor& residual_TD = {}) const;
  /// What the router has done in this step's backward passes so far, on this rank.
  const RouterRecord& record() const { return *record_; }

  /// What is added up over ranks at the end of a step: the choices of each expert, the balancing
  /// terms, the z loss, the tokens.
  std::vector<double> record_values() const;
  int64_t num_record_values() const {
    return options_.experts + static_cast<int64_t>(options_.terms.size()) + 2;
  }
  struct StepRecord {
    std::vector<double> choices, terms;
    double z = 0, tokens = 0;
  };
  /// Ends a step with the sums over all ranks: moves the bias, remembers the load, and begins a new
  /// record.
  StepRecord end_step(std::span<const double> sums, bool updated);

 private:
  Tensor run(const Tensor& x_TD, const ModelInput& input, const Tensor& residual_TD) const;
  Tensor experts(const Tensor& rows_RD, const ExpertDispatch& way) const;
  void drop(Routed& routed, ExecutionContext& ctx) const;
  bool has_terms(BalanceTerm::Over over) const;
  Tensor beside(const Tensor& x_TD, const Tensor& residual_TD) const;
  Tensor shared(const Tensor& x_TD, const Tensor& residual_TD) const;
  RouterBalance balance(const ModelInput& input, int64_t tokens,
                        std::vector<int32_t>& sequence_of) const;

  MoeOptions options_;
  const ParallelContext* parallel_;
  const BlockPlan* plan_;
  ExpertRanks ranks_;
  Parameter &router_, &gate_, &up_, &down_;
  const QuantizedProducts *quantized_gate_, *quantized_up_,
      *quantized_down_;  // null: products of experts are in the weights' type
  std::optional<GatedMlp> shared_;
  Parameter* shared_gate_ = nullptr;
  std::unique_ptr<RouterRecord> record_;  // the tape points to it
  StateBuffer* bias_ = nullptr;           // [E]; null: the router has none
  StateBuffer* load_ =
      nullptr;  // [E]: shares of the last step's choices, for terms over the global batch
};

}  // namespace mtrain
