// DPO (Rafailov et al. 2023, arXiv:2305.18290) and the losses of its relatives over the log-ratios
// of policy and reference, under the names and with the formulas of PyPI's trl 1.16.
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/optim/dual.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct DpoConfig {
  std::string loss = "sigmoid";
  double beta = 0.1, label_smoothing = 0, sft_weight = 0;
  bool reference_free = false;
  void bind(Fields& f) {
    f("loss", loss,
      "the loss of a pair; sigmoid: DPO, robust: for a share label_smoothing of wrong pairs "
      "(arXiv:2403.00409), hinge: SLiC (arXiv:2305.10425), ipo: arXiv:2310.12036, sigmoid_norm: "
      "DPO "
      "of means over tokens, exo_pair: arXiv:2402.00856, nca_pair: arXiv:2402.05369, bco_pair: "
      "arXiv:2404.04656 without its running mean, sppo_hard: arXiv:2405.00675, apo_zero and "
      "apo_down: arXiv:2408.06266")
        .one_of({"sigmoid", "robust", "hinge", "ipo", "sigmoid_norm", "exo_pair", "nca_pair",
                 "bco_pair", "sppo_hard", "apo_zero", "apo_down"})
        .renamed_from({"loss_type"});
    f("beta", beta, "how closely the model is kept to the reference; small values allow more")
        .exclusive_min(0);
    f("label_smoothing", label_smoothing,
      "the share of pairs whose labels are assumed to be wrong; with loss=sigmoid, conservative "
      "DPO")
        .min(0)
        .exclusive_max(0.5);
    f("sft_weight", sft_weight,
      "weight of the negative log-likelihood per token of the chosen answer, which is added "
      "(arXiv:2404.19733)")
        .min(0)
        .renamed_from({"rpo_alpha"});
    f("reference_free", reference_free, "a reference that prefers no answer: none is computed");
  }
};

class Dpo final : public Objective {
 public:
  Dpo(const DpoConfig& config, ObjectiveContext&) : config_(config) {
    MT_USER_CHECK(config.loss != "exo_pair" || config.label_smoothing > 0, ErrorClass::config,
                  "objective.loss=exo_pair needs objective.label_smoothing > 0",
                  "e.g. objective.label_smoothing=0.001");
    MT_USER_CHECK(config.label_smoothing == 0 || config.loss == "sigmoid" ||
                      config.loss == "robust" || config.loss == "exo_pair",
                  ErrorClass::config,
                  cat("objective.label_smoothing has no effect on objective.loss=", config.loss),
                  "set it to 0, or choose the loss sigmoid, robust or exo_pair");
  }

  bool needs_reference() const override { return !config_.reference_free; }

  ObjectiveValue of_pair(const Answer& chosen, const Answer& rejected) const override {
    const Dual c = Dual::chosen(chosen) - chosen.reference,
               r = Dual::rejected(rejected) - rejected.reference;
    Dual loss = of_ratios(c, r, chosen.tokens, rejected.tokens);
    if (config_.sft_weight > 0)
      loss = loss - config_.sft_weight / chosen.tokens * Dual::chosen(chosen);
    return value_of(loss, config_.beta * c.value, config_.beta * r.value);
  }

 private:
  Dual of_ratios(const Dual& c, const Dual& r, double c_tokens, double r_tokens) const {
    const double b = config_.beta, e = config_.label_smoothing;
    const std::string& loss = config_.loss;
    const Dual margin = b * (c - r);
    if (loss == "sigmoid") return (e - 1) * log_sigmoid(margin) - e * log_sigmoid(-margin);
    if (loss == "robust")
      return ((e - 1) * log_sigmoid(margin) + e * log_sigmoid(-margin)) / (1 - 2 * e);
    if (loss == "hinge") return relu(1 - margin);
    if (loss == "ipo") return square(c / c_tokens - r / r_tokens - 1 / (2 * b));
    if (loss == "sigmoid_norm") return -log_sigmoid(b * (c / c_tokens - r / r_tokens));
    if (loss == "exo_pair")
      return sigmoid(margin) * (log_sigmoid(margin) - std::log1p(-e)) +
             sigmoid(-margin) * (log_sigmoid(-margin) - std::log(e));
    if (loss == "nca_pair")
      return -log_sigmoid(b * c) - 0.5 * log_sigmoid(-b * c) - 0.5 * log_sigmoid(-b * r);
    if (loss == "bco_pair") return -log_sigmoid(b * c) - log_sigmoid(-b * r);
    if (loss == "sppo_hard") return square(c - 0.5 / b) + square(r + 0.5 / b);
    if (loss == "apo_zero") return 1 - sigmoid(b * c) + sigmoid(b * r);
    MT_CHECK(loss == "apo_down", "loss ", loss);
    return sigmoid(b * c) + (1 - sigmoid(margin));
  }

  const DpoConfig config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("dpo", "direct preference optimization: pairs of answers, relative to a reference") {
  using namespace mtrain;
  registry.add<Objective, Dpo, DpoConfig>(
      "dpo", "direct preference optimization: pairs of answers, relative to a reference");
}
