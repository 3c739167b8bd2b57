// Lion: the sign of an interpolated momentum is the step (Chen et al. 2023, arXiv:2302.06675), with
// decoupled weight decay.
#include "../kernels/launcher.h"
#include "mtrain/optim/optimizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct LionConfig {
  double beta1 = 0.9, beta2 = 0.99;
  void bind(Fields& f) {
    f("beta1", beta1, "weight of the running mean in an update")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"lion_beta1"});
    f("beta2", beta2, "decay of the running mean")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"lion_beta2"});
  }
};

class Lion final : public Optimizer {
 public:
  Lion(const LionConfig& config, OptimizerContext& context)
      : config_(config), launch_(context.ctx, "lion") {}

  std::vector<std::string> state_names(const ParamInfo& /*param*/) const override {
    return {"exp_avg"};
  }
  UpdateScope scope(const ParamInfo& /*param*/) const override { return UpdateScope::elements; }

  void update(const ParamUpdate& u) override {
    using namespace optimizer_kernels;
    launch_(u.ctx, &Kernels::lion,
            LionArgs{.param = u.master.data<float>(),
                     .grad = u.grad.data<float>(),
                     .momentum = u.state[0].data<float>(),
                     .value = u.value.defined() ? u.value.raw() : nullptr,
                     .count = u.master.numel(),
                     .lr = static_cast<float>(u.lr),
                     .beta1 = static_cast<float>(config_.beta1),
                     .rest1 = static_cast<float>(1 - config_.beta1),
                     .beta2 = static_cast<float>(config_.beta2),
                     .rest2 = static_cast<float>(1 - config_.beta2),
                     .keep = static_cast<float>(1 - u.lr * u.weight_decay),
                     .grad_scale = u.grad_scale,
                     .value_dtype = u.value.defined() ? u.value.dtype() : DType::f32});
  }

 private:
  LionConfig config_;
  optimizer_kernels::Launcher launch_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("lion", "the sign of an interpolated momentum as the step") {
  using namespace mtrain;
  registry.add<Optimizer, Lion, LionConfig>(
      "lion", "the sign of a running mean as the step (Chen et al. 2023, arXiv:2302.06675)");
}
