// Moe: a mixture of experts in place of a block's MLP: a router, the experts that it selects from,
// and optionally a shared expert that processes every token. Holds references to its parameters;
// for the rank's own thread. Dimensions: T tokens, D embed, E experts, K experts per token, R rows
// (one per pair of a token and one of its experts).
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/dist/expert_dispatch.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/moe_capacity.h"

namespace mtrain {

struct MoeOptions {
  int64_t experts = 8;
  int64_t ffn = 0;              // width of one expert
  int64_t latent = 0;           // width of the experts' inputs and outputs; 0: that of the stream
  int64_t shared_ffn = 0;       // width of the shared expert; 0: none
  bool shared_overlap = false;  // the shared expert overlaps with the dispatch of tokens
  bool shared_gate =
      false;  // the shared expert's output is scaled by sigmoid(x · w), w [embed] (Qwen2-MoE)
  RouterRule rule;
  std::vector<BalanceTerm> terms;  // losses that balance the router; terms with Over::given use the
                                   // load of the last step
  double z_coefficient = 0;
  ExpertCapacity capacity;
  bool bias = false;  // a bias per expert for the selection; each step moves it by
                      // `bias_update_rate` toward equal load
  double bias_update_rate = 1e-3;
  float init_std = 0.02f, out_init_std = 0.02f;
  Activation activation = Activation::silu;  // of the gates
  SwishGate swish;                           // of the gates, with silu
  bool expert_bias = false;                  // of the experts' projections
  bool logit_bias = false;                   // of the router's projection
  bool sinkhorn = false;            // while training, experts are selected by sinkhorn_assignment()
  float jitter = 0;                 // eps of jitter(), which perturbs the router's input; 0: none
  DType router_dtype = DType::f32;  // of the product that gives the logits
  bool gather_tokens = false;       // as in ExpertRanks
};

/// y = residual + Σ_k w_k · down_k(activation(gate_k(x)) · up_k(x)) over the chosen experts, and
/// the shared expert's output. Without a capacity, no token is dropped. Experts are sharded over
/// ep, and their width over etp. With tp, the residual stream must be sharded by tokens (dist.sp),
/// so that each rank dispatches different tokens; otherwise the constructor throws Error(config).
/// It also throws if ep does not divide the number of experts, and for a balancing term over
/// sequences with dynamic context parallelism.
///
/// With a latent width L, experts work in a smaller space: they read x · w_inᵀ, w_in [L,D], and
/// their weighted sum is multiplied by w_outᵀ, w_out [D,L]. All experts share both projections. The
/// router and the shared expert read x.
class MT_API Moe {
 public:
  Moe(const Scope& scope, Dim embed, const MoeOptions& options);
  Tensor operator()(const Tensor& x_TD, const ModelInput& input,
                    const Tensor& residual_TD = {}) const;
  /// Statistics of the router on this rank, from the backward passes of this step so far.
  const RouterRecord& record() const { return *record_; }

  /// The values of record() to sum over ranks at the end of a step: how often each expert was
  /// selected, the balancing terms, the z loss, the number of tokens.
  std::vector<double> record_values() const;
  int64_t num_record_values() const {
    return options_.experts + static_cast<int64_t>(options_.terms.size()) + 2;
  }
  struct StepRecord {
    std::vector<double> choices, terms;
    double z = 0, tokens = 0;
  };
  /// Ends a step: resets record() and, if `updated`, updates the bias and stores the load of each
  /// expert for the next step. `sums`: record_values() summed over all ranks; returned as a struct.
  StepRecord end_step(std::span<const double> sums, bool updated);

 private:
  Tensor run(const Tensor& x_TD, const ModelInput& input, const Tensor& residual_TD) const;
  Tensor experts(const Tensor& rows_RD, const ExpertDispatch& dispatch) const;
  Tensor logits_of(const Tensor& x_TD) const;
  void add_biases(const Scope& scope, const Dim& embed);
  int64_t drop(Routed& routed, ExecutionContext& ctx) const;
  bool has_terms(BalanceTerm::Over over) const;
  Tensor add_shared_expert(const Tensor& x_TD, const Tensor& residual_TD) const;
  Tensor shared(const Tensor& x_TD, const Tensor& residual_TD) const;
  RouterBalance balance(const ModelInput& input, int64_t tokens,
                        std::vector<int32_t>& sequence_of) const;

  MoeOptions options_;
  const ParallelContext* parallel_;
  const BlockPlan* plan_;
  ExpertRanks ranks_;
  Parameter &router_, &gate_, &up_, &down_;
  Parameter* router_bias_ = nullptr;  // [E]; null: none, as for the next three
  Parameter *gate_bias_ = nullptr, *up_bias_ = nullptr, *down_bias_ = nullptr;  // [E, out]
  const QuantizedProducts *quantized_gate_, *quantized_up_,
      *quantized_down_;  // null: products of experts are in the weights' type
  std::optional<ExpertAdapter> gate_adapter_, up_adapter_, down_adapter_;
  std::optional<Linear> latent_in_, latent_out_;
  std::optional<Mlp> shared_;
  Parameter* shared_gate_ = nullptr;
  uint64_t jitter_key_ = 0;
  std::unique_ptr<RouterRecord> record_;  // the tape points to it
  StateBuffer* bias_ = nullptr;           // [E]; null: the router has none
  StateBuffer* load_ = nullptr;  // [E], the selections of each expert in the last step, relative to
                                 // an equal share; for terms over the global batch
};

}  // namespace mtrain
