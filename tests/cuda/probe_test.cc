#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "check.h"
#include "mtrain/base/error.h"
#include "runtime_api.h"
#include "table.h"

using namespace mtrain;
using cuda::judge;
using cuda::ProbeAnswers;

TEST_CASE("each way to have no device is one sentence with a way out of its own") {
  struct Case {
    ProbeAnswers answers;
    const char *reason, *remedy;
  };
  const Case cases[] = {
      {{.status = cudaErrorInsufficientDriver, .driver_version = 0, .needed_version = 13000},
       "no NVIDIA driver",
       "CUDA 13.0"},
      {{.status = cudaErrorInsufficientDriver, .driver_version = 12020, .needed_version = 13000},
       "it knows CUDA 12.2",
       "install a newer driver"},
      {{.status = cudaErrorNoDevice, .driver_version = 13000}, "no NVIDIA GPU", "--gpus all"},
      {{.status = cudaErrorNoDevice, .driver_version = 13000, .visible = "7"},
       "CUDA_VISIBLE_DEVICES is '7'",
       "unset CUDA_VISIBLE_DEVICES"},
      {{.devices = 1,
        .driver_version = 13000,
        .kernels = false,
        .first = "Tesla T4, compute capability 7.5"},
       "no kernels for the GPU (Tesla T4",
       "MT_CUDA_ARCHITECTURES"},
      {{.status = cudaErrorECCUncorrectable, .driver_version = 13000}, "ECC", "out of service"},
      {{.status = cudaErrorSystemDriverMismatch, .driver_version = 13000},
       "CUDA error 803",
       "nvidia-smi"},
  };
  for (const Case& c : cases) {
    auto verdict = judge(c.answers);
    INFO(verdict.probe.reason << " | " << verdict.remedy);
    CHECK(verdict.probe.devices == 0);
    CHECK(verdict.probe.reason.find(c.reason) != std::string::npos);
    CHECK(verdict.remedy.find(c.remedy) != std::string::npos);
    CHECK(verdict.probe.reason.find('\n') == std::string::npos);
  }
  auto usable = judge({.devices = 8, .driver_version = 13000, .needed_version = 13000});
  CHECK(usable.probe.devices == 8);
  CHECK(usable.probe.reason.empty());
  CHECK(usable.remedy.empty());
}

TEST_CASE("the list of compiled architectures says which devices have kernels") {
  CHECK(cuda::runs_on("80-real,90a-real", 80));
  CHECK(cuda::runs_on("80-real,90a-real", 86));  // code of the same major number
  CHECK(cuda::runs_on("80-real,90a-real", 90));
  CHECK_FALSE(cuda::runs_on("80-real,90a-real", 75));
  CHECK_FALSE(cuda::runs_on("80-real,90a-real", 100));
  CHECK_FALSE(cuda::runs_on("86-real", 80));
  CHECK(cuda::runs_on("80", 100));  // with PTX
  CHECK(cuda::runs_on("80-virtual", 120));
  CHECK_FALSE(cuda::runs_on("90a", 100));  // 'a' is for this device alone
  CHECK(cuda::runs_on("100f-real", 103));
  CHECK_FALSE(cuda::runs_on("100f", 120));
  CHECK(cuda::runs_on("native", 75));
}

TEST_CASE("failures of calls carry the class of who has to act") {
  auto caught = [](cudaError_t status) {
    try {
      cuda::check(status, "a kernel");
    } catch (const Error& error) {
      CHECK_FALSE(error.hint().empty());
      return error.error_class();
    }
    return ErrorClass::bug;
  };
  CHECK(caught(cudaErrorMemoryAllocation) == ErrorClass::config);
  CHECK(caught(cudaErrorECCUncorrectable) == ErrorClass::peer);
  CHECK(caught(cudaErrorLaunchFailure) == ErrorClass::peer);
  CHECK(caught(cudaErrorIllegalAddress) == ErrorClass::peer);
  CHECK_NOTHROW(cuda::check(cudaSuccess, "a kernel"));
}

TEST_CASE("the CUDA backend offers every kernel") {
  KernelTable kernels = cuda::cuda_kernels();
#define MT_CHECK_KERNEL(entry, Args) CHECK_MESSAGE((kernels.entry != nullptr), #entry);
  MT_KERNELS(MT_CHECK_KERNEL)
#undef MT_CHECK_KERNEL
}
