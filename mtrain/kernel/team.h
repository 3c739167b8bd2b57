// Team: the threads that work on one row together. Row functions are templates over it, so one text
// serves a CPU core (which walks the row with vector instructions) and a GPU block (whose threads
// stride over it). A Team offers
//   each(n, f)        f(i) for i in [0, n), in any order, each i once
//   sum(n, f)         Σ f(i) in float, the same value for every member
//   sum2(n, f)        two sums in one pass; f(i) gives a Pair
//   max(n, f)         the largest f(i) that is not NaN; -infinity for n = 0
//   once(f)           f() by one member
// The order of a sum is fixed by n alone. Stateless types; members of one team call the same
// functions in the same order.
#pragma once
#include <cstdint>

#include "mtrain/base/export.h"

namespace mtrain {

struct Pair {
  float first, second;
};

MT_HD float square(float x) { return x * x; }

}  // namespace mtrain
