#include "mtrain/pipeline/stage_steps.h"

#include <algorithm>
#include <map>
#include <utility>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/pipeline/reduce_steps.h"

namespace mtrain {
namespace {

using Parts = std::vector<PartId>;

bool has_part(const Parts& parts, PartId part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

void add_missing(Parts& to, const Parts& parts) {
  for (PartId part : parts)
    if (!has_part(to, part)) to.push_back(part);
}

bool exchanges(const StageParts& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const ModelPart& part) { return part.exchanges; });
}

bool has_backward(const Program& program) {
  return std::any_of(program.begin(), program.end(),
                     [](const Action& a) { return a.what == ActionKind::backward; });
}

/// Adds the compute and the exchanges of one action.
class ActionSteps {
 public:
  /// `trains`: the program has backward.
  ActionSteps(int16_t stage, const StageParts& parts, const InnerStepRules& rules, bool trains)
      : stage_(stage), parts_(parts), rules_(rules), trains_(trains) {}

  InnerSteps forward() {
    for (size_t i = 0; i < parts_.size(); ++i) forward(i);
    return std::move(out_);
  }

  InnerSteps backward() {
    for (size_t end = parts_.size(); end > 0;) {
      size_t begin = group_begin(end);
      if (recomputed(end - 1))
        for (size_t i = begin; i < end; ++i) forward(i);
      for (; end > begin; --end) backward(end - 1);
    }
    return std::move(out_);
  }

  InnerSteps weights() {
    for (size_t i = parts_.size(); i-- > 0;)
      if (parts_[i].computes) add(InnerStepKind::weights, i, true);
    return std::move(out_);
  }

 private:
  void add(InnerStepKind what, size_t part, bool backward) {
    out_.push_back({what, {stage_, static_cast<int16_t>(part)}, backward});
  }
  void forward(size_t part) {
    if (!parts_[part].computes || (parts_[part].auxiliary && !trains_)) return;
    add(InnerStepKind::compute, part, false);
    if (parts_[part].exchanges) forward_experts(part);
  }
  void forward_experts(size_t part) {
    add(InnerStepKind::dispatch, part, false);
    add(InnerStepKind::experts, part, false);
    add(InnerStepKind::combine, part, false);
  }
  void backward(size_t part) {
    if (!parts_[part].computes) return;
    if (parts_[part].exchanges) {
      if (rules_.recompute_experts) forward_experts(part);
      add(InnerStepKind::combine, part, true);
      add(InnerStepKind::experts, part, true);
      add(InnerStepKind::dispatch, part, true);
    }
    add(InnerStepKind::compute, part, true);
  }
  /// The index of a block among those that follow each other: the blocks of an encoder and those of
  /// its decoder are computed again in groups of their own.
  int64_t number(size_t part) const {
    size_t first = part;
    while (first > 0 && parts_[first - 1].block &&
           parts_[first - 1].auxiliary == parts_[part].auxiliary)
      --first;
    return static_cast<int64_t>(part - first);
  }
  bool recomputed(size_t part) const {
    if (!rules_.recompute || !parts_[part].block) return false;
    if (parts_[part].auxiliary) return !rules_.recompute_first;
    return !rules_.recompute_first || number(part) < rules_.recompute_group;
  }
  /// The first of the parts that are computed again together with the part before `end`.
  size_t group_begin(size_t end) const {
    if (!recomputed(end - 1) || rules_.recompute_first || parts_[end - 1].auxiliary) return end - 1;
    auto within = static_cast<size_t>(number(end - 1) % rules_.recompute_group);
    return end - 1 - within;
  }

  int16_t stage_;
  const StageParts& parts_;
  const InnerStepRules& rules_;
  bool trains_;
  InnerSteps out_;
};

const StageParts* parts_of(const InnerStepRules& rules, int16_t stage) {
  bool known = stage >= 0 && static_cast<size_t>(stage) < rules.stages.size();
  return known ? &rules.stages[static_cast<size_t>(stage)] : nullptr;
}

/// Inserts gathers and releases into the lists of one program.
class Gathers {
 public:
  Gathers(const Program& program, const InnerStepRules& rules) : program_(program), rules_(rules) {}

