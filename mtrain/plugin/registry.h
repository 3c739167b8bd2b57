// The registry: the available components, by kind and name, and their factories. First-party
// components are registered by the same calls as those of external plugins. PluginHost
// (plugin_host.h) fills it from one thread at start; afterwards it is read-only, and const members
// are thread-safe.
//
// A kind is an abstract class that defines its name and the context for construction:
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

  /// Registers component T (with settings Config) of an abstract Kind. A second component of the
  /// same kind and name is an error that names both owners.
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

  /// Creates a component; the caller owns it. Throws Error(plugin) with the nearest name and the
  /// list of names if there is none of that name, and if its constructor throws anything other than
  /// mtrain::Error.
  template <class Kind>
  std::unique_ptr<Kind> make(std::string_view name, const Node& section,
                             typename Kind::Context& context) const {
    return std::unique_ptr<Kind>(
        static_cast<Kind*>(make_erased(Kind::kKind, name, section, &context)));
  }

  /// Null if absent.
  const Entry* find(std::string_view kind, std::string_view name) const;
  std::vector<const Entry*> entries() const;
  std::vector<std::string> names(std::string_view kind) const;

  /// Moves every entry of `other` into this registry: all of them, or none and an Error(plugin)
  /// that names both owners of the first conflict.
  void take(Registry&& other);

  /// The host sets it around each plugin's registration call.
  void set_owner(std::string owner) { owner_ = std::move(owner); }

 private:
  void add_entry(Entry entry);
  void* make_erased(std::string_view kind, std::string_view name, const Node& section,
                    void* context) const;
  std::map<std::pair<std::string, std::string>, Entry, std::less<>> entries_;
  std::string owner_;
};

}  // namespace mtrain
