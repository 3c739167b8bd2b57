#include "mtrain/config/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/expression_node.h"
#include "mtrain/config/schema.h"

namespace mtrain {
namespace {

constexpr int kMaxDefinitionDepth = 16;
constexpr int64_t kSearchSpan = 1024;  // the largest distance of a replacement from the value
constexpr size_t kMaxOffers = 4;       // values suggested for one setting
constexpr int kMaxTrials = 64;         // candidates that are checked against all other rules

/// The names that rules see, with one setting replaced by a value on trial.
class Values {
 public:
  Values(const RuleInput& input, const std::vector<Definition>& definitions,
         const ParsedExpressions& parsed)
      : input_(input), definitions_(definitions), parsed_(parsed) {
    scope_.name = [this](std::string_view name, size_t at) { return value_of(name, at); };
    scope_.nesting = &nesting_;
    scope_.interpolation = [](std::string_view, size_t) -> ExpressionValue { throw AbsentName(); };
  }

  /// The value of an expression; nothing when it uses a name that does not exist.
  std::optional<ExpressionValue> evaluate(std::string_view expression) const {
    depth_ = 0;
    try {
      const auto parsed = parsed_.find(expression);
      if (parsed == parsed_.end()) return evaluate_expression(expression, scope_);
      // Many rules name settings of other models; an exception for each of them takes time.
      if (tried_.empty())
        for (const std::string& name : parsed->second.needed())
          if (!known(name)) return std::nullopt;
      return parsed->second.evaluate(scope_);
    } catch (const AbsentName&) {
      return std::nullopt;
    }
  }
  /// A condition; nothing when it does not apply.
  std::optional<bool> holds(std::string_view condition) const {
    auto value = evaluate(condition);
    if (!value) return std::nullopt;
    const bool* flag = std::get_if<bool>(&*value);
    if (!flag) throw ExpressionError(cat("the condition gives ", to_text(*value)), 0);
    return *flag;
  }
  /// Throws ExpressionError where the values are too large to compute with.
  bool violates(const Rule& rule) const {
    if (*rule.when && !holds(rule.when).value_or(false)) return false;
    if (rule.unused && !is_written(rule)) return false;
    return !holds(rule.must).value_or(true);
  }
  /// The settings that an expression uses, directly or through definitions, by this recipe's paths.
  std::vector<std::string> settings_in(std::string_view expression) const {
    std::vector<std::string> out;
    collect_settings(expression, 0, out);
    return out;
  }
  /// The path by which this recipe has a setting of the tables.
  const std::string& own(const std::string& path) const {
    auto found = input_.renamed.find(path);
    return found == input_.renamed.end() ? path : found->second;
  }
  /// A text of the tables with the paths of this recipe.
  std::string in_own_words(std::string text) const {
    auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    for (const auto& [usual, name] : input_.renamed)
      for (size_t at = 0; (at = text.find(usual, at)) != std::string::npos;) {
        const size_t end = at + usual.size();
        const bool whole = (at == 0 || (!part(text[at - 1]) && text[at - 1] != '.')) &&
                           (end == text.size() || !part(text[end]));
        if (whole) text.replace(at, usual.size(), name);
        at += whole ? name.size() : 1;
      }
    return text;
  }
  void try_value(std::string path, ExpressionValue value) {
    tried_ = std::move(path);
    trial_ = std::move(value);
  }
  void end_trial() { tried_.clear(); }
  const Node* setting(const std::string& path) const { return input_.root->find(path); }

 private:
  ExpressionValue value_of(std::string_view name, size_t at) const {
    if (!tried_.empty()) return computed_value(name, at);
    const std::optional<ExpressionValue>& value = known(name, at);
    if (!value) throw AbsentName();
    return *value;
  }

