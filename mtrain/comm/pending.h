// Pending: a call that was started and not yet waited for. Move-only; for the thread of the rank
// that started it. The buffers belong to the call until wait() has returned or done() has returned
// true; for device memory, work that is queued on the context's stream after that may use them. A
// rank may wait for calls in any order, and may start and wait for other calls, of any group, in
// the meantime.
#pragma once
#include <memory>
#include <utility>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API Pending {
 public:
  /// An implementation's state of a started call. After done() has returned true, or wait() has
  /// returned or thrown, the call's buffers are no longer accessed.
  class MT_API Work {
   public:
    virtual ~Work();
    /// Makes progress without blocking; true if the call is finished. Throws like wait().
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
  /// An unfinished call that is destroyed, for example by an exception, is dropped: its peers get
  /// Error(peer).
  ~Pending();

  /// True if the call is finished and the caller may use its buffers. Throws like wait().
  bool done();
  /// Returns when the call is finished. Throws Error(peer) if a rank failed, if the ranks' calls do
  /// not match, and after the communicator's time limit. A second call does nothing.
  void wait();

 private:
  void release() noexcept;
  std::unique_ptr<Work> work_;
};

}  // namespace mtrain
