// The locations of the source tree and of the build. A bundle (tools/bundle.sh) has both in one
// folder and names it.
#pragma once
#include <cstdlib>
#include <filesystem>

namespace mtrain::testing {

inline std::filesystem::path root_or(const char* built) {
  const char* bundle = std::getenv("MTRAIN_TEST_ROOT");
  return bundle ? bundle : built;
}
inline std::filesystem::path source_root() { return root_or(MT_SOURCE_DIR); }
inline std::filesystem::path build_root() { return root_or(MT_BINARY_DIR); }

}  // namespace mtrain::testing
