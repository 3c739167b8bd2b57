// Adapters that start from the principal singular vectors of their weights (PiSSA: Meng et al.
// 2024, arXiv:2404.02948): b · a times the scale is the truncated SVD of each adapted matrix
// (its `rank` largest singular values), and the frozen weight is the residual. Computed anew
// from the weights of model.init_from at each start, with the same bits in every layout. For the
// rank's own thread.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mtrain/nn/adapter.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

class MT_API PrincipalStart {
 public:
  /// `parameters` must outlive it. `threads`: for the singular vectors.
  PrincipalStart(AdapterOptions options, ParamList& parameters, int threads);

  /// Whether the parameter is a weight with adapters.
  bool splits(const Parameter& weight) const { return plans_.contains(weight.name); }
  /// Replaces the values of a whole weight [out,in] by the residual, and fills this rank's part of
  /// its adapters, which are rounded to the compute dtype before the residual is computed, so that
  /// both parts add up to the weight. Other parameters stay as they are.
  void split(const Parameter& weight, std::span<float> whole);
  /// The names of all weights with adapters.
  std::vector<std::string> weights() const;

 private:
  AdapterOptions options_;
  ParamList& parameters_;
  int threads_;
  std::map<std::string, std::vector<size_t>> plans_;  // weight; its matrices with adapters
};

}  // namespace mtrain
