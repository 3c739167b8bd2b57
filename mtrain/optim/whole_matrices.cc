#include "mtrain/optim/whole_matrices.h"

#include <algorithm>
#include <numeric>

namespace mtrain {
namespace {

// The logical matrices in a tensor that is sharded along the first dimension.
std::vector<LogicalMatrix> held_matrices(const Parameter& p, const std::vector<DimShard>& shards) {
  if (shards.empty() || p.matrices.empty()) return p.matrices;
  MT_CHECK(shards.size() == 1 && shards[0].dim == 0, p.name,
           " is sharded within its matrices by an axis other than tensor parallelism");
  const int64_t rows =
      p.global.numel() / (p.global[0] * p.global[-1]);  // rows per index of the first dimension
  std::vector<LogicalMatrix> held;
  for (const LogicalMatrix& matrix : p.matrices) {
    LogicalMatrix here{matrix.name, {}, matrix.cols};
    for (const RowRange& range : matrix.rows)
      for (const ShardPiece& piece : shards[0].pieces) {
        int64_t lo = std::max(range.first, piece.global * rows),
                hi = std::min(range.first + range.rows, (piece.global + piece.size) * rows);
        if (lo < hi)
          here.rows.push_back({.first = lo + (piece.local - piece.global) * rows, .rows = hi - lo});
      }
    if (here.rows.empty()) continue;
    MT_CHECK(here.num_rows() == matrix.num_rows(), p.name, ": a rank holds a part of matrix '",
             matrix.name, "'");
    held.push_back(std::move(here));
  }
  return held;
}

struct Strided {
  int64_t offset = 0, stride[3] = {0, 0, 0};  // dimensions are padded to three
  Strided(const Shape& shape, const Shape& at) {
    int64_t step = 1;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      offset += at[d] * step;
      stride[d + 3 - shape.rank()] = step;
      step *= shape[d];
    }
  }
};

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Tensor buffer(ExecutionContext& ctx, int64_t count) {
  return ctx.empty({std::max<int64_t>(1, count)}, DType::f32).slice(0, 0, count);
}

// Concatenates them.
void concatenate(ExecutionContext& ctx, std::span<const Tensor> parts, const Tensor& into,
                 int64_t at) {
  for (const Tensor& part : parts) {
    if (!part.defined()) continue;
    ctx.copy(into.slice(0, at, at + part.numel()), part);
    at += part.numel();
  }
}

}  // namespace

TensorParts::TensorParts(const Parameter& p)
    : parameter_(p), axis_(p.tensor_axis), shape_(p.local) {
  MT_CHECK(p.global.rank() <= 3, p.name, " has ", p.global.rank(), " dimensions");
  MT_CHECK(p.numel() > 0, p.name, " has no elements on this rank");
  std::vector<DimShard> others;
  for (const DimShard& shard : p.shards)
    if (!axis_ || shard.dim != p.tensor_dim) others.push_back(shard);
  if (axis_) shape_[p.tensor_dim] = p.global[p.tensor_dim];
  boxes_ = shard_boxes(p.global, others, p.is_primary);
  matrices_ = held_matrices(p, others);
  own_ = shard_boxes(p.global, p.shards, true);
  for (ParamBox& box : own_)
    for (int d = 0; d < shape_.rank(); ++d)
      if (d != p.tensor_dim) box.global.offset[d] = box.local.offset[d];
}

void TensorParts::copy(const ParamBox& box, const Tensor& whole, const Tensor& part,
                       bool to_whole) const {
  const Strided in_whole(shape_, box.global.offset), in_part(parameter_.local, box.local.offset);
  const Strided &from = to_whole ? in_part : in_whole, &to = to_whole ? in_whole : in_part;
  int rank = shape_.rank();
  ExecutionContext& ctx = whole.context();
  ctx.kernels().copy_blocks(ctx.stream(),
                            {.src = (to_whole ? part : whole).data<float>() + from.offset,
                             .dst = (to_whole ? whole : part).data<float>() + to.offset,
                             .outer = rank > 2 ? box.local.extent[rank - 3] : 1,
                             .inner = rank > 1 ? box.local.extent[rank - 2] : 1,
                             .count = rank > 0 ? box.local.extent[rank - 1] : 1,
                             .src_outer = from.stride[0],
                             .src_inner = from.stride[1],
                             .dst_outer = to.stride[0],
                             .dst_inner = to.stride[1],
                             .accumulate = false,
                             .dtype = DType::f32});
}

