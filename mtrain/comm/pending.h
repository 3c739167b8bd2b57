// Pending: a collective that was started and not yet waited for. Move-only; for the thread of the
// rank that started it. The buffers of the call belong to the collective until wait() returned or
// done() was true; for device memory, that is in the order of the run's stream: what is queued from
// then on may use them. Calls may be waited for in any order, and a rank need not wait for one
// before it starts or waits for others, of any group.
#pragma once
#include <memory>
#include <utility>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API Pending {
 public:
  /// What an implementation keeps of a started call. After done() was true or wait() returned or
  /// threw, nobody touches the call's buffers any more.
  class MT_API Work {
   public:
    virtual ~Work();
    /// Makes what progress it can without blocking. Throws as wait() does.
    virtual bool done() = 0;
    virtual void wait() = 0;
    /// The call will never be waited for: makes its buffers safe to free without waiting for peers,
    /// and ends the job.
    virtual void drop() noexcept = 0;
  };

  Pending() = default;  // finished already
  explicit Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  /// A call that is destroyed unfinished, as when an exception passes by, is dropped: its peers get
  /// a peer error.
  ~Pending();

  /// True once the call is finished and its buffers are the caller's. Throws like wait().
  bool done();
  /// Returns once the call is finished. Throws Error(peer) when a rank failed, when ranks disagree
  /// on the call, and after the communicator's time limit. Does nothing the second time.
  void wait();

 private:
  void release() noexcept;
  std::unique_ptr<Work> work_;
};

}  // namespace mtrain
