#ifdef MT_HAVE_CUDNN
#include "sdpa.h"

#include <cudnn.h>

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "attention.h"
#include "check.h"
#include "cuda_stream.h"
#include "mtrain/base/error.h"
#include "sdpa_graph.h"

namespace mtrain::cuda {

namespace {

/// A plan per shape and direction; shapes that the library refuses are remembered as well.
class CudnnPlans final : public SdpaPlans {
 public:
  static constexpr size_t kMaxPlans = 256;

  ~CudnnPlans() override {
    plans_.clear();
    if (handle_) cudnnDestroy(handle_);
  }
  /// Null if the library has no kernel. While the stream is recorded, compilation happens between
  /// two graphs.
  CompiledGraph* find(CudaStream& stream, const SdpaShape& shape, bool backward) {
    auto found = plans_.find({shape, backward});
    if (found != plans_.end()) return found->second ? &*found->second : nullptr;
    stream.outside();
    if (plans_.size() >= kMaxPlans) plans_.clear();  // drops plans for lengths that never return
    auto& plan = plans_[{shape, backward}];
    try {
      plan.emplace(
          compile(backward ? backward_graph(shape, handle_) : forward_graph(shape, handle_),
                  handle_, nullptr));
    } catch (const NoSuchKernel&) {
    }
    return plan ? &*plan : nullptr;
  }
  cudnnHandle_t handle(CudaStream& stream) {
    if (!handle_) {
      stream.outside();
      if (cudnnCreate(&handle_) != CUDNN_STATUS_SUCCESS) handle_ = nullptr;
    }
    if (handle_) cudnnSetStream(handle_, stream.handle());
    return handle_;
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::map<std::pair<SdpaShape, bool>, std::optional<CompiledGraph>> plans_;
};

/// The pointers that a call binds to a graph's tensors.
class Bindings {
 public:
  void add(Uid uid, const void* data) {
    uids_.push_back(uid);
    data_.push_back(
        const_cast<void*>(data));  // the library takes inputs and outputs through the same type
  }
  void run(cudnnHandle_t handle, CompiledGraph& graph, void* workspace, const char* what) {
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    auto count = static_cast<int64_t>(uids_.size());
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids_.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data_.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finish("variant pack");
    cudnnStatus_t status = cudnnBackendExecute(handle, graph.plan.get(), pack.get());
    if (status != CUDNN_STATUS_SUCCESS)
      throw Error(ErrorClass::peer,
                  cat("cuDNN failed in ", what, ": ", cudnnGetErrorString(status)),
                  "see `nvidia-smi` for the GPU's state, then resume from the last checkpoint");
  }

