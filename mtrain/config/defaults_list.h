// Parses the entries of a `defaults:` list (https://hydra.cc/docs/advanced/defaults_list/);
// defaults_tree.h resolves them. Stateless functions; safe from any thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct DefaultsEntry {
  enum class Kind : uint8_t { self, config, group, include };
  Kind kind = Kind::config;
  bool absolute = false, optional = false, overrides = false;
  bool added = false;                // added by +group=option on the command line
  std::string group;                 // "server/db"; for a config, the folders before its name
  std::optional<std::string> name;   // the option; nothing for null
  std::vector<std::string> options;  // the items of [a, b]
  bool is_list = false;
  std::optional<std::string> package;  // after the '@'
  Location where;

  bool is_missing() const { return name == "???"; }
  bool is_interpolated() const { return name && name->find("${") != std::string::npos; }
};

/// Reads a list. Appends `_self_` when it is absent and the list has an entry that is not an
/// override. Reports faults.
MT_API std::vector<DefaultsEntry> parse_defaults(const Node& list, Report& report);
/// Sets an entry's option from a value: a name, null or a list of names. False when the value is
/// not an option.
MT_API bool set_option(DefaultsEntry& entry, const Node& value);
/// Turns "foo: bar/baz" into "foo/bar: baz".
MT_API void move_folders_to_group(DefaultsEntry& entry);
/// Splits "group/path@package". False when either part is malformed.
MT_API bool set_group(DefaultsEntry& entry, std::string_view key);

}  // namespace mtrain
