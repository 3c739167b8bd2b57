// Combines several low-rank adapters of the same weights into one, and measures how much two of
// them differ. Stateless functions over values, for one thread.
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
  cat,  // exactly Σ weight · scale · b · a; the rank is the sum of the ranks
  linear,  // a = Σ f_i a_i and b = Σ |f_i| b_i with f_i = ±√|weight · scale|; b · a is not the sum
           // of the products
  ties,  // keeps the fraction `density` of largest elements of each tensor; sums, as linear does,
         // the elements whose sign is that of their sum, and divides by their number (Yadav et al.
         // 2023, arXiv:2306.01708)
  dare_linear,  // linear, with each element kept with probability `density` and divided by it (Yu
                // et al. 2023, arXiv:2311.03099)
  dare_ties,    // ties, with elements kept as in dare_linear
};

struct BlendOptions {
  AdapterBlend method = AdapterBlend::cat;
  std::vector<double> weights;  // one for each adapter
  double density = 1;           // fraction of elements that ties and dare keep, in (0,1]
  uint64_t seed = 1;            // of dare_linear and dare_ties
};

/// A weight for which only some of the adapters have an entry is combined from these alone.
/// Error(config) for DoRA, modules_to_save and adapters of experts; and, naming all such weights,
/// if the adapters of a weight have different shapes or, unless the method is cat, different ranks.
/// REQUIRES: as many weights as adapters, at least one.
MT_API PeftAdapter blend_adapters(std::span<const PeftAdapter> adapters,
                                  const BlendOptions& options);

/// How much the changes s · b · a of one weight differ.
struct MT_API AdapterDifference {
  std::string module;
  std::optional<double> norm_a, norm_b;  // Frobenius norm of the change; absent: no adapter
  double distance = 0;                   // norm of the difference of the changes
  /// The distance divided by the larger of the two norms; 0 if both are 0.
  double relative() const;
};
/// The differences for all weights for which either has an adapter, by name. Error(config) like
/// blend_adapters(), but ranks may differ.
MT_API std::vector<AdapterDifference> adapter_differences(const PeftAdapter& a,
                                                          const PeftAdapter& b);

}  // namespace mtrain
