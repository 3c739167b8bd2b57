// Writes a tree as YAML. load_yaml reads the text back as the same tree, and YAML 1.1 readers get
// the same values. A string is quoted whenever some reader would read another type. Stateless
// functions; safe from any thread.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "mtrain/base/text.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct WriteOptions {
  /// The comment after a scalar or list; empty for none.
  std::function<std::string(const std::string& path, const Node& node)> comment;
  size_t flow_columns = 100;  // a list of scalars up to this width stays on one line
};

/// Block style, two spaces per level, with a final newline.
MT_API std::string write_yaml(const Node& node, const WriteOptions& options = {});
/// One line, flow style. Stops soon after `max_bytes`.
MT_API std::string write_flow(const Node& node, size_t max_bytes = std::string::npos);
/// A string as a YAML scalar, quoted where needed.
MT_API std::string write_string(std::string_view text);
/// Makes text safe to show on one line: control, bidirectional and zero-width characters and broken
/// UTF-8 become escapes.
MT_API std::string visible(std::string_view text, size_t max_bytes = 200);

}  // namespace mtrain
