// The bound on differences between two layouts of one model that are caused by rounding alone. The
// size of the perturbation follows from the dtype's unit roundoff and the lengths of the
// reductions; its effect on the model is measured on one rank. Derived in docs/verify-layouts.md.
// Values and stateless functions; safe from any thread.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mtrain/base/dtype.h"
#include "mtrain/verify/run.h"

namespace mtrain {

/// The largest relative differences from one rank that rounding explains.
struct LayoutBound {
  double unit_roundoff = 0;
  double perturbation = 0;  // largest relative perturbation of a weight that models rounding
  double loss_first = 0, norm_first = 0;   // of the first step
  std::map<std::string, double> gradient;  // of each parameter, ||a - b|| / ||b||
  std::vector<double> loss, norm;          // of each step
};

/// The bound is this multiple of the measured effect, to cover the tail of the distribution of a
/// sum of many roundings.
inline constexpr double kBoundTail = 8;

/// u of a dtype: half the distance from 1 to the next number.
MT_API double unit_roundoff(DType dtype);
/// The relative perturbation of a weight [out, in] that models the rounding of its three matrix
/// products over `tokens` tokens.
MT_API double weight_perturbation(DType dtype, const std::vector<int64_t>& sizes, int64_t tokens);
/// For LayoutRunOptions::before_step: perturbs every weight by a normal random factor of that size,
/// different for each step and each `probe`.
MT_API std::function<void(ParamList&, int64_t)> perturb_weights(DType dtype, int64_t tokens,
                                                                int64_t probe);

/// || a - b || / max(|| b ||, smallest): if b itself is only rounding error, the difference is
/// relative to the rounding error of the whole gradient.
MT_API double relative_difference(const WholeTensor& a, const WholeTensor& b, double smallest);
/// The norm below which a gradient is only rounding error: u times the norm of all gradients
/// together.
MT_API double smallest_gradient(const LayoutFigures& reference, double unit_roundoff);

/// The bound from the unperturbed run of one rank and the perturbed ones.
MT_API LayoutBound layout_bound(DType dtype, int64_t tokens, const LayoutFigures& reference,
                                const std::vector<LayoutFigures>& perturbed);

}  // namespace mtrain
