#include "mtrain/pipeline/alternating_tasks.h"

#include <utility>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

/// The fields of an ExecutionContext that belong to the current task. Saved and restored when the
/// tasks switch.
class TaskState {
 public:
  explicit TaskState(ExecutionContext& ctx)
      : step_(ctx.step),
        first_token_(ctx.first_token),
        own_tokens_(ctx.own_tokens),
        training_(ctx.training),
        grad_enabled_(ctx.grad_enabled),
        backwards_(ctx.backwards),
        use_(ctx.memory().use()) {}
  void restore(ExecutionContext& ctx) const {
    ctx.step = step_, ctx.first_token = first_token_, ctx.own_tokens = own_tokens_;
    ctx.training = training_, ctx.grad_enabled = grad_enabled_, ctx.backwards = backwards_;
    ctx.memory().set_use(use_);
  }

 private:
  uint64_t step_;
  int64_t first_token_;
  std::shared_ptr<const std::vector<RowRange>> own_tokens_;
  bool training_, grad_enabled_;
  int64_t backwards_;
  MemoryUse use_;
};

}  // namespace

void AlternatingTasks::run(std::function<void()>& pause, const std::function<void()>& first,
                           const std::function<void()>& second) {
  MT_CHECK(!pause && !ctx_.created_storages,
           "overlapped tasks cannot be nested, and cannot run while activations are offloaded");
  bool unwinding = false, in_second = true;
  auto go = [&](auto&& enter) {  // from the first task to the second and back
    TaskState here(ctx_);
    in_second = true;
    try {
      enter();
    } catch (...) {
      in_second = false;
      here.restore(ctx_);
      throw;
    }
    in_second = false;
    here.restore(ctx_);
  };
  pause = [&] {
    if (in_second) {
      TaskState here(ctx_);
      fiber_.yield();
      here.restore(ctx_);
      if (unwinding) throw FiberUnwinding{};
    } else if (fiber_.under_way()) {
      go([&] { fiber_.resume(); });
    }
  };
  std::exception_ptr thrown;
  try {
    go([&] { fiber_.start(second); });
    first();
    while (fiber_.under_way()) go([&] { fiber_.resume(); });
  } catch (...) {
    thrown = std::current_exception();
  }
  unwinding = true;
  while (fiber_.under_way()) {
    try {
      go([&] { fiber_.resume(); });
    } catch (const FiberUnwinding&) {
    } catch (...) {  // thrown by the unwinding; the first exception is the one to report
    }
  }
  pause = nullptr;
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace mtrain
