// Counts the work of each kernel call from its arguments: a multiply-add is two operations, and the
// memory of each operand counts once. Stateless; thread-safe.
#pragma once
#include <string>

#include "mtrain/tensor/kernel_table.h"
#include "mtrain/tensor/profile.h"

namespace mtrain {

struct CountedWork {
  Work work;
  std::string shape;
};

/// One function for each kernel of the table.
#define MT_COUNT(entry, Args) CountedWork count(const Args&);
MT_KERNELS(MT_COUNT)
#undef MT_COUNT

}  // namespace mtrain
