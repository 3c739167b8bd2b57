// MeshLayout: named axes over the ranks of a run, as pure arithmetic: no communicator and no
// per-rank state. Ranks are numbered with the innermost (last) axis fastest, like Megatron's
// RankGenerator (Megatron-LM, megatron/core/parallel_state.py). "axis" belongs to a mesh, "dim" to
// a tensor. A value type; thread-safe.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// One axis: its name and its number of ranks.
struct AxisSpec {
  std::string name;
  int64_t size = 1;
  bool operator==(const AxisSpec&) const = default;
};

/// One axis, "tp", or several joined, {"dp", "cp"}, in any order. No axis: every rank is a group of
/// its own.
class MT_API AxisNames {
 public:
  AxisNames(const char* name) : names_{name} {}         // NOLINT: implicit, since it is a name
  AxisNames(const std::string& name) : names_{name} {}  // NOLINT
  AxisNames(std::initializer_list<std::string_view> names) : names_(names.begin(), names.end()) {}
  explicit AxisNames(std::vector<std::string> names) : names_(std::move(names)) {}
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

/// A group from the view of one of its ranks.
struct RankGroup {
  std::vector<int64_t> ranks;  // ascending
  int64_t index = 0;           // ranks[index] is that rank
  bool operator==(const RankGroup&) const = default;
};

class MT_API MeshLayout {
 public:
  /// Throws Error(config) for an empty or repeated name, a size below 1, or more than 2^31-1 ranks.
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
  /// The difference of rank numbers between neighbours along an axis.
  int64_t stride(std::string_view axis) const;

  // Groups: the ranks that differ only along the named axes. An unknown or repeated axis throws
  // Error(config).

  /// Number of ranks in each group.
  int64_t size(const AxisNames& axes) const;
  int64_t num_groups(const AxisNames& axes) const { return num_ranks_ / size(axes); }
  /// The number of a rank's group; groups are numbered by their smallest rank. O(number of axes).
  int64_t group_number(const AxisNames& axes, int64_t rank) const;
  /// A rank's index among the ascending ranks of its group. O(number of axes).
  int64_t index_in_group(const AxisNames& axes, int64_t rank) const;
  /// A rank's group. O(size of the group).
  RankGroup group(const AxisNames& axes, int64_t rank) const;
  /// The ranks of group `number`, ascending.
  std::vector<int64_t> group_ranks(const AxisNames& axes, int64_t number) const;
  /// All groups, by number.
  std::vector<std::vector<int64_t>> groups(const AxisNames& axes) const;

  /// Other axes over the same ranks (expert parallelism: edp x ep x etp as well as dp x cp x tp).
  /// Throws Error(config) if the number of ranks differs, or if an axis that both have does not
  /// form the same groups.
  MeshLayout view(std::vector<AxisSpec> outermost_first) const;
  /// The same ranks with one axis split into several (hybrid sharding: dp into replicas x shards;
  /// hierarchical context parallelism). Throws Error(config) if the product of the sizes differs
  /// from the axis's size.
  MeshLayout split(std::string_view axis, std::vector<AxisSpec> outermost_first) const;

  bool operator==(const MeshLayout&) const = default;

 private:
  struct Digit {  // a digit of a rank's number: coordinate = rank / stride % size
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
