#include "mtrain/recipe/hf_implied.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/expression.h"

namespace mtrain {
namespace {

/// A key's name in the family for a path in config.json: "rope_scaling.factor" is "rope.factor".
std::string name_in_family(const HfFamily& family, const std::string& path) {
  for (const HfObject& object : family.objects)
    for (const std::string& read : object.read)
      if (path.starts_with(read + ".")) return object.name + path.substr(read.size());
  return path;
}

/// The same in the other direction.
std::string path_in_config(const HfFamily& family, const std::string& name) {
  for (const HfObject& object : family.objects)
    if (name.starts_with(object.name + "."))
      return object.read[0] + name.substr(object.name.size());
  return name;
}

/// The key that gives a setting; null: none.
const HfKey* key_of(const HfFamily& family, const std::string& setting) {
  for (const HfKey& key : family.keys)
    if (key.setting == setting) return &key;
  return nullptr;
}

bool is_ignored(const HfFamily& family, const std::string& setting,
                const std::vector<std::string>& ignored) {
  return std::any_of(ignored.begin(), ignored.end(), [&](const std::string& entry) {
    const HfKey* key = family.key(name_in_family(family, entry));
    return entry == setting || (key && key->setting == setting);
  });
}

}  // namespace

Node hf_meaning_of_zero(const HfFamily& family, const std::string& setting,
                        const std::function<Node(const std::string& path)>& value_of) {
  const auto zero = std::find_if(family.zeros.begin(), family.zeros.end(),
                                 [&](const auto& entry) { return entry.first == setting; });
  if (zero == family.zeros.end()) return {};
  ExpressionScope scope;
  scope.name = [&](std::string_view name, size_t at) -> ExpressionValue {
    if (const Node value = value_of(std::string(name)); value.is(NodeKind::integer))
      return value.as_int();
    throw ExpressionError(cat("no number ", name), at);
  };
  try {
    const ExpressionValue value = evaluate_expression(zero->second, scope);
    if (const auto* number = std::get_if<int64_t>(&value)) return Node::integer(*number);
  } catch (const ExpressionError&) {
    // A size is missing, which is reported where the model is built.
  }
  return {};
}

std::vector<HfSetting> hf_implied(const HfFamily& family, const Schema& plugin,
                                  const std::vector<HfSetting>& given,
                                  const std::vector<std::string>& ignored) {
  std::vector<HfSetting> out;
  const auto value_of = [&](const std::string& setting) {
    for (const HfSetting& other : given)
      if (other.path == cat("model.", setting)) return other.value;
    return Node();
  };
  for (const FieldSpec& spec : plugin.fields) {
    const std::string path = cat("model.", spec.path);
    const bool known = std::any_of(given.begin(), given.end(),
                                   [&](const HfSetting& setting) { return setting.path == path; });
    if (known || spec.required || !spec.derived.empty() || is_training_setting(family, spec) ||
        is_ignored(family, spec.path, ignored))
      continue;
    const HfKey* key = key_of(family, spec.path);
    if (key && (key->training || key->rule == HfKeyRule::dropout)) continue;
    HfSetting setting{.path = path,
                      .theirs = key ? path_in_config(family, key->name) : "",
                      .value = default_value(spec, ""),
                      .omitted = true};
    if (Node number = hf_meaning_of_zero(family, spec.path, value_of); !number.is_null()) {
      setting.same_as = std::move(setting.value);
      setting.value = std::move(number);
    }
    out.push_back(std::move(setting));
  }
  return out;
}

}  // namespace mtrain