 private:
  std::vector<int64_t> uids_;
  std::vector<void*> data_;
};

const void* at(const HeadsView& view, int64_t row) {
  return static_cast<const char*>(view.data) + 2 * row * view.row_stride;  // 16-bit elements
}
const void* at(const void* data, int64_t element) {
  return static_cast<const char*>(data) + 2 * element;
}

/// Calls that the graphs cannot describe, or that the library is known to refuse, use the other
/// kernels at once.
bool describable(const AttentionArgs& a) {
  bool strides = true;
  for (const HeadsView* v : {&a.q, &a.k, &a.v})
    strides = strides && v->row_stride % 8 == 0 && v->group_stride % 8 == 0;
  if (a.window > 0 || a.cap > 0 || a.sinks || a.dropout.p > 0 || a.bias.values) return false;
  return (a.dtype == DType::bf16 || a.dtype == DType::f16) && !a.spans && !a.add &&
         a.head_dim % 8 == 0 && a.sequences > 0 && strides;
}

struct Call {
  SdpaShape shape;
  int64_t begin = 0;            // its first token; ragged: 0
  std::vector<int32_t> tables;  // ragged: lengths, then the offsets, on the host
  int64_t entries_of_table = 0;
};

SdpaShape shape_of(const AttentionArgs& a, int64_t tokens) {
  int64_t per_group = a.heads / a.groups;
  return {.entries = a.groups,
          .heads = per_group,
          .queries = tokens,
          .keys = tokens,
          .head_dim = a.head_dim,
          .q_row = a.q.row_stride,
          .k_row = a.k.row_stride,
          .v_row = a.v.row_stride,
          .o_row = a.heads * a.head_dim,
          .q_entry = a.q.group_stride,
          .k_entry = a.k.group_stride,
          .v_entry = a.v.group_stride,
          .o_entry = per_group * a.head_dim,
          .lse_entry = per_group * a.tokens,
          .lse_head = a.tokens,
          .causal = a.causal,
          .half = a.dtype == DType::f16};
}

/// One call per sequence if all have the same length, otherwise one call for all.
std::vector<Call> calls_of(const AttentionArgs& a) {
  std::vector<Call> calls;
  int32_t longest = 0, shortest = std::numeric_limits<int32_t>::max();
  for (int64_t s = 0; s < a.sequences; ++s) {
    int32_t n = a.cu_seqlens[s + 1] - a.cu_seqlens[s];
    longest = std::max(longest, n), shortest = std::min(shortest, n);
  }
  if (longest == shortest) {
    for (int64_t s = 0; s < a.sequences; ++s)
      calls.push_back({.shape = shape_of(a, longest), .begin = a.cu_seqlens[s]});
    return calls;
  }
  // Lengths are rounded up, and the number of sequences is rounded up to a power of two, so that
  // few plans serve many batches.
  int64_t room = (longest + 127) / 128 * 128, sequences = 1;
  while (sequences < a.sequences) sequences *= 2;
  Call call{.shape = shape_of(a, room)};
  call.shape.ragged = true;
  call.shape.entries = sequences * a.groups;
  call.shape.q_entry = call.shape.k_entry = call.shape.v_entry = call.shape.o_entry =
      call.shape.lse_entry = 0;
  call.entries_of_table = call.shape.entries + 1;
  calls.push_back(std::move(call));
  return calls;
}

/// Appends one table: f(first token of the sequence, group, length) of each entry; sequences beyond
/// the last one are empty.
template <class F>
void append_table(Call& call, const AttentionArgs& a, F&& f) {
  for (int64_t e = 0; e < call.entries_of_table; ++e) {
    int64_t s = std::min(e / a.groups, a.sequences), group = e % a.groups;
    int32_t begin = a.cu_seqlens[s], length = s < a.sequences ? a.cu_seqlens[s + 1] - begin : 0;
    call.tables.push_back(static_cast<int32_t>(f(begin, group, length)));
  }
}

void append_offsets(Call& call, const AttentionArgs& a, const HeadsView& v) {
  append_table(call, a, [&](int64_t begin, int64_t group, int64_t) {
    return begin * v.row_stride + group * v.group_stride;
  });
}

/// 32-bit offsets must reach the last element.
bool offsets_fit(const AttentionArgs& a) {
  int64_t widest =
      std::max({a.q.row_stride, a.k.row_stride, a.v.row_stride, a.heads * a.head_dim, a.heads});
  return a.tokens * widest < std::numeric_limits<int32_t>::max();
}

constexpr float kMinus = -std::numeric_limits<float>::infinity(), kOneValue = 1;

/// Binds lengths and offsets of the forward tensors, then those of the gradients, if there are any.
void bind_tables(Bindings& bind, Call& call, CudaStream& stream, const AttentionArgs& a,
                 const AttentionBackwardArgs* b) {
  if (!call.shape.ragged) return;
  append_table(call, a, [](int64_t, int64_t, int64_t length) { return length; });
  for (const HeadsView* v : {&a.q, &a.k, &a.v}) append_offsets(call, a, *v);
  append_table(call, a, [&](int64_t begin, int64_t group, int64_t) {
    return begin * call.shape.o_row + group * call.shape.heads * call.shape.head_dim;
  });
  append_table(call, a, [&](int64_t begin, int64_t group, int64_t) {
    return begin + group * call.shape.heads * a.tokens;
  });
  if (b)
    for (const HeadsView* v : {&b->dq, &b->dk, &b->dv}) append_offsets(call, a, *v);
  auto* tables = static_cast<const int32_t*>(
      stream.uploaded(call.tables.data(), call.tables.size() * sizeof(int32_t)));
  bind.add(kQueryLengths, tables);
  bind.add(kKeyLengths, tables);
  int64_t next = 1;
  auto table = [&] { return tables + call.entries_of_table * next++; };
  for (Uid uid : {kQOffsets, kKOffsets, kVOffsets, kOOffsets, kLseOffsets}) bind.add(uid, table());
  if (b)
    for (Uid uid : {kDqOffsets, kDkOffsets, kDvOffsets}) bind.add(uid, table());
}

void bind_forward(Bindings& bind, const Call& call, const AttentionArgs& a) {
  bind.add(kQ, at(a.q, call.begin));
  bind.add(kK, at(a.k, call.begin));
  bind.add(kV, at(a.v, call.begin));
  bind.add(kO, at(a.o, call.begin * call.shape.o_row));
  bind.add(kLse, a.lse + call.begin);
  bind.add(kScale, &a.scale);
  if (a.causal || call.shape.ragged) bind.add(kMinusInfinity, &kMinus);
}

}  // namespace

std::unique_ptr<SdpaPlans> make_sdpa_plans() { return std::make_unique<CudnnPlans>(); }

bool run_sdpa(SdpaPlans& plans, CudaStream& stream, const AttentionArgs& a) {
  auto& cudnn = static_cast<CudnnPlans&>(plans);
  if (!describable(a)) return false;
  cudnnHandle_t handle = cudnn.handle(stream);
  std::vector<Call> calls = calls_of(a);
  if (!handle || (calls.front().shape.ragged && !offsets_fit(a))) return false;
  CompiledGraph* graph = cudnn.find(stream, calls.front().shape, false);
  if (!graph) return false;
  for (Call& call : calls) {
    Bindings bind;
    bind_tables(bind, call, stream, a, nullptr);
    bind_forward(bind, call, a);
    bind.run(handle, *graph, stream.scratch(static_cast<size_t>(graph->workspace)), "attention");
  }
  return true;
}

bool run_sdpa_backward(SdpaPlans& plans, CudaStream& stream, const AttentionBackwardArgs& b) {
  auto& cudnn = static_cast<CudnnPlans&>(plans);
  const AttentionArgs& a = b.forward;
  bool strides = true;
  for (const HeadsView* v : {&b.dq, &b.dk, &b.dv})
    strides = strides && v->row_stride % 8 == 0 && v->group_stride % 8 == 0;
  if (!describable(a) || b.add || !strides) return false;
  cudnnHandle_t handle = cudnn.handle(stream);
  std::vector<Call> calls = calls_of(a);
  if (!handle || (calls.front().shape.ragged && !offsets_fit(a))) return false;
  for (Call& call : calls) {
    SdpaShape& s = call.shape;
    s.dq_row = b.dq.row_stride, s.dk_row = b.dk.row_stride, s.dv_row = b.dv.row_stride;
    if (!s.ragged)
      s.dq_entry = b.dq.group_stride, s.dk_entry = b.dk.group_stride,
      s.dv_entry = b.dv.group_stride;
  }
  CompiledGraph* graph = cudnn.find(stream, calls.front().shape, true);
  if (!graph) return false;
  // delta has the shape of lse and is placed before the library's own workspace.
  size_t delta_bytes = (sizeof(float) * static_cast<size_t>(a.heads * a.tokens) + 255) / 256 * 256;
  auto* memory =
      static_cast<char*>(stream.scratch(delta_bytes + static_cast<size_t>(graph->workspace)));
  for (Call& call : calls) {
    Bindings bind;
    bind_tables(bind, call, stream, a, &b);
    bind_forward(bind, call, a);
    bind.add(kDo, at(b.d_o, call.begin * call.shape.o_row));
    bind.add(kDq, at(b.dq, call.begin));
    bind.add(kDk, at(b.dk, call.begin));
    bind.add(kDv, at(b.dv, call.begin));
    bind.add(kDelta, reinterpret_cast<float*>(memory) + call.begin);
    bind.add(kOne, &kOneValue);
    bind.run(handle, *graph, memory + delta_bytes, "attention_backward");
  }
  return true;
}

}  // namespace mtrain::cuda
#endif