  /// Values are kept, since most names are in many rules; those on trial are not.
  const std::optional<ExpressionValue>& known(std::string_view name, size_t at = 0) const {
    auto found = known_.find(name);
    if (found != known_.end()) return found->second;
    std::optional<ExpressionValue> value;
    try {
      value = computed_value(name, at);
    } catch (const AbsentName&) {
    }
    return known_.emplace(name, std::move(value)).first->second;
  }

  ExpressionValue computed(std::string_view expression) const {
    const auto known = parsed_.find(expression);
    return known != parsed_.end() ? known->second.evaluate(scope_)
                                  : evaluate_expression(expression, scope_);
  }

  ExpressionValue computed_value(std::string_view name, size_t at) const {
    if (!tried_.empty() && own(std::string(name)) == tried_) return trial_;
    for (const auto& definition : definitions_) {
      if (name != definition.name) continue;
      struct Level {
        int& depth;
        ~Level() { --depth; }  // also when the value is absent and ?? supplies one
      } level{++depth_};
      if (level.depth > kMaxDefinitionDepth)
        throw ExpressionError(cat(name, " is defined in terms of itself"), at);
      return computed(definition.expression);
    }
    if (auto fact = input_.facts.find(std::string(name)); fact != input_.facts.end())
      return fact->second;
    const Node* node = setting(own(std::string(name)));
    if (!node || node->is_map() || node->is_missing() || node->faulty()) throw AbsentName();
    return expression_value(*node, at);
  }

  static bool typed(const Node& node) {
    return node.loc() && node.loc().source->kind() == SourceKind::command_line;
  }

  bool given(const Location& where) const {
    if (input_.given) return input_.given(where);
    return where && where.source->kind() != SourceKind::built_in;
  }

  /// True if the user wrote the setting of a rule with another value than its default. A file's
  /// value does not count if the command line decides the condition, by a value or by the choice of
  /// an option: whoever switches a feature off there does not mean the recipe's settings of that
  /// feature.
  bool is_written(const Rule& rule) const {
    const std::string path = own(rule.path);
    const FieldSpec* field = input_.field ? input_.field(path) : nullptr;
    const Node* node = setting(path);
    if (!field || !node || node->faulty() || field->default_value.empty()) return false;
    const bool on_trial = tried_ == path;
    if (!on_trial && !given(node->loc())) return false;
    const Node usual = default_value(*field, "");
    if (on_trial) return trial_ != expression_value(usual);
    if (node->same_value(usual)) return false;
    if (typed(*node)) return true;
    const std::vector<std::string> others = settings_in(rule.must);
    return std::none_of(others.begin(), others.end(), [&](const std::string& other) {
      const Node& decides = *setting(other);
      return typed(decides) || (input_.chosen && input_.chosen(decides.loc()));
    });
  }

  void collect_settings(std::string_view expression, int depth,
                        std::vector<std::string>& out) const {
    for (const auto& name : names_in(expression)) {
      for (const auto& definition : definitions_)
        if (name == definition.name && depth < kMaxDefinitionDepth)
          collect_settings(definition.expression, depth + 1, out);
      const std::string& path = own(name);
      const Node* node = setting(path);
      if (node && !node->is_map() && std::find(out.begin(), out.end(), path) == out.end())
        out.push_back(path);
    }
  }

  const RuleInput& input_;
  const std::vector<Definition>& definitions_;
  const ParsedExpressions& parsed_;
  ExpressionScope scope_;
  std::string tried_;
  ExpressionValue trial_;
  mutable std::map<std::string, std::optional<ExpressionValue>, std::less<>> known_;
  mutable int depth_ = 0;
  int nesting_ = 0;
};

/// Searches values for a setting that satisfy a rule and break no other one.
class FixSearch {
 public:
  FixSearch(const RuleBook& book, const RuleInput& input, Values& values)
      : book_(book), input_(input), values_(values) {
    for (const auto& rule : book.rules())
      if (violates(rule)) broken_.push_back(&rule);
  }

