// The arguments of collective calls and messages, shared by callers, Communicator and its
// implementations. Values only; the caller owns the memory that buffers point to.
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

/// How all_reduce and reduce_scatter combine elements. With floats, a NaN on any rank gives NaN, in
/// max and min as in a sum.
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

/// `count` elements that a collective reads: in host memory, or in the device memory of `ctx` if
/// that is not null.
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

/// The same for elements that a collective writes.
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

/// One checked call, ready to execute. `count` is per rank: elements of the whole buffer for
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
  ExecutionContext* ctx =
      nullptr;          // the context of the device memory `in` and `out`; null: host memory
  bool uneven = false;  // all_to_all_v: consecutive blocks with the numbers of elements below
  std::span<const int64_t> send_counts,
      recv_counts;  // owned by the caller: implementations copy what they need after start()
};

/// "all_reduce sum of 1000 fp32", "broadcast of 8 int64 from rank 2", "barrier".
MT_API std::string describe(const CommCall& call);

/// Whether calls of two ranks match: the same collective, or a send and a recv with the same count
/// and dtype. Does not compare the counts of all_to_all_v.
MT_API bool agree(const CommCall& a, const CommCall& b);

/// Calls by kind, and the bytes that this rank sent in them. Bytes are the theoretical minimum of
/// each collective, independent of the implementation. For a group of n ranks and a call's `count *
/// size_of(dtype)` = b bytes:
///   all_reduce 2(n-1)b/n, rounded down · all_gather, reduce_scatter, all_to_all (n-1)b, where b is
///   one rank's part · all_to_all_v: elements for other ranks · broadcast (n-1)b on the root,
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

/// The bytes of one call by this rule, for rank `rank` of `size`.
MT_API int64_t bytes_sent(const CommCall& call, int rank, int size);

}  // namespace mtrain
