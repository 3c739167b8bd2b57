// A backend: one device kind ("cpu", "cuda"), its memory, streams and kernels. Lives until the
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

/// What a backend finds on this machine. No devices: `reason` says why in one sentence.
struct Probe {
  int devices = 0;
  std::string reason;
};

/// Whether a backend's devices multiply bf16 faster than fp32, and why, as half a sentence: "this
/// CPU has no bf16 arithmetic".
struct Bf16Products {
  bool fast = true;
  std::string reason;
};

/// An ordered queue of work on one device. The CPU's runs work at once.
class MT_API Stream {
 public:
  virtual ~Stream();
  /// Returns when all queued work is done.
  virtual void synchronize() {}
  /// The device library's handle of the queue, with all that was given to it so far behind it, for
  /// others who know the library, such as a communicator. Good until the stream is given more work.
  /// Null where there is none.
  virtual void* native() { return nullptr; }
  /// From here to end_recording() comes work that is much like that between the two before, as a
  /// step of training is. A stream may gather such work and hand it to the device in pieces that it
  /// remembers from one recording to the next; nobody sees a difference but in time, and all is
  /// handed over when end_recording() returns. REQUIRES: while a stream records, other streams of
  /// its backend, but those of copy_stream(), are used by the same thread only.
  virtual void begin_recording() {}
  /// What a recording took: pieces that were handed over, and how many of them had to be made anew.
  struct Recorded {
    int64_t pieces = 0, made = 0;
  };
  virtual Recorded end_recording() { return {}; }
  /// Where recording kernels note their calls (profile.h); null: nowhere.
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
  /// Decides what mixed_precision.dtype=auto takes: bf16 where it is the faster type, otherwise
  /// fp32. Asked before memory or a stream is, also where there is no device; the first device
  /// stands for all.
  virtual Bf16Products bf16_products() const;
  /// Returns memory of at least `bytes` aligned to 64, uninitialised. Throws Error(config) naming
  /// need and free.
  virtual void* allocate(Device device, size_t bytes) = 0;
  virtual void deallocate(Device device, void* data, size_t bytes) = 0;
  /// Bytes that can be allocated now, as far as anyone knows.
  virtual size_t free_memory(Device) const { return std::numeric_limits<size_t>::max(); }
  virtual std::unique_ptr<Stream> stream(Device device) = 0;
  /// A stream for copy() alone, beside those that kernels run on. It takes no part in the order in
  /// which memory is given back and used again: whoever copies holds that memory until the copies
  /// are through. To be made on the thread that uses it.
  virtual std::unique_ptr<Stream> copy_stream(Device device) { return stream(device); }
  virtual const KernelTable& kernels() const = 0;
  /// False: tensors get memory of their own, exactly as large as they are, and it goes back at once
  /// (checking backends).
  virtual bool pooled() const { return true; }
  /// False: kernels do nothing, so that values mean nothing (planning.h).
  virtual bool computes() const { return true; }
  /// Whether the host may read and write its memory. False: what it is to see or give goes through
  /// copy().
  virtual bool host_memory() const { return true; }
  /// Host <-> device and device <-> device copies, ordered on the stream; a copy to the host has
  /// arrived on return.
  virtual void copy(Stream& stream, void* to, const void* from, size_t bytes) = 0;
  virtual void fill_zero(Stream& stream, void* data, size_t bytes) = 0;
};

}  // namespace mtrain
