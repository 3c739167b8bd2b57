#include "mtrain/comm/planned.h"

#include <numeric>

namespace mtrain {

PlannedCommunicator::PlannedCommunicator(int rank, int size, std::string name)
    : rank_(rank), size_(size), name_(std::move(name)), ranks_(static_cast<size_t>(size)) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

std::unique_ptr<Communicator> PlannedCommunicator::group(int rank, int size,
                                                         std::string name) const {
  return std::make_unique<PlannedCommunicator>(rank, size, std::move(name));
}

std::unique_ptr<Communicator> PlannedCommunicator::make_split(const CommCall&, std::string name) {
  throw Error(ErrorClass::bug,
              cat("group '", name, "' of a job that is only planned: say its size with group()"));
}

}  // namespace mtrain
