// DPO (Rafailov et al. 2023, arXiv:2305.18290) and the losses of its relatives over the log-ratios
// of policy and reference, under the names and with the formulas of PyPI's trl 1.16.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/optim/dual.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

const std::vector<std::string>& known_losses() {
  static const std::vector<std::string> kAll = {"sigmoid",      "robust",   "hinge",    "ipo",
                                                "sigmoid_norm", "exo_pair", "nca_pair", "bco_pair",
                                                "sppo_hard",    "apo_zero", "apo_down"};
  return kAll;
}

struct DpoConfig {
  std::string loss = "sigmoid";
  std::vector<std::string> losses;
  double beta = 0.1, label_smoothing = 0, sft_weight = 0;
  bool reference_free = false;
  void bind(Fields& f) {
    f("loss", loss,
      "the loss of a pair; sigmoid: DPO, robust: for a share label_smoothing of wrong pairs "
      "(arXiv:2403.00409), hinge: SLiC (arXiv:2305.10425), ipo: arXiv:2310.12036, sigmoid_norm: "
      "DPO of means over tokens, exo_pair: arXiv:2402.00856, nca_pair: arXiv:2402.05369, bco_pair: "
      "arXiv:2404.04656 without its running mean, sppo_hard: arXiv:2405.00675, apo_zero and "
      "apo_down: arXiv:2408.06266")
        .one_of(known_losses())
        .renamed_from({"loss_type"});
    f("losses", losses,
      "a weighted sum of such losses in place of loss, each as NAME:WEIGHT; with sigmoid:0.8, "
      "bco_pair:0.2 and sft_weight=1: MPO (arXiv:2411.10442)")
        .example("[sigmoid:0.8, bco_pair:0.2]");
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

/// A term of the loss.
struct Weighted {
  std::string loss;
  double weight = 1;
};

Weighted weighted_loss(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  const bool both = parts.size() == 2;
  const std::string_view number = both ? trim(parts[1]) : "";
  Weighted out{std::string(both ? trim(parts[0]) : ""), 0};
  const char* const end = number.data() + number.size();
  const auto [at, error] = std::from_chars(number.data(), end, out.weight);
  MT_USER_CHECK(
      std::ranges::count(known_losses(), out.loss) > 0 && error == std::errc() && at == end &&
          std::isfinite(out.weight) && out.weight > 0,
      ErrorClass::config,
      cat("objective.losses: '", printable(text, 60), "' is no loss with a weight above 0"),
      cat("wanted NAME:WEIGHT, such as sigmoid:0.8, with one of the names ",
          join(known_losses(), ", ")));
  return out;
}

class Dpo final : public Objective {
 public:
  Dpo(const DpoConfig& config, ObjectiveContext&) : config_(config) {
    for (const std::string& text : config.losses) {
      losses_.push_back(weighted_loss(text));
      const std::string& name = losses_.back().loss;
      MT_USER_CHECK(std::ranges::count(losses_, name, &Weighted::loss) == 1, ErrorClass::config,
                    cat("objective.losses: ", name, " is given twice"),
                    "give each loss one weight");
    }
    if (losses_.empty()) losses_.push_back({config.loss});
    bool smoothed = false;
    for (const auto& [loss, weight] : losses_) {
      MT_USER_CHECK(loss != "exo_pair" || config.label_smoothing > 0, ErrorClass::config,
                    "objective.loss=exo_pair needs objective.label_smoothing > 0",
                    "e.g. objective.label_smoothing=0.001");
      smoothed |= loss == "sigmoid" || loss == "robust" || loss == "exo_pair";
    }
    MT_USER_CHECK(
        config.label_smoothing == 0 || smoothed, ErrorClass::config,
        cat("objective.label_smoothing has no effect on objective.loss=", losses_.front().loss),
        "set it to 0, or choose the loss sigmoid, robust or exo_pair");
  }

  bool needs_reference() const override { return !config_.reference_free; }

  ObjectiveValue of_pair(const Answer& chosen, const Answer& rejected) const override {
    const Dual c = Dual::chosen(chosen) - chosen.reference,
               r = Dual::rejected(rejected) - rejected.reference;
    Dual loss;
    for (const auto& [name, weight] : losses_)
      loss = loss + weight * of_ratios(name, c, r, chosen.tokens, rejected.tokens);
    if (config_.sft_weight > 0)
      loss = loss - config_.sft_weight / chosen.tokens * Dual::chosen(chosen);
    return value_of(loss, config_.beta * c.value, config_.beta * r.value);
  }

 private:
  Dual of_ratios(const std::string& loss, const Dual& c, const Dual& r, double c_tokens,
                 double r_tokens) const {
    const double b = config_.beta, e = config_.label_smoothing;
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
  std::vector<Weighted> losses_;  // at least one
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("dpo", "direct preference optimization: pairs of answers, relative to a reference") {
  using namespace mtrain;
  registry.add<Objective, Dpo, DpoConfig>(
      "dpo", "direct preference optimization: pairs of answers, relative to a reference");
}
