// AnswerObjective: runs an Objective on the micro-batches of a step or of an evaluation. Sums the
// tokens' losses to log-probabilities of answers, over the ranks of cp, or takes the scores at the
// ends of sequences; gets the reference's; turns the objective's derivatives into the gradients of
// the tokens' losses or scores; collects what it reports. answer_passes.cc has what it measures in
// passes of its own.
// Refers to the parallel context and the adapters. For the rank's own thread.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/data/loader.h"
#include "mtrain/nn/adapter.h"
#include "mtrain/optim/objective.h"
#include "mtrain/pipeline/interpreter.h"
#include "mtrain/recipe/settings.h"
#include "mtrain/train/reference_logps.h"

namespace mtrain {

/// Where the reference's log-probabilities come from.
enum class ReferenceSource : uint8_t { none, adapters, precomputed };
MT_API ReferenceSource reference_source(const Settings& settings, const Objective& objective);
/// "adapters", "precomputed"; empty: none.
MT_API std::string name(ReferenceSource source);

/// Values that an objective reports, by name.
using NamedValues = std::vector<std::pair<std::string, double>>;

class MT_API AnswerObjective {
 public:
  /// `adapters`: those to switch off for the reference; null if they are not its source. `labels`:
  /// the scores that the model gives a token; 0: it gives the losses of tokens.
  AnswerObjective(std::unique_ptr<Objective> objective, ReferenceSource source,
                  AdapterPlan* adapters, const ParallelContext* parallel, int64_t labels = 0);

  ReferenceSource source() const { return source_; }
  /// Over how many tokens the losses of experts' routers are means: the targets, or with a model of
  /// scores, which has one target for each sequence, all tokens but padding.
  int64_t routed_tokens(std::span<const MicroBatch> batches) const;
  /// The source of the run that is continued (name()), whatever `auto` chooses now; empty: unknown.
  void continue_with(const std::string& source);
  /// The precomputed reference; the owner fills it before the first use.
  ReferenceLogps& reference() { return stored_; }
  /// Gives the references of the rows of a micro-batch of which reference() lacks one. Without it,
  /// such a micro-batch is an Error(data).
  using MissingReference = std::function<std::vector<ReferenceLogps::Entry>(const MicroBatch&)>;
  void set_missing_reference(MissingReference missing) { missing_ = std::move(missing); }

  /// Whether the objective needs Loader::mismatched() (Objective::needs_divergence()).
  bool needs_mismatched() const { return needs_mismatched_; }
  /// The number of records: pairs, labeled answers, or tokens with a class. Throws Error(data) for
  /// samples from which the objective cannot learn.
  int64_t records(std::span<const MicroBatch> batches) const;
  /// How to run the model, and the ranks that have other records or other stages; null: none.
  struct Passes {
    Interpreter& interpreter;
    std::function<ModelInput(const MicroBatch&)> input_of;
    Communicator *replicas = nullptr, *stages = nullptr;
  };
  /// Before the interpreter runs these micro-batches, which must stay valid. `weight`: the gradient
  /// of each record's loss. `mismatched`: Loader::mismatched(). Measures the reference where the
  /// adapters are its source, and the divergence if the objective needs it: passes without tape and
  /// dropout, collective over the pipeline, the divergence also over the replicas.
  void begin(std::span<const MicroBatch> batches, std::span<const MicroBatch> mismatched,
             double weight, const Passes& passes);
  /// Adds the answers' log-probabilities under the current model to `out`, by micro-batch and row;
  /// only ranks with the last stage, and of cp only the first, get values.
  void measure(std::span<const MicroBatch> batches, const Passes& passes,
               std::vector<ReferenceLogps::Entry>& out);

  /// Interpreter::MicroBatchObjective. Of a model of scores, `losses` are those of the tokens,
  /// [T,L]. Throws Error(numeric) for a score that is not finite.
  double operator()(int64_t micro, std::span<float> losses, bool training);

  /// The values reported since the last call, averaged over the records of all ranks. Collective
  /// over both groups, which may be null.
  NamedValues take_figures(Communicator* replicas, Communicator* stages);

 private:
  struct Answers;
  Answers answers_of(const MicroBatch& batch) const;
  static Answers labeled_tokens(const MicroBatch& batch);
  bool of_tokens() const { return objective_->records() == Objective::Records::tokens; }
  void require_answers(const MicroBatch& batch, size_t row, int32_t found) const;
  void run(std::span<const MicroBatch> batches, const Passes& passes);
  void measure_divergence(std::span<const MicroBatch> batches, const Passes& passes);
  bool counts_records() const { return !parallel_ || axis_index(parallel_->cp) == 0; }
  void take_own_tokens(const MicroBatch& batch, Answers& answers) const;
  double of_scores(const MicroBatch& batch, std::span<float> scores, bool training,
                   Answers& answers);
  void take_scores(const MicroBatch& batch, std::span<const float> scores, Answers& answers) const;
  double of_class(Answers& answers, size_t index);
  void report_rewards(double chosen, double rejected);
  void sum_logps(const MicroBatch& batch, std::span<const float> losses, Answers& answers) const;
  void set_references(int64_t micro, const MicroBatch& batch, Answers& answers) const;
  double evaluate(const MicroBatch& batch, Answers& answers);
  double of_pair(Answers& answers, size_t row);
  double of_label(Answers& answers, size_t index, bool good);
  void report_sequences(const Answers& answers);
  void report(const std::string& name, double value, double count = 1);
  void report_further(const std::vector<double>& figures);

  std::unique_ptr<Objective> objective_;
  std::vector<std::string> names_, further_, of_sequences_;
  ReferenceSource source_;
  AdapterPlan *all_adapters_, *adapters_;  // adapters_: those to switch off; null: none
  const ParallelContext* parallel_;
  size_t labels_;
  ReferenceLogps stored_;
  MissingReference missing_;
  std::span<const MicroBatch> batches_;
  double weight_ = 0;
  bool needs_mismatched_ = false, measuring_ = false;
  double divergence_ = 0;                      // of the global batch (Answer::divergence)
  std::vector<std::vector<double>> measured_;  // by micro-batch: the log-probability of each answer
  std::vector<double> sums_, counts_;          // by name
  std::vector<double> extremes_;  // of pairs by scores: minus the least and the largest reward
};

}  // namespace mtrain
