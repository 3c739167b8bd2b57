// The work of each kernel call, counted from its arguments: multiply-adds as two operations, every
// operand's memory once. Stateless.
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
