#include "mtrain/recipe/settings/distillation.h"

namespace mtrain {

void DistillationSettings::bind(Fields& f) {
  using enum ResumeClass;
  f("teacher", teacher,
    "the model to learn from: a Hugging Face folder or a run of mtrain, with the student's "
    "vocabulary. It is frozen, in the compute dtype")
      .resume(safe)  // checkpoints have a digest of its weights
      .example("models/Llama-3.1-8B")
      .input_path();
  f("kind", kind,
    "the divergence between the distributions of the next token; forward_kl: KL(teacher || "
    "student), reverse_kl: KL(student || teacher), jsd: generalized Jensen-Shannon divergence")
      .one_of({"forward_kl", "reverse_kl", "jsd"});
  f("beta", beta,
    "weight of the teacher in the mixture of jsd, in (0, 1); near 0 jsd / beta is forward_kl, near "
    "1 jsd / (1 - beta) is reverse_kl")
      .exclusive_min(0)
      .exclusive_max(1);
  f("temperature", temperature,
    "divides the logits of teacher and student, for the divergence; the loss has no factor "
    "temperature^2")
      .exclusive_min(0)
      .max(1000);
  f("alpha", alpha, "weight of the cross-entropy of the targets; the divergence has 1 - alpha")
      .min(0)
      .max(1);
}

}  // namespace mtrain
