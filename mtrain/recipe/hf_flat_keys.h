// The keys of config.json, also those in objects, by the names that a family's file gives them.
// Values; stateless functions.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/recipe/hf_families.h"
#include "mtrain/recipe/hf_json.h"

namespace mtrain::hf {

/// A key of config.json.
struct Key {
  Key(std::string path, const Json& value, bool omitted = false);
  const Json& value() const { return *json; }
  std::string path;  // the path in config.json: "rope_scaling.factor"
  std::shared_ptr<const Json> json;
  bool omitted = false;  // not in config.json: the value is the config class's default
};

/// The keys of config.json that are not null, by their names in the family.
struct FlatKeys {
  std::map<std::string, Key> keys;
  std::map<std::string, std::string> names;  // by path: also of keys that another one replaces
  std::set<std::string> dropped;  // paths of keys that are not used, since they are ignored
  std::vector<std::pair<Key, Key>> clashes;  // keys for the same setting with different values
};

/// The keys by their names in the family. If two keys of one name differ, one in `ignored` is not
/// used.
FlatKeys flatten(const Json& config, const HfFamily* family,
                 const std::vector<std::string>& ignored);

}  // namespace mtrain::hf
