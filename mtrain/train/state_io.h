// Saves a training state to a checkpoint store and loads it. Tensors are staged in host memory. A
// save is consistent if the state does not change before the copy is complete.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/checkpoint/store.h"
#include "mtrain/nn/parameter.h"
#include "mtrain/optim/optimizer_state.h"
#include "mtrain/record/train_state.h"

namespace mtrain {

class PrincipalStart;

/// A save of a state in progress, with the values at its beginning. Refers to the store, the
/// parameters and the optimizer. For the rank's thread; see PendingSave.
class MT_API StateSave {
 public:
  /// Copies the model's buffers to the host and waits for the work that is queued on the context's
  /// stream. The save's thread then copies masters (as "<parameter>") and optimizer state (as
  /// "<parameter>.<state name>"): they must not change or move until copied() returns true or
  /// wait_copied() returns. If the copy fails, the save fails.
  StateSave(CheckpointStore& store, ParamList& parameters, OptimizerState* optimizer,
            const CheckpointMeta& meta);
  StateSave(StateSave&&) noexcept;
  /// Cancels a copy in progress at its next tensor.
  ~StateSave();
  int64_t step() const { return step_; }
  /// True when masters and optimizer state are copied or the copy has failed.
  bool copied() const;
  void wait_copied();
  bool poll() { return save_->poll(); }
  const SaveResult& wait() { return save_->wait(); }
  const SaveResult& result() const { return save_->result(); }

 private:
  int64_t step_;
  struct Host;
  std::unique_ptr<Host> host_;  // outlives the save that reads it
  std::optional<PendingSave> save_;
};

/// The same, and waits for its end. Without an optimizer, masters in host memory are not copied and
/// must not change before the save is over.
MT_API SaveResult save_state(CheckpointStore& store, ParamList& parameters,
                             OptimizerState* optimizer, const CheckpointMeta& meta);
/// Fills masters, values and, unless null, optimizer state from a step. If step 0 has weights only,
/// as after `mtrain import`, the optimizer's state stays as it is at the start. Error(checkpoint)
/// names the first tensor that is missing or of another shape. Buffers with optional_in_checkpoint
/// that the step does not contain in the same shape keep their values: returns the names of those
/// that this rank saves.
MT_API std::vector<std::string> load_state(const CheckpointStore& store, int64_t step,
                                           ParamList& parameters, OptimizerState* optimizer);
/// Fills the masters and values of the model's own parameters, frozen ones included, and the
/// model's buffers. Adapters stay as they are, except those that `principal` makes of their weights
/// (peft.init=pissa); null: weights stay whole. Throws what load_state throws.
MT_API void load_weights(const CheckpointStore& store, int64_t step, ParamList& parameters,
                         PrincipalStart* principal = nullptr);
/// Throws Error(checkpoint) that names parameters of a step that are not in `parameters`: the model
/// would be only a part of the saved one. Model buffers may be absent. The step does not say which
/// tensor is a buffer, so a vector counts as a parameter only if the optimizer has state for it.
/// REQUIRES: the parameters of the whole model, not those of some pipeline stages.
MT_API void require_all_parameters_read(const CheckpointStore& store, int64_t step,
                                        ParamList& parameters);

}  // namespace mtrain
