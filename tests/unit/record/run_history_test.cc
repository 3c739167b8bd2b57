// Which invocation is responsible for which steps.
#include "mtrain/record/run_history.h"

#include <doctest/doctest.h>

using namespace mtrain;

namespace {

std::vector<Invocation> begun_at(std::initializer_list<int64_t> steps, int number = 1) {
  std::vector<Invocation> out;
  for (int64_t step : steps)
    out.push_back({.number = number++,
                   .folder = {},
                   .version = "1",
                   .started = {},
                   .first_step = step,
                   .steps = 100,
                   .last_step = {},
                   .rewound_to = {}});
  return out;
}

/// "1:0-10 2:10-": numbers and steps.
std::string text(const std::vector<Invocation>& history) {
  std::string out;
  for (const auto& part : parts_of_history(history))
    out += (out.empty() ? "" : " ") + std::to_string(part.invocation.number) + ":" +
           std::to_string(part.first) + "-" + (part.last ? std::to_string(*part.last) : "");
  return out;
}

}  // namespace

TEST_CASE("each invocation is responsible up to where the next began") {
  CHECK(text({}).empty());
  CHECK(text(begun_at({0})) == "1:0-");
  CHECK(text(begun_at({0, 10, 25})) == "1:0-10 2:10-25 3:25-");
}

TEST_CASE("an invocation that began earlier takes over, and one that trained nothing is left out") {
  CHECK(text(begun_at({0, 20, 10})) == "1:0-10 3:10-");
  CHECK(text(begun_at({0, 20, 20})) == "1:0-20 3:20-");
  CHECK(text(begun_at({0, 20, 0})) == "3:0-");
  CHECK(text(begun_at({0, 15}, 0)) == "0:0-15 1:15-");  // what a version without history began
  CHECK(text(begun_at({0, 0}, 0)) == "1:0-");
}

TEST_CASE(
    "a run that was taken back ends with the invocation that made the step it was taken back to") {
  auto rewound = [](std::initializer_list<int64_t> steps, int64_t to) {
    std::vector<Invocation> out = begun_at(steps);
    out.back().rewound_to = to;
    return out;
  };
  CHECK(text(rewound({0, 10, 25}, 30)) == "1:0-10 2:10-25 3:25-");
  CHECK(text(rewound({0, 10, 25}, 25)) == "1:0-10 2:10-");
  CHECK(text(rewound({0, 10, 25}, 5)) == "1:0-");
  CHECK(text(rewound({0}, 0)) == "1:0-");
  std::vector<Invocation> continued = rewound({0, 10, 25}, 20);
  continued.push_back(begun_at({20}, 4)[0]);
  CHECK(text(continued) == "1:0-10 2:10-20 4:20-");
}

TEST_CASE("a run's folder, from any place in it") {
  CHECK(run_of("runs/a") == "runs/a");
  CHECK(run_of("runs/a/") == "runs/a");
  CHECK(run_of("runs/a/checkpoints") == "runs/a");
  CHECK(run_of("runs/b/../a/checkpoints/step-10/") == "runs/a");
}
