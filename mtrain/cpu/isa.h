// The instruction-set levels that mtrain/cpu/kernels was compiled for, and which of them this
// process uses. Stateless.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain::cpu {

struct Isa {
  /// "v4_amx" (AVX-512, bf16 arithmetic of tiles), "v4_bf16" (AVX-512 with bf16 arithmetic), "v4"
  /// (AVX-512), "v3" (AVX2, FMA, F16C), "base".
  std::string_view name;
  void (*fill)(KernelTable&);
  void (*packed_gemm)(Stream&, const GemmArgs&);  // isa_kernels.h
};

/// The levels that this CPU can run, best first; "base" is always last. The environment variable
/// MTRAIN_ISA=LEVEL leaves out what is above LEVEL; MTRAIN_ISA=force:LEVEL leaves LEVEL alone,
/// although the CPU may not report it, for emulators. Throws ErrorClass::usage for any other value,
/// and for a level that this CPU lacks.
std::vector<Isa> usable_isas();
/// The same for a given value of MTRAIN_ISA; empty: no cap.
std::vector<Isa> usable_isas(std::string_view cap);

/// The level that a process takes: the first of usable_isas(), but where MTRAIN_ISA is not set, not
/// one whose bf16 arithmetic is slower than this CPU's fp32.
Isa chosen_isa();
/// The same of given levels. `slow_pairs`: AVX512_BF16 is slower than fp32.
Isa chosen_isa(const std::vector<Isa>& usable, bool slow_pairs);
/// Whether this CPU's AVX512_BF16 instructions do less arithmetic per second than its fp32 ones.
bool has_slow_bf16_pairs();

/// A backend at one level, for tests and benchmarks.
std::unique_ptr<Backend> make_cpu_backend_at(const Isa& isa, int threads);

}  // namespace mtrain::cpu
