// A backend: one kind of device ("cpu", "cuda"), its memory, streams and kernels. Lives until the
// process ends. Backend methods are thread-safe; a Stream is for one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"
#include "mtrain/tensor/kernel_table.h"

namespace mtrain {

class Profile;

struct Device {
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// The devices that a backend finds on this machine. If there are none, `reason` explains why in
/// one sentence.
struct Probe {
  int devices = 0;
  std::string reason;
};

/// Whether a backend's devices multiply bf16 faster than fp32, and the reason as a clause: "this
/// CPU has no bf16 arithmetic".
struct Bf16Products {
  bool fast = true;
  std::string reason;
};

/// An ordered queue of work on one device. The CPU's stream executes work immediately.
class MT_API Stream {
 public:
  virtual ~Stream();
  /// Returns when all queued work is done.
  virtual void synchronize() {}
  /// The device library's handle of the queue, for other users of that library, such as a
  /// communicator. All work submitted so far is in the queue when it is returned. Valid until more
  /// work is submitted to the stream. Null if there is none.
  virtual void* native() { return nullptr; }
  /// Begins a recording: the work up to end_recording() is similar to that of the previous
  /// recording, as in training steps. A stream may collect such work and submit it in pieces that
  /// it caches from one recording to the next (CUDA graphs). Only the time differs; all work is
  /// submitted when end_recording() returns. REQUIRES: while a stream records, other streams of its
  /// backend, except those of copy_stream(), are used only by the same thread.
  virtual void begin_recording() {}
  /// Statistics of a recording: submitted pieces, and how many of them were newly built.
  struct Recorded {
    int64_t pieces = 0, made = 0;
  };
  virtual Recorded end_recording() { return {}; }
  /// Where recording kernels note their calls (profile.h); null: nowhere. Not owned.
  Profile* profile() const { return profile_; }
  void set_profile(Profile* profile) { profile_ = profile; }

 private:
  Profile* profile_ = nullptr;
};

class MT_API Backend {
 public:
  virtual ~Backend();
  virtual std::string_view name() const = 0;
  virtual Probe probe() const = 0;
  /// Decides what mixed_precision.dtype=auto means: bf16 if it is the faster type, otherwise fp32.
  /// May be called before any memory or stream exists, and without a device; the first device
  /// stands for all of them.
  virtual Bf16Products bf16_products() const;
  /// Returns at least `bytes` of uninitialised memory, aligned to 64. Throws Error(config) that
  /// names the requested and the free bytes.
  virtual void* allocate(Device device, size_t bytes) = 0;
  virtual void deallocate(Device device, void* data, size_t bytes) = 0;
  /// Estimate of the bytes that can be allocated now.
  virtual size_t free_memory(Device) const { return std::numeric_limits<size_t>::max(); }
  /// Creates a stream for kernels and copies.
  virtual std::unique_ptr<Stream> stream(Device device) = 0;
  /// A stream only for copy(), separate from the streams of kernels. The allocator's reuse of
  /// memory is not ordered against it: the caller must keep the memory alive until the copies are
  /// complete. Create it on the thread that uses it.
  virtual std::unique_ptr<Stream> copy_stream(Device device) { return stream(device); }
  virtual const KernelTable& kernels() const = 0;
  /// False: each tensor gets its own allocation of exactly its size, which is freed at once (for
  /// checking backends).
  virtual bool pooled() const { return true; }
  /// False: kernels do nothing, and values are meaningless (planning.h).
  virtual bool computes() const { return true; }
  /// Whether the host may read and write its memory directly. False: the host accesses it only
  /// through copy().
  virtual bool host_memory() const { return true; }
  /// Host <-> device and device <-> device copies, ordered on the stream. On return, a copy to the
  /// host is complete, and the memory that a copy from the host reads may be changed.
  virtual void copy(Stream& stream, void* to, const void* from, size_t bytes) = 0;
  virtual void fill_zero(Stream& stream, void* data, size_t bytes) = 0;
};

}  // namespace mtrain
