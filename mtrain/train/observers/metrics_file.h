// metrics.jsonl: one JSON object per step, with these keys; figures that the model reports, such as
// moe_aux_loss, come before val_loss:
//   step loss grad_norm lr tokens tokens_per_second step_ms tflops mfu memory_bytes val_loss
//   Numbers are the shortest text that reads back as the same double. A loss or norm that is not
//   finite is null, and its text follows under <key>_text ("nan", "inf", "-inf"). val_loss is null
//   until the validation after that step is done; then it replaces the null in the same line, for
//   which blanks after the object reserve space. A validation without a step (before the first
//   one), figures of a validation (val_rewards/accuracies), which follow the line of their step,
//   and a step of train.skip_steps get a line in which all values that do not exist are null.
// Owns its file. For the trainer's thread. A failure never affects the trainer.
#pragma once
#include <memory>

#include "mtrain/base/file.h"
#include "mtrain/train/observer.h"

namespace mtrain {

/// Opens `path` for a run that continues after `first_step` steps: lines of later steps and an
/// incomplete last line are removed first; 0 starts an empty file. If the file cannot be written,
/// one warning is logged.
MT_API std::unique_ptr<Observer> make_metrics_file(const fs::path& path, int64_t first_step);

}  // namespace mtrain
