#include "pending.h"

#include <doctest/doctest.h>

#include <string>

using namespace mtrain;
using cuda::PendingWork;

namespace {

/// What was launched, in order: "u3" an update of three tensors, "n2@5" two norms from slot 5.
struct Fixture {
  std::vector<std::string> launched;
  PendingWork work{
      {.adamw =
           [this](std::span<const AdamWArgs> list) {
             launched.push_back("u" + std::to_string(list.size()));
           },
       .norms =
           [this](std::span<const SquaredNormArgs> list, size_t first) {
             launched.push_back("n" + std::to_string(list.size()) + "@" + std::to_string(first));
           }},
      4,
      3,
      7};
  float memory[64] = {};
  /// Of the next 8 numbers of `memory`.
  AdamWArgs update(void* value = nullptr, DType dtype = DType::bf16) {
    float* param = memory + 8 * (next++ % 8);
    return {.param = param, .value = value, .count = 8, .value_dtype = dtype};
  }
  int next = 0;
};

}  // namespace

TEST_CASE(
    "updates are launched together, at most a batch at a time, and only when something else "
    "comes") {
  Fixture lab;
  for (int i = 0; i < 6; ++i) lab.work.add(lab.update());
  CHECK(lab.launched == std::vector<std::string>{"u4"});
  lab.work.flush();
  lab.work.flush();
  CHECK(lab.launched == std::vector<std::string>{"u4", "u2"});
}

TEST_CASE("two updates of the same memory are two launches, in order") {
  Fixture lab;
  AdamWArgs first = lab.update();
  AdamWArgs overlapping = first;
  overlapping.param += 7;
  lab.work.add(first);
  lab.work.add(lab.update());
  lab.work.add(first);
  lab.work.add(overlapping);
  lab.work.flush();
  CHECK(lab.launched == std::vector<std::string>{"u2", "u1", "u1"});
}

TEST_CASE("tensors of another compute dtype, and norms, keep the order of calls") {
  Fixture lab;
  double out = 0;
  lab.work.add(lab.update(lab.memory, DType::bf16));
  lab.work.add(lab.update(lab.memory, DType::f16));
  lab.work.add(lab.update());
  REQUIRE(lab.work.add({.x = lab.memory, .count = 8, .out = &out}));
  lab.work.add(lab.update());
  CHECK(lab.launched == std::vector<std::string>{"u1", "u1", "u1", "n1@0"});
}

TEST_CASE("each norm gets the result of its own slot, once") {
  Fixture lab;
  double out[7] = {};
  for (double& o : out) REQUIRE(lab.work.add({.x = lab.memory, .count = 8, .out = &o}));
  CHECK_FALSE(lab.work.add({.x = lab.memory, .count = 8, .out = out}));  // all slots are taken
  lab.work.flush();
  CHECK(lab.launched == std::vector<std::string>{"n3@0", "n3@3", "n1@6"});
  CHECK(lab.work.owed() == 7);
  const double slots[7] = {1, 2, 3, 4, 5, 6, 7};
  lab.work.deliver(slots);
  for (int i = 0; i < 7; ++i) CHECK(out[i] == i + 1);
  CHECK(lab.work.owed() == 0);
  out[0] = 99;
  lab.work.deliver(slots);
  CHECK(out[0] == 99);
}
