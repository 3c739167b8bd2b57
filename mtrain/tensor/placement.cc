#include "mtrain/tensor/placement.h"

#include <charconv>
#include <limits>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

using Letter = Placement::Letter;

constexpr Transition kTransitions[] = {
    {Letter::I, Letter::R, Transfer::none, Transfer::all_reduce},
    {Letter::P, Letter::I, Transfer::all_reduce, Transfer::none},
    {Letter::S, Letter::R, Transfer::all_gather, Transfer::reduce_scatter},
    {Letter::P, Letter::S, Transfer::reduce_scatter, Transfer::all_gather},
    {Letter::S, Letter::I, Transfer::all_gather, Transfer::slice},
    {Letter::I, Letter::S, Transfer::slice, Transfer::all_gather},
    {Letter::S, Letter::S, Transfer::all_to_all, Transfer::all_to_all},
};

struct Refused {
  Letter from, to;
  const char* why;
};

constexpr const char* kNoNewSum =
    "P is the result of an op that sums over a split dim. A whole tensor used as a partial sum "
    "would be counted once per rank of the axis: leave it unchanged";
constexpr Refused kRefused[] = {
    {Letter::R, Letter::I,
     "R's gradient arrives as partial sums, one per rank, but after I every rank would provide the "
     "whole gradient, which would be counted once per rank. A tensor that all ranks compute "
     "equally is I from the start: put I -> R where the ranks begin to differ"},
    {Letter::R, Letter::S,
     "R's gradient needs a partial sum from every rank, but each rank would have it only for its "
     "own piece. Take the piece of the tensor before it became R: I -> S"},
    {Letter::P, Letter::R,
     "its backward would be P -> R again: one edge with a reduction in both directions hides where "
     "the gradient is reduced. Write P -> I, and I -> R where the next region begins"},
    {Letter::R, Letter::P, kNoNewSum},
    {Letter::I, Letter::P, kNoNewSum},
    {Letter::S, Letter::P, kNoNewSum},
};

}  // namespace

Placement Placement::S(int dim) {
  MT_CHECK(dim >= 0 && dim <= std::numeric_limits<int8_t>::max(), "dim ", dim,
           ": dims count from 0");
  return {Letter::S, static_cast<int8_t>(dim)};
}

int Placement::dim() const {
  MT_CHECK(letter_ == Letter::S, to_text(*this), " is not split along a dim");
  return dim_;
}

std::string to_text(Placement placement) {
  switch (placement.letter()) {
    case Letter::R:
      return "R";
    case Letter::I:
      return "I";
    case Letter::S:
      return cat("S(", placement.dim(), ")");
    case Letter::P:
      return "P";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, Placement placement) {
  return out << to_text(placement);
}

Placement parse_placement(std::string_view text) {
  if (text == "R") return Placement::R();
  if (text == "I") return Placement::I();
  if (text == "P") return Placement::P();
  bool split = text.size() > 3 && text.substr(0, 2) == "S(" && text.back() == ')';
  int8_t dim = -1;
  if (split) {
    std::string_view digits = text.substr(2, text.size() - 3);
    auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), dim);
    if (fault != std::errc{} || end != digits.data() + digits.size()) dim = -1;
  }
  MT_USER_CHECK(dim >= 0, ErrorClass::config, cat("'", printable(text), "' is not a placement"),
                "R (whole, gradient partial), I (whole), S(0), S(1), ... (split along a dim), P "
                "(partial sum)");
  return Placement::S(dim);
}

Placement dual(Placement placement) {
  switch (placement.letter()) {
    case Letter::R:
      return Placement::P();
    case Letter::P:
      return Placement::R();
    case Letter::I:
    case Letter::S:
      return placement;
  }
  return placement;
}

const char* name(Transfer transfer) {
  switch (transfer) {
    case Transfer::none:
      return "nothing";
    case Transfer::all_reduce:
      return "all-reduce";
    case Transfer::all_gather:
      return "all-gather";
    case Transfer::reduce_scatter:
      return "reduce-scatter";
    case Transfer::slice:
      return "slice";
    case Transfer::all_to_all:
      return "all-to-all";
  }
  return "?";
}

std::span<const Transition> transitions() { return kTransitions; }

Transition transition(Placement from, Placement to) {
  if (from == to) return {from.letter(), to.letter(), Transfer::none, Transfer::none};
  for (const Transition& row : kTransitions)
    if (row.from == from.letter() && row.to == to.letter()) return row;
  throw Error(ErrorClass::bug, cat("a tensor cannot be redistributed from ", from, " to ", to),
              refusal(from, to));
}

std::string refusal(Placement from, Placement to) {
  for (const Refused& row : kRefused)
    if (row.from == from.letter() && row.to == to.letter()) return row.why;
  return "";
}

}  // namespace mtrain
