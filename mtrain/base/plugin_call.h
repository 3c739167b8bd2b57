// Which plugin's code a thread is in. Core makes each call of a component through call_plugin(), so
// that an exception or a crash of a plugin is reported with its name and the call, and the process
// ends with ErrorClass::plugin. A call costs two stores to a thread-local variable. Components are
// attributed by the file that defines their class: those of the core library are nobody's plugin.
// Thread-safe.
#pragma once
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "mtrain/base/export.h"

namespace mtrain {

/// A plugin file that is mapped, for as long as the process lives.
struct PluginCode {
  std::string title;  // "optimizer plugin 'lion'"
  std::string path;
};

/// To be called for each plugin before its first call. `inside` is any address of its code or data.
MT_API void register_plugin_code(PluginCode code, const void* inside);
/// The plugin whose file is mapped at this address; null: none. Async-signal-safe.
MT_API const PluginCode* plugin_at(const void* address);

/// Marks that this thread runs plugin code, until it is destroyed or another begins. Scopes nest.
class MT_API PluginCall {
 public:
  /// `call` is shown to the user: "update()". It and what is at `inside` outlive the scope.
  PluginCall(const void* inside, const char* call)
      : inside_(inside), call_(call), outer_(exchange_current(this)) {}
  ~PluginCall() { exchange_current(outer_); }
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;

  const PluginCode* plugin() const { return plugin_at(inside_); }
  const char* call() const { return call_; }

  /// The innermost call of this thread; null outside of all. Async-signal-safe.
  static const PluginCall* current();
  /// Makes `call` (or null) this thread's and returns what was: for those who switch stacks, or
  /// work on behalf of another thread that waits for them.
  static const PluginCall* exchange_current(const PluginCall* call);

 private:
  const void* inside_;
  const char* call_;
  const PluginCall* outer_;
};

/// Rethrows the exception being handled. Where it came out of a plugin's code as something else
/// than an mtrain::Error, as Error(plugin) with the names of plugin and call. What is not the
/// plugin's passes unchanged: the end of memory or of threads.
[[noreturn]] MT_API void rethrow_from_plugin(const void* inside, const char* call);

/// Returns f(), which calls `component`.
template <class Component, class F>
decltype(auto) call_plugin(const Component& component, const char* call, F&& f) {
  static_assert(std::is_polymorphic_v<Component>);
  const void* inside = &typeid(component);  // lies in the file that defines the class
  try {
    PluginCall scope(inside, call);
    return std::forward<F>(f)();
  } catch (...) {
    rethrow_from_plugin(inside, call);
  }
}

}  // namespace mtrain