  void insert(InnerStepLists& lists) {
    collect(lists);
    plan_ahead();
    size_t use = 0;
    for (size_t at = 0; at < lists.size(); ++at) {
      InnerSteps out;
      for (const InnerStep& step : lists[at]) {
        gather(use, out);
        out.push_back(step);
        release(++use, out);
      }
      lists[at] = std::move(out);
    }
  }

 private:
  /// The parts that each step needs and no Gather of the program has brought.
  void collect(const InnerStepLists& lists) {
    std::vector<int16_t> held;
    for (size_t at = 0; at < lists.size(); ++at) {
      const Action& a = program_[at];
      if (a.what == ActionKind::gather_params) by_stage_ = true, held.push_back(a.stage);
      if (a.what == ActionKind::release_params) std::erase(held, a.stage);
      bool pair = a.overlapped || (at > 0 && program_[at - 1].overlapped);
      for (const InnerStep& step : lists[at]) {
        Parts reads = read_by(step, rules_);
        std::erase_if(reads, [&](PartId part) {
          return std::find(held.begin(), held.end(), part.stage) != held.end();
        });
        bool alternate = pair && exchanges(rules_.stages[static_cast<size_t>(a.stage)]);
        MT_USER_CHECK(reads.empty() || !alternate, ErrorClass::config,
                      cat(to_text(a),
                          " overlaps with another action and reads parameters of "
                          "stage ",
                          reads[0].stage, ", which is not gathered then"),
                      "set dist.resident_stages to the stages per rank, or comm_overlap.moe=false");
        wanted_.push_back(std::move(reads));
      }
    }
    wanted_.emplace_back();  // after the last one
  }
  /// Adds to each step the parts that the next different one reads.
  void plan_ahead() {
    if (!rules_.ahead || by_stage_) return;
    Parts next, following;  // what the next step reads, and what the next different one reads
    for (size_t i = wanted_.size() - 1; i-- > 0;) {
      Parts own = wanted_[i];
      if (own != next) following = std::exchange(next, own);
      add_missing(wanted_[i], following);
    }
  }
  void gather(size_t use, InnerSteps& out) {
    for (PartId part : wanted_[use])
      if (!has_part(held_, part))
        held_.push_back(part), out.push_back({InnerStepKind::gather, part});
  }
  void release(size_t next, InnerSteps& out) {
    std::erase_if(held_, [&](PartId part) {
      if (has_part(wanted_[next], part)) return false;
      out.push_back({InnerStepKind::release, part});
      return true;
    });
  }

  const Program& program_;
  const InnerStepRules& rules_;
  bool by_stage_ = false;
  std::vector<Parts> wanted_;  // by compute and exchange: gathered while it runs
  Parts held_;
};

}  // namespace

std::vector<PartId> read_by(const InnerStep& step, const InnerStepRules& rules) {
  const ModelPart& part = rules.part(step.part);
  Parts reads;
  if (part.owns) reads.push_back(step.part);
  add_missing(reads, part.also_reads);
  return reads;
}

const ModelPart& InnerStepRules::part(PartId id) const {
  const StageParts* parts = parts_of(*this, id.stage);
  MT_CHECK(parts && id.index >= 0 && static_cast<size_t>(id.index) < parts->size(), "part ",
           id.index, " of stage ", id.stage);
  return (*parts)[static_cast<size_t>(id.index)];
}

bool InnerStepRules::has_collectives() const {
  return sharded || !buckets.empty() || std::any_of(stages.begin(), stages.end(), exchanges);
}

InnerStepLists expand_steps(const Program& program, const InnerStepRules& rules) {
  InnerStepLists lists(program.size());
  std::map<std::pair<ActionKind, int16_t>, InnerSteps> known;
  const bool trains = has_backward(program);
  for (size_t i = 0; i < program.size(); ++i) {
    const Action& a = program[i];
    const StageParts* parts = parts_of(rules, a.stage);
    if (!parts || !uses_params(a.what)) continue;
    auto [found, is_new] = known.try_emplace({a.what, a.stage});
    ActionSteps steps(a.stage, *parts, rules, trains);
    if (is_new) found->second = a.what == ActionKind::forward ? steps.forward() : steps.backward();
    lists[i] = found->second;
  }
  if (rules.sharded) Gathers(program, rules).insert(lists);
  for (size_t i = 0; i < program.size(); ++i)
    if (const StageParts* parts = parts_of(rules, program[i].stage);
        parts && program[i].what == ActionKind::weight_grad)
      lists[i] = ActionSteps(program[i].stage, *parts, rules, trains).weights();
  insert_reductions(lists, program, rules);
  return lists;
}

