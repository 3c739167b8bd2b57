#include "mtrain/config/diff.h"

namespace mtrain {
namespace {

bool is_section(const Node* node) { return node && node->is_map() && node->size() > 0; }

void compare(const std::string& path, const Node* before, const Node* after,
             std::vector<Difference>& out) {
  if (!is_section(before) && !is_section(after)) {
    if (!before || !after || !before->same_value(*after)) out.push_back({path, before, after});
    return;
  }
  // With a section on one side and a value on the other, both are listed.
  if (before && !is_section(before)) out.push_back({path, before, nullptr});
  if (after && !is_section(after)) out.push_back({path, nullptr, after});
  if (is_section(after))
    for (const auto& entry : after->entries())
      compare(join_path(path, entry.key), is_section(before) ? before->get(entry.key) : nullptr,
              &entry.value, out);
  if (is_section(before))
    for (const auto& entry : before->entries())
      if (!is_section(after) || !after->get(entry.key))
        compare(join_path(path, entry.key), &entry.value, nullptr, out);
}

}  // namespace

std::vector<Difference> differences(const Node& before, const Node& after) {
  std::vector<Difference> out;
  compare("", &before, &after, out);
  return out;
}

}  // namespace mtrain
