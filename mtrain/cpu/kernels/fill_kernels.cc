#include "mtrain/cpu/kernels/isa_kernels.h"

#if defined(__AMX_BF16__)
namespace mtrain::cpu::v4_bf16 {
void fill_kernels(KernelTable& table);
}
#endif

namespace mtrain::cpu::MT_ISA {

void fill_kernels(KernelTable& table) {
#if defined(__AMX_BF16__)
  v4_bf16::fill_kernels(table);
#endif
#define MT_FILL(entry, Args) \
  if constexpr (!is_absent(#entry)) table.entry = entry;
  MT_KERNELS(MT_FILL)
#undef MT_FILL
}

}  // namespace mtrain::cpu::MT_ISA
