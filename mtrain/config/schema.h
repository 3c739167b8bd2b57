// Checks sections against schemas, and converts schemas to text (the file next to a plugin, JSON
// Schema for editors). Stateless functions over values; safe from any thread.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// An index of all names of settings, for suggestions when a name does not exist.
class MT_API KeyIndex {
 public:
  /// `path` in full ("optimizer.lr"); `old` marks a former or foreign name of the setting `now`.
  void add(std::string path) { entries_.push_back({path, std::move(path)}); }
  void add_old(std::string old, std::string now) {
    entries_.push_back({std::move(old), std::move(now)});
  }
  void add_schema(const Schema& schema, const std::string& prefix);

  /// The settings that `wanted` probably means, best first: a typo of a key, the same key in
  /// another section, an old name.
  std::vector<std::string> suggest(std::string_view wanted, size_t limit = 2) const;

  /// Returns help for certain wrong names; empty for others.
  using Advisor = std::function<std::string(std::string_view wanted)>;
  void set_advisor(Advisor advisor) { advisor_ = std::move(advisor); }
  /// Help for a name that does not exist: the advisor's, else "did you mean …?"; empty when there
  /// is none.
  std::string help(std::string_view wanted) const;

 private:
  struct Entry {
    std::string name, now;
  };
  std::vector<Entry> entries_;
  Advisor advisor_;
};

struct ValidateOptions {
  std::string path;                 // the path of the section: "model"; empty for a root
  const KeyIndex* known = nullptr;  // names for suggestions; null: only those of the schemas
  bool allow_unknown = false;       // ignore keys that no owner defines
  /// The merge order of a value. When two names of one setting are given, the one with the larger
  /// number wins. Without this function only the command line comes after files.
  std::function<int(const Location&)> order;
};

/// Checks a section (a map, or null for an empty one) against the schemas of its owners. Each owner
/// may define any key; a key that no owner defines is an error. Reports every fault. Returns one
/// map per schema with all its settings in the schema's order: canonical values with their
/// locations, and defaults. Faulty settings are omitted.
MT_API std::vector<Node> validate(const Node& section, const std::vector<const Schema*>& schemas,
                                  Report& report, const ValidateOptions& options = {});
/// The same for one schema.
MT_API Node validate(const Node& section, const Schema& schema, Report& report,
                     const ValidateOptions& options = {});

/// The default of a setting, with the location "default of OWNER". REQUIRES: the setting has a
/// default.
MT_API Node default_value(const FieldSpec& spec, const std::string& owner);

/// The text of the schema file next to a plugin. schema_from_json throws Error(plugin) for an
/// invalid text.
MT_API std::string schema_to_json(const Schema& schema);
MT_API Schema schema_from_json(std::string_view text);
/// JSON Schema draft-07 of a section.
MT_API std::string json_schema_of(const Schema& schema);

/// "list of integers", "number", …
MT_API const char* name(FieldType type);
MT_API const char* name(ResumeClass resume);
MT_API const char* name(Fact fact);
/// "alpaca, chatml"; the empty string is shown as "".
MT_API std::string choices_text(const FieldSpec& spec);
/// The allowed values of a setting, in words: "integer >= 1, one of 1, 2, 4".
MT_API std::string describe(const FieldSpec& spec);

}  // namespace mtrain
