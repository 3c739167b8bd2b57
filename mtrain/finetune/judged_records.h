// Preference data in a file of dataset.type=sft. Used by record_format.cc only. Stateless; safe
// from any thread.
#pragma once
#include <span>
#include <string>

#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {

/// Refuses preference data, which must not be detected as a format of single answers. The settings
/// that the error proposes read these records. Throws Error(data).
void refuse_judged(std::span<const Json> records, const FormatOptions& options,
                   const std::string& where);

}  // namespace mtrain::finetune
