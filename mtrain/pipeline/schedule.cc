#include "mtrain/pipeline/schedule.h"

#include <algorithm>
#include <iterator>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/pipeline/plan_check.h"

namespace mtrain {

void check_plan(const Plan& plan, std::string_view name, int64_t virtual_stages) {
  MT_CHECK(plan.stages >= 1 && plan.stages <= INT16_MAX && plan.virtual_stages >= 1, plan.stages,
           " stages, ", plan.virtual_stages, " per rank");
  MT_CHECK(plan.micro_batches >= 1 && plan.micro_batches <= INT32_MAX, plan.micro_batches,
           " micro-batches");
  MT_CHECK(plan.stages % plan.virtual_stages == 0, plan.stages, " stages, ", plan.virtual_stages,
           " per rank");
  MT_USER_CHECK(virtual_stages == 0 || plan.virtual_stages == virtual_stages, ErrorClass::config,
                cat("a ", name, " pipeline has ", counted(virtual_stages, "stage"),
                    " per rank, not ", plan.virtual_stages),
                cat("dist.vp=", virtual_stages));
}

Schedule make_schedule(std::string_view name, const Plan& plan) {
  if (name == "gpipe") return gpipe(plan);
  if (name == "1f1b") return one_f_one_b(plan);
  if (name == "interleaved") return interleaved(plan);
  if (name == "zb_h1") return zb_h1(plan);
  if (name == "zb_v") return zb_v(plan);
  if (name == "combined") return combined(plan);
  throw Error(ErrorClass::config, cat("unknown schedule '", printable(name), "'"),
              "choose one of gpipe, 1f1b, interleaved, zb_h1, zb_v");
}

StageMap stage_map(std::string_view name, const Plan& plan) {
  return name == "zb_v" ? StageMap::v_shape(plan.ranks())
                        : StageMap::looping(plan.ranks(), plan.virtual_stages);
}

void add_reduces(Schedule& schedule) {
  for (Program& program : schedule) {
    std::vector<bool> settled;  // by stage: it has a Reduce, or its last gradient was found
    auto seen = [&](const Action& a) {
      auto stage = static_cast<size_t>(std::max<int>(0, a.stage));
      if (settled.size() <= stage) settled.resize(stage + 1);
      bool before = settled[stage];
      settled[stage] = true;
      return before;
    };
    for (const Action& a : program)
      if (a.what == ActionKind::reduce) seen(a);
    Program backwards;
    for (auto at = program.rbegin(); at != program.rend(); ++at) {
      bool gradient = at->what == ActionKind::backward || at->what == ActionKind::weight_grad ||
                      at->what == ActionKind::reduce_scatter;
      if (gradient && !seen(*at)) backwards.push_back({ActionKind::reduce, at->stage, 0});
      backwards.push_back(*at);
    }
    program.assign(backwards.rbegin(), backwards.rend());
  }
}

Schedule with_weight_actions(Schedule schedule) {
  for (const Program& program : schedule)
    if (std::any_of(program.begin(), program.end(),
                    [](const Action& a) { return a.what == ActionKind::weight_grad; }))
      return schedule;
  for (Program& program : schedule) {
    Program apart;
    for (const Action& a : program) {
      apart.push_back(a);
      if (a.what == ActionKind::backward)
        apart.push_back({ActionKind::weight_grad, a.stage, a.micro});
    }
    program = std::move(apart);
  }
  return schedule;
}

const char* name(ActionKind what) {
  constexpr const char* kNames[] = {"F",     "B", "W",       "RecvX",  "SendX",  "RecvG",
                                    "SendG", "R", "Scatter", "Gather", "Release"};
  static_assert(std::size(kNames) == kNumActionKinds);
  return kNames[static_cast<size_t>(what)];
}

std::string to_text(const Action& action) {
  std::string text = cat(action.stage, name(action.what));
  return has_micro_batch(action.what) ? cat(text, action.micro, action.overlapped ? "+" : "")
                                      : text;
}

std::string to_text(const Program& program) {
  std::vector<std::string> parts;
  for (const auto& action : program) parts.push_back(to_text(action));
  return join(parts, " ");
}

std::string to_text(const Schedule& schedule) {
  std::string out;
  for (const Program& program : schedule) out += to_text(program) + "\n";
  return out;
}

}  // namespace mtrain
