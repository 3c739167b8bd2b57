#include <doctest/doctest.h>

#include <algorithm>

#include "mtrain/pipeline/simulate.h"

namespace mtrain {
namespace {

std::vector<std::string> texts(const Schedule& schedule) {
  std::vector<std::string> out;
  for (const Program& program : schedule) out.push_back(to_text(program));
  return out;
}

using Texts = std::vector<std::string>;

TEST_CASE("1F1B: the programs of one to four stages") {
  CHECK(texts(one_f_one_b({1, 3})) == Texts{"0F0 0B0 0F1 0B1 0F2 0B2 0R"});
  CHECK(texts(one_f_one_b({1, 1})) == Texts{"0F0 0B0 0R"});
  CHECK(texts(one_f_one_b({2, 3})) ==
        Texts{"0F0 0F1 0B0 0F2 0B1 0B2 0R", "1F0 1B0 1F1 1B1 1F2 1B2 1R"});
  CHECK(texts(one_f_one_b({3, 4})) == Texts{"0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3 0R",
                                            "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3 1R",
                                            "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2R"});
  CHECK(texts(one_f_one_b({4, 5})) == Texts{"0F0 0F1 0F2 0F3 0B0 0F4 0B1 0B2 0B3 0B4 0R",
                                            "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1B3 1B4 1R",
                                            "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2B4 2R",
                                            "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3R"});
  // Fewer micro-batches than stages: the warmup is all there is.
  CHECK(texts(one_f_one_b({4, 2})) == Texts{"0F0 0F1 0B0 0B1 0R", "1F0 1F1 1B0 1B1 1R",
                                            "2F0 2F1 2B0 2B1 2R", "3F0 3B0 3F1 3B1 3R"});
}

TEST_CASE("1F1B: simulation finds no fault, the known bubble and the known peak") {
  for (int64_t stages : {1, 2, 3, 4, 8})
    for (int64_t micro : {1, 2, 4, 7, 32}) {
      INFO(stages, " stages, ", micro, " micro-batches");
      Simulated report = simulate(one_f_one_b({stages, micro}), {stages, micro});
      CHECK(report.faults.empty());
      double p = static_cast<double>(stages), m = static_cast<double>(micro);
      CHECK(report.bubble == doctest::Approx((p - 1) / (m + p - 1)).epsilon(1e-12));
      CHECK(report.peak_activations == std::min(stages, micro));
    }
}

TEST_CASE("simulate: all forwards first has the same bubble and keeps every micro-batch") {
  Schedule schedule;
  for (int16_t stage = 0; stage < 2; ++stage) {
    Program program;
    for (int32_t m = 0; m < 4; ++m) program.push_back({ActionKind::forward, stage, m});
    for (int32_t m = 0; m < 4; ++m) program.push_back({ActionKind::backward, stage, m});
    program.push_back({ActionKind::reduce, stage, 0});
    schedule.push_back(program);
  }
  Simulated report = simulate(schedule, {2, 4});
  CHECK(report.faults.empty());
  CHECK(report.bubble == doctest::Approx(1.0 / 5));
  CHECK(report.peak_activations == 4);
}

struct Broken {
  const char* what;
  void (*spoil)(Schedule&);
  const char* found;
};

const Broken kBroken[] = {
    {"backward before forward", [](Schedule& s) { std::swap(s[0][0], s[0][2]); },
     "rank 0 waits forever at 0B0"},
    {"a forward is missing", [](Schedule& s) { s[1].erase(s[1].begin() + 2); },
     "rank 1 waits forever at 1B1"},
    {"a backward is missing", [](Schedule& s) { s[0].erase(s[0].end() - 2); },
     "stage 0 never runs backward of 2"},
    {"crossed order between ranks",
     [](Schedule& s) { std::swap(s[1][0], s[1][4]), std::swap(s[1][1], s[1][5]); },
     "waits forever"},
    {"repeated forward", [](Schedule& s) { s[0].insert(s[0].begin(), s[0][0]); },
     "repeats an action: 0F0"},
    {"repeated backward", [](Schedule& s) { s[1].push_back(s[1][1]); }, "repeats an action: 1B0"},
    {"micro-batch that does not exist",
     [](Schedule& s) {
       s[0].push_back({ActionKind::forward, 0, 3});
     },
     "does not exist: 0F3"},
    {"negative micro-batch",
     [](Schedule& s) {
       s[0].push_back({ActionKind::forward, 0, -1});
     },
     "does not exist"},
    {"stage that does not exist",
     [](Schedule& s) {
       s[0].push_back({ActionKind::forward, 2, 0});
     },
     "does not exist: 2F0"},
    {"no reduction", [](Schedule& s) { s[0].pop_back(); }, "stage 0 never reduces"},
    {"reduction before the last backward", [](Schedule& s) { std::swap(s[1].back(), s[1][5]); },
     "waits forever at 1R"},
    {"a rank without a program", [](Schedule& s) { s.pop_back(); },
     "stage 1 never runs backward of 0"},
    {"an empty schedule", [](Schedule& s) { s.clear(); }, "stage 0 never runs backward of 0"},
};

TEST_CASE("simulate: names what is wrong with a broken schedule") {
  for (const Broken& broken : kBroken) {
    INFO(std::string(broken.what));
    Schedule schedule = one_f_one_b({2, 3});
    broken.spoil(schedule);
    Simulated report = simulate(schedule, {2, 3});
    bool named = std::any_of(
        report.faults.begin(), report.faults.end(),
        [&](const std::string& fault) { return fault.find(broken.found) != std::string::npos; });
    std::string all;
    for (const auto& fault : report.faults) all += fault + "; ";
    CHECK_MESSAGE(named, all);
  }
}

}  // namespace
}  // namespace mtrain
