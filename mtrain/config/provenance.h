// Shows where the values of a configuration come from: where each setting was set, which values it
// replaced, and which settings it was computed from; as text and as a tree. Stateless functions
// over values; safe from any thread.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

/// Calls visit(path, node) for every value below `root`, in order; a list is one value.
MT_API void each_leaf(const Node& root,
                      const std::function<void(const std::string& path, const Node& leaf)>& visit);

/// The settings that the expression of the value at `path` reads, each once, in the order of
/// reading.
MT_API std::vector<std::string> inputs_of(const Node& root, const std::string& path,
                                          const std::string& expression);

/// The history of a setting, or of every setting of a section: where it was set, what it was
/// computed from, which values it replaced. Throws Error(config) for an unknown path.
MT_API std::string why_text(const ConfigContainer& config, std::string_view path);
/// {"path", "value", "kind", "where", "file", "line", "column" or "argument", "expression",
/// "inputs", "shadowed"}, or a list of them for a section. `kind` is file, command line or default.
MT_API Node why_node(const ConfigContainer& config, std::string_view path);
/// The same for all settings: {"optimizer.lr": {"value", "kind", …}, …}.
MT_API Node provenance(const ConfigContainer& config);

}  // namespace mtrain
