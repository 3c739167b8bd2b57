#include "mtrain/plugin/registry.h"

#include <utility>

#include "mtrain/base/plugin_call.h"

namespace mtrain {
namespace {

Error unknown_component(std::string_view kind, std::string_view name,
                        const std::vector<std::string>& known) {
  std::vector<std::string> near = nearest(name, known);
  std::string hint = near.empty() ? "" : cat("did you mean '", join(near, "' or '"), "'? ");
  hint += known.empty() ? cat("no ", kind, " is loaded") : cat("loaded: ", join(known, ", "));
  return {ErrorClass::plugin, cat("there is no ", kind, " named '", printable(name, 64), "'"),
          hint};
}

Error failed_component(const Registry::Entry& entry, std::string_view what) {
  return {
      ErrorClass::plugin,
      cat(entry.kind, " '", entry.name, "' of ", entry.owner, " cannot be made: ", printable(what)),
      "this is a fault of the plugin: show this line to its author"};
}

}  // namespace

const Registry::Entry* Registry::find(std::string_view kind, std::string_view name) const {
  auto found = entries_.find(std::pair(std::string(kind), std::string(name)));
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<const Registry::Entry*> Registry::entries() const {
  std::vector<const Entry*> out;
  for (const auto& [key, entry] : entries_) out.push_back(&entry);
  return out;
}

std::vector<std::string> Registry::names(std::string_view kind) const {
  std::vector<std::string> out;
  for (const auto& [key, entry] : entries_)
    if (key.first == kind) out.push_back(key.second);
  return out;
}

void Registry::add_entry(Entry entry) {
  std::pair key(entry.kind, entry.name);
  if (const Entry* before = find(entry.kind, entry.name))
    throw Error(ErrorClass::plugin,
                cat(entry.kind, " '", entry.name, "' is registered twice: by ", before->owner,
                    " and by ", entry.owner),
                "rename one of them, or remove one file");
  entries_.emplace(std::move(key), std::move(entry));
}

void Registry::take(Registry&& other) {
  for (const auto& [key, entry] : other.entries_) {
    const Entry* before = find(entry.kind, entry.name);
    if (before) add_entry(entry);  // throws and names both, before anything was moved
  }
  entries_.merge(other.entries_);
}

void* Registry::make_erased(std::string_view kind, std::string_view name, const Node& section,
                            void* context) const {
  const Entry* entry = find(kind, name);
  if (!entry) throw unknown_component(kind, name, names(kind));
  try {
    PluginCall scope(&entry->make.target_type(), "its constructor");
    return entry->make(section, context);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw failed_component(*entry, error.what());
  } catch (...) {
    throw failed_component(*entry, "its constructor threw something that is not a std::exception");
  }
}

}  // namespace mtrain
