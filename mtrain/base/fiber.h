// Fiber: a second flow of control on one thread, with its own stack (a coroutine). The owner starts
// and resumes it; its body gives control back by yield(). The two never run at the same time. They
// share the thread's thread-local state, except for the current PluginCall, which each flow has
// separately. For one thread; neither copyable nor movable.
#pragma once
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

#include "mtrain/base/export.h"

namespace mtrain {

/// Thrown to unwind the stack of a fiber that will not be resumed; not an error.
struct FiberUnwinding {};

class PluginCall;

class MT_API Fiber {
 public:
  /// Reserves address space for the stack, with a guard page below it; only the used part takes
  /// physical memory. Throws std::bad_alloc.
  explicit Fiber(size_t stack_bytes = size_t{8} << 20);
  /// REQUIRES: !under_way().
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs `body` until its first yield() or its end. Rethrows here what the body throws. REQUIRES:
  /// !under_way().
  void start(std::function<void()> body);
  /// Continues the body after its last yield(). Rethrows here what the body throws. REQUIRES:
  /// under_way().
  void resume();
  bool under_way() const { return under_way_; }
  /// Called by the body: returns control to the caller of start() or resume().
  void yield();

 private:
  struct Context;
  static void enter(unsigned high, unsigned low);
  void go();
  void leave();
  void body_and_leave() noexcept;

  std::unique_ptr<Context> context_;
  std::function<void()> body_;
  std::exception_ptr thrown_;
  const PluginCall* plugin_call_ = nullptr;  // the body's PluginCall while the body is suspended
  bool under_way_ = false;
};

}  // namespace mtrain
