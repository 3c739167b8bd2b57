// Where the values of a configuration come from: who set each setting, which values it took the
// place of, and what it was computed from; for people and for machines. Stateless functions over
// values.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

/// Calls visit(path, node) for every value below `root`, lists as a whole, in order.
MT_API void each_leaf(const Node& root,
                      const std::function<void(const std::string& path, const Node& leaf)>& visit);

/// The settings that the expression of the value at `path` reads, in the order of reading, each
/// once.
MT_API std::vector<std::string> inputs_of(const Node& root, const std::string& path,
                                          const std::string& expression);

/// The history of a setting, or of every setting of a section: who set it, what it was computed
/// from, the values that it took the place of. Throws Error(config) for an unknown path.
MT_API std::string why_text(const ConfigContainer& config, std::string_view path);
/// {"path", "value", "kind", "where", "file", "line", "column" or "argument", "expression",
/// "inputs", "shadowed"}, or a list of them for a section. `kind` is file, command line or default.
MT_API Node why_node(const ConfigContainer& config, std::string_view path);
/// The same for all settings: {"optimizer.lr": {"value", "kind", …}, …}.
MT_API Node provenance(const ConfigContainer& config);

}  // namespace mtrain