// Exactly one rank (the primary) provides each element, and the others provide zero, so an integer
// sum of the bits gives that element, also for NaN.
Tensor TensorParts::whole(const Tensor& part) const {
  if (!axis_) return part;
  ExecutionContext& ctx = part.context();
  Tensor whole = ctx.zeros(shape_, DType::f32);
  for (const ParamBox& box : own_)
    if (box.is_primary) copy(box, whole, part, true);
  Buffer bits(whole);
  bits.dtype = DType::i32;
  axis_->comm().all_reduce(bits);
  return whole;
}

void TensorParts::keep_part(const Tensor& whole, const Tensor& part) const {
  if (!axis_) return;
  for (const ParamBox& box : own_) copy(box, whole, part, false);
}

std::vector<int64_t> ShardRound::send_counts() const {
  std::vector<int64_t> counts(static_cast<size_t>(group_.size()), 0);
  for (size_t i = 0; i < counts_.size(); ++i)
    counts[i] = counts_[i][static_cast<size_t>(group_.rank())];
  return counts;
}

std::vector<int64_t> ShardRound::recv_counts() const {
  return has_own() ? counts_[own()] : std::vector<int64_t>(static_cast<size_t>(group_.size()), 0);
}

// Gathers the parts of this rank's shards over the replicas.
std::vector<Tensor> ShardRound::join_copies(ExecutionContext& ctx,
                                            std::span<const Tensor> held) const {
  auto copies = static_cast<size_t>(outer_->size()), own = static_cast<size_t>(outer_->rank());
  std::vector<int64_t> arrive(copies, 0);
  for (const auto& counts : outer_counts_)
    for (size_t o = 0; o < copies; ++o) arrive[o] += counts[o];
  const std::vector<int64_t> leave(copies, arrive[own]);
  Tensor out = buffer(ctx, total(leave)), in = buffer(ctx, total(arrive));
  for (size_t o = 0; o < copies; ++o)
    concatenate(ctx, held, out, static_cast<int64_t>(o) * leave[o]);
  outer_->all_to_all_v(out, leave, in, arrive);
  std::vector<Tensor> joined;
  for (const auto& counts : outer_counts_) joined.push_back(buffer(ctx, total(counts)));
  int64_t from = 0;
  for (size_t o = 0; o < copies; ++o)
    for (size_t i = 0; i < joined.size(); ++i) {
      const auto& counts = outer_counts_[i];
      int64_t count = counts[o],
              to = std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(o),
                                   int64_t{0});
      if (count > 0) ctx.copy(joined[i].slice(0, to, to + count), in.slice(0, from, from + count));
      from += count;
    }
  return joined;
}

Tensor ShardRound::to_owner(ExecutionContext& ctx, std::span<const Tensor> held) const {
  std::vector<Tensor> joined;
  if (outer_) joined = join_copies(ctx, held), held = joined;
  const std::vector<int64_t> leave = send_counts(), arrive = recv_counts();
  Tensor out = buffer(ctx, total(leave)), in = buffer(ctx, total(arrive));
  concatenate(ctx, held, out, 0);
  group_.all_to_all_v(out, leave, in, arrive);
  return has_own() ? in : Tensor();
}

void ShardRound::from_owner(ExecutionContext& ctx, const Tensor& updated,
                            std::span<const Tensor> held) const {
  const std::vector<int64_t> leave = recv_counts(), arrive = send_counts();
  Tensor in = buffer(ctx, total(arrive));
  group_.all_to_all_v(updated.defined() ? updated : buffer(ctx, 0), leave, in, arrive);
  int64_t from = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    int64_t begin =
        from;  // the start of this rank's elements: of the shard, or of a replica's part of it
    for (int o = 0; outer_ && o < outer_->rank(); ++o)
      begin += outer_counts_[i][static_cast<size_t>(o)];
    if (held[i].defined()) ctx.copy(held[i], in.slice(0, begin, begin + held[i].numel()));
    from += arrive[i];
  }
}

}  // namespace mtrain
