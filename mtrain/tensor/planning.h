// A backend that computes nothing: a step run on it takes and gives back exactly the memory that a
// real one would, so that a run's need is known before it starts — for any model and optimizer,
// since they describe themselves by what they do.
#pragma once
#include <memory>

#include "mtrain/tensor/backend.h"

namespace mtrain {

/// A stand-in for `real`: same name, pooling and set of kernels. Its kernels do nothing and its
/// memory is address space that reads as zero and takes no room until somebody writes it. `real`
/// must outlive it.
MT_API std::unique_ptr<Backend> make_planning_backend(const Backend& real);

}  // namespace mtrain
