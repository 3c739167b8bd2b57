#include "mtrain/cpu/cpu_backend.h"

#include <filesystem>
#include <fstream>
#include <limits>

#include "kernel_harness.h"
#include "mtrain/base/error.h"
#include "mtrain/cpu/cgroup.h"
#include "mtrain/cpu/cpu_stream.h"
#include "mtrain/cpu/memory.h"
#include "mtrain/cpu/threads.h"

namespace mtrain::testing {
namespace {

namespace fs = std::filesystem;

struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "mtrain_cpu_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  void write(const fs::path& at, std::string_view text) const {
    fs::create_directories((path / at).parent_path());
    std::ofstream(path / at) << text;
  }
};

}  // namespace

TEST_CASE("the CPU backend offers every kernel at every level") {
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    Level level(isa, 1);
    // The CPU has no unit for FP8 and FP4.
#define MT_CHECK_KERNEL(entry, Args) \
  CHECK_MESSAGE(                     \
      (level.kernels.entry != nullptr) == (std::string_view(#entry) != "quantized_gemm"), #entry);
    MT_KERNELS(MT_CHECK_KERNEL)
#undef MT_CHECK_KERNEL
  }
  auto backend = make_cpu_backend();
  CHECK(backend->name() == "cpu");
  CHECK(backend->probe().devices == 1);
  CHECK(cpu::usable_isas("").back().name == "base");
}

TEST_CASE(
    "each level says whether it multiplies bf16, and the default backend answers for the level in "
    "use") {
  auto multiplies = [](const cpu::Isa& isa) {
    return (isa.name == "v4_bf16" && !cpu::has_slow_bf16_pairs()) || isa.name == "v4_amx";
  };
  bool processor = false;
  for (const cpu::Isa& isa : cpu::usable_isas("")) processor |= multiplies(isa);
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    CAPTURE(std::string(isa.name));
    Bf16Products products = cpu::make_cpu_backend_at(isa, 1)->bf16_products();
    CHECK(products.fast == multiplies(isa));
    const char* reason = products.fast           ? "has bf16 arithmetic"
                         : isa.name == "v4_bf16" ? "is not faster than fp32"  // next to AMX
                                                 : "no bf16 arithmetic";
    CHECK(products.reason.find(reason) != std::string::npos);
    if (processor && !products.fast)
      CHECK(products.reason.find(isa.name) != std::string::npos);  // it is not the CPU's lack
  }
  Bf16Products products = make_cpu_backend(1)->bf16_products();
  CHECK(products.fast == multiplies(cpu::chosen_isa()));
  CHECK(cpu_speed_notes(DType::bf16, 0).empty() == products.fast);
  CHECK(cpu_speed_notes(DType::f32, 0).empty());
  CHECK(cpu_level().find(cpu::chosen_isa().name) != std::string::npos);
}

TEST_CASE("memory is aligned, writable to its end, and freed") {
  auto backend = make_cpu_backend(1);
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{64}, size_t{100001}, size_t{4} << 20, (size_t{9} << 20) + 3}) {
    void* data = backend->allocate({}, bytes);
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(data) % (bytes >= (size_t{4} << 20) ? size_t{2} << 20 : 64) ==
          0);
    std::memset(data, 1, bytes);
    backend->deallocate({}, data, bytes);
  }
}

TEST_CASE("a request that cannot be met names need and free, as a config error") {
  auto backend = make_cpu_backend(1);
  for (size_t bytes : {size_t{1} << 50, std::numeric_limits<size_t>::max(),
                       std::numeric_limits<size_t>::max() - 4096}) {
    try {
      backend->allocate({}, bytes);
      FAIL("allocated ", bytes);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::config);
      CHECK(error.message().find("need ") != std::string::npos);
      CHECK(error.message().find(" free") != std::string::npos);
    }
  }
  CHECK(cpu::free_memory() > 0);
}

TEST_CASE("copies and zeroing") {
  auto backend = make_cpu_backend(2);
  auto stream = backend->stream({});
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{3000001}}) {
    auto from = Buffer<float>::random(std::min<int64_t>(n, 5000), "from");
    Buffer<unsigned char> a(n, 3), b(n, 4);
    if (n > 0) std::memcpy(a.data(), from.data(), static_cast<size_t>(std::min<int64_t>(n, 5000)));
    backend->copy(*stream, b.data(), a.data(), static_cast<size_t>(n));
    CHECK(b.same_bits(a));
    backend->fill_zero(*stream, b.data(), static_cast<size_t>(n));
    CHECK(std::all_of(b.data(), b.data() + n, [](unsigned char c) { return c == 0; }));
  }
  backend->copy(*stream, nullptr, nullptr, 0);
  stream->synchronize();
}

