// A temporary folder, removed with its content at the end of the test. For one thread.
#pragma once
#include <doctest/doctest.h>
#include <stdlib.h>

#include <iterator>
#include <string>

#include "mtrain/base/file.h"

namespace mtrain::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (fs::temp_directory_path() / "mtrain-test-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  /// The number of files and folders directly in it.
  size_t entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace mtrain::testing
