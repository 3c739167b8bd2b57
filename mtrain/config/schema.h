// Schemas at work: checking a section against them, and their text forms (the file beside a plugin,
// JSON Schema for editors). Stateless functions over values.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// The names that exist, for finding what a wrong one was meant to be.
class MT_API KeyIndex {
 public:
  /// `path` in full ("optimizer.lr"); `old` marks a former or foreign name of the setting `now`.
  void add(std::string path) { entries_.push_back({path, std::move(path)}); }
  void add_old(std::string old, std::string now) {
    entries_.push_back({std::move(old), std::move(now)});
  }
  void add_schema(const Schema& schema, const std::string& prefix);

  /// The likely settings meant by `wanted`, best first: a typo of a key, the same key in another
  /// section, an old name.
  std::vector<std::string> suggest(std::string_view wanted, size_t limit = 2) const;

  /// Knows what to do about some wrong names; empty for others.
  using Advisor = std::function<std::string(std::string_view wanted)>;
  void set_advisor(Advisor advisor) { advisor_ = std::move(advisor); }
  /// What to do about a name that does not exist: what the advisor says, or "did you mean …?";
  /// empty: nothing is known.
  std::string help(std::string_view wanted) const;

 private:
  struct Entry {
    std::string name, now;
  };
  std::vector<Entry> entries_;
  Advisor advisor_;
};

struct ValidateOptions {
  std::string path;                 // where the section is: "model"; empty for a root
  const KeyIndex* known = nullptr;  // further names for suggestions; null: only the schemas' own
  bool allow_unknown = false;       // leave keys that no owner names alone
  /// When two names of one setting are given, the one that was merged later counts: the larger
  /// figure. Without it only the command line comes after files.
  std::function<int(const Location&)> order;
};

/// Checks a section (a map, or null for an empty one) against the schemas of its owners, each of
/// which may name any of its keys; a key that no owner names is an error. Reports every fault.
/// Returns one map per schema that holds all its settings in the schema's order: canonical values
/// with their places, defaults filled in. Faulty settings are left out.
MT_API std::vector<Node> validate(const Node& section, const std::vector<const Schema*>& schemas,
                                  Report& report, const ValidateOptions& options = {});
/// The same for one schema.
MT_API Node validate(const Node& section, const Schema& schema, Report& report,
                     const ValidateOptions& options = {});

/// The default of a setting, placed at "default of OWNER". REQUIRES: it is not required.
MT_API Node default_value(const FieldSpec& spec, const std::string& owner);

/// The text that stands beside a plugin. schema_from_json throws Error(plugin) for anything that is
/// no such text.
MT_API std::string schema_to_json(const Schema& schema);
MT_API Schema schema_from_json(std::string_view text);
/// JSON Schema draft-07 of a section.
MT_API std::string json_schema_of(const Schema& schema);

/// "list of integers", "number", …
MT_API const char* name(FieldType type);
MT_API const char* name(ResumeClass resume);
MT_API const char* name(Fact fact);
/// "alpaca, chatml", the empty text as "".
MT_API std::string choices_text(const FieldSpec& spec);
/// What a setting may be, in words: "integer >= 1, one of 1, 2, 4".
MT_API std::string describe(const FieldSpec& spec);

}  // namespace mtrain
