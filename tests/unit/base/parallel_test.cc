// Work that is divided among threads: each item once, in contiguous parts of the asked size.
#include "mtrain/base/parallel.h"

#include <doctest/doctest.h>

#include <mutex>
#include <vector>

using namespace mtrain;

TEST_CASE("every item is visited once, in parts of at least so many items") {
  for (size_t count : {0, 1, 7, 64, 1000, 4097})
    for (size_t least : {1, 3, 64, 5000}) {
      CAPTURE(count);
      CAPTURE(least);
      std::vector<int> visits(count);
      std::mutex mutex;
      size_t parts = 0;
      parallel_ranges(count, least, [&](size_t begin, size_t end) {
        CHECK(begin < end);
        const std::lock_guard lock(mutex);
        ++parts;
        for (size_t i = begin; i < end; ++i) ++visits[i];
      });
      for (int v : visits) CHECK(v == 1);
      CHECK(parts <= count / least + 1);
    }
}
