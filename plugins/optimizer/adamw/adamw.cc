// AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101).
#include "../kernels/adamw_update.h"
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
    optimizer_kernels::adamw_update(u, {u.lr, config_.beta1, config_.beta2, config_.eps});
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
