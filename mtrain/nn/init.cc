#include "mtrain/nn/init.h"

#include <algorithm>

#include "mtrain/base/parallel.h"
#include "mtrain/base/rng.h"

namespace mtrain {
namespace {

void fill_random(const Init& init, const RngStream& stream, std::span<float> values,
                 uint64_t first) {
  const bool normal = init.kind == Init::Kind::normal;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        init.value * (normal ? stream.normal(first + i) : 2 * stream.uniform(first + i) - 1);
}

void multiply(const Init& init, std::span<float> values, uint64_t first) {
  for (size_t i = 0; init.factor && i < values.size(); ++i)
    values[i] *= init.factor(static_cast<int64_t>(first + i));
}

}  // namespace

void fill(const Init& init, uint64_t seed, std::string_view name, std::span<float> values,
          uint64_t first_index) {
  if (init.kind == Init::Kind::constant) {
    std::fill(values.begin(), values.end(), init.value);
    return multiply(init, values, first_index);
  }
  RngStream stream(seed, name);
  parallel_ranges(values.size(), 1 << 16, [&](size_t begin, size_t end) {
    fill_random(init, stream, values.subspan(begin, end - begin), first_index + begin);
  });
  multiply(init, values, first_index);
}

}  // namespace mtrain
