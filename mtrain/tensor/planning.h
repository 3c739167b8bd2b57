// A backend that computes nothing. A step that runs on it allocates and frees exactly the memory
// that a real step does, so the memory of a run is known before it starts, for any model and
// optimizer. Thread-safe like every Backend; its streams are for one thread at a time.
#pragma once
#include <memory>

#include "mtrain/tensor/backend.h"

namespace mtrain {

/// A substitute for `real` with the same name, pooling and set of kernels. Its kernels do nothing,
/// and its memory is address space that reads as zero and takes physical memory only where it is
/// written. `real` must outlive it.
MT_API std::unique_ptr<Backend> make_planning_backend(const Backend& real);

}  // namespace mtrain
