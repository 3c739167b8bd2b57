#include "mtrain/cpu/kernels/isa_kernels.h"

namespace mtrain::cpu::MT_ISA {

void fill_kernels(KernelTable& table) {
#define MT_FILL(entry, Args) \
  if constexpr (!is_absent(#entry)) table.entry = entry;
  MT_KERNELS(MT_FILL)
#undef MT_FILL
}

}  // namespace mtrain::cpu::MT_ISA
