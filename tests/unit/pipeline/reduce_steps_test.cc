// The reductions of gradients as steps of B, W and R: where the generator puts them, what they
// cost, how they are drawn, and what the interpreter's cursor does with them.
#include "mtrain/pipeline/reduce_steps.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/picture.h"
#include "mtrain/pipeline/schedule_text.h"
#include "mtrain/pipeline/simulate.h"
#include "mtrain/pipeline/step_cursor.h"
#include "unit/pipeline/parsed.h"

namespace mtrain {
namespace {

using enum ReduceWhen;

GradientBucket bucket(std::vector<PartId> parts, ReduceWhen when, int64_t sent = 0,
                      bool waits = false) {
  return {.parts = std::move(parts),
          .when = when,
          .blocking = waits,
          .collective = "all-reduce",
          .axis = "dp",
          .ranks = 2,
          .bytes = 1536,
          .sent = sent};
}

/// One bucket of block 1 and the head, one of the embedding and block 0.
InnerStepRules two_buckets(ReduceWhen when) {
  return {.stages = {whole_model(2)},
          .buckets = {bucket({{0, 2}, {0, 3}}, when), bucket({{0, 0}, {0, 1}}, when)}};
}

/// One bucket per part, the last ones first.
InnerStepRules one_each(StageParts parts, ReduceWhen when, int64_t sent = 0, bool waits = false) {
  InnerStepRules rules{.stages = {std::move(parts)}};
  for (size_t i = rules.stages[0].size(); i-- > 0;)
    rules.buckets.push_back(bucket({{0, static_cast<int16_t>(i)}}, when, sent, waits));
  return rules;
}

std::string text_of(std::string_view actions, const InnerStepRules& rules) {
  Program of = program(actions);
  return to_text(expand_steps(of, rules), of, rules);
}

/// Without the lines that describe the buckets.
std::string steps_before_reduce(std::string_view actions, const InnerStepRules& rules) {
  std::string text = text_of(actions, rules);
  return text.substr(0, text.find("\nReduce(") + 1);
}

TEST_CASE("reductions: once, after the step of the last backward that completes the bucket") {
  CHECK(text_of("0F0 0B0 0F1 0B1 0R", two_buckets(last_backward)) ==
        "0F0 0F1: F(embed) F(0) F(1) F(head)\n"
        "0B0: B(head) B(1) B(0) B(embed)\n"
        "0B1: B(head) B(1) Reduce(1..head) B(0) B(embed) Reduce(embed..0)\n"
        "Reduce(1..head): all-reduce of 1.5 KiB over the 2 ranks of dp\n"
        "Reduce(embed..0): all-reduce of 1.5 KiB over the 2 ranks of dp\n");
}

TEST_CASE("reductions: once, by the last R") {
  CHECK(two_buckets(step_end).has_collectives());
  CHECK(steps_before_reduce("0F0 0B0 0R", two_buckets(step_end)) ==
        "0F0: F(embed) F(0) F(1) F(head)\n"
        "0B0: B(head) B(1) B(0) B(embed)\n"
        "0R: Reduce(1..head) Reduce(embed..0)\n");
}

TEST_CASE("reductions: in each backward, also while other micro-batches are between F and B") {
  CHECK(steps_before_reduce("0F0 0F1 0B0 0Scatter0 0B1 0Scatter1 0R",
                            one_each(whole_model(1), every_backward)) ==
        "0F0 0F1: F(embed) F(0) F(head)\n"
        "0B0 0B1: B(head) Reduce(head) B(0) Reduce(0) B(embed) Reduce(embed)\n");
}

TEST_CASE("reductions: a later stage passes its result on before it waits for them") {
  InnerStepRules rules{.stages = {{}, {{.name = "0", .block = true}, {.name = "1", .block = true}}},
                       .buckets = {bucket({{1, 1}}, every_backward, 0, true),
                                   bucket({{1, 0}}, every_backward, 0, true)}};
  CHECK(steps_before_reduce("1F0 1F1 1B0 1SendG0 1Scatter0 1B1 1SendG1 1Scatter1 1R", rules) ==
        "1F0 1F1: F(0) F(1)\n"
        "1B0 1B1: B(1) B(0)\n"
        "1Scatter0 1Scatter1: Reduce(1) Reduce(0)\n");
  // W comes after the result is sent; a first stage sends none.
  CHECK(steps_before_reduce("1B0 1SendG0 1W0 1Scatter0", rules) ==
        "1B0: B(1) B(0)\n"
        "1W0: W(1) Reduce(1) W(0) Reduce(0)\n");
  CHECK(steps_before_reduce("0B0 0Scatter0", one_each(whole_model(0), every_backward, 0, true)) ==
        "0B0: B(head) Reduce(head) B(embed) Reduce(embed)\n");
  for (GradientBucket& each : rules.buckets) each.blocking = false;
  CHECK(steps_before_reduce("1B0 1SendG0 1Scatter0", rules) ==
        "1B0: B(1) Reduce(1) B(0) Reduce(0)\n");
}

TEST_CASE("reductions: before the part is released") {
  InnerStepRules rules = one_each(whole_model(1), every_backward);
  rules.sharded = true;
  CHECK(steps_before_reduce("0B0", rules) ==
        "0B0: Gather(head) B(head) Reduce(head) Release(head) Gather(0) B(0) Reduce(0) Release(0) "
        "Gather(embed) B(embed) Reduce(embed) Release(embed)\n");
  rules.ahead = true;
  CHECK(steps_before_reduce("0B0", rules) ==
        "0B0: Gather(head) Gather(0) B(head) Reduce(head) Release(head) Gather(embed) B(0) "
        "Reduce(0) Release(0) B(embed) Reduce(embed) Release(embed)\n");
}

TEST_CASE("reductions: in W where the program has W, because B leaves gradients incomplete") {
  CHECK(steps_before_reduce("0F0 0B0 0F1 0B1 0W0 0W1 0R", two_buckets(last_backward)) ==
        "0F0 0F1: F(embed) F(0) F(1) F(head)\n"
        "0B0 0B1: B(head) B(1) B(0) B(embed)\n"
        "0W0: W(head) W(1) W(0) W(embed)\n"
        "0W1: W(head) W(1) Reduce(1..head) W(0) W(embed) Reduce(embed..0)\n");
  CHECK(steps_before_reduce("0F0 0B0 0W0 0Scatter0 0R", one_each(whole_model(1), every_backward)) ==
        "0F0: F(embed) F(0) F(head)\n"
        "0B0: B(head) B(0) B(embed)\n"
        "0W0: W(head) Reduce(head) W(0) Reduce(0) W(embed) Reduce(embed)\n");
}

TEST_CASE("reductions: a table that the head reads is complete after the embedding") {
  InnerStepRules rules = one_each(whole_model(1), last_backward);
  rules.stages[0].back().also_reads = {PartId{0, 0}};
  CHECK(steps_before_reduce("0B0", rules) ==
        "0B0: B(head) Reduce(head) B(0) Reduce(0) B(embed) Reduce(embed)\n");
}

TEST_CASE("reductions: a table of another stage of the rank is in the lists of both") {
  auto rules = [](ReduceWhen when) {
    return InnerStepRules{
        .stages = {{{.name = "embed"}}, {{.name = "head", .also_reads = {PartId{0, 0}}}}},
        .buckets = {bucket({{1, 0}}, when), bucket({{0, 0}}, when)}};
  };
  const char* actions = "0F0 1F0 1B0 1Scatter0 0B0 0Scatter0 0R 1R";
  CHECK(text_of(actions, rules(every_backward)) ==
        "0F0: F(embed)\n"
        "1F0: F(head)\n"
        "1B0: B(head) Reduce(head) Reduce(0:embed)\n"
        "0B0: B(embed) Reduce(embed)\n"
        "Reduce(1:head): all-reduce of 1.5 KiB over the 2 ranks of dp\n"
        "Reduce(0:embed): all-reduce of 1.5 KiB over the 2 ranks of dp\n");
  CHECK(steps_before_reduce(actions, rules(last_backward)) ==
        "0F0: F(embed)\n"
        "1F0: F(head)\n"
        "1B0: B(head) Reduce(head)\n"
        "0B0: B(embed) Reduce(embed)\n");
}

TEST_CASE(
    "reductions: of several stages, each in the last backward of its own, the rest in the last R") {
  InnerStepRules rules{.stages = {whole_model(1), {}, whole_model(1)},
                       .buckets = {bucket({{2, 1}, {2, 2}}, last_backward),
                                   bucket({{0, 1}, {0, 2}, {2, 0}}, last_backward),
                                   bucket({{0, 0}}, step_end), bucket({{1, 0}}, step_end)}};
  CHECK(steps_before_reduce("2B0 0B0 2B1 2R 0B1 0R", rules) ==
        "2B0: B(head) B(0) B(embed)\n"
        "0B0: B(head) B(0) B(embed)\n"
        "2B1: B(head) B(0) Reduce(0..head) B(embed)\n"
        "0B1: B(head) B(0) Reduce(0..2:embed) B(embed)\n"
        "0R: Reduce(embed)\n");  // stage 1 is on another rank
}

TEST_CASE("reductions: of a head whose gradient is put off come with the last R") {
  InnerStepRules rules = two_buckets(last_backward);
  rules.defer_head_wgrad = true;
  CHECK(steps_before_reduce("0F0 0B0 0R", rules) ==
        "0F0: F(embed) F(0) F(1) F(head)\n"
        "0B0: B(head) B(1) B(0) B(embed) Reduce(embed..0)\n"
        "0R: Reduce(1..head)\n");
}

/// Two blocks with parameters of their own and a part that both read, and two blocks that read
/// nothing but one part, each twice and in turn.
StageParts sharing(bool in_turn) {
  const std::vector<PartId> first = {PartId{0, 0}}, second = {PartId{0, in_turn}};
  StageParts parts = {{.name = "shared", .computes = false}};
  if (in_turn) parts.push_back({.name = "other", .computes = false});
  for (int i = 0; i < (in_turn ? 4 : 2); ++i)
    parts.push_back({.name = std::to_string(i),
                     .block = true,
                     .owns = !in_turn,
                     .also_reads = i % 2 == 0 ? first : second});
  return parts;
}

TEST_CASE("reductions: what blocks share is complete after the first of these blocks") {
  for (ReduceWhen when : {last_backward, every_backward}) {
    CHECK(steps_before_reduce("0B0", one_each(sharing(false), when)) ==
          "0B0: B(1) Reduce(1) B(0) Reduce(0) Reduce(shared)\n");
    InnerStepRules rules = one_each(sharing(true), when);
    rules.buckets.erase(rules.buckets.begin(), rules.buckets.begin() + 4);
    CHECK(steps_before_reduce("0B0", rules) ==
          "0B0: B(3) B(2) B(1) Reduce(other) B(0) Reduce(shared)\n");
    CHECK(steps_before_reduce("0B0 0W0", rules) ==
          "0B0: B(3) B(2) B(1) B(0)\n0W0: W(3) W(2) W(1) Reduce(other) W(0) Reduce(shared)\n");
  }
}

TEST_CASE("gathers: what blocks share is gathered while they compute in succession") {
  InnerStepRules rules{.stages = {sharing(false)}, .sharded = true};
  CHECK(text_of("0F0 0B0", rules) ==
        "0F0: Gather(0) Gather(shared) F(0) Release(0) Gather(1) F(1)\n"
        "0B0: B(1) Release(1) Gather(0) B(0) Release(shared) Release(0)\n");
  rules.stages = {sharing(true)};
  CHECK(text_of("0F0 0B0", rules) ==
        "0F0: Gather(shared) F(0) Release(shared) Gather(other) F(1) Release(other) Gather(shared) "
        "F(2) Release(shared) Gather(other) F(3)\n"
        "0B0: B(3) Release(other) Gather(shared) B(2) Release(shared) Gather(other) B(1) "
        "Release(other) Gather(shared) B(0) Release(shared)\n");
}

TEST_CASE("reductions: parts to which no step adds are reduced at the end of the action") {
  InnerStepRules rules{
      .stages = {{{.name = "spare", .computes = false}, {.name = "0", .block = true}}},
      .buckets = {bucket({{0, 0}}, every_backward), bucket({{0, 1}}, every_backward)}};
  CHECK(steps_before_reduce("0B0 0B1 0R", rules) == "0B0 0B1: B(0) Reduce(spare) Reduce(0)\n");
}

TEST_CASE("reductions: a program without backward has none") {
  CHECK(text_of("0F0 0F1", two_buckets(last_backward)) == "0F0 0F1: F(embed) F(0) F(1) F(head)\n");
}

TEST_CASE("reductions: several buckets of a part have names of their own") {
  InnerStepRules rules{.stages = {whole_model(0)}};
  rules.buckets.assign(3, bucket({{0, 1}}, last_backward));
  rules.buckets[1].expert = true;
  CHECK(steps_before_reduce("0B0", rules) ==
        "0B0: B(head) Reduce(head) Reduce(head experts) Reduce(head #2) B(embed)\n");
}

TEST_CASE("reductions: recomputation in backward completes nothing") {
  InnerStepRules rules = one_each(whole_model(1), last_backward);
  rules.recompute = true;
  CHECK(steps_before_reduce("0B0", rules) ==
        "0B0: B(head) Reduce(head) F(0) B(0) Reduce(0) B(embed) Reduce(embed)\n");
}

TEST_CASE("reductions: they take the time of their bytes on the link, and R waits for them") {
  StageParts blocks = {{.name = "0", .block = true}, {.name = "1", .block = true}};
  Costs costs;
  costs.all = {.forward = 2, .backward = 2, .weights = 2};
  costs.byte = 0.5;
  costs.steps = one_each(blocks, last_backward, 6, true);
  // F 2, then B(1) 2, Reduce 3, B(0) 2, Reduce 3
  CHECK(simulated("0F0 0B0 0R", costs).makespan == 2 + 5 + 5);
  costs.steps =
      one_each(blocks, last_backward, 6);  // B(1) ends at 4, its reduction at 7, that of B(0) at 10
  Simulated ahead = simulated("0F0 0B0 0R", costs);
  CHECK(ahead.makespan == 10);
  CHECK(ahead.busy == std::vector<double>{6});
  REQUIRE(ahead.collectives[0].size() == 2);
  CHECK(ahead.collectives[0][0].start == 4);
  CHECK(ahead.collectives[0][1].start == 7);
  CHECK(ahead.collectives[0][1].end == 10);
  CHECK(draw_text(ahead, 10) == "rank 0 |F0B0  ====|\n");
  std::string svg = draw_svg(ahead, 800, costs.steps);
  CHECK(svg.find("<title>0B0 Reduce(1), 4.0 to 7.0</title>") != std::string::npos);
  CHECK(svg.find("<title>0R, 6.0 to 10.0</title>") != std::string::npos);
  CHECK(simulated("0F0 0B0 0W0 0R", costs).makespan == 11);  // W(1) ends at 5, W(0) at 6
  costs.steps = one_each(blocks, step_end, 6);
  CHECK(simulated("0F0 0B0 0R", costs).makespan == 6 + 6);
}

/// The names of the buckets that a cursor reduces.
struct ReduceLog {
  std::string text;
  InnerStepCursor::Hooks hooks = {[this](PartId part) { text += cat("+", part.index, " "); },
                                  [this](PartId part) { text += cat("-", part.index, " "); },
                                  [this](size_t bucket) { text += cat("r", bucket, " "); }};
};

TEST_CASE("step cursor: a reduction starts when the model goes on to the next part") {
  InnerStepRules rules = one_each(whole_model(2), every_backward);
  Program of = program("0B0 0W0");
  InnerStepLists lists = expand_steps(program("0F0 0B0"), rules);
  ReduceLog log;
  InnerStepCursor cursor(of[0], lists[1], rules, log.hooks);
  auto after = [&](bool write, int16_t part) {
    log.text.clear();
    if (write)
      cursor.write({0, part}, "w");
    else
      cursor.read({0, part});
    return log.text;
  };
  CHECK(after(false, 3) == "");
  CHECK(after(true, 3) == "");
  CHECK(after(false, 2) == "r0 ");
  CHECK(after(true, 2) == "");
  CHECK(after(true, 0) == "r1 r2 ");  // a block whose gradients nobody wrote
  log.text.clear();
  cursor.finish();
  CHECK(log.text == "r3 ");
}

TEST_CASE("step cursor: a part that blocks share is read and written until the last of them") {
  InnerStepRules rules = one_each(sharing(true), every_backward);
  rules.sharded = true;
  Program of = program("0F0 0B0");
  InnerStepLists lists = expand_steps(of, rules);
  ReduceLog log;
  InnerStepCursor cursor(of[1], lists[1], rules, log.hooks);
  for (int16_t part : {1, 0, 1, 0}) {
    log.text += cat("(", part, ") ");
    cursor.read({0, part});
    cursor.write({0, part}, "w");
  }
  cursor.finish();
  // Buckets 4 and 5 are those of parts 1 and 0; the others are of blocks without parameters.
  CHECK(log.text.find("(1) (0) -1 +0 (1) -0 +1 (0) r4 -1 +0 r5 ") == 0);
}

TEST_CASE("step cursor: gradients of W are written in its order") {
  InnerStepRules rules = one_each(whole_model(1), every_backward);
  Program of = program("0F0 0B0 0W0");
  InnerStepLists lists = expand_steps(of, rules);
  ReduceLog log;
  InnerStepCursor cursor(of[2], lists[2], rules, log.hooks);
  for (int16_t part : {2, 1, 0}) cursor.write({0, part}, "w");
  CHECK(log.text == "r0 r1 ");
  CHECK_THROWS_WITH(cursor.write({0, 2}, "head.weight"),
                    doctest::Contains("'head.weight' of part head gets a gradient in 0W0 after "
                                      "W(embed), but Reduce(head) has started"));
}

TEST_CASE("step cursor: a gradient after its reduction is an error with all names and the remedy") {
  InnerStepRules rules = two_buckets(every_backward);
  Program of = program("0F0 0B0");
  InnerStepLists lists = expand_steps(of, rules);
  ReduceLog log;
  InnerStepCursor cursor(of[1], lists[1], rules, log.hooks);
  cursor.write({0, 3}, "head.weight");
  cursor.read({0, 1});
  CHECK(log.text == "r0 ");
  auto refusal = [&] {
    try {
      cursor.write({0, 2}, "layers.1.up");
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::config);
      return cat(error.message(), "\n", error.hint());
    }
    return std::string();
  };
  const std::string gradient =
      "'layers.1.up' of part 1 gets a gradient in 0B0 after B(0), but Reduce(1..head) has started, "
      "as ";
  const std::string declare =
      ", or declare the parts in the model (Model::parts(), docs/adding-a-model.md)";
  const std::string sharded = refusal();
  CHECK(sharded.starts_with(gradient + "dist.zero 2 and 3 want; the model's blocks share "));
  CHECK(sharded.ends_with("\nset dist.zero to 0 or 1 and ddp.overlap_grad_reduce=false" + declare));
  rules.buckets[0].when = last_backward;
  const std::string once = refusal();
  CHECK(once.starts_with(gradient + "ddp.overlap_grad_reduce=true wants; "));
  CHECK(once.ends_with("\nset ddp.overlap_grad_reduce=false" + declare));
  InnerStepCursor forward(of[0], lists[0], rules, log.hooks);
  forward.write({0, 3}, "head.weight");  // a head adds to its gradient in forward already
  CHECK(log.text == "r0 ");
}

}  // namespace
}  // namespace mtrain
