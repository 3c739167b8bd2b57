#include "mtrain/pipeline/lower.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/schedule_text.h"

namespace mtrain {
namespace {

TEST_CASE("lower: the programs of two ranks") {
  CHECK(to_text(lower(one_f_one_b({2, 2}), StageMap::looping(2))) ==
        "0F0 0SendX0 0F1 0SendX1 0RecvG0 0B0 0RecvG1 0B1 0R\n"
        "1RecvX0 1F0 1RecvX1 1B0 1SendG0 1F1 1B1 1SendG1 1R\n");
  // The turn of the V needs no transfer: stages 1 and 2 are neighbours on rank 1.
  CHECK(to_text(
            lower(parse_schedule("0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0", "v"), StageMap::v_shape(2))) ==
        "0F0 0SendX0 3RecvX0 3F0 3B0 3SendG0 3R 0RecvG0 0B0 0R\n"
        "1RecvX0 1F0 2F0 2SendX0 2RecvG0 2B0 2R 1B0 1SendG0 1R\n");
  CHECK(to_text(lower(one_f_one_b({1, 2}), StageMap::looping(1))) == "0F0 0B0 0F1 0B1 0R\n");
}

TEST_CASE("lower: nothing computed changes its order, and each transfer has two sides") {
  for (std::string_view name : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"}) {
    bool two = name == "interleaved" || name == "zb_v";
    Plan plan{two ? 8 : 4, 8, two ? 2 : 1};
    StageMap map = stage_map(name, plan);
    Schedule plain = make_schedule(name, plan), lowered = lower(plain, map), stripped = lowered;
    size_t transfers = 0;
    for (Program& program : stripped)
      transfers += std::erase_if(program, [](const Action& a) {
        return a.what >= ActionKind::recv_forward && a.what <= ActionKind::send_backward;
      });
    CHECK(stripped == plain);
    size_t borders = 0;
    for (int64_t s = 0; s + 1 < map.stages(); ++s) borders += map.rank(s) != map.rank(s + 1);
    CHECK(transfers == borders * 8 * 4);
  }
}

TEST_CASE("lower: between two ranks receives have the order of the sends") {
  Plan plan{8, 8, 2};
  for (auto [name, transfer] : {std::pair{"interleaved", TransferMode::asynchronous},
                                {"interleaved", TransferMode::rendezvous},
                                {"zb_v", TransferMode::asynchronous},
                                {"zb_v", TransferMode::rendezvous}}) {
    StageMap map = stage_map(name, plan);
    Schedule lowered = lower(make_schedule(name, plan), map, {.stages = {}, .transfer = transfer});
    for (int64_t from = 0; from < 4; ++from)
      for (int64_t to = 0; to < 4; ++to) {
        std::vector<std::string> sent, received;
        auto note = [&](int64_t rank, bool send, std::vector<std::string>& out) {
          for (const Action& a : lowered[static_cast<size_t>(rank)]) {
            bool x = a.what == (send ? ActionKind::send_forward : ActionKind::recv_forward),
                 g = a.what == (send ? ActionKind::send_backward : ActionKind::recv_backward);
            if (!x && !g) continue;
            int64_t other = a.stage + (x == send ? 1 : -1);
            if (map.rank(other) == (send ? to : from))
              out.push_back(cat(x ? "X" : "G", send ? a.stage : other, ".", a.micro));
          }
        };
        note(from, true, sent), note(to, false, received);
        CHECK(sent == received);
      }
  }
}

TEST_CASE(
    "lower: ranks that stand still for transfers meet when both are free, if that is quicker") {
  Costs still{.stages = {}, .send = 0.1, .transfer = TransferMode::rendezvous};
  for (auto [name, virtual_stages, gain] :
       {std::tuple{"interleaved", 2, 0.75}, {"zb_h1", 1, 0.9}, {"zb_v", 2, 0.95}}) {
    Plan plan{8 * virtual_stages, 32, virtual_stages};
    StageMap map = stage_map(name, plan);
    Schedule early = lower(make_schedule(name, plan), map),
             rendezvous = lower(make_schedule(name, plan), map, still);
    CHECK(simulate(rendezvous, plan, still).makespan <
          gain * simulate(early, plan, still).makespan);
  }
  // Two ranks, by hand: rank 0 computes its second forward while rank 1 is busy with the first.
  Costs slow_end{.stages = {{1, 1, 1}, {4, 1, 1}}, .transfer = TransferMode::rendezvous};
  CHECK(to_text(lower(gpipe({2, 3}), StageMap::looping(2), slow_end)) ==
        "0F0 0SendX0 0F1 0F2 0SendX1 0SendX2 0RecvG0 0B0 0RecvG1 0B1 0RecvG2 0B2 0R\n"
        "1RecvX0 1F0 1RecvX1 1RecvX2 1F1 1F2 1B0 1SendG0 1B1 1SendG1 1B2 1SendG2 1R\n");
}

TEST_CASE("lower: takes its order from the costs, also from those that are nothing") {
  Plan plan{3, 4};
  for (Costs costs :
       {Costs{.stages = {{}, {.forward = 0, .backward = 0, .weights = 0}, {}}},
        Costs{.all = {0, 0, 0}}, Costs{.stages = {{9, 1, 1}, {1, 9, 1}, {1, 1, 9}}, .send = 4}})
    for (const Schedule& schedule : {one_f_one_b(plan), zb_h1(plan), gpipe(plan)}) {
      Schedule lowered = lower(schedule, StageMap::looping(3), costs);
      for (TransferMode transfer : {TransferMode::asynchronous, TransferMode::rendezvous}) {
        costs.transfer = transfer;
        CHECK(simulate(lowered, plan, costs).faults.empty());
        CHECK(simulate(lowered, plan, {.stages = {}, .transfer = transfer}).faults.empty());
      }
    }
}

TEST_CASE("lower: reductions come after a stage's last backward, once") {
  Schedule schedule = parse_schedule("0F0 0B0 0F1 0B1", "a");
  add_reduces(schedule);
  CHECK(to_text(schedule) == "0F0 0B0 0F1 0B1 0R\n");
  add_reduces(schedule);
  CHECK(to_text(schedule) == "0F0 0B0 0F1 0B1 0R\n");
  schedule = parse_schedule("0F0 1F0 1B0 1W0 0B0 0W0", "b");
  add_reduces(schedule);
  CHECK(to_text(schedule) == "0F0 1F0 1B0 1W0 1R 0B0 0W0 0R\n");
}

TEST_CASE("lower: what cannot be lowered is refused with the reason") {
  auto message = [](std::string_view text, const StageMap& map) -> std::string {
    try {
      lower(parse_schedule(text, "s"), map);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::config);
      return error.message();
    }
    return "";
  };
  StageMap two = StageMap::looping(2);
  CHECK(message("0F0 0B0", two) == "the schedule has programs for 1 rank, but the pipeline has 2");
  CHECK(message("0F0 1F0 1B0\n0B0", two) == "rank 0 has 1F0, but stage 1 is on rank 1");
  CHECK(message("0F0 0B0\n1F0 2F0 1B0", two) == "rank 1 has 2F0, but there are only 2 stages");
  CHECK(message("0F0 0SendX0 0B0\n1F0 1B0", two) == "rank 0 already has a transfer: 0SendX0");
  CHECK(message("0B0 0F0\n1F0 1B0", two)
            .starts_with("the schedule cannot run: rank 0 waits forever at 0B0 for 0F0"));
}

}  // namespace
}  // namespace mtrain
