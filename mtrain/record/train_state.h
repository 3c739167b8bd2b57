// TrainState: everything of a run that a step changes besides tensors, and its text form in
// checkpoints.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/export.h"

namespace mtrain {

struct TrainState {
  int64_t step = 0;              // updates attempted, skipped ones included
  int64_t consumed_samples = 0;  // the data cursor, over all ranks
  int64_t consumed_tokens = 0;
  int64_t updates = 0;  // updates applied: the optimizer's own clock
  double loss_scale = 1;
  int64_t good_steps = 0;  // since the loss scale last changed
  int64_t bad_steps = 0;   // without the scale halved yet
  uint64_t seed = 0;       // with `step` the whole state of the counter-based random numbers
};

/// What a checkpoint says about the run that wrote it.
struct CheckpointMeta {
  TrainState state;
  std::string config;     // the resolved recipe
  std::string name;       // of the recipe
  std::string directory;  // where the recipe's relative paths start
  std::string data;       // identity of the dataset
  std::string order;  // SampleSource::order() of the training data; empty in checkpoints of older
                      // versions, too
  std::string tokenizer;  // identity of the tokenizer
  std::string version;    // of mtrain
  std::string saved;      // SavedConfig as JSON; "{}" in checkpoints of older versions
};

/// JSON; doubles come back bit for bit.
MT_API std::string to_json(const CheckpointMeta& meta);
/// Throws Error(checkpoint) naming `where` and the missing or mistyped key.
MT_API CheckpointMeta meta_from_json(const std::string& text, const std::string& where);

}  // namespace mtrain
