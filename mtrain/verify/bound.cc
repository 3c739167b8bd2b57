#include "mtrain/verify/bound.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/base/rng.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {
namespace {

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (float v : values) squares += static_cast<double>(v) * v;
  return std::sqrt(squares);
}

double relative(double a, double b) { return std::fabs(a - b) / std::max(std::fabs(b), 1e-30); }

/// For each step, the largest relative difference up to that step, times kBoundTail, and at least
/// `floor`.
std::vector<double> curve(const std::vector<double>& reference,
                          const std::vector<const std::vector<double>*>& perturbed, double floor) {
  std::vector<double> out;
  double most = floor / kBoundTail;
  for (size_t step = 0; step < reference.size(); ++step) {
    for (const auto* values : perturbed)
      most = std::max(most, relative((*values)[step], reference[step]));
    out.push_back(kBoundTail * most);
  }
  return out;
}

}  // namespace

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

double weight_perturbation(DType dtype, const std::vector<int64_t>& sizes, int64_t tokens) {
  // Forward sums over the inputs, backward over the outputs and over the tokens. Each sum is in
  // float and then rounded to the dtype.
  double lengths = static_cast<double>(tokens);
  for (int64_t size : sizes) lengths += static_cast<double>(size);
  double summed = unit_roundoff(DType::f32) * std::sqrt(lengths);
  return dtype == DType::f32 ? summed : std::hypot(summed, unit_roundoff(dtype));
}

std::function<void(ParamList&, int64_t)> perturb_weights(DType dtype, int64_t tokens,
                                                         int64_t probe) {
  return [=](ParamList& parameters, int64_t step) {
    for (Parameter& p : parameters.all()) {
      std::vector<int64_t> sizes;
      for (const Dim& dim : p.dims) sizes.push_back(dim.size);
      double size = weight_perturbation(dtype, sizes, tokens);
      ExecutionContext& ctx = p.value.context();
      Tensor master = p.master;
      if (p.coded) {  // only scales have values between those of codes
        master = p.coded->scales.defined() ? p.coded->scales : p.coded->groups;
      } else if (!master.defined()) {  // frozen
        master = ctx.empty(p.local, DType::f32);
        ctx.copy(master, p.value);
      }
      std::vector<float> values(static_cast<size_t>(master.numel()));
      ctx.download(master, values.data());
      RngStream random(static_cast<uint64_t>(probe), cat("disturbance.", p.name),
                       static_cast<uint64_t>(step));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] =
            static_cast<float>(values[i] * (1 + size * static_cast<double>(random.normal(i))));
      ctx.upload(master, values.data());
      if (!p.coded && p.value.dtype() != DType::f32) ctx.copy(p.value, master);
    }
  };
}

double relative_difference(const WholeTensor& a, const WholeTensor& b, double smallest) {
  MT_CHECK_EQ(a.values.size(), b.values.size());
  double squares = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    double d = static_cast<double>(a.values[i]) - b.values[i];
    squares += d * d;
  }
  return std::sqrt(squares) / std::max(norm_of(b.values), smallest);
}

double smallest_gradient(const LayoutFigures& reference, double unit_roundoff) {
  double squares = 0;
  for (const auto& [name, tensor] : reference.gradients)
    squares += std::pow(norm_of(tensor.values), 2);
  return std::max(unit_roundoff * std::sqrt(squares), 1e-30);
}

LayoutBound layout_bound(DType dtype, int64_t tokens, const LayoutFigures& reference,
                         const std::vector<LayoutFigures>& perturbed) {
  LayoutBound bound{.unit_roundoff = unit_roundoff(dtype)};
  double floor = kBoundTail * bound.unit_roundoff / 2,
         smallest = smallest_gradient(reference, bound.unit_roundoff);
  std::vector<const std::vector<double>*> losses, norms;
  for (const auto& run : perturbed) {
    losses.push_back(&run.losses);
    norms.push_back(&run.norms);
    for (const auto& [name, tensor] : reference.gradients) {
      double seen = kBoundTail * relative_difference(run.gradients.at(name), tensor, smallest);
      bound.gradient[name] = std::max({bound.gradient[name], seen, floor});
    }
  }
  bound.loss = curve(reference.losses, losses, floor);
  bound.norm = curve(reference.norms, norms, floor);
  bound.loss_first = bound.loss[0];
  bound.norm_first = bound.norm[0];
  for (const auto& [name, tensor] : reference.gradients) {
    double size = weight_perturbation(dtype, tensor.sizes, tokens);
    bound.perturbation = std::max(bound.perturbation, size);
  }
  return bound;
}

}  // namespace mtrain
