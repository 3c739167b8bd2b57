#include "mtrain/cpu/isa.h"

namespace mtrain::cpu {

namespace base {
void fill_kernels(KernelTable&);
bool packed_gemm(Stream&, const GemmArgs&);
}
namespace v3 {
void fill_kernels(KernelTable&);
bool packed_gemm(Stream&, const GemmArgs&);
}
namespace v4 {
void fill_kernels(KernelTable&);
bool packed_gemm(Stream&, const GemmArgs&);
}
#ifdef MT_X86_BF16
namespace v4_bf16 {
void fill_kernels(KernelTable&);
bool packed_gemm(Stream&, const GemmArgs&);
}
#endif

std::vector<Isa> usable_isas() {
  std::vector<Isa> usable;
#ifdef MT_X86_LEVELS
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
            __builtin_cpu_supports("popcnt");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl");
#ifdef MT_X86_BF16
  if (v4 && __builtin_cpu_supports("avx512bf16")) usable.push_back({"v4_bf16", v4_bf16::fill_kernels, v4_bf16::packed_gemm});
#endif
  if (v4) usable.push_back({"v4", v4::fill_kernels, v4::packed_gemm});
  if (v3) usable.push_back({"v3", v3::fill_kernels, v3::packed_gemm});
#endif
  usable.push_back({"base", base::fill_kernels, base::packed_gemm});
  return usable;
}

}  // namespace mtrain::cpu
