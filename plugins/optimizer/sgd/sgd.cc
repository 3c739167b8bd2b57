// Stochastic gradient descent with momentum: the formula of torch.optim.SGD. Weight decay is added
// to the gradient, or with decoupled_decay taken from the weights directly (SGDW, Loshchilov &
// Hutter 2019, arXiv:1711.05101).
#include "../kernels/launcher.h"
#include "mtrain/optim/optimizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct SgdConfig {
  double momentum = 0.9;
  bool nesterov = false, decoupled_decay = false;
  void bind(Fields& f) {
    f("momentum", momentum, "share of the last update that is repeated; 0: no state")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"sgd_momentum"});
    f("nesterov", nesterov, "look ahead by one step of momentum");
    f("decoupled_decay", decoupled_decay,
      "weights shrink by lr x weight_decay in each step, as in AdamW; false: weight_decay x weight "
      "is added to the gradient (an L2 penalty)");
  }
};

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdConfig& config, OptimizerContext& context)
      : config_(config), launch_(context.ctx, "sgd") {}

  std::vector<std::string> state_names(const ParamInfo& /*param*/) const override {
    if (config_.momentum == 0) return {};
    return {"momentum_buffer"};
  }
  UpdateScope scope(const ParamInfo& /*param*/) const override { return UpdateScope::elements; }

  void update(const ParamUpdate& u) override {
    using namespace optimizer_kernels;
    const bool decoupled = config_.decoupled_decay;
    launch_(u.ctx, &Kernels::sgd,
            SgdArgs{.param = u.master.data<float>(),
                    .grad = u.grad.data<float>(),
                    .momentum = u.state.empty() ? nullptr : u.state[0].data<float>(),
                    .value = u.value.defined() ? u.value.raw() : nullptr,
                    .count = u.master.numel(),
                    .lr = static_cast<float>(u.lr),
                    .coupled_decay = static_cast<float>(decoupled ? 0 : u.weight_decay),
                    .keep = static_cast<float>(decoupled ? 1 - u.lr * u.weight_decay : 1),
                    .decay = static_cast<float>(config_.momentum),
                    .grad_scale = u.grad_scale,
                    .nesterov = config_.nesterov,
                    .value_dtype = u.value.defined() ? u.value.dtype() : DType::f32});
  }

 private:
  SgdConfig config_;
  optimizer_kernels::Launcher launch_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("sgd", "stochastic gradient descent with momentum") {
  using namespace mtrain;
  registry.add<Optimizer, Sgd, SgdConfig>("sgd", "stochastic gradient descent with momentum");
}
