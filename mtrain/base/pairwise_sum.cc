#include "mtrain/base/pairwise_sum.h"

#include <algorithm>
#include <array>

namespace mtrain {

double pairwise_sum(std::span<const double> x) {
  const size_t n = x.size();
  if (n < 8) {
    double sum = 0;
    for (double value : x) sum += value;
    return sum;
  }
  if (n > 128) {
    size_t half = n / 2;
    half -= half % 8;
    return pairwise_sum(x.first(half)) + pairwise_sum(x.subspan(half));
  }
  std::array<double, 8> r;
  std::copy_n(x.begin(), 8, r.begin());
  size_t i = 8;
  for (; i < n - n % 8; i += 8)
    for (size_t k = 0; k < 8; ++k) r[k] += x[i + k];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += x[i];
  return sum;
}

}  // namespace mtrain
