// Cross-field rules, as data: what must hold between settings, why, and which of them to change.
// Conditions are expressions (expression.h) over the resolved settings, named definitions and facts
// from outside such as the number of ranks. A rule that names a setting this recipe does not have,
// or a fact nobody gave, does not apply: so a table may speak of all models at once, and a check
// without a cluster's size still checks the rest.
//
// A RuleBook refers to the tables it was made of and must not outlive them. Immutable: any thread.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/expression.h"
#include "mtrain/config/fields.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct Rule {
  const char* id;    // "tp-divides-heads"
  const char* path;  // the setting at whose place the violation is shown
  const char* when;  // the rule applies where this holds; "": everywhere
  const char* must;  // what has to hold
  const char* says;  // what is wrong; "{expression}" is replaced by its value
  const char* why;   // the reason
  /// What may mend it, "; " between alternatives: "dist.tp" (values are searched for) or
  /// "scheduler.min_lr=optimizer.lr / 10" (the value of an expression). Offered is only what does
  /// mend it and breaks no other rule.
  const char* mend;
  Severity severity = Severity::error;
};

/// A name that rules may use for an expression: settings where 0 means "as another one".
struct Definition {
  const char* name;
  const char* expression;
};

struct RuleInput {
  const Node* root = nullptr;  // the resolved settings; faulty ones left out
  std::map<std::string, ExpressionValue>
      facts;  // "gpu.name"; for a candidate value they stay as they are
  /// The schema of a setting, for the values that a mend may try; null when there is none.
  std::function<const FieldSpec*(const std::string& path)> field;
  /// Settings that the tables call by their usual path and this recipe by another one:
  /// "model.layers" → "model.blocks". Texts of violations show the recipe's own.
  std::map<std::string, std::string> renamed = {};
  std::string last_resort =
      {};             // a section that a mend changes only where nothing else mends: "model"
  bool fixes = true;  // search for values that mend what is violated: most of the time that a
                      // violation takes
};

class MT_API RuleBook {
 public:
  RuleBook(std::vector<Rule> rules, std::vector<Definition> definitions)
      : rules_(std::move(rules)), definitions_(std::move(definitions)) {}

  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<Definition>& definitions() const { return definitions_; }
  /// Reports every violated rule, code "rule <id>".
  void check(const RuleInput& input, Report& report) const;
  /// The rules that a setting takes part in, directly or through definitions.
  std::vector<const Rule*> about(std::string_view path) const;

 private:
  std::vector<Rule> rules_;
  std::vector<Definition> definitions_;
};

/// The dotted and plain names that an expression uses, each once, in order.
MT_API std::vector<std::string> names_in(std::string_view expression);

}  // namespace mtrain
