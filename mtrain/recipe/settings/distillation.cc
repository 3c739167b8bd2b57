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
  f("top_k", top_k,
    "the ids of each token that the divergence tells apart, the teacher's most likely ones; all "
    "others count as one. They are computed before training and kept in objective.store, and no "
    "teacher is in memory while training; 0: all ids, by the teacher in each step")
      .min(0)
      .max(int64_t{1} << 20)
      .example("64");
  f("store", store,
    "with top_k: the folder of the teacher's most likely ids, for all runs with the same teacher, "
    "tokenizer, top_k, temperature and model.seq_length; what it lacks is added. Relative to the "
    "current folder; empty: the folder teacher in the run's folder")
      .resume(safe)
      .example("stored/llama-8b-top64");
  f("alpha", alpha, "weight of the cross-entropy of the targets; the divergence has 1 - alpha")
      .min(0)
      .max(1);
}

}  // namespace mtrain
