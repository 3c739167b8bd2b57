// Adapters that start from the principal singular vectors of their weights (PiSSA: Meng et al.
// 2024, arXiv:2404.02948): b · a times the scale are the largest `rank` singular values of each
// adapted matrix with their vectors, and the frozen weight is what is left of it. Computed anew
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
  /// Replaces the values of a whole weight [out,in] by what is left of it, and fills this rank's
  /// part of its adapters. They have the values that the compute dtype has, too, so that both parts
  /// are one weight. Other parameters stay as they are.
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
