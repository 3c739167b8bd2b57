// ORPO: the likelihood of the chosen answer, and the odds ratio of chosen and rejected one, without
// reference (Hong et al. 2024, arXiv:2403.07691). The odds ratio is that of PyPI's trl 1.16; the
// likelihood is that of the answer's tokens, as in the paper, where trl adds the prompt's.
#include "mtrain/optim/dual.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct OrpoConfig {
  double beta = 0.1;
  void bind(Fields& f) {
    f("beta", beta, "weight of the odds ratio; the paper's lambda")
        .exclusive_min(0)
        .renamed_from({"orpo_alpha"});
  }
};

class Orpo final : public Objective {
 public:
  Orpo(const OrpoConfig& config, ObjectiveContext&) : config_(config) {}

  bool needs_reference() const override { return false; }
  bool per_token() const override { return true; }
  std::vector<std::string> figures() const override {
    return {"nll_loss", "log_odds_ratio", "log_odds_chosen"};
  }

  ObjectiveValue of_pair(const Answer& chosen, const Answer& rejected) const override {
    const Dual c = Dual::chosen(chosen) / chosen.tokens,
               r = Dual::rejected(rejected) / rejected.tokens,
               odds = (c - r) - (log1mexp(c) - log1mexp(r)), ratio = log_sigmoid(odds);
    ObjectiveValue out =
        value_of(-c - config_.beta * ratio, config_.beta * c.value, config_.beta * r.value);
    out.figures = {-c.value, ratio.value, odds.value};
    return out;
  }

 private:
  const OrpoConfig config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("orpo", "likelihood of the chosen answer and odds ratio, without a reference") {
  using namespace mtrain;
  registry.add<Objective, Orpo, OrpoConfig>(
      "orpo", "likelihood of the chosen answer and odds ratio, without a reference");
}
