#ifdef MT_HAVE_CUDNN
#include "sdpa.h"

#include <cudnn.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "attention.h"
#include "check.h"
#include "cuda_stream.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
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
                  handle_, nullptr, shape.any_order));
    } catch (const NoSuchKernel& refusal) {
      warn(cat("cuDNN has no kernel for ", shape.queries, " tokens, heads of ", shape.head_dim,
               shape.ragged ? ", packed samples" : "", backward ? ", backward" : "", " (",
               refusal.what, ": ", cudnnGetErrorString(refusal.status), ")"));
    }
    return plan ? &*plan : nullptr;
  }
  cudnnHandle_t handle(CudaStream& stream) {
    if (!handle_) {
      stream.outside();
      if (cudnnStatus_t status = cudnnCreate(&handle_); status != CUDNN_STATUS_SUCCESS) {
        handle_ = nullptr;
        warn(cat("cuDNN does not start (", cudnnGetErrorString(status), ")"));
      }
    }
    if (handle_) cudnnSetStream(handle_, stream.handle());
    return handle_;
  }
  /// Says once why calls use the other kernels.
  void warn(const std::string& reason) {
    if (warned_.insert(reason).second)
      log_warn(
          "attention runs on mtrain's plain kernels, which take many times as long as cuDNN's: ",
          reason);
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::map<std::pair<SdpaShape, bool>, std::optional<CompiledGraph>> plans_;
  std::set<std::string> warned_;
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

const void* at(const void* data, int64_t element) {
  return static_cast<const char*>(data) + 2 * element;  // 16-bit elements
}

bool has_16_bits(const AttentionArgs& a) { return a.dtype == DType::bf16 || a.dtype == DType::f16; }

/// Why the graphs cannot describe a call, or the library is known to refuse it; null: neither.
const char* obstacle(const AttentionArgs& a,
                     std::initializer_list<const HeadsView*> gradients = {}) {
  if (a.window > 0 && !a.causal) return "a window without causal order";
  if (a.cap > 0) return "logits are capped";
  if (a.sinks) return "attention has sinks";
  if (a.dropout.p > 0) return "attention has dropout";
  if (a.bias.values) return "positions are biases of the logits";
  if (a.spans || a.add) return "sequences are split over ranks (dist.cp)";
  auto odd = [](const HeadsView* v) { return v->row_stride % 8 != 0 || v->group_stride % 8 != 0; };
  const std::initializer_list<const HeadsView*> inputs = {&a.q, &a.k, &a.v};
  if (a.head_dim % 8 != 0 || std::ranges::any_of(inputs, odd) ||
      std::ranges::any_of(gradients, odd))
    return "the width of heads is not a multiple of 8";
  return nullptr;
}

struct Call {
  SdpaShape shape;
  int64_t begin = 0;            // its first token; ragged: 0
  int64_t entry = 0;            // its first entry, if entries are computed in several parts
  int32_t window = 0;           // bound where the shape has a window
  std::vector<int32_t> tables;  // ragged: lengths, then the offsets, on the host
  int64_t entries_of_table = 0;
  const int32_t* on_device = nullptr;  // the tables

  /// The call's first element in a tensor. Ragged tensors have it in their offsets.
  int64_t first(int64_t row_stride, int64_t entry_stride) const {
    return shape.ragged ? 0 : begin * row_stride + entry * entry_stride;
  }
  const void* at(const HeadsView& view) const {
    return cuda::at(view.data, first(view.row_stride, view.group_stride));
  }
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
          .half = a.dtype == DType::f16,
          .window = a.window > 0 && a.window < tokens};
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
      calls.push_back({.shape = shape_of(a, longest),
                       .begin = a.cu_seqlens[s],
                       .window = static_cast<int32_t>(a.window)});
    return calls;
  }
  // Lengths are rounded up, and the number of sequences is rounded up to a power of two, so that
  // few plans serve many batches.
  int64_t room = (longest + 127) / 128 * 128, sequences = 1;
  while (sequences < a.sequences) sequences *= 2;
  Call call{.shape = shape_of(a, room), .window = static_cast<int32_t>(a.window)};
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

/// Copies lengths and offsets of the forward tensors to the device, then those of the gradients, if
/// there are any.
void upload_tables(Call& call, CudaStream& stream, const AttentionArgs& a,
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
  call.on_device = static_cast<const int32_t*>(
      stream.uploaded(call.tables.data(), call.tables.size() * sizeof(int32_t)));
}

void bind_tables(Bindings& bind, const Call& call, bool backward) {
  if (!call.shape.ragged) return;
  const int32_t* tables = call.on_device + call.entry;
  bind.add(kQueryLengths, tables);
  bind.add(kKeyLengths, tables);
  int64_t next = 1;
  auto table = [&] { return tables + call.entries_of_table * next++; };
  for (Uid uid : {kQOffsets, kKOffsets, kVOffsets, kOOffsets, kLseOffsets}) bind.add(uid, table());
  if (backward)
    for (Uid uid : {kDqOffsets, kDkOffsets, kDvOffsets}) bind.add(uid, table());
}

void bind_forward(Bindings& bind, const Call& call, const AttentionArgs& a) {
  const SdpaShape& s = call.shape;
  bind.add(kQ, call.at(a.q));
  bind.add(kK, call.at(a.k));
  bind.add(kV, call.at(a.v));
  bind.add(kO, at(a.o, call.first(s.o_row, s.o_entry)));
  bind.add(kLse, a.lse + call.first(1, s.lse_entry));
  bind.add(kScale, &a.scale);
  if (a.causal || s.ragged) bind.add(kMinusInfinity, &kMinus);
  if (s.window) bind.add(kWindow, &call.window);
}

