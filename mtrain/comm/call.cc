#include "mtrain/comm/call.h"

#include "mtrain/base/text.h"

namespace mtrain {

const char* name(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
  }
  return "?";
}

const char* name(CommKind kind) {
  static constexpr std::array<const char*, kNumCommKinds> kNames = {
      "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
      "send",       "recv",       "barrier",        "split"};
  auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "?";
}

namespace {
bool reduces(CommKind kind) {
  return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter;
}
bool point_to_point(CommKind kind) { return kind == CommKind::send || kind == CommKind::recv; }
}  // namespace

std::string describe(const CommCall& call) {
  std::string kind = name(call.kind);
  std::string amount = cat(call.count, " ", name(call.dtype));
  switch (call.kind) {
    case CommKind::all_reduce:
      return cat(kind, " ", name(call.reduce), " of ", amount);
    case CommKind::reduce_scatter:
      return cat(kind, " ", name(call.reduce), " of ", amount, " per rank");
    case CommKind::all_gather:
      return cat(kind, " of ", amount, " per rank");
    case CommKind::all_to_all:
      return call.uneven ? cat(kind, "_v of ", name(call.dtype))
                         : cat(kind, " of ", amount, " per rank");
    case CommKind::broadcast:
      return cat(kind, " of ", amount, " from rank ", call.peer);
    case CommKind::send:
      return cat(kind, " of ", amount, " to rank ", call.peer, ", tag ", call.tag);
    case CommKind::recv:
      return cat(kind, " of ", amount, " from rank ", call.peer, ", tag ", call.tag);
    case CommKind::barrier:
    case CommKind::split:
      return kind;
  }
  return kind;
}

bool agree(const CommCall& a, const CommCall& b) {
  if (point_to_point(a.kind) && point_to_point(b.kind))
    return a.count == b.count && a.dtype == b.dtype;
  if (a.kind != b.kind) return false;
  if (a.kind == CommKind::barrier || a.kind == CommKind::split) return true;
  if (a.dtype != b.dtype || a.uneven != b.uneven) return false;
  if (reduces(a.kind) && a.reduce != b.reduce) return false;
  if (a.kind == CommKind::broadcast && a.peer != b.peer) return false;
  return a.uneven || a.count == b.count;
}

int64_t bytes_sent(const CommCall& call, int rank, int size) {
  auto element = static_cast<int64_t>(size_of(call.dtype));
  int64_t bytes = call.count * element;
  switch (call.kind) {
    case CommKind::all_reduce:
      return 2 * (size - 1) * bytes / size;
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
      return (size - 1) * bytes;
    case CommKind::all_to_all: {
      if (!call.uneven) return (size - 1) * bytes;
      int64_t elements = 0;
      for (int r = 0; r < size; ++r)
        elements += r == rank ? 0 : call.send_counts[static_cast<size_t>(r)];
      return elements * element;
    }
    case CommKind::broadcast:
      return rank == call.peer ? (size - 1) * bytes : 0;
    case CommKind::send:
      return bytes;
    case CommKind::recv:
    case CommKind::barrier:
    case CommKind::split:
      return 0;
  }
  return 0;
}

}  // namespace mtrain
