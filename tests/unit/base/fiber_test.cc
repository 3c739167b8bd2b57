#include "mtrain/base/fiber.h"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

namespace mtrain {
namespace {

TEST_CASE("fibers: control goes to and fro, each with its own stack") {
  Fiber fiber;
  std::string seen;
  for (int round = 0; round < 3; ++round) {
    seen.clear();
    fiber.start([&] {
      for (char c : {'a', 'b', 'c'}) {
        std::string kept(100, c);  // lives across a switch
        fiber.yield();
        seen += kept.substr(0, 1);
      }
    });
    for (char c = '1'; fiber.under_way(); ++c) {
      seen += c;
      fiber.resume();
    }
    CHECK(seen == "1a2b3c");
  }
}

TEST_CASE(
    "fibers: what is thrown comes out where it was resumed, and what was caught inside does not") {
  Fiber fiber;
  int unwound = 0;
  struct Count {
    int& n;
    ~Count() { ++n; }
  };
  fiber.start([&] {
    Count count{unwound};
    try {
      throw std::runtime_error("inner");
    } catch (const std::runtime_error&) {
    }
    fiber.yield();
    throw std::runtime_error("outer");
  });
  CHECK(unwound == 0);
  CHECK_THROWS_WITH(fiber.resume(), "outer");
  CHECK(unwound == 1);
  CHECK_FALSE(fiber.under_way());
  CHECK_THROWS_WITH(fiber.start([] { throw std::runtime_error("at once"); }), "at once");
}

TEST_CASE("fibers: half a megabyte of stack") {
  Fiber fiber;
  int sum = 0;
  fiber.start([&] {
    volatile char bytes[1 << 19];
    for (size_t i = 0; i < sizeof(bytes); i += 4096) bytes[i] = 1;
    fiber.yield();
    for (size_t i = 0; i < sizeof(bytes); i += 4096) sum += bytes[i];
  });
  fiber.resume();
  CHECK(sum == (1 << 19) / 4096);
}

}  // namespace
}  // namespace mtrain
