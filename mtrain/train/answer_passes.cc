// AnswerObjective: what it measures in passes of its own before a step or an evaluation: the
// reference's log-probabilities and the divergence.
#include <algorithm>

#include "mtrain/train/answers.h"

namespace mtrain {
namespace {

std::span<const int32_t> row_of(const std::vector<int32_t>& values, const MicroBatch& batch,
                                size_t row) {
  const auto length = static_cast<size_t>(batch.seq_length);
  return std::span(values).subspan(row * length, length);
}

/// Turns adapters off within a scope, also if the model throws.
class Without {
 public:
  explicit Without(AdapterPlan* adapters) : adapters_(adapters) {
    if (adapters_) adapters_->turn(false);
  }
  ~Without() {
    if (adapters_) adapters_->turn(true);
  }
  Without(const Without&) = delete;
  Without& operator=(const Without&) = delete;

 private:
  AdapterPlan* adapters_;
};

}  // namespace

void AnswerObjective::begin(std::span<const MicroBatch> batches,
                            std::span<const MicroBatch> mismatched, double weight,
                            const Passes& passes) {
  weight_ = weight;
  if (needs_mismatched_) measure_divergence(mismatched, passes);
  batches_ = batches;
  if (source_ != ReferenceSource::adapters) return;
  const Without off(adapters_);
  run(batches, passes);
}

/// Fills measured_ with the answers' log-probabilities, on the ranks with the last stage.
void AnswerObjective::run(std::span<const MicroBatch> batches, const Passes& passes) {
  batches_ = batches;
  measured_.assign(batches.size(), {});
  struct Measuring {
    explicit Measuring(bool& on) : on(on) { on = true; }
    ~Measuring() { on = false; }
    bool& on;
  };
  const Measuring measuring(measuring_);
  passes.interpreter.evaluate(static_cast<int64_t>(batches.size()), [&](int64_t micro) {
    return passes.input_of(batches[static_cast<size_t>(micro)]);
  });
}

void AnswerObjective::measure(std::span<const MicroBatch> batches, const Passes& passes,
                              std::vector<ReferenceLogps::Entry>& out) {
  run(batches, passes);
  for (size_t micro = 0; micro < batches.size(); ++micro)
    for (size_t row = 0; row < static_cast<size_t>(batches[micro].rows); ++row) {
      const std::vector<double>& logps = measured_[micro];
      out.push_back(counts_records() && !logps.empty()
                        ? ReferenceLogps::Entry{logps[2 * row], logps[2 * row + 1]}
                        : ReferenceLogps::Entry());
    }
}

/// The mean of log(policy / reference) over the answers of all ranks.
void AnswerObjective::measure_divergence(std::span<const MicroBatch> batches,
                                         const Passes& passes) {
  MT_CHECK(!batches.empty(), "no mismatched answers");
  std::vector<std::vector<double>> reference;
  if (source_ == ReferenceSource::adapters) {
    const Without off(adapters_);
    run(batches, passes);
    reference = std::move(measured_);
  }
  run(batches, passes);
  std::vector<double> sum_and_count(2, 0);
  for (size_t micro = 0; micro < batches.size(); ++micro) {
    const std::vector<double>& logps = measured_[micro];
    if (logps.empty() || !counts_records()) continue;
    Answers answers = answers_of(batches[micro]);
    if (source_ == ReferenceSource::precomputed)
      set_references(static_cast<int64_t>(micro), batches[micro], answers);
    for (size_t i = 0; i < answers.all.size(); ++i) {
      if (answers.all[i].tokens == 0) continue;
      sum_and_count[0] +=
          logps[i] - (reference.empty() ? answers.all[i].reference : reference[micro][i]);
      sum_and_count[1] += 1;
    }
  }
  for (Communicator* ranks : {passes.replicas, passes.stages})
    if (ranks) ranks->all_reduce(std::span(sum_and_count));
  MT_CHECK(sum_and_count[1] > 0, "no mismatched answers");
  divergence_ = sum_and_count[0] / sum_and_count[1];
}

void AnswerObjective::set_references(int64_t micro, const MicroBatch& batch,
                                     Answers& answers) const {
  if (source_ == ReferenceSource::adapters) {
    const std::vector<double>& logps = measured_[static_cast<size_t>(micro)];
    for (size_t i = 0; i < logps.size(); ++i) answers.all[i].reference = logps[i];
  }
  if (source_ != ReferenceSource::precomputed) return;
  std::vector<ReferenceLogps::Entry> made;
  for (size_t row = 0; row < static_cast<size_t>(batch.rows); ++row) {
    const ReferenceLogps::Entry* found = stored_.find(
        ReferenceLogps::key(row_of(batch.tokens, batch, row), row_of(batch.targets, batch, row)));
    if (!found && missing_) {
      if (made.empty()) made = missing_(batch);
      found = &made.at(row);
    }
    MT_USER_CHECK(
        found, ErrorClass::data,
        cat("there are no reference log-probabilities of sample ",
            batch.first_sample + static_cast<int64_t>(row),
            needs_mismatched_
                ? " with the answer of the sample before it in the global batch: they were not in "
                  "one batch of the run when it began"
                : ": it was not among the samples of the run when it began"),
        cat("restore the data, ", needs_mismatched_ ? "the sizes of global batches, " : "",
            "train.steps and validation.steps with which the run began, or start a new run"));
    answers.all[2 * row].reference = found->chosen;
    answers.all[2 * row + 1].reference = found->rejected;
  }
}

}  // namespace mtrain
