// How a value of a later file joins the value before it: maps merge key by key and everything else
// replaces, unless the schema says otherwise for a setting. Values.
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
  append,   // a list goes behind the one before it
  by_key    // items of lists that agree in `key` merge, others go behind
};

struct MergeRule {
  MergeKind kind = MergeKind::deep;
  std::string key;  // of by_key
};

/// The rules of some settings, as a tree of keys.
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
/// The rule of such a text; nothing when it is none.
MT_API std::optional<MergeRule> merge_rule(std::string_view text);

}  // namespace mtrain
