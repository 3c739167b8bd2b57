// The objective of reward models: Bradley-Terry over the scores of a preferred and a rejected
// answer, under the names and with the formulas of PyPI's trl 1.16 (RewardTrainer).
#include "mtrain/optim/dual.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct RewardConfig {
  double center_rewards_coefficient = 0;
  void bind(Fields& f) {
    f.objective(Objective::kScoredAnswers);
    f("center_rewards_coefficient", center_rewards_coefficient,
      "weight of the squared sum of both rewards, which is added, so that rewards are around 0 "
      "(arXiv:2312.09244); 0: none")
        .min(0)
        .example("0.01");
  }
};

class Reward final : public Objective {
 public:
  Reward(const RewardConfig& config, ObjectiveContext&) : config_(config) {}

  bool scores() const override { return true; }
  bool needs_reference() const override { return false; }

  ObjectiveValue of_pair(const Answer& chosen, const Answer& rejected) const override {
    const Dual c = Dual::chosen_score(chosen), r = Dual::rejected_score(rejected);
    Dual loss = -log_sigmoid(c - r - chosen.margin);
    if (config_.center_rewards_coefficient > 0)
      loss = loss + config_.center_rewards_coefficient * square(c + r);
    return value_of(loss, c.value, r.value);
  }

 private:
  const RewardConfig config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("reward", "reward models: the preferred of two answers gets the higher score") {
  using namespace mtrain;
  registry.add<Objective, Reward, RewardConfig>(
      "reward", "reward models: the preferred of two answers gets the higher score");
}
