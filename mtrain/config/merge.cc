#include "mtrain/config/merge.h"

#include "mtrain/base/text.h"
#include "mtrain/config/tree.h"

namespace mtrain {

void MergeRules::add(std::string_view path, const MergeRule& rule) {
  MergeRules* at = this;
  for (const auto& part : parse_path(path).value_or(std::vector<std::string>{}))
    at = &at->below_[part];
  at->rule = rule;
}

const MergeRules* MergeRules::below(std::string_view key) const {
  auto found = below_.find(key);
  return found == below_.end() ? nullptr : &found->second;
}

std::string name(const MergeRule& rule) {
  switch (rule.kind) {
    case MergeKind::deep:
      return "deep";
    case MergeKind::replace:
      return "replace";
    case MergeKind::append:
      return "append";
    case MergeKind::by_key:
      return cat("by(", rule.key, ")");
  }
  return "?";
}

std::optional<MergeRule> merge_rule(std::string_view text) {
  for (MergeKind kind : {MergeKind::deep, MergeKind::replace, MergeKind::append})
    if (text == name(MergeRule{kind, ""})) return MergeRule{kind, ""};
  if (!text.starts_with("by(") || !text.ends_with(")") || text.size() < 5) return std::nullopt;
  return MergeRule{MergeKind::by_key, std::string(text.substr(3, text.size() - 4))};
}

}  // namespace mtrain
