// The trainer's objective: whether the dataset's samples suit it, and for an objective over answers
// the reference and the records of a step.
#include <algorithm>
#include <chrono>

#include "mtrain/base/counted.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

std::optional<AnswerObjective> make_answer_objective(Session& session,
                                                     const ParallelContext* parallel) {
  const Settings& s = session.recipe.settings;
  if (!s.objective.over_answers()) return std::nullopt;
  ObjectiveContext context;
  auto objective = session.plugins.make<Objective>(s.objective.type,
                                                   session.recipe.component("objective"), context);
  const ReferenceSource source = reference_source(s, *objective);
  return std::make_optional<AnswerObjective>(
      std::move(objective), source, session.adapters ? &*session.adapters : nullptr, parallel);
}

void Trainer::build_objective() {
  const Settings& s = recipe_.settings;
  const std::string_view samples = dataset_->objective();
  // A rule checks the same before.
  const bool answers = samples == Dataset::kPreferences,
             suit_any = session_.plugins.load(Dataset::kKind, s.dataset.type).schema.objective ==
                        Fields::kAnyObjective;
  MT_USER_CHECK(suit_any || answers == s.objective.over_answers(), ErrorClass::config,
                cat("dataset.type=", s.dataset.type, " has samples for the objective '", samples,
                    "', and objective.type is ", s.objective.type),
                answers ? "choose an objective over answers, such as objective=dpo"
                        : "set dataset.type=preference, or objective=tokens");
  MT_USER_CHECK(answers || samples == Dataset::kNextToken || samples == Dataset::kMaskedToken ||
                    samples == Dataset::kSequenceToSequence,
                ErrorClass::config,
                cat("dataset.type=", s.dataset.type, " has the training objective ", samples,
                    ", which mtrain does not implement"),
                "models predict the next token or masked tokens: choose a dataset such as gpt, "
                "sft, bert, t5 or mock");
  if (std::optional<AnswerObjective> made = make_answer_objective(session_, &mesh_.parallel()))
    answers_.emplace(std::move(*made));
}

int64_t Trainer::begin_answers(std::span<const MicroBatch> batches,
                               const Interpreter::InputOf& input_of) {
  prepare_reference(false);
  const int64_t records = mesh_.data().comm().all_reduce_value(answers_->records(batches));
  answers_->begin(batches, scaler_.scale() / static_cast<double>(std::max<int64_t>(1, records)),
                  *interpreter_, input_of);
  if (answers_->source() == ReferenceSource::adapters) buckets_->release_values();
  return records;
}

void Trainer::prepare_reference(bool keep) {
  if (!answers_ || has_reference_) return;
  has_reference_ = true;
  if (answers_->source() != ReferenceSource::precomputed) return;
  const Settings& s = recipe_.settings;
  const fs::path file = ReferenceLogps::file_in(recipe_.run_directory());
  if (state_.step > 0) {
    answers_->reference() = ReferenceLogps::read(file);
    return;
  }
  const LongOperation computing(ranks_.activity(), "computing the reference");
  const auto start = std::chrono::steady_clock::now();
  add_references(Split::train, train_samples_, s.train.micro_batch_size);
  if (s.validation.steps > 0)
    add_references(Split::valid, s.validation.steps * s.eval_global_batch(), s.eval_micro_batch());
  buckets_->release_values();
  if (keep && first()) {
    make_directories(file.parent_path());
    answers_->reference().write(file, dataset_->identity());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  event(cat("reference log-probabilities computed in ", human_seconds(seconds.count())));
}

/// The first `samples` samples of a split, or all records once if they repeat. Each data-parallel
/// rank runs its share; then all ranks get all values.
void Trainer::add_references(Split split, int64_t samples, int64_t micro_batch) {
  const int64_t ranks = mesh_.data().size(), once = micro_batch * ranks,
                epoch = dataset_->split(split, Dataset::kOneEpoch)->size(),
                count = std::min(samples, (epoch + once - 1) / once * once),
                stages = mesh_.pipeline().ranks(), each = count % (once * stages) == 0 ? stages : 1;
  const auto source = dataset_->split(split, samples);
  Loader loader(*source, {.seq_length = recipe_.settings.model.seq_length,
                          .micro_batch_size = micro_batch,
                          .num_micro_batches = each,
                          .dp_rank = mesh_.data().index(),
                          .dp_size = ranks,
                          .vocab_size = session_.valid_vocab});
  const bool counts =
      axis_index(mesh_.parallel().cp) == 0 &&
      mesh_.pipeline_rank() == mesh_.pipeline().map.rank(mesh_.pipeline().map.stages() - 1);
  std::vector<int64_t> keys(static_cast<size_t>(count), 0);
  std::vector<double> values(static_cast<size_t>(2 * count), 0);
  interpreter_->forget_shapes();
  for (int64_t at = 0; at < count; at += once * each) {
    const std::span<const MicroBatch> batches = loader.next();
    std::vector<ReferenceLogps::Entry> found;
    answers_->measure(
        batches, *interpreter_,
        [&](int64_t micro) {
          return own_part(*session_.ctx, batches[static_cast<size_t>(micro)], mesh_.parallel());
        },
        found);
    size_t next = 0;
    for (const MicroBatch& batch : batches)
      for (int64_t row = 0; row < batch.rows; ++row, ++next) {
        const auto length = static_cast<size_t>(batch.seq_length),
                   first = static_cast<size_t>(row) * length,
                   index = static_cast<size_t>(batch.first_sample + row);
        if (!counts) continue;
        keys[index] = ReferenceLogps::key(std::span(batch.tokens).subspan(first, length),
                                          std::span(batch.targets).subspan(first, length));
        values[2 * index] = found[next].chosen, values[2 * index + 1] = found[next].rejected;
      }
  }
  interpreter_->forget_shapes();
  for (Communicator* group : {&mesh_.replicas(), &mesh_.dense()["pp"].comm()})
    group->all_reduce(std::span(keys)), group->all_reduce(std::span(values));
  for (size_t i = 0; i < keys.size(); ++i)
    answers_->reference().add(keys[i], {.chosen = values[2 * i], .rejected = values[2 * i + 1]});
}

}  // namespace mtrain
