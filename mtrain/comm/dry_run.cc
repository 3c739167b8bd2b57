#include "mtrain/comm/dry_run.h"

#include <numeric>

namespace mtrain {

DryRunCommunicator::DryRunCommunicator(int rank, int size, std::string name)
    : rank_(rank), size_(size), name_(std::move(name)), ranks_(static_cast<size_t>(size)) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

std::unique_ptr<Communicator> DryRunCommunicator::group(int rank, int size,
                                                        std::string name) const {
  return std::make_unique<DryRunCommunicator>(rank, size, std::move(name));
}

std::unique_ptr<Communicator> DryRunCommunicator::make_split(const CommCall&, std::string name) {
  throw Error(ErrorClass::bug,
              cat("group '", name, "' of a job that is only planned: set its size with group()"));
}

}  // namespace mtrain
