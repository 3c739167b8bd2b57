// Event files for TensorBoard, written without protobuf: records of (length, masked CRC-32C of the
// length, payload, masked CRC-32C of the payload) whose payload is a tensorflow.Event. A resumed
// run opens a new file in the same folder and tells the reader to forget what an earlier one wrote
// beyond the step it resumes from. Owns its file; on the trainer's thread; no failure reaches the
// trainer.
#pragma once
#include <memory>

#include "mtrain/base/file.h"
#include "mtrain/train/observer.h"

namespace mtrain {

/// Creates <dir>/events.out.tfevents.<unix time>.<host>. Scalars: train/{loss, grad_norm, lr,
/// tokens_per_second, step_ms, tflops, mfu, memory_bytes}, valid/loss, test/loss. A folder that
/// cannot be written costs one warning.
MT_API std::unique_ptr<Observer> make_tensorboard(const fs::path& dir);

}  // namespace mtrain