namespace {

/// "3", or "0:embed" for a part of another stage than `stage`.
std::string part_text(PartId part, int64_t stage, const InnerStepRules& rules) {
  return cat(part.stage == stage ? "" : cat(part.stage, ":"), rules.part(part).name);
}

/// "embed..3", "3 experts"; "3 #2" for the second one of the same parts.
std::string bucket_text(size_t index, int64_t stage, const InnerStepRules& rules) {
  const GradientBucket& bucket = rules.buckets.at(index);
  std::string out = part_text(bucket.parts.front(), stage, rules);
  if (bucket.parts.size() > 1) out += cat("..", part_text(bucket.parts.back(), stage, rules));
  if (bucket.expert) out += " experts";
  auto end = rules.buckets.begin() + static_cast<std::ptrdiff_t>(index);
  auto same = std::count_if(rules.buckets.begin(), end, [&](const GradientBucket& other) {
    return other.expert == bucket.expert && other.parts.front() == bucket.parts.front() &&
           other.parts.back() == bucket.parts.back();
  });
  return same > 0 ? cat(out, " #", same + 1) : out;
}

/// What each Reduce of the lists is.
std::string reductions_text(const InnerStepLists& lists, const Program& program,
                            const InnerStepRules& rules) {
  int64_t stage = program.empty() ? 0 : program.front().stage;
  for (const Action& a : program)
    if (a.stage != stage) stage = -1;  // of several stages: each part with its own
  std::vector<bool> listed(rules.buckets.size());
  for (const InnerSteps& list : lists)
    for (const InnerStep& step : list)
      if (step.what == InnerStepKind::reduce) listed[static_cast<size_t>(step.bucket)] = true;
  std::string out;
  for (size_t b = 0; b < listed.size(); ++b) {
    const GradientBucket& bucket = rules.buckets[b];
    if (listed[b])
      out += cat("Reduce(", bucket_text(b, stage, rules), "): ", bucket.collective, " of ",
                 human_bytes(static_cast<uint64_t>(bucket.bytes)), " over the ",
                 counted(bucket.ranks, "rank"), " of ", bucket.axis, '\n');
  }
  return out;
}

}  // namespace

std::string to_text(const InnerStep& step, int64_t stage, const InnerStepRules& rules) {
  constexpr const char* kNames[] = {"Gather", "Release", "",         "Experts",
                                    "W",      "Reduce",  "Dispatch", "Combine"};
  if (step.what == InnerStepKind::reduce)
    return cat("Reduce(", bucket_text(static_cast<size_t>(step.bucket), stage, rules), ")");
  std::string name = step.what == InnerStepKind::compute ? (step.backward ? "B" : "F")
                                                         : kNames[static_cast<size_t>(step.what)];
  return cat(name, "(", part_text(step.part, stage, rules), ")");
}

std::string to_text(const InnerStepLists& lists, const Program& program,
                    const InnerStepRules& rules) {
  constexpr size_t kMostNames = 3;
  std::string out;
  std::vector<bool> shown(lists.size());
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].empty() || shown[i]) continue;
    std::vector<std::string> actions, steps;
    for (size_t j = i; j < lists.size(); ++j)
      if (program[j].what == program[i].what && program[j].stage == program[i].stage &&
          lists[j] == lists[i])
        shown[j] = true, actions.push_back(to_text(program[j]));
    if (size_t more = actions.size(); more > kMostNames) {
      actions.resize(kMostNames);
      actions.push_back(cat("and ", more - kMostNames, " more"));
    }
    for (const InnerStep& step : lists[i]) steps.push_back(to_text(step, program[i].stage, rules));
    out += cat(join(actions, " "), ": ", join(steps, " "), '\n');
  }
  return out + reductions_text(lists, program, rules);
}

}  // namespace mtrain
