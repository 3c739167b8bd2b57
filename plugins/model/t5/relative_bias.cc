#include "relative_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace mtrain::t5 {

int64_t bucket_of(int64_t distance, bool bidirectional, int64_t buckets, int64_t max_distance) {
  int64_t first = 0, apart = std::max<int64_t>(0, -distance);
  if (bidirectional) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
    apart = std::abs(distance);
  }
  const int64_t single = buckets / 2;
  if (apart < single) return first + apart;
  // In float, as in the implementations whose weights are in use: a boundary may be a rounding
  // away.
  const float range =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(single)));
  const float place = std::log(static_cast<float>(apart) / static_cast<float>(single)) / range *
                      static_cast<float>(buckets - single);
  return first + std::min(single + static_cast<int64_t>(place), buckets - 1);
}

namespace {

Tensor bucket_table(const T5Config& c, const Scope& s, int64_t zero, int64_t count,
                    bool bidirectional) {
  std::vector<float> ones(static_cast<size_t>(count * c.position_buckets), 0.0f);
  for (int64_t n = 0; n < count; ++n) {
    const int64_t bucket = bucket_of(n - zero, bidirectional, c.position_buckets, c.max_distance);
    ones[static_cast<size_t>(n * c.position_buckets + bucket)] = 1;
  }
  ExecutionContext& ctx = s.context();
  Tensor wide = ctx.from_host<float>(ones, {count, c.position_buckets});
  if (s.dtype() == DType::f32) return wide;
  Tensor table = ctx.empty(wide.shape(), s.dtype());
  ctx.copy(table, wide);
  return table;
}

}  // namespace

RelativeBias::RelativeBias(const T5Config& c, const Scope& stack, int64_t length,
                           bool bidirectional)
    : table_HB_(stack.param("relative_bias", {{"heads", c.heads}, {"buckets", c.position_buckets}},
                            Init::normal(c.std_of(c.hidden_size)), false, ParamRole::bias)),
      buckets_NB_(bucket_table(c, stack, length - 1, bidirectional ? 2 * length - 1 : length,
                               bidirectional)),
      zero_(length - 1) {
  if (active_axis(stack.parallel().tp)) buckets_NB_.set_placement(Placement::R());
}

DistanceBias RelativeBias::operator()() const {
  return {.table_HN = linear(table_HB_.use(), buckets_NB_), .zero = zero_};
}

}  // namespace mtrain::t5
