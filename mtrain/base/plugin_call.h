// Tracks which plugin's code a thread runs. Core calls components only through call_plugin(), so an
// exception or crash in a plugin is reported with the plugin's name and the call, and the process
// ends with ErrorClass::plugin. A call costs two stores to a thread-local variable. A component
// belongs to the file that defines its class; components of the core library belong to no plugin.
// Thread-safe.
#pragma once
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "mtrain/base/export.h"

namespace mtrain {

/// A plugin file that stays mapped until the process ends.
struct PluginCode {
  std::string title;  // "optimizer plugin 'lion'"
  std::string path;
};

/// Registers a plugin before its first call. `inside` is any address of its code or data.
MT_API void register_plugin_code(PluginCode code, const void* inside);
/// The plugin whose file is mapped at this address; null if there is none. Async-signal-safe.
MT_API const PluginCode* plugin_at(const void* address);

/// Marks that this thread runs plugin code, until the object is destroyed or a nested PluginCall
/// begins. Scopes nest.
class MT_API PluginCall {
 public:
  /// `call` is shown to the user: "update()". `call` and the code at `inside` must outlive the
  /// scope.
  PluginCall(const void* inside, const char* call)
      : inside_(inside), call_(call), outer_(exchange_current(this)) {}
  ~PluginCall() { exchange_current(outer_); }
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;

  const PluginCode* plugin() const { return plugin_at(inside_); }
  const char* call() const { return call_; }

  /// The innermost call of this thread; null outside of any call. Async-signal-safe.
  static const PluginCall* current();
  /// Makes `call` (may be null) the current call of this thread and returns the previous one. For
  /// code that switches stacks, or that works for another thread which waits for it.
  static const PluginCall* exchange_current(const PluginCall* call);

 private:
  const void* inside_;
  const char* call_;
  const PluginCall* outer_;
};

/// Rethrows the exception that is being handled. If plugin code threw it and it is not an
/// mtrain::Error, it becomes Error(plugin) with the names of plugin and call. Exceptions that the
/// plugin does not cause (no memory, no threads) pass unchanged.
[[noreturn]] MT_API void rethrow_from_plugin(const void* inside, const char* call);

/// Returns f(), which calls a member of `component`.
template <class Component, class F>
decltype(auto) call_plugin(const Component& component, const char* call, F&& f) {
  static_assert(std::is_polymorphic_v<Component>);
  const void* inside = &typeid(component);  // an address in the file that defines the class
  try {
    PluginCall scope(inside, call);
    return std::forward<F>(f)();
  } catch (...) {
    rethrow_from_plugin(inside, call);
  }
}

}  // namespace mtrain
