// Every seed, and every seed truncated at every byte, through the entries of the fuzzers.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "roots.h"
#include "tests/fuzz/entries.h"

namespace fs = std::filesystem;

TEST_CASE("the seeds of the fuzzers are read without a crash") {
  for (const auto& entry : mtrain::fuzz::kEntries) {
    size_t count = 0;
    for (const auto& file :
         fs::directory_iterator(mtrain::testing::source_root() / "tests/fuzz/seeds" / entry.name)) {
      std::ifstream in(file.path(), std::ios::binary);
      std::stringstream text;
      text << in.rdbuf();
      const std::string seed = text.str();
      INFO(file.path().string());
      for (size_t bytes = 0; bytes <= seed.size(); ++bytes)
        CHECK_NOTHROW(entry.run(seed.substr(0, bytes)));
      ++count;
    }
    CHECK(count > 0);
  }
}
