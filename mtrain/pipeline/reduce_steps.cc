#include "mtrain/pipeline/reduce_steps.h"

#include <map>
#include <optional>
#include <utility>

namespace mtrain {
namespace {

class Reductions {
 public:
  Reductions(InnerStepLists& lists, const Program& program, const InnerStepRules& rules)
      : lists_(lists), program_(program), rules_(rules) {
    for (size_t i = 0; i < program.size(); ++i) {
      if (program[i].what == ActionKind::weight_grad) split_ = true;
      if (program[i].what == ActionKind::reduce) last_reduce_ = i;
      if (program[i].what == ActionKind::reduce_scatter)
        scatters_[{program[i].stage, program[i].micro}] = i;
    }
    for (size_t b = 0; b < rules.buckets.size(); ++b)
      for (PartId part : rules.buckets[b].parts) buckets_of_[part].push_back(b);
  }

  void insert() {
    find_completions();
    for (size_t b = 0; b < rules_.buckets.size(); ++b) place(b);
    for (const auto& [action, places] : places_) {
      InnerSteps out;
      for (size_t i = 0; i <= lists_[action].size(); ++i) {
        if (i > 0) out.push_back(lists_[action][i - 1]);
        auto found = places.find(i);
        if (found == places.end()) continue;
        for (size_t b : found->second)
          out.push_back({.what = InnerStepKind::reduce,
                         .part = rules_.buckets[b].parts.front(),
                         .bucket = static_cast<int16_t>(b)});
      }
      lists_[action] = std::move(out);
    }
  }

 private:
  struct Place {
    size_t action, steps;  // the number of the action's steps before the reduction
  };

  /// The action in which the gradients of a stage and micro-batch become complete.
  bool completes(const Action& a) const {
    return a.what == (split_ ? ActionKind::weight_grad : ActionKind::backward);
  }
  /// Calls `call` with the buckets to whose gradients a step adds.
  template <class Call>
  void each_bucket_of(const InnerStep& step, const Call& call) const {
    if (step.what != InnerStepKind::weights && !(computes(step.what) && step.backward)) return;
    for (PartId part : read_by(step, rules_))
      if (auto found = buckets_of_.find(part); found != buckets_of_.end())
        for (size_t b : found->second) call(b);
  }

  /// Where each bucket is complete, in the order of the program.
  void find_completions() {
    found_.resize(rules_.buckets.size());
    for (size_t i = 0; i < program_.size(); ++i) {
      if (!completes(program_[i])) continue;
      for (size_t n = 0; n < lists_[i].size(); ++n)
        each_bucket_of(lists_[i][n], [&](size_t b) {
          if (found_[b].empty() || found_[b].back().action != i) found_[b].push_back({i, 0});
          found_[b].back().steps = n + 1;
        });
    }
    // Parts to which no step adds: the ranks reduce them all the same, as zeros.
    for (size_t b = 0; b < found_.size(); ++b) {
      if (!found_[b].empty()) continue;
      for (size_t i = 0; i < program_.size(); ++i)
        if (completes(program_[i]) && program_[i].stage == rules_.buckets[b].parts.back().stage)
          found_[b].push_back({i, lists_[i].size()});
    }
    if (!rules_.defer_head_wgrad || rules_.stages.empty() || rules_.stages.back().empty()) return;
    PartId head{static_cast<int16_t>(rules_.stages.size() - 1),
                static_cast<int16_t>(rules_.stages.back().size() - 1)};
    late_.resize(rules_.buckets.size());
    each_bucket_of({.what = InnerStepKind::weights, .part = head},
                   [&](size_t b) { late_[b] = true; });
  }

  void place(size_t b) {
    std::vector<Place>& found = found_[b];
    if (found.empty()) return;  // of a stage that the program does not train
    const ReduceWhen when = rules_.buckets[b].when;
    if (when == ReduceWhen::step_end || (!late_.empty() && late_[b])) {
      if (last_reduce_) places_[*last_reduce_][0].push_back(b);
      return;
    }
    if (when == ReduceWhen::last_backward) found.erase(found.begin(), found.end() - 1);
    for (Place at : found) {
      const Action& a = program_[at.action];
      auto scatter = scatters_.find({a.stage, a.micro});
      const bool sends = a.what == ActionKind::backward && a.stage > 0;
      if (sends && rules_.buckets[b].blocking && scatter != scatters_.end())
        at = {scatter->second, 0};
      places_[at.action][at.steps].push_back(b);
    }
  }

  InnerStepLists& lists_;
  const Program& program_;
  const InnerStepRules& rules_;
  bool split_ = false;
  std::optional<size_t> last_reduce_;
  std::map<std::pair<int16_t, int32_t>, size_t> scatters_;  // by stage and micro-batch
  std::map<PartId, std::vector<size_t>> buckets_of_;
  std::vector<std::vector<Place>> found_;                           // by bucket
  std::vector<bool> late_;                                          // by bucket; empty: none
  std::map<size_t, std::map<size_t, std::vector<size_t>>> places_;  // by action, by steps before
};

}  // namespace

void insert_reductions(InnerStepLists& lists, const Program& program, const InnerStepRules& rules) {
  if (!rules.buckets.empty()) Reductions(lists, program, rules).insert();
}

}  // namespace mtrain
