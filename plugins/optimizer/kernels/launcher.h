// Launcher: calls an optimizer's kernels on the backend of an execution context. A value; for the
// rank's own thread.
#pragma once
#include <string_view>

#include "kernels.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain::optimizer_kernels {

class Launcher {
 public:
  /// Throws Error(config) if there are no kernels for the backend. `optimizer`: its name, with
  /// static lifetime.
  Launcher(ExecutionContext& ctx, std::string_view optimizer);
  /// Queues a kernel: launcher(ctx, &Kernels::sgd, SgdArgs{…}).
  template <class Args>
  void operator()(ExecutionContext& ctx, Kernel<Args> Kernels::*kernel, const Args& args) const {
    check((table_->*kernel)(on_device_ ? ctx.stream().native() : &ctx.stream(), args));
  }

 private:
  void check(const char* fault) const;
  std::string_view optimizer_;
  const Kernels* table_;
  bool on_device_;
};

}  // namespace mtrain::optimizer_kernels