  /// Settings of the command line come first. Settings of the last resort are omitted when another
  /// one has a fix, unless they are set on the command line.
  std::string fix_for(const Rule& rule) {
    std::vector<std::string> given, others, last;
    if (rule.unused)
      if (std::string fix = reset(rule, values_.own(rule.path)); !fix.empty())
        given.push_back(std::move(fix));
    for (const auto& part : split(rule.fix, ';')) {
      std::string_view candidate = trim(part);
      size_t equals = candidate.find('=');
      const std::string path = values_.own(std::string(candidate.substr(0, equals)));
      if (input_.fixed && input_.fixed(path)) continue;
      std::string fix = equals == std::string_view::npos
                            ? searched(rule, path)
                            : computed(rule, path, candidate.substr(equals + 1));
      if (fix.empty()) continue;
      const Node* node = values_.setting(path);
      const bool typed =
          node && node->loc() && node->loc().source->kind() == SourceKind::command_line;
      (typed                                        ? given
       : path.starts_with(input_.last_resort + ".") ? last
                                                    : others)
          .push_back(std::move(fix));
    }
    given.insert(given.end(), others.begin(), others.end());
    return join(given.empty() ? last : given, ", or ");
  }

 private:
  /// The default of a setting.
  std::string reset(const Rule& rule, const std::string& path) {
    const FieldSpec* field = input_.field(path);
    values_.try_value(path, expression_value(default_value(*field, "")));
    const bool candidates = !violates(rule) && !breaks_another();
    values_.end_trial();
    return candidates ? cat(path, "=", field->default_value) : "";
  }

  std::string computed(const Rule& rule, const std::string& path, std::string_view expression) {
    if (!input_.field(path)) return "";
    auto value = values_.evaluate(expression);
    if (!value) return "";
    if (double* number = std::get_if<double>(&*value)) *number = rounded(*number);
    values_.try_value(path, *value);
    bool candidates = !violates(rule) && !breaks_another();
    values_.end_trial();
    return candidates ? cat(path, "=", to_text(*value)) : "";
  }

  /// Rounds to four digits, to avoid suggestions such as 1.0000000000000002e-06.
  static double rounded(double value) { return std::stod(fmt::format("{:.4g}", value)); }

  /// Values that satisfy all violated rules that this setting may fix, or else only this rule.
  std::string searched(const Rule& rule, const std::string& path) {
    std::vector<const Rule*> all = {&rule};
    for (const Rule* other : broken_)
      if (other != &rule && may_be_fixed_by(*other, path)) all.push_back(other);
    std::string fix = all.size() > 1 ? values_that_satisfy(all, path) : "";
    return fix.empty() ? values_that_satisfy({&rule}, path) : fix;
  }

  bool may_be_fixed_by(const Rule& rule, std::string_view path) const {
    std::vector<std::string> candidates = split(rule.fix, ';');
    return rule.severity == Severity::error &&
           std::any_of(candidates.begin(), candidates.end(), [&](const std::string& candidate) {
             return values_.own(std::string(trim(candidate))) == path;
           });
  }

  std::string values_that_satisfy(const std::vector<const Rule*>& rules, const std::string& path) {
    const FieldSpec* field = input_.field(path);
    auto now = field ? value_now(path) : std::nullopt;
    if (!now) return "";
    std::vector<ExpressionValue> good;
    int trials = 0;
    auto offer = [&](ExpressionValue value) {
      values_.try_value(path, value);
      const bool candidates = std::none_of(rules.begin(), rules.end(),
                                           [&](const Rule* rule) { return violates(*rule); });
      if (candidates && ++trials <= kMaxTrials && !breaks_another())
        good.push_back(std::move(value));
      values_.end_trial();
    };
    const auto* whole = std::get_if<int64_t>(&*now);
    const bool* flag = std::get_if<bool>(&*now);
    if (field->type == FieldType::integer && whole) {
      search_integers(*field, *whole, good, offer);
    } else if (field->type == FieldType::boolean && flag) {
      offer(!*flag);
    } else {
      for (const auto& choice : field->choices)
        if (ExpressionValue(choice) != *now && good.size() < kMaxOffers) offer(choice);
    }
    return good.empty() ? "" : cat(path, "=", listed(good));
  }

