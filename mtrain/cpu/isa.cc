#include "mtrain/cpu/isa.h"

#include <algorithm>
#include <cstdlib>
#if defined(MT_X86_LEVELS)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "mtrain/base/error.h"

namespace mtrain::cpu {

// All compiled levels, best first.
#if defined(MT_X86_BF16)
#define MT_EACH_LEVEL(f) f(v4_amx) f(v4_bf16) f(v4) f(v3) f(base)
#elif defined(MT_X86_LEVELS)
#define MT_EACH_LEVEL(f) f(v4) f(v3) f(base)
#else
#define MT_EACH_LEVEL(f) f(base)
#endif

#define MT_DECLARE(level)                     \
  namespace level {                           \
  void fill_kernels(KernelTable&);            \
  void packed_gemm(Stream&, const GemmArgs&); \
  }
MT_EACH_LEVEL(MT_DECLARE)
#undef MT_DECLARE

namespace {

#if defined(MT_X86_LEVELS)
/// The features of x86-64-v3 that __builtin_cpu_supports does not know in every compiler.
bool has_v3_rest() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
  bool f16c = (c & bit_F16C) != 0, movbe = (c & bit_MOVBE) != 0;
  if (!__get_cpuid(0x80000001, &a, &b, &c, &d)) return false;
  bool lzcnt = (c & (1u << 5)) != 0;
  return f16c && movbe && lzcnt;
}
bool has_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("popcnt") && has_v3_rest();
}
bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif
#if defined(MT_X86_BF16)
bool has_v4_bf16() { return has_v4() && __builtin_cpu_supports("avx512bf16"); }

/// Linux enables AMX's tile registers only for processes that request them.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool permitted = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return permitted;
}
bool has_v4_amx() {
  unsigned a, b, c, d;
  if (!has_v4_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  bool bf16_tiles = (d & (1u << 22)) != 0, tiles = (d & (1u << 24)) != 0;
  return bf16_tiles && tiles && may_use_tiles();
}
#endif

bool has_base() { return true; }

struct Level {
  Isa isa;
  bool (*present)();  // called only when needed: it may request a feature from the operating system
};

std::vector<Level> all_levels() {
#if defined(MT_X86_LEVELS)
  __builtin_cpu_init();
#endif
#define MT_LEVEL(level) {{#level, level::fill_kernels, level::packed_gemm}, has_##level},
  return {MT_EACH_LEVEL(MT_LEVEL)};
#undef MT_LEVEL
}

std::string names(const std::vector<Level>& levels, bool present_only) {
  std::string out;
  for (const Level& level : levels)
    if (!present_only || level.present())
      out += (out.empty() ? "" : ", ") + std::string(level.isa.name);
  return out;
}

}  // namespace

std::vector<Isa> usable_isas(std::string_view cap) {
  constexpr std::string_view kForce = "force:";
  std::vector<Level> levels = all_levels();
  auto first = levels.begin();
  if (!cap.empty()) {
    bool forced = cap.starts_with(kForce);
    std::string_view wanted = forced ? cap.substr(kForce.size()) : cap;
    first = std::find_if(levels.begin(), levels.end(),
                         [&](const Level& level) { return level.isa.name == wanted; });
    if (first == levels.end())
      throw Error(ErrorClass::usage,
                  cat("MTRAIN_ISA=", cap, ": this build has no level '", wanted, "'"),
                  cat("one of: ", names(levels, false)));
    if (!forced && !first->present())
      throw Error(ErrorClass::usage,
                  cat("MTRAIN_ISA=", cap, ": this CPU has no level '", wanted, "'"),
                  cat("one of: ", names(levels, true)));
#if defined(MT_X86_BF16)
    if (forced && wanted == "v4_amx") may_use_tiles();
#endif
    if (forced) return {first->isa};
  }
  std::vector<Isa> usable;
  for (; first != levels.end(); ++first)
    if (first->present()) usable.push_back(first->isa);
  return usable;
}

std::vector<Isa> usable_isas() {
  const char* cap = std::getenv("MTRAIN_ISA");
  return usable_isas(cap ? cap : "");
}

bool has_slow_bf16_pairs() {
#if defined(MT_X86_BF16)
  // Intel processors since Golden Cove, which are the ones with AVX512_FP16: measured at 0.66 of
  // fp32 (docs/benchmarks/cpu.md), since they start half an instruction per cycle. They have AMX
  // for bf16.
  unsigned a, b, c, d;
  if (!has_v4_bf16() || !__builtin_cpu_is("intel") || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return false;
  return (d & (1u << 23)) != 0;
#else
  return false;
#endif
}

Isa chosen_isa(const std::vector<Isa>& usable, bool slow_pairs) {
  return usable.size() > 1 && usable.front().name == "v4_bf16" && slow_pairs ? usable[1]
                                                                             : usable.front();
}

Isa chosen_isa() {
  const char* cap = std::getenv("MTRAIN_ISA");
  return chosen_isa(usable_isas(), (!cap || !*cap) && has_slow_bf16_pairs());
}

}  // namespace mtrain::cpu
