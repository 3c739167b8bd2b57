// Several low-rank adapters of the same weights as one, and how much two of them differ. Stateless
// functions over values, for one thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mtrain/train/peft_adapter.h"

namespace mtrain {

/// The formulas are those of peft's add_weighted_adapter(), with its names.
enum class AdapterBlend : uint8_t {
  cat,     // exactly Σ weight · scale · b · a: the ranks are added
  linear,  // a = Σ f_i a_i and b = Σ |f_i| b_i with f_i = ±√|weight · scale|: not the sum of
           // the products
  ties,    // linear over the largest `density` of each tensor's elements, of those whose sign
           // is that of their sum, divided by their number (Yadav et al. 2023,
           // arXiv:2306.01708)
  dare_linear,  // linear, with a random `density` of the elements, divided by it (Yu et al. 2023,
                // arXiv:2311.03099)
  dare_ties,    // ties with these
};

struct BlendOptions {
  AdapterBlend method = AdapterBlend::cat;
  std::vector<double> weights;  // one for each adapter
  double density = 1;           // fraction of elements that ties and dare keep, in (0,1]
  uint64_t seed = 1;            // of dare
};

/// The adapter of a weight that only some have is that of these. Error(config) for adapters with
/// more than s · b · a of single matrices (DoRA, modules_to_save, experts), or that names all
/// adapters of one weight with different shapes, or, unless the method is cat, with different
/// ranks. REQUIRES: as many weights as adapters, at least one.
MT_API PeftAdapter blend_adapters(std::span<const PeftAdapter> adapters,
                                  const BlendOptions& options);

/// How much the changes s · b · a of one weight differ.
struct MT_API AdapterDifference {
  std::string module;
  std::optional<double> norm_a, norm_b;  // Frobenius norm of the change; absent: no adapter
  double distance = 0;                   // norm of the difference of the changes
  /// The distance in shares of the larger norm; 0 if both are 0.
  double relative() const;
};
/// For all weights that either has an adapter for, by name. Error(config) as of blend_adapters().
MT_API std::vector<AdapterDifference> adapter_differences(const PeftAdapter& a,
                                                          const PeftAdapter& b);

}  // namespace mtrain