  std::optional<ExpressionValue> value_now(const std::string& path) const {
    try {
      const Node* node = values_.setting(path);
      return node ? std::optional(expression_value(*node)) : std::nullopt;
    } catch (const ExpressionError&) {
      return std::nullopt;
    }
  }

  template <class Offer>
  void search_integers(const FieldSpec& field, int64_t now,
                       const std::vector<ExpressionValue>& good, Offer&& offer) {
    auto allowed = [&](int64_t value) {
      auto x = static_cast<double>(value);
      bool above = !field.min || (field.exclusive_min ? x > *field.min : x >= *field.min);
      return above && (!field.max || (field.exclusive_max ? x < *field.max : x <= *field.max));
    };
    for (int64_t step = 1; step <= kSearchSpan && good.size() < kMaxOffers; ++step) {
      int64_t below = 0, above = 0;
      if (!__builtin_sub_overflow(now, step, &below) && allowed(below)) offer(below);
      if (!__builtin_add_overflow(now, step, &above) && allowed(above)) offer(above);
    }
  }

  bool breaks_another() const {
    for (const auto& rule : book_.rules()) {
      if (rule.severity != Severity::error) continue;
      bool was_broken = std::find(broken_.begin(), broken_.end(), &rule) != broken_.end();
      if (!was_broken && violates(rule)) return true;
    }
    return false;
  }

  bool violates(const Rule& rule) const {
    try {
      return values_.violates(rule);
    } catch (const ExpressionError&) {
      return true;
    }
  }

  static std::string listed(std::vector<ExpressionValue>& values) {
    std::sort(values.begin(), values.end());
    std::string out = to_text(values[0]);
    for (size_t i = 1; i < values.size(); ++i)
      out += cat(i + 1 == values.size() ? " or " : ", ", to_text(values[i]));
    return out;
  }

  const RuleBook& book_;
  const RuleInput& input_;
  Values& values_;
  std::vector<const Rule*> broken_;
};

/// "{expression}" replaced by its value, and usual paths by those of the recipe.
std::string filled(std::string_view text, const Values& values) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t open = text.find('{', at), close = text.find('}', open);
    if (open == std::string_view::npos || close == std::string_view::npos)
      return out.append(values.in_own_words(std::string(text.substr(at))));
    out.append(values.in_own_words(std::string(text.substr(at, open - at))));
    auto value = values.evaluate(text.substr(open + 1, close - open - 1));
    out += value ? to_text(*value) : "?";
    at = close + 1;
  }
  return out;
}

/// "0.1 has no effect with scheduler.type=constant".
std::string without_effect(const Rule& rule, const Values& values) {
  const std::string path = values.own(rule.path);
  std::string reason = filled(rule.says, values);
  if (reason.empty()) {
    std::vector<std::string> parts;
    for (const auto& other : values.settings_in(rule.must))
      if (other != path) parts.push_back(cat(other, "=", brief(*values.setting(other), 40)));
    reason = join(parts, " and ");
  }
  return cat(brief(*values.setting(path), 40), " has no effect with ", reason);
}

/// "model.kv_heads = 8 from recipes/model/x.yaml:5:15", for the settings that a violation is about.
std::vector<std::string> origins(const Rule& rule, const Values& values) {
  std::vector<std::string> out;
  for (const auto& usual : names_in(rule.must)) {
    const std::string& name = values.own(usual);
    const Node* node = usual == rule.path ? nullptr : values.setting(name);
    if (!node || !node->loc() || node->loc().source->kind() == SourceKind::built_in ||
        out.size() == 2)
      continue;
    out.push_back(cat(name, " = ", brief(*node, 40), " from ", node->loc().text()));
  }
  return out;
}

}  // namespace

