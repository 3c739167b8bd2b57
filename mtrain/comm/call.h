// What a rank asks of its group: the vocabulary between callers, Communicator and its
// implementations. Values only; the memory that buffers point to stays the caller's.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "mtrain/base/dtype.h"

namespace mtrain {

class ExecutionContext;
class Tensor;

/// How all_reduce and reduce_scatter combine. For floats a NaN of any rank wins in max and min as
/// it does in a sum.
enum class ReduceOp : uint8_t { sum, max, min };
MT_API const char* name(ReduceOp op);

enum class CommKind : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send,
  recv,
  barrier,
  split
};
inline constexpr int kNumCommKinds = 9;
MT_API const char* name(CommKind kind);

/// `count` elements that a collective reads: in host memory, or where a ExecutionContext is given
/// in that rank's device memory.
struct ConstBuffer {
  const void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::u8;
  ExecutionContext* ctx = nullptr;
  ConstBuffer() = default;
  ConstBuffer(const void* data_in, int64_t count_in, DType dtype_in)
      : data(data_in), count(count_in), dtype(dtype_in) {}
  template <class T>
  ConstBuffer(std::span<T> s)
      : data(s.data()),
        count(static_cast<int64_t>(s.size())),
        dtype(DTypeOf<std::remove_const_t<T>>::value) {}
  template <class T>
  ConstBuffer(const std::vector<T>& v) : ConstBuffer(std::span<const T>(v)) {}
  /// REQUIRES: contiguous.
  MT_API ConstBuffer(const Tensor& tensor);
};

/// The same, that a collective writes.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::u8;
  ExecutionContext* ctx = nullptr;
  Buffer() = default;
  Buffer(void* data_in, int64_t count_in, DType dtype_in)
      : data(data_in), count(count_in), dtype(dtype_in) {}
  template <class T>
  requires(!std::is_const_v<T>) Buffer(std::span<T> s)
      : data(s.data()), count(static_cast<int64_t>(s.size())), dtype(DTypeOf<T>::value) {}
  template <class T>
  Buffer(std::vector<T>& v) : Buffer(std::span<T>(v)) {}
  MT_API Buffer(const Tensor& tensor);
  operator ConstBuffer() const {
    ConstBuffer out(data, count, dtype);
    out.ctx = ctx;
    return out;
  }
};

/// One call, checked and ready to be carried out. `count` is per rank: of the whole buffer for
/// all_reduce, broadcast, send and recv; of one rank's part for all_gather, reduce_scatter and
/// all_to_all.
struct CommCall {
  CommKind kind = CommKind::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::u8;
  int peer = -1;  // the root of a broadcast, the other rank of send and recv
  int tag = 0;    // of send and recv
  int64_t count = 0;
  const void* in = nullptr;
  void* out = nullptr;
  ExecutionContext* ctx = nullptr;  // whose device memory `in` and `out` are; null: host memory
  bool uneven = false;  // all_to_all_v: blocks of these many elements per rank, back to back
  std::span<const int64_t> send_counts,
      recv_counts;  // the caller's: implementations copy what outlives start()
};

/// "all_reduce sum of 1000 fp32", "broadcast of 8 int64 from rank 2", "barrier".
MT_API std::string describe(const CommCall& call);

/// Whether calls of two ranks belong to one collective; for a send and its recv, whether the
/// message fits. The counts of the uneven form are not compared.
MT_API bool agree(const CommCall& a, const CommCall& b);

/// Calls, and bytes that this rank sent in them, by kind. What is counted is what the theory of
/// each collective needs and not what an implementation happened to do. For a group of n ranks and
/// a call's `count
/// * size_of(dtype)` = b bytes:
///   all_reduce 2(n-1)b/n, rounded down · all_gather, reduce_scatter, all_to_all (n-1)b, where b is
///   one rank's part · uneven all_to_all: what goes to other ranks · broadcast (n-1)b on the root,
///   0 elsewhere · send b · others 0.
struct CommCounters {
  struct Count {
    int64_t calls = 0, bytes_sent = 0;
  };
  std::array<Count, kNumCommKinds> by_kind{};
  const Count& operator[](CommKind kind) const { return by_kind[static_cast<size_t>(kind)]; }
  Count& operator[](CommKind kind) { return by_kind[static_cast<size_t>(kind)]; }
  Count total() const {
    Count sum;
    for (const Count& c : by_kind) sum = {sum.calls + c.calls, sum.bytes_sent + c.bytes_sent};
    return sum;
  }
};

/// The rule above, for rank `rank` of `size`.
MT_API int64_t bytes_sent(const CommCall& call, int rank, int size);

}  // namespace mtrain
