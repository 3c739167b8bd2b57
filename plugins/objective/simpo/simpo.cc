// SimPO: the margin of mean log-probabilities per token, without reference (Meng et al. 2024,
// arXiv:2405.14734), as CPOTrainer of PyPI's trl 1.16 computes it with loss_type=simpo.
#include "mtrain/optim/dual.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct SimpoConfig {
  double beta = 2, gamma = 0.5, label_smoothing = 0, sft_weight = 0;
  void bind(Fields& f) {
    f("beta", beta, "factor of the mean log-probabilities").exclusive_min(0);
    f("gamma", gamma, "the margin of rewards that is wanted at least")
        .min(0)
        .renamed_from({"simpo_gamma"});
    f("label_smoothing", label_smoothing, "the share of pairs whose labels are assumed to be wrong")
        .min(0)
        .exclusive_max(0.5);
    f("sft_weight", sft_weight,
      "weight of the negative log-likelihood per token of the chosen answer, which is added: "
      "CPO-SimPO")
        .min(0)
        .renamed_from({"cpo_alpha"});
  }
};

class Simpo final : public Objective {
 public:
  Simpo(const SimpoConfig& config, ObjectiveContext&) : config_(config) {}

  bool needs_reference() const override { return false; }
  bool per_token() const override { return true; }
  std::vector<std::string> figures() const override { return {"nll_loss"}; }

  ObjectiveValue of_pair(const Answer& chosen, const Answer& rejected) const override {
    const double e = config_.label_smoothing;
    const Dual c = config_.beta / chosen.tokens * Dual::chosen(chosen),
               r = config_.beta / rejected.tokens * Dual::rejected(rejected),
               margin = c - r - config_.gamma, nll = -Dual::chosen(chosen) / chosen.tokens;
    const Dual loss = (e - 1) * log_sigmoid(margin) - e * log_sigmoid(-margin);
    ObjectiveValue out = value_of(loss + config_.sft_weight * nll, c.value, r.value);
    out.figures = {nll.value};
    return out;
  }

 private:
  const SimpoConfig config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("simpo", "simple preference optimization: means per token, without a reference") {
  using namespace mtrain;
  registry.add<Objective, Simpo, SimpoConfig>(
      "simpo", "simple preference optimization: means per token, without a reference");
}
