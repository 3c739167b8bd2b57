#include "mtrain/recipe/hf_flat_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"

namespace mtrain::hf {

Key::Key(std::string at, const Json& value, bool is_omitted)
    : path(std::move(at)), json(std::make_shared<const Json>(value)), omitted(is_omitted) {}

namespace {

/// The family's name of a key: that of its rule, which may have further names.
std::string name_of(const HfFamily* family, const std::string& key) {
  const HfKey* rule = family ? family->key(key) : nullptr;
  return rule ? rule->name : key;
}

const HfObject* object_of(const HfFamily* family, const std::string& key) {
  if (!family) return nullptr;
  for (const HfObject& object : family->objects)
    if (std::find(object.read.begin(), object.read.end(), key) != object.read.end()) return &object;
  return nullptr;
}

/// Whether objects within this one are objects of the family: "rope_parameters" for
/// "rope_parameters.full_attention".
bool has_objects(const HfFamily* family, const std::string& key) {
  if (!family) return false;
  const auto is_within = [&](const std::string& read) { return read.starts_with(key + "."); };
  return std::any_of(family->objects.begin(), family->objects.end(), [&](const HfObject& object) {
    return std::any_of(object.read.begin(), object.read.end(), is_within);
  });
}

/// Calls `add(name, key)` for a value that is not null, or for those in it if it is an object of
/// the family. `name`: the family's for `path`.
template <class Add>
void visit(const HfFamily* family, const std::string& path, const std::string& name,
           const Json& value, Add& add) {
  if (value.is_null()) return;
  const HfObject* object = value.is_object() ? object_of(family, path) : nullptr;
  if (!object && !(value.is_object() && has_objects(family, path)))
    return add(name, Key(path, value));
  for (const auto& [inner, nested] : value.items())
    visit(family, cat(path, ".", inner), cat(object ? object->name : path, ".", inner), nested,
          add);
}

}  // namespace

FlatKeys flatten(const Json& config, const HfFamily* family,
                 const std::vector<std::string>& ignored) {
  FlatKeys flat;
  auto add = [&](const std::string& key_name, Key key) {
    const std::string name = name_of(family, key_name);
    flat.names.emplace(key.path, name);
    auto [there, added] = flat.keys.emplace(name, key);
    if (added || there->second.value() == key.value()) return;
    auto is_ignored = [&](const Key& k) {
      return std::find(ignored.begin(), ignored.end(), k.path) != ignored.end();
    };
    if (is_ignored(key)) {
      flat.dropped.insert(key.path);
    } else if (is_ignored(there->second)) {
      flat.dropped.insert(there->second.path);
      there->second = std::move(key);
    } else {
      flat.clashes.emplace_back(there->second, std::move(key));
    }
  };
  for (const auto& [key, value] : config.items()) visit(family, key, key, value, add);
  return flat;
}

}  // namespace mtrain::hf