/// The deterministic gradient keeps the scores of all its entries in memory, which grow with the
/// square of the length: 4 GiB for 32 heads and 8192 tokens. It is computed for a part of the
/// entries at a time, so that they take up to 4 GiB, if that suffices for one entry. Smaller parts
/// are slower: with 1 GiB, 8192 tokens take 1.4 times as long on an H200.
int64_t entries_at_once(const SdpaShape& s) {
  constexpr int64_t kMost = int64_t{4} << 30, kTile = 64;
  auto padded = [](int64_t n) { return (n + kTile - 1) / kTile * kTile; };
  int64_t each = 2 * s.heads * padded(s.queries) * padded(s.keys);
  int64_t part = std::clamp<int64_t>(kMost / each, 1, s.entries);
  while (s.entries % part != 0) --part;
  return part;
}

/// From this version on, the library fills the sums of dq with zeros itself.
constexpr size_t kZeroesSums = 90600;

/// The number of elements of the sums of dq; ragged ones have the offsets of dq.
int64_t floats_of_sum(const SdpaShape& s, int64_t tokens) {
  if (!s.any_order) return 0;
  return s.ragged ? tokens * s.dq_row : s.entries * s.heads * s.queries * s.head_dim;
}

/// Rounded up, so that what follows is aligned.
size_t bytes_of_floats(int64_t count) {
  return (sizeof(float) * static_cast<size_t>(count) + 255) / 256 * 256;
}

/// Whether a call is for the library. Calls that are not use the other kernels at once.
bool takes(CudnnPlans& cudnn, const AttentionArgs& a,
           std::initializer_list<const HeadsView*> gradients = {}) {
  if (!has_16_bits(a) || a.sequences <= 0 || a.tokens <= 0) return false;
  const char* reason = obstacle(a, gradients);
  if (reason) cudnn.warn(reason);
  return !reason;
}

}  // namespace

std::unique_ptr<SdpaPlans> make_sdpa_plans() { return std::make_unique<CudnnPlans>(); }

bool run_sdpa(SdpaPlans& plans, CudaStream& stream, const AttentionArgs& a) {
  auto& cudnn = static_cast<CudnnPlans&>(plans);
  if (!takes(cudnn, a)) return false;
  cudnnHandle_t handle = cudnn.handle(stream);
  std::vector<Call> calls = calls_of(a);
  if (!handle || (calls.front().shape.ragged && !offsets_fit(a))) return false;
  CompiledGraph* graph = cudnn.find(stream, calls.front().shape, false);
  if (!graph) return false;
  for (Call& call : calls) {
    Bindings bind;
    upload_tables(call, stream, a, nullptr);
    bind_tables(bind, call, false);
    bind_forward(bind, call, a);
    bind.run(handle, *graph, stream.scratch(static_cast<size_t>(graph->workspace)), "attention");
  }
  return true;
}

bool run_sdpa_backward(SdpaPlans& plans, CudaStream& stream, const AttentionBackwardArgs& b) {
  auto& cudnn = static_cast<CudnnPlans&>(plans);
  const AttentionArgs& a = b.forward;
  if (b.add || !takes(cudnn, a, {&b.dq, &b.dk, &b.dv})) return false;
  cudnnHandle_t handle = cudnn.handle(stream);
  std::vector<Call> calls = calls_of(a);
  if (!handle || (calls.front().shape.ragged && !offsets_fit(a))) return false;
  const int64_t entries = calls.front().shape.entries;
  const bool any_order = stream.any_order_attention() && cudnnGetVersion() >= kZeroesSums;
  for (Call& call : calls) {
    SdpaShape& s = call.shape;
    s.any_order = any_order;
    s.dq_row = b.dq.row_stride, s.dk_row = b.dk.row_stride, s.dv_row = b.dv.row_stride;
    if (!s.ragged)
      s.dq_entry = b.dq.group_stride, s.dk_entry = b.dk.group_stride,
      s.dv_entry = b.dv.group_stride;
    if (!any_order) s.entries = entries_at_once(s);
  }
  CompiledGraph* graph = cudnn.find(stream, calls.front().shape, true);
  if (!graph) return false;
  // delta, of the shape of lse, and the sums of dq are placed before the library's own workspace.
  const size_t delta_bytes = bytes_of_floats(a.heads * a.tokens),
               sum_bytes = bytes_of_floats(floats_of_sum(calls.front().shape, a.tokens));
  auto* memory = static_cast<char*>(
      stream.scratch(delta_bytes + sum_bytes + static_cast<size_t>(graph->workspace)));
  for (Call& call : calls) {
    upload_tables(call, stream, a, &b);
    const SdpaShape& s = call.shape;
    for (; call.entry < entries; call.entry += s.entries) {
      Bindings bind;
      bind_tables(bind, call, true);
      bind_forward(bind, call, a);
      bind.add(kDo, at(b.d_o, call.first(s.o_row, s.o_entry)));
      bind.add(kDq, call.at(b.dq));
      bind.add(kDk, call.at(b.dk));
      bind.add(kDv, call.at(b.dv));
      bind.add(kDelta, reinterpret_cast<float*>(memory) + call.first(1, s.lse_entry));
      bind.add(kOne, &kOneValue);
      if (any_order) bind.add(kDqSum, memory + delta_bytes);
      bind.run(handle, *graph, memory + delta_bytes + sum_bytes, "attention_backward");
    }
  }
  return true;
}

}  // namespace mtrain::cuda
#endif
