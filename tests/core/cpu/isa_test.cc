// The objects of one instruction-set level must define nothing that another level or the rest of the program
// would use: the linker keeps one copy of a shared inline function, and if that copy needs AVX-512 the
// program dies elsewhere.
#include "mtrain/cpu/isa.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace mtrain::testing {
namespace {

namespace fs = std::filesystem;

#if defined(NDEBUG) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
constexpr bool kOptimised = true;
#else
constexpr bool kOptimised = false;
#endif

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr)
    lines.emplace_back(line.data());
  pclose(pipe);
  return lines;
}

}  // namespace

TEST_CASE("the levels are ordered, best first, and end with the plain one") {
  auto usable = cpu::usable_isas();
  REQUIRE_FALSE(usable.empty());
  CHECK(usable.back().name == "base");
  for (size_t i = 1; i < usable.size(); ++i) CHECK(usable[i - 1].name > usable[i].name);
}

TEST_CASE("no instruction-set level defines a shared inline function") {
  if (!kOptimised) {
    MESSAGE("skipped: only an optimised build inlines everything");
    return;
  }
  if (lines_of("nm --version 2>/dev/null").empty()) {
    MESSAGE("skipped: no nm");
    return;
  }
  int objects = 0;
  for (std::string level : {"v3", "v4", "v4_bf16"}) {
    fs::path folder = fs::path(MT_BINARY_DIR) / "core" / "CMakeFiles" / ("mtrain_cpu_" + level + ".dir");
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".o") continue;
      ++objects;
      for (const std::string& line : lines_of("nm -C '" + entry.path().string() + "'")) {
        bool weak = line.find(" W ") != std::string::npos || line.find(" V ") != std::string::npos ||
                    line.find(" u ") != std::string::npos;
        bool own = line.find("mtrain::cpu::" + level + "::") != std::string::npos ||
                   line.find("DW.ref.__gxx_personality_v0") != std::string::npos ||  // a pointer, not code
                   line.find("__clang_call_terminate") != std::string::npos;         // ends the program, computes nothing
        CHECK_MESSAGE((!weak || own), entry.path().filename().string(), " at level ", level, ": ", line);
      }
    }
  }
  MESSAGE(objects, " objects looked at");
}

}  // namespace mtrain::testing
