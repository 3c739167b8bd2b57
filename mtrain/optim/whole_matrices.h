// Brings the parts of a parameter together for an optimizer that needs whole matrices
// (UpdateScope::whole_matrices), and takes the result apart again. Two levels: data-parallel ranks
// that share a parameter's elements (ZeRO) send them to one of them, which updates it while the
// others update other parameters (ShardRound); tensor-parallel ranks each get the whole and compute
// the same (TensorParts). Bits are moved, nothing is added up: an update has the same inputs as on
// one rank. Refers to parameters and communicators, which outlive it. For the rank's own thread;
// calls are collective.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "mtrain/optim/optimizer.h"
#include "mtrain/optim/param_buckets.h"

namespace mtrain {

/// A parameter over the tensor-parallel ranks that shard a dimension of it. Where none do, the
/// whole is what this rank holds.
class MT_API TensorParts {
 public:
  explicit TensorParts(const Parameter& parameter);
  /// Of the whole: the parameter's local shape with the sharded dimension in full length.
  const Shape& shape() const { return shape_; }
  /// The logical matrices in it, their rows counted in it.
  const std::vector<LogicalMatrix>& matrices() const { return matrices_; }
  /// Where it belongs in the parameter's global shape.
  const std::vector<ParamBox>& boxes() const { return boxes_; }
  bool sharded() const { return axis_ != nullptr; }
  /// From this rank's part [parameter.local] to the whole, on all ranks; the part itself where
  /// nothing is sharded.
  Tensor whole(const Tensor& part) const;
  /// Copies this rank's part of the whole to `part`. Local.
  void keep_part(const Tensor& whole, const Tensor& part) const;

 private:
  void copy(const ParamBox& box, const Tensor& whole, const Tensor& part, bool to_whole) const;
  const Parameter& parameter_;
  const Axis* axis_;
  Shape shape_;
  std::vector<LogicalMatrix> matrices_;
  std::vector<ParamBox> boxes_;
  std::vector<ParamBox> own_;  // this rank's: `global` counts in the whole of shape()
};

/// How many elements of each parameter each rank holds: counts[parameter][rank]. In order of ranks
/// and without gaps they are the whole.
using ShardCounts = std::vector<std::vector<int64_t>>;

/// A few parameters whose elements the ranks of a group share: parameter i is updated by rank i.
/// There are at most as many as ranks.
class MT_API ShardRound {
 public:
  /// `outer`: ranks that share the elements that `counts` gives to one rank of `group`
  /// (ShardingOptions::outer_zero), with counts of their own; each of them has the updates of its
  /// `group` done. Null: this rank holds all of them.
  ShardRound(Communicator& group, ShardCounts counts, Communicator* outer = nullptr,
             ShardCounts outer_counts = {})
      : group_(group),
        outer_(outer),
        counts_(std::move(counts)),
        outer_counts_(std::move(outer_counts)) {}
  /// Which of the parameters this rank updates; nothing: none of them.
  bool has_own() const { return static_cast<size_t>(group_.rank()) < counts_.size(); }
  size_t own() const { return static_cast<size_t>(group_.rank()); }
  /// From this rank's elements of each parameter (flat; undefined where it has none) to all
  /// elements of its own parameter; undefined where it has none. Collective.
  Tensor to_owner(ExecutionContext& ctx, std::span<const Tensor> held) const;
  /// The way back, in place: `updated` is what to_owner() returned. Collective.
  void from_owner(ExecutionContext& ctx, const Tensor& updated, std::span<const Tensor> held) const;

 private:
  std::vector<int64_t> leaves() const, arrives() const;  // elements to and from each rank of group_
  std::vector<Tensor> join_copies(ExecutionContext& ctx, std::span<const Tensor> held) const;
  Communicator& group_;
  Communicator* outer_;
  ShardCounts counts_, outer_counts_;
};

}  // namespace mtrain
