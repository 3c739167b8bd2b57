#include "mtrain/train/observer.h"

namespace mtrain {
Observer::~Observer() = default;
}  // namespace mtrain
