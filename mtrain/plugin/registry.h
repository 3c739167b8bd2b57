// The registry: which components exist, by kind and name, and how to make one. First-party
// components are registered by exactly the calls that a stranger's plugin uses. Filled at start by
// PluginHost (plugin_host.h), read-only afterwards.
//
// A kind is an abstract class that says its name and what its makers are given:
//   struct Model {
//     static constexpr std::string_view kKind = "model";
//     using Context = ModelContext;
//     virtual ~Model(); …
//   };
// A component is a class constructible from (const Config&, Kind::Context&).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/config/fields.h"

namespace mtrain {

class MT_API Registry {
 public:
  struct Entry {
    std::string kind, name, doc;
    std::string owner;  // the plugin file that registered it
    Schema schema;
    std::function<void*(const Node& section, void* context)> make;  // returns Kind* as void*
  };

  /// Registers component T (with settings Config) of an abstract Kind. A second one of the same
  /// kind and name is an error naming both owners.
  template <class Kind, class T, Bindable Config>
  void add(std::string name, std::string doc) {
    add_entry({std::string(Kind::kKind), name, doc, owner_, schema_of<Config>(name, doc),
               [](const Node& section, void* context) -> void* {
                 auto config = read_config<Config>(section);
                 std::unique_ptr<Kind> made = std::make_unique<T>(
                     std::as_const(config), *static_cast<typename Kind::Context*>(context));
                 return made.release();
               }});
  }

  /// Makes a component. Throws Error(plugin) with the nearest name and the list when there is none
  /// of that name, and when its constructor throws something that is no mtrain::Error.
  template <class Kind>
  std::unique_ptr<Kind> make(std::string_view name, const Node& section,
                             typename Kind::Context& context) const {
    return std::unique_ptr<Kind>(
        static_cast<Kind*>(make_erased(Kind::kKind, name, section, &context)));
  }

  /// Null when absent.
  const Entry* find(std::string_view kind, std::string_view name) const;
  std::vector<const Entry*> entries() const;
  std::vector<std::string> names(std::string_view kind) const;

  /// Moves every entry of `other` in: all of them, or none and an Error(plugin) that names both
  /// owners of the first clash.
  void take(Registry&& other);

  /// Set by the host around each plugin's registration call.
  void set_owner(std::string owner) { owner_ = std::move(owner); }

 private:
  void add_entry(Entry entry);
  void* make_erased(std::string_view kind, std::string_view name, const Node& section,
                    void* context) const;
  std::map<std::pair<std::string, std::string>, Entry, std::less<>> entries_;
  std::string owner_;
};

}  // namespace mtrain
