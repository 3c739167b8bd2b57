// The objects of one instruction-set level must define nothing that another level or the rest of
// the program would use: the linker keeps one copy of a shared inline function, and if that copy
// needs AVX-512 the program dies elsewhere.
#include "mtrain/cpu/isa.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "mtrain/base/error.h"
#include "roots.h"

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

std::vector<std::string> names(std::string_view cap) {
  std::vector<std::string> out;
  for (const cpu::Isa& isa : cpu::usable_isas(cap)) out.emplace_back(isa.name);
  return out;
}

std::string complaint(std::string_view cap) {
  try {
    cpu::usable_isas(cap);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::usage);
    return error.message() + "; " + error.hint();
  }
  return "none";
}

}  // namespace

TEST_CASE("the levels are ordered, best first, and end with the plain one") {
  std::vector<std::string> usable = names("");
  REQUIRE_FALSE(usable.empty());
  CHECK(usable.back() == "base");
  const std::vector<std::string> ascending = {"base", "v3", "v4", "v4_bf16", "v4_amx"};
  auto rank = [&](const std::string& name) {
    return std::find(ascending.begin(), ascending.end(), name);
  };
  for (size_t i = 0; i < usable.size(); ++i) {
    REQUIRE(rank(usable[i]) != ascending.end());
    if (i > 0) CHECK(rank(usable[i - 1]) > rank(usable[i]));
  }
}

TEST_CASE("a level whose bf16 arithmetic is slower than fp32 is not chosen") {
  auto level = [](std::string_view name) { return cpu::Isa{name, nullptr, nullptr}; };
  std::vector<cpu::Isa> pairs = {level("v4_bf16"), level("v4"), level("base")};
  CHECK(cpu::chosen_isa(pairs, true).name == "v4");
  CHECK(cpu::chosen_isa(pairs, false).name == "v4_bf16");
  CHECK(cpu::chosen_isa({level("v4_amx"), level("v4_bf16")}, true).name == "v4_amx");
  CHECK(cpu::chosen_isa({level("v3"), level("base")}, true).name == "v3");
}

TEST_CASE("a cap leaves out the levels above it") {
  std::vector<std::string> usable = names("");
  for (size_t i = 0; i < usable.size(); ++i) {
    CHECK(names(usable[i]) ==
          std::vector<std::string>(usable.begin() + static_cast<std::ptrdiff_t>(i), usable.end()));
    CHECK(names("force:" + usable[i]) == std::vector<std::string>{usable[i]});
  }
}

TEST_CASE("a cap that names no level is refused with those there are") {
  for (const char* cap : {"avx2", "V3", "force:", "force:x", " v3"}) {
    std::string message = complaint(cap);
    CHECK_MESSAGE(message.find("this build has no level") != std::string::npos, message);
    CHECK(message.find("base") != std::string::npos);
  }
#ifdef __x86_64__
  std::vector<std::string> usable = names("");
  for (const char* level : {"v3", "v4"})  // in every build for this architecture
    if (std::find(usable.begin(), usable.end(), level) == usable.end())
      CHECK(complaint(level).find("this CPU has no level") != std::string::npos);
#endif
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
  for (std::string level : {"v3", "v4", "v4_bf16", "v4_amx"}) {
    fs::path folder = build_root() / "mtrain" / "CMakeFiles" / ("mtrain_cpu_" + level + ".dir");
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".o") continue;
      ++objects;
      for (const std::string& line : lines_of("nm -C '" + entry.path().string() + "'")) {
        bool weak = line.find(" W ") != std::string::npos ||
                    line.find(" V ") != std::string::npos || line.find(" u ") != std::string::npos;
        bool own =
            line.find("mtrain::cpu::" + level + "::") != std::string::npos ||
            line.find("DW.ref.__gxx_personality_v0") != std::string::npos ||  // a pointer, not code
            line.find("__clang_call_terminate") !=
                std::string::npos;  // ends the program, computes nothing
        CHECK_MESSAGE((!weak || own), entry.path().filename().string(), " at level ", level, ": ",
                      line);
      }
    }
  }
#ifdef __x86_64__  // other processors have one level, which is no folder of objects
  CHECK(objects > 0);
#endif
}

}  // namespace mtrain::testing
