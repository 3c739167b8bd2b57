// Failures of CUDA calls as Errors. Stateless.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

namespace mtrain::cuda {

/// Throws for everything but success. `what` is the call or the kernel. A full device is
/// Error(config), as a full host is; a failed device or kernel is Error(peer): the rank cannot go
/// on, a job can be started again.
void check(cudaError_t status, const char* what);

/// What became of a device on which `status` was seen, and what to do about it.
struct DeviceFault {
  std::string message, remedy;
};
DeviceFault describe_fault(cudaError_t status, const char* what);

}  // namespace mtrain::cuda

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the call's text is wanted.
#define MT_CUDA(call) ::mtrain::cuda::check((call), #call)
