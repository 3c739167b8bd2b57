#include "roots.h"

#include <cstdlib>

namespace mtrain::testing {
namespace {

std::filesystem::path set_or(const char* variable, const std::filesystem::path& otherwise) {
  const char* set = std::getenv(variable);
  return set ? std::filesystem::path(set) : otherwise;
}

}  // namespace

std::filesystem::path source_root() { return set_or("MTRAIN_TEST_ROOT", MT_SOURCE_DIR); }
std::filesystem::path build_root() { return set_or("MTRAIN_TEST_ROOT", MT_BINARY_DIR); }
std::filesystem::path shared_root() { return set_or("MTRAIN_SHARED", source_root() / "../shared"); }

}  // namespace mtrain::testing
