// AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101).
#include <cmath>

#include "mtrain/optim/optimizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  void bind(Fields& f) {
    f("beta1", beta1, "decay of the gradient's running mean")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"adam_beta1"});
    f("beta2", beta2, "decay of the running mean of the squared gradient")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"adam_beta2"});
    f("eps", eps, "added to the square root of the second moment")
        .exclusive_min(0)
        .renamed_from({"adam_eps"});
  }
};

class AdamW final : public Optimizer {
 public:
  AdamW(const AdamWConfig& config, OptimizerContext&) : config_(config) {}

  std::vector<std::string> state_names(const ParamInfo& /*param*/) const override {
    return {"exp_avg", "exp_avg_sq"};
  }
  UpdateScope scope(const ParamInfo&) const override { return UpdateScope::elements; }

  void update(const ParamUpdate& u) override {
    auto steps = static_cast<double>(u.step);
    u.ctx.kernels().adamw(u.ctx.stream(),
                          {.param = u.master.data<float>(),
                           .grad = u.grad.data<float>(),
                           .exp_avg = u.state[0].data<float>(),
                           .exp_avg_sq = u.state[1].data<float>(),
                           .value = u.value.defined() ? u.value.raw() : nullptr,
                           .count = u.master.numel(),
                           .lr = static_cast<float>(u.lr),
                           .beta1 = static_cast<float>(config_.beta1),
                           .beta2 = static_cast<float>(config_.beta2),
                           .eps = static_cast<float>(config_.eps),
                           .weight_decay = static_cast<float>(u.weight_decay),
                           .correction1 = static_cast<float>(1 - std::pow(config_.beta1, steps)),
                           .correction2 = static_cast<float>(1 - std::pow(config_.beta2, steps)),
                           .grad_scale = u.grad_scale,
                           .value_dtype = u.value.defined() ? u.value.dtype() : DType::f32});
  }

 private:
  AdamWConfig config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("adamw", "Adam with decoupled weight decay") {
  using namespace mtrain;
  registry.add<Optimizer, AdamW, AdamWConfig>("adamw", "Adam with decoupled weight decay");
}
