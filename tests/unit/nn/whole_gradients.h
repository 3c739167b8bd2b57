// Gradients of whole parameters from those of several ranks. Called by one rank at a time.
#pragma once
#include <map>
#include <string>

#include "contract/harness.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

/// What the optimizer gets: partial sums are added, and other elements are those of the primary
/// copy.
inline void add_gradients(const ParamList& list, std::map<std::string, contract::Values>& whole) {
  for (const Parameter& p : list.all()) {
    contract::Values own = contract::values_of(p.main_grad), &all = whole[p.name];
    all.resize(static_cast<size_t>(p.global.numel()));
    for (const ParamBox& box : p.boxes())
      if (box.is_primary || !p.partial.empty())
        for_each_run(box.global, p.global, box.local, p.local,
                     [&](int64_t global, int64_t local, int64_t count) {
                       for (int64_t i = 0; i < count; ++i)
                         all[static_cast<size_t>(global + i)] +=
                             own[static_cast<size_t>(local + i)];
                     });
  }
}

}  // namespace mtrain
