#include "mtrain/train/observer.h"

#include "mtrain/base/text.h"

namespace mtrain {

std::string dtype_note(const RunInfo& info) {
  return info.dtype_reason.empty() ? "" : cat(" (auto: ", info.dtype_reason, ")");
}
Observer::~Observer() = default;
}  // namespace mtrain
