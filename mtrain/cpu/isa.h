// The instruction-set levels for which mtrain/cpu/kernels was compiled, and the level that this
// process uses. Stateless; thread-safe.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain::cpu {

struct Isa {
  /// "v4_amx" (AVX-512 with bf16 tiles), "v4_bf16" (AVX-512 with bf16 instructions), "v4"
  /// (AVX-512), "v3" (AVX2, FMA, F16C), "base" (SSE2; on Arm64 its only level, with NEON).
  std::string_view name;
  void (*fill)(KernelTable&);
  void (*packed_gemm)(Stream&, const GemmArgs&);  // isa_kernels.h
};

/// The levels that this CPU supports, best first; "base" is always last. The environment variable
/// MTRAIN_ISA=LEVEL removes the levels above LEVEL; MTRAIN_ISA=force:LEVEL returns only LEVEL, even
/// if the CPU does not report it (for emulators). Throws ErrorClass::usage for any other value, and
/// for a level that this CPU lacks.
std::vector<Isa> usable_isas();
/// The same for a given value of MTRAIN_ISA; empty: no cap.
std::vector<Isa> usable_isas(std::string_view cap);

/// The level that this process uses: the first of usable_isas(). If MTRAIN_ISA is not set, levels
/// whose bf16 instructions are slower than this CPU's fp32 are skipped.
Isa chosen_isa();
/// The same for given levels. `slow_pairs`: AVX512_BF16 is slower than fp32.
Isa chosen_isa(const std::vector<Isa>& usable, bool slow_pairs);
/// Whether this CPU's AVX512_BF16 instructions have a lower throughput in flops than its fp32
/// instructions.
bool has_slow_bf16_pairs();

/// Creates a backend with kernels of one level, for tests and benchmarks.
std::unique_ptr<Backend> make_cpu_backend_at(const Isa& isa, int threads);

}  // namespace mtrain::cpu
