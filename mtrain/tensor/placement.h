// Placement: how a tensor and its gradient are distributed over the ranks of one mesh axis. One
// letter describes both:
//   R     every rank holds the whole tensor; the ranks' gradients are partial sums
//   I     every rank holds the whole tensor; every rank has the same, whole gradient
//   S(d)  rank r holds the r-th of equal shards along dim d; the gradient is sharded likewise
//   P     the ranks hold partial sums; every rank has the same, whole gradient
// The placement of a gradient is the dual of the tensor's: R <-> P, I <-> I, S <-> S. Therefore the
// backward of a redistribution a -> b is dual(b) -> dual(a), and one table describes both
// directions of all tensor-parallel communication (conjugate operators f and g of Shoeybi et al.
// 2019, arXiv:1909.08053; sequence parallelism of Korthikanti et al. 2022, arXiv:2205.05198). Value
// types; thread-safe.
#pragma once
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API Placement {
 public:
  enum class Letter : uint8_t { R, I, S, P };

  static constexpr Placement R() { return {Letter::R, 0}; }
  static constexpr Placement I() { return {Letter::I, 0}; }
  static constexpr Placement P() { return {Letter::P, 0}; }
  /// Throws Error(bug) for a negative dim.
  static Placement S(int dim);

  constexpr Letter letter() const { return letter_; }
  /// REQUIRES: letter() is S.
  int dim() const;
  bool operator==(const Placement&) const = default;

 private:
  constexpr Placement(Letter letter, int8_t dim) : letter_(letter), dim_(dim) {}
  Letter letter_;
  int8_t dim_;  // 0 unless S
};

/// "R", "I", "S(1)", "P".
MT_API std::string to_text(Placement placement);
/// The inverse of to_text(). Throws Error(config) that lists the valid letters.
MT_API Placement parse_placement(std::string_view text);
MT_API std::ostream& operator<<(std::ostream& out, Placement placement);

/// The placement of the gradient of a tensor with this placement.
MT_API Placement dual(Placement placement);

/// The collective operation on the axis. `slice`: each rank keeps its shard; nothing is sent.
enum class Transfer : uint8_t { none, all_reduce, all_gather, reduce_scatter, slice, all_to_all };
MT_API const char* name(Transfer transfer);

/// A row of the table. S stands for every dim; S -> S for two different dims.
struct Transition {
  Placement::Letter from, to;
  Transfer forward, backward;
};
/// The complete behaviour of redistribute(). The backward of a row is the forward of the row
/// dual(to) -> dual(from).
MT_API std::span<const Transition> transitions();

/// The row for this pair; equal placements have `none` in both directions. If there is no row,
/// throws Error(bug) that explains why and what to do instead.
MT_API Transition transition(Placement from, Placement to);
/// Why there is no such row; empty if there is one.
MT_API std::string refusal(Placement from, Placement to);

}  // namespace mtrain
