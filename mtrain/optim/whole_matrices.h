// Gathers the parts of a parameter for an optimizer that needs whole matrices
// (UpdateScope::whole_matrices), and scatters the result. There are two levels: data-parallel ranks
// that share a parameter's elements (ZeRO) send them to one of them, which updates it while the
// others update other parameters (ShardRound); tensor-parallel ranks all gather the whole and
// compute the same update (TensorParts). Data are only moved, not summed, so an update has the same
// inputs as on one rank. Refers to parameters and communicators, which outlive it. For the rank's
// own thread; calls are collective.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "mtrain/optim/optimizer.h"
#include "mtrain/optim/param_buckets.h"

namespace mtrain {

/// A parameter with a dimension that is sharded over tensor-parallel ranks. Without such a
/// dimension, the whole is what this rank holds.
class MT_API TensorParts {
 public:
  explicit TensorParts(const Parameter& parameter);
  /// The shape of the whole: the parameter's local shape with the full sharded dimension.
  const Shape& shape() const { return shape_; }
  /// The logical matrices of the whole, with rows relative to it.
  const std::vector<LogicalMatrix>& matrices() const { return matrices_; }
  /// The boxes of the whole in the parameter's global shape.
  const std::vector<ParamBox>& boxes() const { return boxes_; }
  bool sharded() const { return axis_ != nullptr; }
  /// Gathers the whole from the ranks' parts [parameter.local]; returns the part itself if nothing
  /// is sharded.
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
  std::vector<ParamBox> own_;  // of this rank; `global` is relative to the whole of shape()
};

/// The number of elements of each parameter on each rank: counts[parameter][rank]. Concatenated in
/// the order of ranks, they are the whole parameter.
using ShardCounts = std::vector<std::vector<int64_t>>;

/// Parameters whose elements are sharded over the ranks of a group: rank i updates parameter i.
/// There are at most as many parameters as ranks.
class MT_API ShardRound {
 public:
  /// `outer`: ranks that share the elements that `counts` gives to one rank of `group`
  /// (ShardingOptions::outer_zero), with counts of their own; each of them executes the updates of
  /// its own `group`. Null: this rank holds all of them.
  ShardRound(Communicator& group, ShardCounts counts, Communicator* outer = nullptr,
             ShardCounts outer_counts = {})
      : group_(group),
        outer_(outer),
        counts_(std::move(counts)),
        outer_counts_(std::move(outer_counts)) {}
  /// Whether this rank updates one of the parameters; own() is its index.
  bool has_own() const { return static_cast<size_t>(group_.rank()) < counts_.size(); }
  size_t own() const { return static_cast<size_t>(group_.rank()); }
  /// Sends this rank's elements of each parameter (flat; undefined if it has none) to the owners.
  /// Returns all elements of this rank's own parameter; undefined if it has none. Collective.
  Tensor to_owner(ExecutionContext& ctx, std::span<const Tensor> held) const;
  /// The inverse, in place: `updated` is the result of to_owner(). Collective.
  void from_owner(ExecutionContext& ctx, const Tensor& updated, std::span<const Tensor> held) const;

 private:
  std::vector<int64_t> send_counts() const,
      recv_counts() const;  // elements to and from each rank of group_
  std::vector<Tensor> join_copies(ExecutionContext& ctx, std::span<const Tensor> held) const;
  Communicator& group_;
  Communicator* outer_;
  ShardCounts counts_, outer_counts_;
};

}  // namespace mtrain
