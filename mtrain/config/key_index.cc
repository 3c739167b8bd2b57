#include <algorithm>
#include <unordered_set>

#include "mtrain/base/text.h"
#include "mtrain/config/schema.h"

namespace mtrain {
namespace {

constexpr size_t kDistinctiveLength = 6;  // characters
constexpr size_t kLongestTypo = 256;      // a longer key is not a typo of a setting's name

/// Lower case without '-' and '_': hiddenSize, hidden-size and hidden_size are one name.
std::string without_separators(std::string_view name) {
  std::string out;
  for (char c : name)
    if (c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::pair<std::string_view, std::string_view> parent_and_leaf(std::string_view path) {
  size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

int allowed_typos(size_t length) {
  return length <= 3 ? 1 : std::max(2, static_cast<int>(length) / 3);
}

/// The distance of `name` from `wanted`; negative when they are unrelated. The numbers only order
/// the suggestions: a typo in the leaf is more likely than the right leaf in a wrong section, and
/// that is more likely than both.
/// `old`: the name is a former one, of a setting that may now be in another section.
double distance(std::string_view wanted, std::string_view name, bool old) {
  auto [wanted_parent, wanted_leaf] = parent_and_leaf(wanted);
  auto [parent, leaf] = parent_and_leaf(name);
  int leaf_typos = edit_distance(wanted_leaf, leaf);
  if (leaf_typos > 0 && without_separators(wanted_leaf) == without_separators(leaf)) leaf_typos = 0;
  if (wanted_parent == parent) {
    if (leaf_typos <= allowed_typos(std::max(wanted_leaf.size(), leaf.size())) &&
        leaf_typos < static_cast<int>(std::max(wanted_leaf.size(), leaf.size())))
      return leaf_typos;
    bool contained = std::min(wanted_leaf.size(), leaf.size()) >= 3 &&
                     (leaf.find(wanted_leaf) != std::string_view::npos ||
                      wanted_leaf.find(leaf) != std::string_view::npos);
    return contained ? 3 : -1;
  }
  int parent_typos = edit_distance(wanted_parent, parent);
  bool parent_near = parent_typos <= allowed_typos(std::max(wanted_parent.size(), parent.size()));
  // "enabled" in one section is not what it was in another; cp_comm_type is.
  const bool word = leaf.find('_') == std::string_view::npos;
  if (old && word && !wanted_parent.empty() && !parent_near) return -1;
  // A long name rarely occurs in another section by accident.
  if (leaf_typos == 0)
    return parent_near ? 0.5 * parent_typos : leaf.size() >= kDistinctiveLength ? 2.5 : 3.5;
  if (parent_near && leaf_typos <= allowed_typos(std::max(wanted_leaf.size(), leaf.size())))
    return 1.5 + parent_typos + leaf_typos;
  return -1;
}

/// optimzer.lr means optimizer.lr, even if other sections also have a setting named lr.
bool mistyped_section(std::string_view wanted, std::string_view name) {
  auto [wanted_parent, wanted_leaf] = parent_and_leaf(wanted);
  auto [parent, leaf] = parent_and_leaf(name);
  return !wanted_parent.empty() && wanted_leaf == leaf &&
         edit_distance(wanted_parent, parent) <=
             allowed_typos(std::max(wanted_parent.size(), parent.size()));
}

}  // namespace

void KeyIndex::add_schema(const Schema& schema, const std::string& prefix) {
  std::string before = prefix.empty() ? "" : prefix + ".";
  std::unordered_set<std::string> sections;
  for (const auto& spec : schema.fields) {
    std::string path = before + spec.path;
    for (const auto& old : spec.renamed_from) add_old(before + old, path);
    // A nested section is a name too.
    for (size_t dot = path.find('.', before.size()); dot != std::string::npos;
         dot = path.find('.', dot + 1)) {
      std::string section = path.substr(0, dot);
      if (sections.insert(section).second) add(section);
    }
    add(std::move(path));
  }
}

std::string KeyIndex::help(std::string_view wanted) const {
  const std::vector<std::string> near = suggest(wanted);
  if (near.empty() || !mistyped_section(wanted, near.front()))
    if (std::string advice = advisor_ && wanted.size() <= kLongestTypo ? advisor_(wanted) : "";
        !advice.empty())
      return advice;
  return near.empty() ? "" : cat("did you mean ", join(near, " or "), "?");
}

std::vector<std::string> KeyIndex::suggest(std::string_view wanted, size_t limit) const {
  if (wanted.size() > kLongestTypo) return {};
  std::vector<std::pair<double, const Entry*>> scored;
  for (const auto& entry : entries_) {
    double score = distance(wanted, entry.name, entry.name != entry.now);
    if (score >= 0) scored.emplace_back(score, &entry);
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (const auto& [score, entry] : scored) {
    // A second suggestion helps only when it is about as likely as the first.
    if (out.size() == limit || score > scored[0].first + 1) break;
    if (std::find(out.begin(), out.end(), entry->now) == out.end()) out.push_back(entry->now);
  }
  return out;
}

}  // namespace mtrain
