// The defaults tree: the files of a composition with their packages, after all choices are applied.
// Used by compose.cc only. An object serves one composition on one thread; it refers to its
// repository, report and request.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/config/compose.h"
#include "mtrain/config/defaults_list.h"
#include "mtrain/config/override.h"
#include "mtrain/config/repository.h"

namespace mtrain {

/// A choice that replaces an entry of a defaults list.
struct GroupChoice {
  DefaultsEntry option;   // its name, options or null
  std::string chosen_by;  // "command line, argument 3" or the file with the override entry
  Location where;
  bool external = false;  // from the command line
  bool removes = false;   // ~group
  bool used = false;
  bool may_be_value = false;  // it names a component if no defaults list has the group
};

struct DefaultsNode {
  DefaultsEntry entry;
  std::string base;  // the group of the containing config
  std::string parent_package;
  const ConfigFile* file = nullptr;
  bool dropped = false;          // removed, null or an optional file that is not there
  bool in_interpolated = false;  // below an interpolated choice
  const DefaultsNode* parent = nullptr;
  std::vector<std::unique_ptr<DefaultsNode>> children;

  std::string group_path() const;
  std::string config_path() const;
  /// The package that receives the file's settings. The package of the entry takes precedence over
  /// that of the file's header.
  std::string package(bool with_header = true) const;
  /// The key by which an override refers to this entry: the group, with its package where that
  /// differs from the default.
  std::string key() const;
};

class DefaultsTree {
 public:
  /// `request`: its functions that look up names supply the help in reports.
  DefaultsTree(ConfigRepository& repository, Report& report, const ComposeRequest& request)
      : repository_(repository), report_(report), request_(request) {}

  /// Adds a choice from the command line: key=option, +key=option, ~key. `may_be_value`: do not
  /// report a fault when no defaults list has the group.
  void choose(const Override& override, bool may_be_value = false);
  /// True when no defaults list has the group of such a choice, so it is the value of a setting.
  bool is_value(const std::string& key) const;
  /// Expands everything below the recipe. Reports options that are not found, missing or unused.
  void build(const ConfigFile* recipe);
  /// The files in the order of merging, with their packages.
  std::vector<std::pair<const ConfigFile*, std::string>> files() const;
  std::vector<DefaultsLine> lines() const;
  const std::map<std::string, std::string>& choices() const { return choices_; }

 private:
  void expand(DefaultsNode& node);
  bool choose_option(DefaultsNode& node);
  bool load(DefaultsNode& node);
  void read_list(DefaultsNode& node);
  void take_overrides(DefaultsNode& node, const std::vector<DefaultsEntry>& entries);
  DefaultsNode& add_child(DefaultsNode& node, const DefaultsEntry& entry);
  void expand_children(DefaultsNode& node);
  void expand_pending();
  bool resolve_name(DefaultsNode& node);
  bool is_cycle(const DefaultsNode& node);
  void remember(DefaultsNode& node);
  void report_chosen_twice(const std::string& key, const DefaultsNode& later,
                           const DefaultsNode& earlier);
  void not_found(const DefaultsNode& node);
  void no_option(Diagnostic& fault, const std::string& group, const std::string& wanted,
                 const std::string& sign, bool typed);
  std::string choice_of(const std::string& group, const std::string& name,
                        const std::string& sign) const;
  void must_choose(const DefaultsNode& node);
  /// Settings of earlier files that an added option replaces ("peft.rank=4"), and how to write the
  /// choice so that they stay.
  struct Replaced {
    std::vector<std::string> settings;
    std::string instead;
  };
  Node section_before(const ConfigFile& option, const std::string& package) const;
  Replaced replaced_by(const ConfigFile& option, const std::string& group,
                       const std::string& package, const std::string& name);
  Replaced replaced_by_adding(const GroupChoice& choice, const std::string& key);
  void report_unused();
  void report_replaced();
  void collect(const DefaultsNode& node,
               std::vector<std::pair<const ConfigFile*, std::string>>& out) const;

  ConfigRepository& repository_;
  Report& report_;
  const ComposeRequest& request_;
  std::unique_ptr<DefaultsNode> root_;
  std::map<std::string, GroupChoice> chosen_;   // by key; the command line wins, then outer files
  std::vector<DefaultsEntry> appended_;         // +group=option
  std::vector<DefaultsNode*> pending_;          // entries whose option is interpolated
  std::map<std::string, std::string> choices_;  // by key
  std::map<std::string, const DefaultsNode*> choosing_;  // the node of each of these choices
  std::vector<std::string> group_keys_;                  // the keys of all group entries
};

}  // namespace mtrain
