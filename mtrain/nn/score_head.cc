#include "mtrain/nn/score_head.h"

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/dist/redistribute.h"

namespace mtrain {

namespace {
constexpr int64_t kMostLabels = 1 << 16;
}

void bind_labels(Fields& f, int64_t& labels, std::string& of,
                 const std::vector<std::string>& choices) {
  f(kLabelsSetting, labels,
    "number of scores of a score head, which replaces the vocabulary head; 1: a reward model, "
    "more: a classifier, 0: the model predicts tokens")
      .min(0)
      .max(kMostLabels)
      .resume(ResumeClass::impossible)
      .renamed_from({"num_labels"});
  f(kLabelsOfSetting, of,
    "which tokens have scores; sequence: the last token of a sequence, token: each token, and the "
    "head has a bias")
      .one_of(choices)
      .resume(ResumeClass::impossible);
}

ScoreHead::ScoreHead(const Scope& model, const Dim& embed, int64_t labels,
                     const std::string& labels_of, float init_std)
    : parallel_(&model.parallel()),
      weight_((model / "score")
                  .param("weight", {{"labels", labels}, embed}, Init::normal(init_std), true,
                         ParamRole::head)) {
  if (labels_of == "token")
    bias_ = &(model / "score")
                 .param("bias", {{"labels", labels}}, Init::zeros(), false, ParamRole::bias);
}

// Under sequence parallelism each rank scores its own tokens, and the few scores are gathered.
Tensor ScoreHead::operator()(const Tensor& x) const {
  const Tensor own_TL =
      router_logits(x, weight_.use(), bias_ ? bias_->use() : Tensor(), DType::f32);
  if (!active_axis(parallel_->tp)) return own_TL;
  return redistribute(own_TL, *parallel_->tp, parallel_->residual_placement(), Placement::I());
}

}  // namespace mtrain
