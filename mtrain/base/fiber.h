// Fiber: a second flow of control on one thread, with a stack of its own. Whoever owns it says when
// it goes on, and it says when it stops; nothing runs at the same time. Thread-local state is the
// thread's, but for the PluginCall, which is the flow's. For one thread; not to be moved.
#pragma once
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

#include "mtrain/base/export.h"

namespace mtrain {

/// Thrown to unwind a flow of control that will not go on; no error.
struct FiberUnwinding {};

class PluginCall;

class MT_API Fiber {
 public:
  /// Takes address space for a stack, of which only what is used takes memory, with a page below it
  /// that may not be touched. Throws std::bad_alloc.
  explicit Fiber(size_t stack_bytes = size_t{8} << 20);
  /// REQUIRES: nothing is under way.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Begins `body`, up to its first yield() or its end. What it throws is thrown here. REQUIRES:
  /// nothing is under way.
  void start(std::function<void()> body);
  /// Goes on behind the last yield(). What the body throws is thrown here. REQUIRES: under_way().
  void resume();
  bool under_way() const { return under_way_; }
  /// From within the body: back to whoever started or resumed it.
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
  const PluginCall* plugin_call_ = nullptr;  // the body's, while it does not run
  bool under_way_ = false;
};

}  // namespace mtrain
