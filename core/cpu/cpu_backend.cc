#include "mtrain/cpu/cpu_backend.h"

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

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Isa& isa, int threads) : isa_(isa), threads_(threads > 0 ? threads : default_threads()) {
    isa.fill(kernels_);
    kernels_.gemm = gemm;
  }

  std::string_view name() const override { return "cpu"; }
  Probe probe() const override { return {1, ""}; }
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
  bool pairs = cpu::usable_isas().front().name == "v4_bf16";
  if (dtype == DType::bf16 && !pairs)
    out.push_back(
        "bf16 is slower than fp32 here: this CPU, or this build, has no bf16 products (AVX512_BF16), so that values are "
        "converted; mixed_precision.dtype=fp32 is the faster one");
  if (dtype == DType::f16)
    out.push_back(cat("fp16 is slower than fp32 on CPUs, which have no fp16 products; mixed_precision.dtype=",
                      pairs ? "bf16" : "fp32", " is the faster one"));
  if (int usable = cpu::usable_cpus(); threads > usable)
    out.push_back(cat("run.threads=", threads, " is more than the ", usable,
                      " cores that this process may use, and slows it down; set run.threads=", usable));
  return out;
}

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  return cpu::make_cpu_backend_at(cpu::usable_isas().front(), threads);
}

}  // namespace mtrain
