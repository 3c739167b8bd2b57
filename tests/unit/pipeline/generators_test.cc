// Every generator against orders made elsewhere, and against what the papers say of bubble and
// memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/pipeline/lower.h"
#include "mtrain/pipeline/schedule_text.h"
#include "roots.h"

namespace mtrain {
namespace {

Schedule without_reduces(Schedule schedule) {
  for (Program& program : schedule)
    std::erase_if(program, [](const Action& a) { return a.what == ActionKind::reduce; });
  return schedule;
}

Schedule without_transfers(Schedule schedule) {
  for (Program& program : schedule)
    std::erase_if(program, [](const Action& a) {
      return a.what >= ActionKind::recv_forward && a.what <= ActionKind::send_backward;
    });
  return schedule;
}

TEST_CASE("schedules: the orders of an independent generator") {
  std::istringstream file(
      read_file(testing::source_root() / "tests/golden/pipeline/schedules.txt"));
  std::map<std::string, std::string> cases;  // title to programs
  std::string line, title;
  while (std::getline(file, line)) {
    if (line.starts_with("== "))
      title = line.substr(3);
    else if (!line.starts_with("#"))
      cases[title] += line + "\n";
  }
  REQUIRE(cases.size() == 30);
  for (const auto& [name_and_plan, programs] : cases) {
    INFO(name_and_plan);
    std::istringstream words(name_and_plan);
    std::string name;
    int64_t ranks = 0;
    Plan plan;
    words >> name >> ranks >> plan.micro_batches >> plan.virtual_stages >> plan.group_size;
    plan.stages = ranks * plan.virtual_stages;
    CHECK(to_text(without_reduces(make_schedule(name, plan))) == programs);
  }
}

TEST_CASE("interleaved: the table of Narayanan et al. 2021, figure 4, 4 ranks, 8 micro-batches") {
  // Micro-batches from 1 as in the figure; small letters are the second stage of a rank.
  const char* figure[] = {
      "F1 F2 F3 F4 f1 f2 f3 f4 F5 F6 F7 b1 F8 b2 f5 b3 f6 b4 f7 B1 f8 B2 B3 B4 b5 b6 b7 b8 B5 B6 "
      "B7 B8",
      "F1 F2 F3 F4 f1 f2 f3 f4 F5 b1 F6 b2 F7 b3 F8 b4 f5 B1 f6 B2 f7 B3 f8 B4 b5 b6 b7 b8 B5 B6 "
      "B7 B8",
      "F1 F2 F3 F4 f1 f2 f3 b1 f4 b2 F5 b3 F6 b4 F7 B1 F8 B2 f5 B3 f6 B4 f7 b5 f8 b6 b7 b8 B5 B6 "
      "B7 B8",
      "F1 F2 F3 F4 f1 b1 f2 b2 f3 b3 f4 b4 F5 B1 F6 B2 F7 B3 F8 B4 f5 b5 f6 b6 f7 b7 f8 b8 B5 B6 "
      "B7 B8"};
  Schedule schedule =
      without_reduces(interleaved({.stages = 8, .micro_batches = 8, .virtual_stages = 2}));
  REQUIRE(schedule.size() == 4);
  for (size_t r = 0; r < 4; ++r) {
    std::vector<std::string> words;
    for (const Action& a : schedule[r]) {
      const char* letters = a.stage < 4 ? "FB" : "fb";
      words.push_back(cat(letters[a.what == ActionKind::backward], a.micro + 1));
    }
    CHECK(join(words, " ") == figure[r]);
  }
}

TEST_CASE("zero bubble: worked out by hand") {
  CHECK(to_text(zb_h1({.stages = 2, .micro_batches = 3})) ==
        "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2 0R\n1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2 1R\n");
  CHECK(to_text(zb_v({.stages = 4, .micro_batches = 3, .virtual_stages = 2})) ==
        "0F0 0F1 0F2 3F0 3B0 3W0 3F1 3B1 3W1 0B0 0W0 3F2 3B2 3W2 3R 0B1 0W1 0B2 0W2 0R\n"
        "1F0 2F0 1F1 2F1 2B0 2W0 1F2 1B0 1W0 2F2 2B1 2W1 1B1 2B2 1B2 1W1 2W2 2R 1W2 1R\n");
}

struct Family {
  const char* name;
  std::vector<int64_t> virtual_stages;
  bool splits;
};

const Family kFamilies[] = {{"gpipe", {1}, false},
                            {"1f1b", {1}, false},
                            {"interleaved", {1, 2, 3, 4}, false},
                            {"combined", {1, 2, 3, 4}, false},
                            {"zb_h1", {1}, true},
                            {"zb_v", {2}, true}};

/// Calls `check(family, plan)` for all that can be planned with 1 to 8 ranks.
template <class Check>
void for_each_plan(const Check& check) {
  for (const Family& family : kFamilies)
    for (int64_t ranks = 1; ranks <= 8; ++ranks)
      for (int64_t vp : family.virtual_stages)
        for (int64_t micro : {1, 2, 3, 4, 5, 7, 8, 13, 16, 24})
          for (int64_t group : {int64_t{0}, ranks + 1}) {
            bool grouped = family.name == std::string_view("interleaved") ||
                           family.name == std::string_view("combined");
            if (!grouped && group != 0) continue;
            int64_t size = group ? group : ranks;
            bool fits = size <= micro && (micro % size == 0 || micro % size >= ranks);
            if (grouped && ranks > 1 && !fits) continue;
            INFO(std::string(family.name), ", ", ranks, " ranks x ", vp, ", ", micro,
                 " micro-batches, groups of ", group);
            check(family, Plan{ranks * vp, micro, vp, group});
          }
}

TEST_CASE(
    "schedules: no fault and each action once, before and after lowering, with either kind of "
    "transfer") {
  int plans = 0;
  for_each_plan([&](const Family& family, const Plan& plan) {
    ++plans;
    Schedule schedule = make_schedule(family.name, plan);
    REQUIRE(static_cast<int64_t>(schedule.size()) == plan.ranks());
    size_t actions = 0;
    for (const Program& program : schedule) actions += program.size();
    CHECK(static_cast<int64_t>(actions) ==
          plan.stages * (plan.micro_batches * (family.splits ? 3 : 2) + 1));
    Simulated plain = simulate(schedule, plan);
    REQUIRE_MESSAGE(plain.faults.empty(), plain.faults[0]);
    StageMap map = stage_map(family.name, plan);
    Costs still{.stages = {}, .send = 0.1, .transfer = TransferMode::rendezvous};
    Schedule lowered = lower(schedule, map), rendezvous = lower(schedule, map, still);
    for (TransferMode transfer : {TransferMode::asynchronous, TransferMode::rendezvous})
      for (double send : {0.0, 0.3}) {
        Costs costs{.stages = {}, .send = send, .transfer = transfer};
        Simulated run = simulate(lowered, plan, costs);
        REQUIRE_MESSAGE(run.faults.empty(), run.faults[0]);
        CHECK(run.peak == plain.peak);
        if (transfer ==
            TransferMode::asynchronous)  // as is taken for granted where transfers are no actions
          CHECK(run.makespan == simulate(schedule, plan, {.stages = {}, .send = send}).makespan);
        Simulated other = simulate(rendezvous, plan, costs);
        REQUIRE_MESSAGE(other.faults.empty(), other.faults[0]);
      }
    CHECK(without_transfers(rendezvous) == schedule);
    CHECK(simulate(rendezvous, plan, still).makespan <= simulate(lowered, plan, still).makespan);
  });
  CHECK(plans > 500);
}

TEST_CASE("bubbles have their closed forms") {
  for_each_plan([&](const Family& family, const Plan& plan) {
    std::string_view name = family.name;
    auto p = static_cast<double>(plan.ranks()), m = static_cast<double>(plan.micro_batches);
    auto vp = static_cast<double>(plan.virtual_stages);
    Simulated run = simulate(make_schedule(name, plan), plan);
    if (name == "gpipe" || name == "1f1b")
      CHECK(run.bubble == doctest::Approx((p - 1) / (m + p - 1)).epsilon(1e-12));
    bool in_turns = name == "interleaved" || name == "combined";
    if (in_turns && plan.group_size == 0 && plan.micro_batches % plan.ranks() == 0)
      CHECK(run.bubble == doctest::Approx((p - 1) / (vp * m + p - 1)).epsilon(1e-12));
    // Idle time (p-1) (F+B-W), a third of 1F1B's; in a V each stage is half as long.
    if (name == "zb_h1" && m >= p)
      CHECK(run.bubble == doctest::Approx((p - 1) / (3 * m + p - 1)).epsilon(1e-12));
    if (name == "zb_v" && m >= 2 * p - 1)
      CHECK(run.bubble == doctest::Approx((p - 1) / (6 * m + p - 1)).epsilon(1e-12));
  });
}

TEST_CASE("ZB-H1 leaves (p-1) (F+B-W) idle for other costs, too, while W is the shortest") {
  for (auto [f, b, w] :
       {std::array{1.0, 1.0, 0.5}, std::array{1.0, 1.2, 0.8}, std::array{2.0, 2.0, 1.0}}) {
    Plan plan{.stages = 4, .micro_batches = 12};
    Costs costs{.stages = {}, .all = {.forward = f, .backward = b, .weights = w}};
    Simulated run = simulate(zb_h1(plan), plan, costs);
    CHECK(run.makespan - 12 * (f + b + w) == doctest::Approx(3 * (f + b - w)).epsilon(1e-12));
  }
}

TEST_CASE(
    "zero bubble: a smaller bubble than GPipe, 1F1B and interleaving by two, with 1F1B's memory") {
  for (int64_t p = 2; p <= 8; ++p)
    for (int64_t m : {2 * p, 4 * p, 8 * p}) {
      INFO(p, " ranks, ", m, " micro-batches");
      Plan one{p, m}, two{2 * p, m, 2};
      Simulated base = simulate(one_f_one_b(one), one), all = simulate(gpipe(one), one),
                in = simulate(interleaved(two), two);
      Simulated h1 = simulate(zb_h1(one), one), v = simulate(zb_v(two), two);
      CHECK(h1.bubble < base.bubble);
      CHECK(h1.bubble < all.bubble);
      CHECK(h1.bubble < in.bubble);
      CHECK(v.bubble < h1.bubble);
      CHECK(base.peak_activations == p);
      CHECK(all.peak_activations == m);
      CHECK(h1.peak == std::vector<double>(static_cast<size_t>(p), static_cast<double>(p)));
      CHECK(v.peak == std::vector<double>(static_cast<size_t>(p),
                                          static_cast<double>(2 * p)));  // of stages half as long
      CHECK(in.peak_activations == 3 * p - 1);
    }
}

TEST_CASE(
    "combined: pairs of independent actions, all but the first forwards and the last backwards of "
    "a rank") {
  for (int64_t p = 1; p <= 4; ++p)
    for (int64_t vp : {1, 2, 3}) {
      Plan plan{p * vp, 4 * p, vp};
      INFO(p, " ranks x ", vp);
      Schedule schedule = combined(plan);
      for (size_t r = 0; r < schedule.size(); ++r) {
        size_t pairs = 0;
        for (size_t i = 0; i < schedule[r].size(); ++i) {
          const Action& a = schedule[r][i];
          if (!a.overlapped) continue;
          ++pairs;
          REQUIRE(i + 1 < schedule[r].size());
          const Action& b = schedule[r][i + 1];
          CHECK(b.what == ActionKind::backward);
          CHECK(!(a.stage == b.stage && a.micro == b.micro));
        }
        auto warmup = static_cast<size_t>((vp - 1) * p + 2 * (p - 1) + 1) - 2 * r;
        CHECK(pairs == static_cast<size_t>(vp * 4 * p) - warmup);
      }
      Schedule late = with_weight_actions(schedule);
      Simulated run = simulate(schedule, plan), apart = simulate(late, plan);
      CHECK(run.faults.empty());
      CHECK(run.peak_activations == p * (vp + 1));
      CHECK(apart.faults.empty());
      CHECK(parse_schedule(to_text(late), "late") == late);
    }
}

TEST_CASE(
    "late weights: a stage hands its gradient on before it computes those of its weights, which "
    "shortens 1F1B") {
  for (int64_t p = 1; p <= 8; ++p)
    for (int64_t m : {p, 2 * p, 5 * p}) {
      INFO(p, " ranks, ", m, " micro-batches");
      Plan plan{p, m};
      Schedule late = with_weight_actions(one_f_one_b(plan));
      Simulated run = simulate(late, plan);
      REQUIRE(run.faults.empty());
      // Idle (p-1) (F+B), where 1F1B idles (p-1) (F+B+W).
      double fill = static_cast<double>(p - 1), work = 3 * static_cast<double>(m);
      CHECK(run.makespan == doctest::Approx(work + 2 * fill).epsilon(1e-12));
      CHECK(run.peak == simulate(one_f_one_b(plan), plan).peak);
      CHECK(with_weight_actions(late) == late);
    }
  CHECK(with_weight_actions(zb_h1({4, 8})) == zb_h1({4, 8}));
}

TEST_CASE("schedules: what cannot be planned is refused with the reason") {
  auto message = [](std::string_view name, Plan plan) -> std::string {
    try {
      make_schedule(name, plan);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::config);
      return error.message();
    }
    return "";
  };
  CHECK(message("interleaved", {8, 2, 2}) ==
        "microbatch group size 4 must be between the number of pipeline ranks (4) and the number "
        "of micro-batches per step (2)");
  CHECK(
      message("interleaved", {8, 8, 2, 3})
          .starts_with("microbatch group size 3 must be between the number of pipeline ranks (4)"));
  CHECK(message("interleaved", {8, 6, 2}) ==
        "6 micro-batches in groups of 4 leave a last group of 2, which is smaller than "
        "the 4 pipeline ranks");
  CHECK(message("zb_v", {4, 8, 1}) == "a zb_v pipeline has 2 stages per rank, not 1");
  CHECK(message("1f1b", {8, 8, 2}) == "a 1f1b pipeline has 1 stage per rank, not 2");
  CHECK(message("2f2b", {4, 8}) == "unknown schedule '2f2b'");
  CHECK_THROWS_AS(gpipe({0, 1}), Error);
  CHECK_THROWS_AS(zb_h1({1, 0}), Error);
  CHECK_THROWS_AS(interleaved({5, 8, 2}), Error);
  CHECK_THROWS_AS(gpipe({40000, 1}), Error);
}

TEST_CASE("stage maps") {
  StageMap loop = StageMap::looping(3, 2), v = StageMap::v_shape(3);
  CHECK(loop.ranks() == 3);
  CHECK(loop.stages() == 6);
  CHECK(loop.stages_of(1) == std::vector<int64_t>{1, 4});
  CHECK(v.stages_of(0) == std::vector<int64_t>{0, 5});
  CHECK(v.stages_of(2) == std::vector<int64_t>{2, 3});
  CHECK(v.rank(4) == 1);
  CHECK(stage_map("zb_v", {6, 8, 2}).rank(5) == 0);
  CHECK(stage_map("interleaved", {6, 8, 2}).rank(5) == 2);
  CHECK_THROWS_AS(StageMap::looping(0), Error);
  CHECK_THROWS_AS(StageMap::looping(30000, 30000), Error);
}

}  // namespace
}  // namespace mtrain
