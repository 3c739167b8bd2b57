// generations.jsonl: the texts that the model generates from validation.prompts, one JSON object
// for each prompt and validation, with these keys:
//   step prompt text tokens ended
//   tokens counts those of the text; ended is "end" (of a document or turn) or "length". Bytes that
//   are no UTF-8 are U+FFFD.
// Owns its file. For the trainer's thread. A failure never affects the trainer.
#pragma once
#include <memory>

#include "mtrain/base/file.h"
#include "mtrain/train/observer.h"

namespace mtrain {

/// Opens `path` for a run that continues after `first_step` steps: lines of later steps and an
/// incomplete last line are removed first; 0 starts an empty file. If the file cannot be written,
/// one warning is logged.
MT_API std::unique_ptr<Observer> make_generations_file(const fs::path& path, int64_t first_step);

}  // namespace mtrain
