// Placement: what the ranks along one mesh axis hold of a tensor, and of its gradient. One letter
// says both:
//   R     every rank holds the whole; the gradient is a partial sum: the ranks' gradients are to be
//   added up I     every rank holds the whole; so is the gradient, alike on every rank S(d)  each
//   rank holds one of equal pieces along dim d, in the order of the ranks; so is the gradient P
//   each rank holds a summand of the whole; the gradient is the same whole on every rank
// The letters of a gradient are the dual: R <-> P, I <-> I, S <-> S. A redistribution a -> b has
// therefore the backward dual(b) -> dual(a): one table says both directions of all tensor-parallel
// communication (conjugate operators f and g of Shoeybi et al. 2019, arXiv:1909.08053; sequence
// parallelism of Korthikanti et al. 2022, arXiv:2205.05198). Values.
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
/// The inverse. Throws Error(config) naming the letters.
MT_API Placement parse_placement(std::string_view text);
MT_API std::ostream& operator<<(std::ostream& out, Placement placement);

/// The placement of the gradient of a tensor placed so.
MT_API Placement dual(Placement placement);

/// What the ranks of the axis do with each other. `slice`: each keeps its piece, nothing is sent.
enum class Transfer : uint8_t { none, all_reduce, all_gather, reduce_scatter, slice, all_to_all };
MT_API const char* name(Transfer transfer);

/// A row of the table; S stands for every dim, S -> S for different ones.
struct Transition {
  Placement::Letter from, to;
  Transfer forward, backward;
};
/// What redistribute() does, whole. The backward of a row is the forward of the row dual(to) ->
/// dual(from).
MT_API std::span<const Transition> transitions();

/// The row for these two; equal placements have `none` both ways. Throws Error(bug) that explains
/// why there is none and what to do instead.
MT_API Transition transition(Placement from, Placement to);
/// Why there is no such row; empty when there is.
MT_API std::string refusal(Placement from, Placement to);

}  // namespace mtrain
