// Upcycling: a mixture of experts that starts from the weights of a dense model
// (model.init_upcycle). Every expert starts as a copy of the block's MLP, the router from random
// values (Komatsuzaki et al. 2023, arXiv:2212.05055). Experts of 1/g of the MLP's width are its g
// parts, so that g of them in a row are one copy; the router has the same initial values for these,
// and so selects whole copies (He et al. 2024, arXiv:2410.07524). The routing weights must have a
// constant sum s. Then the factor c = g / s of the experts' last matrix keeps the function: with
// the weight w_j of copy j,
//   sum_j sum_p (w_j / g) · c · part_p(x) = (c / g) · (sum_j w_j) · mlp(x) = mlp(x).
// Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/recipe/hf_tensors.h"

namespace mtrain {

/// How the experts' values follow from the MLP's.
struct Upcycling {
  int64_t experts = 0, parts = 1;  // g experts are one copy
  double scale = 1;                // c
};

/// A setting with which a model cannot start from a dense one.
struct UpcycleFault {
  std::string setting;  // without "model."
  std::string what, fix;
};

/// All such settings of a model. `model`: a model of a plugin with experts. `dense_width`: the
/// width of the dense model's MLP.
MT_API std::vector<UpcycleFault> upcycle_faults(const HfModel& model, int64_t dense_width);
/// REQUIRES: there are no faults.
MT_API Upcycling upcycling_of(const HfModel& model, int64_t dense_width);
/// Why a dense model of the plugin `dense` cannot become one of the plugin `experts`; "" if it can.
MT_API std::string not_upcyclable(const Schema& dense, const Schema& experts);

/// The parameter of the experts that starts from a parameter of the dense model; the same name for
/// a parameter outside of the MLPs that become experts.
MT_API std::string upcycled_name(const HfModel& model, const std::string& dense);
/// Whether a parameter is a matrix of such experts; and the shape that it has in the dense model.
MT_API bool is_upcycled(const std::string& parameter);
MT_API Shape dense_shape(const Upcycling& how, const std::string& parameter, const Shape& shape);
/// The values of such a parameter of this shape from those of the dense model's.
MT_API std::vector<float> upcycled(const Upcycling& how, const std::string& parameter,
                                   const Shape& shape, const std::vector<float>& dense);
/// Overwrites the rows of all experts of a copy with the row of its first expert. `rows` has a row
/// for each expert.
MT_API void share_rows(const Upcycling& how, std::vector<float>& rows);

}  // namespace mtrain
