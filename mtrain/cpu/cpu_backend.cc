#include "mtrain/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/cpu/cpu_stream.h"
#include "mtrain/cpu/gemm.h"
#include "mtrain/cpu/isa.h"
#include "mtrain/cpu/memory.h"
#include "mtrain/cpu/threads.h"

namespace mtrain {

namespace cpu {
namespace {

/// Whether the kernels of a level use bf16 instructions for products.
bool has_bf16_products(const Isa& isa) {
  return isa.name.ends_with("_bf16") || isa.name.ends_with("_amx");
}

/// Whether the processor has such instructions, whatever level is used.
bool processor_has_bf16_products() {
#ifdef MT_X86_LEVELS
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Isa& isa, int threads)
      : isa_(isa), threads_(threads > 0 ? threads : default_threads()) {
    isa.fill(kernels_);
    kernels_.gemm = gemm;
  }

  std::string_view name() const override { return "cpu"; }
  Probe probe() const override { return {1, ""}; }
  Bf16Products bf16_products() const override {
    bool slow = has_slow_bf16_pairs();
    if (slow && isa_.name == "v4_bf16")
      return {false,
              "on this CPU, bf16 is not faster than fp32 with kernels of level v4_bf16, only with "
              "those of v4_amx"};
    if (has_bf16_products(isa_)) return {true, "this CPU has bf16 arithmetic"};
    if (processor_has_bf16_products())
      return {false, cat("kernels of level ", isa_.name, " have no bf16 arithmetic",
                         slow ? ", and level v4_bf16 is slower than fp32 on this CPU"
                              : ", though this CPU has")};
    return {false, "this CPU has no bf16 arithmetic"};
  }
  void* allocate(Device device, size_t bytes) override {
    MT_CHECK_EQ(device.index, 0);
    return allocate_host(bytes);
  }
  void deallocate(Device, void* data, size_t) override { deallocate_host(data); }
  size_t free_memory(Device) const override { return cpu::free_memory(); }
  std::unique_ptr<Stream> stream(Device device) override {
    MT_CHECK_EQ(device.index, 0);
    return std::make_unique<CpuStream>(threads_, kernels_, isa_);
  }
  std::unique_ptr<Stream> copy_stream(Device) override { return std::make_unique<Stream>(); }
  const KernelTable& kernels() const override { return kernels_; }
  void copy(Stream&, void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void fill_zero(Stream&, void* data, size_t bytes) override {
    if (bytes > 0) std::memset(data, 0, bytes);
  }

 private:
  Isa isa_;
  int threads_;
  KernelTable kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend_at(const Isa& isa, int threads) {
  return std::make_unique<CpuBackend>(isa, threads);
}

}  // namespace cpu

std::vector<std::string> cpu_speed_notes(DType dtype, int64_t threads) {
  std::vector<std::string> out;
  Bf16Products bf16 = make_cpu_backend(1)->bf16_products();
  if (dtype == DType::bf16 && !bf16.fast)
    out.push_back(cat("bf16 is not faster than fp32 here: ", bf16.reason,
                      ", so values are converted to fp32; mixed_precision.dtype=auto uses fp32"));
  if (dtype == DType::f16)
    out.push_back(
        cat("fp16 is not faster than fp32 on CPUs: values are converted to fp32; "
            "mixed_precision.dtype=auto uses ",
            bf16.fast ? "bf16" : "fp32"));
  if (int usable = cpu::usable_cpus(); threads > usable)
    out.push_back(
        cat("run.threads=", threads, " is more than the ", usable,
            " cores that this process may use, and slows it down; set run.threads=", usable));
  return out;
}

std::string cpu_level() {
  const char* cap = std::getenv("MTRAIN_ISA");
  return cat("kernels of level ", cpu::chosen_isa().name,
             cap && *cap ? cat(", as MTRAIN_ISA=", cap, " says") : "");
}

std::string cpu_level_name() { return std::string(cpu::chosen_isa().name); }

bool cpu_has_level(std::string_view name) {
  std::vector<cpu::Isa> levels = cpu::usable_isas("");
  return std::any_of(levels.begin(), levels.end(),
                     [&](const cpu::Isa& level) { return level.name == name; });
}

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  return cpu::make_cpu_backend_at(cpu::chosen_isa(), threads);
}

}  // namespace mtrain
