// How a value of a later file merges with the earlier one: maps merge key by key, and any other
// value replaces the earlier one, unless the schema has another rule for the setting. Values; const
// members are safe from any thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

enum class MergeKind : uint8_t {
  deep,     // maps merge, lists and scalars replace
  replace,  // maps replace too
  append,   // a list is appended to the earlier one
  by_key    // list items with the same `key` merge, others are appended
};

struct MergeRule {
  MergeKind kind = MergeKind::deep;
  std::string key;  // for by_key
};

/// The merge rules of settings, as a tree of keys.
class MT_API MergeRules {
 public:
  MergeRule rule;

  /// `path`: dotted, as in a schema.
  void add(std::string_view path, const MergeRule& rule);
  /// The rules below a key; null when there are none.
  const MergeRules* below(std::string_view key) const;
  bool empty() const { return below_.empty() && rule.kind == MergeKind::deep; }

 private:
  std::map<std::string, MergeRules, std::less<>> below_;
};

/// "deep", "replace", "append", "by(name)".
MT_API std::string name(const MergeRule& rule);
/// Parses such a text; nothing when it is invalid.
MT_API std::optional<MergeRule> merge_rule(std::string_view text);

}  // namespace mtrain
