// The mean loss of a split, for the trainer and for `mtrain eval`.
#include <chrono>

#include "mtrain/base/counted.h"
#include "mtrain/base/elapsed.h"
#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/recipe/input_paths.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/trainer.h"

namespace mtrain {
namespace {

LoaderConfig evaluation_loader(const Session& session, const RankMesh* mesh, bool mismatched) {
  const Settings& s = session.recipe.settings;
  const int64_t ranks = mesh ? mesh->data().size() : 1;
  return {.seq_length = s.model.seq_length,
          .micro_batch_size = s.eval_micro_batch(),
          .num_micro_batches = s.eval_global_batch() / (s.eval_micro_batch() * ranks),
          .dp_rank = mesh ? mesh->data().index() : 0,
          .dp_size = ranks,
          .vocab_size = session.valid_vocab,
          .mismatched = mismatched};
}

/// Resets the shapes that pipeline stages have agreed on, before and after an evaluation whose
/// micro-batches have another size than those of training.
class OtherMicroBatches {
 public:
  OtherMicroBatches(Interpreter& interpreter, bool other)
      : interpreter_(other ? &interpreter : nullptr) {
    if (interpreter_) interpreter_->forget_shapes();
  }
  ~OtherMicroBatches() {
    if (interpreter_) interpreter_->forget_shapes();
  }
  OtherMicroBatches(const OtherMicroBatches&) = delete;
  OtherMicroBatches& operator=(const OtherMicroBatches&) = delete;

 private:
  Interpreter* interpreter_;
};

struct Totals {
  double loss = 0;
  int64_t tokens = 0, records = 0;
};

/// Adds the next global batch of this rank.
void evaluate_batch(const Session& session, Interpreter& interpreter, Loader& loader,
                    const RankMesh* mesh, AnswerObjective* answers, Teacher* teacher,
                    Totals& totals) {
  const std::span<const MicroBatch> batches = loader.next();
  const auto input_of = [&](const MicroBatch& one) {
    ModelInput input =
        mesh ? own_part(*session.ctx, one, mesh->parallel()) : to_device(*session.ctx, one);
    if (teacher) teacher->attach(input, one);
    return input;
  };
  if (answers) {
    totals.records += answers->records(batches);
    answers->begin(batches, loader.mismatched(), 0,
                   {.interpreter = interpreter,
                    .input_of = input_of,
                    .replicas = mesh ? &mesh->replicas() : nullptr,
                    .stages = mesh ? &mesh->dense()["pp"].comm() : nullptr});
  }
  const StepLoss loss = interpreter.evaluate(
      static_cast<int64_t>(batches.size()),
      [&](int64_t micro) { return input_of(batches[static_cast<size_t>(micro)]); });
  for (const double one : loss.micro_batches) totals.loss += one;
  for (const MicroBatch& one : batches) totals.tokens += one.num_target_tokens;
}

}  // namespace

void warn_of_repeats(const Dataset& dataset, Split split, int64_t batches, int64_t batch,
                     const std::string& instead) {
  const int64_t wanted = batches * batch;
  int64_t samples = 0;
  try {
    samples = dataset.split(split, Dataset::kOneEpoch)->size();
    // A source that repeats its data has less than one epoch more than requested; an endless one
    // has far more.
    if (wanted <= samples || dataset.split(split, wanted)->size() >= wanted + samples) return;
  } catch (const std::exception&) {
    return;  // a weighted blend, for example, has no defined epoch
  }
  log_warn("the ", name(split), " split has ", counted(samples, "sample"), ", which ",
           counted(batches, "batch", "batches"), " of ", batch, " repeat: ",
           !instead.empty()  ? instead
           : batch > samples ? "one batch is larger than the split: reduce "
                               "validation.global_batch_size, or give the split more records"
                             : "reduce validation.steps");
}

void check_validation_data(const Recipe& recipe, const Dataset& dataset, bool warns) {
  const int64_t steps = recipe.settings.validation.steps,
                batch = recipe.settings.eval_global_batch();
  with_path_origins(recipe.inputs, [&] {
    call_plugin(dataset, "split()", [&] {
      (void)dataset.split(Split::valid, steps * batch);
      if (warns) warn_of_repeats(dataset, Split::valid, steps, batch, "");
    });
  });
}

std::optional<EvalMetrics> evaluate_split(Session& session, Interpreter& interpreter,
                                          const Dataset& dataset, Split split, int64_t batches,
                                          const RankMesh* mesh, const std::function<bool()>& stop,
                                          AnswerObjective* answers, Teacher* teacher) {
  auto start = std::chrono::steady_clock::now();
  const Settings& s = session.recipe.settings;
  const bool whole = batches == Dataset::kOneEpoch;
  MT_CHECK(!whole || !mesh, "evaluating a whole split requires one rank");
  const int64_t batch = s.eval_global_batch();
  auto source = call_plugin(
      dataset, "split()", [&] { return dataset.split(split, whole ? batches : batches * batch); });
  if (whole) batches = source->size() / batch;
  const int64_t rest = whole ? source->size() % batch : 0;
  OtherMicroBatches other(interpreter,
                          s.eval_micro_batch() != s.train.micro_batch_size || rest > 0);
  const bool mismatched = answers && answers->needs_mismatched();
  Totals all;
  auto evaluate = [&](const LoaderConfig& config, int64_t first,
                      int64_t times) {  // returns false if `stop` asks to stop
    Loader loader(*source, config, first);
    for (int64_t i = 0; i < times; ++i) {
      if (stop && stop()) return false;
      evaluate_batch(session, interpreter, loader, mesh, answers, teacher, all);
      failpoint("eval.batch");
    }
    return true;
  };
  if (batches > 0 && !evaluate(evaluation_loader(session, mesh, mismatched), 0, batches))
    return std::nullopt;
  if (rest > 0) interpreter.forget_shapes();
  if (rest > 0 && !evaluate({.seq_length = s.model.seq_length,
                             .num_micro_batches = rest,
                             .vocab_size = session.valid_vocab,
                             .mismatched = mismatched},
                            batches * batch, 1))
    return std::nullopt;
  if (mesh)
    all.loss = mesh->replicas().all_reduce_value(all.loss),
    all.tokens = mesh->data().comm().all_reduce_value(all.tokens),
    all.records = mesh->data().comm().all_reduce_value(all.records);
  const int64_t count = answers ? all.records : all.tokens;
  Communicator *replicas = mesh ? &mesh->replicas() : nullptr,
               *stages = mesh ? &mesh->dense()["pp"].comm() : nullptr;
  NamedValues figures;
  if (answers) figures = answers->take_figures(replicas, stages);
  if (teacher) figures = teacher->take_figures(replicas, stages, all.tokens);
  return EvalMetrics{.split = name(split),
                     .loss = count > 0 ? all.loss / static_cast<double>(count) : 0,
                     .tokens = all.tokens,
                     .seconds = seconds_since(start),
                     .samples = batches * batch + rest,
                     .figures = std::move(figures)};
}

}  // namespace mtrain
