// Answers with a good or bad label, relative to a reference: the losses of KTOTrainer of PyPI's trl
// 1.16. kto: Ethayarajh et al. 2024, arXiv:2402.01306, of which the reference point is an estimate
// of the divergence from the reference, at least 0; apo_zero_unpaired: D'Oosterlinck et al. 2024,
// arXiv:2408.06266, the same with the reference point 0.
#include "mtrain/optim/dual.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct KtoConfig {
  std::string loss = "kto";
  double beta = 0.1, desirable_weight = 1, undesirable_weight = 1, sft_weight = 0;
  void bind(Fields& f) {
    f("loss", loss,
      "the loss of an answer; kto: its reward is compared with the divergence from the reference, "
      "estimated in each step by the global batch's answers after other records' prompts; "
      "apo_zero_unpaired: with 0")
        .one_of({"kto", "apo_zero_unpaired"})
        .renamed_from({"loss_type"});
    f("beta", beta, "how closely the model is kept to the reference; small values allow more")
        .exclusive_min(0);
    f("desirable_weight", desirable_weight, "weight of good answers' losses").min(0);
    f("undesirable_weight", undesirable_weight, "weight of bad answers' losses").min(0);
    f("sft_weight", sft_weight,
      "weight of the negative log-likelihood per token of a good answer, which is added")
        .min(0);
  }
};

class Kto final : public Objective {
 public:
  Kto(const KtoConfig& config, ObjectiveContext&) : config_(config) {}

  Records records() const override { return Records::labels; }
  bool needs_reference() const override { return true; }
  bool needs_divergence() const override { return config_.loss == "kto"; }
  std::vector<std::string> figures() const override {
    return needs_divergence() ? std::vector<std::string>{"kl"} : std::vector<std::string>();
  }

  ObjectiveValue of_label(const Answer& answer, bool good) const override {
    const Dual reward = config_.beta * (Dual::chosen(answer) - answer.reference);
    const double kl = !needs_divergence() || answer.divergence < 0 ? 0 : answer.divergence;
    const Dual gain = reward - config_.beta * kl;
    Dual loss = good ? config_.desirable_weight * (1 - sigmoid(gain))
                     : config_.undesirable_weight * sigmoid(gain);
    if (good && config_.sft_weight > 0)
      loss = loss - config_.sft_weight / answer.tokens * Dual::chosen(answer);
    ObjectiveValue value = value_of(loss, reward.value, 0);
    if (needs_divergence()) value.figures = {kl};
    return value;
  }

 private:
  const KtoConfig config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("kto", "answers with a good or bad label, relative to a reference") {
  using namespace mtrain;
  registry.add<Objective, Kto, KtoConfig>(
      "kto", "answers with a good or bad label, relative to a reference");
}
