#include "mtrain/base/parallel.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace mtrain {

void parallel_ranges(size_t count, size_t least, const std::function<void(size_t, size_t)>& f) {
  const size_t workers = std::min<size_t>(std::max(1U, std::thread::hardware_concurrency()),
                                          count / std::max<size_t>(1, least) + 1);
  const size_t share = (count + workers - 1) / workers;
  std::vector<std::jthread> threads;
  for (size_t w = 1; w < workers; ++w) {
    const size_t begin = std::min(count, w * share), end = std::min(count, begin + share);
    if (begin < end) threads.emplace_back([&f, begin, end] { f(begin, end); });
  }
  if (count > 0) f(0, std::min(count, share));
}

}  // namespace mtrain
