#include "check.h"

#include "mtrain/base/error.h"

namespace mtrain::cuda {

namespace {
constexpr const char* kTool =
    "run it under compute-sanitizer to see which access, and report it: a kernel of mtrain is at "
    "fault";
}

DeviceFault describe_fault(cudaError_t status, const char* what) {
  std::string text = cat("the GPU failed in ", what, ": ", cudaGetErrorString(status),
                         " (CUDA error ", static_cast<int>(status), ")");
  switch (status) {
    case cudaErrorECCUncorrectable:
      return {cat("uncorrectable memory error (ECC) on the GPU, seen in ", what),
              "values cannot be trusted: take the GPU out of service (`nvidia-smi -q -d ECC`) and "
              "resume from the "
              "last checkpoint"};
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
      return {text, kTool};
    case cudaErrorLaunchTimeout:
      return {
          text,
          "the driver ended a kernel that took too long: train on a GPU that drives no display"};
    case cudaErrorDevicesUnavailable:
      return {text, "another process holds the GPU exclusively: see `nvidia-smi`"};
    case cudaErrorNoKernelImageForDevice:
      return {
          text,
          "this build has no kernels for this GPU: configure with -DMT_CUDA_ARCHITECTURES=native"};
    default:
      return {text,
              "see `dmesg` and `nvidia-smi` for the driver's report, then resume from the last "
              "checkpoint"};
  }
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation)
    throw Error(ErrorClass::config, cat("the GPU has no memory left for ", what),
                "make train.micro_batch_size smaller, or set model.recompute=full");
  DeviceFault fault = describe_fault(status, what);
  throw Error(ErrorClass::peer, fault.message, fault.remedy);
}

}  // namespace mtrain::cuda
