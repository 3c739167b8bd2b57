// What differs between two configurations, setting by setting. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/tree.h"

namespace mtrain {

/// A setting that differs; null where one side has no such setting. Points into the compared trees.
struct Difference {
  std::string path;
  const Node* before = nullptr;
  const Node* after = nullptr;
};

/// In the order of `after`, with what only `before` has behind its neighbours. Lists are compared
/// as a whole.
MT_API std::vector<Difference> differences(const Node& before, const Node& after);

}  // namespace mtrain
