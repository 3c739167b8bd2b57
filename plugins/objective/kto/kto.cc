// Answers with a good or bad label, relative to a reference: the losses of KTOTrainer of PyPI's trl
// 1.16. Of these, apo_zero_unpaired (D'Oosterlinck et al. 2024, arXiv:2408.06266) is that of KTO
// (Ethayarajh et al. 2024, arXiv:2402.01306) with the reference point 0.
#include "mtrain/optim/dual.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct KtoConfig {
  std::string loss = "apo_zero_unpaired";
  double beta = 0.1, desirable_weight = 1, undesirable_weight = 1;
  void bind(Fields& f) {
    f("loss", loss,
      "the loss of an answer; apo_zero_unpaired: KTO without its estimate of the divergence from "
      "the reference")
        .one_of({"apo_zero_unpaired", "kto"})
        .needs("KTO's estimate of the divergence from the reference", {"kto"})
        .renamed_from({"loss_type"});
    f("beta", beta, "how closely the model is kept to the reference; small values allow more")
        .exclusive_min(0);
    f("desirable_weight", desirable_weight, "weight of good answers' losses").min(0);
    f("undesirable_weight", undesirable_weight, "weight of bad answers' losses").min(0);
  }
};

class Kto final : public Objective {
 public:
  Kto(const KtoConfig& config, ObjectiveContext&) : config_(config) {}

  Records records() const override { return Records::labels; }
  bool needs_reference() const override { return true; }

  ObjectiveValue of_label(const Answer& answer, bool good) const override {
    const Dual reward = config_.beta * (Dual::chosen(answer) - answer.reference);
    return value_of(good ? config_.desirable_weight * (1 - sigmoid(reward))
                         : config_.undesirable_weight * sigmoid(reward),
                    reward.value, 0);
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
