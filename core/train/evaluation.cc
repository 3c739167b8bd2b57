// The loss of a split, by a trainer and by `mtrain eval`.
#include <chrono>

#include "mtrain/base/failpoint.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/train/trainer.h"

namespace mtrain {
namespace {

LoaderConfig loader_config(const Settings& s, const RankMesh* mesh) {
  const int64_t ranks = mesh ? mesh->data().size() : 1;
  return {.seq_length = s.model.seq_length,
          .micro_batch_size = s.eval_micro_batch(),
          .num_micro_batches = s.eval_global_batch() / (s.eval_micro_batch() * ranks),
          .dp_rank = mesh ? mesh->data().index() : 0,
          .dp_size = ranks};
}

/// The stages of a pipeline agree on the shape of a micro-batch, here on another one than in training.
class OtherMicroBatches {
 public:
  OtherMicroBatches(Interpreter& interpreter, bool other) : interpreter_(other ? &interpreter : nullptr) {
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

}  // namespace

std::optional<EvalMetrics> evaluate_split(Session& session, Interpreter& interpreter, const Dataset& dataset, Split split,
                                          int64_t batches, const RankMesh* mesh, const std::function<bool()>& stop) {
  auto start = std::chrono::steady_clock::now();
  const Settings& s = session.recipe.settings;
  auto source = call_plugin(dataset, "split()", [&] { return dataset.split(split, batches * s.eval_global_batch()); });
  Loader loader(*source, loader_config(s, mesh));
  OtherMicroBatches other(interpreter, s.eval_micro_batch() != s.train.micro_batch_size);
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < batches; ++i) {
    if (stop && stop()) return std::nullopt;
    std::span<const Batch> micro_batches = loader.next();
    auto input_of = [&](int64_t micro) {
      const Batch& batch = micro_batches[static_cast<size_t>(micro)];
      return mesh ? own_part(*session.run, batch, mesh->parallel()) : to_device(*session.run, batch);
    };
    for (double loss : interpreter.evaluate(static_cast<int64_t>(micro_batches.size()), input_of).micro_batches) sum += loss;
    for (const Batch& batch : micro_batches) tokens += batch.num_target_tokens;
    failpoint("eval.batch");
  }
  if (mesh) sum = mesh->replicas().all_reduce_value(sum), tokens = mesh->data().comm().all_reduce_value(tokens);
  return EvalMetrics{
      .split = name(split),
      .loss = tokens > 0 ? sum / static_cast<double>(tokens) : 0,
      .tokens = tokens,
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace mtrain
