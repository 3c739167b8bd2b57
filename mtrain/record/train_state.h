// TrainState: the state of a run besides tensors, and its text form in checkpoints. Values;
// stateless functions are safe from any thread.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/export.h"

namespace mtrain {

struct TrainState {
  int64_t step = 0;              // updates attempted, skipped ones included
  int64_t consumed_samples = 0;  // the data cursor, over all ranks
  int64_t consumed_tokens = 0;
  int64_t updates = 0;  // updates applied: the step count of the optimizer
  double loss_scale = 1;
  int64_t good_steps = 0;  // consecutive finite steps since the loss scale last grew
  int64_t bad_steps = 0;   // non-finite steps that count towards the hysteresis (loss_scaler.h)
  int64_t skips = 0;       // consecutive updates skipped because of their loss or gradient norm
  bool validation_due = false;  // the run was stopped during the validation after this step
  /// The validations so far, for validation.patience and checkpoint.keep_best.
  struct Validations {
    int64_t last = -1;         // step of the last one; -1: none, or the run does not need it
    double best_loss = 0;      // the lowest loss, of best_step
    int64_t best_step = -1;    // -1: none was finite
    int64_t waited = 0;        // validations in a row that have not lowered the loss by more than
                               // validation.min_improvement
    double kept_loss = 0;      // of the checkpoint that keep_best keeps, of kept_step
    int64_t kept_step = -1;    // -1: none
    std::string samples = {};  // identity of what they measure
  } validations = {};
  uint64_t seed =
      0;  // together with `step`, the complete state of the counter-based random numbers
};

/// The metadata in a checkpoint about the run that wrote it.
struct CheckpointMeta {
  TrainState state;
  std::string config;     // the resolved recipe
  std::string name;       // of the recipe
  std::string directory;  // the base of the recipe's relative paths
  std::string data;       // identity of the dataset
  std::string order;  // SampleSource::order() of the training data; also empty in checkpoints of
                      // older versions
  std::string tokenizer;  // identity of the tokenizer
  std::string base;  // identity of the frozen weights; empty: all weights are in the checkpoint
  std::string reference;  // where an objective's reference comes from: "adapters" or "precomputed";
                          // empty: none
  std::string version;    // of mtrain
  std::string saved;      // SavedConfig as JSON; "{}" in checkpoints of older versions
};

/// JSON; doubles are restored bit for bit.
MT_API std::string to_json(const CheckpointMeta& meta);
/// Throws Error(checkpoint) that names `where` and the missing or mistyped key.
MT_API CheckpointMeta meta_from_json(const std::string& text, const std::string& where);

}  // namespace mtrain
