#include "mtrain/recipe/hf_implied.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/config/expression.h"
#include "mtrain/nn/score_head.h"

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

/// The whole number of an expression of settings; nothing: a setting is not known, which is
/// reported where the model is built.
std::optional<int64_t> number_of(const std::string& expression,
                                 const std::function<Node(const std::string& path)>& value_of) {
  ExpressionScope scope;
  scope.name = [&](std::string_view name, size_t at) -> ExpressionValue {
    if (const Node value = value_of(std::string(name)); value.is(NodeKind::integer))
      return value.as_int();
    throw ExpressionError(cat("no number ", name), at);
  };
  try {
    const ExpressionValue value = evaluate_expression(expression, scope);
    if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  } catch (const ExpressionError&) {
  }
  return std::nullopt;
}

double in_form(HfForm form, double setting) {
  if (form == HfForm::same) return setting;
  const bool root = form == HfForm::inverse_root;
  const double theirs = root ? 1 / (setting * setting) : 1 / setting;
  for (const int digits : {12, 15}) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.*g", digits, theirs);
    const double shorter = std::strtod(text, nullptr);
    if ((root ? 1 / std::sqrt(shorter) : 1 / shorter) == setting) return shorter;
  }
  return theirs;
}

}  // namespace

const Node* hf_in_table(const HfKey& key, const hf::Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  for (const auto& [theirs, ours] : key.values)
    if (text == theirs.as_text()) return &ours;
  return nullptr;
}

Node hf_ours(const HfKey& key, const hf::Json& value, FieldType type,
             std::optional<double> factor) {
  if (const Node* ours = hf_in_table(key, value)) return *ours;
  if (key.form == HfForm::inverse) return Node::number(1 / value.get<double>());
  if (key.form == HfForm::inverse_root) return Node::number(1 / std::sqrt(value.get<double>()));
  if (!key.times.empty()) return factor ? Node::number(value.get<double>() / *factor) : Node();
  if (key.plus != 0 && value.is_number_integer())
    return Node::integer(value.get<int64_t>() - key.plus);
  return hf::to_node(value, type);
}

double hf_theirs(const HfKey& key, double setting, double factor) {
  if (key.times.empty()) return in_form(key.form, setting);
  const double theirs = setting * factor, near = std::round(theirs);
  return near / factor == setting ? near : theirs;  // 0.07 * 100 is not quite 7
}

std::optional<double> hf_factor(const HfKey& key,
                                const std::function<Node(const std::string& path)>& value_of) {
  if (key.times.empty()) return 1;
  const auto number = number_of(key.times, value_of);
  if (!number || *number <= 0) return std::nullopt;
  return static_cast<double>(*number);
}

Node hf_meaning_of_zero(const HfFamily& family, const std::string& setting,
                        const std::function<Node(const std::string& path)>& value_of) {
  const auto zero = std::find_if(family.zeros.begin(), family.zeros.end(),
                                 [&](const auto& entry) { return entry.first == setting; });
  if (zero == family.zeros.end()) return {};
  if (const auto number = number_of(zero->second, value_of)) return Node::integer(*number);
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
    // A new head of scores may take the place of the folder's.
    if (known || spec.path == kLabelsSetting || spec.path == kLabelsOfSetting || spec.required ||
        !spec.derived.empty() || is_training_setting(family, spec) ||
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
