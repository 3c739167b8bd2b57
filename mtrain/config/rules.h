// Rules between settings, as data: the condition that must hold, the reason, and which settings to
// change. Conditions are expressions (expression.h) over the resolved settings, named definitions,
// and facts about the environment such as the number of ranks. A rule does not apply when it names
// a setting that the recipe does not have, or a fact that is not given. So one table covers all
// models, and a check without the size of the cluster still applies the other rules.
//
// A RuleBook refers to the tables that it was made from and must not outlive them. Immutable; safe
// from any thread.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mtrain/config/expression.h"
#include "mtrain/config/fields.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct Rule {
  const char* id;    // "tp-divides-heads"
  const char* path;  // the setting whose location the violation shows
  const char* when;  // the rule applies where this holds; "": always
  const char* must;  // the condition that must hold
  const char* says;  // the message; "{expression}" is replaced by its value
  const char* why;   // the reason
  /// Possible fixes, separated by "; ": "dist.tp" (a search finds values) or
  /// "scheduler.min_lr=optimizer.lr / 10" (the value of an expression). Only fixes that satisfy
  /// this rule and break no other one are offered.
  const char* fix;
  Severity severity = Severity::error;
  /// A rule about a setting without effect: `must` is the condition under which the setting at
  /// `path` has one. Violated where the setting is given with another value than its default and
  /// the condition is false. The message comes from the condition, unless `says` names the reason;
  /// the first fix is the default.
  bool unused = false;
};

/// A name that rules may use for an expression, e.g. for a setting where 0 means "the same as
/// another setting".
struct Definition {
  const char* name;
  const char* expression;
};

struct RuleInput {
  const Node* root = nullptr;  // the resolved settings without faulty ones
  std::map<std::string, ExpressionValue>
      facts;  // "gpu.name"; they do not change for candidate values
  /// The schema of a setting, which limits the values that a fix may try; null when there is none.
  std::function<const FieldSpec*(const std::string& path)> field;
  /// The tables use the usual path of a setting. Where the recipe has the setting under another
  /// path, maps the usual one to it: "model.layers" → "model.blocks". Violations show the latter.
  std::map<std::string, std::string> renamed = {};
  std::string last_resort =
      {};  // a section that a fix changes only when no other fix works: "model"
  /// True for a setting that fixes leave as it is, such as one that config.json decides. Empty:
  /// none.
  std::function<bool(const std::string& path)> fixed = {};
  bool fixes = true;  // search for values that fix a violation; this search takes most of the time
  /// True for the location of a value that the user wrote, for rules about settings without effect.
  /// Empty: any location but that of a default.
  std::function<bool(const Location& where)> given = {};
  /// True for the location of a value of an option of a config group that the command line chose
  /// (peft=none): as if the value had been typed there. Empty: none.
  std::function<bool(const Location& where)> chosen = {};
};

/// By their text. A text that is no expression is not among them.
using ParsedExpressions = std::unordered_map<std::string_view, Expression>;

class MT_API RuleBook {
 public:
  RuleBook(std::vector<Rule> rules, std::vector<Definition> definitions);

  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<Definition>& definitions() const { return definitions_; }
  /// Reports every violated rule, code "rule <id>".
  void check(const RuleInput& input, Report& report) const;
  /// The rules that use a setting, directly or through definitions.
  std::vector<const Rule*> about(std::string_view path) const;

 private:
  std::vector<Rule> rules_;
  std::vector<Definition> definitions_;
  ParsedExpressions parsed_;  // of rules and definitions
};

/// The names, dotted or plain, that an expression uses, each once, in order.
MT_API std::vector<std::string> names_in(std::string_view expression);

}  // namespace mtrain
