// The CPU's tables: kernels_cpu.cc is compiled once per instruction-set level, each time into its
// own namespace (MT_ISA).
#pragma once
#include "kernels.h"

namespace mtrain::optimizer_kernels {

namespace base {
extern const Kernels kTable;
}
namespace v3 {
extern const Kernels kTable;
}
namespace v4 {
extern const Kernels kTable;
}

}  // namespace mtrain::optimizer_kernels