RuleBook::RuleBook(std::vector<Rule> rules, std::vector<Definition> definitions)
    : rules_(std::move(rules)), definitions_(std::move(definitions)) {
  auto add = [&](const char* text) {
    if (!*text || parsed_.contains(text)) return;
    try {
      parsed_.emplace(text, Expression(text));
    } catch (const ExpressionError&) {  // reported by check(), where the rule applies
    }
  };
  for (const Rule& rule : rules_) add(rule.when), add(rule.must);
  for (const Definition& definition : definitions_) add(definition.expression);
}

void RuleBook::check(const RuleInput& input, Report& report) const {
  Values values(input, definitions_, parsed_);
  std::optional<FixSearch> search;
  for (const auto& rule : rules_) {
    try {
      if (!values.violates(rule)) continue;
      const std::string path = values.own(rule.path);
      const Node* node = values.setting(path);
      std::string fix;
      if (input.fixes) {
        if (!search) search.emplace(*this, input, values);
        fix = search->fix_for(rule);
      }
      auto notes = origins(rule, values);
      std::string says = rule.unused ? without_effect(rule, values) : filled(rule.says, values);
      Location where = node ? node->loc() : Location{};
      auto& violation = rule.severity == Severity::error
                            ? report.error(cat("rule ", rule.id), path, where, says)
                            : report.warning(cat("rule ", rule.id), path, where, says);
      if (*rule.why) violation.note(values.in_own_words(rule.why));
      for (auto& note : notes) violation.note(std::move(note));
      violation.fix(std::move(fix));
    } catch (const ExpressionError& error) {
      const std::string path = values.own(rule.path);
      const Node* node = values.setting(path);
      report.error(cat("rule ", rule.id), path, node ? node->loc() : Location{},
                   cat("cannot be checked: ", error.what()));
    }
  }
}

std::vector<const Rule*> RuleBook::about(std::string_view path) const {
  auto mentions = [&](auto&& self, std::string_view expression, int depth) -> bool {
    for (const auto& name : names_in(expression)) {
      if (name == path) return true;
      for (const auto& definition : definitions_)
        if (name == definition.name && depth < kMaxDefinitionDepth &&
            self(self, definition.expression, depth + 1))
          return true;
    }
    return false;
  };
  std::vector<const Rule*> out;
  for (const auto& rule : rules_)
    if (rule.path == path || mentions(mentions, rule.when, 0) || mentions(mentions, rule.must, 0))
      out.push_back(&rule);
  return out;
}

std::vector<std::string> names_in(std::string_view expression) {
  constexpr std::string_view kWords[] = {"and",  "or",   "not",   "in",  "if",
                                         "else", "true", "false", "null"};
  auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; };
  auto inside = [&](char c) {
    return letter(c) || std::isdigit(static_cast<unsigned char>(c)) || c == '.';
  };
  std::vector<std::string> out;
  for (size_t at = 0; at < expression.size();) {
    char c = expression[at];
    if (c == '\'' || c == '"') {
      at = std::min(expression.find(c, at + 1), expression.size() - 1) + 1;
      continue;
    }
    size_t end = at;
    while (end < expression.size() && inside(expression[end])) ++end;
    if (end == at) {
      ++at;
      continue;
    }
    std::string name(expression.substr(at, end - at));
    size_t next = expression.find_first_not_of(' ', end);
    bool call = next != std::string_view::npos && expression[next] == '(';
    bool word = std::find(std::begin(kWords), std::end(kWords), name) != std::end(kWords);
    if (letter(c) && (!call || name.find('.') != std::string::npos) && !word &&
        std::find(out.begin(), out.end(), name) == out.end())
      out.push_back(name);
    at = end;
  }
  return out;
}

}  // namespace mtrain
