// metrics.jsonl: one JSON object per step, with always the same keys —
//   step loss grad_norm lr tokens tokens_per_second step_ms tflops mfu memory_bytes val_loss
// Numbers are the shortest text that reads back as the same double. A loss or norm that is not
// finite is null, and its text follows under <key>_text ("nan", "inf", "-inf"). val_loss is null
// until the validation after that step is done; then it replaces the null in the same line, for
// which blanks behind the object keep room. A validation without a step of its own (before the
// first one) gets a line whose other figures are null. Owns its file; on the trainer's thread; no
// failure reaches the trainer.
#pragma once
#include <memory>

#include "mtrain/base/file.h"
#include "mtrain/train/observer.h"

namespace mtrain {

/// Opens `path` for a run that goes on after `first_step` steps: lines of later steps and a torn
/// last line are dropped first; 0 starts an empty file. A file that cannot be written costs one
/// warning.
MT_API std::unique_ptr<Observer> make_metrics_file(const fs::path& path, int64_t first_step);

}  // namespace mtrain
