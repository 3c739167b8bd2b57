#include "other.h"

#include <utility>

#include "../kernels/adamw_update.h"

namespace mtrain::muon {

using namespace optimizer_kernels;

void OtherConfig::bind(Fields& f) {
  f("type", type, "optimizer of all parameters that are not matrices")
      .one_of({"adamw", "lion", "sgd"})
      .renamed_from({"muon_scalar_optimizer"})
      .resume(ResumeClass::impossible);
  f("lr_ratio", lr_ratio, "their learning rate as a multiple of optimizer.lr").exclusive_min(0);
  f("beta1", beta1, "as in the optimizer of this type; null: its default").min(0).exclusive_max(1);
  f("beta2", beta2, "as in the optimizer of this type; null: its default").min(0).exclusive_max(1);
  f("eps", eps, "type=adamw: added to the square root of the second moment").exclusive_min(0);
  f("momentum", momentum, "type=sgd: share of the last update that is repeated")
      .min(0)
      .exclusive_max(1);
  f("nesterov", nesterov, "type=sgd: look ahead by one step of momentum");
}

Other::Other(OtherConfig config, const Launcher& launch)
    : config_(std::move(config)),
      beta1_(config_.beta1.value_or(0.9)),
      beta2_(config_.beta2.value_or(config_.type == "lion" ? 0.99 : 0.95)),
      launch_(launch) {}

std::vector<std::string> Other::state_names() const {
  if (config_.type == "adamw") return {"exp_avg", "exp_avg_sq"};
  if (config_.type == "lion") return {"exp_avg"};
  if (config_.momentum > 0) return {"momentum_buffer"};
  return {};
}

void Other::update(const ParamUpdate& u) const {
  if (config_.type == "adamw") return adamw(u);
  if (config_.type == "lion") return lion(u);
  sgd(u);
}

void Other::adamw(const ParamUpdate& u) const {
  adamw_update(u, {u.lr * config_.lr_ratio, beta1_, beta2_, config_.eps});
}

void Other::lion(const ParamUpdate& u) const {
  const double lr = u.lr * config_.lr_ratio;
  launch_(u.ctx, &Kernels::lion,
          LionArgs{.param = u.master.data<float>(),
                   .grad = u.grad.data<float>(),
                   .momentum = u.state[0].data<float>(),
                   .value = u.value.defined() ? u.value.raw() : nullptr,
                   .count = u.master.numel(),
                   .lr = static_cast<float>(lr),
                   .beta1 = static_cast<float>(beta1_),
                   .rest1 = static_cast<float>(1 - beta1_),
                   .beta2 = static_cast<float>(beta2_),
                   .rest2 = static_cast<float>(1 - beta2_),
                   .keep = static_cast<float>(1 - lr * u.weight_decay),
                   .grad_scale = u.grad_scale,
                   .value_dtype = u.value.defined() ? u.value.dtype() : DType::f32});
}

// With decoupled decay, as of the matrices.
void Other::sgd(const ParamUpdate& u) const {
  const double lr = u.lr * config_.lr_ratio;
  launch_(u.ctx, &Kernels::sgd,
          SgdArgs{.param = u.master.data<float>(),
                  .grad = u.grad.data<float>(),
                  .momentum = u.state.empty() ? nullptr : u.state[0].data<float>(),
                  .value = u.value.defined() ? u.value.raw() : nullptr,
                  .count = u.master.numel(),
                  .lr = static_cast<float>(lr),
                  .coupled_decay = 0,
                  .keep = static_cast<float>(1 - lr * u.weight_decay),
                  .decay = static_cast<float>(config_.momentum),
                  .grad_scale = u.grad_scale,
                  .nesterov = config_.nesterov,
                  .value_dtype = u.value.defined() ? u.value.dtype() : DType::f32});
}

}  // namespace mtrain::muon
