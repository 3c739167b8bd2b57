// Team: the threads that process one row together. Row functions are templates over it, so the same
// source serves a CPU core (which processes the row with vector instructions) and a GPU thread
// block (whose threads stride over it). A Team offers
//   each(n, f)        f(i) for i in [0, n), in any order, each i once
//   sum(n, f)         Σ f(i) in float, the same value for every member
//   sum2(n, f)        two sums in one pass; f(i) returns a Pair
//   max(n, f)         the largest f(i) that is not NaN; -infinity for n = 0
//   once(f)           f() by one member
//   kSerial           whether it has a single member, for which consecutive pieces of a row are as
//                     fast as the whole row
// Row functions take rows as pointers, or as views of a GPU thread's registers: x[i] is element i,
// and RowValue<X> the element's type. `i` is an int64_t, or a type of the team that converts to it.
// n alone fixes the order of a sum. Teams are stateless; all members of a team call the same
// functions in the same order.
#pragma once
#include <cstdint>
#include <type_traits>

#include "mtrain/base/export.h"

namespace mtrain {

struct Pair {
  float first, second;
};

namespace detail {
template <class Row>
struct RowValueOf {
  using type = typename Row::value_type;
};
template <class T>
struct RowValueOf<T*> {
  using type = std::remove_const_t<T>;
};
}  // namespace detail
template <class Row>
using RowValue = typename detail::RowValueOf<Row>::type;

MT_HD float square(float x) { return x * x; }

}  // namespace mtrain
