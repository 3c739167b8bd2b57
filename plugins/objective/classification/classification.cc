// The objective of classifiers of sequences: the cross entropy of their scores, as in Hugging
// Face's *ForSequenceClassification with problem_type single_label_classification.
#include "mtrain/base/error.h"
#include "mtrain/data/dataset.h"
#include "mtrain/optim/objective.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct ClassificationConfig {
  double label_smoothing = 0;
  void bind(Fields& f) {
    f.objective(Dataset::kClasses);
    f("label_smoothing", label_smoothing,
      "the share of the wanted probability that all classes get in equal parts")
        .min(0)
        .exclusive_max(1);
  }
};

class Classification final : public Objective {
 public:
  Classification(const ClassificationConfig& config, ObjectiveContext&) : config_(config) {}

  Records records() const override { return Records::classes; }
  bool scores() const override { return true; }
  bool needs_reference() const override { return false; }
  std::vector<std::string> figures() const override { return {"accuracy"}; }

  ClassValue of_class(std::span<const double> scores, int64_t number) const override {
    return class_cross_entropy(scores, number, config_.label_smoothing);
  }

 private:
  const ClassificationConfig config_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("classification", "classes of sequences: the cross entropy of their scores") {
  using namespace mtrain;
  registry.add<Objective, Classification, ClassificationConfig>(
      "classification", "classes of sequences: the cross entropy of their scores");
}
