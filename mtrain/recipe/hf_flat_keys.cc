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
  for (const auto& [key, value] : config.items()) {
    if (value.is_null()) continue;
    const HfObject* object = value.is_object() ? object_of(family, key) : nullptr;
    if (!object) {
      add(key, {key, value});
      continue;
    }
    for (const auto& [inner, nested] : value.items())
      if (!nested.is_null()) add(cat(object->name, ".", inner), {cat(key, ".", inner), nested});
  }
  return flat;
}

}  // namespace mtrain::hf
