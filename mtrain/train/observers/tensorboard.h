// Event files for TensorBoard, written without protobuf: records of (length, masked CRC-32C of the
// length, payload, masked CRC-32C of the payload) whose payload is a tensorflow.Event. A resumed
// run opens a new file in the same folder; its first event makes TensorBoard discard steps of
// earlier files after the step of the resume. Owns its file. For the trainer's thread. A failure
// never affects the trainer.
#pragma once
#include <memory>

#include "mtrain/base/file.h"
#include "mtrain/train/observer.h"

namespace mtrain {

/// Creates <dir>/events.out.tfevents.<unix time>.<host>. Scalars: train/{loss, grad_norm, lr,
/// tokens_per_second, step_ms, tflops, mfu, memory_bytes, figures of the model}, valid/loss,
/// test/loss; texts: generated/1, generated/2, … of validation.prompts. If the folder cannot be
/// written, one warning is logged.
MT_API std::unique_ptr<Observer> make_tensorboard(const fs::path& dir);

}  // namespace mtrain
