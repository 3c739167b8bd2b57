#include "mtrain/cpu/kernels/isa_kernels.h"

namespace mtrain::cpu::MT_ISA {

void fill_kernels(KernelTable& table) {
  // A deleted function cannot be called: its entry stays null.
#define MT_FILL(entry, Args)                                                      \
  [&]<class A>(const A*) {                                                        \
    if constexpr (requires(Stream & stream, A & args) { (entry)(stream, args); }) \
      table.entry = static_cast<void (*)(Stream&, const A&)>(entry);              \
  }(static_cast<const Args*>(nullptr));
  MT_KERNELS(MT_FILL)
#undef MT_FILL
}

}  // namespace mtrain::cpu::MT_ISA
