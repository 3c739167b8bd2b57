// Teacher: the frozen model of objective.type=distillation. It is built next to the student in the
// same execution context and layout, computes the logits of a micro-batch just before the student
// reads it, and has neither gradients nor optimizer state. With a pipeline, the ranks with the
// student's last stage have the whole teacher, and the others nothing of it. Owns its session;
// refers to the student's, which must outlive it. For the rank's own thread.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/recipe/settings/distillation.h"
#include "mtrain/train/session.h"

namespace mtrain {

class MT_API Teacher {
 public:
  /// `options`: those of the student's session. Throws Error(config) if the teacher cannot be built
  /// or has another vocabulary.
  Teacher(Session& student, const Session::Options& options);
  /// Absent if the recipe has another objective.
  static std::optional<Teacher> of(Session& student, const Session::Options& options);

  /// Computes the teacher's logits for these tokens and adds them to the input, whose targets must
  /// be defined; does nothing on ranks without the teacher. Collective over the ranks that share
  /// its layers.
  void attach(ModelInput& input);

  /// The means of `kl` and `ce_loss` over the `tokens` of all ranks with a target since the last
  /// call. Collective over both groups, which may be null: `replicas` has the other tokens,
  /// `stages` the pipeline.
  std::vector<std::pair<std::string, double>> take_figures(Communicator* replicas,
                                                           Communicator* stages, int64_t tokens);

  /// A digest of the teacher's weights; "random" without objective.teacher.
  std::string identity() const;

 private:
  void collect();

  Session* student_;
  DistillationSettings settings_;
  std::unique_ptr<Recipe> recipe_;
  std::unique_ptr<Session> session_;          // null: another rank of the pipeline has the teacher
  std::shared_ptr<const Distillation> last_;  // of which the sums have not been read
  double divergence_ = 0, cross_entropy_ = 0;
};

}  // namespace mtrain