TEST_CASE("scratch memory stays in place once it is large enough") {
  auto backend = make_cpu_backend(2);
  auto stream = backend->stream({});
  auto& cpu = cpu::cpu_stream(*stream);
  CHECK(cpu.threads() == 2);
  auto* large = cpu.scratch(1 << 20);
  CHECK(reinterpret_cast<uintptr_t>(large) % 64 == 0);
  CHECK(cpu.scratch(10) == large);
  CHECK(cpu.scratch(1 << 20) == large);
}

TEST_CASE("the control group's quota limits the threads") {
  TemporaryFolder root;
  CHECK(cpu::cgroup_cpu_quota(root.path) == 0);
  root.write("proc/self/cgroup", "0::/user/job\n");
  CHECK(cpu::cgroup_cpu_quota(root.path) == 0);
  root.write("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  CHECK(cpu::cgroup_cpu_quota(root.path) == 0);
  root.write("sys/fs/cgroup/user/cpu.max", "250000 100000\n");
  CHECK(cpu::cgroup_cpu_quota(root.path) == 3);
  root.write("sys/fs/cgroup/user/job/cpu.max", "50000 100000\n");
  CHECK(cpu::cgroup_cpu_quota(root.path) == 1);
  root.write("sys/fs/cgroup/user/job/cpu.max", "nonsense\n");
  CHECK(cpu::cgroup_cpu_quota(root.path) == 3);
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/box\n2:memory:/box\nbroken line\n");
  root.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  CHECK(cpu::cgroup_cpu_quota(root.path) == 0);
  root.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "400000\n");
  CHECK(cpu::cgroup_cpu_quota(root.path) == 4);
  CHECK(cpu::default_threads() >= 1);
}

TEST_CASE(
    "the control group's memory is that of the tightest group on the way up, in both versions") {
  TemporaryFolder root;
  auto memory = [&] { return cpu::cgroup_memory(root.path); };
  CHECK(memory().limit == cpu::CgroupMemory::kNone);
  CHECK(memory().free == cpu::CgroupMemory::kNone);
  root.write("proc/self/cgroup", "0::/user/job/step\n");
  root.write("sys/fs/cgroup/user/job/step/memory.max", "max\n");
  root.write("sys/fs/cgroup/user/job/step/memory.current", "700\n");
  CHECK(memory().free == cpu::CgroupMemory::kNone);
  root.write("sys/fs/cgroup/user/job/memory.max", "8000\n");  // the group above has the limit
  root.write("sys/fs/cgroup/user/job/memory.current", "3000\n");
  CHECK(memory().limit == 8000);
  CHECK(memory().free == 5000);
  root.write("sys/fs/cgroup/user/job/memory.stat",
             "anon 1500\nfile 1500\nactive_file 400\ninactive_file 600\nshmem 500\n");
  CHECK(memory().free == 6000);
  root.write("sys/fs/cgroup/user/memory.max", "9000\n");  // a wider one that others have filled
  root.write("sys/fs/cgroup/user/memory.current", "9500\n");
  CHECK(memory().limit == 8000);
  CHECK(memory().free == 0);
  root.write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/box/run\n1:cpu:/\n0::/\n");
  CHECK(memory().limit == cpu::CgroupMemory::kNone);
  root.write("sys/fs/cgroup/memory/box/run/memory.limit_in_bytes",
             "9223372036854771712\n");  // as version 1 says "none"
  root.write("sys/fs/cgroup/memory/box/run/memory.usage_in_bytes", "100\n");
  root.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "6000\n");
  root.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "2000\n");
  root.write("sys/fs/cgroup/memory/box/memory.stat",
             "active_file 1\ntotal_active_file 300\ntotal_inactive_file 200\n");
  CHECK(memory().limit == 6000);
  CHECK(memory().free == 4500);
  // In a container the group's own folder is the mount.
  root.write("proc/self/cgroup", "4:memory:/docker/0123\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  CHECK(memory().free == 4000);
}

}  // namespace mtrain::testing
