// CPO: a preference loss without reference, and the likelihood of the chosen answer (Xu et al.
// 2024, arXiv:2401.08417), with the formulas of PyPI's trl 1.16.
#include "mtrain/base/error.h"
#include "mtrain/optim/dual.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct CpoConfig {
  std::string loss = "sigmoid";
  double beta = 0.1, label_smoothing = 0, sft_weight = 1;
  void bind(Fields& f) {
    f("loss", loss, "the loss of a pair; ipo is that of means over tokens")
        .one_of({"sigmoid", "hinge", "ipo"})
        .renamed_from({"loss_type"});
    f("beta", beta, "factor of the log-probabilities").exclusive_min(0);
    f("label_smoothing", label_smoothing,
      "loss=sigmoid: the share of pairs whose labels are assumed to be wrong")
        .min(0)
        .exclusive_max(0.5);
    f("sft_weight", sft_weight,
      "weight of the negative log-likelihood per token of the chosen answer")
        .min(0)
        .renamed_from({"cpo_alpha"});
  }
};

class Cpo final : public Objective {
 public:
  Cpo(const CpoConfig& config, ObjectiveContext&) : config_(config) {
    MT_USER_CHECK(config.label_smoothing == 0 || config.loss == "sigmoid", ErrorClass::config,
                  cat("objective.label_smoothing has no effect on objective.loss=", config.loss),
                  "set it to 0, or choose the loss sigmoid");
  }

  bool needs_reference() const override { return false; }
  bool per_token() const override { return config_.loss == "ipo"; }
  std::vector<std::string> figures() const override { return {"nll_loss"}; }

  ObjectiveValue of_pair(const Answer& chosen, const Answer& rejected) const override {
    const double b = config_.beta, e = config_.label_smoothing;
    const bool means = per_token();
    const Dual nll = -Dual::chosen(chosen) / chosen.tokens,
               c = Dual::chosen(chosen) / (means ? chosen.tokens : 1),
               r = Dual::rejected(rejected) / (means ? rejected.tokens : 1), margin = c - r;
    Dual loss;
    if (config_.loss == "sigmoid")
      loss = (e - 1) * log_sigmoid(b * margin) - e * log_sigmoid(-b * margin);
    else
      loss = config_.loss == "hinge" ? relu(1 - b * margin) : square(margin - 1 / (2 * b));
    ObjectiveValue out = value_of(loss + config_.sft_weight * nll, b * c.value, b * r.value);
    out.figures = {nll.value};
    return out;
  }

 private:
  const CpoConfig config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("cpo", "contrastive preference optimization: pairs of answers, without a reference") {
  using namespace mtrain;
  registry.add<Objective, Cpo, CpoConfig>(
      "cpo", "contrastive preference optimization: pairs of answers, without a reference");
}
