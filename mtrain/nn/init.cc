#include "mtrain/nn/init.h"

#include <algorithm>
#include <thread>
#include <vector>

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

}  // namespace

void fill(const Init& init, uint64_t seed, std::string_view name, std::span<float> values,
          uint64_t first_index) {
  if (init.kind == Init::Kind::constant) {
    std::fill(values.begin(), values.end(), init.value);
    return;
  }
  RngStream stream(seed, name);
  constexpr size_t kChunk = 1 << 16;
  size_t workers = std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()),
                                    values.size() / kChunk + 1);
  size_t share = (values.size() + workers - 1) / workers;
  if (workers == 1) return fill_random(init, stream, values, first_index);
  std::vector<std::jthread> threads;
  for (size_t w = 0; w < workers; ++w) {
    size_t begin = std::min(values.size(), w * share), end = std::min(values.size(), begin + share);
    auto part = values.subspan(begin, end - begin);
    if (w + 1 == workers)
      fill_random(init, stream, part, first_index + begin);
    else
      threads.emplace_back([=] { fill_random(init, stream, part, first_index + begin); });
  }
}

}  // namespace mtrain
