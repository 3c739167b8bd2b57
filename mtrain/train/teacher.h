// Teacher: the teacher of objective.type=distillation, as a step sees it. Either the frozen model
// is next to the student, in the same execution context and layout: it computes the logits of a
// micro-batch just before the student reads it, and has neither gradients nor optimizer state. With
// a pipeline, the ranks with the student's last stage then have the whole teacher, and the others
// nothing of it. Or, with objective.top_k, its most likely ids come from a TeacherStore, and there
// is no model. Owns its session; refers to the student's, which must outlive it. For the rank's own
// thread.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/data/loader.h"
#include "mtrain/pipeline/evaluating.h"
#include "mtrain/recipe/settings/distillation.h"
#include "mtrain/train/session.h"
#include "mtrain/train/teacher_store.h"

namespace mtrain {

class MT_API Teacher {
 public:
  /// `options`: those of the student's session. Throws Error(config) if the teacher cannot be built
  /// or has another vocabulary, or its store is empty or belongs to something else.
  Teacher(Session& student, const Session::Options& options);
  /// Absent if the recipe has another objective.
  static std::optional<Teacher> of(Session& student, const Session::Options& options);

  /// Adds the teacher's distributions for these tokens, which are of `batch`, to the input, whose
  /// targets must be defined; does nothing on ranks without the student's head. Collective over the
  /// ranks that share its layers.
  void attach(ModelInput& input, const MicroBatch& batch);

  /// The means of `kl` and `ce_loss` over the `tokens` of all ranks with a target since the last
  /// call. Collective over both groups, which may be null: `replicas` has the other tokens,
  /// `stages` the pipeline.
  std::vector<std::pair<std::string, double>> take_figures(Communicator* replicas,
                                                           Communicator* stages, int64_t tokens);

  /// A digest of the teacher's weights; "random" without objective.teacher.
  std::string identity() const;

 private:
  void collect();
  void build(const Session::Options& options);
  void open_store(const fs::path& folder);
  /// The logits of the model for these tokens.
  Tensor logits_of(const ModelInput& input);
  /// The most likely ids of these tokens: selected from the model's logits, or stored.
  TopKRows top_of(const ModelInput& input, const MicroBatch& batch);

  Session* student_;
  DistillationSettings settings_;
  std::unique_ptr<Recipe> recipe_;
  std::unique_ptr<Session> session_;  // the model, on ranks that have it
  std::unique_ptr<TeacherStore> store_;
  const Axis* vocabulary_ = nullptr;          // over which the logits are sharded
  bool here_ = false;                         // this rank has the student's head
  int64_t shared_ = 0;                        // ids that both have
  std::shared_ptr<const Distillation> last_;  // of which the sums have not been read
  double divergence_ = 0, cross_entropy_ = 0;
};

/// What the stored distributions of a recipe belong to. `tokenizer`: the student's. Without
/// objective.teacher, any teacher and vocabulary.
MT_API TeacherIdentity stored_identity(const Recipe& student, const Tokenizer& tokenizer);
/// Throws Error(config) if the teacher of this recipe was not made for the student's tokenizer.
void require_vocabulary(const Recipe& student, const Recipe& teacher, const Tokenizer& tokenizer,
                        PluginHost& plugins);
/// The ids that a model with these settings can predict.
int64_t predicted_ids(const Settings& settings, const Tokenizer& tokenizer);
/// Throws Error(config) if objective.top_k exceeds the number of `shared` ids.
void require_top_k(int64_t k, int64_t shared);
/// Names the setting objective.teacher in what a reader of its folder says about model.init_from.
Error of_teacher(const Error& error);

}  // namespace mtrain
