// Compares two configurations, setting by setting. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/tree.h"

namespace mtrain {

/// A setting that differs; null where one side has no such setting. Points into the compared trees,
/// which must outlive it.
struct Difference {
  std::string path;
  const Node* before = nullptr;
  const Node* after = nullptr;
};

/// The differences in the order of `after`; a setting that only `before` has comes last in its
/// section. Lists are compared as a whole.
MT_API std::vector<Difference> differences(const Node& before, const Node& after);

}  // namespace mtrain
