// The instruction-set levels that core/cpu/kernels was compiled for, and which of them this CPU can run.
// Stateless.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain::cpu {

struct Isa {
  std::string_view name;  // "v4_bf16" (AVX-512 with bf16 products), "v4" (AVX-512), "v3" (AVX2, FMA), "base"
  void (*fill)(KernelTable&);
  bool (*packed_gemm)(Stream&, const GemmArgs&);  // false: it has none for this product
};

/// Best first; "base" is always last.
std::vector<Isa> usable_isas();
/// A backend at one level, for tests and benchmarks.
std::unique_ptr<Backend> make_cpu_backend_at(const Isa& isa, int threads);

}  // namespace mtrain::cpu
