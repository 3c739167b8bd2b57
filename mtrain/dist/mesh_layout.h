// MeshLayout: named axes over the ranks of a run, as pure arithmetic: no communicator, nothing kept
// per rank. The ranks count through the axes like the digits of a number, the innermost (last) axis
// fastest, as Megatron's RankGenerator counts them (Megatron-LM, mtrain/parallel_state.py). "axis"
// belongs to a mesh, "dim" to a tensor. A value; const calls are safe from any thread.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// One axis: its name and how many ranks lie along it.
struct AxisSpec {
  std::string name;
  int64_t size = 1;
  bool operator==(const AxisSpec&) const = default;
};

/// An axis, "tp", or several as one, {"dp", "cp"}; their order means nothing. None: every rank by
/// itself.
class MT_API AxisNames {
 public:
  AxisNames(const char* name) : names_{name} {}         // NOLINT: reads as a name
  AxisNames(const std::string& name) : names_{name} {}  // NOLINT
  AxisNames(std::initializer_list<std::string_view> names) : names_(names.begin(), names.end()) {}
  explicit AxisNames(std::vector<std::string> names) : names_(std::move(names)) {}
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

/// A group as one of its ranks sees it.
struct RankGroup {
  std::vector<int64_t> ranks;  // ascending
  int64_t index = 0;           // ranks[index] is the rank that asked
  bool operator==(const RankGroup&) const = default;
};

class MT_API MeshLayout {
 public:
  /// Throws Error(config) for no name, a name given twice, a size below 1 or more than 2^31-1
  /// ranks.
  explicit MeshLayout(std::vector<AxisSpec> outermost_first);

  int64_t num_ranks() const { return num_ranks_; }
  /// Outermost first.
  const std::vector<AxisSpec>& axes() const { return axes_; }
  bool has(std::string_view axis) const;
  /// "pp 4 x dp 2 x tp 2".
  std::string to_text() const;

  /// One number per axis, outermost first.
  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t coordinate(int64_t rank, std::string_view axis) const;
  /// The inverse of coordinates().
  int64_t rank_at(std::span<const int64_t> coordinates) const;
  /// How far apart neighbours along an axis are numbered.
  int64_t stride(std::string_view axis) const;

  // Groups: the ranks that differ only along the named axes. An unknown axis, or one named twice,
  // throws Error(config) listing the names.

  /// Ranks in each group.
  int64_t size(const AxisNames& axes) const;
  int64_t num_groups(const AxisNames& axes) const { return num_ranks_ / size(axes); }
  /// Which group a rank is in; groups are numbered by their smallest rank. Costs one step per axis.
  int64_t group_number(const AxisNames& axes, int64_t rank) const;
  /// A rank's place among the ascending ranks of its group. Costs one step per axis.
  int64_t index_in_group(const AxisNames& axes, int64_t rank) const;
  /// The group that a rank is in; costs one step per rank of the group.
  RankGroup group(const AxisNames& axes, int64_t rank) const;
  /// Group `number`, ascending.
  std::vector<int64_t> group_ranks(const AxisNames& axes, int64_t number) const;
  /// All groups, by number.
  std::vector<std::vector<int64_t>> groups(const AxisNames& axes) const;

  /// Other axes over the same ranks (expert parallelism: edp x ep x etp beside dp x cp x tp).
  /// Throws Error(config) when the number of ranks differs, or when an axis of a name that both
  /// have does not group the ranks alike.
  MeshLayout view(std::vector<AxisSpec> outermost_first) const;
  /// The same ranks with one axis cut into several (hybrid sharding: dp into replicas x shards;
  /// hierarchical context parallelism). Throws Error(config) when the product of the sizes is
  /// another than the axis' size.
  MeshLayout split(std::string_view axis, std::vector<AxisSpec> outermost_first) const;

  bool operator==(const MeshLayout&) const = default;

 private:
  struct Digit {  // of a rank's number: coordinate = rank / stride % size
    int64_t size, stride;
  };
  struct Selection {  // innermost first
    std::vector<Digit> inside, outside;
  };
  size_t find(std::string_view axis) const;
  Selection select(const AxisNames& axes) const;
  void check_rank(int64_t rank) const;
  static int64_t product(const std::vector<Digit>& digits);
  static int64_t packed(const std::vector<Digit>& digits, int64_t rank);
  static int64_t spread(const std::vector<Digit>& digits, int64_t number);
  static std::vector<int64_t> members(const Selection& selection, int64_t first);

  std::vector<AxisSpec> axes_;
  std::vector<int64_t> strides_;
  int64_t num_ranks_ = 1;
};

}  // namespace mtrain
