// The update of AdamW, for the plugins that have it. Stateless; for the rank's own thread.
#pragma once
#include <cmath>

#include "mtrain/optim/optimizer.h"

namespace mtrain::optimizer_kernels {

struct AdamWRates {
  double lr, beta1, beta2, eps;
};

/// Updates a part of a parameter, with the states exp_avg and exp_avg_sq, by the backend's kernel.
inline void adamw_update(const ParamUpdate& u, const AdamWRates& rates) {
  const auto steps = static_cast<double>(u.step);
  u.ctx.kernels().adamw(u.ctx.stream(),
                        {.param = u.master.data<float>(),
                         .grad = u.grad.data<float>(),
                         .exp_avg = u.state[0].data<float>(),
                         .exp_avg_sq = u.state[1].data<float>(),
                         .value = u.value.defined() ? u.value.raw() : nullptr,
                         .count = u.master.numel(),
                         .lr = static_cast<float>(rates.lr),
                         .beta1 = static_cast<float>(rates.beta1),
                         .beta2 = static_cast<float>(rates.beta2),
                         .eps = static_cast<float>(rates.eps),
                         .weight_decay = static_cast<float>(u.weight_decay),
                         .correction1 = static_cast<float>(1 - std::pow(rates.beta1, steps)),
                         .correction2 = static_cast<float>(1 - std::pow(rates.beta2, steps)),
                         .grad_scale = u.grad_scale,
                         .value_dtype = u.value.defined() ? u.value.dtype() : DType::f32});
}

}  // namespace mtrain::optimizer_kernels
