#include "mtrain/config/not_built.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/schema.h"

namespace mtrain {
namespace {

constexpr size_t kListed = 4;  // settings named in one message, to keep it readable

bool one_of(const std::vector<std::string>& texts, const Node& value) {
  if (value.is_list())
    return std::any_of(value.items().begin(), value.items().end(),
                       [&](const Node& item) { return one_of(texts, item); });
  return std::find(texts.begin(), texts.end(), value.as_text()) != texts.end();
}

bool asks_for_part(const FieldSpec& spec, const Node& value) {
  bool is_set = value.loc() && value.loc().source->kind() != SourceKind::built_in;
  return is_set && needs_part(spec, value);
}

std::string listed(const std::vector<std::string>& items) {
  size_t shown = std::min(items.size(), kListed);
  std::string out = join({items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown)}, ", ");
  return items.size() == shown ? out : cat(out, " and ", items.size() - shown, " more");
}

}  // namespace

bool needs_part(const FieldSpec& spec, const Node& value) {
  if (spec.needs.empty()) return false;
  if (!spec.needs_values.empty()) return one_of(spec.needs_values, value);
  return spec.required || !value.same_value(default_value(spec, ""));
}

void NotBuilt::wish(const std::string& part, Wish wish) {
  auto known =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.name == part; });
  if (known == parts_.end()) known = parts_.insert(parts_.end(), {part, {}});
  known->wishes.push_back(std::move(wish));
}

void NotBuilt::component(const Schema& component, const std::string& path, const Node& name,
                         const std::vector<std::string>& built) {
  if (component.needs.empty()) return;
  std::string remedy = built.empty() ? "" : cat(path, "=", join(built, " or "));
  wish(component.needs,
       {cat(path, "=", component.name), std::move(remedy), path, name.loc(), component.left_out});
}

void NotBuilt::settings(const Schema& owner, const std::string& path, const Node& values) {
  for (const auto& spec : owner.fields) {
    if (spec.needs.empty()) continue;
    const Node* value = values.find(spec.path);
    if (!value || !asks_for_part(spec, *value)) continue;
    std::string full = cat(path, ".", spec.path);
    std::string shown = spec.secret ? full : cat(full, "=", brief(*value, 40));
    std::string remedy = spec.required ? "" : cat(full, "=", spec.default_value);
    if (!spec.needs_values.empty() && !spec.choices.empty()) {
      std::vector<std::string> others;
      for (const auto& choice : spec.choices)
        if (std::ranges::find(spec.needs_values, choice) == spec.needs_values.end())
          others.push_back(choice);
      remedy = cat(full, "=", join(others, " or "));
    }
    wish(spec.needs, {std::move(shown), std::move(remedy), full, value->loc()});
  }
}

void NotBuilt::report_to(Report& report) const {
  for (const auto& part : parts_) {
    const Wish& first = part.wishes[0];
    const char* lacks =
        first.left_out ? "this build does not have" : "mtrain does not implement yet";
    auto& fault = report.error("not-built", first.path, first.where,
                               cat("needs ", part.name, ", which ", lacks));
    std::vector<std::string> settings, remedies;
    for (const auto& w : part.wishes) {
      settings.push_back(w.setting);
      if (!w.remedy.empty()) remedies.push_back(w.remedy);
    }
    if (settings.size() > 1) fault.note("required by " + listed(settings));
    if (!remedies.empty())
      fault.fix(remedies.size() == 1 ? cat("use ", remedies[0], " instead")
                                     : "use instead: " + listed(remedies));
  }
}

}  // namespace mtrain
