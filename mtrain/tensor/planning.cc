#include "mtrain/tensor/planning.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

template <class Args>
void nothing(Stream&, const Args&) {}
void nothing(Stream&, const SquaredNormArgs& args) { *args.out = 0; }  // the result is on the host

KernelTable planning_kernels(const KernelTable& real) {
  KernelTable out;
#define MT_PLAN(entry, Args) \
  if (real.entry != nullptr) \
    out.entry = [](Stream& stream, const Args& args) { nothing(stream, args); };
  MT_KERNELS(MT_PLAN)
#undef MT_PLAN
  out.quant_scales = real.quant_scales;
  return out;
}

/// Zeroes memory without allocating physical pages: whole pages are returned to the system.
void clear(char* data, size_t bytes) {
  static const auto kPage =
      static_cast<size_t>(::sysconf(_SC_PAGESIZE));  // 64 KiB on some Arm64 systems
  size_t before = (kPage - reinterpret_cast<uintptr_t>(data) % kPage) % kPage;
  if (bytes < before + kPage) {
    std::memset(data, 0, bytes);
    return;
  }
  size_t pages = (bytes - before) / kPage * kPage;
  std::memset(data, 0, before);
  ::madvise(data + before, pages, MADV_DONTNEED);
  std::memset(data + before + pages, 0, bytes - before - pages);
}

class PlanningStream final : public Stream {};

class PlanningBackend final : public Backend {
 public:
  explicit PlanningBackend(const Backend& real)
      : real_(real), kernels_(planning_kernels(real.kernels())) {}

  std::string_view name() const override { return real_.name(); }
  Probe probe() const override { return {1, ""}; }
  Bf16Products bf16_products() const override { return real_.bf16_products(); }
  // Mapped memory, not a fake pointer: a plugin's op may access its tensors on the host.
  void* allocate(Device, size_t bytes) override {
    void* data = ::mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MT_USER_CHECK(
        data != MAP_FAILED, ErrorClass::config,
        cat("out of memory: the system cannot provide ", human_bytes(bytes), " of address space"),
        "raise the limit of the process (ulimit -v), or use a smaller model or micro-batch");
    return data;
  }
  void deallocate(Device, void* data, size_t bytes) override {
    ::munmap(data, std::max<size_t>(bytes, 1));
  }
  std::unique_ptr<Stream> stream(Device) override { return std::make_unique<PlanningStream>(); }
  const KernelTable& kernels() const override { return kernels_; }
  bool pooled() const override { return real_.pooled(); }
  // Small copies between host and "device" are real: batches, loss weights.
  void copy(Stream&, void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void fill_zero(Stream&, void* data, size_t bytes) override {
    clear(static_cast<char*>(data), bytes);
  }
  bool computes() const override { return false; }

 private:
  const Backend& real_;
  KernelTable kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_planning_backend(const Backend& real) {
  return std::make_unique<PlanningBackend>(real);
}

}  // namespace mtrain
